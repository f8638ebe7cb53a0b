//! The spans of a [`TraceView`], one by one.

use super::attribute::Attribute;
use super::buffer::TraceView;
use super::event::{Event, Link};
use super::memory::{MemoryView, split};
use super::span::{Detail, Record};

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
