//! The parts of an open span that most spans do not have: attributes, events, links, and a changed
//! name.
//!
//! A body is guarded by its entry's lock and belongs to one span. Its limits are checked before
//! anything is copied, so an attribute or event that a limit cuts costs no memory. Name, kind and
//! status are always kept: if the bytes do not fit, their texts are cut to [`SHORT_TEXT`]
//! characters.
//!
//! A body reserves the bytes that it uses from the [`MemoryBudget`] of all open spans, in steps,
//! before it uses them. A list that grows may hold twice the memory that it uses.

mod api;

use std::cell::RefCell;
use std::sync::Arc;

use astracer_samplers::tail::Severity;
use tracing_core::{Level, Metadata};

use super::attribute::{Attribute, bytes_of};
use super::event::{Event, EventName, EventTime, Link};
use super::fields::{Fields, LogOrigin};
use super::limits::SpanLimits;
use super::memory::{Memory, Text, cut_text};
use super::span::{Detail, Status};
use crate::clock::Ticks;
use crate::memory_budget::{MemoryBudget, Reservation, Use};
use crate::reentry::Busy;

#[derive(Debug, Default)]
pub struct Body {
    pub attributes: Vec<Attribute>,
    pub attributes_cut: u32,
    pub detail: Detail,
    pub events: Vec<Event>,
    /// Attributes of events, in the order of the events.
    pub event_attributes: Vec<Attribute>,
    pub links: Vec<Link>,
    pub memory: Memory,
    /// Bytes of `memory` that are no longer referenced.
    unused: usize,
    /// Bytes owned by links, event names and values from the OpenTelemetry API.
    pub(super) owned: usize,
    reservation: Reservation,
    /// The highest severity of the events, including cut ones; `Error` also if an attribute `error`
    /// was cut.
    seen: Severity,
}

/// Bytes that replaced values leave behind are reclaimed once they exceed this number and half of
/// the memory.
const UNUSED_BYTES_MAX: usize = 1024;
/// The first reservation of a body; it doubles from there.
const RESERVED_MIN: usize = 512;
/// A body with a larger reservation is not kept as a spare: other threads cannot use what a spare
/// holds.
const SPARE_RESERVED_MAX: usize = 4 * 1024;
const SPARE_MAX: usize = 32;
/// The length to which a name or status is cut if its bytes do not fit, in characters.
const SHORT_TEXT: u32 = 256;

thread_local!(static SPARE: RefCell<Vec<Box<Body>>> = const { RefCell::new(Vec::new()) });

impl Body {
    pub fn take(budget: &Arc<MemoryBudget>) -> Box<Body> {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        match spare {
            Some(body) if body.reservation.is_of(budget) => body,
            _ => Box::new(Body { reservation: Reservation::of(budget), ..Body::default() }),
        }
    }

    /// Keeps a body's memory for another span of this thread. No user code runs, because values
    /// from the OpenTelemetry API are only numbers and texts.
    pub fn recycle(mut self: Box<Body>) {
        self.clear();
        // `fill` may have swapped in a larger text buffer from the thread's fields.
        if self.reservation.bytes() > SPARE_RESERVED_MAX || self.memory.text.capacity() > SPARE_RESERVED_MAX {
            return;
        }
        let _busy = Busy::mark();
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
        self.seen = Severity::Fine;
        if !self.detail.is_none() {
            self.detail = Detail::NONE;
        }
        if !(self.events.is_empty() && self.links.is_empty()) {
            // Few spans have events or links, so their memory is not kept.
            (self.events, self.event_attributes, self.links) = Default::default();
        }
    }

    pub fn bytes(&self) -> usize {
        (self.memory.bytes() + self.owned).saturating_sub(self.unused)
            + size_of::<Attribute>() * (self.attributes.len() + self.event_attributes.len())
            + size_of::<Event>() * self.events.len()
            + size_of::<Link>() * self.links.len()
    }

    pub fn has_failed(&self) -> bool {
        matches!(self.detail.status, Status::Error(_)) || self.seen == Severity::Error
    }

    /// The highest severity of the span: from its status, its events and an attribute `error`,
    /// whether they were kept or cut.
    pub fn severity(&self) -> Severity {
        let says_so = |attribute: &Attribute| attribute.says_error(self.memory.view());
        if self.has_failed() || self.attributes.iter().any(says_so) { Severity::Error } else { self.seen }
    }

    /// Whether a part of `more` bytes fits once `freed` bytes are released; grows the reservation
    /// if necessary. If only the budget prevents it, counts a cut part.
    #[inline]
    fn fits(&mut self, more: usize, freed: usize) -> bool {
        let bytes = (self.bytes() + more).saturating_sub(freed);
        let fits = self.reserve(bytes);
        if !fits && bytes <= SpanLimits::BYTES_MAX {
            self.reservation.count_cut();
        }
        fits
    }

    #[inline]
    fn reserve(&mut self, bytes: usize) -> bool {
        bytes <= self.reservation.bytes() || self.grow(bytes)
    }

    #[cold]
    fn grow(&mut self, bytes: usize) -> bool {
        if bytes > SpanLimits::BYTES_MAX {
            return false;
        }
        let reservation = bytes.next_power_of_two().max(RESERVED_MIN);
        self.reservation.grow_to(reservation, Use::Attributes)
            || self.reservation.grow_to(bytes, Use::Attributes)
    }

    /// The text if it fits, or else a short part of it: this text is always kept in some form.
    fn keep_text<'a>(&mut self, text: &'a str, freed: usize) -> &'a str {
        let bytes = (self.bytes() + text.len()).saturating_sub(freed);
        if self.reserve(bytes) { text } else { cut_text(text, SHORT_TEXT) }
    }

    /// Takes the fields with which a span begins. The body must be empty; the fields get its memory
    /// in exchange.
    #[inline]
    pub fn fill(&mut self, fields: &mut Fields, limits: &SpanLimits) {
        let bytes = fields.memory.bytes() + size_of::<Attribute>() * fields.attributes.len();
        let fits = self.reserve(bytes);
        // Long texts of earlier calls have grown the memory of the fields. It stays with the thread
        // instead of going into this span.
        let is_oversized =
            fields.memory.text.capacity() > SPARE_RESERVED_MAX.max(2 * self.reservation.bytes());
        if !fits || is_oversized {
            return self.absorb(fields, limits);
        }
        std::mem::swap(&mut self.attributes, &mut fields.attributes);
        // Few fields are lists, and none of a span's initial fields comes from the OpenTelemetry
        // API.
        if !fields.memory.text.is_empty() {
            std::mem::swap(&mut self.memory.text, &mut fields.memory.text);
        }
        if !fields.memory.lists.is_empty() {
            std::mem::swap(&mut self.memory.lists, &mut fields.memory.lists);
        }
        let max = limits.attributes as usize;
        if self.attributes.len() > max {
            self.attributes_cut = (self.attributes.len() - max) as u32;
            if self.attributes[max..].iter().any(|cut| cut.says_error(self.memory.view())) {
                self.seen = Severity::Error;
            }
            self.attributes.truncate(max);
        }
        self.detail.name = fields.name;
        self.detail.kind = fields.kind.take();
        self.detail.status = fields.status;
    }

    pub fn absorb(&mut self, fields: &mut Fields, limits: &SpanLimits) {
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

    /// Sets an attribute. A later value replaces an earlier one of the same name. No limit prevents
    /// that if the later value is not longer.
    fn set(&mut self, attribute: Attribute, from: &Memory, limits: &SpanLimits) {
        let known =
            self.attributes.iter().position(|known| known.has_name_of(&self.memory, &attribute, from));
        let old = known.map_or(0, |known| self.attributes[known].bytes(self.memory.view()));
        let new = attribute.bytes(from.view());
        match known {
            Some(known) if new <= old || self.fits(new, old) => {
                self.attributes[known] = attribute.adopted(from, &mut self.memory);
                self.unused += old;
            }
            None if self.has_place(new, limits) => {
                self.attributes.push(attribute.adopted(from, &mut self.memory));
            }
            _ => self.cut_attribute(attribute.says_error(from.view())),
        }
    }

    fn has_place(&mut self, bytes: usize, limits: &SpanLimits) -> bool {
        self.attributes.len() < limits.attributes as usize && self.fits(bytes + size_of::<Attribute>(), 0)
    }

    fn cut_attribute(&mut self, says_error: bool) {
        self.attributes_cut = self.attributes_cut.saturating_add(1);
        if says_error {
            self.seen = Severity::Error;
        }
    }

    fn set_name(&mut self, name: &str) {
        let old = self.detail.name.map_or(0, |old| old.length as usize);
        let name = self.keep_text(name, old);
        self.detail.name = Some(self.memory.push(name));
        self.unused += old;
    }

    fn raise(&mut self, status: Status, from: &Memory) {
        match status {
            Status::Unset => {}
            Status::Ok => {
                self.unused += self.detail.status.raise(Status::Ok).map_or(0, |old| old.length as usize)
            }
            Status::Error(text) => self.raise_error(from.text(text)),
        }
    }

    fn raise_error(&mut self, description: &str) {
        let old = self.detail.status.description().map_or(0, |old| old.length as usize);
        let description = self.keep_text(description, old);
        let status = Status::Error(self.memory.push(description));
        self.unused += self.detail.status.raise(status).map_or(0, |old| old.length as usize);
    }

    pub fn absorb_event(
        &mut self,
        fields: &mut Fields,
        metadata: &'static Metadata<'static>,
        now: Ticks,
        limits: &SpanLimits,
    ) {
        match *metadata.level() {
            Level::ERROR => {
                self.seen = Severity::Error;
                if self.detail.status == Status::Unset {
                    self.detail.status = Status::Error(Text::EMPTY);
                }
            }
            Level::WARN => self.seen = self.seen.max(Severity::Warning),
            _ => {}
        }
        self.raise(fields.status, &fields.memory);
        for attribute in &fields.for_span {
            self.set(*attribute, &fields.memory, limits);
        }
        let given = fields.attributes.len() as u32;
        let count = given.min(limits.attributes_per_event);
        let owned = fields.memory.others.iter().map(bytes_of).sum::<usize>();
        let bytes =
            fields.memory.bytes() + owned + size_of::<Event>() + size_of::<Attribute>() * count as usize;
        if (self.detail.events.held >= limits.events || !self.fits(bytes, 0))
            && !(*metadata.level() == Level::ERROR && self.make_room_for_error(bytes, limits))
        {
            self.detail.events.cut_some(1);
            return self.reclaim();
        }
        self.detail.events.held += 1;
        self.owned += owned;
        let at = fields.memory.move_to(&mut self.memory);
        let kept = fields.attributes.iter().take(count as usize);
        self.event_attributes.extend(kept.map(|attribute| attribute.moved(at)));
        let name = match fields.name {
            Some(text) => EventName::Text(at.text(text)),
            None if fields.is_exception => EventName::Static("exception"),
            None => EventName::Static(metadata.name()),
        };
        // Other events may have fields with those names, which then mean nothing, as in
        // tracing-opentelemetry.
        let log = if LogOrigin::is_of(metadata) { fields.log } else { LogOrigin::default() };
        let log = log.map(|text| at.text(text));
        let (time, metadata) = (EventTime::Ticks(now), Some(metadata));
        self.events.push(Event { name, time, metadata, log, count, cut: given - count });
        self.reclaim();
    }

    /// Cuts the last events of lower levels until an ERROR event fits. Returns false if it does not
    /// fit in place of them.
    #[cold]
    fn make_room_for_error(&mut self, bytes: usize, limits: &SpanLimits) -> bool {
        let is_lower =
            |event: &mut Event| event.metadata.is_none_or(|metadata| *metadata.level() != Level::ERROR);
        let fits_alone = bytes <= SpanLimits::BYTES_MAX && limits.events > 0;
        while fits_alone && let Some(event) = self.events.pop_if(is_lower) {
            let from = self.event_attributes.len().saturating_sub(event.count as usize);
            self.unused +=
                self.event_attributes.drain(from..).map(|cut| cut.bytes(self.memory.view())).sum::<usize>();
            self.unused += match &event.name {
                EventName::Text(text) => text.length as usize,
                EventName::Static(_) | EventName::Owned(_) => 0,
            };
            self.owned = self.owned.saturating_sub(event.owned());
            self.detail.events.held -= 1;
            self.detail.events.cut_some(1);
            if self.fits(bytes, 0) {
                return true;
            }
        }
        false
    }

    /// Sets the status of a span that a panic unwinds through, unless the service described it.
    #[cold]
    pub fn panicked(&mut self) {
        let is_described = self.detail.status.description().is_some_and(|text| text.length > 0);
        if !is_described && !self.is_ended_by_hand() {
            self.raise_error("panicked");
        }
    }

    /// Whether the span was ended through the OpenTelemetry API, so that it no longer changes.
    pub fn is_ended_by_hand(&self) -> bool {
        self.detail.ended_by_hand.is_some()
    }

    /// Copies the used parts to new memory if replaced values have left much behind. This is linear
    /// in the span's size, but at least half as much was written since the last time.
    #[inline]
    fn reclaim(&mut self) {
        if self.unused >= UNUSED_BYTES_MAX && self.unused >= self.memory.bytes() / 2 {
            self.copy_used();
        }
    }

    #[cold]
    fn copy_used(&mut self) {
        let from = std::mem::take(&mut self.memory);
        let to = &mut self.memory;
        for attribute in self.attributes.iter_mut().chain(&mut self.event_attributes) {
            *attribute = attribute.adopted(&from, to);
        }
        let events = std::mem::take(&mut self.events).into_iter();
        self.events = events.map(|event| event.map(|text| to.adopt(&from, text))).collect();
        self.detail = std::mem::take(&mut self.detail).map(|text| to.adopt(&from, text));
        self.owned = to.others.iter().map(bytes_of).sum::<usize>()
            + self.links.iter().map(Link::owned).sum::<usize>()
            + self.events.iter().map(Event::owned).sum::<usize>();
        self.unused = 0;
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::KeyValue;
    use opentelemetry::trace::Status as OtelStatus;

    use super::super::span::Count;
    use super::*;

    /// Each call leaves the old description behind. The memory holds the current one, and at most
    /// as much unused.
    #[test]
    fn changed_values_do_not_accumulate() {
        let (mut body, limits) = (Body::take(&MemoryBudget::new(1 << 30)), SpanLimits::default());
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
        let mut body = Body::take(&MemoryBudget::new(1 << 30));
        let attributes = SpanLimits::BYTES_MAX / 30_000 + 1;
        for n in 0..attributes {
            body.set_attribute(KeyValue::new(n.to_string(), "z".repeat(30_000)), &limits);
        }
        assert!(body.attributes_cut > 0);
        assert!(body.bytes() <= SpanLimits::BYTES_MAX);
        body.update_name("renamed", &limits);
        body.set_status(OtelStatus::error("why"), &limits);
        assert_eq!(body.memory.text(body.detail.name.unwrap()), "renamed");
        assert_eq!(body.memory.text(body.detail.status.description().unwrap()), "why");
    }

    /// The budget is shared by all spans: it counts what is cut, and gets back what was reserved.
    #[test]
    fn attributes_reserve_and_release_memory() {
        let (budget, limits) = (MemoryBudget::new(64 * 1024), SpanLimits::default());
        let mut first = Body::take(&budget);
        first.set_attribute(KeyValue::new("a", "x".repeat(30_000)), &limits);
        assert_eq!(budget.used(), 32 * 1024);
        first.set_attribute(KeyValue::new("b", "x".repeat(30_000)), &limits);
        assert_eq!((first.attributes_cut, budget.parts_cut()), (1, 1), "a quarter is left for entries");
        let mut second = Body::take(&budget);
        second.add_event(
            "e".into(),
            EventTime::Ticks(1),
            vec![KeyValue::new("b", "x".repeat(20_000))],
            &limits,
        );
        assert_eq!((second.detail.events, budget.parts_cut()), (Count { held: 0, cut: 1 }, 2));
        // A value of the same length fits in place of an existing one.
        first.set_attribute(KeyValue::new("a", "y".repeat(30_000)), &limits);
        assert_eq!((first.attributes_cut, first.attributes.len()), (1, 1));
        assert!(!budget.take(32 * 1024 + 1, Use::Entries));
        first.recycle();
        drop(second);
        assert_eq!(budget.used(), 0);
        assert!(budget.take(64 * 1024, Use::Entries));
        // Without any budget left, names and descriptions are cut short, but kept.
        let mut third = Body::take(&budget);
        third.update_name(&"n".repeat(1_000), &limits);
        third.set_status(OtelStatus::error("d".repeat(1_000)), &limits);
        let length = |text: Option<Text>| text.map(|text| text.length);
        assert_eq!(length(third.detail.name), Some(SHORT_TEXT));
        assert_eq!(length(third.detail.status.description()), Some(SHORT_TEXT));
    }
}
