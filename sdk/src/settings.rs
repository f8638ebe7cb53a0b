//! What a layer records, and how much of it.

use std::time::Duration;

use tracing_core::Metadata;

/// How the layer lives with the other layers of its subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DroppedSpans {
    /// Other layers see every span; below a dropped root ours adds nearly nothing to what they cost.
    #[default]
    Visible,
    /// A span below a dropped root does not exist, for anyone: one thread-local read refuses it. Events are not
    /// touched, but other layers no longer know which span they are in. A refused span carries nothing to other
    /// threads or tasks: spans that begin there begin traces of their own. And `tracing` asks before it tells of
    /// parents, so a span with `parent: None` is refused as well. A filter on the layer itself (`with_filter`) makes
    /// this mode shared: `tracing_subscriber` then asks the filter in the layer's place; one beside it does not.
    ///
    /// Spans that are declared with a field `otel.kind` exist nevertheless: they are those of clients and servers, and
    /// what they call is to know that the trace is dropped.
    Disabled,
}

impl DroppedSpans {
    /// Whether a span like this does not exist below a dropped root.
    #[inline]
    pub(crate) fn refuses(self, metadata: &Metadata<'_>) -> bool {
        self == DroppedSpans::Disabled && metadata.is_span() && !faces_outward(metadata)
    }
}

/// Whether such spans speak with other processes, as those of clients and servers do.
#[inline]
pub(crate) fn faces_outward(metadata: &Metadata<'_>) -> bool {
    let fields = metadata.fields();
    !fields.is_empty() && fields.iter().any(|field| field.name() == "otel.kind")
}

/// What [`opentelemetry::Context::current`] is inside of our spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextMode {
    /// Nothing of ours. Only for programs without any code on the OpenTelemetry API, and without propagation.
    Off,
    /// A span with the right ids, flags and trace state, which records nothing: propagators, log bridges and child
    /// spans by the OpenTelemetry API work; attributes set on it are lost. One allocation for each kept span, and three
    /// for a copy of the trace state, if the trace has a weight.
    Ids,
    /// The span itself: what is set on it is recorded. Two allocations for each kept span, and two copies of the trace
    /// state.
    #[default]
    Recording,
}

/// Which attributes are added to spans and events, by the names and with the defaults of tracing-opentelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) location: bool,
    pub(crate) threads: bool,
    pub(crate) level: bool,
    pub(crate) target: bool,
    pub(crate) inactivity: bool,
}

/// How errors become exceptions and statuses.
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

/// Limits on what one span holds (OpenTelemetry specification, "Span Limits"), and on what one trace holds while it is
/// open. What is cut is counted: on the exported span where OpenTelemetry has a place for it, else in the stats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanLimits {
    /// Attributes of a span; `OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT`.
    pub attributes: u32,
    /// Characters of a text attribute; `OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT`.
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
    /// 128 of each, and 32,768 characters. (The specification has no limit on characters by default.)
    fn default() -> Self {
        SpanLimits {
            attributes: 128,
            text_length: 32_768,
            events: 128,
            links: 128,
            attributes_per_event: 128,
            attributes_per_link: 128,
        }
    }
}

/// Everything the layer was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) presence: DroppedSpans,
    pub(crate) context: ContextMode,
    pub(crate) extras: Extras,
    pub(crate) conventions: Conventions,
    pub(crate) limits: SpanLimits,
    pub(crate) bounds: Bounds,
}

/// Bounds on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Kept traces open at once.
    pub(crate) open_traces: u32,
    /// Spans that one trace holds: open ones, and closed ones that wait for its end. When so many are reached, closed ones leave.
    pub(crate) spans_per_trace: u32,
    /// Bytes of text that one trace holds.
    pub(crate) text_per_trace: u32,
    /// Bytes that wait for the exporter.
    pub(crate) queue_bytes: usize,
    /// Spans that go to the exporter at once.
    pub(crate) batch_spans: usize,
    /// How long traces wait for others at most.
    pub(crate) batch_delay: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            presence: DroppedSpans::default(),
            context: ContextMode::default(),
            extras: Extras { location: true, threads: true, level: false, target: true, inactivity: true },
            conventions: Conventions::default(),
            limits: SpanLimits::default(),
            bounds: Bounds {
                open_traces: 16_384,
                spans_per_trace: 1_024,
                text_per_trace: 4 << 20,
                queue_bytes: 32 << 20,
                batch_spans: 512,
                batch_delay: Duration::from_secs(1),
            },
        }
    }
}
