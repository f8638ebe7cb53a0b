//! A recorded trace, as the user's policies see it.

use std::borrow::Cow;
use std::time::Duration;

use astracer_samplers::tail::Severity;
use opentelemetry::TraceId;

use crate::clock::Clock;
use crate::record::{MemoryView, SpanView, Status, TraceView};

/// A recorded trace that the head sampler dropped, as a policy function sees it.
#[derive(Clone, Copy, Debug)]
pub struct TailTrace<'a> {
    pub(super) spans: TraceView<'a>,
    pub(super) clock: &'a Clock,
    pub(super) key: &'a str,
    pub(super) severity: Severity,
    pub(super) nanos: u64,
}

impl<'a> TailTrace<'a> {
    /// The trace's id.
    pub fn trace_id(&self) -> TraceId {
        self.spans.header.trace_id
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
        let (memory, clock) = (self.spans.memory, self.clock);
        self.spans.spans().map(move |span| TailSpan { span, memory, clock })
    }
}

/// A span of a [`TailTrace`].
#[derive(Clone, Copy, Debug)]
pub struct TailSpan<'a> {
    pub(super) span: SpanView<'a>,
    pub(super) memory: MemoryView<'a>,
    pub(super) clock: &'a Clock,
}

impl<'a> TailSpan<'a> {
    /// The span's name.
    pub fn name(&self) -> &'a str {
        self.span.name(self.memory)
    }

    /// Whether the span is the local root.
    pub fn is_local_root(&self) -> bool {
        self.span.record.is_local_root
    }

    /// Whether the span's status is an error.
    pub fn has_error(&self) -> bool {
        matches!(self.span.detail.status, Status::Error(_))
    }

    /// The span's duration.
    pub fn duration(&self) -> Duration {
        let SpanView { record, detail, .. } = self.span;
        Duration::from_nanos(self.clock.duration(record.start, record.end, detail.ended_by_hand))
    }

    /// The value of the span's attribute `name` as text; `None` if it has none of this name, or the
    /// value is a list.
    pub fn attribute(&self, name: &str) -> Option<Cow<'a, str>> {
        let memory = self.memory;
        self.span.attributes.iter().rev().find(|attribute| attribute.is_named(name, memory))?.text(memory)
    }
}
