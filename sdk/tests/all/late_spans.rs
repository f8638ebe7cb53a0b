//! Spans that end after their trace has left its slot, at its maximum age or for lack of memory:
//! their bounds, and what is reported about them.

use std::time::Duration;

use astracer_samplers::Nanos;
use astracer_sdk::{ProvisionalMode, TailSpan, TailTrace};
use opentelemetry::TraceId;
use opentelemetry_sdk::trace::SpanData;
use tracing::field::Empty;
use tracing::{Span, error, info_span};

use crate::late::{
    all_leave, all_leave_but, cut_by, dropping, fails, late, named, names, outcomes_of, part_of, reason,
    steps, tail, trace_of, wait_with_work,
};
use crate::support::{TIMEOUT, one};

fn root() -> Span {
    info_span!("GET /events")
}

/// A root stays open for so long that its trace was submitted to the policies, held, and given up.
/// Its error is seen, but none of the trace's spans is left.
#[test]
fn an_error_of_a_root_whose_trace_was_given_up_for_its_age_is_missed() {
    let world = dropping(tail("error()"));
    world.inside(|| {
        let root = root();
        steps(&root, 1);
        all_leave(&world);
        world.clock.advance(Duration::from_secs(3));
        wait_with_work(&world, |tail| tail.traces_given_up.unwanted + tail.spans_given_up.unwanted > 0);
        root.in_scope(|| error!("failed"));
    });
    let events = outcomes_of(&world, "GET /events");
    assert_eq!((events.calls, events.errors, events.missed_errors), (1, 1, 1));
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
            call.in_scope(|| fails.then(|| error!("failed")));
            // This trace has a slot after the root's. So once it has left, the root's slot was
            // checked too.
            let other = info_span!("other");
            steps(&other, 1);
            all_leave_but(&world, 1);
            root.in_scope(|| drop(call));
        });
        let events: Vec<_> =
            spans.iter().filter(|span| matches!(&*span.name, "GET /events" | "call")).cloned().collect();
        assert_eq!(names(&events), ["GET /events", "call"], "{fails}");
    }
}

/// Such waiting traces may take half of the slots. Those beyond leave at their age, and their roots
/// are late.
#[test]
fn traces_in_which_nothing_has_ended_leave_half_of_the_slots_to_others() {
    let world = late(tail("error()"), |builder| builder.with_open_traces_max(16).with_explanations(100));
    let ids: Vec<_> = world.inside(|| {
        let roots: Vec<_> = (0..11).map(|_| root()).collect();
        roots.iter().for_each(|root| root.in_scope(|| ()));
        assert_eq!(world.handle.stats().tail.traces_open, 11);
        all_leave_but(&world, 8);
        let ids = roots.iter().map(trace_of).collect();
        drop(roots);
        assert_eq!(world.handle.stats().tail.traces_given_up.late, 3);
        ids
    });
    let late = "given up: its spans were late or too many";
    let whys = ids.iter().map(|id| world.handle.why(*id).unwrap().late);
    assert_eq!(whys.filter(|why| why.as_deref() == Some(late)).count(), 3);
}

/// If the policies have examined the trace, their result is reported too.
#[test]
fn a_trace_that_ends_after_the_shutdown_says_so() {
    let world = late(tail("error()"), |builder| builder.with_explanations(100));
    let whys = world.inside(|| {
        let roots = [root(), root()];
        roots[0].in_scope(|| ());
        steps(&roots[1], 1);
        let ids = roots.each_ref().map(trace_of);
        world.handle.shutdown(TIMEOUT).unwrap();
        drop(roots);
        ids.map(|id| world.handle.why(id).unwrap().late)
    });
    let reason = "given up: the service was shut down";
    assert_eq!(whys, [reason.to_owned(), format!("no policy wanted it; {reason}")].map(Some));
}

/// The same as for a root that ends: after an idle time there are no recent durations by which it
/// could be slow.
#[test]
fn a_trace_is_not_slow_at_its_age_by_durations_of_hours_ago() {
    for (rest, is_kept) in [(60, true), (7_200, false)] {
        let world = dropping(tail("slow:p90()"));
        world.inside(|| {
            (0..255).for_each(|_| root().in_scope(|| world.clock.advance(Duration::from_millis(10))));
            world.clock.advance(Duration::from_secs(rest));
            let root = root();
            steps(&root, 1);
            all_leave(&world);
            assert_eq!(world.handle.stats().tail.policies[0].kept, u64::from(is_kept), "{rest} s");
        });
    }
}

/// A root that ends while its aged trace is held completes the trace. The policies examine it
/// again, with the root's attributes and duration.
#[test]
fn a_root_that_ends_late_puts_its_trace_to_the_policies_again() {
    for policy in ["attr:status>=500()", "slow:90s()", "own:whole()"] {
        let tail = tail(policy).with_hold(Nanos::from_secs(120));
        let whole = |trace: &TailTrace<'_>| {
            let is_whole =
                |span: &TailSpan<'_>| span.name() == "GET /events" && span.duration() == trace.duration();
            trace.spans().any(|span| is_whole(&span))
        };
        let world = late(tail, |builder| builder.with_own_policy("whole", whole));
        let spans = world.run(|| {
            let root = info_span!("GET /events", status = Empty);
            steps(&root, 1);
            all_leave(&world);
            world.clock.advance(Duration::from_secs(69));
            root.in_scope(|| root.record("status", 500));
        });
        assert!(reason(one(&spans, "GET /events")).is_some(), "{policy}");
        one(&spans, "step");
        let events = outcomes_of(&world, "GET /events");
        assert_eq!(events.exemplars[0].duration, Nanos::from_secs(100), "{policy}");
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
            if is_late {
                steps(&long, 1)
            } else {
                fails(&long)
            }
            all_leave(&world);
            // The first sixteen roots of a key are always recorded.
            (0..15).for_each(|_| root().in_scope(|| ()));
            if is_late {
                fails(&long);
            }
            root().in_scope(|| error!("failed"));
        });
        assert_eq!(named(&spans, "GET /events").len(), 2, "{is_late}");
    }
}

/// Spans that follow a kept trace are a part of it, and use the rest of its policy's budget.
#[test]
fn spans_that_follow_a_trace_that_was_kept_are_within_its_budget() {
    let world = dropping(tail("error(bytes=1000,bytes_burst=10000)"));
    world.inside(|| {
        let root = root();
        fails(&root);
        all_leave(&world);
        steps(&root, 5_000);
    });
    let spans = world.exported();
    let steps = named(&spans, "step").len();
    // A record takes about 80 bytes.
    assert!((50..200).contains(&steps), "{steps} of 10 kB");
    let stats = world.handle.stats();
    assert!(stats.tail.policies[0].kept_bytes <= 10_000, "{:?}", stats.tail.policies);
    assert_eq!(stats.tail.spans_given_up.refused, 5_000 - steps as u64, "{stats:?}");
    assert_eq!(cut_by(one(&spans, "GET /events")), 5_000 - steps as i64, "the exported root has the number");
}

/// The bound on spans per trace includes those that follow, whatever kept the trace.
#[test]
fn spans_that_follow_a_trace_that_was_kept_are_cut_at_its_limit() {
    let world = dropping(tail("error"));
    world.inside(|| {
        let root = root();
        steps(&root, 10);
        all_leave(&world);
        assert!(world.handle.keep(trace_of(&root)));
        steps(&root, 12_000);
    });
    let spans = world.exported();
    assert_eq!(named(&spans, "step").len(), 10_000);
    assert_eq!(cut_by(one(&spans, "GET /events")), 2_010);
    assert_eq!(world.handle.stats().tail.spans_given_up.cut, 2_010);
}

/// Two roots of trace 7, both open at their maximum age, and each with an ended child.
fn two_parts() -> [Span; 2] {
    let parts = [part_of(7, || info_span!("first")), part_of(7, || info_span!("second"))];
    parts[0].in_scope(|| info_span!("early of first").in_scope(|| ()));
    parts[1].in_scope(|| info_span!("early of second").in_scope(|| ()));
    parts
}

/// The names of the exported spans of trace 7. Other traces were kept to give the exporter work.
fn names_of_7(spans: &[SpanData]) -> Vec<&str> {
    let of_7 = spans.iter().filter(|span| span.span_context.trace_id() == TraceId::from(7));
    let mut names: Vec<&str> = of_7.map(|span| &*span.name).collect();
    names.sort_unstable();
    names
}

/// A span that ends late below a held part joins it, and keeps it whole: whether the other part was
/// kept before, or is held too.
#[test]
fn a_late_child_that_fails_brings_the_part_that_it_is_of() {
    let parts = [["early of first", "fails", "first"], ["early of second", "fails", "second"]];
    for (late, is_other_kept) in [(0, false), (1, false), (1, true)] {
        let world = dropping(tail(if is_other_kept { "error" } else { "error(traces=1,burst=1)" }));
        let spans = world.run(|| {
            let parts = two_parts();
            if is_other_kept {
                fails(&parts[0]);
            }
            all_leave(&world);
            fails(&parts[late]);
        });
        let mut expected = parts[late].to_vec();
        if is_other_kept {
            expected.extend(parts[0]);
        }
        expected.sort_unstable();
        assert_eq!(names_of_7(&spans), expected, "{late}, {is_other_kept}");
    }
}

/// Both parts were kept, by policies with different budgets. A late child follows its own part,
/// with that part's reason and budget.
#[test]
fn a_late_child_follows_the_part_that_it_is_of() {
    let world = dropping(tail("error(bytes=1000,bytes_burst=10000),slow:1s()"));
    let spans = world.run(|| {
        let [first, second] = two_parts();
        fails(&first);
        all_leave(&world);
        steps(&first, 500);
        second.in_scope(|| info_span!("late of second").in_scope(|| ()));
    });
    let reasons = |name: &str| -> Vec<_> {
        named(&spans, name).into_iter().map(|span| reason(span).unwrap()).collect()
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
}

#[test]
fn a_huge_trace_is_cut_and_says_so() {
    let world = dropping(tail("error(bytes=1e9,bytes_burst=1e9)"));
    let spans = world.run(|| {
        let root = info_span!("root");
        steps(&root, 100_000);
        root.in_scope(|| error!("failed"));
    });
    assert_eq!((spans.len(), cut_by(one(&spans, "root"))), (10_001, 90_000));
    assert_eq!(world.handle.stats().tail.spans_given_up.cut, 90_000);
}

/// The ring may be larger than the queue, so a trace is cut to what the queue can hold.
#[test]
fn a_trace_that_is_kept_fits_into_the_queue() {
    let tail = tail("error(bytes=1e9,bytes_burst=1e9)").with_ring_bytes(64 << 20);
    let world = late(tail, |builder| builder.with_queue_bytes_max(1 << 20));
    world.inside(|| {
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
}
