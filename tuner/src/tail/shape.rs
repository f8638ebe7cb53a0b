//! The shape of a trace as a service calculates it: the set of the paths of names from the root to
//! each span.
//!
//! Each path counts once, however often it occurs, so loops of different lengths have the same
//! shape. (Call trees distinguish them.)

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use astracer_recording::recording::{SpanView, TraceView};
use astracer_recording::stop::Pulse;

/// Buffers that are reused from trace to trace.
#[derive(Debug, Default)]
pub(super) struct Shaper {
    /// Hashes of paths, by the index of the span at the end of the path.
    paths: HashMap<u32, u64>,
    way: Vec<(u32, u32)>,
}

impl Shaper {
    /// A hash of the shape of the spans for which `is_seen` is true; `None` if asked to stop.
    pub(super) fn shape(
        &mut self,
        trace: TraceView<'_>,
        is_seen: impl Fn(SpanView<'_>) -> bool,
        pulse: &mut Pulse<'_>,
    ) -> Option<u64> {
        let Self { paths, way } = self;
        paths.clear();
        for span in trace.spans().filter(|span| is_seen(*span)) {
            // Goes up to the first span whose path is known, and then down again. Recursion would
            // overflow the stack: a trace can be a million spans deep.
            let mut next = Some(span);
            let mut above = loop {
                let Some(span) = next else { break 0 };
                if let Some(&path) = paths.get(&span.index()) {
                    break path;
                }
                way.push((span.index(), span.name_symbol().0));
                next = span.parent().filter(|parent| is_seen(*parent));
                if pulse.stopped() {
                    return None;
                }
            };
            while let Some((index, name)) = way.pop() {
                above = hash(&(above, name));
                paths.insert(index, above);
            }
        }
        let mut set: Vec<u64> = paths.values().copied().collect();
        set.sort_unstable();
        set.dedup();
        Some(hash(&set))
    }
}

/// A hash that is the same in all runs.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
