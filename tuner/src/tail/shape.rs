//! The shape of a trace, as a service sees it: the set of the paths of names from the root to each
//! span.
//!
//! A path counts once, however often it was taken, so that loops of different lengths are one
//! shape. Call trees tell them apart.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use astracer_recording::recording::{SpanView, TraceView};
use astracer_recording::stop::Pulse;

/// Buffers, reused from trace to trace.
#[derive(Debug, Default)]
pub(super) struct Shaper {
    /// Hashes of paths, by the index of the span at their ends.
    paths: HashMap<u32, u64>,
    way: Vec<(u32, u32)>,
}

impl Shaper {
    /// A hash of the shape of these spans; `None` if asked to stop.
    pub(super) fn shape(
        &mut self,
        trace: TraceView<'_>,
        is_seen: impl Fn(SpanView<'_>) -> bool,
        pulse: &mut Pulse<'_>,
    ) -> Option<u64> {
        let Self { paths, way } = self;
        paths.clear();
        for span in trace.spans().filter(|span| is_seen(*span)) {
            // Up to the first span whose path is known, and down again: a trace can be a million
            // spans deep.
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

/// The same in all runs.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
