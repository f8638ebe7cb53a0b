//! The ended spans of one trace, or of many in a row, as append-only lists.
//!
//! The lists keep the order of the records: a record's attributes follow those of the record before
//! it, and so do details, events and links. None of them has to refer to its record, and the lists
//! of several traces can be joined by copying.

use super::attribute::Attribute;
use super::body::Body;
use super::event::{Event, Link};
use super::header::Header;
use super::memory::{Lengths, Memory, held};
use super::span::{Count, Detail, Record};
use super::view::TraceView;
use crate::stats::Counted;

/// A larger trace is not taken as a model for the next one's memory, because most traces are
/// smaller.
const LIKE_BYTES_MAX: usize = 4 * 1024;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Buffer {
    pub records: Vec<Record>,
    pub attributes: Vec<Attribute>,
    pub memory: Memory,
    pub details: Vec<Detail>,
    pub events: Vec<Event>,
    pub event_attributes: Vec<Attribute>,
    pub links: Vec<Link>,
    /// Bytes owned by links, event names and values from the OpenTelemetry API.
    pub owned: usize,
}

/// The ends of a [`Buffer`]'s lists at one point in time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    pub(super) records: usize,
    pub(super) attributes: usize,
    pub(super) details: usize,
    pub(super) events: usize,
    pub(super) event_attributes: usize,
    pub(super) links: usize,
    pub(super) memory: Lengths,
    owned: usize,
}

impl Ends {
    #[inline]
    fn bytes(&self) -> usize {
        size_of::<Record>() * self.records
            + size_of::<Attribute>() * (self.attributes + self.event_attributes)
            + size_of::<Detail>() * self.details
            + size_of::<Event>() * self.events
            + size_of::<Link>() * self.links
            + self.memory.bytes()
            + self.owned
    }
}

impl Buffer {
    pub fn clear(&mut self) {
        self.records.clear();
        self.attributes.clear();
        self.memory.clear();
        self.details.clear();
        self.events.clear();
        self.event_attributes.clear();
        self.links.clear();
        self.owned = 0;
    }

    /// An empty buffer with memory for a trace like this one, so that its lists do not grow step by
    /// step.
    pub fn like(trace: &Buffer) -> Self {
        let mut buffer = Buffer::default();
        if trace.bytes_used() <= LIKE_BYTES_MAX {
            buffer.records.reserve_exact(trace.records.len());
            buffer.attributes.reserve_exact(trace.attributes.len());
            buffer.memory.text.reserve_exact(trace.memory.text.len());
            buffer.details.reserve_exact(trace.details.len());
        }
        buffer
    }

    /// Appends an ended span. The body's content moves here; the body keeps its memory.
    #[inline]
    pub fn append(&mut self, mut record: Record, body: Option<&mut Body>) {
        if let Some(body) = body {
            self.append_body(&mut record, body);
        }
        self.records.push(record);
    }

    fn append_body(&mut self, record: &mut Record, body: &mut Body) {
        record.attributes = Count { held: body.attributes.len() as u32, cut: body.attributes_cut };
        let at = body.memory.move_to(&mut self.memory);
        self.owned += body.owned;
        self.attributes.extend(body.attributes.iter().map(|attribute| attribute.moved(at)));
        body.attributes.clear();
        if body.detail.is_none() {
            return;
        }
        record.set_has_detail();
        self.details.push(std::mem::take(&mut body.detail).map(|text| at.text(text)));
        if !body.events.is_empty() {
            self.events.extend(body.events.drain(..).map(|event| event.map(|text| at.text(text))));
            self.event_attributes
                .extend(body.event_attributes.drain(..).map(|attribute| attribute.moved(at)));
        }
        self.links.append(&mut body.links);
    }

    /// The current ends of the lists.
    #[inline]
    pub fn ends(&self) -> Ends {
        Ends {
            records: self.records.len(),
            attributes: self.attributes.len(),
            details: self.details.len(),
            events: self.events.len(),
            event_attributes: self.event_attributes.len(),
            links: self.links.len(),
            memory: self.memory.lengths(),
            owned: self.owned,
        }
    }

    /// The buffer's lists, as those of the trace with this header.
    pub fn view<'a>(&'a self, header: &'a Header) -> TraceView<'a> {
        TraceView {
            header,
            records: &self.records,
            attributes: &self.attributes,
            details: &self.details,
            events: &self.events,
            event_attributes: &self.event_attributes,
            links: &self.links,
            memory: self.memory.view(),
        }
    }

    /// The number of spans, and of local roots among them.
    pub fn counted(&self) -> Counted {
        Record::count(&self.records)
    }

    /// Releases unused memory.
    pub fn shrink(&mut self) {
        self.records.shrink_to_fit();
        self.attributes.shrink_to_fit();
        self.memory.shrink();
        self.details.shrink_to_fit();
        self.events.shrink_to_fit();
        self.event_attributes.shrink_to_fit();
        self.links.shrink_to_fit();
    }

    /// Bytes in use.
    #[inline]
    pub fn bytes_used(&self) -> usize {
        self.ends().bytes()
    }

    /// Bytes of memory held, used or not.
    pub fn bytes_held(&self) -> usize {
        held(&self.records)
            + held(&self.attributes)
            + held(&self.details)
            + held(&self.events)
            + held(&self.event_attributes)
            + held(&self.links)
            + self.memory.bytes_held()
            + self.owned
    }
}
