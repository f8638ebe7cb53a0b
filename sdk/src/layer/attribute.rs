//! An attribute as it is recorded: a few words, copied as such. What has no fixed size lies in the trace's memory beside it.

use std::borrow::Cow;
use std::fmt;

use opentelemetry::{Array, Key, KeyValue, StringValue, Value as OtelValue};

use super::memory::Memory;
use super::record::{Text, Texts};

/// An attribute of a span or an event.
///
/// Its value is a word and what kind of word it is, not an enum: an enum is put together in one place and copied to
/// another, and to read at once what was just written in parts makes a processor wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute {
    /// Of an attribute of OpenTelemetry's API empty: see [`Value::Other`].
    name: &'static str,
    word: u64,
    /// The index of its span's record; of an event's attribute nothing.
    pub(crate) record: u32,
    kind: Kind,
    chain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    I64,
    F64,
    Text,
    Texts,
    Other,
}

/// An attribute's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    I64(i64),
    F64(f64),
    Text(Text),
    Texts(Texts),
    /// One of OpenTelemetry's API, with its name: its place in [`Memory::others`].
    Other(u32),
}

impl Attribute {
    #[inline]
    pub(crate) fn new(name: &'static str, value: Value) -> Self {
        let (kind, word) = match value {
            Value::Bool(value) => (Kind::Bool, u64::from(value)),
            Value::I64(value) => (Kind::I64, value as u64),
            Value::F64(value) => (Kind::F64, value.to_bits()),
            Value::Text(text) => (Kind::Text, pack(text.start, text.length)),
            Value::Texts(texts) => (Kind::Texts, pack(texts.start, texts.count)),
            Value::Other(place) => (Kind::Other, u64::from(place)),
        };
        Attribute { name, word, record: 0, kind, chain: false }
    }

    /// `NAME.chain`: the sources of the error in field NAME.
    pub(crate) fn chain(name: &'static str, texts: Texts) -> Self {
        Attribute { chain: true, ..Attribute::new(name, Value::Texts(texts)) }
    }

    #[inline]
    pub(crate) fn of(self, record: u32) -> Self {
        Attribute { record, ..self }
    }

    #[inline]
    pub(crate) fn value(&self) -> Value {
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

    /// With its texts further on, by so many bytes of text and so many places of the list of texts.
    #[inline]
    pub(crate) fn moved(self, text: u32, list: u32) -> Self {
        let by = match self.kind {
            Kind::Text => text,
            Kind::Texts => list,
            Kind::Bool | Kind::I64 | Kind::F64 | Kind::Other => 0,
        };
        Attribute { word: self.word.wrapping_add(u64::from(by) << 32), ..self }
    }

    /// With what lies in other memory copied to this.
    pub(crate) fn adopted(self, from: &Memory, to: &mut Memory) -> Self {
        let value = match self.value() {
            Value::Text(text) => Value::Text(to.adopt(from, text)),
            Value::Texts(texts) => Value::Texts(to.adopt_all(from, texts)),
            Value::Other(place) => match from.others.get(place as usize) {
                Some(other) => to.keep(other.clone()),
                None => Value::Other(place),
            },
            value => value,
        };
        Attribute { record: self.record, chain: self.chain, ..Attribute::new(self.name, value) }
    }

    pub(crate) fn name<'a>(&self, memory: &'a Memory) -> Cow<'a, str> {
        match self.value() {
            Value::Other(place) => {
                memory.others.get(place as usize).map_or("", |other| other.key.as_str()).into()
            }
            _ if self.chain => format!("{}.chain", self.name).into(),
            _ => self.name.into(),
        }
    }

    pub(crate) fn is_named(&self, name: &str, memory: &Memory) -> bool {
        if self.kind == Kind::Other || self.chain { self.name(memory) == name } else { self.name == name }
    }

    /// The value as a text; a list of texts has none.
    pub(crate) fn text<'a>(&self, memory: &'a Memory) -> Option<Cow<'a, str>> {
        let shown = |value: &dyn fmt::Display| Some(Cow::Owned(value.to_string()));
        match self.value() {
            Value::Bool(value) => Some(Cow::Borrowed(if value { "true" } else { "false" })),
            Value::I64(value) => shown(&value),
            Value::F64(value) => shown(&value),
            Value::Text(text) => Some(Cow::Borrowed(memory.text(text))),
            Value::Texts(_) => None,
            Value::Other(place) => shown(&memory.others.get(place as usize)?.value),
        }
    }

    /// As OpenTelemetry has it. What came from its API is taken out of the memory.
    pub(crate) fn export(&self, memory: &mut Memory) -> KeyValue {
        let value = match self.value() {
            Value::Bool(value) => OtelValue::Bool(value),
            Value::I64(value) => OtelValue::I64(value),
            Value::F64(value) => OtelValue::F64(value),
            Value::Text(text) => OtelValue::String(memory.text(text).to_owned().into()),
            Value::Texts(texts) => {
                let texts = memory.texts(texts).iter().map(|text| memory.text(*text).to_owned());
                OtelValue::Array(Array::String(texts.map(StringValue::from).collect()))
            }
            Value::Other(place) => {
                let nothing = || KeyValue::new("", "");
                let other = memory.others.get_mut(place as usize);
                return other.map_or_else(nothing, |other| std::mem::replace(other, nothing()));
            }
        };
        let key = match self.chain {
            true => Key::new(format!("{}.chain", self.name)),
            false => Key::from_static_str(self.name),
        };
        KeyValue::new(key, value)
    }
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
            let attribute = Attribute::new("n", value).of(9);
            assert_eq!((attribute.value(), attribute.record), (value, 9));
        }
    }

    #[test]
    fn only_texts_move() {
        let moved = |value| Attribute::new("n", value).moved(10, 1_000).value();
        assert_eq!(
            moved(Value::Text(Text { start: 1, length: 2 })),
            Value::Text(Text { start: 11, length: 2 })
        );
        assert_eq!(
            moved(Value::Texts(Texts { start: 1, count: 2 })),
            Value::Texts(Texts { start: 1_001, count: 2 })
        );
        assert_eq!(moved(Value::I64(1)), Value::I64(1));
        assert_eq!(moved(Value::Other(1)), Value::Other(1));
    }
}
