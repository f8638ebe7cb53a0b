//! Limits on the parts of a span, and the conventions for errors in it.

/// Whether errors become exceptions and statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conventions {
    pub error_fields_to_exceptions: bool,
    pub error_records_to_exceptions: bool,
    pub error_events_to_exceptions: bool,
    pub error_events_to_status: bool,
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
/// `Builder::with_open_bytes_max`.
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
pub(super) const NAME_LENGTH: u32 = 32_768;

impl SpanLimits {
    /// Bytes of attributes, events and links in one span.
    pub(super) const BYTES_MAX: usize = 4 << 20;

    /// The limit on characters of names and of other texts that are not attributes.
    pub fn name_length(&self) -> u32 {
        self.text_length.max(NAME_LENGTH)
    }
}
