//! The layer's settings and their defaults.

use tracing_core::Metadata;

use astracer_spans::bounds::Bounds;
use astracer_spans::export::Extras;
use astracer_spans::record::{Conventions, SpanLimits};

/// Whether other layers see the spans below a dropped root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DroppedSpans {
    /// Other layers see every span.
    #[default]
    Visible,
    /// Spans below a dropped root are disabled for every layer. Refusing a span takes one
    /// thread-local read.
    ///
    /// Events still reach other layers, but without the spans around them. A disabled span cannot
    /// carry its trace to another thread or task, so spans that begin there start traces of their
    /// own. `tracing` asks whether a span is enabled before it reveals the parent. So below a
    /// dropped root, spans with `parent: None` or with a parent in a kept trace are disabled as
    /// well.
    ///
    /// A filter on the layer itself (`with_filter`) turns this mode into
    /// [`Visible`](Self::Visible), because `tracing_subscriber` then asks the filter instead of the
    /// layer. A filter beside the layer does not. In a `Vec` of layers, another layer that wants
    /// all spans also makes them visible.
    ///
    /// Spans declared with a field `otel.kind` still exist. Client and server spans have that
    /// field, and called processes must learn that the trace is dropped.
    Disabled,
}

impl DroppedSpans {
    #[inline]
    pub(crate) fn refuses(self, metadata: &Metadata<'_>) -> bool {
        self == DroppedSpans::Disabled && metadata.is_span() && !faces_outward(metadata)
    }
}

/// Whether spans of this callsite communicate with other processes, as those of clients and servers
/// do.
#[inline]
pub(crate) fn faces_outward(metadata: &Metadata<'_>) -> bool {
    let fields = metadata.fields();
    !fields.is_empty() && fields.iter().any(|field| field.name() == "otel.kind")
}

/// The moment at which a span starts. From then on its parent is fixed and, if it is a local root,
/// its decision is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// When the span is entered, when its context is requested, when a span begins below it, or
    /// when it ends. Until then [`set_parent`](crate::OpenTelemetrySpanExt::set_parent) works, and
    /// fields recorded so far may be part of a root's key.
    #[default]
    WhenUsed,
    /// When the span begins. A remote parent must be in the current context by then, so code that
    /// receives a call attaches the context first, as `RemoteParentLayer` does (feature `http`);
    /// `set_parent` fails. A root's key is made of the fields it is created with. A dropped root
    /// stores no fields, and formats only those that the key needs.
    AtOnce,
}

/// The content of [`opentelemetry::Context::current`] inside the layer's spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContextMode {
    /// The layer does not touch the context. Only for programs that use neither the OpenTelemetry
    /// API nor propagation.
    Off,
    /// A span with the right ids, flags and trace state that records nothing. Propagators, log
    /// bridges and child spans made through the OpenTelemetry API work; attributes set on it are
    /// lost. Costs one allocation per kept span, and three more to copy the trace state if the
    /// trace has a weight.
    Ids,
    /// The span itself: attributes set on it are recorded. Costs two allocations per kept span, and
    /// two copies of the trace state.
    #[default]
    Recording,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) dropped_spans: DroppedSpans,
    pub(crate) context: ContextMode,
    pub(crate) start: Start,
    pub(crate) transport_roots: bool,
    pub(crate) extras: Extras,
    pub(crate) conventions: Conventions,
    pub(crate) limits: SpanLimits,
    pub(crate) bounds: Bounds,
}
