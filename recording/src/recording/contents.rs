//! Attributes and events of spans in compact form, for analyses of many traces. Texts are interned:
//! most values are on many spans.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rapidhash::fast::RandomState;

use super::Recording;
use crate::intern::{Interner, Symbol};
use astracer_model::span::{Event, Resource, Span};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

/// The value of an attribute.
#[derive(Clone, Copy, Debug)]
pub enum Kept {
    /// A text, as a symbol of [`Recording::content_texts`].
    Text(Symbol),
    /// A whole number.
    Int(i64),
    /// Another number.
    Double(f64),
    /// True or false.
    Bool(bool),
    /// A list, a map, bytes or nothing.
    Other,
}

impl Kept {
    /// The value as text; `None` for a list, a map, bytes or nothing.
    pub fn text(self, texts: &Interner) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Text(text) => Cow::Borrowed(texts.name(text)),
            Self::Int(number) => Cow::Owned(number.to_string()),
            Self::Double(number) => Cow::Owned(number.to_string()),
            Self::Bool(is_true) => Cow::Owned(is_true.to_string()),
            Self::Other => return None,
        })
    }

    /// The kind, and the symbol or the bits. Numbers that differ in their bits are different.
    fn key(self) -> (u8, u64) {
        match self {
            Self::Text(text) => (0, u64::from(text.0)),
            Self::Int(number) => (1, number as u64),
            Self::Double(number) => (2, number.to_bits()),
            Self::Bool(is_true) => (3, u64::from(is_true)),
            Self::Other => (4, 0),
        }
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Kept {}

impl Hash for Kept {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// An event of a span. Names are symbols of [`Recording::content_texts`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct KeptEvent {
    /// The time.
    pub time: UnixNanos,
    /// The name.
    pub name: Symbol,
    /// The type and the message of an exception; the empty text if the event states none.
    pub exception: [Symbol; 2],
}

/// The attributes and events of one span.
#[derive(Clone, Debug, Default)]
struct Content {
    attributes: Box<[(Symbol, Kept)]>,
    events: Box<[KeptEvent]>,
    resource: u32,
}

/// The contents of all spans; empty unless [`super::Keep::contents`] is set.
#[derive(Debug, Default)]
pub(super) struct Contents {
    texts: Interner,
    of_spans: Vec<Content>,
    /// The attributes of resources, each once.
    resources: Vec<Box<[(Symbol, Kept)]>>,
    numbers: HashMap<Box<[(Symbol, Kept)]>, u32, RandomState>,
    /// The last resource. Most spans share theirs with the previous one.
    last: Option<(Arc<Resource>, u32)>,
}

impl Contents {
    /// Adds the content of the next span.
    pub(super) fn add(&mut self, span: &Span<'_>) {
        let resource = self.resource(&span.resource);
        let attributes = self.attributes(&span.attributes);
        let events = span.events.iter().map(|event| self.event(event)).collect();
        self.of_spans.push(Content { attributes, events, resource });
    }

    fn attributes(&mut self, attributes: &[Attribute<'_>]) -> Box<[(Symbol, Kept)]> {
        let mut kept = |own: &Attribute<'_>| {
            let value = match &own.value {
                Value::String(text) => Kept::Text(self.texts.intern(text)),
                Value::Int(number) => Kept::Int(*number),
                Value::Double(number) => Kept::Double(*number),
                Value::Bool(is_true) => Kept::Bool(*is_true),
                Value::Empty | Value::Bytes(_) | Value::Array(_) | Value::Map(_) => Kept::Other,
            };
            (self.texts.intern(&own.key), value)
        };
        attributes.iter().map(&mut kept).collect()
    }

    fn event(&mut self, event: &Event<'_>) -> KeptEvent {
        let mut text = |key: &str| {
            let own = event.attributes.iter().find(|own| own.key == key);
            let text = own.and_then(|own| own.value.as_str()).unwrap_or_default();
            self.texts.intern(text)
        };
        let exception = [text("exception.type"), text("exception.message")];
        KeptEvent { time: event.time, name: self.texts.intern(&event.name), exception }
    }

    fn resource(&mut self, resource: &Arc<Resource>) -> u32 {
        if let Some((last, number)) = &self.last
            && Arc::ptr_eq(last, resource)
        {
            return *number;
        }
        let attributes = self.attributes(&resource.attributes);
        let next = self.resources.len() as u32;
        let number = *self.numbers.entry(attributes.clone()).or_insert(next);
        if number == next {
            self.resources.push(attributes);
        }
        self.last = Some((Arc::clone(resource), number));
        number
    }

    /// Adds the content of a piece to that of the span that it belongs to.
    pub(super) fn merge(&mut self, into: u32, piece: u32) {
        let Ok([own, theirs]) = self.of_spans.get_disjoint_mut([into as usize, piece as usize]) else {
            return;
        };
        let theirs = std::mem::take(theirs);
        let len = |number: u32| self.resources.get(number as usize).map_or(0, |of| of.len());
        if len(own.resource) < len(theirs.resource) {
            own.resource = theirs.resource;
        }
        own.attributes = [&own.attributes[..], &theirs.attributes].concat().into();
        own.events = [&own.events[..], &theirs.events].concat().into();
    }
}

/// The attributes and events of a span.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ContentView<'r> {
    /// The attributes of the span, by the symbols of their keys.
    pub attributes: &'r [(Symbol, Kept)],
    /// Its events, in the order written.
    pub events: &'r [KeptEvent],
    /// The attributes of its resource.
    pub resource_attributes: &'r [(Symbol, Kept)],
    /// The number of its resource, unique in the recording.
    pub resource: u32,
}

impl Recording {
    /// The texts of [`ContentView`]: keys, values and names.
    pub fn content_texts(&self) -> &Interner {
        &self.contents.texts
    }

    pub(super) fn content(&self, span: u32) -> Option<ContentView<'_>> {
        let Content { attributes, events, resource } = self.contents.of_spans.get(span as usize)?;
        let resource_attributes = self.contents.resources.get(*resource as usize)?;
        Some(ContentView { attributes, events, resource_attributes, resource: *resource })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(key: &str, value: Value<'static>) -> Attribute<'static> {
        Attribute { key: key.to_owned().into(), value }
    }

    #[test]
    fn texts_and_resources_are_kept_once() {
        let resource = || {
            let attributes = vec![attribute("service.name", Value::String("cart".into()))];
            Arc::new(Resource { attributes, ..Resource::default() })
        };
        let exception = Event {
            name: "exception".into(),
            attributes: vec![attribute("exception.type", Value::String("Timeout".into()))],
            ..Event::default()
        };
        let span = |events| Span {
            resource: resource(),
            attributes: vec![attribute("n", Value::Int(3)), attribute("list", Value::Array(Vec::new()))],
            events,
            ..Span::default()
        };
        let mut contents = Contents::default();
        contents.add(&span(Vec::new()));
        contents.add(&span(vec![exception]));
        assert_eq!(contents.resources.len(), 1, "two resources say the same");
        contents.merge(0, 1);
        let texts = &contents.texts;
        let merged = &contents.of_spans[0];
        let keys: Vec<_> = merged.attributes.iter().map(|&(key, value)| (texts.name(key), value)).collect();
        let both = [("n", Kept::Int(3)), ("list", Kept::Other)];
        assert_eq!(keys, [both, both].concat());
        let [event] = &merged.events[..] else { panic!("{merged:?}") };
        assert_eq!(event.exception.map(|symbol| texts.name(symbol)), ["Timeout", ""]);
    }
}
