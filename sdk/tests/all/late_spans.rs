//! Spans that end after their trace has left its slot, at its maximum age or for lack of memory:
//! their bounds, and what is reported about them.

use std::time::Duration;

use astracer_samplers::Nanos;
use astracer_sdk::{OpenTelemetrySpanExt as _, ProvisionalMode, TailSpan, TailTrace};
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceState};
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::trace::SpanData;
use tracing::field::Empty;
use tracing::{Span, error, info_span, warn};

use crate::late::{check_sums, dropping, names, reason, request, tail};
use crate::late_ring::{all_leave, all_leave_but};
use crate::support::{TIMEOUT, World, one};

/// The number of spans missing from the root's trace, as the root reports it.
fn cut_by(root: &SpanData) -> i64 {
    let cut = root.attributes.iter().find(|of| of.key.as_str() == "sampling.spans_cut");
    match cut.map(|cut| &cut.value) {
        Some(opentelemetry::Value::I64(cut)) => *cut,
        _ => 0,
    }
}

fn root() -> Span {
    info_span!("GET /events")
}

/// Enters the root, and creates a child that ends inside.
fn step(root: &Span) {
    root.in_scope(|| info_span!("step").in_scope(|| ()));
}

/// A root stays open for so long that its trace was submitted to the policies, held, and given up.
/// Its error is seen, but none of the trace's spans is left.
#[test]
fn an_error_of_a_root_whose_trace_was_given_up_for_its_age_is_missed() {
    let world = dropping(tail("error()"));
    tracing::dispatcher::with_default(&world.dispatch, || {
        let root = root();
        step(&root);
        all_leave(&world);
        world.clock.advance(Duration::from_secs(3));
        // The exporter's thread gives it up only when it has work.
        for _ in 0..1_000 {
            if world.handle.stats().tail.traces_given_up.unwanted
                + world.handle.stats().tail.spans_given_up.unwanted
                > 0
            {
                break;
            }
            assert!(world.handle.keep(request(false)));
            world.handle.flush(TIMEOUT).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        root.in_scope(|| error!("failed"));
    });
    let outcomes = world.handle.outcomes();
    let events = outcomes.iter().find(|of| of.key.as_deref() == Some("GET /events")).unwrap();
    assert_eq!((events.calls, events.errors, events.missed_errors), (1, 1, 1));
    check_sums(&world.handle);
}

/// A request hangs on one call for longer than the maximum age. No span has ended that policies
/// could examine, so the trace waits for the first one.
#[test]
fn a_trace_in_which_nothing_has_ended_is_not_given_up_for_its_age() {
    for fails in [false, true] {
        let world = dropping(tail(if fails { "error()" } else { "slow:1s()" }));
        let spans = world.run(|| {
            let root = root();
            let call = root.in_scope(|| info_span!("call"));
            call.in_scope(|| {
                if fails {
                    error!("failed");
                }
            });
            // This trace has a slot after the root's. So once it has left, the root's slot was
            // checked too.
            let other = info_span!("other");
            step(&other);
            all_leave_but(&world, 1);
            root.in_scope(|| drop(call));
        });
        let events: Vec<_> =
            spans.iter().filter(|span| matches!(&*span.name, "GET /events" | "call")).cloned().collect();
        assert_eq!(names(&events), ["GET /events", "call"], "{fails}");
        check_sums(&world.handle);
    }
}

/// Such waiting traces may take half of the slots. Those beyond leave at their age, and their roots
/// are late.
#[test]
fn traces_in_which_nothing_has_ended_leave_half_of_the_slots_to_others() {
    let world = crate::support::world(|builder| {
        let builder = builder.with_sampler("never".parse().unwrap()).with_tail(tail("error()"));
        builder.with_open_traces_max(16).with_explanations(100)
    });
    let ids: Vec<_> = tracing::dispatcher::with_default(&world.dispatch, || {
        let roots: Vec<_> = (0..11).map(|_| root()).collect();
        roots.iter().for_each(|root| root.in_scope(|| ()));
        assert_eq!(world.handle.stats().tail.traces_open, 11);
        all_leave_but(&world, 8);
        let ids = roots.iter().map(|root| root.context().span().span_context().trace_id()).collect();
        drop(roots);
        assert_eq!(world.handle.stats().tail.traces_given_up.late, 3);
        ids
    });
    let late = "given up: its spans were late or too many";
    let whys = ids.iter().map(|id| world.handle.why(*id).unwrap().late);
    assert_eq!(whys.filter(|why| why.as_deref() == Some(late)).count(), 3);
    check_sums(&world.handle);
}

/// If the policies have examined the trace, their result is reported too.
#[test]
fn a_trace_that_ends_after_the_shutdown_says_so() {
    let world = crate::support::world(|builder| {
        let builder = builder.with_sampler("never".parse().unwrap()).with_tail(tail("error()"));
        builder.with_explanations(100)
    });
    let whys = tracing::dispatcher::with_default(&world.dispatch, || {
        let roots = [root(), root()];
        roots[0].in_scope(|| ());
        step(&roots[1]);
        let ids = roots.each_ref().map(|root| root.context().span().span_context().trace_id());
        world.handle.shutdown(TIMEOUT).unwrap();
        drop(roots);
        ids.map(|id| world.handle.why(id).unwrap().late)
    });
    let reason = "given up: the service was shut down";
    assert_eq!(whys, [reason.to_owned(), format!("no policy wanted it; {reason}")].map(Some));
    check_sums(&world.handle);
}

/// The same as for a root that ends: after an idle time there are no recent durations by which it
/// could be slow.
#[test]
fn a_trace_is_not_slow_at_its_age_by_durations_of_hours_ago() {
    for (rest, is_kept) in [(60, true), (7_200, false)] {
        let world = dropping(tail("slow:p90()"));
        tracing::dispatcher::with_default(&world.dispatch, || {
            (0..255).for_each(|_| root().in_scope(|| world.clock.advance(Duration::from_millis(10))));
            world.clock.advance(Duration::from_secs(rest));
            let root = root();
            step(&root);
            all_leave(&world);
            assert_eq!(world.handle.stats().tail.policies[0].kept, u64::from(is_kept), "{rest} s");
        });
        check_sums(&world.handle);
    }
}

/// A root that ends while its aged trace is held completes the trace. The policies examine it
/// again, with the root's attributes and duration.
#[test]
fn a_root_that_ends_late_puts_its_trace_to_the_policies_again() {
    for policy in ["attr:status>=500()", "slow:90s()", "own:whole()"] {
        let world = crate::support::world(|builder| {
            let tail = tail(policy).with_hold(Nanos::from_secs(120));
            let whole = |trace: &TailTrace<'_>| {
                let is_whole =
                    |span: &TailSpan<'_>| span.name() == "GET /events" && span.duration() == trace.duration();
                trace.spans().any(|span| is_whole(&span))
            };
            builder.with_sampler("never".parse().unwrap()).with_tail(tail).with_own_policy("whole", whole)
        });
        let spans = world.run(|| {
            let root = info_span!("GET /events", status = Empty);
            step(&root);
            all_leave(&world);
            world.clock.advance(Duration::from_secs(69));
            root.in_scope(|| root.record("status", 500));
        });
        let events = one(&spans, "GET /events").span_context.trace_id();
        let kept: Vec<_> =
            spans.iter().filter(|span| span.span_context.trace_id() == events).cloned().collect();
        assert_eq!(names(&kept), ["GET /events", "step"], "{policy}");
        let outcomes = world.handle.outcomes();
        let events = outcomes.iter().find(|of| of.key.as_deref() == Some("GET /events")).unwrap();
        assert_eq!(events.exemplars[0].duration, Nanos::from_secs(100), "{policy}");
        check_sums(&world.handle);
    }
}

/// An error arms its key even while the root is open: in a trace that leaves at its maximum age,
/// and in a span that ends after that.
#[test]
fn an_error_in_a_trace_whose_root_is_open_arms_its_key() {
    for is_late in [false, true] {
        let tail = tail("error()").with_provisional(ProvisionalMode::Armed);
        let world = dropping(tail.with_provisional_of("GET /cart", ProvisionalMode::Always));
        let spans = world.run(|| {
            let long = root();
            let fails = || long.in_scope(|| info_span!("fails").in_scope(|| error!("failed")));
            if is_late {
                step(&long);
            } else {
                fails();
            }
            all_leave(&world);
            // The first sixteen roots of a key are always recorded.
            (0..15).for_each(|_| root().in_scope(|| ()));
            if is_late {
                fails();
            }
            root().in_scope(|| error!("failed"));
        });
        let roots = spans.iter().filter(|span| span.name == "GET /events").count();
        assert_eq!(roots, 2, "{is_late}");
        check_sums(&world.handle);
    }
}

/// Spans that follow a kept trace are a part of it, and use the rest of its policy's budget.
#[test]
fn spans_that_follow_a_trace_that_was_kept_are_within_its_budget() {
    let world = dropping(tail("error(bytes=1000,bytes_burst=10000)"));
    tracing::dispatcher::with_default(&world.dispatch, || {
        let root = root();
        root.in_scope(|| info_span!("fails").in_scope(|| error!("failed")));
        all_leave(&world);
        (0..5_000).for_each(|_| step(&root));
        drop(root);
    });
    let spans = world.exported();
    let steps = spans.iter().filter(|span| span.name == "step").count();
    // A record takes about 80 bytes.
    assert!((50..200).contains(&steps), "{steps} of 10 kB");
    let stats = world.handle.stats();
    assert!(stats.tail.policies[0].kept_bytes <= 10_000, "{:?}", stats.tail.policies);
    assert_eq!(stats.tail.spans_given_up.refused, 5_000 - steps as u64, "{stats:?}");
    assert_eq!(cut_by(one(&spans, "GET /events")), 5_000 - steps as i64, "the exported root has the number");
    check_sums(&world.handle);
}

/// The bound on spans per trace includes those that follow, whatever kept the trace.
#[test]
fn spans_that_follow_a_trace_that_was_kept_are_cut_at_its_limit() {
    let world = dropping(tail("error"));
    tracing::dispatcher::with_default(&world.dispatch, || {
        let root = root();
        (0..10).for_each(|_| step(&root));
        let trace_id = root.context().span().span_context().trace_id();
        all_leave(&world);
        assert!(world.handle.keep(trace_id));
        (0..12_000).for_each(|_| step(&root));
        drop(root);
    });
    let spans = world.exported();
    assert_eq!(spans.iter().filter(|span| span.name == "step").count(), 10_000);
    assert_eq!(cut_by(one(&spans, "GET /events")), 2_010);
    assert_eq!(world.handle.stats().tail.spans_given_up.cut, 2_010);
    check_sums(&world.handle);
}

/// Two roots of one trace, both open at their maximum age, and each with an ended child.
fn two_parts(trace_id: u128) -> [Span; 2] {
    let trace_id = TraceId::from(trace_id);
    let parent =
        SpanContext::new(trace_id, SpanId::from(1), TraceFlags::default(), true, TraceState::default());
    let _remote = Context::new().with_remote_span_context(parent).attach();
    let parts = [info_span!("first"), info_span!("second")];
    parts[0].in_scope(|| info_span!("early of first").in_scope(|| ()));
    parts[1].in_scope(|| info_span!("early of second").in_scope(|| ()));
    parts
}

/// One part of a trace was kept, and another is held. A span that ends late below the held part
/// joins it, and keeps it whole.
#[test]
fn a_late_child_that_fails_brings_its_own_part_of_a_trace_that_was_kept() {
    let world = dropping(tail("error"));
    let spans = world.run(|| {
        let [first, second] = two_parts(7);
        first.in_scope(|| info_span!("fails").in_scope(|| error!("failed")));
        all_leave(&world);
        second.in_scope(|| info_span!("fails").in_scope(|| error!("failed")));
    });
    let mut kept: Vec<_> =
        spans.iter().filter(|span| span.span_context.trace_id() == TraceId::from(7)).cloned().collect();
    kept.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(names(&kept), ["early of first", "early of second", "fails", "fails", "first", "second"]);
    check_sums(&world.handle);
}

/// Both parts were kept, by policies with different budgets. A late child follows its own part,
/// with that part's reason and budget.
#[test]
fn a_late_child_follows_the_part_that_it_is_of() {
    let world = dropping(tail("error(bytes=1000,bytes_burst=10000),slow:1s()"));
    let spans = world.run(|| {
        let [first, second] = two_parts(7);
        first.in_scope(|| info_span!("fails").in_scope(|| error!("failed")));
        all_leave(&world);
        (0..500).for_each(|_| step(&first));
        second.in_scope(|| info_span!("late of second").in_scope(|| ()));
        drop(first);
        drop(second);
    });
    let reasons = |name: &str| -> Vec<_> {
        spans.iter().filter(|span| span.name == name).map(|span| reason(span).unwrap()).collect()
    };
    let steps = reasons("step");
    assert!((50..200).contains(&steps.len()), "{} of 10 kB", steps.len());
    assert!(steps.iter().all(|reason| reason == "error"), "{steps:?}");
    assert_eq!(
        [reasons("first"), reasons("late of second"), reasons("second")].concat(),
        ["error", "slow", "slow"]
    );
    assert_eq!(cut_by(one(&spans, "first")), 500 - steps.len() as i64);
    assert_eq!(cut_by(one(&spans, "second")), 0);
    check_sums(&world.handle);
}

/// Both parts are held. A late child joins its own.
#[test]
fn a_late_child_that_fails_brings_the_part_that_it_is_of() {
    for fails in 0..2 {
        let world = dropping(tail("error(traces=1,burst=1)"));
        let spans = world.run(|| {
            let parts = two_parts(7);
            all_leave(&world);
            parts[fails].in_scope(|| info_span!("fails").in_scope(|| error!("failed")));
            drop(parts);
        });
        let of_trace = |span: &&SpanData| span.span_context.trace_id() == TraceId::from(7);
        let kept: Vec<_> = spans.iter().filter(of_trace).cloned().collect();
        let expected = [["early of first", "fails", "first"], ["early of second", "fails", "second"]];
        assert_eq!(names(&kept), expected[fails]);
        check_sums(&world.handle);
    }
}

/// A warning that no policy matches does not raise a trace's priority: a failed trace is not
/// evicted in its favour.
#[test]
fn warnings_that_no_policy_wants_do_not_raise_the_rank() {
    for (policies, outlives) in [("error", true), ("error:warn()", false)] {
        let world = dropping(tail(policies).with_ring_bytes(64 << 10));
        let spans = world.run(|| {
            let warned: Vec<_> = (0..100).map(|_| info_span!("warned")).collect();
            let failing = info_span!("failing");
            let fill = |root: &Span, spans: usize| (0..spans).for_each(|_| step(root));
            warned.iter().for_each(|root| root.in_scope(|| info_span!("warns").in_scope(|| warn!("odd"))));
            warned.iter().for_each(|root| fill(root, 10));
            failing.in_scope(|| info_span!("fails").in_scope(|| error!("failed")));
            warned.iter().for_each(|root| fill(root, 10));
            fill(&failing, 40);
            drop(failing);
            drop(warned);
        });
        let failing = one(&spans, "failing").span_context.trace_id();
        let whole = spans.iter().filter(|span| span.span_context.trace_id() == failing).count();
        assert_eq!(whole == 42, outlives, "{policies}: {whole} spans");
        check_sums(&world.handle);
    }
}

/// Fills a small ring with the traces of ten failed roots, for which the policy has no budget left,
/// and with as many ordinary ones as it takes. All are open.
fn fill_the_ring(world: &World) -> [Vec<Span>; 2] {
    request(true);
    let failing: Vec<_> = (0..10).map(|_| root()).collect();
    failing.iter().for_each(|root| root.in_scope(|| info_span!("fails").in_scope(|| error!("failed"))));
    let ordinary: Vec<_> = (0..1_000).map(|_| root()).collect();
    ordinary.iter().for_each(step);
    let stats = world.handle.stats().tail;
    assert!(stats.spans_given_up.ring_full > 0, "the ring is full: {stats:?}");
    [failing, ordinary]
}

/// A trace that will not be held needs no memory in the ring at its end, so no other trace is
/// evicted.
#[test]
fn a_trace_given_up_at_once_evicts_no_other() {
    let tail = tail("error(traces=0.001,burst=1)").with_ring_bytes(64 << 10).with_hold(Nanos::ZERO);
    let world = dropping(tail);
    tracing::dispatcher::with_default(&world.dispatch, || {
        let [failing, ordinary] = fill_the_ring(&world);
        let before = world.handle.stats().tail;
        drop(failing);
        let after = world.handle.stats().tail;
        assert_eq!(after.spans_given_up.ring_full, before.spans_given_up.ring_full);
        assert_eq!(after.traces_given_up.refused, 10, "{after:?}");
        drop(ordinary);
    });
    check_sums(&world.handle);
}

/// Traces that the shutdown submits to the policies are not held, so they do not evict the traces
/// after them.
#[test]
fn the_shutdown_evicts_no_trace_for_another() {
    let tail = tail("error(traces=0.001,burst=1)").with_ring_bytes(64 << 10);
    let world = dropping(tail);
    tracing::dispatcher::with_default(&world.dispatch, || {
        let open = fill_the_ring(&world);
        let before = world.handle.stats().tail;
        world.handle.shutdown(TIMEOUT).unwrap();
        let after = world.handle.stats().tail;
        assert_eq!(after.spans_given_up.ring_full, before.spans_given_up.ring_full, "{after:?}");
        drop(open);
    });
    check_sums(&world.handle);
}
