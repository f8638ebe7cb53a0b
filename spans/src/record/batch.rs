//! Traces on their way to the exporter's thread: one buffer with the lists of all of them, and a
//! header for each.
//!
//! A batch is reused after its export. Small traces thus share few cache lines, which are written
//! sequentially, and the buffer in which a trace was recorded stays in the cache of the thread that
//! writes to it next.

use super::buffer::{Buffer, Ends};
use super::header::Header;
use super::memory::MemoryView;
use super::span::Record;
use super::view::{TraceView, split};
use crate::stats::Counted;

/// Ended traces, or parts of traces.
#[derive(Debug, Default)]
pub struct Batch {
    heads: Vec<Head>,
    /// The lists of all traces. Positions in a trace's memory are relative to the start of the
    /// trace.
    all: Buffer,
    /// The bytes that the queue has charged for the batch.
    pub bytes: usize,
    /// The batch's number in the queue's order.
    pub number: u64,
}

/// The header of a trace, and the length of the trace's part of each list.
#[derive(Debug)]
struct Head {
    header: Header,
    lengths: Ends,
}

/// The number of calls that a trace represents, by the threshold in its tracestate; 1 without a
/// threshold. 0 if the trace was kept late without one, because estimates leave it out.
fn weight(header: &Header) -> f64 {
    if header.kept_by.is_late() && header.state.threshold().is_none() {
        return 0.0;
    }
    header.state.calls()
}

impl TraceView<'_> {
    /// The spans, the local roots among them, and the calls that these represent.
    pub fn counted(&self) -> Counted {
        let counted = Record::count(self.records);
        let calls = if counted.roots == 0 { 0.0 } else { counted.roots as f64 * weight(self.header) };
        Counted { calls, ..counted }
    }
}

impl Batch {
    /// An empty batch with memory for `spans` spans without attributes.
    pub fn with_capacity(spans: usize) -> Self {
        let mut batch = Batch::default();
        batch.all.records.reserve(spans);
        batch
    }

    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    #[inline]
    pub fn spans(&self) -> usize {
        self.all.records.len()
    }

    /// The number of traces, or parts of traces.
    pub fn traces(&self) -> usize {
        self.heads.len()
    }

    /// As [`TraceView::counted`], for all traces.
    pub fn counted(&self) -> Counted {
        self.each().map(|trace| trace.counted()).sum()
    }

    /// Moves the spans of a trace here. The buffer is left empty and keeps its memory.
    pub fn add(&mut self, header: Header, trace: &mut Buffer) {
        self.heads.push(Head { header, lengths: trace.ends() });
        /// Touches the target list only if there is something to move.
        fn append<T>(from: &mut Vec<T>, to: &mut Vec<T>) {
            if !from.is_empty() {
                to.append(from);
            }
        }
        append(&mut trace.records, &mut self.all.records);
        append(&mut trace.attributes, &mut self.all.attributes);
        append(&mut trace.details, &mut self.all.details);
        append(&mut trace.events, &mut self.all.events);
        append(&mut trace.event_attributes, &mut self.all.event_attributes);
        append(&mut trace.links, &mut self.all.links);
        self.all.memory.text.push_str(&trace.memory.text);
        trace.memory.text.clear();
        append(&mut trace.memory.lists, &mut self.all.memory.lists);
        append(&mut trace.memory.others, &mut self.all.memory.others);
        self.all.owned += std::mem::take(&mut trace.owned);
    }

    /// A batch of one trace, which takes over the buffer and leaves an empty one.
    pub fn of(header: Header, trace: &mut Buffer) -> Self {
        let heads = vec![Head { header, lengths: trace.ends() }];
        Batch { heads, all: std::mem::take(trace), ..Batch::default() }
    }

    /// Iterates over the traces.
    pub fn each(&self) -> impl Iterator<Item = TraceView<'_>> {
        let mut rest: Option<TraceView<'_>> = None;
        self.heads.iter().map(move |Head { header, lengths }| {
            let rest = rest.get_or_insert_with(|| self.all.view(header));
            let (text, rest_of_text) =
                rest.memory.text.split_at_checked(lengths.memory.text as usize).unwrap_or_default();
            rest.memory.text = rest_of_text;
            TraceView {
                header,
                records: split(&mut rest.records, lengths.records),
                attributes: split(&mut rest.attributes, lengths.attributes),
                details: split(&mut rest.details, lengths.details),
                events: split(&mut rest.events, lengths.events),
                event_attributes: split(&mut rest.event_attributes, lengths.event_attributes),
                links: split(&mut rest.links, lengths.links),
                memory: MemoryView {
                    text,
                    lists: split(&mut rest.memory.lists, lengths.memory.lists as usize),
                    others: split(&mut rest.memory.others, lengths.memory.others as usize),
                },
            }
        })
    }

    pub fn clear(&mut self) {
        self.heads.clear();
        self.all.clear();
    }

    /// Bytes in use.
    pub fn bytes_used(&self) -> usize {
        self.heads.len() * size_of::<Head>() + self.all.bytes_used()
    }

    /// Bytes of memory held, used or not.
    pub fn bytes_held(&self) -> usize {
        self.heads.capacity() * size_of::<Head>() + self.all.bytes_held()
    }
}
