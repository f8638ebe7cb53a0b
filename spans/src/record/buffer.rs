//! The ended spans of one trace, or of many in a row, as append-only lists.
//!
//! The lists keep the order of the records: a record's attributes follow those of the record before
//! it, and so do details, events and links. None of them has to refer to its record, and the lists
//! of several traces can be joined by copying.

use opentelemetry::{TraceFlags, TraceId};

use super::attribute::Attribute;
use super::body::Body;
use super::event::{Event, Link};
use super::memory::{Lengths, Memory};
use super::span::{Detail, Record};
use crate::clock::Ticks;
use crate::stats::Counted;
use crate::trace_state::State;

/// The fields that all spans of a trace share.
#[derive(Clone, Debug)]
pub struct Header {
    pub trace_id: TraceId,
    pub flags: TraceFlags,
    pub state: State,
    /// The start of the trace's local root. All spans of a trace are dated from one reading of the
    /// clock.
    pub began: Ticks,
    pub kept_by: KeepReason,
    /// The number of spans that were cut from a trace that was kept late.
    pub cut: u32,
    /// Whether the outcome of a trace of the head sampler changed its threshold.
    pub is_reweighed: bool,
}

impl Default for Header {
    /// An invalid trace id, without flags.
    fn default() -> Self {
        Header {
            trace_id: TraceId::INVALID,
            flags: TraceFlags::default(),
            state: State::EMPTY,
            began: 0,
            kept_by: KeepReason::HEAD,
            cut: 0,
            is_reweighed: false,
        }
    }
}

impl Header {
    /// Counts spans that were cut; the root reports the number.
    pub fn cut_some(&mut self, more: u64) {
        self.cut = self.cut.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
    }
}

/// The reason for keeping a trace: the head sampler, or one of the reasons for late keeping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepReason(u8);

impl KeepReason {
    pub const HEAD: KeepReason = KeepReason(0);
    /// `Handle::keep` and similar calls.
    pub const HAND: KeepReason = KeepReason(1);
    /// A caller that kept its part of the trace.
    pub const CALLER: KeepReason = KeepReason(2);
    const POLICIES: u8 = 3;

    /// The policy with this index.
    pub fn policy(index: usize) -> Self {
        KeepReason(u8::try_from(index).unwrap_or(u8::MAX - Self::POLICIES).saturating_add(Self::POLICIES))
    }

    pub fn is_late(self) -> bool {
        self != Self::HEAD
    }

    /// The index in the list of reason names: hand, caller, then the policies. `None` for the head
    /// sampler.
    pub fn index(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }

    /// The index of the policy; `None` if no policy kept the trace.
    pub fn policy_index(self) -> Option<usize> {
        usize::from(self.0).checked_sub(usize::from(Self::POLICIES))
    }
}

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

/// The end of a [`Buffer`]'s lists at one point in time.
#[derive(Clone, Copy, Debug)]
pub struct End {
    memory: Lengths,
    lists: [usize; 6],
    owned: usize,
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

    /// The current end of the lists.
    pub fn end(&self) -> End {
        End {
            memory: self.memory.lengths(),
            lists: [
                self.records.len(),
                self.attributes.len(),
                self.details.len(),
                self.events.len(),
                self.event_attributes.len(),
                self.links.len(),
            ],
            owned: self.owned,
        }
    }

    /// Removes everything that was appended since `end` was taken.
    pub fn take_back(&mut self, end: &End) {
        let [records, attributes, details, events, event_attributes, links] = end.lists;
        self.records.truncate(records);
        self.attributes.truncate(attributes);
        self.details.truncate(details);
        self.events.truncate(events);
        self.event_attributes.truncate(event_attributes);
        self.links.truncate(links);
        self.memory.truncate(end.memory);
        self.owned = end.owned;
    }

    /// The number of spans, and of local roots among them.
    pub fn counted(&self) -> Counted {
        let roots = self.records.iter().filter(|record| record.is_local_root()).count();
        Counted { spans: self.records.len() as u64, roots: roots as u64, calls: 0.0 }
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
    pub fn bytes_used(&self) -> usize {
        size_of::<Record>() * self.records.len()
            + size_of::<Attribute>() * (self.attributes.len() + self.event_attributes.len())
            + size_of::<Detail>() * self.details.len()
            + size_of::<Event>() * self.events.len()
            + size_of::<Link>() * self.links.len()
            + self.memory.bytes()
            + self.owned
    }

    /// Bytes of memory held, used or not.
    pub fn bytes_held(&self) -> usize {
        size_of::<Record>() * self.records.capacity()
            + size_of::<Attribute>() * (self.attributes.capacity() + self.event_attributes.capacity())
            + size_of::<Detail>() * self.details.capacity()
            + size_of::<Event>() * self.events.capacity()
            + size_of::<Link>() * self.links.capacity()
            + self.memory.bytes_held()
            + self.owned
    }
}
