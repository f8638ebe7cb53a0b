//! The layer's settings and their defaults.

use std::time::Duration;

use astracer_samplers::tail::Tail;
use tracing_core::Metadata;

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
    /// Whether a span of this callsite is disabled below a dropped root.
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

/// Attributes added to spans and events, with the names and defaults of tracing-opentelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) location: bool,
    pub(crate) threads: bool,
    pub(crate) level: bool,
    pub(crate) target: bool,
    pub(crate) inactivity: bool,
}

/// Whether errors become exceptions and statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conventions {
    pub(crate) error_fields_to_exceptions: bool,
    pub(crate) error_records_to_exceptions: bool,
    pub(crate) error_events_to_exceptions: bool,
    pub(crate) error_events_to_status: bool,
}

impl Default for Conventions {
    fn default() -> Self {
        Conventions {
            error_fields_to_exceptions: true,
            error_records_to_exceptions: true,
            error_events_to_exceptions: true,
            error_events_to_status: true,
        }
    }
}

/// Limits on the parts of one span (OpenTelemetry specification, "Span Limits"). The exported span
/// reports how many attributes, events and links were cut. Two more limits apply: one span holds at
/// most 4 MiB, and all open spans together at most
/// [`Builder::with_open_bytes_max`](crate::Builder::with_open_bytes_max).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanLimits {
    /// Attributes of a span; `OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT`.
    pub attributes: u32,
    /// Characters of a text attribute, and of each text in a list;
    /// `OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT`. Names of spans and events and descriptions of a
    /// status are not attributes: they are cut after 32,768 characters, or after this limit if it
    /// is larger.
    pub text_length: u32,
    /// Events of a span; `OTEL_SPAN_EVENT_COUNT_LIMIT`.
    pub events: u32,
    /// Links of a span; `OTEL_SPAN_LINK_COUNT_LIMIT`.
    pub links: u32,
    /// Attributes of an event; `OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT`.
    pub attributes_per_event: u32,
    /// Attributes of a link; `OTEL_LINK_ATTRIBUTE_COUNT_LIMIT`.
    pub attributes_per_link: u32,
}

impl Default for SpanLimits {
    /// 128 of each, and 32,768 characters. (By default the specification does not limit
    /// characters.)
    fn default() -> Self {
        SpanLimits {
            attributes: 128,
            text_length: NAME_LENGTH,
            events: 128,
            links: 128,
            attributes_per_event: 128,
            attributes_per_link: 128,
        }
    }
}

/// Characters of a name. The limit on attributes is not meant for names, so a lower one does not
/// apply.
pub(crate) const NAME_LENGTH: u32 = 32_768;

impl SpanLimits {
    /// The limit on characters of names and of other texts that are not attributes.
    pub(crate) fn name_length(&self) -> u32 {
        self.text_length.max(NAME_LENGTH)
    }

    /// The limit on bytes of attributes, events and links in one span.
    pub(crate) const fn bytes(&self) -> usize {
        4 << 20
    }
}

/// The reaction to ended traces when the queue to the exporter is full. Lost spans are counted in
/// [`Losses::queue_full`](crate::Losses::queue_full), and the calls that they represented in
/// [`Stats::calls_lost`](crate::Stats::calls_lost).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenQueueFull {
    /// Sheds new traces; queued traces stay.
    #[default]
    ShedNewest,
    /// The thread that ends a span waits for space, at most this long; then the new trace is shed.
    /// This slows the service down and suits jobs that would rather take longer than lose traces.
    /// Threads admitted at the same time may exceed the queue's bounds, up to twice their values.
    Block(Duration),
}

/// All settings of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) dropped_spans: DroppedSpans,
    pub(crate) context: ContextMode,
    pub(crate) start: Start,
    /// Whether spans of transports may begin traces.
    pub(crate) transport_roots: bool,
    pub(crate) extras: Extras,
    pub(crate) conventions: Conventions,
    pub(crate) limits: SpanLimits,
    pub(crate) bounds: Bounds,
}

/// Bounds on memory and on waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Bytes of open spans: see [`MemoryBudget`](crate::memory_budget::MemoryBudget).
    pub(crate) open_bytes: usize,
    /// Traces whose ended spans are gathered. Spans of further traces are queued one by one.
    pub(crate) open_traces: u32,
    /// Ended spans that one trace gathers before they are queued.
    pub(crate) spans_per_trace: u32,
    /// The age at which a trace's ended spans are queued without waiting for its local root.
    pub(crate) trace_age: Duration,
    /// Bytes that wait for the exporter.
    pub(crate) queue_bytes: usize,
    /// Traces, or parts of traces, that wait for the exporter.
    pub(crate) queue_traces: usize,
    pub(crate) when_full: WhenQueueFull,
    /// Exports in flight at once; `None`: the exporter's own default.
    pub(crate) in_flight: Option<usize>,
    /// Spans in one call of the exporter.
    pub(crate) batch_spans: usize,
    /// The longest time that ended traces wait for their batch to fill.
    pub(crate) batch_delay: Duration,
}

impl Bounds {
    /// Bytes that one trace gathers before they are queued as a part. Small enough for a part to
    /// fit into the queue.
    pub(crate) fn bytes_per_part(&self) -> usize {
        self.bytes_per_trace().min(1 << 20)
    }

    /// Bytes of a trace that is queued as a whole. Its lists double as they grow, and must still
    /// fit into the queue beside others.
    pub(crate) fn bytes_per_trace(&self) -> usize {
        self.queue_bytes / 4
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            dropped_spans: DroppedSpans::default(),
            context: ContextMode::default(),
            start: Start::default(),
            transport_roots: false,
            extras: Extras { location: true, threads: true, level: false, target: true, inactivity: true },
            conventions: Conventions::default(),
            limits: SpanLimits::default(),
            bounds: Bounds {
                open_bytes: 128 << 20,
                open_traces: 16_384,
                spans_per_trace: 1_024,
                trace_age: Duration::from_nanos(Tail::TRACE_AGE_MAX.get()),
                queue_bytes: 32 << 20,
                queue_traces: 1 << 20,
                when_full: WhenQueueFull::default(),
                in_flight: None,
                batch_spans: 512,
                batch_delay: Duration::from_secs(1),
            },
        }
    }
}
