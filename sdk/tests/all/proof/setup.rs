//! The layers and settings that programs run with, and the counts that are compared.

use std::time::Duration;

use astracer_sdk::{ContextMode, DroppedSpans, ProvisionalMode, Start};

/// The settings that programs run with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) dropped_spans: DroppedSpans,
    pub(crate) context: ContextMode,
    pub(crate) start: Start,
    /// Calls the stock extension trait, through the feature `bridge`.
    pub(crate) bridge: bool,
    /// The sampler keeps the first of every `keep_every` traces that begin here, or none if this
    /// is 0.
    pub(crate) keep_every: u64,
    pub(crate) subscribers: usize,
    pub(crate) filter: Filter,
    /// Bounds that lose no spans, and only affect when they are exported.
    pub(crate) waiting: Waiting,
    /// Bounds that lose spans.
    pub(crate) room: Option<ByteBounds>,
    /// Late keeping, if it is on.
    pub(crate) late: Option<LateSetup>,
    /// An observer follows the flows.
    pub(crate) observed: bool,
}

impl Setup {
    pub(crate) fn is_cramped(&self) -> bool {
        self.room.is_some() || self.late.is_some_and(|late| late.is_cramped())
    }
}

/// The settings of late keeping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateSetup {
    pub(crate) provisional: ProvisionalMode,
    pub(crate) policies: &'static [LatePolicy],
    /// Whether traces that no policy keeps are held. Otherwise they are given up at once.
    pub(crate) holds: bool,
    /// The hold in steps, if it is shorter than a program.
    pub(crate) steps: Option<u32>,
    pub(crate) ring_bytes: usize,
}

impl LateSetup {
    /// Whether the ring is so small that it gives up traces that the reference keeps.
    pub(crate) fn is_cramped(&self) -> bool {
        self.ring_bytes < 1 << 20
    }
}

/// A policy, as text and as the reference models it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatePolicy {
    pub(crate) text: &'static str,
    /// The reason on the spans that it keeps.
    pub(crate) name: &'static str,
    /// Traces that it may keep in total.
    pub(crate) budget: Option<u64>,
    /// A root that takes more steps is slow.
    pub(crate) slow: Option<u64>,
}

impl LatePolicy {
    pub(crate) fn is_slow(&self, steps: u64) -> bool {
        self.slow.is_some_and(|slow| steps > slow)
    }
}

/// Counts of recorded traces, as in `Stats`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Spans and traces in the ring.
    pub(crate) held: (u64, u64),
    /// Spans and traces by reason, in the order of `GivenUpTraces`.
    pub(crate) given_up: [(u64, u64); 6],
    /// By policy: (kept, refused).
    pub(crate) policies: Vec<(u64, u64)>,
    pub(crate) kept_by_hand: u64,
    pub(crate) not_there: u64,
    pub(crate) traces_open: u64,
}

impl Counts {
    /// Indices into `given_up`.
    pub(crate) const LATE: usize = 4;
    pub(crate) const SHUT_DOWN: usize = 5;
}

/// Outcomes of a key's roots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct KeyCounts {
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) missed_errors: u64,
    pub(crate) missed_slow: u64,
}

/// Bounds on ended spans that wait for their trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) open_traces: u32,
    pub(crate) spans_per_trace: u32,
    pub(crate) trace_age: Duration,
}

/// Bounds so small that programs reach them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteBounds {
    pub(crate) open_bytes: usize,
    pub(crate) queue_bytes: usize,
}

/// Counts of the spans of kept traces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Made {
    /// Spans that began.
    pub(crate) made: u64,
    /// Spans that have not ended.
    pub(crate) open: u64,
    /// Spans that ended after the shutdown.
    pub(crate) lost: u64,
}

/// A filter that hides spans below the level INFO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Filter {
    None,
    /// On our layer: other layers see the spans.
    OnLayer,
    /// On the whole subscriber.
    Beside,
}

/// The layers that the reference can imitate. They differ in what the extension trait does with a
/// span bound to the dropped root above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Our layer: the span's parent cannot be set, and its context is the dropped trace's.
    Layer,
    /// Our subscriber: as the layer, and it disables events where it disables spans.
    Subscriber,
    /// tracing-opentelemetry: no span is bound.
    Stock,
}

impl Kind {
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Kind::Layer | Kind::Subscriber)
    }

    /// Whether a span that begins below a dropped one is bound to it.
    pub(crate) fn binds(self, attributes: &tracing::span::Attributes<'_>) -> bool {
        let is_outward = is_outward(attributes.metadata());
        match self {
            Kind::Layer | Kind::Subscriber => !(is_outward && attributes.is_contextual()),
            Kind::Stock => false,
        }
    }
}

/// Whether spans of this callsite communicate with other processes.
pub(crate) fn is_outward(metadata: &tracing::Metadata<'_>) -> bool {
    metadata.fields().iter().any(|field| field.name() == "otel.kind")
}
