//! Writes spans as Zipkin v2 JSON, following OpenTelemetry's "OpenTelemetry to Zipkin"
//! transformation.

use std::io::{self, Write};

use super::super::TraceWriter;
use super::super::json::write::hex;
use super::super::keys::Keys;
use super::super::otel_tags::{self, status_word};
use super::super::plain_json::{text_of, write_integer, write_string};
use super::endpoint::{Endpoint, is_local, tagged};
use super::loss::{is_untrue_error, keeps_error};
use super::{DEBUG, MORE_PARENTS, annotation, link};
use astracer_model::span::{ErrorTag, ScopeTags, Span, SpanKind, Status, lookup};
use astracer_model::time::UnixNanos;
use astracer_model::value::Value;

/// Writes one list of all spans, trace by trace, as Zipkin's API and UI accept it. [`write_span`]
/// documents the losses.
pub(crate) struct Writer<'w> {
    out: Box<dyn Write + 'w>,
    buffer: Vec<u8>,
    any: bool,
}

/// The buffer is written to the output when it reaches this size.
const BUFFER_BYTES: usize = 64 << 10;

impl<'w> Writer<'w> {
    pub(crate) fn new(out: Box<dyn Write + 'w>) -> Self {
        Self { out, buffer: b"[".to_vec(), any: false }
    }

    fn write_out(&mut self) -> io::Result<()> {
        let written = self.out.write_all(&self.buffer);
        self.buffer.clear();
        written
    }
}

impl TraceWriter for Writer<'_> {
    fn trace(&mut self, spans: &[Span<'_>]) -> io::Result<()> {
        for span in spans {
            put(&mut self.buffer, if self.any { ",\n" } else { "\n" });
            self.any = true;
            write_span(&mut self.buffer, span);
            if self.buffer.len() >= BUFFER_BYTES {
                self.write_out()?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        put(&mut self.buffer, "\n]\n");
        self.write_out()?;
        self.out.flush()
    }
}

/// Appends one span as a JSON object, an element of the list that Zipkin's `POST /api/v2/spans`
/// accepts.
///
/// # Losses
///
/// - Times and durations are truncated to microseconds. A duration below one microsecond is rounded
///   up to one, as Zipkin requires. A start in the first microsecond of 1970 is omitted. A span
///   that ends before it starts gets the shortest duration, and a span with an end but no start
///   loses the end.
/// - Tags are text: Booleans, numbers, lists, maps and bytes come back as strings. If two
///   attributes have one name, only the first is written; the span's attributes come before its
///   scope's, and those before its resource's.
/// - Tags belong to the span: attributes of the scope come back as attributes of the span, and so
///   do those of the resource outside the namespaces that describe a resource (see the
///   [module](super)).
/// - A resource without a service name gets OpenTelemetry's default, `unknown_service`.
/// - An attribute `error` that is false is omitted, because Zipkin treats its presence as an error.
///   If it came from Zipkin, it is written.
/// - Flags, schema URLs, links' flags, and the counts of attributes discarded from scope or
///   resource are not written.
pub fn write_span(out: &mut Vec<u8>, span: &Span<'_>) {
    put(out, "{\"traceId\":\"");
    // Zipkin writes 64-bit ids with 16 digits.
    let high = (span.trace_id.0 >> 64) as u64;
    if high != 0 {
        hex(out, high);
    }
    hex(out, span.trace_id.0 as u64);
    put(out, "\",\"id\":\"");
    hex(out, span.span_id.0);
    put(out, "\"");
    if let Some(parent) = span.parents.first() {
        put(out, ",\"parentId\":\"");
        hex(out, parent.0);
        put(out, "\"");
    }
    if !span.name.is_empty() {
        put(out, ",\"name\":");
        write_string(out, &span.name);
    }
    if let Some(kind) = kind(span.kind) {
        put(out, ",\"kind\":\"");
        put(out, kind);
        put(out, "\"");
    }
    write_times(out, span);
    write_endpoint(out, ",\"localEndpoint\":{", &Endpoint::local(&span.resource));
    if let Some(remote) = Endpoint::of_peer(span) {
        write_endpoint(out, ",\"remoteEndpoint\":{", &remote);
    }
    write_annotations(out, span);
    write_tags(out, span);
    if span.shared {
        put(out, ",\"shared\":true");
    }
    if let Some(Value::Bool(debug)) = lookup(&span.attributes, DEBUG) {
        put(out, if *debug { ",\"debug\":true" } else { ",\"debug\":false" });
    }
    put(out, "}");
}

fn kind(kind: SpanKind) -> Option<&'static str> {
    match kind {
        SpanKind::Unspecified | SpanKind::Internal => None,
        SpanKind::Server => Some("SERVER"),
        SpanKind::Client => Some("CLIENT"),
        SpanKind::Producer => Some("PRODUCER"),
        SpanKind::Consumer => Some("CONSUMER"),
    }
}

fn write_times(out: &mut Vec<u8>, span: &Span<'_>) {
    let Some(start) = span.start.filter(|&start| micros(start) > 0) else {
        if let Some(duration) = span.lone_duration.filter(|&duration| duration >= 1_000) {
            put(out, ",\"duration\":");
            write_integer(out, duration / 1_000);
        }
        return;
    };
    put(out, ",\"timestamp\":");
    write_integer(out, micros(start));
    if let Some(end) = span.end {
        put(out, ",\"duration\":");
        write_integer(out, (end.since(start) / 1_000).max(1));
    }
}

fn write_endpoint(out: &mut Vec<u8>, opening: &str, endpoint: &Endpoint<'_>) {
    put(out, opening);
    let texts = [("serviceName", &endpoint.service), ("ipv4", &endpoint.ipv4), ("ipv6", &endpoint.ipv6)];
    let mut count = 0;
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        comma(out, &mut count);
        write_string(out, name);
        put(out, ":");
        write_string(out, text);
    }
    if endpoint.port != 0 {
        comma(out, &mut count);
        put(out, "\"port\":");
        write_integer(out, endpoint.port);
    }
    put(out, "}");
}

fn write_annotations(out: &mut Vec<u8>, span: &Span<'_>) {
    if span.events.is_empty() {
        return;
    }
    put(out, ",\"annotations\":[");
    let mut count = 0;
    for event in &span.events {
        comma(out, &mut count);
        put(out, "{\"timestamp\":");
        write_integer(out, micros(event.time));
        put(out, ",\"value\":");
        write_string(out, &annotation::write(event));
        put(out, "}");
    }
    put(out, "]");
}

fn write_tags(out: &mut Vec<u8>, span: &Span<'_>) {
    let links: Vec<_> = span.links.iter().enumerate().map(|(index, link)| link::write(index, link)).collect();
    let mut tags = Tags { out, keys: Keys::default() };
    // Tags with a meaning come first, so that no attribute of the same name replaces them.
    let form = span.wording.status;
    if form.is_none_or(|form| form.code) {
        tags.text_if_any(otel_tags::STATUS_CODE, status_word(span.status).unwrap_or_default());
    }
    match form.map(|form| form.error) {
        None if span.status == Status::Error => tags.text(otel_tags::ERROR, &span.status_message),
        Some(ErrorTag::Description) => tags.text(otel_tags::ERROR, &span.status_message),
        Some(ErrorTag::Empty) => tags.text(otel_tags::ERROR, ""),
        Some(ErrorTag::True) => tags.text(otel_tags::ERROR, "true"),
        _ => {}
    }
    // The description is written for errors too, because servers that translate Zipkin's spans read
    // a description only from this tag.
    if form.is_none_or(|form| form.description) {
        tags.text_if_any(otel_tags::STATUS_DESCRIPTION, &span.status_message);
    }
    if span.kind == SpanKind::Internal {
        tags.text(otel_tags::KIND, "internal");
    }
    if span.parents.len() > 1 {
        let more: Vec<_> = span.parents[1..].iter().map(ToString::to_string).collect();
        tags.text(MORE_PARENTS, &more.join(","));
    }
    // The specification still requires the older names in addition to the newer ones.
    for (form, newer, older, text) in [
        (span.wording.scope_name, otel_tags::SCOPE_NAME, otel_tags::LIBRARY_NAME, &span.scope.name),
        (
            span.wording.scope_version,
            otel_tags::SCOPE_VERSION,
            otel_tags::LIBRARY_VERSION,
            &span.scope.version,
        ),
    ] {
        if form != ScopeTags::Older {
            tags.text_if_any(newer, text);
        }
        if form != ScopeTags::Newer {
            tags.text_if_any(older, text);
        }
    }
    tags.text_if_any(otel_tags::TRACE_STATE, &span.trace_state);
    tags.count(otel_tags::DROPPED_ATTRIBUTES, span.dropped_attributes);
    tags.count(otel_tags::DROPPED_EVENTS, span.dropped_events);
    tags.count(otel_tags::DROPPED_LINKS, span.dropped_links);
    for (key, text) in &links {
        tags.text(key, text);
    }
    for attribute in tagged(span) {
        let debug = attribute.key == DEBUG && matches!(attribute.value, Value::Bool(_));
        if (!is_untrue_error(attribute) || keeps_error(span)) && !debug {
            tags.value(&attribute.key, &attribute.value);
        }
    }
    for attribute in &span.scope.attributes {
        tags.value(&attribute.key, &attribute.value);
    }
    for attribute in span.resource.attributes.iter().filter(|attribute| !is_local(attribute)) {
        tags.value(&attribute.key, &attribute.value);
    }
    if !tags.keys.is_empty() {
        put(out, "}");
    }
}

/// The object of tags, which is omitted if there are none. Each key is written once.
struct Tags<'o, 'k> {
    out: &'o mut Vec<u8>,
    keys: Keys<'k>,
}

impl<'k> Tags<'_, 'k> {
    /// Writes a key; returns false if it was written before.
    fn key(&mut self, key: &'k str) -> bool {
        let first = self.keys.is_empty();
        let new = self.keys.insert(key);
        if new {
            put(self.out, if first { ",\"tags\":{" } else { "," });
            write_string(self.out, key);
            put(self.out, ":");
        }
        new
    }

    fn text(&mut self, key: &'k str, text: &str) {
        if self.key(key) {
            write_string(self.out, text);
        }
    }

    fn value(&mut self, key: &'k str, value: &Value<'_>) {
        if !self.key(key) {
            return;
        }
        match value {
            // The most frequent type needs no intermediate text.
            Value::String(text) => write_string(self.out, text),
            Value::Int(number) => {
                put(self.out, "\"");
                write_integer(self.out, *number);
                put(self.out, "\"");
            }
            Value::Bool(truth) => put(self.out, if *truth { "\"true\"" } else { "\"false\"" }),
            _ => write_string(self.out, &text_of(value)),
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

fn micros(time: UnixNanos) -> u64 {
    time.0 / 1_000
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn comma(out: &mut Vec<u8>, count: &mut usize) {
    if *count > 0 {
        out.push(b',');
    }
    *count += 1;
}
