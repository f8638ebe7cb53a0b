//! Read access to the traces of a recording.

use super::contents::ContentView;
use super::points::EventView;
use super::{Marks, NO_TIME, NONE, Origin, Recording, SpanRow, TraceRow};
use crate::intern::Symbol;
use astracer_model::Format;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::span::{Span, SpanKind, Status};
use astracer_model::time::UnixNanos;

/// One trace of a [`Recording`].
#[derive(Clone, Copy, Debug)]
pub struct TraceView<'r> {
    pub(super) recording: &'r Recording,
    row: &'r TraceRow,
    /// The position in [`Recording::traces`].
    pub(super) position: usize,
}

impl<'r> TraceView<'r> {
    pub(super) fn new(recording: &'r Recording, position: usize) -> Self {
        Self { recording, row: &recording.traces[position], position }
    }

    /// The trace's id. A trace that was written without an id has the id of the span above all its
    /// spans.
    pub fn id(self) -> TraceId {
        self.row.id
    }

    /// The root: the earliest span without parents, or, if there is none, the earliest span whose
    /// parents are not in the recording. Of several that start together, it is the longest, and of
    /// equally long ones that with the smallest id.
    pub fn root(self) -> SpanView<'r> {
        SpanView { recording: self.recording, index: self.row.root }
    }

    /// The number of spans; never zero.
    pub fn span_count(self) -> usize {
        self.row.len as usize
    }

    /// The trace's spans, ordered by start, then from the longest to the shortest, then by id.
    pub fn spans(self) -> impl ExactSizeIterator<Item = SpanView<'r>> {
        let range = self.row.first as usize..(self.row.first + self.row.len) as usize;
        self.recording.order[range].iter().map(move |&index| SpanView { recording: self.recording, index })
    }
}

/// One span of a [`Recording`].
#[derive(Clone, Copy, Debug)]
pub struct SpanView<'r> {
    recording: &'r Recording,
    index: u32,
}

impl<'r> SpanView<'r> {
    pub(super) fn new(recording: &'r Recording, index: u32) -> Self {
        Self { recording, index }
    }

    fn row(self) -> &'r SpanRow {
        &self.recording.spans[self.index as usize]
    }

    /// The index of this span, unique in its recording.
    pub fn index(self) -> u32 {
        self.index
    }

    /// The format of the file that the span was read from, if the reader reported it; X-Trace's for
    /// an event of X-Trace, whatever the file ([`Keep::x_trace`](super::Keep::x_trace)).
    pub fn format(self) -> Option<Format> {
        if self.row().marks.has(Marks::EVENT) {
            return Some(Format::XTraceJson);
        }
        self.recording.formats[self.row().file as usize]
    }

    /// The file that the span was read from.
    pub fn file(self) -> &'r str {
        &self.recording.files[self.row().file as usize]
    }

    /// The line that the span was read from; 0 if unknown.
    pub fn line(self) -> u64 {
        u64::from(self.row().line)
    }

    /// True if the span's parent did not wait for it (OpenTracing's FOLLOWS_FROM).
    pub fn follows(self) -> bool {
        self.row().marks.has(Marks::FOLLOWS)
    }

    /// The span's tracestate; `None` unless the intake kept it.
    pub fn trace_state(self) -> Option<&'r str> {
        let symbol = *self.recording.span_trace_states.get(self.index as usize)?;
        Some(self.recording.trace_states.name(symbol))
    }

    /// The span's id; not unique in a trace if recorders shared or duplicated it.
    pub fn id(self) -> SpanId {
        self.row().span_id
    }

    /// The operation's name, as renamed by the intake.
    pub fn name(self) -> &'r str {
        self.recording.names.name(self.row().name)
    }

    /// The symbol of [`Self::name`] in [`Recording::names`].
    pub fn name_symbol(self) -> Symbol {
        self.row().name
    }

    /// The service that emitted the span; empty if unknown.
    pub fn service(self) -> &'r str {
        self.recording.services.name(self.row().service)
    }

    /// The symbol of [`Self::service`] in [`Recording::services`].
    pub fn service_symbol(self) -> Symbol {
        self.row().service
    }

    /// The symbol of the span's attribute values, for [`Recording::label_values`]; `None` if the
    /// intake kept no attributes.
    pub fn label_symbol(self) -> Option<Symbol> {
        self.recording.span_labels.get(self.index as usize).copied()
    }

    /// The span's host, clock and process; all unknown unless [`super::Keep::origins`] is set.
    pub fn origin(self) -> Origin {
        let number = self.recording.span_origins.get(self.index as usize);
        number.map_or(Origin::UNKNOWN, |&number| self.recording.origins.get(number))
    }

    /// The symbol of the span's fields, for [`Recording::field_symbols`]; `None` if none were kept.
    pub fn fields(self) -> Option<Symbol> {
        self.recording.points.fields_of(self.index)
    }

    /// The span's kept events, in the order written.
    pub fn events(self) -> impl Iterator<Item = EventView<'r>> {
        self.recording.points.events_of(self.index)
    }

    /// A kept event by its number in [`Self::events`].
    pub fn event(self, number: usize) -> Option<EventView<'r>> {
        self.recording.points.event_of(self.index, number)
    }

    /// The spans of the same trace that the span is linked to, if [`super::Keep::points`] is set.
    pub fn links(self) -> &'r [SpanId] {
        self.recording.points.links_of(self.index)
    }

    /// The side of a call that the span describes.
    pub fn kind(self) -> SpanKind {
        self.row().kind
    }

    /// The status.
    pub fn status(self) -> Status {
        self.row().status
    }

    /// The start time.
    pub fn start(self) -> UnixNanos {
        UnixNanos(self.row().start)
    }

    /// The end time; `None` if the span has no end.
    pub fn end(self) -> Option<UnixNanos> {
        Some(self.row().end).filter(|&end| end != NO_TIME).map(UnixNanos)
    }

    /// The duration in nanoseconds; 0 if the span has no end or ends before its start.
    pub fn duration_ns(self) -> u64 {
        self.end().map_or(0, |end| end.since(self.start()))
    }

    /// The parent in the call tree: the first of the span's parents that is in the recording.
    pub fn parent(self) -> Option<SpanView<'r>> {
        let parent = self.row().parent;
        (parent != NONE).then_some(SpanView { recording: self.recording, index: parent })
    }

    /// All parents as written, in order.
    pub fn parent_ids(self) -> impl Iterator<Item = SpanId> {
        let first = Some(self.row().parent_id).filter(|&id| id != SpanId::ZERO);
        let more = self.recording.more_parents.get(&self.index).map_or(&[][..], |more| more);
        first.into_iter().chain(more.iter().copied())
    }

    /// The size in bytes of the span's record, in the format it was read from.
    pub fn record_bytes(self) -> u64 {
        u64::from(self.row().record_bytes)
    }

    /// The size in bytes of the span as an OTLP protobuf message.
    pub fn otlp_bytes(self) -> u64 {
        u64::from(self.row().otlp_bytes)
    }

    /// The span's attributes and events in compact form; `None` unless the intake kept them.
    pub fn content(self) -> Option<ContentView<'r>> {
        self.recording.content(self.index)
    }

    /// The complete span, with attributes, events and links; `None` unless the intake kept them.
    pub fn full(self) -> Option<&'r Span<'static>> {
        self.recording.full.get(self.index as usize)
    }
}
