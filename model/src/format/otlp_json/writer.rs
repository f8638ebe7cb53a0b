//! OTLP JSON lines: one export request a line, as the collector's file exporter writes them.

use std::io::{self, BufWriter, Write};

use crate::format::TraceWriter;
use crate::format::json::write::{Commas, base64, double, string};
use crate::format::otlp::{PARENT_KEY, SHARED_KEY, groups, linked_parents};
use crate::ids::{SpanId, TraceId};
use crate::span::{Event, Link, Resource, Scope, Span, SpanKind, Status};
use crate::value::{Attribute, Value};

/// A request is no longer than this; larger traces take several lines, so that no reader has to hold a giant.
const SPANS_PER_LINE_MAX: usize = 1 << 12;

/// Writes each trace as a request on a line of its own.
pub(in crate::format) struct Writer<'w> {
    out: BufWriter<Box<dyn Write + 'w>>,
}

impl<'w> Writer<'w> {
    pub(in crate::format) fn new(out: Box<dyn Write + 'w>) -> Self {
        Self { out: BufWriter::with_capacity(1 << 16, out) }
    }
}

impl TraceWriter for Writer<'_> {
    fn trace(&mut self, spans: &[Span<'_>]) -> io::Result<()> {
        spans.chunks(SPANS_PER_LINE_MAX).try_for_each(|spans| write_request(&mut self.out, spans))
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes one export request as a line: the body of an OTLP/HTTP request, or a line of a recording.
///
/// # Errors
///
/// If `out` can't be written to. A vector always can.
pub fn write_request(out: &mut dyn Write, spans: &[Span<'_>]) -> io::Result<()> {
    out.write_all(b"{\"resourceSpans\":[")?;
    let mut commas = Commas::default();
    for (resource, spans) in groups(spans.iter(), |span| &span.resource) {
        commas.next(out)?;
        out.write_all(b"{\"resource\":")?;
        resource_object(out, resource)?;
        out.write_all(b",\"scopeSpans\":[")?;
        let mut commas = Commas::default();
        for (scope, spans) in groups(spans.into_iter(), |span| &span.scope) {
            commas.next(out)?;
            out.write_all(b"{\"scope\":")?;
            scope_object(out, scope)?;
            out.write_all(b",\"spans\":[")?;
            let mut commas = Commas::default();
            for span in spans {
                commas.next(out)?;
                span_object(out, span)?;
            }
            out.write_all(b"]")?;
            text_member(out, "schemaUrl", &scope.schema_url)?;
            out.write_all(b"}")?;
        }
        out.write_all(b"]")?;
        text_member(out, "schemaUrl", &resource.schema_url)?;
        out.write_all(b"}")?;
    }
    out.write_all(b"]}\n")
}

fn resource_object(out: &mut dyn Write, resource: &Resource) -> io::Result<()> {
    out.write_all(b"{\"attributes\":")?;
    attribute_list(out, &resource.attributes, false)?;
    count_member(out, "droppedAttributesCount", resource.dropped_attributes)?;
    out.write_all(b"}")
}

fn scope_object(out: &mut dyn Write, scope: &Scope) -> io::Result<()> {
    out.write_all(b"{\"name\":")?;
    string(out, &scope.name)?;
    text_member(out, "version", &scope.version)?;
    attributes_member(out, &scope.attributes, false)?;
    count_member(out, "droppedAttributesCount", scope.dropped_attributes)?;
    out.write_all(b"}")
}

fn span_object(out: &mut dyn Write, span: &Span<'_>) -> io::Result<()> {
    ids(out, span.trace_id, span.span_id)?;
    text_member(out, "traceState", &span.trace_state)?;
    if let Some(parent) = span.parents.first() {
        write!(out, ",\"parentSpanId\":\"{parent}\"")?;
    }
    count_member(out, "flags", span.flags)?;
    out.write_all(b",\"name\":")?;
    string(out, &span.name)?;
    if span.kind != SpanKind::Unspecified {
        write!(out, ",\"kind\":{}", span.kind as u8)?;
    }
    if let Some(start) = span.start {
        write!(out, ",\"startTimeUnixNano\":\"{}\"", start.0)?;
    }
    if let Some(end) = span.end {
        write!(out, ",\"endTimeUnixNano\":\"{}\"", end.0)?;
    }
    attributes_member(out, &span.attributes, span.shared)?;
    count_member(out, "droppedAttributesCount", span.dropped_attributes)?;
    if !span.events.is_empty() {
        out.write_all(b",\"events\":[")?;
        let mut commas = Commas::default();
        for event in &span.events {
            commas.next(out)?;
            event_object(out, event)?;
        }
        out.write_all(b"]")?;
    }
    count_member(out, "droppedEventsCount", span.dropped_events)?;
    if !span.links.is_empty() || span.parents.len() > 1 {
        out.write_all(b",\"links\":[")?;
        let mut commas = Commas::default();
        for parent in linked_parents(span) {
            commas.next(out)?;
            ids(out, span.trace_id, parent)?;
            write!(out, ",\"attributes\":[{{\"key\":\"{PARENT_KEY}\",\"value\":{{\"boolValue\":true}}}}]}}")?;
        }
        for link in &span.links {
            commas.next(out)?;
            link_object(out, link)?;
        }
        out.write_all(b"]")?;
    }
    count_member(out, "droppedLinksCount", span.dropped_links)?;
    out.write_all(b",\"status\":{")?;
    let mut commas = Commas::default();
    if !span.status_message.is_empty() {
        commas.next(out)?;
        out.write_all(b"\"message\":")?;
        string(out, &span.status_message)?;
    }
    if span.status != Status::Unset {
        commas.next(out)?;
        write!(out, "\"code\":{}", span.status as u8)?;
    }
    out.write_all(b"}}")
}

fn event_object(out: &mut dyn Write, event: &Event<'_>) -> io::Result<()> {
    write!(out, "{{\"timeUnixNano\":\"{}\",\"name\":", event.time.0)?;
    string(out, &event.name)?;
    attributes_member(out, &event.attributes, false)?;
    count_member(out, "droppedAttributesCount", event.dropped_attributes)?;
    out.write_all(b"}")
}

fn link_object(out: &mut dyn Write, link: &Link<'_>) -> io::Result<()> {
    ids(out, link.trace_id, link.span_id)?;
    text_member(out, "traceState", &link.trace_state)?;
    attributes_member(out, &link.attributes, false)?;
    count_member(out, "droppedAttributesCount", link.dropped_attributes)?;
    count_member(out, "flags", link.flags)?;
    out.write_all(b"}")
}

/// Opens an object that starts with ids. An id of zero is none, which is written as such.
fn ids(out: &mut dyn Write, trace_id: TraceId, span_id: SpanId) -> io::Result<()> {
    match trace_id {
        TraceId::ZERO => out.write_all(b"{\"traceId\":\"\"")?,
        _ => write!(out, "{{\"traceId\":\"{trace_id}\"")?,
    }
    match span_id {
        SpanId::ZERO => out.write_all(b",\"spanId\":\"\""),
        _ => write!(out, ",\"spanId\":\"{span_id}\""),
    }
}

fn text_member(out: &mut dyn Write, key: &str, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    write!(out, ",\"{key}\":")?;
    string(out, text)
}

fn count_member(out: &mut dyn Write, key: &str, count: u32) -> io::Result<()> {
    if count == 0 { Ok(()) } else { write!(out, ",\"{key}\":{count}") }
}

fn attributes_member(out: &mut dyn Write, attributes: &[Attribute<'_>], shared: bool) -> io::Result<()> {
    if attributes.is_empty() && !shared {
        return Ok(());
    }
    out.write_all(b",\"attributes\":")?;
    attribute_list(out, attributes, shared)
}

fn attribute_list(out: &mut dyn Write, attributes: &[Attribute<'_>], shared: bool) -> io::Result<()> {
    out.write_all(b"[")?;
    let mut commas = Commas::default();
    for Attribute { key, value } in attributes {
        commas.next(out)?;
        attribute(out, key, value)?;
    }
    if shared {
        commas.next(out)?;
        attribute(out, SHARED_KEY, &Value::Bool(true))?;
    }
    out.write_all(b"]")
}

fn attribute(out: &mut dyn Write, key: &str, value: &Value<'_>) -> io::Result<()> {
    out.write_all(b"{\"key\":")?;
    string(out, key)?;
    out.write_all(b",\"value\":")?;
    any_value(out, value)?;
    out.write_all(b"}")
}

fn any_value(out: &mut dyn Write, value: &Value<'_>) -> io::Result<()> {
    match value {
        Value::Empty => out.write_all(b"{")?,
        Value::String(text) => {
            out.write_all(b"{\"stringValue\":")?;
            string(out, text)?;
        }
        Value::Bool(value) => write!(out, "{{\"boolValue\":{value}")?,
        Value::Int(value) => write!(out, "{{\"intValue\":\"{value}\"")?,
        Value::Double(value) => {
            out.write_all(b"{\"doubleValue\":")?;
            double(out, *value)?;
        }
        Value::Bytes(bytes) => {
            out.write_all(b"{\"bytesValue\":")?;
            base64(out, bytes)?;
        }
        Value::Array(items) => {
            out.write_all(b"{\"arrayValue\":{\"values\":[")?;
            let mut commas = Commas::default();
            for item in items {
                commas.next(out)?;
                any_value(out, item)?;
            }
            out.write_all(b"]}")?;
        }
        Value::Map(items) => {
            out.write_all(b"{\"kvlistValue\":{\"values\":")?;
            attribute_list(out, items, false)?;
            out.write_all(b"}")?;
        }
    }
    out.write_all(b"}")
}
