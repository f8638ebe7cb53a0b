//! Every bound, and the count of what exceeds it.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use astracer_sdk::{Losses, Start};
use astracer_testing::Exporting;
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::SpanData;
use tracing::info_span;
use tracing::subscriber::NoSubscriber;

use crate::support::{Row, TIMEOUT, draw, one, sampling, world};
use crate::{delivery, flushing};

fn losses(change: impl FnOnce(&mut Losses)) -> Losses {
    let mut losses = Losses::default();
    change(&mut losses);
    losses
}

/// The test of the reasons that an exporter reports.
const COUNTS: fn() = delivery::an_exporter_that_counts_gives_every_loss_its_reason;

/// The rows of the document's table.
pub(crate) const ROWS: &[Row] = &[
    ("`open_spans`", the_table_of_open_spans_is_bounded_and_its_losses_are_counted),
    ("`queue_full`", a_full_queue_sheds_whole_traces),
    ("`rejected`", COUNTS),
    ("`partially_rejected`", COUNTS),
    ("`too_large`", COUNTS),
    ("`expired`", COUNTS),
    ("`spool_full`", COUNTS),
    ("`export_failed`", an_exporter_that_fails_or_panics_costs_its_batch_only),
    ("`deadline`", flushing::a_shutdown_during_an_outage_counts_what_is_left),
    ("`shut_down`", shutdown_exports_what_has_ended_and_counts_the_rest),
    ("`capped`", traces_that_the_cap_on_bytes_refuses_are_counted_with_their_calls),
];

/// The cap counts the traces that it refuses, and the calls that these represent.
#[test]
fn traces_that_the_cap_on_bytes_refuses_are_counted_with_their_calls() {
    let world = world(|builder| {
        builder.with_cap("bytes=1000,bytes_burst=610".parse().unwrap()).with_batch_spans(1_000)
    });
    world.inside(|| {
        for number in 1..=10_u128 {
            let (flags, state) = (TraceFlags::SAMPLED, "ot=th:8;rv:ffffffffffffff".parse().unwrap());
            let parent = SpanContext::new(TraceId::from(number), SpanId::from(1), flags, true, state);
            let _remote = Context::new().with_remote_span_context(parent).attach();
            info_span!("root").in_scope(|| info_span!("child").in_scope(|| ()));
        }
    });
    assert!(world.handle.flush(TIMEOUT).is_err());
    let spans = world.collector.spans();
    let roots = spans.iter().filter(|span| span.name == "root").count() as u64;
    let stats = world.handle.stats();
    assert!((1..10).contains(&roots), "{roots}");
    assert_eq!((stats.traces_exported, stats.traces_lost.capped), (roots, 10 - roots));
    assert_eq!(stats.calls_lost, 2 * (10 - roots));
}

/// The attributes of open spans share a budget. Cut parts are counted on their span and in total,
/// the budget is never exceeded, and no span is lost for its attributes.
#[test]
fn attributes_beyond_the_budget_are_cut_and_counted() {
    const BYTES: usize = 1 << 20;
    let world = world(|builder| builder.with_open_bytes_max(BYTES));
    let spans = world.run(|| {
        let text = "x".repeat(1_000);
        let open: Vec<_> = (0..900)
            .map(|n| {
                let span = info_span!("open", n, text, late = tracing::field::Empty, otel.name = "renamed");
                tracing::info!(parent: &span, text, "an event");
                span.record("late", text.as_str());
                assert!(world.handle.stats().open_bytes <= BYTES as u64);
                span
            })
            .collect();
        drop(open);
    });
    let stats = world.handle.stats();
    assert_eq!((spans.len(), stats.spans_lost.total()), (900, 0));
    assert!(spans.iter().all(|span| span.name == "renamed"));
    let cut = |span: &SpanData| u64::from(span.dropped_attributes_count + span.events.dropped_count);
    let cut: u64 = spans.iter().map(cut).sum();
    assert!(cut > 100, "{cut}");
    assert_eq!(stats.parts_cut, cut);
    // The ended spans' bytes are available again.
    let spans = world.run(|| info_span!("later", text = "x".repeat(1_000)).in_scope(|| ()));
    assert_eq!(one(&spans, "later").attributes.len(), 1);
}

/// Ended spans wait for their trace while the budget allows, and are exported by themselves
/// otherwise. None is lost.
#[test]
fn ended_spans_do_not_wait_beyond_the_budget() {
    const BYTES: usize = 1 << 20;
    let world = world(|builder| builder.with_open_bytes_max(BYTES));
    world.inside(|| {
        let open: Vec<_> = (0..500).map(|_| info_span!("root")).collect();
        for _ in 0..20 {
            for root in &open {
                root.in_scope(|| info_span!("child", text = "x".repeat(500)).in_scope(|| ()));
                assert!(world.handle.stats().open_bytes <= BYTES as u64);
            }
        }
        // 10 MiB have ended, and few of these spans wait.
        let stats = world.handle.stats();
        assert!(stats.parts_cut == 0 && stats.spans_lost.total() == 0, "{stats:?}");
    });
    assert_eq!(world.exported().len(), 10_500);
}

/// Within the bounds they all wait for their root.
#[test]
fn ended_spans_wait_for_their_root() {
    let (tells, told) = mpsc::channel();
    let exporter = Exporting(move |batch: Vec<SpanData>| {
        let _ = tells.send(batch.len());
        Ok(())
    });
    let world = world(|builder| builder.with_batch_spans(1).with_exporter(exporter));
    world.inside(|| {
        let _root = info_span!("root").entered();
        (0..500).for_each(|_| info_span!("child", text = "x".repeat(100)).in_scope(|| ()));
        assert_eq!(told.recv_timeout(Duration::from_millis(20)), Err(mpsc::RecvTimeoutError::Timeout));
    });
    assert_eq!(told.recv_timeout(TIMEOUT), Ok(501));
}

/// One page of the table holds 32 spans, and a local root may take it if it is nine tenths of the
/// bound.
#[test]
fn the_table_of_open_spans_is_bounded_and_its_losses_are_counted() {
    let world = world(|builder| builder.with_open_bytes_max(7_000));
    let spans = world.run(|| {
        let root = info_span!("root").entered();
        let open: Vec<_> = (0..40).map(|n| info_span!("child", n)).collect();
        let lost = open[39].clone();
        drop(lost.clone().entered());
        lost.in_scope(|| {
            tracing::info!("an event of the lost span");
            drop(info_span!("no room either"));
            drop(info_span!("client", otel.kind = "client"));
        });
        drop(info_span!(parent: &lost, "by its parent"));
        // Spans get an entry again once others have ended, but not below a lost one.
        drop(open);
        drop(info_span!("has room").entered());
        lost.in_scope(|| drop(info_span!("below")));
        drop((lost, root));
    });
    assert_eq!(spans.len(), 33);
    assert_eq!(one(&spans, "root").events.len(), 0);
    one(&spans, "has room");
    let stats = world.handle.stats();
    assert_eq!((stats.spans_made, stats.spans_lost), (46, losses(|lost| lost.open_spans = 13)));
    assert_eq!((stats.spans_open, stats.spans_waiting, stats.traces_open), (0, 0, 0));
}

/// The table's pages hold 32 and 64 spans. Both fit, but the second is for spans below the roots
/// that are open. A refused root is decided all the same, and spans below it are dropped.
#[test]
fn local_roots_leave_a_tenth_of_the_memory_to_their_children() {
    for (start, sampler) in
        [(Start::WhenUsed, "always"), (Start::AtOnce, "always"), (Start::WhenUsed, "never")]
    {
        let world = sampling(sampler, |builder| builder.with_open_bytes_max(19_000).with_start(start));
        let spans = world.run(|| {
            let open: Vec<_> = (0..33).map(|_| info_span!("root")).collect();
            let is_refused = |root: &tracing::Span| root.id() == open[32].id();
            let inside = |root: &tracing::Span| {
                let _child = info_span!("child").entered();
                let is_sampled = Context::current().span().span_context().is_sampled();
                assert_eq!(is_sampled, sampler == "always" && !is_refused(root));
            };
            for root in &open {
                root.in_scope(|| inside(root));
                info_span!(parent: root, "another child").in_scope(|| ());
            }
            // A task of the refused root on another thread.
            let task = || world.inside(|| open[32].in_scope(|| inside(&open[32])));
            std::thread::scope(|scope| scope.spawn(task).join().unwrap());
        });
        let stats = world.handle.stats();
        let kept = u64::from(sampler == "always");
        assert_eq!(stats.roots_kept + stats.roots_dropped, 33, "{start:?}: {stats:?}");
        assert_eq!((spans.len() as u64, stats.spans_made), (96 * kept, 100 * kept), "{start:?}: {stats:?}");
        assert_eq!((stats.spans_lost.open_spans, stats.traces_lost.open_spans), (4 * kept, kept));
        assert_eq!((stats.spans_lost.total(), stats.spans_open, stats.traces_open), (4 * kept, 0, 0));
    }
}

/// A leaked span keeps its trace's local root open. The ended spans are exported, and the slot is
/// reused.
#[test]
fn a_leaked_span_holds_nothing_back() {
    let age = Duration::from_secs(10);
    let world = world(|builder| builder.with_trace_age_max(age).with_open_traces_max(1));
    world.inside(|| {
        let root = info_span!("root").entered();
        std::mem::forget(info_span!("leaked"));
        info_span!("ended").in_scope(|| ());
        drop(root);
    });
    assert_eq!(draw(&world.exported()), "ended\n");
    world.clock.advance(2 * age);
    let spans = world.run(|| info_span!("another").in_scope(|| info_span!("child").in_scope(|| ())));
    assert_eq!(draw(&spans), "ended\nanother\n  child\n");
    let stats = world.handle.stats();
    assert_eq!((stats.spans_made, stats.spans_open, stats.spans_exported), (5, 2, 3));
    assert_eq!((stats.traces_made, stats.traces_open), (2, 1));
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
    world.inside(|| {
        let _root = info_span!("root").entered();
        info_span!("ended").in_scope(|| ());
        let _open = info_span!("open").entered();
        world.handle.shutdown(TIMEOUT).unwrap();
        info_span!("child of the closed").in_scope(|| tracing::info!("an event"));
        info_span!(parent: None, "a root").in_scope(|| ());
    });
    assert_eq!(draw(&world.collector.spans()), "ended\n");
    // Root and open span are lost when they end. Spans that begin after the shutdown are not
    // counted as made.
    assert_eq!(world.handle.stats().spans_lost, losses(|lost| lost.shut_down = 2));
    assert_eq!(world.handle.stats().spans_made, 3);
    world.handle.shutdown(TIMEOUT).unwrap();
    world.handle.flush(TIMEOUT).unwrap();
}

/// An exporter that fails, then panics, then works, and that traces during each call.
#[test]
fn an_exporter_that_fails_or_panics_costs_its_batch_only() {
    let batches = Arc::new(Mutex::new(Vec::new()));
    let own = batches.clone();
    let exporter = Exporting(move |batch: Vec<SpanData>| {
        // The exporter's thread has no subscriber, so this span does not exist.
        assert!(tracing::dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>()));
        info_span!("of the exporter").in_scope(|| ());
        assert!(Context::is_current_telemetry_suppressed());
        own.lock().unwrap().push(batch.len());
        let calls = own.lock().unwrap().len();
        match calls {
            1 => Err(OTelSdkError::InternalFailure("not today".to_owned())),
            2 => panic!("as the test wants it"),
            _ => Ok(()),
        }
    });
    let world = world(|builder| builder.with_exporter(exporter));
    let mut errors = Vec::new();
    for n in 0..3 {
        world.roots("root", 1);
        let flushed = world.handle.flush(TIMEOUT);
        assert_eq!(flushed.is_err_and(|error| error.is_export_failure()), n < 2);
        errors.push(world.handle.stats().last_error.unwrap());
    }
    assert_eq!(*batches.lock().unwrap(), [1, 1, 1]);
    assert!(errors[0].contains("not today") && errors[1].contains("as the test wants it"), "{errors:?}");
    let stats = world.handle.stats();
    assert_eq!((stats.spans_exported, stats.spans_lost), (1, losses(|lost| lost.export_failed = 2)));
}
