//! Every bound, and what is counted when it is reached.

use std::sync::{Arc, Mutex};

use astracer_sdk::Losses;
use opentelemetry::Context;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing::info_span;
use tracing::subscriber::NoSubscriber;

use crate::support::{TIMEOUT, draw, world};

fn losses(change: impl FnOnce(&mut Losses)) -> Losses {
    let mut losses = Losses::default();
    change(&mut losses);
    losses
}

#[test]
fn open_traces_are_bounded() {
    let world = world(|builder| builder.with_open_traces_max(2));
    let spans = world.run(|| {
        let open: Vec<_> = (0..5).map(|n| info_span!("root", n)).collect();
        open.iter().for_each(|root| root.in_scope(|| info_span!("child").in_scope(|| ())));
        drop(open);
        // There is room again.
        info_span!("afterwards").in_scope(|| ());
    });
    assert_eq!(draw(&spans), "root n=0\n  child\nroot n=1\n  child\nafterwards\n");
    assert_eq!(world.handle.stats().spans_lost, losses(|lost| lost.open_traces = 3));
}

#[test]
fn a_full_queue_sheds_whole_traces() {
    let world = world(|builder| builder.with_queue_bytes_max(0));
    let spans = world.run(|| info_span!("root").in_scope(|| info_span!("child").in_scope(|| ())));
    assert!(spans.is_empty());
    assert_eq!(world.handle.stats().spans_lost, losses(|lost| lost.queue_full = 2));
}

#[test]
fn shutdown_exports_what_has_ended_and_counts_the_rest() {
    let world = world(|builder| builder);
    tracing::dispatcher::with_default(&world.dispatch, || {
        let _root = info_span!("root").entered();
        info_span!("ended").in_scope(|| ());
        let _open = info_span!("open").entered();
        world.handle.shutdown(TIMEOUT).unwrap();
        info_span!("child of the closed").in_scope(|| tracing::info!("an event"));
        info_span!(parent: None, "a root").in_scope(|| ());
    });
    assert_eq!(draw(&world.collector.spans()), "ended\n");
    // Root, open, and the one that began below them afterwards. Roots that begin afterwards are dropped.
    assert_eq!(world.handle.stats().spans_lost, losses(|lost| lost.shut_down = 3));
    world.handle.shutdown(TIMEOUT).unwrap();
    world.handle.flush(TIMEOUT).unwrap();
}

/// Fails, then panics, then works; and traces all the while.
#[derive(Clone, Debug, Default)]
struct Moody {
    calls: Arc<Mutex<Vec<usize>>>,
}

impl SpanExporter for Moody {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        // Its thread has no subscriber: this span goes nowhere.
        assert!(tracing::dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>()));
        info_span!("of the exporter").in_scope(|| ());
        assert!(Context::is_current_telemetry_suppressed());
        let calls = {
            let mut calls = self.calls.lock().unwrap();
            calls.push(batch.len());
            calls.len()
        };
        match calls {
            1 => Err(OTelSdkError::InternalFailure("not today".to_owned())),
            2 => panic!("as the test wants it"),
            _ => Ok(()),
        }
    }
}

#[test]
fn an_exporter_that_fails_or_panics_costs_its_batch_only() {
    let exporter = Moody::default();
    let world = world(|builder| builder.with_exporter(exporter.clone()));
    let mut errors = Vec::new();
    for _ in 0..3 {
        world.run(|| info_span!("root").in_scope(|| ()));
        errors.push(world.handle.stats().last_error.unwrap());
    }
    assert_eq!(*exporter.calls.lock().unwrap(), [1, 1, 1]);
    assert!(errors[0].contains("not today") && errors[1].contains("as the test wants it"), "{errors:?}");
    let stats = world.handle.stats();
    assert_eq!((stats.spans_exported, stats.spans_lost), (1, losses(|lost| lost.export_failed = 2)));
}
