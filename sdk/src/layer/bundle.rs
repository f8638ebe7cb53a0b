//! Traces on their way to the exporter's thread: the lists of each appended to those of the ones before.
//!
//! A bundle that has been exported is used again, by a thread whose processor must first take its memory from that of the
//! exporter's. So small traces share few lines of memory, and those are written one after the other.

use opentelemetry::TraceId;
use opentelemetry::trace::TraceState;

use super::buffer::Buffer;

/// Traces that have ended, or parts of such.
#[derive(Debug, Default)]
pub(crate) struct Bundle {
    heads: Vec<Head>,
    /// Of all traces, one after the other. Places in lists count from the trace's own first.
    all: Buffer,
    /// What of the queue's bytes it takes.
    pub(crate) bytes: usize,
}

/// A bundle on its way: in a box, so that it is cheap to pass on.
pub(crate) type Parcel = Box<Bundle>;

/// What is known of a trace, and how much of each list is its own.
#[derive(Debug)]
struct Head {
    trace_id: TraceId,
    trace_state: TraceState,
    records: usize,
    attributes: usize,
    text: usize,
    texts: usize,
    others: usize,
    details: usize,
    threads: usize,
    events: usize,
    event_attributes: usize,
    links: usize,
}

impl Head {
    /// Takes the trace state out.
    fn of(trace: &mut Buffer) -> Self {
        Head {
            trace_id: trace.trace_id,
            trace_state: std::mem::replace(&mut trace.trace_state, TraceState::NONE),
            records: trace.records.len(),
            attributes: trace.attributes.len(),
            text: trace.memory.text.len(),
            texts: trace.memory.lists.len(),
            others: trace.memory.others.len(),
            details: trace.details.len(),
            threads: trace.threads.len(),
            events: trace.events.len(),
            event_attributes: trace.event_attributes.len(),
            links: trace.links.len(),
        }
    }
}

impl Bundle {
    /// With room for so many spans without attributes.
    pub(crate) fn with_capacity(spans: usize) -> Self {
        let mut bundle = Bundle::default();
        bundle.all.records.reserve(spans);
        bundle
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    pub(crate) fn spans(&self) -> usize {
        self.all.records.len()
    }

    /// Takes a trace over by copying; the memory of its buffer, which is empty then, stays there.
    pub(crate) fn add(&mut self, trace: &mut Buffer) {
        self.heads.push(Head::of(trace));
        trace.move_to(&mut self.all);
    }

    /// A trace with its buffer; another one, which is empty, takes that one's place.
    pub(crate) fn of(trace: &mut Buffer) -> Self {
        let mut whole = Buffer::default();
        std::mem::swap(&mut whole, trace);
        let mut bundle = Bundle::default();
        bundle.heads.push(Head::of(&mut whole));
        bundle.all = whole;
        bundle
    }

    /// Gives the traces out, one after the other, and is empty then. `memory` is used for them.
    pub(crate) fn each(&mut self, memory: &mut Buffer, mut f: impl FnMut(&mut Buffer)) {
        if let [head] = &mut *self.heads {
            // There is nothing to part.
            self.all.trace_id = head.trace_id;
            self.all.trace_state = std::mem::replace(&mut head.trace_state, TraceState::NONE);
            f(&mut self.all);
            return self.clear();
        }
        let Buffer {
            records,
            attributes,
            memory: all,
            details,
            threads,
            events,
            event_attributes,
            links,
            ..
        } = &mut self.all;
        let (mut records, mut attributes) = (records.drain(..), attributes.drain(..));
        let (mut details, mut threads) = (details.drain(..), threads.drain(..));
        let (mut events, mut event_attributes) = (events.drain(..), event_attributes.drain(..));
        let (mut links, mut others) = (links.drain(..), all.others.drain(..));
        let (mut text, mut texts) = (0, 0);
        for head in self.heads.drain(..) {
            memory.clear();
            memory.trace_id = head.trace_id;
            memory.trace_state = head.trace_state;
            memory.records.extend(records.by_ref().take(head.records));
            memory.attributes.extend(attributes.by_ref().take(head.attributes));
            memory.details.extend(details.by_ref().take(head.details));
            memory.threads.extend(threads.by_ref().take(head.threads));
            memory.events.extend(events.by_ref().take(head.events));
            memory.event_attributes.extend(event_attributes.by_ref().take(head.event_attributes));
            memory.links.extend(links.by_ref().take(head.links));
            memory.memory.others.extend(others.by_ref().take(head.others));
            memory.memory.text.push_str(all.text.get(text..text + head.text).unwrap_or_default());
            memory
                .memory
                .lists
                .extend_from_slice(all.lists.get(texts..texts + head.texts).unwrap_or_default());
            (text, texts) = (text + head.text, texts + head.texts);
            f(memory);
        }
        all.text.clear();
        all.lists.clear();
        memory.clear();
    }

    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.all.clear();
    }

    /// Bytes of all that it holds.
    pub(crate) fn bytes_used(&self) -> usize {
        self.heads.len() * size_of::<Head>() + self.all.bytes_used()
    }

    /// Bytes of memory held, used or not.
    pub(crate) fn bytes_held(&self) -> usize {
        self.heads.capacity() * size_of::<Head>() + self.all.bytes_held()
    }
}
