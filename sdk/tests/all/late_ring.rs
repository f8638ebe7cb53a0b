//! The ring of ended traces: which trace is evicted first, when, and how a trace is found.

use std::sync::mpsc;
use std::time::Duration;

use astracer_sdk::OpenTelemetrySpanExt as _;
use astracer_testing::Exporting;
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceState};
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::trace::SpanData;
use tracing::{error, info_span};

use crate::late::{check_sums, dropping, names, reason, request, requests, tail};
use crate::support::{TIMEOUT, World, one, world};

/// A small ring. The first error uses up the budget, so that the others stay in the ring.
fn small() -> World {
    dropping(tail("error(traces=1,burst=1)").with_ring_bytes(64 << 10))
}

/// Requests that end one after the other, within the hold.
fn in_turn(world: &World, number: usize, fail: bool) -> Vec<TraceId> {
    let one = || {
        world.clock.advance(Duration::from_micros(100));
        request(fail)
    };
    tracing::dispatcher::with_default(&world.dispatch, || (0..number).map(|_| one()).collect())
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
        check_sums(&world.handle);
    }
}

#[test]
fn ordinary_traces_do_not_evict_marked_ones() {
    let world = small();
    let ids = in_turn(&world, 1_000, true);
    let held = world.handle.stats().tail.traces_held;
    in_turn(&world, 100, false);
    let found = found(&world, &ids);
    assert_eq!(found.iter().filter(|found| **found).count() as u64, held);
    check_sums(&world.handle);
}

/// The other way round, new traces with an error evict ordinary ones.
#[test]
fn marked_traces_evict_ordinary_ones() {
    let world = small();
    let ordinary = in_turn(&world, 1_000, false);
    let marked = in_turn(&world, 21, true);
    assert_eq!(found(&world, &marked[1..]), [true; 20]);
    assert!(found(&world, &ordinary).iter().any(|found| *found), "some ordinary traces stay");
    check_sums(&world.handle);
}

/// A trace stays for exactly the hold, with an error or without.
#[test]
fn a_trace_is_held_for_its_time() {
    for fail in [false, true] {
        for (nanos, stays) in [(1_999_999_999, true), (2_000_000_000, false)] {
            let world = dropping(tail("error(traces=1,burst=1)"));
            let ids = in_turn(&world, 2, fail);
            world.clock.advance(Duration::from_nanos(nanos));
            tracing::dispatcher::with_default(&world.dispatch, || requests(200, false));
            assert_eq!(found(&world, &ids[1..]), [stays], "{fail}, {nanos}");
            check_sums(&world.handle);
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
    check_sums(&world.handle);
}

/// An open trace without an error is evicted only for traces with one.
#[test]
fn ordinary_traces_do_not_evict_open_ones() {
    let world = small();
    let spans = world.run(|| {
        let roots: Vec<_> = (0..10).map(|_| info_span!("root")).collect();
        for root in &roots {
            (0..150).for_each(|_| root.in_scope(|| info_span!("step").in_scope(|| ())));
        }
        error!(parent: &roots[0], "failed");
        drop(roots);
    });
    assert_eq!(spans.len(), 151, "the first trace is complete");
    assert!(world.handle.stats().tail.spans_given_up.ring_full > 0);
    check_sums(&world.handle);
}

/// Waits until open traces have left their slots at their maximum age. Spans that end after that
/// are late.
pub(crate) fn all_leave(world: &World) {
    all_leave_but(world, 0);
}

/// As [`all_leave`], but this number of traces stays.
pub(crate) fn all_leave_but(world: &World, stay: u64) {
    world.clock.advance(Duration::from_secs(31));
    for _ in 0..1_000 {
        if world.handle.stats().tail.traces_open == stay {
            return;
        }
        // The exporter's thread looks for old traces only when it has work.
        assert!(world.handle.keep(request(false)));
        world.handle.flush(TIMEOUT).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{:?}", world.handle.stats());
}

/// The policies are asked again for a late child only if it is worse than its trace.
#[test]
fn a_late_child_of_equal_severity_asks_no_policy() {
    let world = dropping(tail("error(traces=0.001,burst=1)"));
    tracing::dispatcher::with_default(&world.dispatch, || {
        request(true);
        let root = info_span!("root");
        let step = || root.in_scope(|| info_span!("step").in_scope(|| error!("failed")));
        step();
        all_leave(&world);
        assert_eq!(world.handle.stats().tail.policies[0].refused, 1);
        step();
        let stats = world.handle.stats().tail;
        assert_eq!((stats.policies[0].refused, stats.spans_held), (1, 2));
        drop(root);
    });
    check_sums(&world.handle);
}

/// Late children are held as far as memory allows. The exported root has the number of missing
/// ones.
#[test]
fn a_late_child_that_does_not_fit_is_counted() {
    let world = small();
    let spans = tracing::dispatcher::with_default(&world.dispatch, || {
        let root = info_span!("root");
        let step = || root.in_scope(|| info_span!("step").in_scope(|| ()));
        step();
        let trace_id = root.context().span().span_context().trace_id();
        all_leave(&world);
        (0..3_000).for_each(|_| step());
        let stats = world.handle.stats().tail;
        assert!(stats.ring_bytes <= 64 << 10, "{stats:?}");
        assert!(stats.spans_given_up.cut > 1_000 && stats.spans_held > 100, "{stats:?}");
        drop(root);
        assert!(world.handle.keep(trace_id));
        world.exported()
    });
    let own = spans.iter().filter(|span| ["step", "root"].contains(&&*span.name)).count() as u64;
    assert_eq!(own + world.handle.stats().tail.spans_given_up.cut, 3_002);
    check_sums(&world.handle);
}

/// The bounds of a trace include late children: its number of spans, and a quarter of the ring.
#[test]
fn late_children_are_as_many_as_others() {
    for (ring_bytes, spans, bytes) in [(32 << 20, 10_000, 32 << 20), (256 << 10, 2_000, 128 << 10)] {
        let world = dropping(tail("error").with_ring_bytes(ring_bytes));
        tracing::dispatcher::with_default(&world.dispatch, || {
            let root = info_span!("root");
            let step = || root.in_scope(|| info_span!("step").in_scope(|| ()));
            step();
            all_leave(&world);
            (0..12_000).for_each(|_| step());
            let stats = world.handle.stats().tail;
            assert!(stats.spans_held <= spans && stats.ring_bytes <= bytes, "{stats:?}");
            assert_eq!(stats.spans_held + stats.spans_given_up.cut, 12_001);
            drop(root);
            assert_eq!(world.handle.stats().tail.traces_held, 1, "the root is not cut");
        });
        check_sums(&world.handle);
    }
}

/// A late child that fails evicts traces of lower priority, as any span does.
#[test]
fn a_failed_late_child_evicts_ordinary_traces() {
    let world = dropping(tail("error").with_ring_bytes(64 << 10));
    // An id of the last shard: among traces of the same age, those of the first shards are evicted
    // first.
    let id = TraceId::from(15);
    let parent = SpanContext::new(id, SpanId::from(1), TraceFlags::default(), true, TraceState::default());
    let spans = tracing::dispatcher::with_default(&world.dispatch, || {
        let root = {
            let _remote = Context::new().with_remote_span_context(parent).attach();
            info_span!("root")
        };
        root.in_scope(|| info_span!("step").in_scope(|| ()));
        all_leave(&world);
        requests(200, false);
        let text = "x".repeat(3_000);
        root.in_scope(|| info_span!("step", text).in_scope(|| error!("failed")));
        drop(root);
        world.exported()
    });
    assert_eq!(spans.iter().filter(|span| span.name == "step").count(), 2);
    assert_eq!(reason(one(&spans, "root")).as_deref(), Some("error"));
    check_sums(&world.handle);
}

/// A root that is a part of another process's trace, which that process dropped.
pub(crate) fn part(trace_id: TraceId, name: &str) {
    let parent =
        SpanContext::new(trace_id, SpanId::from(1), TraceFlags::default(), true, TraceState::default());
    let _remote = Context::new().with_remote_span_context(parent).attach();
    match name {
        "first" => info_span!("first").in_scope(|| ()),
        _ => info_span!("second").in_scope(|| ()),
    }
}

#[test]
fn all_parts_of_a_trace_are_kept_together() {
    let world = dropping(tail("error"));
    let id = TraceId::from(7);
    let spans = world.run(|| {
        part(id, "first");
        part(id, "second");
        assert!(world.handle.keep(id));
    });
    assert_eq!(names(&spans), ["first", "second"]);
    assert!(spans.iter().all(|span| reason(span).as_deref() == Some("hand")));
    check_sums(&world.handle);
}

/// Parts whose roots are open when the trace is requested are kept with the held part.
#[test]
fn parts_of_a_trace_that_are_open_follow_the_one_that_is_held() {
    let world = dropping(tail("error"));
    let id = TraceId::from(7);
    let parent = SpanContext::new(id, SpanId::from(1), TraceFlags::default(), true, TraceState::default());
    let spans = world.run(|| {
        let open = {
            let _remote = Context::new().with_remote_span_context(parent).attach();
            [info_span!("open"), info_span!("open")]
        };
        open.iter().for_each(|root| root.in_scope(|| ()));
        part(id, "first");
        assert!(world.handle.keep(id));
        drop(open);
        // Too late.
        world.clock.advance(Duration::from_secs(31));
        part(id, "second");
    });
    assert_eq!(names(&spans), ["first", "open", "open"]);
    let stats = world.handle.stats().tail;
    assert_eq!((stats.kept_by_hand, stats.not_there, stats.traces_held), (3, 0, 1));
    check_sums(&world.handle);
}

/// A trace that was requested before it ended is kept if it ends within the maximum age of an open
/// trace.
#[test]
fn a_request_is_remembered_for_the_age_of_a_trace() {
    for (seconds, comes) in [(30, true), (31, false)] {
        let world = dropping(tail("error"));
        let id = TraceId::from(7);
        let spans = world.run(|| {
            assert!(!world.handle.keep(id));
            world.clock.advance(Duration::from_secs(seconds));
            part(id, "first");
        });
        assert_eq!(spans.len(), usize::from(comes), "{seconds}");
        assert_eq!(world.handle.stats().tail.not_there, u64::from(!comes));
        check_sums(&world.handle);
    }
}

/// The time counts from the last request.
#[test]
fn a_repeated_request_restarts_its_time() {
    let world = dropping(tail("error"));
    let id = TraceId::from(7);
    let spans = world.run(|| {
        for seconds in [25, 15] {
            assert!(!world.handle.keep(id));
            world.clock.advance(Duration::from_secs(seconds));
        }
        part(id, "first");
    });
    assert_eq!(names(&spans), ["first"]);
    assert_eq!(world.handle.stats().tail.not_there, 0);
    check_sums(&world.handle);
}

/// Two parts of one trace, and late children of the part whose root is open. That root has the
/// number of children that were cut.
#[test]
fn cut_late_children_are_reported() {
    let world = small();
    let id = TraceId::from(7);
    let parent = SpanContext::new(id, SpanId::from(1), TraceFlags::default(), true, TraceState::default());
    let spans = tracing::dispatcher::with_default(&world.dispatch, || {
        let open = {
            let _remote = Context::new().with_remote_span_context(parent).attach();
            info_span!("open")
        };
        let step = || open.in_scope(|| info_span!("step").in_scope(|| ()));
        step();
        all_leave(&world);
        part(id, "first");
        (0..3_000).for_each(|_| step());
        assert!(world.handle.keep(id));
        drop(open);
        world.exported()
    });
    let root = one(&spans, "open");
    let told = root.attributes.iter().find(|of| of.key.as_str() == "sampling.spans_cut").unwrap();
    let steps = spans.iter().filter(|span| span.name == "step").count() as i64;
    assert_eq!(told.value, opentelemetry::Value::I64(3_001 - steps));
    check_sums(&world.handle);
}

/// A trace that a function has examined keeps its age, so it expires before a trace that ended in
/// the meantime.
#[test]
fn a_trace_that_is_put_back_keeps_its_position() {
    let world = dropping(tail("error"));
    // Both are in one shard, by the last three bits of their ids.
    let (older, younger) = (TraceId::from(8), TraceId::from(16));
    tracing::dispatcher::with_default(&world.dispatch, || {
        part(older, "first");
        let (dispatch, clock) = (world.dispatch.clone(), world.clock.clone());
        world.handle.keep_where(move |trace| {
            if trace.trace_id() == older {
                clock.advance(Duration::from_secs(1));
                tracing::dispatcher::with_default(&dispatch, || part(younger, "second"));
            }
            false
        });
        world.clock.advance(Duration::from_secs(1));
        requests(200, false);
    });
    assert_eq!(found(&world, &[older, younger]), [false, true]);
    check_sums(&world.handle);
}

/// Late children find their kept trace even after others were kept.
#[test]
fn late_children_find_their_trace_after_others() {
    let world = dropping(tail("error()"));
    let spans = tracing::dispatcher::with_default(&world.dispatch, || {
        let root = info_span!("root");
        let step = |fails: bool| {
            root.in_scope(|| info_span!("step").in_scope(|| fails.then(|| error!("failed"))));
        };
        step(true);
        all_leave(&world);
        requests(200, true);
        step(false);
        drop(root);
        world.exported()
    });
    assert_eq!(spans.iter().filter(|span| span.name == "step").count(), 2);
    assert_eq!(reason(one(&spans, "root")).as_deref(), Some("error"));
    check_sums(&world.handle);
}

/// A late child makes its trace worse after the budget is used up. The trace is refused, and given
/// up for that reason.
#[test]
fn a_trace_that_is_refused_for_a_late_child_says_so() {
    let world = dropping(tail("error(traces=0.001,burst=1)"));
    tracing::dispatcher::with_default(&world.dispatch, || {
        request(true);
        let root = info_span!("root");
        let step = |fails: bool| {
            root.in_scope(|| info_span!("step").in_scope(|| fails.then(|| error!("failed"))));
        };
        step(false);
        all_leave(&world);
        step(true);
        world.clock.advance(Duration::from_secs(3));
        requests(200, false);
        assert_eq!(world.handle.stats().tail.spans_given_up.refused, 2);
        drop(root);
    });
    check_sums(&world.handle);
}

/// If all open traces have errors, none of them is evicted for another; nor is a trace that the
/// head sampler keeps.
#[test]
fn marked_traces_do_not_evict_open_ones_of_equal_rank() {
    let world = dropping(tail("error()").with_ring_bytes(64 << 10));
    let sampled =
        SpanContext::new(TraceId::from(7), SpanId::from(1), TraceFlags::SAMPLED, true, TraceState::default());
    let spans = world.run(|| {
        let kept = {
            let _remote = Context::new().with_remote_span_context(sampled).attach();
            info_span!("kept")
        };
        kept.in_scope(|| info_span!("kept step").in_scope(|| ()));
        let roots: Vec<_> = (0..10).map(|_| info_span!("root")).collect();
        roots.iter().for_each(|root| root.in_scope(|| info_span!("fails").in_scope(|| error!("failed"))));
        for root in &roots {
            (0..300).for_each(|_| root.in_scope(|| info_span!("step").in_scope(|| ())));
        }
        drop(roots);
        drop(kept);
    });
    let named = |name: &str| spans.iter().filter(|span| span.name == name).count();
    assert_eq!((named("fails"), named("kept"), named("kept step")), (10, 1, 1));
    assert!(world.handle.stats().tail.spans_given_up.total() > 0);
    check_sums(&world.handle);
}

/// Loops of any length have the same shape, although the span around the loop ends last.
#[test]
fn long_loops_are_not_odd() {
    let world = dropping(tail("odd()"));
    tracing::dispatcher::with_default(&world.dispatch, || {
        for steps in [10, 4_000, 5_000, 9_000, 9_998] {
            let root = info_span!("root").entered();
            info_span!("loop").in_scope(|| (0..steps).for_each(|_| info_span!("step").in_scope(|| ())));
            drop(root);
            assert_eq!(world.handle.stats().tail.policies[0].kept, 1, "{steps}");
        }
    });
    check_sums(&world.handle);
}

/// The order of calls is not part of a shape.
#[test]
fn calls_in_another_order_are_not_odd() {
    let world = dropping(tail("odd"));
    let spans = world.run(|| {
        for names in [[0, 1], [1, 0]] {
            let _root = info_span!("root").entered();
            for name in names {
                if name == 0 {
                    info_span!("a").in_scope(|| ());
                } else {
                    info_span!("b").in_scope(|| ());
                }
            }
        }
    });
    assert_eq!(names(&spans), ["a", "b", "root"]);
}

/// The slot has allocated memory before the recorded trace has a header. A trace that leaves at its
/// maximum age has no root to bring one.
#[test]
fn a_recorded_trace_takes_the_slot_of_a_kept_one() {
    let world = crate::support::world(|builder| {
        let builder = builder.with_trace_age_max(Duration::ZERO);
        builder.with_sampler("every:2".parse().unwrap()).with_tail(tail("odd()"))
    });
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
        check_sums(&world.handle);
    });
    assert_eq!(names(&spans).len(), 6, "the step was odd, and the root followed late");
}

/// Traces from before the clock was set back have times in the future. They are held no longer than
/// others, and do not hold back those after them.
#[test]
fn traces_from_before_the_clock_was_set_back_leave() {
    let world = dropping(tail("error"));
    tracing::dispatcher::with_default(&world.dispatch, || {
        world.clock.advance(Duration::from_secs(3_600));
        requests(100, false);
        world.clock.set_back(Duration::from_secs(3_590));
        requests(100, false);
        world.clock.advance(Duration::from_secs(2));
        requests(100, false);
    });
    let stats = world.handle.stats();
    assert_eq!((stats.tail.traces_held, stats.tail.traces_given_up.unwanted), (100, 200), "{stats:?}");
    check_sums(&world.handle);
}

/// The same for a request, which expires.
#[test]
fn requests_from_before_the_clock_was_set_back_are_forgotten() {
    let world = dropping(tail("error"));
    let spans = world.run(|| {
        world.clock.advance(Duration::from_secs(3_600));
        assert!(!world.handle.keep(TraceId::from(7_u128)));
        world.clock.set_back(Duration::from_secs(3_590));
        part(TraceId::from(7_u128), "second");
    });
    assert!(spans.is_empty());
}

/// Another trace has taken the slot that the late child's trace has left, and gathers spans there.
#[test]
fn a_late_child_is_not_with_the_trace_that_has_its_slot() {
    let world = dropping(tail("error()"));
    let spans = world.run(|| {
        let first = info_span!("first");
        let step = || info_span!("step").in_scope(|| ());
        first.in_scope(step);
        all_leave(&world);
        // One of these takes the slot.
        let others: Vec<_> = (0..100).map(|_| info_span!("other")).collect();
        others.iter().for_each(|other| (0..5).for_each(|_| other.in_scope(step)));
        first.in_scope(step);
        others.iter().for_each(|other| other.in_scope(|| error!("failed")));
        drop(others);
        drop(first);
    });
    // Other traces were kept through the handle.
    let kept: Vec<_> = spans.into_iter().filter(|span| reason(span).as_deref() == Some("error")).collect();
    assert_eq!(names(&kept), [&["other"; 100][..], &["step"; 500]].concat());
    assert_eq!(world.handle.stats().tail.spans_held, 3, "the first trace's spans are held");
    check_sums(&world.handle);
}

/// A span that was never entered, dropped while a panic unwinds.
#[test]
fn a_child_that_a_panic_drops_marks_its_trace() {
    let world = dropping(tail("error"));
    let spans = world.run(|| {
        let _root = info_span!("root").entered();
        (0..5).for_each(|_| info_span!("step").in_scope(|| ()));
        let panics = || {
            let _child = info_span!("child");
            std::panic::resume_unwind(Box::new("on purpose"))
        };
        let outcome: Result<(), _> = std::panic::catch_unwind(panics);
        assert!(outcome.is_err());
    });
    assert_eq!(spans.len(), 7);
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
    tracing::dispatcher::with_default(&world.dispatch, || {
        let _root = info_span!("root").entered();
        (0..4).for_each(|_| info_span!("step").in_scope(|| ()));
        assert_eq!(told.recv_timeout(TIMEOUT), Ok(4));
    });
    world.handle.flush(TIMEOUT).unwrap();
    check_sums(&world.handle);
}
