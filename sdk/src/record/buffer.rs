//! The ended spans of one trace, or of many in a row: lists that are only appended to.
//!
//! The lists keep the order of the records: a record's attributes follow those of the record before it, and so do
//! details, events and links. So none of them names its record, and lists of traces can be appended to each other by
//! copying.

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::trace::{SpanContext, TraceState};
use opentelemetry::{KeyValue, TraceFlags, TraceId};
use tracing_core::Metadata;

use super::attribute::{Attribute, bytes_of};
use super::body::Body;
use super::fields::LogOrigin;
use super::memory::{Lengths, Memory, Text};
use super::span::{Detail, Record};
use crate::clock::Ticks;

/// The facts that all spans of a trace share.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) trace_id: TraceId,
    pub(crate) flags: TraceFlags,
    /// `None`: empty, as it mostly is.
    pub(crate) state: Option<Arc<TraceState>>,
    /// The start of the trace's local root: the clock dates all spans of a trace by one reading.
    pub(crate) began: Ticks,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    pub(crate) records: Vec<Record>,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) memory: Memory,
    pub(crate) details: Vec<Detail>,
    pub(crate) events: Vec<Event>,
    pub(crate) event_attributes: Vec<Attribute>,
    pub(crate) links: Vec<Link>,
    /// Bytes that links, names of events and values of the OpenTelemetry API own.
    pub(crate) owned: usize,
}

/// An event of a span.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: EventName,
    pub(crate) time: EventTime,
    /// The callsite of an event of `tracing`.
    pub(crate) metadata: Option<&'static Metadata<'static>>,
    pub(crate) log: LogOrigin,
    /// The number of attributes held, and the number that a limit cut.
    pub(crate) count: u32,
    pub(crate) cut: u32,
}

impl Event {
    /// Bytes that it owns.
    pub(super) fn owned(&self) -> usize {
        match &self.name {
            EventName::Owned(name) => name.len(),
            EventName::Text(_) | EventName::Static(_) => 0,
        }
    }

    fn moved(mut self, at: Lengths) -> Self {
        if let EventName::Text(text) = &mut self.name {
            *text = at.text(*text);
        }
        self.log = self.log.map(|text| at.text(text));
        self
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
    pub(crate) to: SpanContext,
    pub(crate) attributes: Vec<KeyValue>,
    pub(crate) cut: u32,
}

impl Link {
    /// Bytes that it owns.
    pub(super) fn owned(&self) -> usize {
        let attributes = self.attributes.iter().map(|own| size_of::<KeyValue>() + bytes_of(own));
        self.to.trace_state().header().len() + attributes.sum::<usize>()
    }
}

impl Buffer {
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.attributes.clear();
        self.memory.clear();
        self.details.clear();
        self.events.clear();
        self.event_attributes.clear();
        self.links.clear();
        self.owned = 0;
    }

    /// Appends an ended span. The body's content moves here; its memory stays with it, empty.
    #[inline]
    pub(crate) fn append(&mut self, mut record: Record, body: Option<&mut Body>) {
        if let Some(body) = body {
            self.append_body(&mut record, body);
        }
        self.records.push(record);
    }

    fn append_body(&mut self, record: &mut Record, body: &mut Body) {
        record.attributes = body.attribute_count();
        let at = body.memory.move_to(&mut self.memory);
        self.owned += body.owned();
        self.attributes.extend(body.attributes.iter().map(|attribute| attribute.moved(at)));
        body.attributes.clear();
        if body.detail.is_none() {
            return;
        }
        record.set_has_detail();
        self.details.push(std::mem::take(&mut body.detail).moved(at));
        if !body.events.is_empty() {
            self.events.extend(body.events.drain(..).map(|event| event.moved(at)));
            self.event_attributes
                .extend(body.event_attributes.drain(..).map(|attribute| attribute.moved(at)));
        }
        self.links.append(&mut body.links);
    }

    /// Bytes in use.
    pub(crate) fn bytes_used(&self) -> usize {
        size_of::<Record>() * self.records.len()
            + size_of::<Attribute>() * (self.attributes.len() + self.event_attributes.len())
            + size_of::<Detail>() * self.details.len()
            + size_of::<Event>() * self.events.len()
            + size_of::<Link>() * self.links.len()
            + self.memory.bytes()
            + self.owned
    }

    /// Bytes of memory held, used or not.
    pub(crate) fn bytes_held(&self) -> usize {
        size_of::<Record>() * self.records.capacity()
            + size_of::<Attribute>() * (self.attributes.capacity() + self.event_attributes.capacity())
            + size_of::<Detail>() * self.details.capacity()
            + size_of::<Event>() * self.events.capacity()
            + size_of::<Link>() * self.links.capacity()
            + self.memory.bytes_held()
            + self.owned
    }
}
