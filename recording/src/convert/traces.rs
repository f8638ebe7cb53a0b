//! Holds traces as the text of their spans until all spans have been read.
//!
//! Text takes about as much memory as the spans would, and saves copying them. It is appended to a
//! few large blocks, and each trace has a list of its pieces.

use std::collections::HashMap;
use std::io;

use rapidhash::fast::RandomState;

use astracer_formats::TraceWriter;
use astracer_formats::jaeger_json::{Processes, Writer, write_span_line};
use astracer_model::ids::TraceId;
use astracer_model::span::Span;

/// The approximate size of a block.
const BLOCK_BYTES: usize = 1 << 20;

/// Traces in order of first span, each with its spans in input order.
#[derive(Debug, Default)]
pub(super) struct Traces {
    traces: Vec<Trace>,
    by_id: HashMap<TraceId, usize, RandomState>,
    /// The trace of the last span, and its index.
    last: Option<(TraceId, usize)>,
    blocks: Vec<Vec<u8>>,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
struct Trace {
    id: TraceId,
    spans: usize,
    processes: Processes,
    first_piece: usize,
    last_piece: usize,
}

/// The text of consecutive spans of one trace.
#[derive(Clone, Copy, Debug)]
struct Piece {
    block: usize,
    start: usize,
    end: usize,
    next: Option<usize>,
}

impl Traces {
    pub(super) fn add(&mut self, span: &Span<'_>) {
        if self.blocks.last().is_none_or(|block| block.len() >= BLOCK_BYTES) {
            // Headroom, so that the last span of a block rarely makes it reallocate.
            self.blocks.push(Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 64));
        }
        let index = match self.last {
            Some((id, index)) if id == span.trace_id => index,
            _ => self.place(span.trace_id),
        };
        self.last = Some((span.trace_id, index));

        let (trace, block) = (&mut self.traces[index], self.blocks.len() - 1);
        let text = &mut self.blocks[block];
        let start = text.len();
        write_span_line(text, trace.spans, span, trace.id, &mut trace.processes);
        trace.spans += 1;

        let (end, next) = (text.len(), self.pieces.len());
        let last = &mut self.pieces[trace.last_piece];
        if (last.block, last.end) == (block, start) {
            last.end = end;
        } else {
            last.next = Some(next);
            trace.last_piece = next;
            self.pieces.push(Piece { block, start, end, next: None });
        }
    }

    /// The index of the trace with this id; a new trace gets an empty piece.
    fn place(&mut self, id: TraceId) -> usize {
        let next = self.traces.len();
        let index = *self.by_id.entry(id).or_insert(next);
        if index == next {
            let piece = self.pieces.len();
            let block = self.blocks.len() - 1;
            let start = self.blocks[block].len();
            self.pieces.push(Piece { block, start, end: start, next: None });
            let processes = Processes::default();
            self.traces.push(Trace { id, spans: 0, processes, first_piece: piece, last_piece: piece });
        }
        index
    }

    /// Writes all traces and finishes the output.
    pub(super) fn finish(self, writer: &mut Writer<'_>) -> io::Result<()> {
        for trace in &self.traces {
            let follow = |piece: &Piece| piece.next.map(|next| self.pieces[next]);
            let pieces = std::iter::successors(Some(self.pieces[trace.first_piece]), follow);
            let texts = pieces.map(|piece| &self.blocks[piece.block][piece.start..piece.end]);
            writer.written(trace.id, texts, &trace.processes)?;
        }
        writer.finish()
    }
}
