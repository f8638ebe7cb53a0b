//! Outcomes of local roots with late keeping: which root an error counts for, how long a root took,
//! and what is reported.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use astracer_sdk::{
    ContextMode, Handle, Key, OpenTelemetrySpanExt as _, ProvisionalMode, SpanLimits, Start, TailTrace,
};
use opentelemetry::Context;
use opentelemetry::trace::{Status, TraceContextExt as _};
use tracing::field::{Empty, debug, display};
use tracing::{Span, error, info, info_span, warn};

use crate::late::{all_leave, dropping, fails, late, names, outcomes_of, request, requests, tail};
use crate::support::{TIMEOUT, World, one, start};

/// A dropped root ends at its last exit, recorded or not, as a kept one does.
#[test]
fn a_root_takes_as_long_whatever_becomes_of_it() {
    let (never, always) = (ProvisionalMode::Never, ProvisionalMode::Always);
    for (sampler, provisional) in [("always", never), ("never", never), ("never", always)] {
        let tail = tail("error").with_provisional(provisional);
        let world = late(tail, |builder| builder.with_sampler(sampler.parse().unwrap()));
        world.run(|| {
            let root = info_span!("root");
            root.in_scope(|| world.clock.advance(Duration::from_millis(3)));
            world.clock.advance(Duration::from_secs(5));
            drop(root);
        });
        let outcomes = world.handle.outcomes();
        assert_eq!(outcomes[0].durations.sum_seconds(), 0.003, "{sampler}, {provisional}");
    }
}

/// A span that was never entered, dropped while a panic unwinds, beside others of its trace.
#[test]
fn a_child_that_a_panic_drops_marks_its_trace() {
    let world = dropping(tail("error"));
    let spans = world.run(|| {
        let _root = info_span!("root").entered();
        (0..5).for_each(|_| info_span!("step").in_scope(|| ()));
        let panicked = catch_unwind(|| {
            let _child = info_span!("child");
            std::panic::resume_unwind(Box::new("refused"));
        });
        assert!(panicked.is_err());
    });
    assert_eq!(spans.len(), 7);
}

/// If code on the OpenTelemetry API ends a root with another time, that is its end for the policies
/// and the totals as in the exported span. This holds whether it was kept or dropped, and even if
/// its handle lives on.
#[test]
fn a_root_that_is_ended_by_hand_takes_until_then() {
    for sampler in ["always", "never"] {
        for (millis, is_slow) in [(900, true), (20, false)] {
            let long = |trace: &TailTrace<'_>| {
                let root = trace.spans().find(|span| span.is_local_root()).unwrap();
                assert_eq!(root.duration(), trace.duration());
                false
            };
            let world = late(tail("slow:50ms,own:long"), |builder| {
                builder.with_sampler(sampler.parse().unwrap()).with_own_policy("long", long)
            });
            let spans = world.run(|| {
                let root = info_span!("root");
                root.in_scope(|| world.clock.advance(Duration::from_millis(30)));
                root.context().span().end_with_timestamp(start() + Duration::from_millis(millis));
                world.clock.advance(Duration::from_millis(60));
                root.in_scope(|| ());
            });
            let outcomes = &world.handle.outcomes()[0];
            assert_eq!(outcomes.durations.sum_seconds(), millis as f64 / 1e3, "{sampler}");
            assert_eq!(spans.len(), usize::from(is_slow || sampler == "always"), "{sampler}, {millis} ms");
            for exemplar in &outcomes.exemplars {
                let ended = Duration::from_nanos(exemplar.unix_nanos);
                assert_eq!(SystemTime::UNIX_EPOCH + ended, spans[0].end_time, "{sampler}");
                assert_eq!(exemplar.duration.get(), millis * 1_000_000);
            }
            assert_eq!(outcomes.exemplars.len(), spans.len());
            let faults = world.handle.stats().tail.own_faults;
            assert!(faults.iter().all(|own| own.panics == 0), "{faults:?}");
        }
    }
}

/// OpenTelemetry, "End": what is recorded on a span after its end is ignored. So it does not count
/// as an error.
#[test]
fn an_error_after_an_end_by_hand_is_ignored() {
    for (sampler, exported) in [("always", 1), ("never", 0)] {
        let world = late(tail("error"), |builder| builder.with_sampler(sampler.parse().unwrap()));
        let spans = world.run(|| {
            let root = info_span!("root", error = Empty).entered();
            root.context().span().end();
            root.record("error", true);
            error!("after its end");
        });
        assert_eq!((spans.len(), world.handle.outcomes()[0].errors), (exported, 0), "{sampler}");
    }
}

/// A trace that was kept at its maximum age becomes an exemplar when its root follows. Until then
/// it has no duration.
#[test]
fn a_trace_that_was_kept_for_its_age_is_an_exemplar() {
    let world = dropping(tail("error()"));
    let spans = world.run(|| {
        let root = info_span!("GET /events");
        fails(&root);
        all_leave(&world);
        world.clock.advance(Duration::from_secs(9));
        root.in_scope(|| ());
    });
    let events = outcomes_of(&world, "GET /events");
    let root = &one(&spans, "GET /events").span_context;
    let expected =
        (u128::from_be_bytes(root.trace_id().to_bytes()), u64::from_be_bytes(root.span_id().to_bytes()));
    let found: Vec<_> =
        events.exemplars.iter().map(|of| (of.trace_id, of.span_id, of.duration.get())).collect();
    assert_eq!(found, [(expected.0, expected.1, 40_000_000_000)]);
}

/// An exemplar must lead to an exported trace, so a trace that the queue sheds is not one, nor is
/// one after the shutdown.
#[test]
fn a_trace_that_is_shed_is_no_exemplar() {
    for sampler in ["always", "never"] {
        let with_queue = |bytes| {
            let sampler = sampler.parse().unwrap();
            late(tail("error"), |builder| builder.with_sampler(sampler).with_queue_bytes_max(bytes))
        };
        let exemplars = |world: &World| world.handle.outcomes()[0].exemplars.len();
        let (shed, closed) = (with_queue(0), with_queue(32 << 20));
        shed.run(|| requests(1, true));
        assert_eq!((shed.handle.outcomes()[0].errors, exemplars(&shed)), (1, 0), "{sampler}");
        closed.run(|| {
            request(true);
            let late = info_span!("GET /cart").entered();
            error!("failed");
            closed.handle.shutdown(TIMEOUT).unwrap();
            drop(late);
        });
        assert_eq!((closed.handle.outcomes()[0].errors, exemplars(&closed)), (2, 1), "{sampler}");
    }
}

/// The decision waits because the root may still get a parent. If the root is dropped, an error
/// recorded meanwhile is discarded with its fields, and still counted.
#[test]
fn an_error_from_before_a_root_is_dropped_is_missed() {
    let early: [fn(&Span); 3] = [
        |root| _ = root.record("error", "refused"),
        |root| _ = root.record("otel.status_code", "ERROR"),
        |root| root.set_status(Status::error("refused")),
    ];
    for early in early {
        let world = dropping(tail("error").with_provisional(ProvisionalMode::Never));
        let spans = world.run(|| {
            let root = info_span!("root", error = Empty, otel.status_code = Empty);
            early(&root);
            root.in_scope(|| ());
        });
        assert!(spans.is_empty());
        let outcomes = &world.handle.outcomes()[0];
        assert_eq!((outcomes.calls, outcomes.errors, outcomes.missed_errors), (1, 1, 1));
    }
}

/// Code on the OpenTelemetry API marks a trace as the extension trait does.
#[test]
fn an_error_by_the_api_marks_an_open_trace() {
    let world = late(tail("error"), |builder| builder.with_context_mode(ContextMode::Recording));
    let spans = world.run(|| {
        let root = info_span!("root");
        let child = root.in_scope(|| info_span!("child"));
        child.in_scope(|| Context::current().span().set_status(Status::error("refused")));
        // The child is open, so only the mark shows the error.
        drop(root);
    });
    assert_eq!(names(&spans), ["child", "root"]);
}

/// Errors and warnings are seen even if a limit keeps them out of the record, or the status is Ok.
#[test]
fn errors_that_are_not_recorded_are_seen() {
    let mut limits = SpanLimits::default();
    (limits.attributes, limits.events) = (1, 1);
    let roots: [(fn(), [u64; 2]); 6] = [
        (|| info_span!("root", n = 1, error = "refused").in_scope(|| ()), [1, 1]),
        (
            || {
                info_span!("root", n = 1, error = Empty).in_scope(|| {
                    Span::current().record("error", "refused");
                });
            },
            [1, 1],
        ),
        (|| info_span!("root", n = 1).in_scope(|| Span::current().set_attribute("error", true)), [1, 1]),
        (
            || {
                info_span!("root", otel.status_code = "OK").in_scope(|| {
                    info!("fine");
                    error!("failed");
                })
            },
            [1, 1],
        ),
        (
            || {
                info_span!("root").in_scope(|| {
                    info!("fine");
                    warn!("odd");
                })
            },
            [0, 1],
        ),
        (|| info_span!("root", n = 1, error = false).in_scope(|| info!("fine")), [0, 0]),
    ];
    for (at, (root, kept)) in roots.iter().enumerate() {
        for (policy, kept) in ["error", "error:warn"].into_iter().zip(kept) {
            let world = late(tail(policy), |builder| builder.with_span_limits(limits));
            assert_eq!(world.run(root).len() as u64, *kept, "{at}, {policy}");
            assert_eq!(world.handle.outcomes()[0].errors, kept * u64::from(at != 4), "{at}, {policy}");
        }
    }
}

/// The same field values are errors in a recorded root, in an unrecorded one, and in a span below.
#[test]
fn a_field_says_the_same_whether_its_trace_is_recorded() {
    type Record = fn(&tracing::Span);
    let records: [(Record, bool); 19] = [
        (|span| _ = span.record("error", true), true),
        (|span| _ = span.record("error", false), false),
        (|span| _ = span.record("error", 1), true),
        (|span| _ = span.record("error", 0), false),
        (|span| _ = span.record("error", 0_u64), false),
        (|span| _ = span.record("error", 7_u64), true),
        (|span| _ = span.record("error", 0_i128), false),
        (|span| _ = span.record("error", 0.0), false),
        (|span| _ = span.record("error", 0.5), true),
        (|span| _ = span.record("error", ""), false),
        (|span| _ = span.record("error", "0"), false),
        (|span| _ = span.record("error", "false"), false),
        (|span| _ = span.record("error", "no route"), true),
        (|span| _ = span.record("error", display(false)), false),
        (|span| _ = span.record("error", display("timeout")), true),
        (|span| _ = span.record("otel.status_code", "error"), true),
        (|span| _ = span.record("otel.status_code", debug("OK")), false),
        (|span| _ = span.record("otel.status_code", debug("ERROR")), false),
        (|span| _ = span.record("otel.status_description", "no route"), true),
    ];
    for (at, (record, is_error)) in records.into_iter().enumerate() {
        for provisional in [ProvisionalMode::Never, ProvisionalMode::Always] {
            for is_below in [false, true] {
                let world = dropping(tail("error").with_provisional(provisional));
                world.run(|| {
                    let (code, text) = (Empty, Empty);
                    let span = || {
                        info_span!(
                            "span",
                            error = Empty,
                            otel.status_code = code,
                            otel.status_description = text
                        )
                    };
                    let root = span();
                    root.in_scope(|| if is_below { record(&span()) } else { record(&root) });
                });
                let errors = world.handle.outcomes()[0].errors;
                assert_eq!(errors, u64::from(is_error), "{at}, {provisional}, below: {is_below}");
            }
        }
    }
}

/// A key's function shuts the SDK down. Its root is dropped and recorded after the shutdown has
/// gone through the slots.
#[test]
fn a_root_that_is_decided_during_the_shutdown_leaves_its_slot() {
    let handle = Arc::new(OnceLock::<Handle>::new());
    let own = handle.clone();
    let world = late(tail("error"), |builder| {
        builder.with_start(Start::AtOnce).with_key(Key::custom(move |_, key| {
            own.get().unwrap().shutdown(TIMEOUT).unwrap();
            key.push_str("key");
        }))
    });
    handle.set(world.handle.clone()).unwrap();
    world.inside(|| {
        request(true);
    });
    let stats = world.handle.stats();
    assert_eq!((stats.spans_made, stats.tail.traces_open, stats.tail.spans_given_up.shut_down), (1, 0, 1));
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
        let world = late(tail("error"), |builder| builder.with_start(start));
        let begin = || world.inside(|| info_span!("root", n = %Panics));
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
    world.inside(|| {
        let root = info_span!("root").entered();
        let child = info_span!("child").entered();
        child.set_status(Status::error("failed"));
        world.handle.shutdown(TIMEOUT).unwrap();
        drop(child);
        drop(root);
    });
    let outcome = &world.handle.outcomes()[0];
    assert_eq!((outcome.calls, outcome.errors), (1, 0), "{:?}", world.handle.stats());
}

/// A world whose traces wait for their roots however long these take.
fn patient(policies: &str) -> World {
    late(tail(policies), |builder| builder.with_trace_age_max(Duration::from_secs(86_400)))
}

/// Roots that are exited now, and whose handles live on, like spans of connections and of tasks
/// that are still held. They end in the past: they reach the policies late, while time has
/// advanced for all others.
fn left(number: usize, inside: fn()) -> Vec<Span> {
    let roots: Vec<_> = (0..number).map(|_| info_span!("left")).collect();
    roots.iter().for_each(|root| root.in_scope(inside));
    roots
}

/// Their hold is over when they end; the hold of the others is not.
#[test]
fn a_root_that_was_left_long_ago_takes_no_time_from_others() {
    let world = patient("error");
    world.inside(|| {
        let left = left(50, || ());
        world.clock.advance(Duration::from_secs(10));
        let held: Vec<_> = (0..20).map(|_| request(false)).collect();
        drop(left);
        let found = held.iter().filter(|trace_id| world.handle.keep(**trace_id)).count();
        assert_eq!(found, 20, "their hold has just begun: {:?}", world.handle.stats().tail);
    });
}

/// The documented worst case applies to the time at which traces are kept, whenever their roots
/// ended.
#[test]
fn roots_that_were_left_long_ago_do_not_fill_a_budget_up() {
    let world = patient("error(traces=1,burst=2)");
    world.inside(|| {
        let left = left(100, || error!("failed"));
        world.clock.advance(Duration::from_secs(90));
        for root in left {
            requests(2, true);
            drop(root);
        }
    });
    let policy = &world.handle.stats().tail.policies[0];
    assert!(policy.kept <= 2, "{policy:?}: the burst is two, and no time has passed");
}

/// A threshold with enough calls stays, even if a root comes that was exited before those calls.
#[test]
fn a_root_that_was_left_long_ago_does_not_forget_durations() {
    let world = patient("slow:p99()");
    world.inside(|| {
        let root = || info_span!("root");
        let early = root();
        early.in_scope(|| ());
        world.clock.advance(Duration::from_secs(3_600));
        let usual = |micros: u64| root().in_scope(|| world.clock.advance(Duration::from_micros(micros)));
        (0..512).for_each(|call| usual(500 + call));
        // The first is a generation of its own. Thresholds are computed at the 512th and the 768th
        // call after it, among others.
        drop(early);
        (0..256).for_each(|call| usual(500 + call));
        usual(1_000_000);
    });
    let spans = world.exported();
    let durations = spans.iter().map(|span| span.end_time.duration_since(span.start_time).unwrap());
    assert_eq!(durations.max(), Some(Duration::from_secs(1)));
}
