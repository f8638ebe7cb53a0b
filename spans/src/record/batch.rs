//! Traces on their way to the exporter's thread: one buffer with the lists of all of them, and a
//! header for each.
//!
//! A batch is reused after its export. Small traces thus share few cache lines, which are written
//! sequentially, and the buffer in which a trace was recorded stays in the cache of the thread that
//! writes to it next.

use super::attribute::Attribute;
use super::body::Body;
use super::buffer::{Buffer, Header};
use super::event::{Event, Link};
use super::memory::MemoryView;
use super::span::{Detail, Record};
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
    lengths: BufferLengths,
    /// The number of local roots among the records: 1, or 0 for a part of a trace.
    roots: u32,
}

/// The number of calls that a trace represents, by the threshold in its tracestate; 1 without a
/// threshold. 0 if the trace was kept late without one, because estimates leave it out.
fn weight(header: &Header) -> f64 {
    if header.kept_by.is_late() && header.state.threshold().is_none() {
        return 0.0;
    }
    header.state.calls()
}

/// The spans of a trace, the local roots among them, and the calls that these represent.
fn counted(header: &Header, spans: usize, roots: u32) -> Counted {
    let calls = if roots == 0 { 0.0 } else { f64::from(roots) * weight(header) };
    Counted { spans: spans as u64, roots: u64::from(roots), calls }
}

#[derive(Clone, Copy, Debug, Default)]
struct BufferLengths {
    records: usize,
    attributes: usize,
    text: usize,
    lists: usize,
    others: usize,
    details: usize,
    events: usize,
    event_attributes: usize,
    links: usize,
}

impl BufferLengths {
    fn of(buffer: &Buffer) -> Self {
        BufferLengths {
            records: buffer.records.len(),
            attributes: buffer.attributes.len(),
            text: buffer.memory.text.len(),
            lists: buffer.memory.lists.len(),
            others: buffer.memory.others.len(),
            details: buffer.details.len(),
            events: buffer.events.len(),
            event_attributes: buffer.event_attributes.len(),
            links: buffer.links.len(),
        }
    }
}

/// One trace in a batch.
#[derive(Clone, Copy, Debug)]
pub struct TraceView<'a> {
    pub header: &'a Header,
    /// The number of local roots among the records.
    roots: u32,
    pub records: &'a [Record],
    pub attributes: &'a [Attribute],
    pub details: &'a [Detail],
    pub events: &'a [Event],
    pub event_attributes: &'a [Attribute],
    pub links: &'a [Link],
    pub memory: MemoryView<'a>,
}

impl TraceView<'_> {
    /// As [`Batch::counted`], for this trace.
    pub fn counted(&self) -> Counted {
        counted(self.header, self.records.len(), self.roots)
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

    /// The number of spans, of local roots, and of the calls that the roots represent.
    pub fn counted(&self) -> Counted {
        self.heads.iter().map(|head| counted(&head.header, head.lengths.records, head.roots)).sum()
    }

    /// Moves the spans of a trace here. The buffer is left empty and keeps its memory.
    pub fn add(&mut self, header: Header, trace: &mut Buffer) {
        let roots = count_roots(&trace.records);
        self.heads.push(Head { header, lengths: BufferLengths::of(trace), roots });
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
        let all = std::mem::take(trace);
        let mut batch = Batch::default();
        let roots = count_roots(&all.records);
        batch.heads.push(Head { header, lengths: BufferLengths::of(&all), roots });
        batch.all = all;
        batch
    }

    /// Adds one span that leaves without the rest of its trace.
    pub fn add_span(&mut self, header: Header, record: Record, body: Option<&mut Body>) {
        let mut single = Buffer::default();
        single.append(record, body);
        self.add(header, &mut single);
    }

    /// Iterates over the traces.
    pub fn each(&self) -> impl Iterator<Item = TraceView<'_>> {
        let Buffer { records, attributes, memory, details, events, event_attributes, links, owned: _ } =
            &self.all;
        let (mut records, mut attributes) = (&**records, &**attributes);
        let (mut details, mut events, mut event_attributes) = (&**details, &**events, &**event_attributes);
        let (mut links, mut others) = (&**links, &*memory.others);
        let (mut text, mut lists) = (&*memory.text, &*memory.lists);
        self.heads.iter().map(move |Head { header, lengths, roots }| {
            let own_text = text.get(..lengths.text).unwrap_or_default();
            text = text.get(lengths.text..).unwrap_or_default();
            TraceView {
                header,
                roots: *roots,
                records: split(&mut records, lengths.records),
                attributes: split(&mut attributes, lengths.attributes),
                details: split(&mut details, lengths.details),
                events: split(&mut events, lengths.events),
                event_attributes: split(&mut event_attributes, lengths.event_attributes),
                links: split(&mut links, lengths.links),
                memory: MemoryView {
                    text: own_text,
                    lists: split(&mut lists, lengths.lists),
                    others: split(&mut others, lengths.others),
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

fn count_roots(records: &[Record]) -> u32 {
    records.iter().filter(|record| record.is_local_root()).count() as u32
}

/// Splits the first `length` items off a list.
fn split<'a, T>(list: &mut &'a [T], length: usize) -> &'a [T] {
    let (own, rest) = list.split_at(length.min(list.len()));
    *list = rest;
    own
}
