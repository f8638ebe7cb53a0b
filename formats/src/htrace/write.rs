//! Writing spans as HTrace 4 does, one per line.

use std::io::{self, BufWriter, Write};

use super::super::TraceWriter;
use super::super::json::write::hex;
use super::super::keys::Keys;
use super::super::otel_tags::{self, status_word};
use super::super::plain_json::{text_of, write_integer, write_string};
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::span::Span;
use astracer_model::time::UnixNanos;

/// Writes each span on its own line.
pub(crate) struct Writer<'w> {
    out: BufWriter<Box<dyn Write + 'w>>,
    line: Vec<u8>,
}

impl<'w> Writer<'w> {
    pub(crate) fn new(out: Box<dyn Write + 'w>) -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, out), line: Vec::new() }
    }
}

impl TraceWriter for Writer<'_> {
    fn trace(&mut self, spans: &[Span<'_>]) -> io::Result<()> {
        for span in spans {
            self.line.clear();
            write_span(&mut self.line, span);
            self.line.push(b'\n');
            self.out.write_all(&self.line)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Appends one span as a JSON object in HTrace 4's form.
///
/// # Losses
///
/// - A trace id has 64 bits: only the low half of a longer one is written.
/// - Times are truncated to milliseconds. A time in the first millisecond of 1970 is written as
///   unset.
/// - Notes are text: other values come back as strings. Kind, status, scope, tracestate and the
///   counts of discarded items are notes with the names of OpenTelemetry's non-OTLP formats, from
///   which the reader restores them. If two notes have one name, only the first is written; the
///   span's attributes come before its scope's, and those before its resource's.
/// - Notes belong to the span: attributes of scope and resource come back as the span's own, except
///   the service's name.
/// - A link into the span's own trace is omitted, because it would come back as a parent. So is a
///   link without any id. Links to other traces are written without their attributes.
/// - Attributes of events, flags and schema URLs are not written.
pub fn write_span(out: &mut Vec<u8>, span: &Span<'_>) {
    put(out, "{\"a\":");
    write_id(out, span.trace_id, span.span_id);
    for (name, time) in [(",\"b\":", span.start), (",\"e\":", span.end)] {
        if let Some(millis) = time.and_then(millis) {
            put(out, name);
            write_integer(out, millis);
        }
    }
    for (name, text) in [(",\"d\":", &*span.name), (",\"r\":", span.resource.service_name())] {
        if !text.is_empty() {
            put(out, name);
            write_string(out, text);
        }
    }
    put(out, ",\"p\":[");
    let parents = span.parents.iter().map(|&parent| (span.trace_id, parent));
    let links = span.links.iter().map(|link| (link.trace_id, link.span_id));
    let is_nothing = |trace_id: TraceId, span_id: SpanId| low(trace_id) == 0 && span_id == SpanId::ZERO;
    let elsewhere = links
        .filter(|&(trace_id, span_id)| low(trace_id) != low(span.trace_id) && !is_nothing(trace_id, span_id));
    for (index, (trace_id, span_id)) in parents.chain(elsewhere).enumerate() {
        put(out, if index > 0 { "," } else { "" });
        write_id(out, trace_id, span_id);
    }
    put(out, "]");
    write_notes(out, span);
    for (index, event) in span.events.iter().enumerate() {
        put(out, if index > 0 { ",{" } else { ",\"t\":[{" });
        if let Some(millis) = millis(event.time) {
            put(out, "\"t\":");
            write_integer(out, millis);
            put(out, ",");
        }
        put(out, "\"m\":");
        write_string(out, &event.name);
        put(out, "}");
    }
    put(out, if span.events.is_empty() { "}" } else { "]}" });
}

fn write_notes(out: &mut Vec<u8>, span: &Span<'_>) {
    let mut notes = Notes { out, keys: Keys::default() };
    // Notes with a meaning come first, so that no attribute of the same name replaces them.
    notes.text_if_any(otel_tags::KIND, span.kind.word().unwrap_or_default());
    notes.text_if_any(otel_tags::STATUS_CODE, status_word(span.status).unwrap_or_default());
    notes.text_if_any(otel_tags::STATUS_DESCRIPTION, &span.status_message);
    notes.text_if_any(otel_tags::SCOPE_NAME, &span.scope.name);
    notes.text_if_any(otel_tags::SCOPE_VERSION, &span.scope.version);
    notes.text_if_any(otel_tags::TRACE_STATE, &span.trace_state);
    notes.count(otel_tags::DROPPED_ATTRIBUTES, span.dropped_attributes);
    notes.count(otel_tags::DROPPED_EVENTS, span.dropped_events);
    notes.count(otel_tags::DROPPED_LINKS, span.dropped_links);
    let of_resource = span.resource.attributes.iter().filter(|attribute| attribute.key != "service.name");
    for attribute in span.attributes.iter().chain(&span.scope.attributes).chain(of_resource) {
        notes.text(&attribute.key, &text_of(&attribute.value));
    }
    if !notes.keys.is_empty() {
        put(out, "}");
    }
}

/// The members of a span's notes.
struct Notes<'o, 'k> {
    out: &'o mut Vec<u8>,
    keys: Keys<'k>,
}

impl<'k> Notes<'_, 'k> {
    fn text(&mut self, key: &'k str, text: &str) {
        let opening = if self.keys.is_empty() { ",\"n\":{" } else { "," };
        if self.keys.insert(key) {
            put(self.out, opening);
            write_string(self.out, key);
            put(self.out, ":");
            write_string(self.out, text);
        }
    }

    fn text_if_any(&mut self, key: &'k str, text: &str) {
        if !text.is_empty() {
            self.text(key, text);
        }
    }

    fn count(&mut self, key: &'k str, count: u32) {
        if count > 0 {
            self.text(key, &count.to_string());
        }
    }
}

/// The half of a trace id that HTrace can represent.
fn low(trace_id: TraceId) -> u64 {
    trace_id.0 as u64
}

fn write_id(out: &mut Vec<u8>, trace_id: TraceId, span_id: SpanId) {
    put(out, "\"");
    hex(out, low(trace_id));
    hex(out, span_id.0);
    put(out, "\"");
}

fn millis(time: UnixNanos) -> Option<u64> {
    Some(time.0 / 1_000_000).filter(|&millis| millis > 0)
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}
