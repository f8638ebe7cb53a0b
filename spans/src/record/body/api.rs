//! Changes of an open span through the OpenTelemetry API.

use std::borrow::Cow;

use opentelemetry::trace::{SpanContext, Status as OtelStatus};
use opentelemetry::{Array, KeyValue, StringValue, Value as OtelValue};

use super::Body;
use crate::record::attribute::{Attribute, Value, bytes_of, says_error};
use crate::record::event::{Event, EventName, EventTime, Link};
use crate::record::fields::LogOrigin;
use crate::record::limits::SpanLimits;
use crate::record::memory::{Memory, cut_text};
use crate::record::span::Status;

impl Body {
    pub fn set_attribute(&mut self, attribute: KeyValue, limits: &SpanLimits) {
        let attribute = cut(attribute, limits.text_length);
        let memory = self.memory.view();
        let known = self.attributes.iter().position(|known| known.is_named(attribute.key.as_str(), memory));
        let new = size_of::<KeyValue>() + bytes_of(&attribute);
        let old = known.map_or(0, |known| self.attributes[known].bytes(self.memory.view()));
        match known {
            Some(known) if new <= old || self.fits(new, old) => {
                if let Value::Other(place) = self.attributes[known].value() {
                    self.owned += bytes_of(&attribute);
                    if let Some(value) = self.memory.others.get_mut(place as usize) {
                        self.owned = self.owned.saturating_sub(bytes_of(value));
                        *value = attribute;
                    }
                    self.attributes[known] = Attribute::new("", Value::Other(place));
                } else {
                    self.unused += old;
                    self.attributes[known] = self.keep(attribute);
                }
            }
            None if self.has_place(new, limits) => {
                let kept = self.keep(attribute);
                self.attributes.push(kept);
            }
            _ => self.cut_attribute(says_error(&attribute)),
        }
        self.reclaim();
    }

    /// Sets an attribute unless the span has one of this name.
    pub fn set_default(&mut self, attribute: KeyValue, limits: &SpanLimits) {
        let memory = self.memory.view();
        if self.attributes.iter().any(|known| known.is_named(attribute.key.as_str(), memory)) {
            return;
        }
        let before = self.attributes.len();
        self.set_attribute(attribute, limits);
        if let Some(default) = self.attributes.get_mut(before)
            && let Value::Other(place) = default.value()
        {
            *default = Attribute::default_of(place);
        }
    }

    /// Removes the attributes of [`Body::set_default`] that were not set since.
    pub fn remove_defaults(&mut self) {
        self.attributes.retain(|attribute| !attribute.is_default());
    }

    fn keep(&mut self, attribute: KeyValue) -> Attribute {
        self.owned += bytes_of(&attribute);
        Attribute::new("", Value::Other(self.memory.keep(attribute)))
    }

    pub fn set_status(&mut self, status: OtelStatus, limits: &SpanLimits) {
        match status {
            OtelStatus::Unset => return,
            OtelStatus::Ok => self.raise(Status::Ok, &Memory::default()),
            OtelStatus::Error { description } => {
                self.raise_error(cut_text(&description, limits.name_length()));
            }
        }
        self.reclaim();
    }

    pub fn update_name(&mut self, name: &str, limits: &SpanLimits) {
        self.set_name(cut_text(name, limits.name_length()));
        self.reclaim();
    }

    /// Adds an event. Returns false if a limit cuts it.
    pub fn add_event(
        &mut self,
        name: Cow<'static, str>,
        time: EventTime,
        attributes: Vec<KeyValue>,
        limits: &SpanLimits,
    ) -> bool {
        let given = attributes.len() as u32;
        let count = given.min(limits.attributes_per_event);
        let kept = attributes.into_iter().take(count as usize);
        let kept: Vec<_> = kept.map(|attribute| cut(attribute, limits.text_length)).collect();
        let length = cut_text(&name, limits.name_length()).len();
        let kept_bytes = |kept: &KeyValue| size_of::<Attribute>() + size_of::<KeyValue>() + bytes_of(kept);
        let bytes = size_of::<Event>() + length + kept.iter().map(kept_bytes).sum::<usize>();
        if self.detail.events.held >= limits.events || !self.fits(bytes, 0) {
            self.detail.events.cut_some(1);
            return false;
        }
        self.detail.events.held += 1;
        for attribute in kept {
            let kept = self.keep(attribute);
            self.event_attributes.push(kept);
        }
        let name = match name {
            Cow::Borrowed(name) => EventName::Static(&name[..length]),
            Cow::Owned(name) => {
                self.owned += length;
                EventName::Owned(name[..length].into())
            }
        };
        let (metadata, log) = (None, LogOrigin::default());
        self.events.push(Event { name, time, metadata, log, count, cut: given - count });
        true
    }

    pub fn add_link(&mut self, to: SpanContext, mut attributes: Vec<KeyValue>, limits: &SpanLimits) {
        let given = attributes.len();
        attributes.truncate(limits.attributes_per_link as usize);
        let attributes: Vec<_> =
            attributes.into_iter().map(|attribute| cut(attribute, limits.text_length)).collect();
        let cut = (given - attributes.len()) as u32;
        let link = Link { to, attributes, cut };
        let bytes = link.owned();
        if self.detail.links.held >= limits.links || !self.fits(size_of::<Link>() + bytes, 0) {
            return self.detail.links.cut_some(1);
        }
        self.detail.links.held += 1;
        self.owned += bytes;
        self.links.push(link);
    }
}

/// Cuts the attribute's texts to `max` characters.
fn cut(mut attribute: KeyValue, max: u32) -> KeyValue {
    let shorten = |text: &mut StringValue| {
        let within = cut_text(text.as_str(), max);
        if within.len() < text.as_str().len() {
            *text = within.to_owned().into();
        }
    };
    match &mut attribute.value {
        OtelValue::String(text) => shorten(text),
        OtelValue::Array(Array::String(texts)) => texts.iter_mut().for_each(shorten),
        _ => {}
    }
    attribute
}
