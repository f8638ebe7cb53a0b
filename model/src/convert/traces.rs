//! Spans that wait until their traces are whole.

use std::collections::HashMap;

use rapidhash::fast::RandomState;

use crate::ids::TraceId;
use crate::span::Span;

/// Traces in the order in which their first spans came, each with its spans in the order of their coming.
#[derive(Debug, Default)]
pub(super) struct Traces {
    traces: Vec<Vec<Span<'static>>>,
    by_id: HashMap<TraceId, usize, RandomState>,
}

impl Traces {
    pub(super) fn push(&mut self, span: Span<'static>) {
        let next = self.traces.len();
        let index = *self.by_id.entry(span.trace_id).or_insert(next);
        if index == next {
            self.traces.push(Vec::new());
        }
        self.traces[index].push(span);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[Span<'static>]> {
        self.traces.iter().map(Vec::as_slice)
    }
}
