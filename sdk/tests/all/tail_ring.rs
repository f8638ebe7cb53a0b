//! Traces in the ring that keeps what ended: which one goes first, when, and how it is found.

use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use astracer_sdk::OpenTelemetrySpanExt as _;
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceState};
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing::{error, info_span};

use crate::support::{TIMEOUT, World, one, world};
use crate::tail::{check_sums, dropping, names, reason, request, requests, tail};

/// A small ring; the first error uses the budget up, so that others stay in the ring.
fn small() -> World {
    dropping(tail("error(traces=1,burst=1)").with_ring_bytes(64 << 10))
}

/// Requests that end one after the other, within the time for which they are held.
fn in_turn(world: &World, number: usize, fail: bool) -> Vec<TraceId> {
    let one = || {
        world.clock.advance(Duration::from_micros(100));
        request(fail)
    };
    tracing::dispatcher::with_default(&world.dispatch, || (0..number).map(|_| one()).collect())
}

/// Whether each of these is still there. It is not, after that.
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
fn ordinary_traces_do_not_take_the_room_of_marked_ones() {
    let world = small();
    let ids = in_turn(&world, 1_000, true);
    let held = world.handle.stats().tail.traces_held;
    in_turn(&world, 100, false);
    let found = found(&world, &ids);
    assert_eq!(found.iter().filter(|found| **found).count() as u64, held);
    check_sums(&world.handle);
}

/// The other way round, marked ones that come take the room of ordinary ones.
#[test]
fn marked_traces_take_the_room_of_ordinary_ones() {
    let world = small();
    let ordinary = in_turn(&world, 1_000, false);
    let marked = in_turn(&world, 21, true);
    assert_eq!(found(&world, &marked[1..]), [true; 20]);
    assert!(found(&world, &ordinary).iter().any(|found| *found), "no more than they need");
    check_sums(&world.handle);
}

/// Whatever its value, a trace stays for its time and no longer.
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
    // Records are smaller with words of 32 bits.
    let most = if cfg!(target_pointer_width = "64") { 2_000 } else { 2_100 };
    assert!((300..most).contains(&spans.len()), "{}", spans.len());
    assert_eq!(spans.len() as u64 + cut, 5_001, "the root is not cut");
    check_sums(&world.handle);
}

/// An open trace in which nothing was seen makes room for marked ones only.
#[test]
fn ordinary_traces_do_not_take_the_room_of_open_ones() {
    let world = small();
    let spans = world.run(|| {
        let roots: Vec<_> = (0..10).map(|_| info_span!("root")).collect();
        for root in &roots {
            (0..150).for_each(|_| root.in_scope(|| info_span!("step").in_scope(|| ())));
        }
        error!(parent: &roots[0], "failed");
        drop(roots);
    });
    assert_eq!(spans.len(), 151, "the first one is whole");
    assert!(world.handle.stats().tail.spans_given_up.ring_full > 0);
    check_sums(&world.handle);
}

/// Waits until open traces have left their slots for their age: what ends then is late.
pub(crate) fn all_leave(world: &World) {
    all_leave_but(world, 0);
}

/// As [`all_leave`], where this number of traces stays.
pub(crate) fn all_leave_but(world: &World, stay: u64) {
    world.clock.advance(Duration::from_secs(31));
    for _ in 0..1_000 {
        if world.handle.stats().tail.traces_open == stay {
            return;
        }
        // The exporter's thread looks for old traces when there is something to do.
        assert!(world.handle.keep(request(false)));
        world.handle.flush(TIMEOUT).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{:?}", world.handle.stats());
}

/// A late child asks the policies again if it is worse than its trace, and only then.
#[test]
fn a_late_child_that_is_no_worse_asks_nobody() {
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

/// Late children are held as far as there is room; the exported root says how many are missing.
#[test]
fn a_late_child_without_room_is_counted() {
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

/// The bounds of a trace hold for late children as for others: a number of spans, and a quarter of
/// the ring.
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

/// A late child that fails finds room for itself as any span does, at the expense of what is worth
/// less.
#[test]
fn a_late_child_that_fails_takes_the_room_of_ordinary_traces() {
    let world = dropping(tail("error").with_ring_bytes(64 << 10));
    // Of the last shard: of traces of one age, those of the first ones make room first.
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

/// A root that is the part of another process's trace, which that one dropped.
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

/// Parts whose roots are open when the trace is asked for follow the part that is there.
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
        // In time no more.
        world.clock.advance(Duration::from_secs(31));
        part(id, "second");
    });
    assert_eq!(names(&spans), ["first", "open", "open"]);
    let stats = world.handle.stats().tail;
    assert_eq!((stats.kept_by_hand, stats.not_there, stats.traces_held), (3, 0, 1));
    check_sums(&world.handle);
}

/// A trace that was asked for before it came is kept, if it comes within the age that an open trace
/// may have.
#[test]
fn an_ask_is_remembered_for_the_age_of_a_trace() {
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

/// The time counts from the last ask.
#[test]
fn an_ask_that_is_repeated_is_remembered_anew() {
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

/// Two parts of one trace, and late children of the one whose root is open: that root tells of
/// those for which there was no room.
#[test]
fn late_children_that_are_cut_are_told_of() {
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

/// A trace that was looked at is as old as before: one that came meanwhile stays longer.
#[test]
fn a_trace_that_comes_back_has_its_place() {
    let world = dropping(tail("error"));
    // Of one shard, as their last three bits say.
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

/// Traces that are kept after it do not make a trace's late children lose it.
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

/// A late child that makes its trace worse when the budget is used up: the trace is refused, and
/// given up for that.
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

/// Where all that is open is marked, nothing of it is given up for the rest; nor is a trace that
/// the head keeps.
#[test]
fn marked_traces_do_not_take_the_room_of_open_ones_that_are_worth_as_much() {
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

/// A loop's length is no other shape, however long it is: what encloses it ends last.
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

/// The order of calls is no part of a shape.
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

/// The slot has memory then, and room for it, before its trace has a header. A trace that leaves
/// for its age has no root to bring one.
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
        // Its age shows at the tick after the one that notes its time.
        for _ in 0..3 {
            world.clock.advance(Duration::from_secs(1));
            world.handle.flush(TIMEOUT).unwrap();
        }
        assert_eq!(world.handle.stats().spans_waiting, 0);
        check_sums(&world.handle);
    });
    assert_eq!(names(&spans).len(), 6, "its step was odd, and its root came late");
}

/// Traces from before the clock was set back lie ahead of it: they are held no longer than others,
/// and none behind them.
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

/// The same of an ask: its time is over.
#[test]
fn asks_from_before_the_clock_was_set_back_are_forgotten() {
    let world = dropping(tail("error"));
    let spans = world.run(|| {
        world.clock.advance(Duration::from_secs(3_600));
        assert!(!world.handle.keep(TraceId::from(7_u128)));
        world.clock.set_back(Duration::from_secs(3_590));
        part(TraceId::from(7_u128), "second");
    });
    assert!(spans.is_empty());
}

/// The slot that its trace has left is another one's, which gathers spans there.
#[test]
fn a_late_child_is_not_with_the_trace_that_has_its_slot() {
    let world = dropping(tail("error()"));
    let spans = world.run(|| {
        let first = info_span!("first");
        let step = || info_span!("step").in_scope(|| ());
        first.in_scope(step);
        all_leave(&world);
        // One of these has the slot.
        let others: Vec<_> = (0..100).map(|_| info_span!("other")).collect();
        others.iter().for_each(|other| (0..5).for_each(|_| other.in_scope(step)));
        first.in_scope(step);
        others.iter().for_each(|other| other.in_scope(|| error!("failed")));
        drop(others);
        drop(first);
    });
    // Others were kept by hand.
    let kept: Vec<_> = spans.into_iter().filter(|span| reason(span).as_deref() == Some("error")).collect();
    assert_eq!(names(&kept), [&["other"; 100][..], &["step"; 500]].concat());
    assert_eq!(world.handle.stats().tail.spans_held, 3, "those of the first");
    check_sums(&world.handle);
}

/// A span that nobody was inside of, dropped while a panic passes.
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

/// Tells of each batch.
#[derive(Debug)]
struct Tells(Sender<usize>);

impl SpanExporter for Tells {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let _ = self.0.send(batch.len());
        Ok(())
    }
}

/// A trace that the head keeps sends parts ahead while its root is open, as without policies.
#[test]
fn a_kept_trace_that_grows_leaves_in_parts() {
    let (tells, told) = mpsc::channel();
    let world = world(|builder| {
        let builder = builder.with_tail(tail("error")).with_spans_per_trace_max(4);
        builder.with_batch_spans(1).with_exporter(Tells(tells))
    });
    tracing::dispatcher::with_default(&world.dispatch, || {
        let _root = info_span!("root").entered();
        (0..4).for_each(|_| info_span!("step").in_scope(|| ()));
        assert_eq!(told.recv_timeout(TIMEOUT), Ok(4));
    });
    world.handle.flush(TIMEOUT).unwrap();
    check_sums(&world.handle);
}
