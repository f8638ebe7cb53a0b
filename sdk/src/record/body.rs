//! Everything about an open span that most spans do not have: attributes, events, links, a name of its own.
//!
//! A body is guarded by its entry's lock and belongs to one span. Its limits are counted here, before anything is
//! copied: an attribute or event that a limit cuts costs no memory. Name, kind and status are always kept; they are
//! single values, of at most one text limit each.

// A spare body goes into an entry as a box.
#![allow(clippy::vec_box)]

use std::borrow::Cow;
use std::cell::RefCell;
use std::time::SystemTime;

use opentelemetry::trace::{SpanContext, Status as OtelStatus};
use opentelemetry::{KeyValue, Value as OtelValue};
use tracing_core::{Level, Metadata};

use super::attribute::{Attribute, Value, bytes_of};
use super::buffer::{Event, EventName, EventTime, Link};
use super::fields::{Fields, LogOrigin};
use super::memory::{Memory, Text};
use super::span::{Count, Detail, Status};
use crate::clock::Ticks;
use crate::settings::SpanLimits;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) attributes_cut: u32,
    pub(crate) detail: Detail,
    pub(crate) events: Vec<Event>,
    /// Attributes of events, in the order of the events.
    pub(crate) event_attributes: Vec<Attribute>,
    pub(crate) links: Vec<Link>,
    pub(crate) memory: Memory,
    /// Bytes of `memory` that nothing refers to any more.
    unused: usize,
    /// Bytes that links and values of the OpenTelemetry API own.
    owned: usize,
}

/// Memory that changed values leave behind is reclaimed once it is this large and half of the text.
const UNUSED_BYTES_MAX: usize = 4 * 1024;
/// A body with more text or attributes is not kept for another span.
const SPARE_BYTES_MAX: usize = 64 * 1024;
const SPARE_ATTRIBUTES_MAX: usize = 1024;
const SPARE_MAX: usize = 32;

thread_local!(static SPARE: RefCell<Vec<Box<Body>>> = const { RefCell::new(Vec::new()) });

impl Body {
    /// An empty body, from the thread's spare ones if there is one.
    pub(crate) fn take() -> Box<Body> {
        SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten().unwrap_or_default()
    }

    /// Keeps a body's memory for another span of this thread. No user code runs: values of the OpenTelemetry API are
    /// numbers and texts.
    pub(crate) fn recycle(mut self: Box<Body>) {
        self.clear();
        if self.memory.text.capacity() > SPARE_BYTES_MAX || self.attributes.capacity() > SPARE_ATTRIBUTES_MAX
        {
            return;
        }
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(self);
            }
        });
    }

    #[inline]
    fn clear(&mut self) {
        self.attributes.clear();
        self.attributes_cut = 0;
        self.memory.clear();
        (self.unused, self.owned) = (0, 0);
        if !self.detail.is_none() {
            self.detail = Detail::NONE;
        }
        if !(self.events.is_empty() && self.links.is_empty()) {
            // Few spans have these: their memory is not kept.
            (self.events, self.event_attributes, self.links) = Default::default();
        }
    }

    /// Bytes that count against the span's limit.
    fn bytes(&self) -> usize {
        (self.memory.bytes() + self.owned).saturating_sub(self.unused)
    }

    /// Takes the fields that a span begins with. The body is empty; the fields get its memory in exchange.
    #[inline]
    pub(crate) fn fill(&mut self, fields: &mut Fields, limits: &SpanLimits) {
        if fields.memory.bytes() > limits.bytes() {
            return self.absorb(fields, limits);
        }
        std::mem::swap(&mut self.attributes, &mut fields.attributes);
        std::mem::swap(&mut self.memory, &mut fields.memory);
        let max = limits.attributes as usize;
        if self.attributes.len() > max {
            self.attributes_cut = (self.attributes.len() - max) as u32;
            self.attributes.truncate(max);
        }
        self.detail.name = fields.name;
        self.detail.kind = fields.kind.take();
        self.detail.status = fields.status;
    }

    /// Adds fields that were recorded on the open span.
    pub(crate) fn absorb(&mut self, fields: &mut Fields, limits: &SpanLimits) {
        if let Some(name) = fields.name {
            self.set_name(fields.memory.text(name));
        }
        if let Some(kind) = fields.kind.take() {
            self.detail.kind = Some(kind);
        }
        self.raise(fields.status, &fields.memory);
        for attribute in &fields.attributes {
            self.set(*attribute, &fields.memory, limits);
        }
        self.reclaim();
    }

    /// Sets an attribute. A later value replaces the one that is there, whatever the limits, if it fits in its place.
    fn set(&mut self, attribute: Attribute, from: &Memory, limits: &SpanLimits) {
        let known =
            self.attributes.iter().position(|known| known.has_name_of(&self.memory, &attribute, from));
        let old = known.map_or(0, |known| self.attributes[known].bytes(&self.memory));
        let fits = self.bytes() + attribute.bytes(from) <= limits.bytes() + old;
        match known {
            Some(known) if fits => {
                self.attributes[known] = attribute.adopted(from, &mut self.memory);
                self.unused += old;
            }
            None if fits && self.attributes.len() < limits.attributes as usize => {
                self.attributes.push(attribute.adopted(from, &mut self.memory));
            }
            _ => self.attributes_cut = self.attributes_cut.saturating_add(1),
        }
    }

    fn set_name(&mut self, name: &str) {
        let text = self.memory.push(name);
        self.unused += self.detail.name.replace(text).map_or(0, |old| old.length as usize);
    }

    fn raise(&mut self, status: Status, from: &Memory) {
        let status = match status {
            Status::Unset => return,
            Status::Ok => Status::Ok,
            Status::Error(text) => Status::Error(self.memory.adopt(from, text)),
        };
        self.unused += self.detail.status.raise(status).map_or(0, |old| old.length as usize);
    }

    /// Adds an event of `tracing`.
    pub(crate) fn absorb_event(
        &mut self,
        fields: &mut Fields,
        metadata: &'static Metadata<'static>,
        now: Ticks,
        limits: &SpanLimits,
    ) {
        if *metadata.level() == Level::ERROR && self.detail.status == Status::Unset {
            self.detail.status = Status::Error(Text::EMPTY);
        }
        self.raise(fields.status, &fields.memory);
        for attribute in &fields.for_span {
            self.set(*attribute, &fields.memory, limits);
        }
        let full = self.bytes() + fields.memory.bytes() > limits.bytes();
        if full || self.detail.events.held >= limits.events {
            self.detail.events.cut_some(1);
            return self.reclaim();
        }
        self.detail.events.held += 1;
        let given = fields.attributes.len() as u32;
        let count = given.min(limits.attributes_per_event);
        for attribute in fields.attributes.iter().take(count as usize) {
            self.event_attributes.push(attribute.adopted(&fields.memory, &mut self.memory));
        }
        let mut adopt = |text| self.memory.adopt(&fields.memory, text);
        let name = match fields.name {
            Some(text) => EventName::Text(adopt(text)),
            None if fields.is_exception => EventName::Static("exception"),
            None => EventName::Static(metadata.name()),
        };
        // Other events may have fields of those names; they mean nothing then, as in tracing-opentelemetry.
        let log = if LogOrigin::is_of(metadata) { fields.log } else { LogOrigin::default() };
        let log = log.map(adopt);
        let (time, metadata) = (EventTime::Ticks(now), Some(metadata));
        self.events.push(Event { name, time, metadata, log, count, cut: given - count });
        self.reclaim();
    }

    // --- Changes through the OpenTelemetry API.

    pub(crate) fn set_attribute(&mut self, attribute: KeyValue, limits: &SpanLimits) {
        let attribute = cut(attribute, limits.text_length);
        let known =
            self.attributes.iter().position(|known| known.is_named(attribute.key.as_str(), &self.memory));
        let new = size_of::<KeyValue>() + bytes_of(&attribute);
        let old = known.map_or(0, |known| self.attributes[known].bytes(&self.memory));
        let fits = self.bytes() + new <= limits.bytes() + old;
        match known {
            Some(known) if fits => {
                if let Value::Other(place) = self.attributes[known].value() {
                    self.owned += bytes_of(&attribute);
                    if let Some(value) = self.memory.others.get_mut(place as usize) {
                        self.owned = self.owned.saturating_sub(bytes_of(value));
                        *value = attribute;
                    }
                } else {
                    self.unused += old;
                    self.attributes[known] = self.keep(attribute);
                }
            }
            None if fits && self.attributes.len() < limits.attributes as usize => {
                let kept = self.keep(attribute);
                self.attributes.push(kept);
            }
            _ => self.attributes_cut = self.attributes_cut.saturating_add(1),
        }
        self.reclaim();
    }

    fn keep(&mut self, attribute: KeyValue) -> Attribute {
        self.owned += bytes_of(&attribute);
        Attribute::new("", self.memory.keep(attribute))
    }

    pub(crate) fn set_status(&mut self, status: OtelStatus, limits: &SpanLimits) {
        let status = match status {
            OtelStatus::Unset => return,
            OtelStatus::Ok => Status::Ok,
            OtelStatus::Error { description } => {
                Status::Error(self.memory.push(cut_text(&description, limits.text_length)))
            }
        };
        self.unused += self.detail.status.raise(status).map_or(0, |old| old.length as usize);
        self.reclaim();
    }

    pub(crate) fn update_name(&mut self, name: &str, limits: &SpanLimits) {
        self.set_name(cut_text(name, limits.text_length));
        self.reclaim();
    }

    pub(crate) fn add_event(
        &mut self,
        name: Cow<'static, str>,
        time: EventTime,
        attributes: Vec<KeyValue>,
        limits: &SpanLimits,
    ) {
        let given = attributes.len() as u32;
        let count = given.min(limits.attributes_per_event);
        let kept = attributes.into_iter().take(count as usize);
        let kept: Vec<_> = kept.map(|attribute| cut(attribute, limits.text_length)).collect();
        let name: Cow<'static, str> = match name {
            Cow::Borrowed(name) => Cow::Borrowed(cut_text(name, limits.text_length)),
            Cow::Owned(name) => Cow::Owned(cut_text(&name, limits.text_length).to_owned()),
        };
        let bytes =
            name.len() + kept.iter().map(|kept| size_of::<KeyValue>() + bytes_of(kept)).sum::<usize>();
        if self.bytes() + bytes > limits.bytes() || self.detail.events.held >= limits.events {
            return self.detail.events.cut_some(1);
        }
        self.detail.events.held += 1;
        for attribute in kept {
            let kept = self.keep(attribute);
            self.event_attributes.push(kept);
        }
        let name = match name {
            Cow::Borrowed(name) => EventName::Static(name),
            Cow::Owned(name) => {
                self.owned += name.len();
                EventName::Owned(name.into_boxed_str())
            }
        };
        let (metadata, log) = (None, LogOrigin::default());
        self.events.push(Event { name, time, metadata, log, count, cut: given - count });
    }

    pub(crate) fn add_link(&mut self, to: SpanContext, mut attributes: Vec<KeyValue>, limits: &SpanLimits) {
        let given = attributes.len();
        attributes.truncate(limits.attributes_per_link as usize);
        let attributes: Vec<_> =
            attributes.into_iter().map(|attribute| cut(attribute, limits.text_length)).collect();
        let state = to.trace_state().header().len();
        let bytes = state + attributes.iter().map(|own| size_of::<KeyValue>() + bytes_of(own)).sum::<usize>();
        if self.bytes() + bytes > limits.bytes() {
            return self.detail.links.cut_some(1);
        }
        if self.detail.links.admit(limits.links) {
            self.owned += bytes;
            let cut = (given - attributes.len()) as u32;
            self.links.push(Link { to, attributes, cut });
        }
    }

    pub(crate) fn end_by_hand(&mut self, time: SystemTime) {
        self.detail.ended_by_hand = Some(time);
    }

    /// Whether code on the OpenTelemetry API has ended the span: it changes no more.
    pub(crate) fn is_ended_by_hand(&self) -> bool {
        self.detail.ended_by_hand.is_some()
    }

    /// The counts of attributes, for the record.
    pub(crate) fn attribute_count(&self) -> Count {
        Count { held: self.attributes.len() as u32, cut: self.attributes_cut }
    }

    /// Copies what is in use to new memory, if changed values have left much behind. Linear in what the span holds, and
    /// at least half as much was written since the last time.
    fn reclaim(&mut self) {
        if self.unused < UNUSED_BYTES_MAX || self.unused < self.memory.bytes() / 2 {
            return;
        }
        let from = std::mem::take(&mut self.memory);
        let to = &mut self.memory;
        for attribute in self.attributes.iter_mut().chain(&mut self.event_attributes) {
            *attribute = attribute.adopted(&from, to);
        }
        for event in &mut self.events {
            if let EventName::Text(text) = &mut event.name {
                *text = to.adopt(&from, *text);
            }
            event.log = event.log.map(|text| to.adopt(&from, text));
        }
        self.detail.adopt(&from, to);
        self.owned = to.others.iter().map(bytes_of).sum::<usize>() + self.links_bytes();
        self.unused = 0;
    }

    fn links_bytes(&self) -> usize {
        let bytes = |link: &Link| link.attributes.iter().map(bytes_of).sum::<usize>();
        self.links.iter().map(bytes).sum()
    }
}

/// An attribute whose text is within its limit, given in characters.
fn cut(attribute: KeyValue, max: u32) -> KeyValue {
    let OtelValue::String(text) = &attribute.value else { return attribute };
    let within = cut_text(text.as_str(), max);
    if within.len() == text.as_str().len() {
        return attribute;
    }
    let value = OtelValue::String(within.to_owned().into());
    KeyValue::new(attribute.key, value)
}

fn cut_text(text: &str, max: u32) -> &str {
    if text.len() <= max as usize {
        return text;
    }
    text.char_indices().nth(max as usize).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each call leaves the old description behind; the memory holds one, and at most as much again that is unused.
    #[test]
    fn changed_values_do_not_pile_up() {
        let (mut body, limits) = (Body::default(), SpanLimits::default());
        for n in 0..50_000 {
            body.set_status(OtelStatus::error(format!("attempt {n} failed: {}", "x".repeat(100))), &limits);
            body.update_name(&format!("attempt {n}"), &limits);
            body.set_attribute(KeyValue::new("attempt", "y".repeat(100) + &n.to_string()), &limits);
        }
        assert!(body.memory.bytes() < 4 * UNUSED_BYTES_MAX, "{}", body.memory.bytes());
        assert_eq!(body.memory.text(body.detail.name.unwrap()), "attempt 49999");
        assert!(body.memory.text(body.detail.status.description().unwrap()).starts_with("attempt 49999 "));
        assert_eq!((body.attributes.len(), body.attributes_cut), (1, 0));
    }

    #[test]
    fn texts_beyond_the_limit_are_cut_and_name_and_status_stay() {
        let limits = SpanLimits::default();
        let mut body = Body::default();
        let attributes = limits.bytes() / 30_000 + 1;
        for n in 0..attributes {
            body.set_attribute(KeyValue::new(n.to_string(), "z".repeat(30_000)), &limits);
        }
        assert!(body.attributes_cut > 0);
        assert!(body.bytes() <= limits.bytes());
        body.update_name("renamed", &limits);
        body.set_status(OtelStatus::error("why"), &limits);
        assert_eq!(body.memory.text(body.detail.name.unwrap()), "renamed");
        assert_eq!(body.memory.text(body.detail.status.description().unwrap()), "why");
    }
}
