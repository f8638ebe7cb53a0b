//! The layers that the reference stands for, and where they differ.

use astracer_sdk::ContextMode;

/// Rules that differ between the layer's modes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) context: ContextMode,
    /// Spans start when they begin.
    pub(crate) at_once: bool,
    /// Spans below a dropped root do not exist, unless they have a field `otel.kind`.
    pub(crate) refuses: bool,
    /// Of traces that begin here, the first of each `keep_every` is kept; 0: none.
    pub(crate) keep_every: u64,
    pub(crate) kind: Kind,
}

/// The layers that the reference stands for. They differ in what the extension trait says of a span
/// that is bound to the dropped root above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Ours: its parent cannot be set, and its context is the dropped trace's.
    Layer,
    /// The same, and the subscriber disables events where it disables spans.
    Subscriber,
    /// tracing-opentelemetry's: no span is bound.
    Stock,
    /// The gate before tracing-opentelemetry's, which knows nothing of the span: its parent is set
    /// without effect, its context is empty, and no span is linked to it.
    Gate,
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
            Kind::Gate => !is_outward,
        }
    }
}

/// Whether spans like this one speak with other processes.
pub(crate) fn is_outward(metadata: &tracing::Metadata<'_>) -> bool {
    metadata.fields().iter().any(|field| field.name() == "otel.kind")
}
