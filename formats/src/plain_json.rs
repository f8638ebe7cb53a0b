//! Values as plain JSON, in the form that OpenTelemetry uses in text-only formats.

use std::borrow::Cow;

use super::decimal::read_number;
use super::json::{Cursor, Fault, Scalar, write};
use astracer_model::value::{Attribute, Value};

/// Reads any JSON value. Numbers without fraction and exponent are integers if they fit; numbers
/// that fit neither an integer nor a float keep their digits as text.
pub(super) fn read_value<'a>(cursor: &mut Cursor<'a>) -> Result<Value<'a>, Fault> {
    Ok(match cursor.peek() {
        Some(b'{') => Value::Map(read_members(cursor)?),
        Some(b'[') => {
            let mut items = Vec::new();
            cursor.list(|cursor| {
                items.push(read_value(cursor)?);
                Ok(())
            })?;
            Value::Array(items)
        }
        _ => match cursor.scalar()? {
            Scalar::Null => Value::Empty,
            Scalar::Bool(value) => Value::Bool(value),
            Scalar::String(text) => Value::String(text),
            Scalar::Number(digits) => read_number(digits),
        },
    })
}

/// Reads an object as attributes.
pub(super) fn read_members<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<Attribute<'a>>, Fault> {
    let mut members = Vec::new();
    cursor.object(|cursor, key| {
        members.push(Attribute { key, value: read_value(cursor)? });
        Ok(())
    })?;
    Ok(members)
}

/// Appends text as a JSON string.
pub(super) fn write_string(out: &mut Vec<u8>, text: &str) {
    // Writing to a vector cannot fail.
    let _ = write::string(out, text);
}

/// Appends a whole number.
pub(super) fn write_integer(out: &mut Vec<u8>, number: impl Into<i128>) {
    let number = number.into();
    // Nearly all numbers fit into 64 bits, which are several times faster to write.
    let _ = match i64::try_from(number) {
        Ok(number) => serde_json::to_writer(out, &number),
        Err(_) => serde_json::to_writer(out, &number),
    };
}

/// Appends a number with its decimal point; NaN and infinities become strings, as in protobuf's
/// JSON mapping.
pub(super) fn write_double(out: &mut Vec<u8>, number: f64) {
    let _ = write::double(out, number);
}

/// Appends bytes as a base64 string.
pub(super) fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let _ = write::base64(out, bytes);
}

/// Appends any value. Bytes become base64.
pub(super) fn write_value(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Empty => out.extend_from_slice(b"null"),
        Value::String(text) => write_string(out, text),
        Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Int(value) => write_integer(out, *value),
        Value::Double(value) => write_double(out, *value),
        Value::Bytes(bytes) => write_base64(out, bytes),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_value(out, item);
            }
            out.push(b']');
        }
        Value::Map(members) => {
            out.push(b'{');
            write_members(out, members);
            out.push(b'}');
        }
    }
}

/// Appends the members of an object, without its braces.
pub(super) fn write_members(out: &mut Vec<u8>, members: &[Attribute<'_>]) {
    for (index, Attribute { key, value }) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(out, key);
        out.push(b':');
        write_value(out, value);
    }
}

/// A value as text: strings unchanged, everything else as JSON.
pub(super) fn text_of<'v>(value: &'v Value<'_>) -> Cow<'v, str> {
    match value {
        Value::Empty => "".into(),
        Value::String(text) => text.as_ref().into(),
        _ => {
            let mut text = Vec::new();
            write_value(&mut text, value);
            let text = into_text(text);
            match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
                Some(inside) => inside.to_owned().into(),
                None => text.into(),
            }
        }
    }
}

/// Converts the output of the functions in this module into a string.
pub(super) fn into_text(json: Vec<u8>) -> String {
    // The functions append only UTF-8.
    String::from_utf8(json).unwrap_or_default()
}
