//! The layer's settings, and their defaults.

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
    /// Spans below a dropped root are disabled for every layer: one thread-local read refuses them.
    ///
    /// Events are not touched, but other layers no longer know which span they are in. A disabled
    /// span carries nothing to other threads or tasks: spans that begin there begin traces of their
    /// own. `tracing` asks before it tells of parents, so below a dropped root spans with
    /// `parent: None`, or with a parent in a kept trace, are disabled as well.
    ///
    /// A filter on the layer itself (`with_filter`) makes this mode [`Visible`](Self::Visible):
    /// `tracing_subscriber` then asks the filter in the layer's place. A filter beside the layer
    /// does not. In a `Vec` of layers, one that wants all spans does as well.
    ///
    /// Spans that are declared with a field `otel.kind` still exist: clients and servers have them,
    /// and the processes that they call have to know that the trace is dropped.
    Disabled,
}

impl DroppedSpans {
    /// Whether a span of this callsite is disabled below a dropped root.
    #[inline]
    pub(crate) fn refuses(self, metadata: &Metadata<'_>) -> bool {
        self == DroppedSpans::Disabled && metadata.is_span() && !faces_outward(metadata)
    }
}

/// Whether spans of this callsite talk to other processes, as clients and servers do.
#[inline]
pub(crate) fn faces_outward(metadata: &Metadata<'_>) -> bool {
    let fields = metadata.fields();
    !fields.is_empty() && fields.iter().any(|field| field.name() == "otel.kind")
}

/// The moment at which a span starts: its parent is settled then, and a local root is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// When the span is entered, asked for its context, or ends, or a span begins below it. Until
    /// then [`set_parent`](crate::OpenTelemetrySpanExt::set_parent) works, and what is recorded may
    /// be part of a root's key.
    #[default]
    WhenUsed,
    /// When the span begins. A parent in another process is the one whose context is current then,
    /// so code that receives a call attaches the context first, as `RemoteParentLayer` does
    /// (feature `http`); `set_parent` fails. A root's key is made of the fields that it is created
    /// with. A dropped root keeps none of its fields, and only those that the key needs are
    /// formatted.
    AtOnce,
}

/// The content of [`opentelemetry::Context::current`] inside the layer's spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContextMode {
    /// Nothing of the layer's. Only for programs without code on the OpenTelemetry API and without
    /// propagation.
    Off,
    /// A span with the right ids, flags and trace state, which records nothing: propagators, log
    /// bridges and child spans by the OpenTelemetry API work; attributes set on it are lost. One
    /// allocation for each kept span, and three for a copy of the trace state, if the trace has a
    /// weight.
    Ids,
    /// The span itself: attributes set on it are recorded. Two allocations for each kept span, and
    /// two copies of the trace state.
    #[default]
    Recording,
}

/// Attributes that are added to spans and events, by the names and with the defaults of
/// tracing-opentelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) location: bool,
    pub(crate) threads: bool,
    pub(crate) level: bool,
    pub(crate) target: bool,
    pub(crate) inactivity: bool,
}

/// The conversion of errors to exceptions and statuses.
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
/// says how many attributes, events and links were cut. Beside these, what one span holds takes at
/// most 4 MiB, and what all open spans hold as much as
/// [`Builder::with_open_bytes_max`](crate::Builder::with_open_bytes_max) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanLimits {
    /// Attributes of a span; `OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT`.
    pub attributes: u32,
    /// Characters of a text attribute, and of each text in a list;
    /// `OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT`. Names of spans and events and descriptions of a
    /// status are no attributes: they are cut after 32,768 characters, or after as many as this
    /// says if that is more.
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
    /// 128 of each, and 32,768 characters. (The specification has no limit on characters by
    /// default.)
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

/// Characters of a name, whatever the limit on attributes says: it is not meant for names.
pub(crate) const NAME_LENGTH: u32 = 32_768;

impl SpanLimits {
    /// Characters of names and of other texts that are no attributes.
    pub(crate) fn name_length(&self) -> u32 {
        self.text_length.max(NAME_LENGTH)
    }

    /// Bytes of attributes, events and links that one span holds.
    pub(crate) const fn bytes(&self) -> usize {
        4 << 20
    }
}

/// Reaction to ended traces when the queue to the exporter is full. Nothing that is queued is shed
/// for a trace that would not fit all the same. The lost spans are counted in
/// [`Losses::queue_full`](crate::Losses::queue_full), and the calls that they stood for in
/// [`Stats::calls_lost`](crate::Stats::calls_lost).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// New traces are shed: what is queued stays.
    #[default]
    ShedNewest,
    /// The oldest queued traces make space for new ones.
    ShedOldest,
    /// The queued traces with the lowest weights (adjusted counts, compared by powers of two) make
    /// space for heavier ones; a new trace that is no heavier than all others is shed.
    ShedLowestWeight,
    /// The thread that ends a span waits for space, but no longer than this; then the new trace is
    /// shed. This slows the service down: it is for jobs that would rather take longer than lose
    /// traces. Threads that were let in at the same time may exceed the queue's bounds, up to twice
    /// their values.
    Block(Duration),
}

/// All settings of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) dropped_spans: DroppedSpans,
    pub(crate) context: ContextMode,
    pub(crate) start: Start,
    pub(crate) extras: Extras,
    pub(crate) conventions: Conventions,
    pub(crate) limits: SpanLimits,
    pub(crate) bounds: Bounds,
}

/// Bounds on memory and on waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Bytes of open spans: see [`Budget`](crate::budget::Budget).
    pub(crate) open_bytes: usize,
    /// Traces whose ended spans are gathered. Spans of further traces leave one by one.
    pub(crate) open_traces: u32,
    /// Ended spans that one trace gathers before they leave.
    pub(crate) spans_per_trace: u32,
    /// The age after which a trace's ended spans leave without waiting for its local root.
    pub(crate) trace_age: Duration,
    /// Bytes that wait for the exporter.
    pub(crate) queue_bytes: usize,
    /// Traces, or parts of traces, that wait for the exporter.
    pub(crate) queue_traces: usize,
    pub(crate) when_full: WhenFull,
    /// Exports that may be under way at the same time; as the exporter wants it by default.
    pub(crate) in_flight: Option<usize>,
    /// Spans that go to the exporter at once.
    pub(crate) batch_spans: usize,
    /// The longest time that ended traces wait to make a batch.
    pub(crate) batch_delay: Duration,
}

impl Bounds {
    /// Bytes that one trace gathers before they leave: small enough that a part fits into the
    /// queue.
    pub(crate) fn bytes_per_part(&self) -> usize {
        self.bytes_per_trace().min(1 << 20)
    }

    /// Bytes of a trace that leaves as a whole: its lists, which double as they grow, fit into the
    /// queue beside others.
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
                when_full: WhenFull::default(),
                in_flight: None,
                batch_spans: 512,
                batch_delay: Duration::from_secs(1),
            },
        }
    }
}
