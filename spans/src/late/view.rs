//! A recorded trace, as the user's policies see it.

use std::borrow::Cow;
use std::time::Duration;

use astracer_samplers::tail::Severity;
use opentelemetry::TraceId;

use crate::clock::Clock;
use crate::record::{Attribute, Buffer, Detail, Header, Record, Status};

/// A recorded trace that the head sampler dropped, as a policy function sees it.
#[derive(Clone, Copy, Debug)]
pub struct TailTrace<'a> {
    pub(super) header: &'a Header,
    pub(super) buffer: &'a Buffer,
    pub(super) clock: &'a Clock,
    pub(super) key: &'a str,
    pub(super) severity: Severity,
    pub(super) nanos: u64,
}

impl<'a> TailTrace<'a> {
    /// The trace's id.
    pub fn trace_id(&self) -> TraceId {
        self.header.trace_id
    }

    /// The key of its local root; empty if the sampler has no record for the key.
    pub fn key(&self) -> &'a str {
        self.key
    }

    /// The local root's duration.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// Whether an error was seen in the trace.
    pub fn has_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The spans that have ended, in the order in which they ended.
    pub fn spans(&self) -> impl Iterator<Item = TailSpan<'a>> + use<'a> {
        let (mut details, mut attributes) = (self.buffer.details.iter(), &*self.buffer.attributes);
        let (buffer, clock) = (self.buffer, self.clock);
        buffer.records.iter().map(move |record| {
            let (own, rest) = attributes.split_at((record.attributes.held as usize).min(attributes.len()));
            attributes = rest;
            let detail = if record.has_detail() { details.next() } else { None };
            TailSpan { record, detail, attributes: own, buffer, clock }
        })
    }
}

/// A span of a [`TailTrace`].
#[derive(Clone, Copy, Debug)]
pub struct TailSpan<'a> {
    record: &'a Record,
    detail: Option<&'a Detail>,
    attributes: &'a [Attribute],
    buffer: &'a Buffer,
    clock: &'a Clock,
}

impl<'a> TailSpan<'a> {
    /// The span's name.
    pub fn name(&self) -> &'a str {
        let own = self.detail.and_then(|detail| detail.name);
        own.map_or(self.record.metadata.name(), |name| self.buffer.memory.text(name))
    }

    /// Whether the span is the local root.
    pub fn is_local_root(&self) -> bool {
        self.record.is_local_root()
    }

    /// Whether the span's status is an error.
    pub fn has_error(&self) -> bool {
        matches!(self.detail.map(|detail| detail.status), Some(Status::Error(_)))
    }

    /// The span's duration.
    pub fn duration(&self) -> Duration {
        let by_hand = self.detail.and_then(|detail| detail.ended_by_hand);
        Duration::from_nanos(self.clock.duration(self.record.start, self.record.end, by_hand))
    }

    /// The value of the span's attribute `name` as text; `None` if it has none of this name, or the
    /// value is a list.
    pub fn attribute(&self, name: &str) -> Option<Cow<'a, str>> {
        let memory = &self.buffer.memory;
        self.attributes.iter().rev().find(|attribute| attribute.is_named(name, memory))?.text(memory)
    }
}
