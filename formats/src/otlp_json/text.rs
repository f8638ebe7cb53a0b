//! Writes spans, log records, resources and scopes as OTLP JSON.

use crate::json::write::{Commas, hex};
use crate::plain_json::{write_base64, write_double, write_integer, write_string};
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::LogRecord;
use astracer_model::otlp::{PARENT_KEY, SHARED_KEY, linked_parents};
use astracer_model::span::{Event, Link, Resource, Scope, Span, SpanKind, Status};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

pub(super) fn resource(out: &mut Vec<u8>, resource: &Resource) {
    put(out, "{\"attributes\":");
    attribute_list(out, &resource.attributes, false);
    count_member(out, "droppedAttributesCount", resource.dropped_attributes);
    put(out, "}");
}

pub(super) fn scope(out: &mut Vec<u8>, scope: &Scope) {
    put(out, "{\"name\":");
    write_string(out, &scope.name);
    text_member(out, "version", &scope.version);
    attributes_member(out, &scope.attributes, false);
    count_member(out, "droppedAttributesCount", scope.dropped_attributes);
    put(out, "}");
}

pub(super) fn span(out: &mut Vec<u8>, span: &Span<'_>) {
    ids(out, span.trace_id, span.span_id);
    text_member(out, "traceState", &span.trace_state);
    if let Some(parent) = span.parents.first() {
        put(out, ",\"parentSpanId\":\"");
        hex(out, parent.0);
        put(out, "\"");
    }
    count_member(out, "flags", span.flags);
    put(out, ",\"name\":");
    write_string(out, &span.name);
    if span.kind != SpanKind::Unspecified {
        count_member(out, "kind", span.kind as u32);
    }
    for (key, time) in [("startTimeUnixNano", span.start), ("endTimeUnixNano", span.end)] {
        if let Some(time) = time {
            put(out, ",");
            time_member(out, key, time);
        }
    }
    attributes_member(out, &span.attributes, span.shared);
    count_member(out, "droppedAttributesCount", span.dropped_attributes);
    if !span.events.is_empty() {
        put(out, ",\"events\":[");
        let mut commas = Commas::default();
        for one in &span.events {
            commas.next(out);
            event(out, one);
        }
        put(out, "]");
    }
    count_member(out, "droppedEventsCount", span.dropped_events);
    if !span.links.is_empty() || span.parents.len() > 1 {
        put(out, ",\"links\":[");
        let mut commas = Commas::default();
        for parent in linked_parents(span) {
            commas.next(out);
            ids(out, span.trace_id, parent);
            attributes_member(out, &[Attribute::new(PARENT_KEY, Value::Bool(true))], false);
            put(out, "}");
        }
        for one in &span.links {
            commas.next(out);
            link(out, one);
        }
        put(out, "]");
    }
    count_member(out, "droppedLinksCount", span.dropped_links);
    put(out, ",\"status\":{");
    if !span.status_message.is_empty() {
        put(out, "\"message\":");
        write_string(out, &span.status_message);
    }
    if span.status != Status::Unset {
        put(out, if span.status_message.is_empty() { "\"code\":" } else { ",\"code\":" });
        write_integer(out, span.status as u8);
    }
    put(out, "}}");
}

pub(super) fn log(out: &mut Vec<u8>, log: &LogRecord<'_>) {
    ids(out, log.trace_id, log.span_id);
    for (key, time) in [("timeUnixNano", log.time), ("observedTimeUnixNano", log.observed)] {
        if let Some(time) = time {
            put(out, ",");
            time_member(out, key, time);
        }
    }
    count_member(out, "severityNumber", log.severity.number().into());
    text_member(out, "severityText", &log.severity_text);
    text_member(out, "eventName", &log.event_name);
    if log.body != Value::Empty {
        put(out, ",\"body\":");
        any_value(out, &log.body);
    }
    attributes_member(out, &log.attributes, false);
    count_member(out, "droppedAttributesCount", log.dropped_attributes);
    count_member(out, "flags", log.flags);
    put(out, "}");
}

fn event(out: &mut Vec<u8>, event: &Event<'_>) {
    put(out, "{");
    time_member(out, "timeUnixNano", event.time);
    put(out, ",\"name\":");
    write_string(out, &event.name);
    attributes_member(out, &event.attributes, false);
    count_member(out, "droppedAttributesCount", event.dropped_attributes);
    put(out, "}");
}

fn link(out: &mut Vec<u8>, link: &Link<'_>) {
    ids(out, link.trace_id, link.span_id);
    text_member(out, "traceState", &link.trace_state);
    attributes_member(out, &link.attributes, false);
    count_member(out, "droppedAttributesCount", link.dropped_attributes);
    count_member(out, "flags", link.flags);
    put(out, "}");
}

/// Opens an object that starts with ids. A zero id is written as an empty string.
fn ids(out: &mut Vec<u8>, trace_id: TraceId, span_id: SpanId) {
    put(out, "{\"traceId\":\"");
    if trace_id != TraceId::ZERO {
        hex(out, (trace_id.0 >> 64) as u64);
        hex(out, trace_id.0 as u64);
    }
    put(out, "\",\"spanId\":\"");
    if span_id != SpanId::ZERO {
        hex(out, span_id.0);
    }
    put(out, "\"");
}

fn time_member(out: &mut Vec<u8>, key: &str, time: UnixNanos) {
    put(out, "\"");
    put(out, key);
    put(out, "\":\"");
    write_integer(out, time.0);
    put(out, "\"");
}

/// Appends a member after others, unless its text is empty.
pub(super) fn text_member(out: &mut Vec<u8>, key: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    put(out, ",\"");
    put(out, key);
    put(out, "\":");
    write_string(out, text);
}

fn count_member(out: &mut Vec<u8>, key: &str, count: u32) {
    if count == 0 {
        return;
    }
    put(out, ",\"");
    put(out, key);
    put(out, "\":");
    write_integer(out, count);
}

fn attributes_member(out: &mut Vec<u8>, attributes: &[Attribute<'_>], shared: bool) {
    if attributes.is_empty() && !shared {
        return;
    }
    put(out, ",\"attributes\":");
    attribute_list(out, attributes, shared);
}

fn attribute_list(out: &mut Vec<u8>, attributes: &[Attribute<'_>], shared: bool) {
    put(out, "[");
    let mut commas = Commas::default();
    for Attribute { key, value } in attributes {
        commas.next(out);
        attribute(out, key, value);
    }
    if shared {
        commas.next(out);
        attribute(out, SHARED_KEY, &Value::Bool(true));
    }
    put(out, "]");
}

fn attribute(out: &mut Vec<u8>, key: &str, value: &Value<'_>) {
    put(out, "{\"key\":");
    write_string(out, key);
    put(out, ",\"value\":");
    any_value(out, value);
    put(out, "}");
}

fn any_value(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Empty => put(out, "{"),
        Value::String(text) => {
            put(out, "{\"stringValue\":");
            write_string(out, text);
        }
        Value::Bool(value) => put(out, if *value { "{\"boolValue\":true" } else { "{\"boolValue\":false" }),
        Value::Int(value) => {
            put(out, "{\"intValue\":\"");
            write_integer(out, *value);
            put(out, "\"");
        }
        Value::Double(value) => {
            put(out, "{\"doubleValue\":");
            write_double(out, *value);
        }
        Value::Bytes(bytes) => {
            put(out, "{\"bytesValue\":");
            write_base64(out, bytes);
        }
        Value::Array(items) => {
            put(out, "{\"arrayValue\":{\"values\":[");
            let mut commas = Commas::default();
            for item in items {
                commas.next(out);
                any_value(out, item);
            }
            put(out, "]}");
        }
        Value::Map(items) => {
            put(out, "{\"kvlistValue\":{\"values\":");
            attribute_list(out, items, false);
            put(out, "}");
        }
    }
    put(out, "}");
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}
