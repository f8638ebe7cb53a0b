//! Values as text: as services show them, and with a letter for the type before, so that an
//! interner can hold values of any type.

use std::borrow::Cow;
use std::fmt::Write as _;

use astracer_model::value::{Attribute, Value};

/// Formats values as OpenTelemetry's Rust SDK does, because the keys that a service derives from
/// them must be the same.
pub fn write_value(text: &mut String, value: &Value<'_>) {
    // Writing to a string does not fail.
    let _ = match value {
        Value::Empty => Ok(()),
        Value::String(value) => write!(text, "{value}"),
        Value::Bool(value) => write!(text, "{value}"),
        Value::Int(value) => write!(text, "{value}"),
        Value::Double(value) => write!(text, "{value}"),
        Value::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(text, "{byte:02x}")),
        Value::Array(items) => {
            write_items(text, ['[', ']'], items, |text, item| write_item(text, item));
            Ok(())
        }
        Value::Map(items) => {
            write_items(text, ['{', '}'], items, |text, Attribute { key, value }| {
                let _ = write!(text, "\"{key}\":");
                write_item(text, value);
            });
            Ok(())
        }
    };
}

fn write_items<T>(text: &mut String, [open, close]: [char; 2], items: &[T], write: impl Fn(&mut String, &T)) {
    text.push(open);
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            text.push(',');
        }
        write(text, item);
    }
    text.push(close);
}

fn write_item(text: &mut String, item: &Value<'_>) {
    let quote = if matches!(item, Value::String(_)) { "\"" } else { "" };
    text.push_str(quote);
    write_value(text, item);
    text.push_str(quote);
}

/// Appends a value with its type. Bytes, lists and maps become text.
pub(super) fn encode(text: &mut String, value: &Value<'_>) {
    text.push(match value {
        Value::Empty => 'e',
        Value::Bool(_) => 'b',
        Value::Int(_) => 'i',
        Value::Double(_) => 'd',
        Value::String(_) | Value::Bytes(_) | Value::Array(_) | Value::Map(_) => 's',
    });
    write_value(text, value);
}

/// The value of a text that [`encode`] wrote.
pub(super) fn decode(text: &str) -> Value<'_> {
    let mut chars = text.chars();
    let (kind, text) = (chars.next(), chars.as_str());
    match kind {
        Some('s') => Value::String(Cow::Borrowed(text)),
        Some('b') => Value::Bool(text == "true"),
        Some('i') => text.parse().map_or(Value::Empty, Value::Int),
        Some('d') => text.parse().map_or(Value::Empty, Value::Double),
        _ => Value::Empty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_types() {
        let text = |text: &'static str| Value::String(Cow::Borrowed(text));
        let same = [
            Value::Empty,
            Value::Bool(true),
            Value::Bool(false),
            Value::Int(i64::MIN),
            Value::Double(0.1),
            Value::Double(f64::INFINITY),
            text(""),
            text("i7"),
        ];
        let list = Value::Array(vec![text("a"), Value::Int(1)]);
        for (value, expected) in
            same.iter().map(|value| (value, value.clone())).chain([(&list, text("[\"a\",1]"))])
        {
            let mut encoded = String::new();
            encode(&mut encoded, value);
            assert_eq!(decode(&encoded), expected, "{encoded}");
        }
    }
}
