//! The size of spans in OTLP's protobuf form, before compression and without resource and scope. A
//! cap on bytes counts in this unit, whichever format the exporter sends.
//!
//! Source: opentelemetry-proto, trace/v1/trace.proto and common/v1/common.proto; Protocol Buffers,
//! "Encoding".

use opentelemetry::trace::{Status, TraceState};
use opentelemetry::{Array, KeyValue, SpanId, Value};
use opentelemetry_sdk::trace::SpanData;

/// Bytes of a number as a varint.
fn varint(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Bytes of a length-delimited field with this length and a one-byte tag.
fn field(length: usize) -> usize {
    1 + varint(length as u64) + length
}

/// Bytes of a text or bytes field, which is omitted if empty.
fn text(length: usize) -> usize {
    if length == 0 { 0 } else { field(length) }
}

/// Bytes of a number's field, which is omitted if 0.
fn count(number: u32) -> usize {
    if number == 0 { 0 } else { 1 + varint(u64::from(number)) }
}

/// Bytes of the content of an `AnyValue`.
fn value(value: &Value) -> usize {
    let array = |lengths: &mut dyn Iterator<Item = usize>| field(lengths.map(field).sum());
    match value {
        Value::Bool(_) => 2,
        Value::I64(number) => 1 + varint(*number as u64),
        Value::F64(_) => 9,
        Value::String(text) => field(text.as_str().len()),
        Value::Array(Array::Bool(all)) => array(&mut all.iter().map(|_| 2)),
        Value::Array(Array::I64(all)) => array(&mut all.iter().map(|number| 1 + varint(*number as u64))),
        Value::Array(Array::F64(all)) => array(&mut all.iter().map(|_| 9)),
        Value::Array(Array::String(all)) => array(&mut all.iter().map(|text| field(text.as_str().len()))),
        // No other kind of value exists today; a future one is measured as its text.
        other => field(other.as_str().len()),
    }
}

fn attributes<'a>(all: impl IntoIterator<Item = &'a KeyValue>) -> usize {
    let one = |attribute: &KeyValue| text(attribute.key.as_str().len()) + field(value(&attribute.value));
    all.into_iter().map(|attribute| field(one(attribute))).sum()
}

fn state(state: &TraceState) -> usize {
    text(state.header().len())
}

/// Bytes of a span as a field of its scope's list.
pub(crate) fn of_span(span: &SpanData) -> usize {
    let event = |event: &opentelemetry::trace::Event| {
        9 + text(event.name.len()) + attributes(&event.attributes) + count(event.dropped_attributes_count)
    };
    let link = |link: &opentelemetry::trace::Link| {
        18 + 10
            + state(link.span_context.trace_state())
            + attributes(&link.attributes)
            + count(link.dropped_attributes_count)
            + 5
    };
    let status = match &span.status {
        Status::Unset => 0,
        Status::Ok => 2,
        Status::Error { description } => 2 + text(description.len()),
    };
    let parent = if span.parent_span_id == SpanId::INVALID { 0 } else { 10 };
    // Trace and span id, kind, two times, and the flags, whose tag takes two bytes.
    let fixed = 18 + 10 + 2 + 9 + 9 + 6;
    let own = fixed
        + parent
        + state(span.span_context.trace_state())
        + text(span.name.len())
        + attributes(&span.attributes)
        + count(span.dropped_attributes_count)
        + span.events.events.iter().map(|own| field(event(own))).sum::<usize>()
        + count(span.events.dropped_count)
        + span.links.links.iter().map(|own| field(link(own))).sum::<usize>()
        + count(span.links.dropped_count)
        + field(status);
    field(own)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_seven_bits_a_byte() {
        for (number, bytes) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u64::MAX, 10)] {
            assert_eq!(varint(number), bytes, "{number}");
        }
    }

    /// By hand: `key` "k" and a string "v": 0a 01 6b 12 03 0a 01 76, in a field of 2 + 8 bytes.
    #[test]
    fn attributes_are_counted_as_they_are_encoded() {
        assert_eq!(attributes(&[KeyValue::new("k", "v")]), 10);
        assert_eq!(attributes(&[KeyValue::new("k", 1)]), 9);
        assert_eq!(attributes(&[KeyValue::new("k", -1)]), 18);
        assert_eq!(attributes(&[KeyValue::new("k", 0.5)]), 16);
        assert_eq!(attributes(&[KeyValue::new("k", Value::Array(Array::I64(vec![1, 300])))]), 18);
    }
}
