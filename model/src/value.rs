//! Attribute values: OpenTelemetry's `AnyValue`.

use std::borrow::Cow;

/// An attribute value, borrowed from the reader's buffer where possible.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value<'a> {
    /// No value, which OpenTelemetry allows. JSON's `null` becomes this.
    #[default]
    Empty,
    /// Text.
    String(Cow<'a, str>),
    /// True or false.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// A floating-point number, including NaN and infinities.
    Double(f64),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
    /// A list; its items may be of different types.
    Array(Vec<Value<'a>>),
    /// A list of named values.
    Map(Vec<Attribute<'a>>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute<'a> {
    /// The key, for example `http.request.method`.
    pub key: Cow<'a, str>,
    /// The value.
    pub value: Value<'a>,
}

impl<'a> Value<'a> {
    /// Converts the value into one that owns its text.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Empty => Value::Empty,
            Value::String(text) => Value::String(Cow::Owned(text.into_owned())),
            Value::Bool(value) => Value::Bool(value),
            Value::Int(value) => Value::Int(value),
            Value::Double(value) => Value::Double(value),
            Value::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Value::Array(items) => Value::Array(items.into_iter().map(Value::into_owned).collect()),
            Value::Map(items) => Value::Map(items.into_iter().map(Attribute::into_owned).collect()),
        }
    }

    /// The text of a string value; `None` for other types.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::String(Cow::Borrowed(text))
    }
}

impl<'a> Attribute<'a> {
    /// An attribute with this key and value.
    pub fn new(key: impl Into<Cow<'a, str>>, value: impl Into<Value<'a>>) -> Self {
        Self { key: key.into(), value: value.into() }
    }

    /// Converts the attribute into one that owns its text.
    pub fn into_owned(self) -> Attribute<'static> {
        Attribute { key: Cow::Owned(self.key.into_owned()), value: self.value.into_owned() }
    }
}
