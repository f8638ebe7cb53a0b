//! Outcomes of local roots with late keeping: which root an error counts for, how long a root took,
//! and what is reported.

use std::time::{Duration, SystemTime};

use astracer_sdk::{Builder, ContextMode, OpenTelemetrySpanExt as _, ProvisionalMode, SpanLimits, TailTrace};
use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt as _;
use tracing::field::Empty;
use tracing::{Span, error, info, info_span, warn};

use crate::late::{check_sums, dropping, names, request, requests, tail};
use crate::late_ring::all_leave;
use crate::support::{TIMEOUT, World, one, start, world};

/// A dropped root ends at its last exit, recorded or not, as a kept one does.
#[test]
fn a_root_takes_as_long_whatever_becomes_of_it() {
    for (sampler, provisional) in [
        ("always", ProvisionalMode::Never),
        ("never", ProvisionalMode::Never),
        ("never", ProvisionalMode::Always),
    ] {
        let world = world(|builder| {
            builder
                .with_sampler(sampler.parse().unwrap())
                .with_tail(tail("error").with_provisional(provisional))
        });
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

/// If code on the OpenTelemetry API ends a root with another time, that is its end for the policies
/// and the totals as in the exported span. This holds whether it was kept or dropped, and even if
/// its handle lives on.
#[test]
fn a_root_that_is_ended_by_hand_takes_until_then() {
    for sampler in ["always", "never"] {
        for (millis, is_slow) in [(900, true), (20, false)] {
            let world = world(|builder| {
                let tail = tail("slow:50ms,own:long").with_provisional(ProvisionalMode::Always);
                let long = |trace: &TailTrace<'_>| {
                    let root = trace.spans().find(|span| span.is_local_root()).unwrap();
                    assert_eq!(root.duration(), trace.duration());
                    false
                };
                builder.with_sampler(sampler.parse().unwrap()).with_tail(tail).with_own_policy("long", long)
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
        let world = world(|builder| {
            let tail = tail("error").with_provisional(ProvisionalMode::Always);
            builder.with_sampler(sampler.parse().unwrap()).with_tail(tail)
        });
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
        root.in_scope(|| info_span!("fails").in_scope(|| error!("failed")));
        all_leave(&world);
        world.clock.advance(Duration::from_secs(9));
        root.in_scope(|| ());
    });
    let outcomes = world.handle.outcomes();
    let events = outcomes.iter().find(|of| of.key.as_deref() == Some("GET /events")).unwrap();
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
        let full = |is_full: bool| {
            world(|builder| {
                let builder = builder.with_sampler(sampler.parse().unwrap()).with_tail(tail("error"));
                if is_full { builder.with_queue_bytes_max(0) } else { builder }
            })
        };
        let exemplars = |world: &World| world.handle.outcomes()[0].exemplars.len();
        let (shed, closed) = (full(true), full(false));
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
        |root| root.set_status(opentelemetry::trace::Status::error("refused")),
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
    let world = world(|builder| {
        let builder = builder.with_context_mode(ContextMode::Recording);
        builder.with_sampler("never".parse().unwrap()).with_tail(tail("error"))
    });
    let spans = world.run(|| {
        let root = info_span!("root");
        let child = root.in_scope(|| info_span!("child"));
        child.in_scope(|| {
            Context::current().span().set_status(opentelemetry::trace::Status::error("refused"));
        });
        // The child is open, so only the mark shows the error.
        drop(root);
        drop(child);
    });
    assert_eq!(names(&spans), ["child", "root"]);
}

/// The number of errors seen in a recorded trace of one root.
fn errors(change: impl FnOnce(Builder) -> Builder, root: impl FnOnce()) -> u64 {
    let world =
        world(|builder| change(builder.with_sampler("never".parse().unwrap()).with_tail(tail("error"))));
    let spans = world.run(root);
    check_sums(&world.handle);
    let errors = world.handle.outcomes()[0].errors;
    assert_eq!(!spans.is_empty(), errors > 0);
    errors
}

/// Errors are seen even if a limit keeps them out of the record, or the status is Ok.
#[test]
fn errors_that_are_not_recorded_are_seen() {
    let limited = |builder: Builder| {
        let mut limits = SpanLimits::default();
        (limits.attributes, limits.events) = (1, 1);
        builder.with_span_limits(limits)
    };
    let roots: [fn(); 5] = [
        || info_span!("root", n = 1, error = "refused").in_scope(|| ()),
        || {
            info_span!("root", n = 1, error = Empty).in_scope(|| {
                Span::current().record("error", "refused");
            })
        },
        || info_span!("root", n = 1).in_scope(|| Span::current().set_attribute("error", true)),
        || {
            let _root = info_span!("root", otel.status_code = "OK").entered();
            info!("fine");
            error!("failed");
        },
        || info_span!("root", n = 1, error = false).in_scope(|| info!("fine")),
    ];
    let seen = roots.map(|root| errors(limited, root));
    assert_eq!(seen, [1, 1, 1, 1, 0]);
}

#[test]
fn warnings_that_are_not_recorded_are_seen() {
    let world = world(|builder| {
        let builder = builder.with_sampler("never".parse().unwrap()).with_tail(tail("error:warn"));
        let mut limits = SpanLimits::default();
        limits.events = 1;
        builder.with_span_limits(limits)
    });
    let spans = world.run(|| {
        let _root = info_span!("root").entered();
        info!("fine");
        warn!("odd");
    });
    assert_eq!(names(&spans), ["root"]);
}
