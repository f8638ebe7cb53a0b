//! Late keeping if everything fails, is open, is huge, or blocks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use astracer_sdk::{Handle, Key, OpenTelemetrySpanExt as _, Start, Tail};
use opentelemetry::trace::Status;
use tracing::{Span, error, info_span};

use crate::late::{check_sums, dropping, names, reason, request, requests, tail};
use crate::support::{TIMEOUT, one, world};

/// The budget of a policy holds even if every request fails.
#[test]
fn the_budget_holds_when_everything_fails() {
    let world = dropping(tail("error(traces=10,burst=5)"));
    let spans = world.run(|| {
        for _ in 0..20_000 {
            world.clock.advance(Duration::from_millis(1));
            request(true);
        }
    });
    let roots = spans.iter().filter(|span| span.name == "GET /cart").count();
    // 5 + 10 per second, for 20 seconds.
    assert!((195..=205).contains(&roots), "{roots}");
    let stats = world.handle.stats();
    assert_eq!(stats.tail.policies[0].kept + stats.tail.policies[0].refused, 20_000);
    assert!(stats.tail.traces_given_up.refused > 15_000);
    check_sums(&world.handle);
}

/// The ring is bounded, and traces with an error are evicted last.
#[test]
fn a_small_ring_gives_up_ordinary_traces_first() {
    let world = dropping(tail("error(traces=1,burst=1)").with_ring_bytes(64 << 10));
    let mut marked = Vec::new();
    tracing::dispatcher::with_default(&world.dispatch, || {
        // The first one uses up the budget. The others are refused and held.
        (0..20).for_each(|_| marked.push(request(true)));
        requests(2_000, false);
        for trace_id in &marked[1..] {
            assert!(world.handle.keep(*trace_id), "marked traces stay in the ring");
        }
    });
    let stats = world.handle.stats();
    assert!(stats.tail.ring_bytes <= 64 << 10, "{stats:?}");
    // With 32-bit words, more traces fit.
    let least = if cfg!(target_pointer_width = "64") { 1_900 } else { 1_800 };
    assert!(stats.tail.traces_given_up.ring_full > least, "{stats:?}");
    check_sums(&world.handle);
}

/// An open trace with an error stays when other open traces are evicted.
#[test]
fn an_open_trace_that_failed_outlives_ordinary_ones() {
    let world = dropping(tail("error").with_ring_bytes(64 << 10));
    let spans = world.run(|| {
        let ordinary: Vec<_> = (0..100).map(|_| info_span!("ordinary")).collect();
        let failing = info_span!("failing");
        let fill = |root: &tracing::Span, spans: usize| {
            (0..spans).for_each(|_| root.in_scope(|| info_span!("step").in_scope(|| ())));
        };
        ordinary.iter().for_each(|root| fill(root, 10));
        failing.in_scope(|| info_span!("step").in_scope(|| error!("failed")));
        ordinary.iter().for_each(|root| fill(root, 10));
        fill(&failing, 20);
        drop(failing);
        drop(ordinary);
    });
    assert_eq!(spans.iter().filter(|span| reason(span).as_deref() == Some("error")).count(), 22);
    let stats = world.handle.stats();
    assert!(stats.tail.spans_given_up.ring_full > 500, "{stats:?}");
    check_sums(&world.handle);
}

/// An error among a span's first fields marks its trace at once, so that other traces are evicted
/// first.
#[test]
fn an_error_that_a_span_begins_with_marks_its_trace() {
    type Failing = fn() -> (Span, Option<Span>);
    let roots: [Failing; 3] = [
        || (info_span!("failing", error = true), None),
        || (info_span!("failing", otel.status_code = "ERROR"), None),
        || {
            let root = info_span!("failing");
            let child = root.in_scope(|| info_span!("child", error = true));
            (root, Some(child))
        },
    ];
    for start in [Start::AtOnce, Start::WhenUsed] {
        for (case, root) in roots.iter().enumerate() {
            let world = world(|builder| {
                let tail: Tail = tail("error").with_ring_bytes(64 << 10);
                builder.with_sampler("never".parse().unwrap()).with_tail(tail).with_start(start)
            });
            let spans = world.run(|| {
                let (failing, child) = root();
                child.iter().for_each(|child| child.in_scope(|| ()));
                let fill = |root: &Span, spans: usize| {
                    (0..spans).for_each(|_| root.in_scope(|| info_span!("step").in_scope(|| ())));
                };
                fill(&failing, 10);
                let ordinary: Vec<_> = (0..100).map(|_| info_span!("ordinary")).collect();
                ordinary.iter().for_each(|root| fill(root, 10));
                // Another failing trace grows, and evicts traces without an error.
                let other = info_span!("other");
                other.in_scope(|| info_span!("step").in_scope(|| error!("failed")));
                fill(&other, 150);
                drop((child, failing, other, ordinary));
            });
            let kept = spans.iter().filter(|span| span.name == "failing").count();
            assert_eq!(kept, 1, "{start:?}, {case}: {:?}", world.handle.stats());
            check_sums(&world.handle);
        }
    }
}

/// If a trace was evicted while open and fails later, the error counts as missed.
#[test]
fn errors_of_open_traces_that_were_given_up_are_missed() {
    let world = dropping(tail("error()").with_ring_bytes(64 << 10));
    let spans = world.run(|| {
        let roots: Vec<_> = (0..100).map(|_| info_span!("root")).collect();
        let fill = |root: &tracing::Span| {
            (0..20).for_each(|_| root.in_scope(|| info_span!("step").in_scope(|| ())));
        };
        roots.iter().for_each(fill);
        roots.iter().for_each(|root| root.in_scope(|| error!("failed")));
        drop(roots);
    });
    let kept = spans.iter().filter(|span| span.name == "root").count() as u64;
    let outcomes = &world.handle.outcomes()[0];
    assert!(0 < kept && kept < 90, "{kept}");
    assert_eq!((outcomes.errors, outcomes.missed_errors), (100, 100 - kept));
    check_sums(&world.handle);
}

/// If all open traces have errors and nothing else can be evicted, spans that do not fit are cut.
#[test]
fn open_traces_that_failed_share_the_ring() {
    let world = dropping(tail("error()").with_ring_bytes(64 << 10));
    let text = "x".repeat(4_000);
    let spans = world.run(|| {
        let roots: Vec<_> = (0..300).map(|_| info_span!("root")).collect();
        let fails = || info_span!("fails", text).in_scope(|| error!("failed"));
        roots.iter().for_each(|root| root.in_scope(fails));
        drop(roots);
    });
    let named = |name: &str| spans.iter().filter(|span| span.name == name).count();
    assert!((10..=16).contains(&named("fails")), "{} of 4 kB", named("fails"));
    assert_eq!(named("root"), 300, "each root has the number of missing spans");
    let cut = |span: &&opentelemetry_sdk::trace::SpanData| {
        span.attributes.iter().any(|of| of.key.as_str() == "sampling.spans_cut")
    };
    assert_eq!(spans.iter().filter(cut).count(), 300 - named("fails"));
    assert_eq!(world.handle.stats().tail.spans_given_up.ring_full, 300 - named("fails") as u64);
    check_sums(&world.handle);
}

#[test]
fn a_huge_trace_is_cut_and_says_so() {
    let world = dropping(tail("error(bytes=1e9,bytes_burst=1e9)"));
    let spans = world.run(|| {
        let _root = info_span!("root").entered();
        (0..1_000_000).for_each(|_| info_span!("step").in_scope(|| ()));
        error!("failed");
    });
    assert_eq!(spans.len(), 10_001);
    let cut =
        one(&spans, "root").attributes.iter().find(|of| of.key.as_str() == "sampling.spans_cut").unwrap();
    assert_eq!(cut.value, opentelemetry::Value::I64(990_000));
    assert_eq!(world.handle.stats().tail.spans_given_up.cut, 990_000);
    check_sums(&world.handle);
}

/// The ring may be larger than the queue, so a trace is cut to what the queue can hold.
#[test]
fn a_trace_that_is_kept_fits_into_the_queue() {
    let world = world(|builder| {
        let builder = builder.with_sampler("never".parse().unwrap()).with_queue_bytes_max(1 << 20);
        builder.with_tail(tail("error(bytes=1e9,bytes_burst=1e9)").with_ring_bytes(64 << 20))
    });
    tracing::dispatcher::with_default(&world.dispatch, || {
        let _root = info_span!("root").entered();
        (0..9_000).for_each(|_| info_span!("step", text = "x".repeat(500)).in_scope(|| ()));
        error!("failed");
    });
    let spans = world.exported();
    let stats = world.handle.stats();
    assert_eq!((stats.spans_lost.queue_full, stats.tail.policies[0].kept), (0, 1));
    assert_eq!(spans.len() as u64 + stats.tail.spans_given_up.cut, 9_001);
    // At most half of the queue, since lists double as they grow, and not much less than a
    // quarter.
    assert!(spans.len() > 300, "{}", spans.len());
    check_sums(&world.handle);
}

#[test]
fn ten_thousand_open_traces_are_recorded() {
    let world = dropping(tail("error").with_ring_bytes(256 << 20));
    let spans = world.run(|| {
        let open: Vec<_> = (0..13_000).map(|_| info_span!("root")).collect();
        open.iter().for_each(|root| root.in_scope(|| ()));
        assert_eq!(world.handle.stats().tail.traces_open, 12_288, "three quarters of all slots");
        error!(parent: &open[5], "failed");
        drop(open);
    });
    assert_eq!(spans.len(), 1);
    assert_eq!(world.handle.stats().tail.without_slot, 13_000 - 12_288);
    check_sums(&world.handle);
}

#[test]
fn a_function_that_panics_is_switched_off() {
    let world = world(|builder| {
        let builder = builder.with_sampler("never".parse().unwrap()).with_tail(tail("own:panics,error"));
        builder.with_own_policy("panics", |_| std::panic::resume_unwind(Box::new("refused")))
    });
    let spans = world.run(|| {
        requests(40, false);
        request(true);
    });
    assert_eq!(names(&spans), ["GET /cart", "query"], "the policies after it still apply");
    let faults = &world.handle.stats().tail.own_faults[0];
    assert_eq!((&*faults.name, faults.panics, faults.switched_off), ("panics", 16, true));
}

/// The function's time is measured by the service's clock. 10 ms are still allowed.
#[test]
fn a_function_that_takes_long_is_switched_off() {
    for (millis, slow) in [(10, 0), (11, 16)] {
        let world = std::sync::Arc::new(std::sync::OnceLock::<astracer_sdk::ManualClock>::new());
        let hand = world.clone();
        let world_of = crate::support::world(|builder| {
            let builder = builder.with_sampler("never".parse().unwrap()).with_tail(tail("own:slow"));
            builder.with_own_policy("slow", move |_| {
                hand.get().unwrap().advance(Duration::from_millis(millis));
                true
            })
        });
        world.set(world_of.clock.clone()).unwrap();
        let spans = world_of.run(|| requests(40, false));
        let faults = &world_of.handle.stats().tail.own_faults[0];
        assert_eq!((faults.slow, faults.panics, faults.switched_off), (slow, 0, slow > 0));
        // The default budget of a key is a burst of ten, and one per 100 ms.
        assert_eq!(spans.len(), 2 * if slow > 0 { 11 } else { 13 });
    }
}

#[test]
fn a_policy_without_its_function_is_refused() {
    let builder = astracer_sdk::Astracer::builder().with_tail("error,own:vip".parse().unwrap());
    let error = builder.build().unwrap_err();
    assert!(error.to_string().contains("with_own_policy(\"vip\""), "{error}");
}

/// A trace's reason is stored in a field that has values for this many policies.
#[test]
fn more_policies_than_there_may_be_are_refused() {
    let mut tail: Tail = ["slow:1h"; 64].join(",").parse().unwrap();
    let build = |tail: &Tail| astracer_sdk::Astracer::builder().with_tail(tail.clone()).build();
    assert!(build(&tail).is_ok());
    tail.rules.extend("error".parse::<Tail>().unwrap().rules);
    let error = build(&tail).err().unwrap();
    assert!(error.to_string().contains("65 policies given, but at most 64 are supported"), "{error}");
}

/// A function may take any time, so none is called after the deadline of a shutdown.
#[test]
fn no_function_is_asked_when_the_time_of_a_shutdown_is_over() {
    for (timeout, calls) in [(Duration::ZERO, 0), (TIMEOUT, 5)] {
        let asked = Arc::new(AtomicU64::new(0));
        let counts = asked.clone();
        let world = world(|builder| {
            let builder = builder.with_sampler("never".parse().unwrap()).with_tail(tail("own:asks,error"));
            builder.with_own_policy("asks", move |_| counts.fetch_add(1, Ordering::Relaxed) > 9)
        });
        tracing::dispatcher::with_default(&world.dispatch, || {
            let open: Vec<_> = (0..5).map(|_| info_span!("root")).collect();
            open.iter().for_each(|root| root.in_scope(|| info_span!("child").in_scope(|| ())));
            let _ = world.handle.shutdown(timeout);
        });
        assert_eq!(asked.load(Ordering::Relaxed), calls, "{timeout:?}");
        assert_eq!(world.handle.stats().tail.spans_given_up.shut_down, 10);
        check_sums(&world.handle);
    }
}

/// A shutdown exports open traces with an error, and counts the rest.
#[test]
fn a_shutdown_exports_what_is_marked() {
    let world = dropping(tail("error"));
    tracing::dispatcher::with_default(&world.dispatch, || {
        request(false);
        let failing = info_span!("failing");
        failing.in_scope(|| info_span!("step").in_scope(|| error!("failed")));
        let fine = info_span!("fine");
        fine.in_scope(|| info_span!("step").in_scope(|| ()));
        world.handle.shutdown(TIMEOUT).unwrap();
        drop((failing, fine));
    });
    assert_eq!(names(&world.collector.spans()), ["step"]);
    let stats = world.handle.stats();
    assert_eq!(stats.spans_exported, 1);
    assert_eq!((stats.tail.spans_held, stats.spans_open, stats.spans_waiting), (0, 0, 0));
    assert_eq!(stats.tail.spans_given_up.shut_down, 5);
    check_sums(&world.handle);
}

/// A key's function shuts the SDK down. Its root is dropped and recorded after the shutdown has
/// gone through the slots.
#[test]
fn a_root_that_is_decided_during_the_shutdown_leaves_its_slot() {
    let handle = Arc::new(OnceLock::<Handle>::new());
    let own = handle.clone();
    let world = world(|builder| {
        let builder = builder.with_sampler("never".parse().unwrap()).with_tail(tail("error"));
        builder.with_start(Start::AtOnce).with_key(Key::custom(move |_, key| {
            own.get().unwrap().shutdown(TIMEOUT).unwrap();
            key.push_str("key");
        }))
    });
    handle.set(world.handle.clone()).unwrap();
    tracing::dispatcher::with_default(&world.dispatch, || {
        request(true);
    });
    let stats = world.handle.stats();
    assert_eq!((stats.spans_made, stats.tail.traces_open, stats.tail.spans_given_up.shut_down), (1, 0, 1));
    check_sums(&world.handle);
}

/// Fields are formatted after the decision to record the root.
#[test]
fn a_root_whose_fields_panic_leaves_its_slot() {
    struct Panics;
    impl std::fmt::Display for Panics {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("not today")
        }
    }
    for start in [Start::AtOnce, Start::WhenUsed] {
        let world = world(|builder| {
            builder.with_sampler("never".parse().unwrap()).with_tail(tail("error")).with_start(start)
        });
        let begin = || tracing::dispatcher::with_default(&world.dispatch, || info_span!("root", n = %Panics));
        assert!(catch_unwind(AssertUnwindSafe(begin)).is_err());
        let stats = world.handle.stats();
        assert_eq!((stats.spans_made, stats.tail.traces_open), (0, 0), "{start:?}");
    }
}

/// An open child's error is marked in the slot that its trace has left, until another trace takes
/// the slot. Whether the root counted as failed depended on that.
#[test]
fn an_error_below_a_root_whose_trace_has_left_is_not_counted() {
    let world = dropping(tail("error"));
    tracing::dispatcher::with_default(&world.dispatch, || {
        let root = info_span!("root").entered();
        let child = info_span!("child").entered();
        child.set_status(Status::error("failed"));
        world.handle.shutdown(TIMEOUT).unwrap();
        drop(child);
        drop(root);
    });
    let outcome = &world.handle.outcomes()[0];
    assert_eq!((outcome.calls, outcome.errors), (1, 0), "{:?}", world.handle.stats());
    check_sums(&world.handle);
}
