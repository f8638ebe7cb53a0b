//! Jaeger's typed key-value pairs, read as attributes. Protobuf's JSON has a member for each type.

use std::borrow::Cow;

use super::super::json::{Cursor, Fault, Scalar, decode_base64};
use astracer_model::value::{Attribute, Value};

/// Reads a list of tags.
pub(super) fn tags<'a>(cursor: &mut Cursor<'a>, attributes: &mut Vec<Attribute<'a>>) -> Result<(), Fault> {
    cursor.list(|cursor| {
        attributes.push(tag(cursor)?);
        Ok(())
    })
}

fn tag<'a>(cursor: &mut Cursor<'a>) -> Result<Attribute<'a>, Fault> {
    let (mut key, mut kind, mut written) = (Cow::Borrowed(""), Cow::Borrowed(""), Scalar::Null);
    cursor.object(|cursor, member| {
        match &*member {
            "key" => key = cursor.text_or_null()?,
            "type" | "vType" => kind = cursor.text_or_null()?,
            "value" | "vStr" | "vBool" | "vInt64" | "vFloat64" | "vBinary" => written = simple(cursor)?,
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    Ok(Attribute { key, value: value(&kind, written) })
}

/// Reads a value that should be a scalar; a list or an object is read as its text.
fn simple<'a>(cursor: &mut Cursor<'a>) -> Result<Scalar<'a>, Fault> {
    if matches!(cursor.peek(), Some(b'{' | b'[')) {
        return cursor.skip_clean().map(Scalar::String);
    }
    cursor.scalar()
}

/// Converts a scalar to the tag's type. A scalar that does not fit the type stays text, so an
/// `int64` beyond 64 bits is neither rounded nor lost.
fn value<'a>(kind: &str, written: Scalar<'a>) -> Value<'a> {
    let is = |name: &str| kind.eq_ignore_ascii_case(name);
    let text = match written {
        Scalar::Null => return Value::Empty,
        Scalar::Bool(value) if is("bool") || kind.is_empty() => return Value::Bool(value),
        Scalar::Bool(value) => Cow::Borrowed(if value { "true" } else { "false" }),
        Scalar::Number(digits) if kind.is_empty() => {
            return int(digits).or_else(|| double(digits)).unwrap_or(Value::String(Cow::Borrowed(digits)));
        }
        Scalar::Number(digits) => Cow::Borrowed(digits),
        Scalar::String(text) => text,
    };
    let typed = if is("int64") {
        int(&text)
    } else if is("float64") {
        double(&text)
    } else if is("bool") {
        text.parse().ok().map(Value::Bool)
    } else if is("binary") {
        decode_base64(&text).map(|bytes| Value::Bytes(Cow::Owned(bytes)))
    } else {
        None
    };
    typed.unwrap_or(Value::String(text))
}

fn int(text: &str) -> Option<Value<'static>> {
    text.parse().ok().map(Value::Int)
}

fn double(text: &str) -> Option<Value<'static>> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() || !text.ends_with(|last: char| last.is_ascii_digit()) => {
            Some(Value::Double(value))
        }
        _ => None,
    }
}
