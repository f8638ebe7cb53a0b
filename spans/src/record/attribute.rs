//! A recorded attribute in a few words of memory. Its texts are in a [`Memory`] beside it.

use std::borrow::Cow;
use std::fmt;

use astracer_model::Value as ModelValue;
use opentelemetry::{Array, KeyValue, Value as OtelValue};

use super::memory::{Lengths, Memory, MemoryView, Text, Texts};

/// The value is stored as a word and a tag, not as an enum. An enum is assembled in one place and
/// then copied, and a processor stalls when it reads at once what was just written in parts.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// Empty for an attribute that was set through OpenTelemetry's API: see [`Value::Other`];
    /// [`DEFAULT`] for a default there.
    name: &'static str,
    word: u64,
    kind: Kind,
    chain: bool,
}

const DEFAULT: &str = "default";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    I64,
    F64,
    Text,
    Texts,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    I64(i64),
    F64(f64),
    Text(Text),
    Texts(Texts),
    /// An attribute that was set through OpenTelemetry's API: the index of its name and value in
    /// [`Memory::others`].
    Other(u32),
}

impl Attribute {
    #[inline]
    pub fn new(name: &'static str, value: Value) -> Self {
        let (kind, word) = match value {
            Value::Bool(value) => (Kind::Bool, u64::from(value)),
            Value::I64(value) => (Kind::I64, value as u64),
            Value::F64(value) => (Kind::F64, value.to_bits()),
            Value::Text(text) => (Kind::Text, pack(text.start, text.length)),
            Value::Texts(texts) => (Kind::Texts, pack(texts.start, texts.count)),
            Value::Other(place) => (Kind::Other, u64::from(place)),
        };
        Attribute { name, word, kind, chain: false }
    }

    /// The attribute `NAME.chain`: the sources of the error in the field NAME.
    pub fn chain(name: &'static str, texts: Texts) -> Self {
        Attribute { chain: true, ..Attribute::new(name, Value::Texts(texts)) }
    }

    /// An attribute that the span has unless it is set, by its index in [`Memory::others`].
    pub fn default_of(place: u32) -> Self {
        Attribute::new(DEFAULT, Value::Other(place))
    }

    pub fn is_default(&self) -> bool {
        self.kind == Kind::Other && !self.name.is_empty()
    }

    #[inline]
    pub fn value(&self) -> Value {
        let (high, low) = ((self.word >> 32) as u32, self.word as u32);
        match self.kind {
            Kind::Bool => Value::Bool(self.word != 0),
            Kind::I64 => Value::I64(self.word as i64),
            Kind::F64 => Value::F64(f64::from_bits(self.word)),
            Kind::Text => Value::Text(Text { start: high, length: low }),
            Kind::Texts => Value::Texts(Texts { start: high, count: low }),
            Kind::Other => Value::Other(low),
        }
    }

    /// The same attribute after its memory was appended to another memory, which had these lengths.
    #[inline]
    pub fn moved(self, at: Lengths) -> Self {
        let by = match self.kind {
            Kind::Text => u64::from(at.text) << 32,
            Kind::Texts => u64::from(at.lists) << 32,
            Kind::Other => u64::from(at.others),
            Kind::Bool | Kind::I64 | Kind::F64 => 0,
        };
        Attribute { word: self.word.wrapping_add(by), ..self }
    }

    /// The same attribute with its texts copied from one memory to another.
    pub fn adopted(self, from: &Memory, to: &mut Memory) -> Self {
        let value = match self.value() {
            Value::Text(text) => Value::Text(to.adopt(from, text)),
            Value::Texts(texts) => Value::Texts(to.adopt_all(from, texts)),
            Value::Other(place) => match from.view().other(place) {
                Some(other) => Value::Other(to.keep(other.clone())),
                None => Value::Other(place),
            },
            value => value,
        };
        Attribute { chain: self.chain, ..Attribute::new(self.name, value) }
    }

    #[inline]
    pub fn bytes(&self, memory: MemoryView<'_>) -> usize {
        match self.value() {
            Value::Bool(_) | Value::I64(_) | Value::F64(_) => 0,
            Value::Text(text) => text.length as usize,
            Value::Texts(texts) => {
                memory.texts(texts).iter().map(|text| size_of::<Text>() + text.length as usize).sum()
            }
            Value::Other(place) => size_of::<KeyValue>() + memory.other(place).map_or(0, bytes_of),
        }
    }

    pub fn name<'a>(&self, memory: MemoryView<'a>) -> Cow<'a, str> {
        match self.value() {
            Value::Other(place) => memory.other(place).map_or("", |other| other.key.as_str()).into(),
            _ if self.chain => format!("{}.chain", self.name).into(),
            _ => self.name.into(),
        }
    }

    #[inline]
    pub fn is_named(&self, name: &str, memory: MemoryView<'_>) -> bool {
        if self.kind == Kind::Other || self.chain { self.name(memory) == name } else { self.name == name }
    }

    /// Whether two attributes have the same name. Attributes from one callsite share the pointer.
    pub fn has_name_of(&self, memory: &Memory, other: &Attribute, others: &Memory) -> bool {
        if self.kind == Kind::Other || other.kind == Kind::Other {
            return self.name(memory.view()) == other.name(others.view());
        }
        self.chain == other.chain && (std::ptr::eq(self.name, other.name) || self.name == other.name)
    }

    /// The value as text; `None` for a list of texts.
    pub fn text<'a>(&self, memory: MemoryView<'a>) -> Option<Cow<'a, str>> {
        let shown = |value: &dyn fmt::Display| Some(Cow::Owned(value.to_string()));
        match self.value() {
            Value::Bool(value) => Some(Cow::Borrowed(if value { "true" } else { "false" })),
            Value::I64(value) => shown(&value),
            Value::F64(value) => shown(&value),
            Value::Text(text) => Some(Cow::Borrowed(memory.text(text))),
            Value::Texts(_) => None,
            Value::Other(place) => Some(memory.other(place)?.value.as_str()),
        }
    }

    /// Whether this is an attribute `error` whose value means yes: anything but `false`, `0` and
    /// the empty text.
    pub fn says_error(&self, memory: MemoryView<'_>) -> bool {
        self.is_named(ERROR, memory) && self.text(memory).is_none_or(|value| is_error(&value))
    }

    pub fn model_value<'a>(&self, memory: MemoryView<'a>) -> ModelValue<'a> {
        match self.value() {
            Value::Bool(value) => ModelValue::Bool(value),
            Value::I64(value) => ModelValue::Int(value),
            Value::F64(value) => ModelValue::Double(value),
            Value::Text(text) => memory.text(text).into(),
            Value::Texts(texts) => {
                ModelValue::Array(memory.texts(texts).iter().map(|text| memory.text(*text).into()).collect())
            }
            Value::Other(place) => {
                memory.other(place).map_or(ModelValue::Empty, |other| (&other.value).into())
            }
        }
    }

    pub fn view<'a>(&self, memory: MemoryView<'a>) -> astracer_model::value::Attribute<'a> {
        astracer_model::value::Attribute { key: self.name(memory), value: self.model_value(memory) }
    }
}

/// The name of an attribute that marks an error.
pub const ERROR: &str = "error";

/// Whether an attribute named [`ERROR`] marks an error with this value.
pub fn is_error(value: &str) -> bool {
    !matches!(value, "false" | "0" | "")
}

pub(super) fn says_error(attribute: &KeyValue) -> bool {
    attribute.key.as_str() == ERROR && is_error(&attribute.value.as_str())
}

/// The bytes that an attribute from OpenTelemetry's API owns; an estimate for arrays.
pub(super) fn bytes_of(attribute: &KeyValue) -> usize {
    let value = match &attribute.value {
        OtelValue::String(text) => text.as_str().len(),
        OtelValue::Array(Array::Bool(values)) => values.len(),
        OtelValue::Array(Array::I64(values)) => 8 * values.len(),
        OtelValue::Array(Array::F64(values)) => 8 * values.len(),
        OtelValue::Array(Array::String(values)) => values.iter().map(|text| 24 + text.as_str().len()).sum(),
        _ => 0,
    };
    attribute.key.as_str().len() + value
}

fn pack(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_packing() {
        let most = u32::MAX;
        for value in [
            Value::Bool(true),
            Value::Bool(false),
            Value::I64(i64::MIN),
            Value::I64(-1),
            Value::F64(-0.5),
            Value::Text(Text { start: 7, length: most }),
            Value::Texts(Texts { start: most, count: 3 }),
            Value::Other(most),
        ] {
            assert_eq!(Attribute::new("n", value).value(), value);
        }
    }

    #[test]
    fn positions_move_and_numbers_do_not() {
        let at = Lengths { text: 10, lists: 1_000, others: 100_000 };
        let moved = |value| Attribute::new("n", value).moved(at).value();
        let text = |start| Value::Text(Text { start, length: 2 });
        let texts = |start| Value::Texts(Texts { start, count: 2 });
        assert_eq!((moved(text(1)), moved(texts(1))), (text(11), texts(1_001)));
        assert_eq!((moved(Value::I64(1)), moved(Value::Other(1))), (Value::I64(1), Value::Other(100_001)));
    }
}
