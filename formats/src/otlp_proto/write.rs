//! Writes export requests as protobuf directly from spans, without building messages.
//!
//! A message's length precedes it but is known only after the message has been written. Space for
//! the shortest form is reserved, and the message moves if its length needs more: by a few bytes
//! for attributes, and once per list of spans unless its length is roughly known. That costs less
//! than computing every length first.

use crate::varint;
use std::io::{self, BufWriter, Write};

use crate::TraceWriter;
use crate::otlp::groups;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::otlp::{PARENT_KEY, SHARED_KEY, linked_parents};
use astracer_model::span::{Event, Link, Resource, Scope, Span};
use astracer_model::value::{Attribute, Value};

/// The number of spans of the largest request. Larger traces take several, so that no reader has to
/// hold an enormous one.
const SPANS_PER_REQUEST_MAX: usize = 1 << 12;

/// Writes each trace as requests preceded by their lengths.
pub(crate) struct Writer<'w> {
    out: BufWriter<Box<dyn Write + 'w>>,
    request: Vec<u8>,
}

impl<'w> Writer<'w> {
    pub(crate) fn new(out: Box<dyn Write + 'w>) -> Self {
        Self { out: BufWriter::with_capacity(1 << 16, out), request: Vec::new() }
    }
}

impl TraceWriter for Writer<'_> {
    fn trace(&mut self, spans: &[Span<'_>]) -> io::Result<()> {
        for spans in spans.chunks(SPANS_PER_REQUEST_MAX) {
            self.request.clear();
            write_request(&mut self.request, spans);
            let (length, used) = varint::encode(self.request.len() as u64);
            self.out.write_all(&length[..used])?;
            self.out.write_all(&self.request)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The wire types.
pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
const LEN: u8 = 2;
const FIXED32: u8 = 5;

/// The tag of a field with a number below 16.
pub(super) const fn tag(number: u8, wire_type: u8) -> u8 {
    number << 3 | wire_type
}

/// Appends one export request: the body of an OTLP/HTTP request, or the message of a gRPC call.
///
/// Spans with the same resource and scope share one entry, wherever they are in `spans`.
pub fn write_request(out: &mut Vec<u8>, spans: &[Span<'_>]) {
    for (resource, spans) in groups(spans.iter(), |span| &span.resource) {
        resource_spans(out, resource, 0, |out| {
            for (scope, spans) in groups(spans.into_iter(), |span| &span.scope) {
                scope_spans(out, scope, 0, |out| spans.into_iter().for_each(|span| scope_span(out, span)));
            }
        });
    }
}

/// Appends the spans of a resource. `scopes` appends the groups, which take at least `bytes_min`
/// bytes.
pub(super) fn resource_spans(
    out: &mut Vec<u8>,
    resource: &Resource,
    bytes_min: usize,
    scopes: impl FnOnce(&mut Vec<u8>),
) {
    long_message(out, 1, bytes_min, |out| {
        message(out, 1, |out| resource_fields(out, resource));
        scopes(out);
        text(out, 3, &resource.schema_url);
    });
}

/// Appends the spans of a scope. `spans` appends them; they take at least `bytes_min` bytes.
pub(super) fn scope_spans(
    out: &mut Vec<u8>,
    scope: &Scope,
    bytes_min: usize,
    spans: impl FnOnce(&mut Vec<u8>),
) {
    long_message(out, 2, bytes_min, |out| {
        message(out, 1, |out| scope_fields(out, scope));
        spans(out);
        text(out, 3, &scope.schema_url);
    });
}

/// Appends one of a scope's spans.
pub(super) fn scope_span(out: &mut Vec<u8>, span: &Span<'_>) {
    message(out, 2, |out| span_fields(out, span));
}

pub(super) fn resource_fields(out: &mut Vec<u8>, resource: &Resource) {
    attributes(out, 1, &resource.attributes);
    count(out, 2, resource.dropped_attributes);
}

pub(super) fn scope_fields(out: &mut Vec<u8>, scope: &Scope) {
    text(out, 1, &scope.name);
    text(out, 2, &scope.version);
    attributes(out, 3, &scope.attributes);
    count(out, 4, scope.dropped_attributes);
}

fn span_fields(out: &mut Vec<u8>, span: &Span<'_>) {
    ids(out, span.trace_id, span.span_id);
    text(out, 3, &span.trace_state);
    if let Some(parent) = span.parents.first() {
        id(out, 4, parent.0.to_be_bytes());
    }
    text(out, 5, &span.name);
    if span.kind as u8 != 0 {
        out.extend_from_slice(&[tag(6, VARINT), span.kind as u8]);
    }
    fixed64(out, 7, span.start.map_or(0, |start| start.0));
    fixed64(out, 8, span.end.map_or(0, |end| end.0));
    attributes(out, 9, &span.attributes);
    if span.shared {
        mark(out, 9, SHARED_KEY);
    }
    count(out, 10, span.dropped_attributes);
    for event in &span.events {
        message(out, 11, |out| event_fields(out, event));
    }
    count(out, 12, span.dropped_events);
    for parent in linked_parents(span) {
        message(out, 13, |out| {
            ids(out, span.trace_id, parent);
            mark(out, 4, PARENT_KEY);
        });
    }
    for link in &span.links {
        message(out, 13, |out| link_fields(out, link));
    }
    count(out, 14, span.dropped_links);
    message(out, 15, |out| {
        text(out, 2, &span.status_message);
        if span.status as u8 != 0 {
            out.extend_from_slice(&[tag(3, VARINT), span.status as u8]);
        }
    });
    if span.flags != 0 {
        // Number 16 is the first with a tag of two bytes.
        out.extend_from_slice(&[0x80 | FIXED32, 1]);
        out.extend_from_slice(&span.flags.to_le_bytes());
    }
}

fn event_fields(out: &mut Vec<u8>, event: &Event<'_>) {
    fixed64(out, 1, event.time.0);
    text(out, 2, &event.name);
    attributes(out, 3, &event.attributes);
    count(out, 4, event.dropped_attributes);
}

fn link_fields(out: &mut Vec<u8>, link: &Link<'_>) {
    ids(out, link.trace_id, link.span_id);
    text(out, 3, &link.trace_state);
    attributes(out, 4, &link.attributes);
    count(out, 5, link.dropped_attributes);
    if link.flags != 0 {
        out.push(tag(6, FIXED32));
        out.extend_from_slice(&link.flags.to_le_bytes());
    }
}

fn ids(out: &mut Vec<u8>, trace_id: TraceId, span_id: SpanId) {
    id(out, 1, trace_id.0.to_be_bytes());
    id(out, 2, span_id.0.to_be_bytes());
}

pub(super) fn id<const N: usize>(out: &mut Vec<u8>, number: u8, bytes: [u8; N]) {
    out.extend_from_slice(&[tag(number, LEN), N as u8]);
    out.extend_from_slice(&bytes);
}

pub(super) fn attributes(out: &mut Vec<u8>, number: u8, attributes: &[Attribute<'_>]) {
    for Attribute { key, value } in attributes {
        message(out, number, |out| {
            text(out, 1, key);
            message(out, 2, |out| value_field(out, value));
        });
    }
}

/// Appends an attribute with the value true.
fn mark(out: &mut Vec<u8>, number: u8, key: &str) {
    message(out, number, |out| {
        text(out, 1, key);
        message(out, 2, |out| value_field(out, &Value::Bool(true)));
    });
}

/// A value belongs to a oneof, so it is written even if it is zero or empty.
fn value_field(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Empty => {}
        Value::String(text) => bytes(out, 1, text.as_bytes()),
        Value::Bool(value) => out.extend_from_slice(&[tag(2, VARINT), u8::from(*value)]),
        Value::Int(value) => {
            out.push(tag(3, VARINT));
            varint::append(out, *value as u64);
        }
        Value::Double(value) => {
            out.push(tag(4, FIXED64));
            out.extend_from_slice(&value.to_le_bytes());
        }
        Value::Array(items) => message(out, 5, |out| {
            for item in items {
                message(out, 1, |out| value_field(out, item));
            }
        }),
        Value::Map(items) => message(out, 6, |out| attributes(out, 1, items)),
        Value::Bytes(value) => bytes(out, 7, value),
    }
}

pub(super) fn text(out: &mut Vec<u8>, number: u8, text: &str) {
    if !text.is_empty() {
        bytes(out, number, text.as_bytes());
    }
}

pub(super) fn bytes(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(tag(number, LEN));
    varint::append(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn count(out: &mut Vec<u8>, number: u8, count: u32) {
    if count != 0 {
        out.push(tag(number, VARINT));
        varint::append(out, u64::from(count));
    }
}

pub(super) fn fixed64(out: &mut Vec<u8>, number: u8, value: u64) {
    if value != 0 {
        out.push(tag(number, FIXED64));
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Appends a message. `fields` appends its fields.
#[inline]
pub(super) fn message(out: &mut Vec<u8>, number: u8, fields: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[tag(number, LEN), 0]);
    let start = out.len();
    fields(out);
    let len = out.len() - start;
    if len < 0x80 {
        out[start - 1] = len as u8;
    } else {
        LengthPrefix { start, bytes: 1 }.fill(out);
    }
}

/// Like [`message`], for a message with at least `len_min` bytes.
fn long_message(out: &mut Vec<u8>, number: u8, len_min: usize, fields: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag(number, LEN));
    let room = LengthPrefix::leave(out, len_min);
    fields(out);
    room.fill(out);
}

/// Space reserved for a length before its message.
pub(super) struct LengthPrefix {
    /// The start of the message.
    start: usize,
    /// The number of bytes reserved before it.
    bytes: usize,
}

impl LengthPrefix {
    /// Reserves space for the length of a message with at least `len_min` bytes.
    pub(super) fn leave(out: &mut Vec<u8>, len_min: usize) -> Self {
        let (_, bytes) = varint::encode(len_min as u64);
        out.resize(out.len() + bytes, 0);
        Self { start: out.len(), bytes }
    }

    /// Writes the length of the message, which ends at the end of `out`. The message moves if its
    /// length needs more space.
    pub(super) fn fill(self, out: &mut Vec<u8>) {
        let Self { start, bytes } = self;
        let len = out.len() - start;
        let (length, used) = varint::encode(len as u64);
        if used > bytes {
            out.extend_from_slice(&length[bytes..used]);
            out.copy_within(start..start + len, start + used - bytes);
        }
        out[start - bytes..start - bytes + used].copy_from_slice(&length[..used]);
    }
}
