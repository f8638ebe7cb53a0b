//! loom models of the slots. Run by `cargo xtask loom`.

use astracer_samplers::tail::{KeyNumber, Severity};
use loom::sync::Arc as LoomArc;
use loom::thread;
use opentelemetry::{SpanId, TraceFlags, TraceId};

use super::*;
use crate::bounds::Bounds;
use crate::export::Work;
use crate::stats::Counters;
use crate::test_callsite::METADATA;

fn header(id: u64) -> Header {
    Header {
        trace_id: TraceId::from(u128::from(id / 10)),
        flags: TraceFlags::SAMPLED,
        began: 1,
        ..Header::default()
    }
}

fn record(id: u64) -> Record {
    let ids = (SpanId::from(id), SpanId::INVALID);
    let mut record = Record::new(&METADATA, ids, (1, 2), None, 1);
    if id % 10 == 0 {
        record.is_local_root = true;
    }
    record
}

/// Slots, and the queue behind them.
struct Model {
    traces: Traces,
    queue: Queue,
    counters: Arc<Counters>,
}

impl Model {
    fn new(slots: u32) -> LoomArc<Self> {
        let counters = Arc::<Counters>::default();
        let queue = Queue::new(Bounds::default(), counters.clone());
        let traces = Traces::new(slots, MemoryBudget::new(1 << 20));
        LoomArc::new(Model { traces, queue, counters })
    }

    /// Ends a span of a trace. The id encodes the trace: the root of trace 7 is 70, and 71 is a
    /// child.
    fn end(&self, trace: TraceRef, id: u64) {
        self.traces.end_span(trace, || header(id), record(id), None, &self.queue, |_, _| ());
    }

    /// Ends a span of a provisional trace. Returns the outcome.
    fn end_provisional(&self, trace: TraceRef, id: u64) -> EndedSpan {
        let record = record(id);
        if !record.is_local_root && self.traces.gather(trace, &record, &self.queue) {
            return EndedSpan::Gathered;
        }
        let unbounded: (_, Grow<'_>) = (usize::MAX, &|_, _, _| true);
        self.traces.end_provisional(trace, || header(id), record, None, &self.queue, unbounded)
    }

    /// Ends the gathering of old traces. Returns the spans of provisional ones.
    fn expire(&self, before: Ticks) -> usize {
        let mut taken = 0;
        self.traces.expire(before, &self.queue, || true, |old| taken += old.buffer.records.len());
        taken
    }

    /// The spans in the queue, sorted by id. Asserts that each of them is in its own trace.
    fn exported(&self) -> Vec<u64> {
        let mut ids = Vec::new();
        while let Work::Export(taken) = self.queue.take() {
            for trace in taken.batches.iter().flat_map(|batch| batch.each()) {
                for record in trace.records {
                    let id = u64::from_be_bytes(record.span_id.to_bytes());
                    assert_eq!(trace.header.trace_id, TraceId::from(u128::from(id / 10)), "{id}");
                    ids.push(id);
                }
            }
        }
        ids.sort_unstable();
        ids
    }
}

/// A local root ends while its child ends on another thread.
#[test]
fn loom_a_child_that_ends_with_its_root_is_exported_once() {
    loom::model(|| {
        let model = Model::new(1);
        let trace = model.traces.take(1);
        let other = model.clone();
        let child = thread::spawn(move || other.end(trace, 11));
        model.end(trace, 10);
        child.join().unwrap();
        assert_eq!(model.exported(), [10, 11]);
    });
}

/// A trace takes the slot of one that has ended, while a late span of the first one ends.
#[test]
fn loom_a_late_span_does_not_land_in_the_trace_that_has_its_slot_now() {
    loom::model(|| {
        let model = Model::new(1);
        let first = model.traces.take(1);
        let other = model.clone();
        let late = thread::spawn(move || other.end(first, 11));
        model.end(first, 10);
        let second = model.traces.take(1);
        assert_ne!(first, second);
        model.end(second, 21);
        model.end(second, 20);
        late.join().unwrap();
        assert_eq!(model.exported(), [10, 11, 20, 21]);
    });
}

/// A trace expires while its spans end. Afterwards its slot is free exactly once.
#[test]
fn loom_an_old_trace_gives_its_slot_up_once() {
    loom::model(|| {
        let model = Model::new(1);
        let trace = model.traces.take(1);
        let other = model.clone();
        let expires = thread::spawn(move || other.expire(2));
        model.end(trace, 11);
        model.end(trace, 10);
        expires.join().unwrap();
        assert_eq!(model.exported(), [10, 11]);
        assert_ne!(model.traces.take(1), TraceRef::NONE);
        assert_eq!(model.traces.take(1), TraceRef::NONE, "one slot for two traces");
    });
}

/// A flush takes the spans that have ended; the rest leaves with the root.
#[test]
fn loom_a_flush_between_two_spans_loses_none() {
    loom::model(|| {
        let model = Model::new(1);
        let trace = model.traces.take(1);
        let other = model.clone();
        let flushes = thread::spawn(move || other.traces.flush(&other.queue, Patience::None));
        model.end(trace, 11);
        model.end(trace, 10);
        flushes.join().unwrap();
        assert_eq!(model.exported(), [10, 11]);
    });
}

/// A span ends while the layer is shut down. It is in the queue, or counted as lost, but never left
/// in the slot.
#[test]
fn loom_a_span_that_ends_at_the_shutdown_does_not_stay_behind() {
    loom::model(|| {
        let model = Model::new(1);
        let trace = model.traces.take(1);
        let other = model.clone();
        let child = thread::spawn(move || other.end(trace, 11));
        // As in `Shared::close`.
        model.expire(Ticks::MAX);
        model.queue.close();
        model.expire(Ticks::MAX);
        child.join().unwrap();
        let exported = model.exported().len() as u64;
        assert_eq!(exported + model.counters.read().spans_lost.total(), 1);
    });
}

/// The number of spans that an outcome hands over, and the severity of a complete trace.
fn handed_on(ended: EndedSpan) -> (usize, Option<Severity>) {
    match ended {
        EndedSpan::Gathered => (0, None),
        EndedSpan::Late(..) => (1, None),
        EndedSpan::Whole(whole) => (whole.buffer.records.len(), Some(whole.severity)),
        EndedSpan::GivenUp(..) => panic!("the capacity is unbounded"),
    }
}

/// A provisional root ends while its child ends on another thread: the child leaves with the trace,
/// or is late.
#[test]
fn loom_a_provisional_child_is_whole_or_late() {
    loom::model(|| {
        let model = Model::new(1);
        let trace = model.traces.take_provisional(1, KeyNumber::OTHERS, None);
        let other = model.clone();
        let child = thread::spawn(move || handed_on(other.end_provisional(trace, 11)));
        let root = handed_on(model.end_provisional(trace, 10));
        let child = child.join().unwrap();
        assert_eq!(root.0 + child.0, 2);
        assert_eq!(model.traces.provisional(), 0);
        assert_ne!(model.traces.take_provisional(1, KeyNumber::OTHERS, None), TraceRef::NONE);
    });
}

/// Two threads mark a trace at once: the higher severity stays.
#[test]
fn loom_the_worst_mark_stays() {
    loom::model(|| {
        let model = Model::new(1);
        let trace = model.traces.take_provisional(1, KeyNumber::OTHERS, None);
        let other = model.clone();
        let marks = thread::spawn(move || other.traces.mark(trace, Severity::Warning));
        model.traces.mark(trace, Severity::Error);
        marks.join().unwrap();
        assert_eq!(model.traces.severity(trace), Severity::Error);
        let (spans, severity) = handed_on(model.end_provisional(trace, 10));
        assert_eq!((spans, severity), (1, Some(Severity::Error)), "the trace must still be provisional");
    });
}

/// A trace is marked just as another one takes its slot. The other trace is not marked, keeps its
/// own mark, and stays provisional.
#[test]
fn loom_a_late_mark_is_no_other_trace_s() {
    loom::model(|| {
        let model = Model::new(1);
        let first = model.traces.take_provisional(1, KeyNumber::OTHERS, None);
        let other = model.clone();
        let marks = thread::spawn(move || other.traces.mark(first, Severity::Error));
        let _ = handed_on(model.end_provisional(first, 10));
        let second = model.traces.take_provisional(1, KeyNumber::OTHERS, None);
        model.traces.mark(second, Severity::Warning);
        let (spans, severity) = handed_on(model.end_provisional(second, 20));
        marks.join().unwrap();
        assert_eq!((spans, severity), (1, Some(Severity::Warning)));
    });
}

/// A provisional trace expires while its root ends: exactly one of the two takes it.
#[test]
fn loom_an_old_provisional_trace_is_taken_once() {
    loom::model(|| {
        let model = Model::new(1);
        let trace = model.traces.take_provisional(1, KeyNumber::OTHERS, None);
        let _ = model.end_provisional(trace, 11);
        let other = model.clone();
        let old = thread::spawn(move || other.expire(2));
        let root = handed_on(model.end_provisional(trace, 10)).0;
        assert_eq!(root + old.join().unwrap(), 2);
        assert_eq!(model.traces.provisional(), 0);
        assert_ne!(model.traces.take_provisional(1, KeyNumber::OTHERS, None), TraceRef::NONE);
        assert_eq!(
            model.traces.take_provisional(1, KeyNumber::OTHERS, None),
            TraceRef::NONE,
            "one slot for two traces"
        );
    });
}

/// A root that is decided long after it began takes a slot while kept traces of that age expire.
#[test]
fn loom_a_slot_is_provisional_before_it_is_old() {
    loom::model(|| {
        let model = Model::new(1);
        // Slots are allocated on first use, which is not part of the model.
        model.traces.free_if_empty(model.traces.take_provisional(1, KeyNumber::OTHERS, None));
        let other = model.clone();
        let expires = thread::spawn(move || other.expire(2));
        let trace = model.traces.take_provisional(1, KeyNumber::OTHERS, None);
        expires.join().unwrap();
        model.traces.free_if_empty(trace);
        assert_eq!(model.traces.provisional(), 0);
    });
}
