//! Traces on their way to the exporter's thread: one buffer with the lists of all of them, and a
//! header for each.
//!
//! A batch is reused after its export. Small traces thus share few cache lines, which are written
//! sequentially, and the buffer in which a trace was recorded stays in the cache of the thread that
//! writes to it next.

use super::buffer::{Buffer, Ends, TraceView};
use super::header::Header;
use super::span::Record;
use crate::stats::Counted;

#[derive(Debug, Default)]
pub struct Batch {
    heads: Vec<Head>,
    /// The lists of all traces. Positions in a trace's memory are relative to the start of the
    /// trace.
    all: Buffer,
    /// The bytes that the queue has charged for the batch.
    pub bytes: usize,
    pub number: u64,
}

/// The header of a trace, and the ends of its own lists before they moved here.
#[derive(Debug)]
struct Head {
    header: Header,
    ends: Ends,
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

    #[inline]
    pub fn spans(&self) -> usize {
        self.all.records.len()
    }

    /// The number of traces, or parts of traces.
    pub fn traces(&self) -> usize {
        self.heads.len()
    }

    pub fn counted(&self) -> Counted {
        self.each().map(|trace| trace.counted()).sum()
    }

    /// Moves the spans of a trace here. The buffer is left empty and keeps its memory.
    pub fn add(&mut self, header: Header, trace: &mut Buffer) {
        self.heads.push(Head { header, ends: trace.ends() });
        trace.append_to(&mut self.all);
    }

    /// A batch of one trace, which takes over the buffer and leaves an empty one.
    pub fn of(header: Header, trace: &mut Buffer) -> Self {
        let heads = vec![Head { header, ends: trace.ends() }];
        Batch { heads, all: std::mem::take(trace), ..Batch::default() }
    }

    pub fn each(&self) -> impl Iterator<Item = TraceView<'_>> {
        let mut rest: Option<TraceView<'_>> = None;
        self.heads.iter().map(move |Head { header, ends }| {
            rest.get_or_insert_with(|| self.all.view(header)).split_off(header, ends)
        })
    }

    pub fn clear(&mut self) {
        self.heads.clear();
        self.all.clear();
    }

    pub fn bytes_used(&self) -> usize {
        self.heads.len() * size_of::<Head>() + self.all.bytes_used()
    }

    /// Bytes of memory held, used or not.
    pub fn bytes_held(&self) -> usize {
        self.heads.capacity() * size_of::<Head>() + self.all.bytes_held()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use astracer_samplers::Threshold;
    use opentelemetry::SpanId;

    use super::super::header::KeepReason;
    use super::*;
    use crate::test_callsite::METADATA;
    use crate::trace_state::State;

    /// A trace with two local roots and one more span counts for the calls that its threshold
    /// represents. One that was kept late without a threshold counts for none.
    #[test]
    fn a_batch_counts_the_calls_that_its_traces_represent() {
        let state = |drops: u64| State::of_numbers(Threshold::new(drops), None);
        // Dropping 3/4 of the range means a weight of 4.
        let weighted = state(3 << 54);
        let (head, late) = (KeepReason::HEAD, KeepReason::HAND);
        for (kept_by, state, calls) in [
            (head, State::default(), 2.0),
            (head, weighted.clone(), 8.0),
            (late, weighted, 8.0),
            (late, State::default(), 0.0),
        ] {
            let mut trace = Buffer::default();
            for number in 1..=3 {
                let ids = (SpanId::from(number), SpanId::INVALID);
                let mut record = Record::new(&METADATA, ids, (1, 2), None, 1);
                record.is_local_root = number != 3;
                trace.append(record, None);
            }
            let header = Header { kept_by, state, ..Header::default() };
            let counted = Batch::of(header, &mut trace).counted();
            assert_eq!((counted.spans, counted.roots, counted.calls), (3, 2, calls), "{kept_by:?}");
        }
    }
}
