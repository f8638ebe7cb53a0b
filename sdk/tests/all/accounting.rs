//! Every span of a kept trace is counted exactly once, as exported or as lost for a reason, and
//! other spans are not counted.

use astracer_sdk::{DroppedSpans, Start};
use tracing::{Dispatch, Level, Span, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::support::{TIMEOUT, World, sampling, world};

/// Checks the counts after `made` spans of kept traces, when no span is open.
#[track_caller]
fn check(world: &World, made: u64) {
    let exported = world.exported().len() as u64;
    let stats = world.handle.stats();
    assert_eq!(stats.spans_exported, exported);
    assert_eq!(exported + stats.spans_lost.total(), made, "{stats:?}");
}

#[test]
fn many_open_spans_of_one_trace_are_counted() {
    let world = world(|builder| builder.with_spans_per_trace_max(1_000_000));
    world.run(|| {
        let _root = info_span!("root").entered();
        let open: Vec<Span> = (0..40_000).map(|_| info_span!("open")).collect();
        let last = info_span!("last").entered();
        drop(open);
        (0..10).for_each(|_| info_span!("below").in_scope(|| ()));
        drop(last);
    });
    check(&world, 40_012);
}

#[test]
fn spans_that_a_full_queue_sheds_at_the_shutdown_are_counted() {
    let world = world(|builder| builder.with_queue_bytes_max(0));
    world.inside(|| {
        let _root = info_span!("root", n = 0).entered();
        (0..3).for_each(|n| info_span!("child", n).in_scope(|| ()));
        // No subscriber received a warning, so the error tells of the children.
        assert_eq!(world.handle.shutdown(TIMEOUT).unwrap_err().spans_lost(), 3);
    });
    check(&world, 4);
}

#[test]
fn a_client_s_span_below_a_dropped_root_has_no_remote_parent() {
    let world = sampling("never", |builder| builder);
    world.run(|| {
        let _root = info_span!("root").entered();
        (0..10).for_each(|_| info_span!("client", otel.kind = "client").in_scope(|| ()));
    });
    let stats = world.handle.stats();
    assert_eq!((stats.roots_dropped, stats.parents_dropped), (1, 0));
}

/// Spans that another filter refuses do not reach the layer, so it must not count them.
#[test]
fn refusals_of_other_filters_are_not_counted() {
    let never = "never".parse().unwrap();
    let world = world(|builder| builder.with_dropped_spans(DroppedSpans::Disabled).with_sampler(never));
    let filter = Targets::new().with_target("mine", LevelFilter::INFO);
    let dispatch = Dispatch::new(Registry::default().with(world.astracer.layer.clone()).with(filter));
    tracing::dispatcher::with_default(&dispatch, || {
        let _root = info_span!(target: "mine", "root").entered();
        for _ in 0..10 {
            assert!(info_span!(target: "theirs", "x").is_disabled());
        }
        assert!(!tracing::span_enabled!(target: "theirs", Level::INFO));
    });
    assert_eq!(world.handle.stats().refusals, 0);
}

/// Roots that found no slot are counted by their weights, so that an estimate from the exported
/// spans can add them.
#[test]
fn calls_of_roots_beyond_the_budget_are_counted() {
    for start in [Start::WhenUsed, Start::AtOnce] {
        let world = sampling("ratio:0.5", |builder| builder.with_open_bytes_max(40_000).with_start(start));
        world.run(|| {
            let open: Vec<Span> = (0..1_000).map(|_| info_span!("root")).collect();
            open.iter().for_each(|root| root.in_scope(|| ()));
        });
        let stats = world.handle.stats();
        assert!(stats.traces_lost.open_spans > 100, "{stats:?}");
        assert_eq!(stats.calls_lost, 2 * stats.traces_lost.open_spans, "{start:?}");
    }
}
