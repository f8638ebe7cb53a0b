//! The bounds of late keeping: which trace is evicted first and when, and what fits.

use std::sync::mpsc;
use std::time::Duration;

use astracer_samplers::Nanos;
use astracer_sdk::{Builder, Start, Tail};
use astracer_testing::{
    Exporting, TIMEOUT, World, all_leave, cut_by, fails, named, names, one, part_of, reason, remote_parent,
    request, requests, sampling, steps, tail, world,
};
use opentelemetry::TraceId;
use opentelemetry_sdk::trace::SpanData;
use tracing::{Span, error, info_span, warn};

/// A world whose sampler drops everything.
fn late(tail: Tail, change: impl FnOnce(Builder) -> Builder) -> World {
    sampling("never", |builder| change(builder.with_tail(tail)))
}

fn dropping(tail: Tail) -> World {
    late(tail, |builder| builder)
}

/// With a ring of 64 KiB.
fn small_ring(policies: &str) -> World {
    dropping(tail(policies).with_ring_bytes(64 << 10))
}

/// A small ring. The first error uses up the budget, so that the others stay in the ring.
fn small() -> World {
    small_ring("error(traces=1,burst=1)")
}

/// Requests that end one after the other, within the hold.
fn in_turn(world: &World, number: usize, fail: bool) -> Vec<TraceId> {
    let one = || {
        world.clock.advance(Duration::from_micros(100));
        request(fail)
    };
    world.inside(|| (0..number).map(|_| one()).collect())
}

/// Whether each of these is still in the ring. Finding a trace removes it.
fn found(world: &World, ids: &[TraceId]) -> Vec<bool> {
    ids.iter().map(|id| world.handle.keep(*id)).collect()
}

#[test]
fn of_traces_of_one_value_the_oldest_go_first() {
    for fail in [false, true] {
        let world = small();
        let ids = in_turn(&world, 1_000, fail);
        let found = found(&world, &ids);
        let first = found.iter().position(|found| *found).unwrap();
        assert!(first > 100, "{first}");
        assert!(found[first..].iter().all(|found| *found), "{fail}: {found:?}");
    }
}

#[test]
fn ordinary_traces_do_not_evict_marked_ones() {
    let world = small();
    let ids = in_turn(&world, 1_000, true);
    let held = world.handle.stats().tail.traces_held;
    in_turn(&world, 100, false);
    assert!(world.handle.stats().tail.ring_bytes <= 64 << 10);
    assert_eq!(world.handle.keep_where(|_| false), 0, "each is put back, and stays marked");
    let found = found(&world, &ids);
    assert_eq!(found.iter().filter(|found| **found).count() as u64, held);
}

/// The other way round, new traces with an error evict ordinary ones.
#[test]
fn marked_traces_evict_ordinary_ones() {
    let world = small();
    let ordinary = in_turn(&world, 1_000, false);
    let marked = in_turn(&world, 21, true);
    assert_eq!(found(&world, &marked[1..]), [true; 20]);
    assert!(found(&world, &ordinary).iter().any(|found| *found), "some ordinary traces stay");
}

/// A trace stays for exactly the hold, with an error or without.
#[test]
fn a_trace_is_held_for_its_time() {
    for fail in [false, true] {
        for (nanos, stays) in [(1_999_999_999, true), (2_000_000_000, false)] {
            let world = dropping(tail("error(traces=1,burst=1)"));
            let ids = in_turn(&world, 2, fail);
            world.clock.advance(Duration::from_nanos(nanos));
            world.inside(|| requests(200, false));
            assert_eq!(found(&world, &ids[1..]), [stays], "{fail}, {nanos}");
        }
    }
}

#[test]
fn a_trace_takes_a_quarter_of_the_ring() {
    let world = dropping(tail("error(bytes=1e9,bytes_burst=1e9)").with_ring_bytes(256 << 10));
    let spans = world.run(|| {
        let _root = info_span!("root").entered();
        (0..5_000).for_each(|_| info_span!("step").in_scope(|| ()));
        // Memory doubles as it grows.
        let bytes = world.handle.stats().tail.ring_bytes;
        assert!((64 << 10..=128 << 10).contains(&bytes), "{bytes}");
        error!("failed");
    });
    let cut = world.handle.stats().tail.spans_given_up.cut;
    // Records are smaller with 32-bit words.
    let most = if cfg!(target_pointer_width = "64") { 2_000 } else { 2_100 };
    assert!((300..most).contains(&spans.len()), "{}", spans.len());
    assert_eq!(spans.len() as u64 + cut, 5_001, "the root is not cut");
}

/// An open trace without an error is evicted only for traces with one.
#[test]
fn ordinary_traces_do_not_evict_open_ones() {
    let world = small();
    let spans = world.run(|| {
        let roots: Vec<_> = (0..10).map(|_| info_span!("root")).collect();
        roots.iter().for_each(|root| steps(root, 150));
        error!(parent: &roots[0], "failed");
    });
    assert_eq!(spans.len(), 151, "the first trace is complete");
    assert!(world.handle.stats().tail.spans_given_up.ring_full > 0);
}

/// The policies are asked again for a late child only if it is worse than its trace. If the budget
/// is used up by then, the trace is refused, and given up for that reason.
#[test]
fn policies_are_asked_again_for_a_late_child_that_is_worse() {
    for first_fails in [true, false] {
        let world = dropping(tail("error(traces=0.001,burst=1)"));
        world.inside(|| {
            request(true);
            let root = info_span!("root");
            if first_fails {
                fails(&root)
            } else {
                steps(&root, 1)
            }
            all_leave(&world);
            assert_eq!(world.handle.stats().tail.policies[0].refused, u64::from(first_fails));
            fails(&root);
            let stats = world.handle.stats().tail;
            assert_eq!((stats.policies[0].refused, stats.spans_held), (1, 2));
            world.clock.advance(Duration::from_secs(3));
            requests(200, false);
            assert_eq!(world.handle.stats().tail.spans_given_up.refused, 2);
        });
    }
}

/// Late children are held as far as memory allows. The exported root has the number of those that
/// are missing from its own part of the trace.
#[test]
fn a_late_child_that_does_not_fit_is_counted() {
    let world = small();
    let spans = world.inside(|| {
        let root = part_of(7, || info_span!("root"));
        steps(&root, 1);
        all_leave(&world);
        part_of(7, || info_span!("part")).in_scope(|| ());
        steps(&root, 3_000);
        let stats = world.handle.stats().tail;
        assert!(stats.ring_bytes <= 64 << 10, "{stats:?}");
        assert!(stats.spans_given_up.cut > 1_000 && stats.spans_held > 100, "{stats:?}");
        assert!(world.handle.keep(TraceId::from(7)));
        drop(root);
        world.exported()
    });
    let cut = 3_001 - named(&spans, "step").len() as i64;
    assert_eq!(cut_by(one(&spans, "root")), cut);
    assert_eq!(world.handle.stats().tail.spans_given_up.cut, cut as u64);
}

/// The bounds of a trace include late children: its number of spans, and a quarter of the ring.
#[test]
fn late_children_are_as_many_as_others() {
    for (ring_bytes, spans, bytes) in [(32 << 20, 10_000, 32 << 20), (256 << 10, 2_000, 128 << 10)] {
        let world = dropping(tail("error").with_ring_bytes(ring_bytes));
        world.inside(|| {
            let root = info_span!("root");
            steps(&root, 1);
            all_leave(&world);
            steps(&root, 12_000);
            let stats = world.handle.stats().tail;
            assert!(stats.spans_held <= spans && stats.ring_bytes <= bytes, "{stats:?}");
            assert_eq!(stats.spans_held + stats.spans_given_up.cut, 12_001);
            drop(root);
            assert_eq!(world.handle.stats().tail.traces_held, 1, "the root is not cut");
        });
    }
}

/// A late child that fails evicts traces of lower priority, as any span does.
#[test]
fn a_failed_late_child_evicts_ordinary_traces() {
    let world = small_ring("error");
    let spans = world.inside(|| {
        // An id of the last shard: among traces of the same age, those of the first shards are
        // evicted first.
        let root = part_of(15, || info_span!("root"));
        steps(&root, 1);
        all_leave(&world);
        requests(200, false);
        let text = "x".repeat(3_000);
        root.in_scope(|| info_span!("step", text).in_scope(|| error!("failed")));
        drop(root);
        world.exported()
    });
    assert_eq!(named(&spans, "step").len(), 2);
    assert_eq!(reason(one(&spans, "root")).as_deref(), Some("error"));
}

/// A trace that a function has examined keeps its age, so it expires before a trace that ended in
/// the meantime.
#[test]
fn a_trace_that_is_put_back_keeps_its_position() {
    let world = dropping(tail("error"));
    // Both are in one shard, by the last three bits of their ids.
    let (older, younger) = (TraceId::from(8), TraceId::from(16));
    world.inside(|| {
        part_of(8, || info_span!("older")).in_scope(|| ());
        let (dispatch, clock) = (world.dispatch.clone(), world.clock.clone());
        world.handle.keep_where(move |trace| {
            if trace.trace_id() == older {
                clock.advance(Duration::from_secs(1));
                tracing::dispatcher::with_default(&dispatch, || {
                    part_of(16, || info_span!("younger")).in_scope(|| ())
                });
            }
            false
        });
        world.clock.advance(Duration::from_secs(1));
        requests(200, false);
    });
    assert_eq!(found(&world, &[older, younger]), [false, true]);
}

/// Late children find their kept trace even after others were kept.
#[test]
fn late_children_find_their_trace_after_others() {
    let world = dropping(tail("error()"));
    let spans = world.run(|| {
        let root = info_span!("root");
        fails(&root);
        all_leave(&world);
        requests(200, true);
        steps(&root, 1);
    });
    assert_eq!(reason(one(&spans, "step")).as_deref(), Some("error"));
    assert_eq!(reason(one(&spans, "root")).as_deref(), Some("error"));
}

/// If all open traces have errors, none of them is evicted for another; nor is a trace that the
/// head sampler keeps.
#[test]
fn marked_traces_do_not_evict_open_ones_of_equal_rank() {
    let world = small_ring("error()");
    let spans = world.run(|| {
        let kept = {
            let _remote = remote_parent(7, true).attach();
            info_span!("kept")
        };
        kept.in_scope(|| info_span!("kept step").in_scope(|| ()));
        let roots: Vec<_> = (0..10).map(|_| info_span!("root")).collect();
        roots.iter().for_each(fails);
        roots.iter().for_each(|root| steps(root, 300));
    });
    assert_eq!(["fails", "kept", "kept step"].map(|name| named(&spans, name).len()), [10, 1, 1]);
    assert!(world.handle.stats().tail.spans_given_up.total() > 0);
}

/// Loops of any length have the same shape, although the span around the loop ends last.
#[test]
fn long_loops_are_not_odd() {
    let world = dropping(tail("odd()"));
    world.inside(|| {
        for steps in [10, 4_000, 5_000, 9_000, 9_998] {
            let root = info_span!("root").entered();
            info_span!("loop").in_scope(|| (0..steps).for_each(|_| info_span!("step").in_scope(|| ())));
            drop(root);
            assert_eq!(world.handle.stats().tail.policies[0].kept, 1, "{steps}");
        }
    });
}

/// The order of calls is not part of a shape.
#[test]
fn calls_in_another_order_are_not_odd() {
    let calls: [fn(); 2] = [|| info_span!("a").in_scope(|| ()), || info_span!("b").in_scope(|| ())];
    let spans = dropping(tail("odd")).run(|| {
        info_span!("root").in_scope(|| calls.iter().for_each(|call| call()));
        info_span!("root").in_scope(|| calls.iter().rev().for_each(|call| call()));
    });
    assert_eq!(names(&spans), ["a", "b", "root"]);
}

/// The slot has allocated memory before the recorded trace has a header. A trace that leaves at its
/// maximum age has no root to bring one.
#[test]
fn a_recorded_trace_takes_the_slot_of_a_kept_one() {
    let every_2 = "every:2".parse().unwrap();
    let world =
        late(tail("odd()"), |builder| builder.with_trace_age_max(Duration::ZERO).with_sampler(every_2));
    let spans = world.run(|| {
        let kept = info_span!("root").entered();
        (0..3).for_each(|_| info_span!("step").in_scope(|| ()));
        drop(kept);
        let _recorded = info_span!("root").entered();
        info_span!("step").in_scope(|| ());
        // The age takes effect at the tick after the one that stores the trace's time.
        for _ in 0..3 {
            world.clock.advance(Duration::from_secs(1));
            world.handle.flush(TIMEOUT).unwrap();
        }
        assert_eq!(world.handle.stats().spans_waiting, 0);
    });
    assert_eq!(names(&spans).len(), 6, "the step was odd, and the root followed late");
}

/// Traces from before the clock was set back have times in the future. They are held no longer than
/// others, and do not hold back those after them.
#[test]
fn traces_from_before_the_clock_was_set_back_leave() {
    let world = dropping(tail("error"));
    world.inside(|| {
        world.clock.advance(Duration::from_secs(3_600));
        requests(100, false);
        world.clock.set_back(Duration::from_secs(3_590));
        requests(100, false);
        world.clock.advance(Duration::from_secs(2));
        requests(100, false);
    });
    let stats = world.handle.stats();
    assert_eq!((stats.tail.traces_held, stats.tail.traces_given_up.unwanted), (100, 200), "{stats:?}");
}

/// Another trace has taken the slot that the late child's trace has left, and gathers spans there.
#[test]
fn a_late_child_is_not_with_the_trace_that_has_its_slot() {
    let world = dropping(tail("error()"));
    let spans = world.run(|| {
        let first = info_span!("first");
        steps(&first, 1);
        all_leave(&world);
        // One of these takes the slot.
        let others: Vec<_> = (0..100).map(|_| info_span!("other")).collect();
        others.iter().for_each(|other| steps(other, 5));
        steps(&first, 1);
        others.iter().for_each(|other| other.in_scope(|| error!("failed")));
    });
    // Other traces were kept through the handle.
    let kept: Vec<_> = spans.into_iter().filter(|span| reason(span).as_deref() == Some("error")).collect();
    assert_eq!(names(&kept), [&["other"; 100][..], &["step"; 500]].concat());
    assert_eq!(world.handle.stats().tail.spans_held, 3, "the first trace's spans are held");
}

/// A trace that the head sampler keeps is exported in parts while its root is open, as without
/// policies.
#[test]
fn a_kept_trace_that_grows_leaves_in_parts() {
    let (tells, told) = mpsc::channel();
    let world = world(|builder| {
        let builder = builder.with_tail(tail("error")).with_spans_per_trace_max(4);
        builder.with_batch_spans(1).with_exporter(Exporting(move |batch: Vec<SpanData>| {
            let _ = tells.send(batch.len());
            Ok(())
        }))
    });
    world.inside(|| {
        let _root = info_span!("root").entered();
        (0..4).for_each(|_| info_span!("step").in_scope(|| ()));
        assert_eq!(told.recv_timeout(TIMEOUT), Ok(4));
    });
    world.handle.flush(TIMEOUT).unwrap();
}

/// If a trace was evicted while open and fails later, the error counts as missed.
#[test]
fn errors_of_open_traces_that_were_given_up_are_missed() {
    let world = small_ring("error()");
    let spans = world.run(|| {
        let roots: Vec<_> = (0..100).map(|_| info_span!("root")).collect();
        roots.iter().for_each(|root| steps(root, 20));
        roots.iter().for_each(|root| root.in_scope(|| error!("failed")));
    });
    let kept = named(&spans, "root").len() as u64;
    let outcomes = &world.handle.outcomes()[0];
    assert!(0 < kept && kept < 90, "{kept}");
    assert_eq!((outcomes.errors, outcomes.missed_errors), (100, 100 - kept));
}

/// If all open traces have errors and nothing else can be evicted, spans that do not fit are cut.
#[test]
fn open_traces_that_failed_share_the_ring() {
    let world = small_ring("error()");
    let text = "x".repeat(4_000);
    let spans = world.run(|| {
        let roots: Vec<_> = (0..300).map(|_| info_span!("root")).collect();
        let fails = || info_span!("fails", text).in_scope(|| error!("failed"));
        roots.iter().for_each(|root| root.in_scope(fails));
    });
    let fails = named(&spans, "fails").len();
    assert!((10..=16).contains(&fails), "{fails} of 4 kB");
    assert_eq!(named(&spans, "root").len(), 300, "each root has the number of missing spans");
    assert_eq!(spans.iter().map(cut_by).sum::<i64>(), 300 - fails as i64);
    assert_eq!(world.handle.stats().tail.spans_given_up.ring_full, 300 - fails as u64);
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
    for (start, (case, root)) in [Start::AtOnce, Start::WhenUsed]
        .into_iter()
        .flat_map(|start| roots.iter().enumerate().map(move |root| (start, root)))
    {
        let tail = tail("error").with_ring_bytes(64 << 10);
        let world = late(tail, |builder| builder.with_start(start));
        let spans = world.run(|| {
            let (failing, child) = root();
            child.iter().for_each(|child| child.in_scope(|| ()));
            steps(&failing, 10);
            let ordinary: Vec<_> = (0..100).map(|_| info_span!("ordinary")).collect();
            ordinary.iter().for_each(|root| steps(root, 10));
            // Another failing trace grows, and evicts traces without an error.
            let other = info_span!("other");
            fails(&other);
            steps(&other, 150);
        });
        assert_eq!(named(&spans, "failing").len(), 1, "{start:?}, {case}: {:?}", world.handle.stats());
    }
}

/// An open trace with an error stays when others are evicted. A warning raises a trace's priority
/// only if a policy matches it.
#[test]
fn an_open_trace_that_failed_outlives_those_of_lower_rank() {
    let cases: [(&str, fn(), bool); 3] =
        [("error", || (), true), ("error", || warn!("odd"), true), ("error:warn()", || warn!("odd"), false)];
    for (policies, in_others, outlives) in cases {
        let world = small_ring(policies);
        let spans = world.run(|| {
            let others: Vec<_> = (0..100).map(|_| info_span!("other")).collect();
            others.iter().for_each(|root| root.in_scope(|| info_span!("warns").in_scope(in_others)));
            others.iter().for_each(|root| steps(root, 10));
            let failing = info_span!("failing");
            fails(&failing);
            others.iter().for_each(|root| steps(root, 10));
            steps(&failing, 40);
            drop(failing);
        });
        let failing = one(&spans, "failing").span_context.trace_id();
        let whole = spans.iter().filter(|span| span.span_context.trace_id() == failing).count();
        assert_eq!(whole == 42, outlives, "{policies}: {whole} spans");
        assert!(!outlives || world.handle.stats().tail.spans_given_up.ring_full > 500);
    }
}

/// Fills a small ring with the traces of ten failed roots, for which the policy has no budget left,
/// and with as many ordinary ones as it takes. All are open.
fn fill_the_ring(world: &World) -> [Vec<Span>; 2] {
    request(true);
    let failing: Vec<_> = (0..10).map(|_| info_span!("root")).collect();
    failing.iter().for_each(fails);
    let ordinary: Vec<_> = (0..1_000).map(|_| info_span!("root")).collect();
    ordinary.iter().for_each(|root| steps(root, 1));
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
    world.inside(|| {
        let [failing, ordinary] = fill_the_ring(&world);
        let before = world.handle.stats().tail;
        drop(failing);
        let after = world.handle.stats().tail;
        assert_eq!(after.spans_given_up.ring_full, before.spans_given_up.ring_full);
        assert_eq!(after.traces_given_up.refused, 10, "{after:?}");
        drop(ordinary);
    });
}

/// Traces that the shutdown submits to the policies are not held, so they do not evict the traces
/// after them.
#[test]
fn the_shutdown_evicts_no_trace_for_another() {
    let tail = tail("error(traces=0.001,burst=1)").with_ring_bytes(64 << 10);
    let world = dropping(tail);
    world.inside(|| {
        let open = fill_the_ring(&world);
        let before = world.handle.stats().tail;
        world.handle.shutdown(TIMEOUT).unwrap();
        let after = world.handle.stats().tail;
        assert_eq!(after.spans_given_up.ring_full, before.spans_given_up.ring_full, "{after:?}");
        drop(open);
    });
}

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
    let roots = named(&spans, "GET /cart").len();
    // 5 + 10 per second, for 20 seconds.
    assert!((195..=205).contains(&roots), "{roots}");
    let stats = world.handle.stats();
    assert_eq!(stats.tail.policies[0].kept + stats.tail.policies[0].refused, 20_000);
    assert!(stats.tail.traces_given_up.refused > 15_000);
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
}

/// A shutdown exports open traces with an error, and counts the rest.
#[test]
fn a_shutdown_exports_what_is_marked() {
    let world = dropping(tail("error"));
    world.inside(|| {
        request(false);
        let (failing, fine) = (info_span!("failing"), info_span!("fine"));
        fails(&failing);
        steps(&fine, 1);
        world.handle.shutdown(TIMEOUT).unwrap();
    });
    assert_eq!(names(&world.collector.spans()), ["fails"]);
    let stats = world.handle.stats();
    assert_eq!(stats.spans_exported, 1);
    assert_eq!((stats.tail.spans_held, stats.spans_open, stats.spans_waiting), (0, 0, 0));
    assert_eq!(stats.tail.spans_given_up.shut_down, 5);
}
