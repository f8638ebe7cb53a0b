//! A span in OTLP: its size, and the marks for what OTLP has no field for.
//!
//! The size makes recordings of different formats comparable, and caps and budgets count in it. It
//! is the number of bytes of a span's message in a request, without the message's tag and length,
//! as SDKs write it: with full ids, and with a status even if it is unset.
//!
//! An OTLP span has one parent, and cannot express that client and server share an id. Both are
//! written in a form that every OTLP reader accepts:
//!
//! - The first parent is the span's `parent_span_id`. Each further parent is a link to a span of
//!   the same trace with the single attribute `astracer.parent` = true.
//! - The server's half of a shared id has `astracer.shared` = true as its last attribute.

use crate::ids::SpanId;
use crate::span::{Event, Link, Span};
use crate::value::{Attribute, Value};

/// Marks a link as a further parent.
pub const PARENT_KEY: &str = "astracer.parent";

/// Marks the server's half of a shared id.
pub const SHARED_KEY: &str = "astracer.shared";

/// Returns the parents that are written as links.
pub fn linked_parents<'s>(span: &'s Span<'_>) -> impl Iterator<Item = SpanId> + 's {
    span.parents.iter().skip(1).copied()
}

/// Tag, length and content of a trace id and of a span id.
const TRACE_ID: usize = 1 + 1 + 16;
const SPAN_ID: usize = 1 + 1 + 8;

/// Returns the number of bytes of a span as an OTLP protobuf message, with its [further
/// parents](Span::parents) as links.
pub fn otlp_size(span: &Span<'_>) -> usize {
    let status = text(&span.status_message) + if span.status as u8 == 0 { 0 } else { 1 + 1 };
    let kind = if span.kind as u8 == 0 { 0 } else { 1 + 1 };
    let parent = if span.parents.is_empty() { 0 } else { SPAN_ID };
    let parent_link = message(TRACE_ID + SPAN_ID + mark(PARENT_KEY));
    let shared = if span.shared { mark(SHARED_KEY) } else { 0 };
    let flags = if span.flags == 0 { 0 } else { 2 + 4 };
    TRACE_ID
        + SPAN_ID
        + text(&span.trace_state)
        + parent
        + text(&span.name)
        + kind
        + fixed64(span.start.map_or(0, |start| start.0))
        + fixed64(span.end.map_or(0, |end| end.0))
        + attributes(&span.attributes)
        + shared
        + count(span.dropped_attributes)
        + span.events.iter().map(|event| message(event_size(event))).sum::<usize>()
        + count(span.dropped_events)
        + linked_parents(span).count() * parent_link
        + span.links.iter().map(|link| message(link_size(link))).sum::<usize>()
        + count(span.dropped_links)
        + message(status)
        + flags
}

fn event_size(event: &Event<'_>) -> usize {
    fixed64(event.time.0)
        + text(&event.name)
        + attributes(&event.attributes)
        + count(event.dropped_attributes)
}

fn link_size(link: &Link<'_>) -> usize {
    let flags = if link.flags == 0 { 0 } else { 1 + 4 };
    TRACE_ID
        + SPAN_ID
        + text(&link.trace_state)
        + attributes(&link.attributes)
        + count(link.dropped_attributes)
        + flags
}

fn attributes(attributes: &[Attribute<'_>]) -> usize {
    attributes.iter().map(|attribute| message(attribute_size(attribute))).sum()
}

fn attribute_size(attribute: &Attribute<'_>) -> usize {
    text(&attribute.key) + message(value_size(&attribute.value))
}

/// A value belongs to a oneof, so it is written even if it is zero or empty.
fn value_size(value: &Value<'_>) -> usize {
    match value {
        Value::Empty => 0,
        Value::String(text) => message(text.len()),
        Value::Bool(_) => 1 + 1,
        Value::Int(value) => 1 + varint(*value as u64),
        Value::Double(_) => 1 + 8,
        Value::Bytes(bytes) => message(bytes.len()),
        Value::Array(items) => message(items.iter().map(|item| message(value_size(item))).sum()),
        Value::Map(items) => message(attributes(items)),
    }
}

/// The number of bytes of a varint.
fn varint(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// The size of an attribute with the value true.
fn mark(key: &str) -> usize {
    message(text(key) + message(1 + 1))
}

/// The size of a field with this many bytes of content and a number below 16.
fn message(len: usize) -> usize {
    1 + varint(len as u64) + len
}

fn text(text: &str) -> usize {
    if text.is_empty() { 0 } else { message(text.len()) }
}

fn count(count: u32) -> usize {
    if count == 0 { 0 } else { 1 + varint(u64::from(count)) }
}

fn fixed64(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + 8 }
}
