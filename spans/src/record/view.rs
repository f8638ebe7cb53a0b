//! Reads the spans of a trace where they lie: in the buffer of the trace, or in a batch with
//! others.

use super::attribute::Attribute;
use super::event::{Event, Link};
use super::header::Header;
use super::memory::MemoryView;
use super::span::{Detail, Record};

/// The spans of one trace.
#[derive(Clone, Copy, Debug)]
pub struct TraceView<'a> {
    pub header: &'a Header,
    pub records: &'a [Record],
    pub attributes: &'a [Attribute],
    pub(super) details: &'a [Detail],
    pub(super) events: &'a [Event],
    pub(super) event_attributes: &'a [Attribute],
    pub(super) links: &'a [Link],
    pub memory: MemoryView<'a>,
}

/// One span of a [`TraceView`].
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
            let detail = split(&mut rest.details, record.has_detail().into()).first();
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

/// Splits the first `length` items off a list.
pub(crate) fn split<'a, T>(list: &mut &'a [T], length: usize) -> &'a [T] {
    let (own, rest) = list.split_at(length.min(list.len()));
    *list = rest;
    own
}
