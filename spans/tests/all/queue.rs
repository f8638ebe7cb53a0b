//! From the service's threads to the exporter's: when traces leave, and that they leave complete.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use astracer_sdk::{Astracer, Builder};
use astracer_testing::{Exporting, TIMEOUT, one, world};
use opentelemetry_sdk::trace::SpanData;
use tracing::dispatcher::with_default;
use tracing::{Dispatch, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

const NEVER: Duration = Duration::from_secs(1_000_000);

/// With the number of spans of each batch.
fn start(change: impl FnOnce(Builder) -> Builder) -> (Astracer, Dispatch, Receiver<usize>) {
    let (sender, receiver) = channel();
    let builder = Astracer::builder().with_sampler("always".parse().unwrap());
    let exporter = Exporting(move |batch: Vec<SpanData>| {
        let _ = sender.send(batch.len());
        Ok(())
    });
    let astracer = change(builder).with_exporter(exporter).build().unwrap();
    let dispatch = Dispatch::new(Registry::default().with(astracer.layer.clone()));
    (astracer, dispatch, receiver)
}

fn traces(dispatch: &Dispatch, count: usize) {
    with_default(dispatch, || (0..count).for_each(|_| info_span!("root").in_scope(|| ())));
}

/// A batch leaves when it is full, when its first trace has waited long enough, also after a pause
/// in which the worker fell asleep, and at half of the queue, before the queue sheds or makes the
/// service wait.
#[test]
fn a_batch_leaves_when_it_is_full_or_has_waited() {
    let ms = Duration::from_millis;
    for (batch_spans, delay, queue_traces, count, pauses) in [
        (3, NEVER, 1_000, 3, &[0, 0, 0][..]),
        (1_000, Duration::ZERO, 1_000, 1, &[0, 0, 0]),
        (1_000, ms(1), 1_000, 1, &[0, 1, 2, 3, 5, 10, 20]),
        (1_000, NEVER, 4, 4, &[0]),
    ] {
        let (_astracer, dispatch, batches) = start(|builder| {
            let builder = builder.with_batch_spans(batch_spans).with_batch_delay(delay);
            builder.with_queue_traces_max(queue_traces)
        });
        for pause in pauses {
            thread::sleep(ms(*pause));
            traces(&dispatch, count);
            assert_eq!(batches.recv_timeout(TIMEOUT), Ok(count), "{batch_spans}, {delay:?}");
        }
    }
}

#[test]
fn what_waits_leaves_with_a_flush_in_batches() {
    let (astracer, dispatch, batches) = start(|builder| builder.with_batch_spans(4).with_batch_delay(NEVER));
    traces(&dispatch, 3);
    astracer.handle.flush(TIMEOUT).unwrap();
    assert_eq!(batches.try_iter().collect::<Vec<_>>(), [3]);
    astracer.handle.flush(TIMEOUT).unwrap();
    assert_eq!(batches.try_iter().count(), 0, "nothing waits");
}

/// The bound applies to what waits now, not to the total over time.
#[test]
fn space_in_the_queue_is_released() {
    let world = world(|builder| builder.with_queue_bytes_max(16 * 1024));
    for _ in 0..100 {
        world.run(|| info_span!("root", text = "x".repeat(1_000)).in_scope(|| ()));
    }
    let stats = world.handle.stats();
    assert_eq!((stats.spans_exported, stats.spans_lost.total()), (100, 0));
}

/// Small traces gather in buffers that a few threads share. A flush exports all of them, and a
/// shutdown counts what it loses.
#[test]
fn what_gathers_leaves_whatever_thread_it_is_of() {
    const THREADS: usize = 40;
    for _ in 0..20 {
        let (astracer, dispatch, batches) = start(|builder| builder.with_batch_delay(NEVER));
        thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(|| traces(&dispatch, 3)))));
        astracer.handle.flush(TIMEOUT).unwrap();
        assert_eq!(batches.try_iter().sum::<usize>(), 3 * THREADS);
        let barrier = Barrier::new(THREADS + 1);
        let work = || {
            traces(&dispatch, 10);
            barrier.wait();
            traces(&dispatch, 20);
        };
        thread::scope(|scope| {
            (0..THREADS).for_each(|_| drop(scope.spawn(work)));
            barrier.wait();
            astracer.handle.shutdown(TIMEOUT).unwrap();
        });
        let stats = astracer.handle.stats();
        let exported = batches.try_iter().sum::<usize>();
        assert_eq!(stats.spans_exported as usize, 3 * THREADS + exported);
        assert_eq!(stats.spans_exported + stats.spans_lost.total(), stats.roots_kept, "{stats:?}");
        assert!(exported >= 10 * THREADS, "all spans that ended before the shutdown are exported: {stats:?}");
    }
}

/// A large trace leaves with its buffer; a small one is copied out of it. Both paths follow each
/// other.
#[test]
fn large_traces_and_small_ones_leave_whole() {
    let world = world(|builder| builder);
    let sizes = [10, 40_000, 20, 30_000, 50_000, 30];
    let spans = world.run(|| {
        for size in sizes {
            let root = info_span!("root", otel.name = format!("root {size}"));
            let _root = root.entered();
            // Many short texts, since the limit on texts would cut a long one.
            for part in 0..size / 10 {
                info_span!("part", part, text = format!("{part:010}")).in_scope(|| ());
            }
        }
    });
    for size in sizes {
        let root = one(&spans, &format!("root {size}")).span_context.span_id();
        let parts: Vec<_> = spans.iter().filter(|span| span.parent_span_id == root).collect();
        assert_eq!(parts.len(), size / 10);
        for (part, span) in parts.iter().enumerate() {
            let text = format!("{part:010}");
            assert_eq!(span.attributes.len(), 2);
            assert_eq!(span.attributes[0].value, (part as i64).into());
            assert_eq!(span.attributes[1].value, text.into());
        }
    }
}
