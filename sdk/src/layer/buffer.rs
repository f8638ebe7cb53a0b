//! The memory of one trace in this process: the records of its spans and all that they hold.
//!
//! Everything is appended; nothing moves until the trace is handed over whole. A buffer is used again for another
//! trace, so that in the long run a kept span allocates nothing here.

use std::time::SystemTime;

use opentelemetry::trace::{SpanContext, TraceState};
use opentelemetry::{Context, KeyValue, SpanId, TraceId};
use tracing_core::{Level, Metadata, span};

use super::attribute::Attribute;
use super::fields::{Fields, LogOrigin};
use super::memory::Memory;
use super::record::{Detail, Ending, Record, Status, Text};
use super::table::INDEX_MAX;
use super::thread::ThreadName;
use crate::clock::Ticks;
use crate::settings::SpanLimits;

/// A trace as far as this process has seen it.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) records: Vec<Record>,
    /// Attributes of spans, in the order of their arrival.
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) trace_id: TraceId,
    pub(crate) memory: Memory,
    pub(crate) trace_state: TraceState,
    pub(crate) details: Vec<Detail>,
    pub(crate) threads: Vec<ThreadName>,
    /// The number of the first of them, 0 if it is not known.
    pub(crate) first_thread: u32,
    pub(crate) events: Vec<Event>,
    /// Attributes of events; those of one lie together.
    pub(crate) event_attributes: Vec<Attribute>,
    pub(crate) links: Vec<Link>,
    /// How many records are open.
    pub(crate) open: u32,
    /// Set until the sampler has been asked: then the only record is the local root.
    pub(crate) pending: Option<Pending>,
    /// Memory for what a root is counted by, used again.
    pub(crate) key: String,
    /// Places of records that have left.
    free: Vec<u32>,
}

/// What a decision will be about.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Whose decision is honoured; not valid if there is none.
    pub(crate) parent: SpanContext,
    /// What the root's context is made from: its values, baggage among them, stay.
    pub(crate) base: Context,
}

/// An event of a span.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) record: u32,
    pub(crate) name: EventName,
    pub(crate) time: EventTime,
    /// Of an event of `tracing`: where it is from.
    pub(crate) metadata: Option<&'static Metadata<'static>>,
    pub(crate) log: LogOrigin,
    /// How many of the buffer's event attributes, which lie in the order of the events.
    pub(crate) count: u32,
    pub(crate) cut: u32,
}

impl Event {
    fn move_texts(&mut self, from: &Memory, to: &mut Memory) {
        if let EventName::Text(text) = &mut self.name {
            *text = to.adopt(from, *text);
        }
        self.log = LogOrigin {
            target: self.log.target.map(|text| to.adopt(from, text)),
            file: self.log.file.map(|text| to.adopt(from, text)),
            module: self.log.module.map(|text| to.adopt(from, text)),
            line: self.log.line,
        };
    }
}

#[derive(Debug)]
pub(crate) enum EventName {
    Text(Text),
    Static(&'static str),
    Owned(Box<str>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum EventTime {
    Ticks(Ticks),
    Date(SystemTime),
}

/// A link of a span.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) record: u32,
    pub(crate) to: SpanContext,
    pub(crate) attributes: Vec<KeyValue>,
    pub(crate) cut: u32,
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer {
            records: Vec::new(),
            attributes: Vec::new(),
            trace_id: TraceId::INVALID,
            memory: Memory::default(),
            trace_state: TraceState::NONE,
            details: Vec::new(),
            threads: Vec::new(),
            first_thread: 0,
            events: Vec::new(),
            event_attributes: Vec::new(),
            links: Vec::new(),
            open: 0,
            pending: None,
            key: String::new(),
            free: Vec::new(),
        }
    }
}

impl Buffer {
    /// Forgets the trace and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.pending = None;
        self.key.clear();
        self.trace_state = TraceState::NONE;
        self.records.clear();
        self.details.clear();
        self.open = 0;
        self.attributes.clear();
        self.events.clear();
        self.event_attributes.clear();
        self.links.clear();
        self.memory.clear();
        self.threads.clear();
        self.first_thread = 0;
        self.free.clear();
    }

    /// Moves what the lists hold to the end of those of another buffer; the memory stays here, and is empty.
    pub(crate) fn move_to(&mut self, to: &mut Buffer) {
        /// Looks at the other only if there is something to move.
        fn append<T>(from: &mut Vec<T>, to: &mut Vec<T>) {
            if !from.is_empty() {
                to.append(from);
            }
        }
        append(&mut self.records, &mut to.records);
        append(&mut self.attributes, &mut to.attributes);
        self.memory.move_to(&mut to.memory);
        append(&mut self.details, &mut to.details);
        append(&mut self.threads, &mut to.threads);
        append(&mut self.events, &mut to.events);
        append(&mut self.event_attributes, &mut to.event_attributes);
        append(&mut self.links, &mut to.links);
        self.clear();
    }

    /// Bytes of all that it holds.
    pub(crate) fn bytes_used(&self) -> usize {
        self.bytes_by(Measure::USED)
    }

    /// Bytes of memory held, used or not.
    pub(crate) fn bytes_held(&self) -> usize {
        self.bytes_by(Measure::HELD)
    }

    /// An estimate, which leaves out what values of the OpenTelemetry API own.
    fn bytes_by(&self, of: Measure) -> usize {
        size_of::<Self>()
            + of.vec(&self.records)
            + of.vec(&self.attributes)
            + of.text(&self.memory.text)
            + of.vec(&self.memory.lists)
            + of.vec(&self.memory.others)
            + of.vec(&self.details)
            + of.vec(&self.events)
            + of.vec(&self.event_attributes)
            + of.vec(&self.links)
    }

    /// The record of an open span; `None` if the place is no longer that span's.
    pub(crate) fn record(&mut self, index: u32, id: &span::Id) -> Option<&mut Record> {
        self.records.get_mut(index as usize).filter(|record| record.is_of(id))
    }

    /// Adds an open record.
    #[inline]
    pub(crate) fn push(&mut self, record: Record) -> u32 {
        self.open += 1;
        self.put(record)
    }

    /// Adds a record that is closed; an open one is to be counted too, see [`Buffer::push`].
    #[inline(always)]
    pub(crate) fn put(&mut self, record: Record) -> u32 {
        if let Some(index) = self.free.pop() {
            self.records[index as usize] = record;
            return index;
        }
        self.records.push(record);
        (self.records.len() - 1) as u32
    }

    /// What is rarely known of a record, to be changed.
    pub(crate) fn detail(&mut self, index: u32) -> &mut Detail {
        let detail = &mut self.records[index as usize].detail;
        if self.details.get(*detail as usize).is_none() {
            *detail = self.details.len() as u32;
            self.details.push(Detail::NONE);
        }
        &mut self.details[*detail as usize]
    }

    /// What is rarely known of a record.
    pub(crate) fn detail_of(&self, record: &Record) -> &Detail {
        self.details.get(record.detail as usize).unwrap_or(&const { Detail::NONE })
    }

    /// Whether one more record is within the limit.
    pub(crate) fn has_room(&self, max: u32) -> bool {
        self.records.len() < max.min(INDEX_MAX) as usize || !self.free.is_empty()
    }

    /// Takes out what is closed, so that the trace of a root that lives for long does not grow for long. Open records
    /// stay where they are; the places of the others are free.
    pub(crate) fn part(&mut self) -> Buffer {
        let mut closed = std::mem::take(self);
        self.trace_id = closed.trace_id;
        self.trace_state = closed.trace_state.clone();
        self.open = closed.open;
        self.first_thread = closed.first_thread;
        self.threads.clone_from(&closed.threads);
        for (index, record) in closed.records.iter_mut().enumerate() {
            if !record.is_open() {
                self.free.push(index as u32);
            }
            self.records.push(record.part());
        }
        // The first places first, so that spans leave in the order in which they began.
        self.free.reverse();
        let stays = |record: u32| closed.records[record as usize].left;
        let old = &closed.memory;
        for record in self.records.iter_mut().filter(|record| record.is_open()) {
            let Some(detail) = closed.details.get(record.detail as usize) else { continue };
            let detail = detail.adopted(old, &mut self.memory);
            record.detail = self.details.len() as u32;
            self.details.push(detail);
        }
        let (open, rest): (Vec<_>, _) =
            closed.attributes.drain(..).partition(|attribute| stays(attribute.record));
        closed.attributes = rest;
        self.attributes.extend(open.iter().map(|attribute| attribute.adopted(old, &mut self.memory)));
        let (open, rest) = closed.links.drain(..).partition(|link| stays(link.record));
        closed.links = rest;
        self.links = open;
        // Attributes of events lie in the order of the events, in both.
        let mut attributes = std::mem::take(&mut closed.event_attributes).into_iter();
        let mut events = Vec::new();
        for mut event in closed.events.drain(..) {
            let own = attributes.by_ref().take(event.count as usize);
            if !stays(event.record) {
                closed.event_attributes.extend(own);
                events.push(event);
                continue;
            }
            self.event_attributes.extend(own.map(|attribute| attribute.adopted(old, &mut self.memory)));
            event.move_texts(old, &mut self.memory);
            self.events.push(event);
        }
        closed.events = events;
        closed
    }

    /// Takes an open record out with all that is its own, to be the first in `to`, which is empty. Its place is free.
    pub(crate) fn take_out(&mut self, index: u32, to: &mut Buffer) {
        let mut record = self.records[index as usize].part();
        self.records[index as usize].vacate();
        self.open -= 1;
        self.free.push(index);
        record.parent = SpanId::INVALID;
        if let Some(detail) = self.details.get(record.detail as usize) {
            record.detail = to.details.len() as u32;
            to.details.push(detail.adopted(&self.memory, &mut to.memory));
        }
        if let Some(thread) = self.threads.get(record.thread as usize) {
            record.thread = to.thread(thread);
        }
        let own = self.attributes.extract_if(.., |attribute| attribute.record == index);
        to.attributes.extend(own.map(|attribute| attribute.adopted(&self.memory, &mut to.memory).of(0)));
        let links = self.links.extract_if(.., |link| link.record == index);
        to.links.extend(links.map(|link| Link { record: 0, ..link }));
        let mut attributes = std::mem::take(&mut self.event_attributes).into_iter();
        for mut event in std::mem::take(&mut self.events) {
            let own = attributes.by_ref().take(event.count as usize);
            if event.record != index {
                self.event_attributes.extend(own);
                self.events.push(event);
                continue;
            }
            to.event_attributes.extend(own.map(|attribute| attribute.adopted(&self.memory, &mut to.memory)));
            event.move_texts(&self.memory, &mut to.memory);
            event.record = 0;
            to.events.push(event);
        }
        to.push(record);
    }

    /// The index of the thread's name.
    #[inline]
    pub(crate) fn thread(&mut self, thread: &ThreadName) -> u16 {
        // Nearly always the thread that was last here, or the only one.
        match self.threads.iter().rposition(|known| known.id == thread.id) {
            Some(index) => index as u16,
            // More than a trace can hold spans, unless it was told to hold very many; then they are not told.
            None if self.threads.len() == usize::from(u16::MAX) => u16::MAX,
            None => {
                self.threads.push(thread.clone());
                (self.threads.len() - 1) as u16
            }
        }
    }

    /// Adds what was recorded on a span. Texts beyond the trace's share of memory are cut, and counted on the span.
    pub(crate) fn absorb(&mut self, index: u32, fields: &mut Fields, limits: &SpanLimits, text_max: u32) {
        let Some(at) = self.append_memory(&fields.memory, text_max) else {
            let cut = fields.attributes.len() as u32;
            if let Some(record) = self.records.get_mut(index as usize) {
                record.attributes.cut = record.attributes.cut.saturating_add(cut);
            }
            return;
        };
        if self.records.len() <= index as usize {
            return;
        }
        if fields.name.is_some() || fields.kind.is_some() || fields.status != Status::Unset {
            let detail = self.detail(index);
            if let Some(name) = fields.name {
                detail.name = Some(at.text(name));
            }
            if let Some(kind) = fields.kind.take() {
                detail.kind = Some(kind);
            }
            detail.status.raise(at.status(fields.status));
        }
        self.add_attributes(index, &fields.attributes, at, limits);
    }

    /// Adds attributes to a span, as far as they are within its limit. Their texts were appended at `at`.
    #[inline]
    fn add_attributes(&mut self, index: u32, attributes: &[Attribute], at: Offset, limits: &SpanLimits) {
        let count = &mut self.records[index as usize].attributes;
        let admitted = &attributes[..count.admit_some(attributes.len(), limits.attributes)];
        self.attributes.extend(admitted.iter().map(|attribute| at.attribute(*attribute).of(index)));
    }

    /// Adds an event of `tracing` to a span.
    pub(crate) fn absorb_event(
        &mut self,
        index: u32,
        fields: &mut Fields,
        metadata: &'static Metadata<'static>,
        now: Ticks,
        limits: &SpanLimits,
        text_max: u32,
    ) {
        let memory = self.append_memory(&fields.memory, text_max);
        if self.records.len() <= index as usize {
            return;
        }
        let detail = self.detail(index);
        if *metadata.level() == Level::ERROR && detail.status == Status::Unset {
            detail.status = Status::Error(Text::EMPTY);
        }
        let Some(at) = memory else {
            detail.events.cut = detail.events.cut.saturating_add(1);
            return;
        };
        detail.status.raise(at.status(fields.status));
        let admitted = detail.events.admit(limits.events);
        self.add_attributes(index, &fields.for_span, at, limits);
        if !admitted {
            return;
        }
        let given = fields.attributes.len() as u32;
        let count = given.min(limits.attributes_per_event);
        let kept = fields.attributes.iter().take(count as usize);
        self.event_attributes.extend(kept.map(|attribute| at.attribute(*attribute)));
        let name = match fields.name {
            Some(text) => EventName::Text(at.text(text)),
            None if fields.is_exception => EventName::Static("exception"),
            None => EventName::Static(metadata.name()),
        };
        // Other events may have fields of those names; they say nothing then, as in tracing-opentelemetry.
        let log = if LogOrigin::is_of(metadata) { fields.log } else { LogOrigin::default() };
        let log = log.map(|text| at.text(text));
        let (time, metadata) = (EventTime::Ticks(now), Some(metadata));
        self.events.push(Event { record: index, name, time, metadata, log, count, cut: given - count });
    }

    #[inline]
    fn append_memory(&mut self, memory: &Memory, text_max: u32) -> Option<Offset> {
        if memory.text.is_empty() && memory.lists.is_empty() {
            return Some(Offset { text: 0, list: 0 });
        }
        self.append_texts(memory, text_max)
    }

    fn append_texts(&mut self, memory: &Memory, text_max: u32) -> Option<Offset> {
        let offset = Offset { text: self.memory.text.len() as u32, list: self.memory.lists.len() as u32 };
        if offset.text as usize + memory.text.len() > text_max as usize {
            return None;
        }
        self.memory.text.push_str(&memory.text);
        self.memory.lists.extend(memory.lists.iter().map(|text| offset.text(*text)));
        Some(offset)
    }

    /// Closes a span; says whether it was the last that was open.
    pub(crate) fn close(&mut self, index: u32, id: &span::Id, ending: Ending) -> bool {
        let Some(record) = self.record(index, id) else { return false };
        record.close(ending);
        self.open -= 1;
        self.open == 0
    }

    pub(crate) fn has_state(&self) -> bool {
        self.trace_state != TraceState::NONE
    }

    pub(crate) fn span_context(&self, span_id: SpanId) -> SpanContext {
        let state = self.trace_state.clone();
        SpanContext::new(self.trace_id, span_id, opentelemetry::TraceFlags::SAMPLED, false, state)
    }
}

/// What of a list's memory counts.
#[derive(Clone, Copy)]
struct Measure {
    unused: bool,
}

impl Measure {
    const USED: Measure = Measure { unused: false };
    const HELD: Measure = Measure { unused: true };

    #[inline]
    fn vec<T>(self, vec: &Vec<T>) -> usize {
        size_of::<T>() * if self.unused { vec.capacity() } else { vec.len() }
    }

    #[inline]
    fn text(self, text: &String) -> usize {
        if self.unused { text.capacity() } else { text.len() }
    }
}

/// Where memory was appended.
#[derive(Clone, Copy)]
struct Offset {
    text: u32,
    list: u32,
}

impl Offset {
    fn text(self, text: Text) -> Text {
        Text { start: text.start + self.text, ..text }
    }

    fn status(self, status: Status) -> Status {
        match status {
            Status::Error(text) => Status::Error(self.text(text)),
            other => other,
        }
    }

    #[inline]
    fn attribute(self, attribute: Attribute) -> Attribute {
        attribute.moved(self.text, self.list)
    }
}
