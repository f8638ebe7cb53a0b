//! The ended spans of one trace, or of many in a row, as append-only lists.
//!
//! The lists keep the order of the records: a record's attributes follow those of the record before
//! it, and so do details, events and links. None of them has to refer to its record, and the lists
//! of several traces can be joined by copying.

use super::attribute::Attribute;
use super::body::Body;
use super::event::{Event, Link};
use super::header::Header;
use super::memory::{Lengths, Memory, MemoryView, append, held, split};
use super::span::{Count, Detail, Record};
use crate::stats::Counted;

/// Defines the lists of a [`Buffer`], and everything that does the same with each of them.
macro_rules! lists {
    ($($list:ident: $Item:ty),+) => {
        #[derive(Debug, Default)]
        pub struct Buffer {
            $(pub $list: Vec<$Item>,)+
            pub memory: Memory,
            /// Bytes owned by links, event names and values from the OpenTelemetry API.
            pub owned: usize,
        }

        /// The ends of a [`Buffer`]'s lists at one point in time.
        #[derive(Debug)]
        pub struct Ends {
            $($list: usize,)+
            memory: Lengths,
        }

        /// The spans of one trace, where they lie: in the buffer of the trace, or in a batch with
        /// others.
        #[derive(Clone, Copy, Debug)]
        pub struct TraceView<'a> {
            pub header: &'a Header,
            $(pub $list: &'a [$Item],)+
            pub memory: MemoryView<'a>,
        }

        impl Buffer {
            pub fn clear(&mut self) {
                $(self.$list.clear();)+
                self.memory.clear();
                self.owned = 0;
            }

            pub fn shrink(&mut self) {
                $(self.$list.shrink_to_fit();)+
                self.memory.shrink();
            }

            #[inline]
            pub fn ends(&self) -> Ends {
                Ends { $($list: self.$list.len(),)+ memory: self.memory.lengths() }
            }

            #[inline]
            pub fn bytes_used(&self) -> usize {
                $(size_of::<$Item>() * self.$list.len() +)+ self.memory.bytes() + self.owned
            }

            /// Bytes of memory held, used or not.
            pub fn bytes_held(&self) -> usize {
                $(held(&self.$list) +)+ self.memory.bytes_held() + self.owned
            }

            /// Moves everything to the end of `to`, as it is: positions in the memory are not
            /// adapted.
            pub(super) fn append_to(&mut self, to: &mut Buffer) {
                $(append(&mut self.$list, &mut to.$list);)+
                self.memory.append_to(&mut to.memory);
                to.owned += std::mem::take(&mut self.owned);
            }

            /// The buffer's lists, as those of the trace with this header.
            pub fn view<'a>(&'a self, header: &'a Header) -> TraceView<'a> {
                TraceView { header, $($list: &self.$list,)+ memory: self.memory.view() }
            }
        }

        impl<'a> TraceView<'a> {
            /// Splits off the first trace of several, which has this header and ends there.
            pub(super) fn split_off(&mut self, header: &'a Header, ends: &Ends) -> Self {
                TraceView {
                    header,
                    $($list: split(&mut self.$list, ends.$list),)+
                    memory: self.memory.split_off(ends.memory),
                }
            }
        }
    };
}

lists! {
    records: Record,
    attributes: Attribute,
    details: Detail,
    events: Event,
    event_attributes: Attribute,
    links: Link
}

/// A larger trace is not taken as a model for the next one's memory, because most traces are
/// smaller.
const LIKE_BYTES_MAX: usize = 4 * 1024;

impl Buffer {
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
        record.has_detail = true;
        self.details.push(std::mem::take(&mut body.detail).map(|text| at.text(text)));
        if !body.events.is_empty() {
            self.events.extend(body.events.drain(..).map(|event| event.map(|text| at.text(text))));
            self.event_attributes
                .extend(body.event_attributes.drain(..).map(|attribute| attribute.moved(at)));
        }
        self.links.append(&mut body.links);
    }

    pub fn counted(&self) -> Counted {
        Record::count(&self.records)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct SpanView<'a> {
    pub record: &'a Record,
    pub detail: &'a Detail,
    pub attributes: &'a [Attribute],
    pub events: &'a [Event],
    /// The attributes of the events, in the order of the events.
    pub event_attributes: &'a [Attribute],
    pub links: &'a [Link],
}

impl<'a> TraceView<'a> {
    /// The spans in the order in which they ended.
    pub fn spans(self) -> impl Iterator<Item = SpanView<'a>> {
        let mut rest = self;
        self.records.iter().map(move |record| {
            let detail = split(&mut rest.details, record.has_detail.into()).first();
            let detail = detail.unwrap_or(&Detail::NONE);
            let events = split(&mut rest.events, detail.events.held as usize);
            let count = events.iter().map(|event| event.count as usize).sum();
            SpanView {
                record,
                detail,
                attributes: split(&mut rest.attributes, record.attributes.held as usize),
                events,
                event_attributes: split(&mut rest.event_attributes, count),
                links: split(&mut rest.links, detail.links.held as usize),
            }
        })
    }
}

impl<'a> SpanView<'a> {
    pub fn name(&self, memory: MemoryView<'a>) -> &'a str {
        self.detail.name.map_or(self.record.metadata.name(), |name| memory.text(name))
    }
}
