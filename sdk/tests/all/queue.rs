//! The way from the service's threads to the exporter's: when traces leave, and that they leave whole.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use astracer_sdk::{Astracer, Builder};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing::dispatcher::with_default;
use tracing::{Dispatch, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::support::{TIMEOUT, one, world};

const NEVER: Duration = Duration::from_secs(1_000_000);

/// Says of how many spans each batch is.
#[derive(Debug)]
struct Tells(Mutex<Sender<usize>>);

impl SpanExporter for Tells {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let _ = self.0.lock().unwrap().send(batch.len());
        Ok(())
    }
}

fn start(change: impl FnOnce(Builder) -> Builder) -> (Astracer, Dispatch, Receiver<usize>) {
    let (sender, receiver) = channel();
    let builder = Astracer::builder().sampler("always".parse().unwrap());
    let astracer = change(builder).exporter(Tells(Mutex::new(sender))).build().unwrap();
    let dispatch = Dispatch::new(Registry::default().with(astracer.layer.clone()));
    (astracer, dispatch, receiver)
}

fn traces(dispatch: &Dispatch, count: usize) {
    with_default(dispatch, || (0..count).for_each(|_| info_span!("root").in_scope(|| ())));
}

#[test]
fn a_batch_that_is_full_does_not_wait() {
    let (_astracer, dispatch, batches) = start(|builder| builder.batch_spans(3).batch_delay(NEVER));
    for _ in 0..3 {
        traces(&dispatch, 3);
        assert_eq!(batches.recv_timeout(TIMEOUT), Ok(3));
    }
}

#[test]
fn a_single_trace_waits_no_longer_than_it_may() {
    let (_astracer, dispatch, batches) =
        start(|builder| builder.batch_spans(1_000).batch_delay(Duration::ZERO));
    for _ in 0..3 {
        traces(&dispatch, 1);
        assert_eq!(batches.recv_timeout(TIMEOUT), Ok(1));
    }
}

#[test]
fn what_waits_leaves_with_a_flush_in_batches() {
    let (astracer, dispatch, batches) = start(|builder| builder.batch_spans(4).batch_delay(NEVER));
    traces(&dispatch, 3);
    astracer.handle.flush(TIMEOUT).unwrap();
    assert_eq!(batches.try_iter().collect::<Vec<_>>(), [3]);
    astracer.handle.flush(TIMEOUT).unwrap();
    assert_eq!(batches.try_iter().count(), 0, "nothing waits");
}

/// The bound is on what waits, not on what ever did.
#[test]
fn room_in_the_queue_comes_back() {
    let world = world(|builder| builder.queue_bytes_max(16 * 1024));
    for _ in 0..100 {
        world.run(|| info_span!("root", text = "x".repeat(1_000)).in_scope(|| ()));
    }
    let stats = world.handle.stats();
    assert_eq!((stats.spans_exported, stats.spans_lost.total()), (100, 0));
}

/// A large trace leaves with its buffer, a small one is copied out of it: each way after the other.
#[test]
fn large_traces_and_small_ones_leave_whole() {
    let world = world(|builder| builder);
    let sizes = [10, 40_000, 20, 30_000, 50_000, 30];
    let spans = world.run(|| {
        for size in sizes {
            let root = info_span!("root", otel.name = format!("root {size}"));
            let _root = root.entered();
            // No text is longer than the limit on texts.
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
