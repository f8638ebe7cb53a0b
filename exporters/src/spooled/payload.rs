//! The records of a spool: requests in one of OTLP's encodings.

use std::sync::Arc;

use astracer_formats::{Limits, otlp_json, otlp_proto};
use astracer_model::sink::Record as Place;
use astracer_model::{Format, Problem, Sink, Span};

/// The kind under which the spool stores a format.
pub(super) fn kind_of(format: Format) -> u32 {
    u32::from(format == Format::OtlpJson)
}

fn format_of(kind: u32) -> Format {
    if kind == 1 { Format::OtlpJson } else { Format::OtlpProto }
}

/// Spans of a record.
#[derive(Default)]
struct Spans(Vec<Span<'static>>);

impl Sink for Spans {
    fn span(&mut self, span: Span<'_>, _place: Place<'_>) {
        self.0.push(span.into_owned());
    }

    fn problem(&mut self, _problem: Problem) {}

    fn skipped(&mut self, _file: &Arc<str>, _reason: &str) {}
}

/// Returns the spans of a record that can be decoded.
pub(super) fn decode(kind: u32, payload: &[u8]) -> Vec<Span<'static>> {
    let mut spans = Spans::default();
    let limits = Limits { record_bytes_max: payload.len(), ..Limits::default() };
    let (body, file) = (&mut &*payload, &"spool".into());
    match format_of(kind) {
        Format::OtlpJson => otlp_json::read(body, file, &limits, &mut spans),
        _ => otlp_proto::read(body, file, &limits, &mut spans),
    }
    spans.0
}
