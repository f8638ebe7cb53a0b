//! A recording in memory, in compact form: traces whose spans are linked to their parents.
//!
//! [`Intake`] receives spans in any order and from any number of files; [`Intake::finish`] joins
//! them into traces. A span takes [`Recording::BYTES_PER_SPAN`] bytes, plus its share of names and
//! traces. Attributes, events and links are kept only on request ([`Keep::full`]).

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use crate::intern::{Interner, Symbol};
use astracer_model::Format;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::problem::{Place, Problems};
use astracer_model::span::{Span, SpanKind, Status};
use astracer_model::value::Value;

mod content;
mod contents;
mod documents;
mod intake;
mod join;
mod labels;
mod log_groups;
mod logs;
mod mentions;
mod nodes;
mod numbers;
mod one_id;
mod origins;
mod points;
#[cfg(test)]
mod tests;
mod trace_ids;
mod values;
mod view;
mod x_trace;

use contents::Contents;
use labels::Labels;
use logs::Logs;
use nodes::Nodes;
use origins::Origins;
use points::Points;

pub use contents::{ContentView, Kept, KeptEvent};
pub use intake::{Intake, Keep, Skipped};
pub use log_groups::GroupLogs;
pub use logs::{LogView, Stated};
pub use mentions::each_id;
pub use origins::Origin;
pub use points::{CLASS, EventView, KeepPoints, SCOPE, Wants};
pub use values::write_value;
pub use view::{SpanView, TraceView};

/// Marks "no span" in tables of span indices.
const NONE: u32 = u32::MAX;
/// Marks "no time" in the columns of a [`SpanRow`].
const NO_TIME: u64 = u64::MAX;

/// The fixed part of one span. Text is in the interners.
#[derive(Clone, Copy, Debug)]
struct SpanRow {
    span_id: SpanId,
    /// The first parent as written; zero if none.
    parent_id: SpanId,
    start: u64,
    end: u64,
    /// A digest of the span's content, which detects spans that were written twice.
    content: u64,
    byte: u64,
    trace: u32,
    name: Symbol,
    service: Symbol,
    record_bytes: u32,
    otlp_bytes: u32,
    line: u32,
    /// The index of the resolved parent.
    parent: u32,
    file: u32,
    /// The number of the node that emitted the span.
    node: u32,
    kind: SpanKind,
    status: Status,
    marks: Marks,
}

/// The properties of a span that are true or false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Marks(u8);

impl Marks {
    /// The server's half of an id that client and server share.
    const SHARED: Self = Self(1);
    /// The parent did not wait for the span.
    const FOLLOWS: Self = Self(2);
    /// The span has no start, and its `end` is a duration.
    const LONE: Self = Self(4);
    /// An event of X-Trace that a span had.
    const EVENT: Self = Self(8);
    /// The tracestate contains a sampling threshold.
    const THRESHOLD: Self = Self(16);

    fn set_if(self, mark: Self, is_set: bool) -> Self {
        Self(if is_set { self.0 | mark.0 } else { self.0 & !mark.0 })
    }

    fn has(self, mark: Self) -> bool {
        self.0 & mark.0 != 0
    }
}

impl SpanRow {
    /// The last known time; the start if the span has no end.
    fn last(&self) -> u64 {
        if self.end == NO_TIME { self.start } else { self.end }
    }

    /// Orders the spans of one trace by start, then from the longest to the shortest, then by id.
    /// The content settles the rest, so that the order never depends on the file's.
    fn rank(&self) -> impl Ord + use<> {
        (self.start, Reverse(self.last()), self.span_id, self.content)
    }
}

/// One trace: a range of [`Recording::order`].
#[derive(Clone, Copy, Debug)]
struct TraceRow {
    id: TraceId,
    first: u32,
    len: u32,
    /// The index of the trace's root span.
    root: u32,
}

/// Traces, and the problems of their input.
#[derive(Debug, Default)]
pub struct Recording {
    names: Interner,
    services: Interner,
    nodes: Nodes,
    labels: Labels,
    files: Vec<Arc<str>>,
    /// The format of each of `files`, if the reader reported it.
    formats: Vec<Option<Format>>,
    spans: Vec<SpanRow>,
    /// Parents after the first, for spans with several.
    more_parents: HashMap<u32, Box<[SpanId]>>,
    /// The set in `labels` of each span; empty if [`Keep::labels`] names no attribute.
    span_labels: Vec<Symbol>,
    /// Texts that `span_trace_states` refers to.
    trace_states: Interner,
    /// True if any span's tracestate contains a sampling threshold above 0.
    is_weighted: bool,
    /// The tracestate of each span; empty unless [`Keep::trace_states`] is set.
    span_trace_states: Vec<Symbol>,
    /// Complete spans, parallel to `spans`; empty unless [`Keep::full`] is set.
    full: Vec<Span<'static>>,
    /// Empty unless [`Keep::origins`] is set.
    origins: Origins,
    /// Empty unless [`Keep::contents`] is set.
    contents: Contents,
    /// The origin of each span; empty unless [`Keep::origins`] is set.
    span_origins: Vec<u32>,
    /// Empty unless [`Keep::logs`] or [`Keep::records`] is set.
    logs: Logs,
    /// Empty unless [`Keep::points`] is set.
    points: Points,
    /// Span indices, grouped by trace and ordered by start within a trace.
    order: Vec<u32>,
    /// Trace rows, in the order of [`Recording::traces`].
    traces: Vec<TraceRow>,
    problems: Problems,
    skipped: Vec<Skipped>,
    skipped_more: u64,
}

impl Recording {
    /// The size of a span in a recording, excluding names and traces.
    pub const BYTES_PER_SPAN: usize = size_of::<SpanRow>() + size_of::<u32>();

    /// All traces, ordered by the start of their root. Among equal starts the longest root comes
    /// first, and among equal roots the smallest trace id.
    pub fn traces(&self) -> impl ExactSizeIterator<Item = TraceView<'_>> {
        (0..self.traces.len()).map(|position| TraceView::new(self, position))
    }

    /// The trace at this position in [`Self::traces`]; `None` beyond its end.
    pub fn trace(&self, position: usize) -> Option<TraceView<'_>> {
        (position < self.traces.len()).then(|| TraceView::new(self, position))
    }

    /// The span with this [index](SpanView::index).
    ///
    /// # Panics
    ///
    /// If no span has this index.
    pub fn span(&self, index: u32) -> SpanView<'_> {
        assert!((index as usize) < self.spans.len(), "no span has the index {index}");
        SpanView::new(self, index)
    }

    /// The number of spans. A span that was written twice, or in several pieces, counts once.
    pub fn span_count(&self) -> usize {
        self.order.len()
    }

    /// One above the largest [index](SpanView::index) of a span. Records that make one span with
    /// another have an index, too: it is the number of records read.
    pub fn index_end(&self) -> usize {
        self.spans.len()
    }

    /// The number of traces.
    pub fn trace_count(&self) -> usize {
        self.traces.len()
    }

    /// The names of operations, as renamed by the intake.
    pub fn names(&self) -> &Interner {
        &self.names
    }

    /// The names of services.
    pub fn services(&self) -> &Interner {
        &self.services
    }

    /// The attributes whose values were kept, from the span or its resource, in the order of
    /// [`Keep::labels`].
    pub fn label_keys(&self) -> &[String] {
        self.labels.keys().0
    }

    /// The attributes whose values were kept from the span only, in the order of
    /// [`Keep::own_labels`].
    pub fn own_label_keys(&self) -> &[String] {
        self.labels.keys().1
    }

    /// The values in the set with this symbol (see [`SpanView::label_symbol`]): one for each of
    /// [`Self::label_keys`], then one for each of [`Self::own_label_keys`]. `None` if the span
    /// lacks the attribute.
    pub fn label_values(&self, set: Symbol) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.labels.values(set)
    }

    /// The fields that [`Keep::points`] names, in the order of [`Self::field_symbols`].
    pub fn field_keys(&self) -> impl Iterator<Item = &str> {
        self.points.field_keys()
    }

    /// For each of [`Self::field_keys`], whether any span or event has it.
    pub fn fields_found(&self) -> Vec<bool> {
        self.points.found()
    }

    /// The values of all fields, in the order of their symbols.
    pub fn field_values(&self) -> impl ExactSizeIterator<Item = Value<'_>> {
        self.points.values()
    }

    /// The values of a span's or an event's fields, as symbols of [`Self::field_values`]. `None` if
    /// the span or event lacks the field.
    pub fn field_symbols(&self, fields: Symbol) -> &[Option<Symbol>] {
        self.points.symbols(fields)
    }

    /// The names of hosts and clocks; the first is empty and stands for an unknown one.
    pub fn hosts(&self) -> &Interner {
        &self.origins.hosts
    }

    /// The names of processes; the first is empty and stands for an unknown one.
    pub fn processes(&self) -> &Interner {
        &self.origins.processes
    }

    /// The host that the name or the folder of a file states, if [`Intake::beside`] named the file
    /// and nothing in it states one.
    pub fn host_of_file(&self, file: &str) -> Option<&str> {
        self.origins.of_files.get(file).map(String::as_str)
    }

    /// The names of kept events.
    pub fn event_names(&self) -> &Interner {
        self.points.event_names()
    }

    /// The files that contain spans.
    pub fn files(&self) -> &[Arc<str>] {
        &self.files
    }

    /// True if any span's tracestate contains a sampling threshold (`ot=th`) above 0, even if
    /// tracestates were not kept. Some traces then represent several.
    pub fn is_weighted(&self) -> bool {
        self.is_weighted
    }

    /// The number of traces of which a span's tracestate contains a sampling threshold (`ot=th`),
    /// 0 included, even if tracestates were not kept.
    pub fn traces_with_threshold(&self) -> usize {
        let has = |index: &u32| self.spans[*index as usize].marks.has(Marks::THRESHOLD);
        let spans = |trace: &TraceRow| &self.order[trace.first as usize..][..trace.len as usize];
        self.traces.iter().filter(|trace| spans(trace).iter().any(has)).count()
    }

    /// The problems of the input and its traces.
    pub fn problems(&self) -> &Problems {
        &self.problems
    }

    /// The first skipped files, and the number of all of them.
    pub fn skipped(&self) -> (&[Skipped], u64) {
        (&self.skipped, self.skipped.len() as u64 + self.skipped_more)
    }

    fn place(&self, index: u32) -> Place {
        let row = &self.spans[index as usize];
        Place { file: Arc::clone(&self.files[row.file as usize]), line: u64::from(row.line), byte: row.byte }
    }
}
