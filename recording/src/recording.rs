//! A recording in memory: traces whose spans know their parents, in a compact form.
//!
//! Spans come in through [`Intake`], in any order and from any number of files; [`Intake::finish`] joins them into
//! traces. What a span costs in memory is [`Recording::BYTES_PER_SPAN`], beside its share of names and of traces;
//! attributes, events and links are kept only on request ([`Keep::full`]).

use std::collections::HashMap;
use std::sync::Arc;

use crate::intern::{Interner, Symbol};
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::problem::{Place, Problems};
use astracer_model::span::{Span, SpanKind, Status};
use astracer_model::time::UnixNanos;

mod intake;
mod join;
mod labels;
#[cfg(test)]
mod tests;
mod view;

use labels::Labels;

pub use intake::{Intake, Keep, Skipped};
pub use view::{SpanView, TraceView};

/// "No span" in tables of span indices.
const NONE: u32 = u32::MAX;
/// "No instant" in the columns of a [`SpanRow`].
const NO_TIME: u64 = u64::MAX;

/// One span's fixed part. Text lies in the interners.
#[derive(Clone, Copy, Debug)]
struct SpanRow {
    span_id: SpanId,
    /// The first parent as written; zero if none.
    parent_id: SpanId,
    start: u64,
    end: u64,
    /// Of the record's bytes, to recognise a span that was written twice.
    record_hash: u64,
    byte: u64,
    trace: u32,
    name: Symbol,
    service: Symbol,
    record_bytes: u32,
    otlp_bytes: u32,
    line: u32,
    /// Index of the resolved parent.
    parent: u32,
    file: u32,
    kind: SpanKind,
    status: Status,
    shared: bool,
}

/// One trace: a range of [`Recording::order`].
#[derive(Clone, Copy, Debug)]
struct TraceRow {
    id: TraceId,
    first: u32,
    len: u32,
    /// Index of the span that stands for the trace.
    root: u32,
}

/// Traces, and everything that was wrong with the input that they came from.
#[derive(Debug, Default)]
pub struct Recording {
    names: Interner,
    services: Interner,
    labels: Labels,
    files: Vec<Arc<str>>,
    spans: Vec<SpanRow>,
    /// Parents behind the first, for spans that have them.
    more_parents: HashMap<u32, Box<[SpanId]>>,
    /// For each span its set in `labels`; empty if [`Keep::labels`] names no attribute.
    span_labels: Vec<Symbol>,
    /// Whole spans, parallel to `spans`; empty unless [`Keep::full`].
    full: Vec<Span<'static>>,
    /// Span indices, trace by trace, by start within a trace.
    order: Vec<u32>,
    /// By start of the root.
    traces: Vec<TraceRow>,
    problems: Problems,
    skipped: Vec<Skipped>,
    skipped_more: u64,
}

impl Recording {
    /// Bytes that a span takes in a recording, names and traces aside.
    pub const BYTES_PER_SPAN: usize = size_of::<SpanRow>() + size_of::<u32>();

    /// Traces by the start of their root; at equal starts, in the order of the input.
    pub fn traces(&self) -> impl ExactSizeIterator<Item = TraceView<'_>> {
        self.traces.iter().map(|row| TraceView::new(self, row))
    }

    /// How many spans there are, each counted once.
    pub fn span_count(&self) -> usize {
        self.order.len()
    }

    /// How many traces there are.
    pub fn trace_count(&self) -> usize {
        self.traces.len()
    }

    /// The names of operations (as the intake renamed them).
    pub fn names(&self) -> &Interner {
        &self.names
    }

    /// The names of services.
    pub fn services(&self) -> &Interner {
        &self.services
    }

    /// The attributes whose values were kept, in the order of [`Keep::labels`].
    pub fn label_keys(&self) -> &[String] {
        self.labels.keys()
    }

    /// The values of these attributes in a set that [`SpanView::label_symbol`] refers to; `None` where a span has none.
    pub fn label_values(&self, set: Symbol) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.labels.values(set)
    }

    /// Files that spans came from.
    pub fn files(&self) -> &[Arc<str>] {
        &self.files
    }

    /// What was wrong with the input and its traces.
    pub fn problems(&self) -> &Problems {
        &self.problems
    }

    /// Files that hold no traces: the first of them, and how many there were in all.
    pub fn skipped(&self) -> (&[Skipped], u64) {
        (&self.skipped, self.skipped.len() as u64 + self.skipped_more)
    }

    /// Earliest start and latest end; `None` if there are no spans.
    pub fn time_range(&self) -> Option<(UnixNanos, UnixNanos)> {
        let spans = || self.order.iter().map(|&index| &self.spans[index as usize]);
        let start = spans().map(|row| row.start).min()?;
        let end = spans().map(|row| if row.end == NO_TIME { row.start } else { row.end }).max()?;
        Some((UnixNanos(start), UnixNanos(end)))
    }

    fn place(&self, index: u32) -> Place {
        let row = &self.spans[index as usize];
        Place { file: Arc::clone(&self.files[row.file as usize]), line: u64::from(row.line), byte: row.byte }
    }
}
