//! The outcome of a trace as the process of its root knows it when the root ends.

use std::collections::HashMap;

use astracer_model::Status;
use astracer_recording::recording::{Recording, SpanView, TraceView};
use astracer_recording::stop::Pulse;
use astracer_samplers::strata::{Kind, Stratum};
use astracer_samplers::tail::Tail;
use astracer_samplers::{Nanos, Template};

/// The outcome of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ending {
    /// The duration of the root.
    pub duration_ns: u64,
    /// The [`Kind`] of the spans in the root's process.
    pub kind: u64,
    /// Whether a span in the root's process failed.
    pub is_error: bool,
}

impl Ending {
    /// The stratum of the trace within its key.
    pub fn stratum(&self, by_kind: bool) -> Stratum {
        let duration = Nanos::new(self.decided_after_ns());
        Stratum::new(duration, self.is_error).with_kind(by_kind.then_some(self.kind))
    }

    /// The time from the root's start to the decision: a root that is open for longer is decided by
    /// its age.
    pub fn decided_after_ns(&self) -> u64 {
        self.duration_ns.min(Tail::TRACE_AGE_MAX.get())
    }
}

/// Reads endings, with buffers that are reused from trace to trace.
#[derive(Debug)]
pub(super) struct Endings {
    /// Names as a service folds them for kinds, whatever the recording's names are folded by.
    names: Vec<Option<String>>,
    /// The depth of each span in the root's process; `None` for spans elsewhere.
    depths: HashMap<u32, Option<usize>>,
    way: Vec<u32>,
    kind: Kind,
}

impl Endings {
    pub(super) fn new(recording: &Recording) -> Self {
        let template = Template::default();
        let folded = |name: &str| {
            let mut folded = String::new();
            template.fold(name, &mut folded).then_some(folded)
        };
        let names = recording.names().names().map(folded).collect();
        Self { names, depths: HashMap::new(), way: Vec::new(), kind: Kind::default() }
    }

    /// The ending of a trace; `None` if asked to stop. Spans that end after the root are unknown
    /// when the root ends.
    pub(super) fn of(&mut self, trace: TraceView<'_>, pulse: &mut Pulse<'_>) -> Option<Ending> {
        let root = trace.root();
        let end_ns = |span: SpanView<'_>| span.start().0.saturating_add(span.duration_ns());
        let (service, until_ns) = (root.service_symbol(), end_ns(root));
        let mut ending = Ending { duration_ns: root.duration_ns(), ..Ending::default() };
        self.depths.clear();
        for span in trace.spans() {
            let depth = self.depth(span, |span| span.service_symbol() == service, root.index(), pulse)?;
            if let Some(depth) = depth.filter(|_| end_ns(span) <= until_ns) {
                ending.is_error |= span.status() == Status::Error;
                let folded = self.names[span.name_symbol().index()].as_deref();
                self.kind.add(folded.unwrap_or(span.name()), depth);
            }
        }
        ending.kind = self.kind.take();
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
    ) -> Option<Option<usize>> {
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
        // One that ends after the root is unknown, too.
        assert_eq!(with(&[(6, 3, "parse", "a", 301, true)]), plain);
    }
}
