//! The outcome of a trace as the process of its root knows it when the root ends.

use std::collections::HashMap;

use astracer_model::Status;
use astracer_recording::recording::{Recording, SpanView, TraceView};
use astracer_recording::stop::Pulse;
use astracer_samplers::Nanos;
use astracer_samplers::strata::Stratum;

/// The number of spans that a kind looks at: those that end first, as in a service.
const KIND_SPANS_MAX: usize = 64;

/// The outcome of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ending {
    /// The duration of the root.
    pub duration_ns: u64,
    /// A hash of the set of names and depths of the spans in the root's process.
    pub kind: u64,
    /// Whether a span in the root's process failed.
    pub is_error: bool,
}

impl Ending {
    /// The stratum of the trace within its key.
    pub fn stratum(&self, by_kind: bool) -> Stratum {
        Stratum::new(Nanos::new(self.duration_ns), self.is_error).with_kind(by_kind.then_some(self.kind))
    }
}

/// Reads endings, with buffers that are reused from trace to trace.
#[derive(Debug)]
pub(super) struct Endings {
    /// The hash of each name.
    names: Vec<u64>,
    /// The depth of each span in the root's process; `None` for spans elsewhere.
    depths: HashMap<u32, Option<u32>>,
    way: Vec<u32>,
    /// The end, name and depth of each span in the root's process.
    local: Vec<(u64, u32, u32)>,
    kinds: Vec<(u32, u32)>,
}

impl Endings {
    pub(super) fn new(recording: &Recording) -> Self {
        let names = recording.names().names().map(|name| hash(name.as_bytes())).collect();
        Self { names, depths: HashMap::new(), way: Vec::new(), local: Vec::new(), kinds: Vec::new() }
    }

    /// The ending of a trace; `None` if asked to stop.
    pub(super) fn of(&mut self, trace: TraceView<'_>, pulse: &mut Pulse<'_>) -> Option<Ending> {
        let root = trace.root();
        let (mut ending, service) =
            (Ending { duration_ns: root.duration_ns(), ..Ending::default() }, root.service_symbol());
        self.depths.clear();
        self.local.clear();
        for span in trace.spans() {
            let depth = self.depth(span, |span| span.service_symbol() == service, root.index(), pulse)?;
            if let Some(depth) = depth {
                ending.is_error |= span.status() == Status::Error;
                let end_ns = span.start().0.saturating_add(span.duration_ns());
                self.local.push((end_ns, span.name_symbol().0, depth));
            }
        }
        if self.local.len() > KIND_SPANS_MAX {
            self.local.select_nth_unstable(KIND_SPANS_MAX);
            self.local.truncate(KIND_SPANS_MAX);
        }
        self.kinds.clear();
        self.kinds.extend(self.local.iter().map(|&(_, name, depth)| (name, depth)));
        self.kinds.sort_unstable();
        self.kinds.dedup();
        let part = |&(name, depth): &(u32, u32)| mix(self.names[name as usize] ^ mix(depth.into()));
        ending.kind = self.kinds.iter().map(part).fold(0, u64::wrapping_add);
        Some(ending)
    }

    /// The depth of a span below the root, if all spans between them are in the root's process.
    /// The outer `None` means asked to stop.
    fn depth(
        &mut self,
        span: SpanView<'_>,
        is_local: impl Fn(SpanView<'_>) -> bool,
        root: u32,
        pulse: &mut Pulse<'_>,
    ) -> Option<Option<u32>> {
        // Goes up to the first span whose depth is known, and then down again. Recursion would
        // overflow the stack: a trace can be a million spans deep.
        let mut next = Some(span);
        let mut depth = loop {
            if pulse.stopped() {
                return None;
            }
            let Some(span) = next else { break None };
            if let Some(&depth) = self.depths.get(&span.index()) {
                break depth;
            }
            if span.index() == root {
                self.depths.insert(root, Some(0));
                break Some(0);
            }
            self.way.push(span.index());
            next = Some(span).filter(|span| is_local(*span)).and_then(SpanView::parent);
        };
        while let Some(index) = self.way.pop() {
            depth = depth.map(|depth| depth + 1);
            self.depths.insert(index, depth);
        }
        Some(depth)
    }
}

/// FNV-1a, which is the same on every machine.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// SplitMix64's finaliser.
fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use astracer_model::problem::Place;
    use astracer_model::sink::{Record, Sink};
    use astracer_model::span::Resource;
    use astracer_model::{Span, SpanId, TraceId, UnixNanos};
    use astracer_recording::recording::{Intake, Keep};

    use super::*;
    use crate::stop::Stop;

    /// Spans of one trace as (id, parent, name, service, end in ms, failed); all begin at once.
    fn ending(spans: &[(u64, u64, &str, &str, u64, bool)]) -> Ending {
        let mut intake = Intake::new(Keep::default());
        let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
        for &(id, parent, name, service, end_ms, is_error) in spans {
            let span = Span {
                trace_id: TraceId(1),
                span_id: SpanId(id),
                parents: Some(SpanId(parent)).filter(|parent| *parent != SpanId::ZERO).into_iter().collect(),
                name: name.into(),
                resource: Arc::new(Resource::service(service)),
                start: Some(UnixNanos(0)),
                end: Some(UnixNanos(end_ms * 1_000_000)),
                status: if is_error { Status::Error } else { Status::Unset },
                ..Span::default()
            };
            intake.span(span, Record { bytes: b"x", place: &place });
        }
        let recording = intake.finish();
        let trace = recording.traces().next().expect("a trace");
        Endings::new(&recording).of(trace, &mut Stop::never().pulse()).expect("not stopped")
    }

    #[test]
    fn an_ending_is_that_of_the_roots_process() {
        let root = (1, 0, "root", "a", 300, false);
        let plain = ending(&[root, (2, 1, "read", "a", 9, false), (3, 1, "call", "a", 9, false)]);
        assert_eq!((plain.duration_ns, plain.is_error), (300_000_000, false));
        assert_eq!(plain.stratum(false).to_string(), "8");
        assert!(plain.stratum(true).to_string().starts_with("8:"));
        // Loops and other durations are of the same kind, other names and depths are not.
        let read = |id, parent| (id, parent, "read", "a", 200, false);
        let looped = [root, read(2, 1), read(4, 1), read(5, 1), (3, 1, "call", "a", 5, false)];
        assert_eq!(ending(&looped).kind, plain.kind);
        assert_ne!(ending(&[root, read(2, 1)]).kind, plain.kind);
        assert_ne!(ending(&[root, read(2, 3), (3, 1, "call", "a", 9, false)]).kind, plain.kind);
        // A failure elsewhere, or below a span elsewhere, is unknown when the root ends.
        let elsewhere = |status| [(6, 3, "serve", "b", 9, status), (7, 6, "back", "a", 9, status)];
        let with = |more: &[(u64, u64, &'static str, &'static str, u64, bool)]| {
            ending(&[&[root, read(2, 1), (3, 1, "call", "a", 9, false)], more].concat())
        };
        assert_eq!(with(&elsewhere(true)), plain);
        let failed = with(&[(6, 3, "parse", "a", 9, true)]);
        assert!(failed.is_error && failed.kind != plain.kind);
        assert_eq!(failed.stratum(false).to_string(), "8e");
    }

    /// The first 64 spans to end count; the root of a larger trace is not among them.
    #[test]
    fn a_kind_looks_at_a_bounded_number_of_spans() {
        let spans = |last: &'static str| {
            let mut spans = vec![(1, 0, "root", "a", 300, false)];
            spans.extend((2..66).map(|id| (id, 1, "read", "a", id, false)));
            spans.push((66, 1, last, "a", 200, false));
            ending(&spans).kind
        };
        assert_eq!(spans("other"), spans("read"));
        let few = ending(&[(1, 0, "root", "a", 300, false), (2, 1, "read", "a", 9, false)]);
        assert_ne!(few.kind, spans("read"), "the root counts among few");
    }
}
