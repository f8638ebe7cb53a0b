//! loom models of the handover. Run by `cargo xtask loom`.

use loom::thread;
use opentelemetry::{SpanId, TraceFlags, TraceId};

use super::*;
use crate::record::KeepReason;
use crate::test_callsite::METADATA;

fn queue() -> loom::sync::Arc<Queue> {
    loom::sync::Arc::new(Queue::new(Bounds::default(), Arc::default()))
}

fn push(queue: &Queue) {
    let header = Header {
        is_reweighed: false,
        trace_id: TraceId::from(1),
        flags: TraceFlags::SAMPLED,
        state: crate::trace_state::State::EMPTY,
        began: 1,
        kept_by: KeepReason::HEAD,
        cut: 0,
    };
    let ids = (SpanId::from(1), SpanId::INVALID);
    let record = Record::new(&METADATA, ids, (1, 2), None, 1);
    queue.push_span(header, record, None);
}

/// Takes what there is, and counts it as exported.
fn export(queue: &Queue) -> Work {
    let work = queue.take();
    if let Work::Export(taken) = &work {
        queue.counters.exported.add(taken.counted);
        if let Some(flush) = queue.exported(taken.number, 0, None) {
            queue.flushed(flush);
        }
    }
    work
}

fn exported(queue: &Queue) -> u64 {
    queue.counters.read().spans_exported
}

/// A span ends while the queue is closed: it is exported, or counted as lost.
#[test]
fn loom_a_span_at_the_shutdown_is_exported_or_counted() {
    loom::model(|| {
        let queue = queue();
        let other = queue.clone();
        let ends = thread::spawn(move || push(&other));
        queue.close();
        // The worker's loop after the close: it ends when nothing is left.
        while !matches!(export(&queue), Work::End) {}
        ends.join().unwrap();
        let lost = queue.counters.read().spans_lost.total();
        assert_eq!(exported(&queue) + lost, 1);
    });
}

/// The worker goes to sleep while a span ends: it has seen the span, or is woken.
#[test]
fn loom_the_worker_does_not_sleep_on_a_span() {
    loom::model(|| {
        let queue = queue();
        let other = queue.clone();
        let ends = thread::spawn(move || push(&other));
        // As in `Queue::lead` after a pause. Without the wake-up this would wait forever.
        queue.set_wake_on(&mut lock(&queue.state), WakeOn::AnySpan);
        queue.collect();
        let nothing = |state: &State| state.list.spans == 0 && !queue.hurries(state);
        drop(wait_while(&queue.work, lock(&queue.state), Duration::from_secs(3_600), nothing));
        export(&queue);
        assert_eq!(exported(&queue), 1);
        ends.join().unwrap();
    });
}

/// A flush is requested after a span has ended: the export that completes the flush contains the
/// span.
#[test]
fn loom_a_flush_covers_the_spans_before_it() {
    loom::model(|| {
        let queue = queue();
        let other = queue.clone();
        let flushes = thread::spawn(move || {
            push(&other);
            let ticket = other.ask_flush();
            other.wait(ticket, Duration::from_secs(3_600)).unwrap();
            exported(&other)
        });
        loop {
            if let Work::Flush(flush) = export(&queue) {
                queue.flushed(flush);
            }
            if lock(&queue.state).flush_done > 0 {
                break;
            }
            thread::yield_now();
        }
        assert_eq!(flushes.join().unwrap(), 1);
    });
}

/// A thread that waits for space is woken when an export has released some.
#[test]
fn loom_a_thread_that_waits_for_space_is_woken() {
    loom::model(|| {
        let bounds = Bounds {
            when_full: WhenQueueFull::Block(Duration::from_secs(3_600)),
            queue_traces: 1,
            ..Bounds::default()
        };
        let queue = loom::sync::Arc::new(Queue::new(bounds, Arc::default()));
        push(&queue);
        let other = queue.clone();
        let waits = thread::spawn(move || other.wait_for_space(Patience::Full));
        let Work::Export(taken) = queue.take() else { panic!("a span was pushed") };
        queue.release(&taken.batches);
        queue.recycle(taken.batches);
        waits.join().unwrap();
    });
}
