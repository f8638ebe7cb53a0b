//! Events and links of a span, as they are recorded.

use std::time::SystemTime;

use opentelemetry::KeyValue;
use opentelemetry::trace::SpanContext;
use tracing_core::Metadata;

use super::attribute::bytes_of;
use super::fields::LogOrigin;
use super::memory::Text;
use crate::clock::Ticks;

#[derive(Debug)]
pub struct Event {
    pub name: EventName,
    pub time: EventTime,
    /// The callsite, for an event of `tracing`.
    pub metadata: Option<&'static Metadata<'static>>,
    pub log: LogOrigin,
    /// The number of attributes held, and the number that a limit cut.
    pub count: u32,
    pub cut: u32,
}

impl Event {
    pub(super) fn owned(&self) -> usize {
        match &self.name {
            EventName::Owned(name) => name.len(),
            EventName::Text(_) | EventName::Static(_) => 0,
        }
    }

    pub(super) fn map(mut self, mut f: impl FnMut(Text) -> Text) -> Self {
        if let EventName::Text(text) = &mut self.name {
            *text = f(*text);
        }
        self.log = self.log.map(f);
        self
    }
}

#[derive(Debug)]
pub enum EventName {
    Text(Text),
    Static(&'static str),
    Owned(Box<str>),
}

#[derive(Clone, Copy, Debug)]
pub enum EventTime {
    Ticks(Ticks),
    Date(SystemTime),
}

#[derive(Debug)]
pub struct Link {
    pub to: SpanContext,
    pub attributes: Vec<KeyValue>,
    pub cut: u32,
}

impl Link {
    pub(super) fn owned(&self) -> usize {
        let attributes = self.attributes.iter().map(|own| size_of::<KeyValue>() + bytes_of(own));
        self.to.trace_state().header().len() + attributes.sum::<usize>()
    }
}
