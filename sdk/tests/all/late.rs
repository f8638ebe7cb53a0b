//! Late keeping: traces that the sampler dropped are recorded, and kept for their outcome.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use astracer_sdk::{Builder, KeyOutcomes, OpenTelemetrySpanExt as _, ProvisionalMode, Tail};
pub(crate) use astracer_testing::{
    all_leave, all_leave_but, attribute, cut_by, fails, named, names, part_of, reason, request, requests,
    steps, tail, wait_with_work,
};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, TraceId, Value};
use tracing::{Span, error, info_span, warn};

use crate::support::{TIMEOUT, World, one, sampling};

/// A world whose sampler drops everything.
pub(crate) fn dropping(tail: Tail) -> World {
    late(tail, |builder| builder)
}

/// The same with other settings.
pub(crate) fn late(tail: Tail, change: impl FnOnce(Builder) -> Builder) -> World {
    sampling("never", |builder| change(builder.with_tail(tail)))
}

/// With a ring of 64 KiB.
pub(crate) fn small_ring(policies: &str) -> World {
    dropping(tail(policies).with_ring_bytes(64 << 10))
}

/// The trace id of a root.
pub(crate) fn trace_of(root: &Span) -> TraceId {
    root.context().span().span_context().trace_id()
}

/// The outcomes of this key.
pub(crate) fn outcomes_of(world: &World, key: &str) -> KeyOutcomes {
    world.handle.outcomes().into_iter().find(|of| of.key.as_deref() == Some(key)).unwrap()
}

#[test]
fn an_error_below_a_dropped_root_is_kept_whole() {
    let world = dropping(tail("error"));
    let spans = world.run(|| {
        request(false);
        request(true);
    });
    assert_eq!(names(&spans), ["GET /cart", "query"]);
    let root = one(&spans, "GET /cart");
    assert_eq!(one(&spans, "query").parent_span_id, root.span_context.span_id());
    for span in &spans {
        assert_eq!(reason(span).as_deref(), Some("error"));
        assert!(!span.span_context.is_sampled(), "the head sampler dropped it");
        assert_eq!(attribute(span, "sampler.adjusted_count"), Some(&Value::F64(1.0)), "every error is kept");
    }
    let stats = world.handle.stats();
    assert_eq!((stats.tail.traces_held, stats.tail.spans_held, stats.traces_exported), (1, 2, 1));
    assert_eq!((stats.roots_dropped, stats.roots_kept), (2, 0));
    assert_eq!((stats.tail.policies[0].kept, stats.tail.policies[0].refused), (1, 0));
}

/// A parent's threshold explains why the trace was dropped. It is not a weight of the trace that is
/// kept late: that was certain to be kept.
#[test]
fn a_trace_that_is_kept_late_does_not_have_its_parents_threshold() {
    let world = dropping(tail("error"));
    let propagator = world.astracer.propagator();
    let received: HashMap<String, String> = [
        // The randomness is 0, below the threshold.
        ("traceparent".to_owned(), format!("00-{:032x}-00000000000000aa-02", 1u128 << 100)),
        ("tracestate".to_owned(), "ot=th:c,other=1".to_owned()),
    ]
    .into();
    let spans = world.run(|| {
        let _remote = propagator.extract_with_context(&Context::new(), &received).attach();
        let mut sent = HashMap::new();
        info_span!("root").in_scope(|| {
            error!("failed");
            propagator.inject_context(&Context::current(), &mut sent);
        });
        assert_eq!(sent["tracestate"], "ot=th:c,other=1", "propagated headers do not change");
    });
    assert_eq!(one(&spans, "root").span_context.trace_state().header(), "ot=th:0,other=1");
}

/// Our attributes replace the service's own of the same names; with both exported, a backend might
/// show either.
#[test]
fn a_trace_that_is_kept_late_has_each_of_its_attributes_once() {
    let world = dropping(tail("error"));
    let spans = world.run(|| {
        let root = info_span!("root", sampling.reason = "lottery", sampler.adjusted_count = 8.0);
        root.in_scope(|| error!("failed"));
    });
    let own = spans[0].attributes.iter().filter(|of| of.key.as_str().starts_with("sampl"));
    let mut own: Vec<_> = own.map(|of| format!("{}={}", of.key, of.value)).collect();
    own.sort();
    assert_eq!(own, ["sampler.adjusted_count=1", "sampling.reason=error"]);
}

#[test]
fn errors_of_every_kind_are_seen() {
    type Case = (&'static str, fn());
    let cases: [Case; 8] = [
        ("an event", || info_span!("root").in_scope(|| error!("failed"))),
        ("an event of a child that was left", || {
            let root = info_span!("root").entered();
            let child = info_span!("child");
            child.in_scope(|| ());
            error!(parent: &child, "failed");
            drop((child, root));
        }),
        ("a status", || drop(info_span!("root", otel.status_code = "ERROR").entered())),
        ("a field", || drop(info_span!("root", error = true).entered())),
        ("a status by the extension trait", || {
            let root = info_span!("root").entered();
            root.set_status(opentelemetry::trace::Status::error("refused"));
        }),
        ("a panic", || {
            let panicked = catch_unwind(|| {
                let _root = info_span!("root").entered();
                let _child = info_span!("child").entered();
                std::panic::resume_unwind(Box::new("refused"));
            });
            assert!(panicked.is_err());
        }),
        ("a panic that drops a child", || {
            let panicked = catch_unwind(|| {
                let _root = info_span!("root").entered();
                let _never_entered = info_span!("child");
                std::panic::resume_unwind(Box::new("refused"));
            });
            assert!(panicked.is_err());
        }),
        ("a panic through a span that is entered again", || {
            let root = info_span!("root");
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                root.in_scope(|| std::panic::resume_unwind(Box::new("refused")));
            }));
            assert!(panicked.is_err());
            root.in_scope(|| ());
        }),
    ];
    for (case, run) in cases {
        // If the trace is recorded, it is kept. Otherwise the error is seen, and counted as missed.
        for provisional in [ProvisionalMode::Always, ProvisionalMode::Never] {
            let world = dropping(tail("error").with_provisional(provisional));
            let spans = world.run(run);
            let is_recorded = provisional == ProvisionalMode::Always;
            assert_eq!(!spans.is_empty(), is_recorded, "{case}");
            let outcomes = &world.handle.outcomes()[0];
            let missed = u64::from(!is_recorded);
            // Once the root is dropped, calls that name a span only by its id are ignored.
            let is_by_id =
                matches!(case, "a status by the extension trait" | "an event of a child that was left");
            let is_seen = is_recorded || !is_by_id;
            assert_eq!((outcomes.calls, outcomes.errors), (1, u64::from(is_seen)), "{case}, {provisional}");
            assert_eq!(outcomes.missed_errors, missed * u64::from(is_seen), "{case}, {provisional}");
        }
    }
}

#[test]
fn warnings_and_attributes_and_shapes_and_durations_are_reasons() {
    let world = dropping(tail("error:warn,attr:http.response.status_code>=500,slow:1s,odd()"));
    let mut reasons = Vec::new();
    let mut run = |f: &dyn Fn()| {
        world.inside(f);
        world.handle.flush(TIMEOUT).unwrap();
        reasons.push(world.collector.take().first().and_then(reason).unwrap_or_default());
    };
    run(&|| requests(1, false));
    run(&|| requests(1, false));
    run(&|| info_span!("GET /cart").in_scope(|| warn!("slow disk")));
    run(&|| {
        let span = info_span!("GET /cart", http.response.status_code = tracing::field::Empty).entered();
        span.record("http.response.status_code", 503);
    });
    run(&|| {
        let _root = info_span!("GET /cart").entered();
        let _query = info_span!("query").entered();
        world.clock.advance(Duration::from_millis(1_001));
    });
    // Two queries have the same shape as one; a query below a query has another.
    run(&|| {
        let _root = info_span!("GET /cart").entered();
        info_span!("query").in_scope(|| ());
        info_span!("query").in_scope(|| ());
    });
    run(&|| {
        let _root = info_span!("GET /cart").entered();
        let _query = info_span!("query").entered();
        info_span!("query").in_scope(|| ());
    });
    assert_eq!(reasons, ["odd", "", "error", "attribute", "slow", "", "odd"]);
}

/// `Handle::why` names the policy that matched a trace and its budget, and the reason why a trace
/// is gone.
#[test]
fn what_is_given_up_is_explained() {
    let tail = tail("error(traces=1,burst=1)").with_ring_bytes(64 << 10);
    let world = late(tail, |builder| builder.with_explanations(10_000));
    let why = |trace_id: &TraceId| world.handle.why(*trace_id).unwrap().late.unwrap_or_default();
    world.inside(|| {
        let [kept, refused] = [request(true), request(true)];
        assert_eq!(why(&kept), "kept late by the policy error (traces=1,burst=1)");
        let bytes = world.handle.stats().tail.ring_bytes;
        let held = format!("held in the ring ({bytes} of 65536 bytes used)");
        let used_up = "the policy error (traces=1,burst=1) wanted it, but had no budget left";
        assert_eq!(why(&refused), format!("{used_up}; {held}, marked for an error or warning"));
        let fine = request(false);
        assert!(why(&fine).starts_with("no policy wanted it; held in the ring"), "{}", why(&fine));
        // Far more traces than the ring holds, and later ones.
        world.clock.advance(Duration::from_millis(1));
        requests(500, false);
        assert_eq!(why(&fine), "no policy wanted it; given up: the ring of 65536 bytes was full");
        world.clock.advance(Duration::from_secs(3));
        requests(500, false);
        assert_eq!(why(&refused), format!("{used_up}; given up: not requested while it was held"));
        world.clock.advance(Duration::from_millis(1));
        let last = request(false);
        let open = info_span!("open");
        open.in_scope(|| info_span!("step").in_scope(|| ()));
        world.handle.shutdown(TIMEOUT).unwrap();
        drop(open);
        assert_eq!(why(&last), "no policy wanted it; given up: the service was shut down");
    });
}

/// An open trace that is evicted for others has that reason.
#[test]
fn an_open_trace_that_is_given_up_is_explained() {
    let tail = tail("error").with_ring_bytes(64 << 10);
    let world = late(tail, |builder| builder.with_explanations(1_000));
    world.inside(|| {
        let large = "x".repeat(1_000);
        let open: Vec<_> = (0..100).map(|_| info_span!("open")).collect();
        open.iter().for_each(|root| root.in_scope(|| info_span!("step", large).in_scope(|| ())));
        let ids: Vec<_> = open.iter().map(trace_of).collect();
        drop(open);
        let given_up = "given up: the ring of 65536 bytes was full";
        let late = ids.iter().filter_map(|trace_id| world.handle.why(*trace_id).unwrap().late);
        let late: Vec<_> = late.filter(|late| late.ends_with(given_up)).collect();
        assert_eq!(late.len() as u64, world.handle.stats().tail.traces_given_up.ring_full);
        assert!(
            late.iter().filter(|late| *late == given_up).count() > 30,
            "evicted while open: no policy was asked"
        );
    });
}

#[test]
fn stats_name_policies_budgets_and_the_ring() {
    let world = small_ring("error(traces=1,burst=1),slow:p99()");
    world.inside(|| {
        requests(3, true);
        let held = request(false);
        assert!(world.handle.keep(held));
        world.clock.advance(Duration::from_secs(3));
        requests(100, false);
    });
    world.handle.flush(TIMEOUT).unwrap();
    let stats = world.handle.stats();
    let budgets: Vec<_> = stats.tail.policies.iter().map(|policy| &*policy.budget).collect();
    assert_eq!(budgets, ["traces=1,burst=1", ""]);
    let bytes = stats.tail.ring_bytes;
    let late = format!(
        "2 traces kept late (error: 1 kept, 2 refused by its budget traces=1,burst=1; slow:p99: 0 kept; by hand: 1 kept), 100 \
         held, 2 given up (refused 2); ring {bytes} of 65536 bytes"
    );
    assert!(stats.to_string().ends_with(&late), "{stats}\n{late}");
}

/// A key's byte cap applies to the head sampler's traces only. Traces kept late have the budget of
/// their policy.
#[test]
fn a_key_s_cap_on_bytes_leaves_what_is_kept_late_alone() {
    let cap = "key_bytes=1,key_bytes_burst=1".parse().unwrap();
    let world = late(tail("error"), |builder| builder.with_cap(cap));
    let spans = world.run(|| {
        for _ in 0..5 {
            info_span!("root").in_scope(|| error!("wrong"));
        }
    });
    assert_eq!(spans.len(), 5);
    assert_eq!(world.handle.stats().spans_lost.capped, 0);
}
