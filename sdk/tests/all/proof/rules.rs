//! The layers that the reference can imitate, and their differences.

use astracer_sdk::ContextMode;

/// Rules that differ between the layer's modes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) context: ContextMode,
    /// Spans start when they begin.
    pub(crate) at_once: bool,
    /// Spans below a dropped root do not exist, unless they have a field `otel.kind`.
    pub(crate) refuses: bool,
    /// The sampler keeps the first of every `keep_every` traces that begin here, or none if this
    /// is 0.
    pub(crate) keep_every: u64,
    pub(crate) kind: Kind,
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
