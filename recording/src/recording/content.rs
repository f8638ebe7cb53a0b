//! A digest of a span's content, which is equal for all spellings of one span.
//!
//! Recorders and collectors write one span twice: with capital hexadecimal digits, with numbers as
//! texts, or with keys in another order. The bytes then differ, and the parsed spans do not. Lists
//! of attributes and events are digested without their order, because some formats write them as
//! objects.

use rapidhash::v3::rapidhash_v3;

use astracer_model::span::Span;
use astracer_model::value::{Attribute, Value};

/// Digests everything in a span except its trace, its own id, and its resource and scope. `node`
/// is the digest of the node that emitted it.
pub(super) fn digest(span: &Span<'_>, node: u64) -> u64 {
    let mut digest = Digest(node);
    for parent in span.parents.iter() {
        digest.word(parent.0);
    }
    digest.text(&span.name);
    digest.word(span.start.map_or(u64::MAX, |start| start.0));
    digest.word(span.end.map_or(u64::MAX, |end| end.0));
    digest.word(
        span.kind as u64
            | (span.status as u64) << 8
            | u64::from(span.shared) << 16
            | u64::from(span.follows) << 17
            | u64::from(span.lone_duration.is_some()) << 18
            | u64::from(span.flags) << 32,
    );
    digest.word(span.lone_duration.unwrap_or(0));
    if !span.status_message.is_empty() || !span.trace_state.is_empty() {
        digest.text(&span.status_message);
        digest.text(&span.trace_state);
    }
    digest.word(attributes(&span.attributes));
    if !span.events.is_empty() {
        digest.word(unordered(&span.events, |event, digest| {
            digest.word(event.time.0);
            digest.text(&event.name);
            digest.word(attributes(&event.attributes));
            digest.word(u64::from(event.dropped_attributes));
        }));
    }
    if !span.links.is_empty() {
        digest.word(unordered(&span.links, |link, digest| {
            digest.word(link.trace_id.0 as u64);
            digest.word((link.trace_id.0 >> 64) as u64);
            digest.word(link.span_id.0);
            digest.text(&link.trace_state);
            digest.word(attributes(&link.attributes));
            digest.word(u64::from(link.dropped_attributes) << 32 | u64::from(link.flags));
        }));
    }
    digest.word(u64::from(span.dropped_attributes) << 32 | u64::from(span.dropped_events));
    digest.word(u64::from(span.dropped_links));
    digest.0
}

struct Digest(u64);

impl Digest {
    #[inline]
    fn word(&mut self, word: u64) {
        // 2^64 divided by the golden ratio; folding the product mixes high bits into low ones.
        let product = u128::from(self.0 ^ word).wrapping_add(1) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    #[inline]
    fn text(&mut self, text: &str) {
        self.word(rapidhash_v3(text.as_bytes()));
    }
}

/// A sum of digests, which has no order.
fn unordered<T>(items: &[T], add: impl Fn(&T, &mut Digest)) -> u64 {
    items.iter().fold(0, |sum, item| {
        let mut digest = Digest(0);
        add(item, &mut digest);
        digest.0.wrapping_add(sum)
    })
}

fn attributes(attributes: &[Attribute<'_>]) -> u64 {
    unordered(attributes, |attribute, digest| {
        digest.text(&attribute.key);
        value(&attribute.value, digest);
    })
}

/// The readers bound how deep values are nested.
fn value(value: &Value<'_>, digest: &mut Digest) {
    match value {
        Value::Empty => digest.word(0),
        Value::String(text) => digest.text(text),
        Value::Bool(is_true) => digest.word(1 + u64::from(*is_true)),
        Value::Int(number) => digest.word(*number as u64 ^ 3 << 60),
        // Each NaN has other bits.
        Value::Double(number) if number.is_nan() => digest.word(4),
        Value::Double(number) => digest.word(number.to_bits() ^ 5 << 60),
        Value::Bytes(bytes) => digest.word(rapidhash_v3(bytes) ^ 6),
        Value::Array(items) => {
            digest.word(7);
            items.iter().for_each(|item| self::value(item, digest));
            digest.word(8);
        }
        Value::Map(members) => digest.word(attributes(members) ^ 9),
    }
}
