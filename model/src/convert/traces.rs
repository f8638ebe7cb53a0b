//! Traces that wait until they are whole.

use std::collections::HashMap;
use std::io;

use rapidhash::fast::RandomState;

use crate::format::TraceWriter;
use crate::format::jaeger_json::{Trace, Writer};
use crate::ids::TraceId;
use crate::span::Span;

/// Traces in the order in which their first spans came, each with its spans in the order of their coming.
#[derive(Debug, Default)]
pub(super) struct Traces {
    traces: Vec<Trace>,
    by_id: HashMap<TraceId, usize, RandomState>,
    /// The trace of the last span, and where it stands.
    last: Option<(TraceId, usize)>,
}

impl Traces {
    pub(super) fn add(&mut self, span: &Span<'_>) {
        let index = match self.last {
            Some((id, index)) if id == span.trace_id => index,
            _ => self.place(span.trace_id),
        };
        self.last = Some((span.trace_id, index));
        self.traces[index].add(span);
    }

    fn place(&mut self, id: TraceId) -> usize {
        let next = self.traces.len();
        let index = *self.by_id.entry(id).or_insert(next);
        if index == next {
            self.traces.push(Trace::new(id));
        }
        index
    }

    /// Writes them all, and ends the output.
    pub(super) fn finish(self, writer: &mut Writer<'_>) -> io::Result<()> {
        self.traces.into_iter().try_for_each(|trace| writer.written(&trace))?;
        writer.finish()
    }
}
