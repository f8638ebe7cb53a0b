//! From the service's threads to the exporter's: when traces leave, and that they leave complete.

use std::error::Error;
use std::fmt;
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use astracer_sdk::{Astracer, Builder, OpenTelemetrySpanExt as _};
use astracer_testing::Exporting;
use opentelemetry::trace::{SpanContext, SpanId, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::SpanData;
use tracing::dispatcher::with_default;
use tracing::field::Empty;
use tracing::{Dispatch, error, info, info_span};

use crate::support::{TIMEOUT, draw, one, world};

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
    let dispatch = crate::support::dispatch(&astracer);
    (astracer, dispatch, receiver)
}

fn traces(dispatch: &Dispatch, count: usize) {
    with_default(dispatch, || (0..count).for_each(|_| info_span!("root").in_scope(|| ())));
}

#[test]
fn a_batch_that_is_full_does_not_wait() {
    let (_astracer, dispatch, batches) = start(|builder| builder.with_batch_spans(3).with_batch_delay(NEVER));
    for _ in 0..3 {
        traces(&dispatch, 3);
        assert_eq!(batches.recv_timeout(TIMEOUT), Ok(3));
    }
}

#[test]
fn a_single_trace_waits_no_longer_than_it_may() {
    let (_astracer, dispatch, batches) =
        start(|builder| builder.with_batch_spans(1_000).with_batch_delay(Duration::ZERO));
    for _ in 0..3 {
        traces(&dispatch, 1);
        assert_eq!(batches.recv_timeout(TIMEOUT), Ok(1));
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

/// The worker sleeps after an idle time. The first trace after that wakes it.
#[test]
fn a_trace_after_a_pause_leaves_too() {
    let (_astracer, dispatch, batches) =
        start(|builder| builder.with_batch_spans(1_000).with_batch_delay(Duration::from_millis(1)));
    for pause in [0, 1, 2, 3, 5, 10, 20] {
        thread::sleep(Duration::from_millis(pause));
        traces(&dispatch, 1);
        assert_eq!(batches.recv_timeout(TIMEOUT), Ok(1));
    }
}

#[derive(Debug)]
struct Failed(u32, Option<Box<Failed>>);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failure {}", self.0)
    }
}

impl Error for Failed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.as_deref().map(|failed| failed as _)
    }
}

/// Traces that leave together share lists in memory. Each must be exported as if it had left alone.
#[test]
fn traces_that_leave_together_keep_what_is_their_own() {
    fn trace(kind: u32) {
        let text = format!("of {kind}");
        let root =
            info_span!("root", otel.name = format!("root {kind}"), text, n = kind, late = Empty).entered();
        match kind % 5 {
            0 => info!(text, list = ?[kind; 3], "an event {kind}"),
            1 => {
                root.record("late", format!("late {kind}"));
                root.set_attribute("list", Value::Array(vec![i64::from(kind); 2].into()));
            }
            2 => {
                let linked = info_span!("linked", n = kind);
                linked.add_link_with_attributes(
                    SpanContext::new(
                        TraceId::from(u128::from(kind)),
                        SpanId::from(1),
                        TraceFlags::SAMPLED,
                        true,
                        TraceState::NONE,
                    ),
                    vec![KeyValue::new("of", i64::from(kind))],
                );
                let failed = Failed(kind, Some(Box::new(Failed(kind + 100, None))));
                linked.in_scope(|| error!(error = &failed as &dyn Error, "failed {kind}"));
            }
            3 => {
                root.set_status(Status::error(text));
                info_span!("plain").in_scope(|| info!("an event of the plain {kind}"));
            }
            _ => info_span!("plain").in_scope(|| ()),
        }
    }
    fn summary(spans: &[SpanData]) -> String {
        let links = spans.iter().flat_map(|span| span.links.iter().map(move |link| (&span.name, link)));
        format!("{}{:?}", draw(spans), links.collect::<Vec<_>>())
    }
    let all = || world(|builder| builder.with_threads(true).with_batch_delay(NEVER));
    let alone: Vec<String> = (0..15)
        .map(|kind| {
            let world = all();
            summary(&world.run(|| trace(kind)))
        })
        .collect();
    // The second run reuses the memory of the first.
    let world = all();
    world.run(|| (0..15).for_each(trace));
    let together = world.run(|| (0..15).rev().for_each(trace));
    let mut by_trace: Vec<Vec<SpanData>> = Vec::new();
    for span in together {
        match by_trace
            .iter_mut()
            .find(|spans| spans[0].span_context.trace_id() == span.span_context.trace_id())
        {
            Some(spans) => spans.push(span),
            None => by_trace.push(vec![span]),
        }
    }
    assert_eq!(
        by_trace.iter().map(|spans| summary(spans)).collect::<Vec<_>>(),
        alone.iter().chain(alone.iter().rev()).cloned().collect::<Vec<_>>()
    );
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

/// An export starts at half of the queue, before it sheds or makes the service wait, even if a
/// larger batch were possible.
#[test]
fn a_queue_that_is_half_full_does_not_wait() {
    let (_astracer, dispatch, received) =
        start(|builder| builder.with_batch_delay(NEVER).with_queue_traces_max(4));
    with_default(&dispatch, || (0..4).for_each(|_| info_span!("request").in_scope(|| ())));
    assert_eq!(received.recv_timeout(TIMEOUT).unwrap(), 4);
}
