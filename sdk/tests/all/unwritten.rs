//! Spans of a kept trace for which only the beginning is recorded at first. Their records are
//! written late, without any visible difference.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use astracer_sdk::{ContextMode, OpenTelemetrySpanExt as _};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, KeyValue, Value};
use tracing::dispatcher::with_default;
use tracing::{Dispatch, info, info_span};
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry};

use crate::support::{TIMEOUT, World, draw, one, world};

#[test]
fn what_comes_late_is_recorded() {
    let world = world(|builder| builder);
    let tick = || world.clock.advance(Duration::from_millis(1));
    let spans = world.run(|| {
        let _root = info_span!("root").entered();
        info_span!("event").in_scope(|| info!("an event"));
        tick();
        info_span!("event by parent").in_scope(|| ());
        tick();
        let named = info_span!("by parent");
        info!(parent: &named, "an event");
        named.in_scope(|| ());
        tick();
        let context = info_span!("by context");
        context.in_scope(|| Context::current().span().set_attribute(KeyValue::new("late", 1)));
        tick();
        let by_trait = info_span!("by trait");
        by_trait.set_attribute("late", 2);
        tick();
        let follows = info_span!("follows");
        follows.follows_from(&context);
    });
    let expected = "root\n  event\n    * an event level=\"INFO\" target=\"tests::unwritten\"\n  event by parent\n  by parent\n    \
                    * an event level=\"INFO\" target=\"tests::unwritten\"\n  by context late=1\n  by trait late=2\n  follows\n";
    assert_eq!(draw(&spans), expected);
    let linked = one(&spans, "by context").span_context.span_id();
    assert_eq!(one(&spans, "follows").links.links[0].span_context.span_id(), linked);
}

/// Whether a span's record is written when it begins, as for a span with attributes, or later.
#[test]
fn spans_leave_in_the_order_in_which_they_began() {
    let world = world(|builder| builder);
    let tick = || world.clock.advance(Duration::from_millis(1));
    let spans = world.run(|| {
        let _a = info_span!("a").entered();
        tick();
        let b = info_span!("b");
        tick();
        let c = info_span!("c", n = 1);
        tick();
        let _d = b.in_scope(|| info_span!("d"));
        tick();
        c.in_scope(|| info_span!("e", n = 2).in_scope(tick));
        tick();
        b.in_scope(tick);
    });
    let began: Vec<_> = spans.iter().map(|span| span.name.as_ref()).collect();
    assert_eq!(began, ["a", "b", "c", "d", "e"]);
    let lasted = |name| {
        let span = one(&spans, name);
        span.end_time.duration_since(span.start_time).unwrap().as_millis()
    };
    // `d` is never exited, so it ends when it is closed.
    assert_eq!(["a", "b", "c", "d", "e"].map(lasted), [7, 6, 3, 4, 1]);
}

#[test]
fn each_span_has_the_thread_that_it_began_on() {
    let world = world(|builder| builder.with_threads(true));
    let spans = world.run(|| {
        let root = info_span!("root").entered();
        info_span!("here").in_scope(|| ());
        let elsewhere = || {
            with_default(&world.dispatch, || root.in_scope(|| info_span!("there").in_scope(|| ())));
        };
        let name = |name: &str| thread::Builder::new().name(name.to_owned());
        thread::scope(|scope| {
            name("other").spawn_scoped(scope, elsewhere).unwrap();
        });
        let ended_there = info_span!("begun here");
        thread::scope(|scope| {
            name("another")
                .spawn_scoped(scope, || with_default(&world.dispatch, || drop(ended_there)))
                .unwrap();
        });
    });
    let thread = |name| {
        let attributes = &one(&spans, name).attributes;
        let found = attributes.iter().find(|attribute| attribute.key.as_str() == "thread.name");
        found.map(|attribute| attribute.value.to_string())
    };
    assert_eq!(thread("there").as_deref(), Some("other"));
    assert_eq!(thread("here"), thread("root"));
    assert_eq!(thread("begun here"), thread("root"));
    assert_ne!(thread("root"), thread("there"));
}

/// Busy and idle time run from a span's start to its last exit, as in tracing-opentelemetry,
/// whether the record is written at the start, in between, or at the end. Threads that are inside
/// at the same time count once.
#[test]
fn busy_and_idle_times_are_those_of_the_stock_layer() {
    let world = world(|builder| builder.with_tracked_inactivity(true));
    let pass = |ms| world.clock.advance(Duration::from_millis(ms));
    let spans = world.run(|| {
        let _root = info_span!("root", n = 1).entered();
        for name in ["late", "between", "from the start"] {
            let span = match name {
                "from the start" => info_span!("from the start", n = 1),
                "between" => info_span!("between"),
                _ => info_span!("late"),
            };
            pass(1);
            span.in_scope(|| {
                pass(10);
                if name == "between" {
                    info!("an event");
                }
                span.in_scope(|| pass(100));
            });
            pass(1_000);
            let inside = span.enter();
            pass(10_000);
            thread::scope(|scope| {
                let other = || with_default(&world.dispatch, || span.in_scope(|| pass(100_000)));
                scope.spawn(other).join().unwrap();
            });
            drop(inside);
            pass(1_000_000);
        }
        let _never = info_span!("never entered");
        pass(10);
    });
    let times = |name| {
        ["busy_ns", "idle_ns"].map(|key| {
            let attributes = &one(&spans, name).attributes;
            let value = &attributes.iter().find(|attribute| attribute.key.as_str() == key).unwrap().value;
            match value {
                Value::I64(nanos) => nanos / 1_000_000,
                other => panic!("{other:?}"),
            }
        })
    };
    for name in ["late", "between", "from the start"] {
        assert_eq!(times(name), [110_110, 1_001], "{name}");
    }
    assert_eq!(times("never entered"), [0, 0]);
    assert_eq!(times("root"), [3_333_343, 0]);
}

/// A registry reuses the id of an ended span; our subscriber reuses the table entry.
#[test]
fn the_context_of_an_ended_span_changes_no_other() {
    let spans = world(|builder| builder).run(|| {
        let _root = info_span!("root").entered();
        let old = info_span!("old");
        let (id, cx) = (old.id(), old.in_scope(Context::current));
        drop(old);
        let is_next = |new: &tracing::Span| !crate::BASE.uses_ids_again() || new.id() == id;
        let new = (0..10_000).map(|_| info_span!("new")).find(is_next).expect("ids are reused");
        assert_eq!(new.id() == id, crate::BASE.uses_ids_again());
        for _ in 0..2 {
            assert!(!cx.span().is_recording());
            cx.span().set_attribute(KeyValue::new("late", true));
            info!(parent: &new, "it has a record now");
        }
    });
    assert!(spans.iter().all(|span| span.attributes.is_empty()));
}

#[test]
fn open_spans_are_counted_once_when_the_layer_is_shut_down() {
    let World { dispatch, handle, .. } = &world(|builder| builder);
    with_default(dispatch, || {
        let _root = info_span!("root").entered();
        let open: Vec<_> = (0..5).map(|_| info_span!("open")).collect();
        let written = info_span!("written", n = 1);
        handle.shutdown(TIMEOUT).unwrap();
        assert_eq!((handle.stats().spans_lost.total(), handle.stats().spans_open), (0, 7));
        thread::scope(|scope| scope.spawn(|| with_default(dispatch, || drop(open))).join().unwrap());
        drop(written);
        drop(info_span!("later"));
        assert_eq!(handle.stats().spans_lost.shut_down, 6);
    });
    assert_eq!((handle.stats().spans_lost.total(), handle.stats().spans_made), (7, 7));
}

/// A span's record is written through its context while another thread ends the span.
#[test]
fn a_span_that_ends_while_it_is_written_has_one_record() {
    const TRACES: usize = 2_000;
    let world = world(|builder| builder);
    let (contexts, received) = channel::<Context>();
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            for cx in received {
                barrier.wait();
                cx.span().set_attribute(KeyValue::new("late", true));
            }
        });
        let contexts = contexts;
        with_default(&world.dispatch, || {
            for _ in 0..TRACES {
                let _root = info_span!("root").entered();
                let child = info_span!("child");
                contexts.send(child.in_scope(Context::current)).unwrap();
                barrier.wait();
                drop(child);
            }
        });
    });
    let spans = world.exported();
    assert_eq!(spans.iter().filter(|span| span.name == "child").count(), TRACES);
    assert_eq!(spans.len(), 2 * TRACES);
}

/// A filter on the layer hides a root that began inside one of our spans. For spans below that root
/// the registry holds the hidden root, not our span, so our trace may leave before they end.
#[test]
fn a_span_that_outlives_its_trace_is_exported_in_it() {
    let world = world(|builder| builder);
    let filter = FilterFn::new(|metadata| metadata.name() != "hidden");
    let dispatch = Dispatch::new(Registry::default().with(world.astracer.layer.clone().with_filter(filter)));
    with_default(&dispatch, || {
        let root = info_span!("root").entered();
        let hidden = info_span!(parent: None, "hidden").entered();
        let late = info_span!("late");
        drop((hidden, root));
        // This root takes the slot.
        let other = info_span!("other").entered();
        drop(late);
        drop(other);
    });
    let spans = world.exported();
    assert_eq!(draw(&spans), "root\n  late\nother\n");
    let trace_id = |name| one(&spans, name).span_context.trace_id();
    assert_eq!(trace_id("late"), trace_id("root"));
    assert_eq!(world.handle.stats().spans_lost.total(), 0);
}

/// A shutdown applies to the layer's clones on other subscribers too.
#[test]
fn open_spans_of_another_subscriber_are_counted_when_they_end() {
    let world = world(|builder| builder);
    let other = crate::support::dispatch(&world.astracer);
    with_default(&other, || {
        let root = info_span!("root").entered();
        let open = info_span!("open");
        world.handle.shutdown(TIMEOUT).unwrap();
        assert_eq!(world.handle.stats().spans_open, 2);
        drop((open, root));
        assert_eq!(world.handle.stats().spans_lost.shut_down, 2);
    });
}

/// A root that was never entered is decided when it ends, and leaves nothing to the next span with
/// its id.
#[test]
fn a_root_that_nobody_enters_leaves_no_context_behind() {
    for mode in [ContextMode::Ids, ContextMode::Recording] {
        world(|builder| builder.with_context_mode(mode)).run(|| {
            let remote = SpanContext::new(
                TraceId::from(7),
                SpanId::from(7),
                TraceFlags::SAMPLED,
                true,
                TraceState::default(),
            );
            let first = info_span!("first");
            first.set_parent(Context::new().with_remote_span_context(remote)).unwrap();
            drop(first);
            // One of these reuses the entry.
            for _ in 0..10 {
                let inside = info_span!("next").in_scope(|| Context::current().span().span_context().clone());
                assert_ne!(inside.trace_id(), TraceId::from(7));
            }
        });
    }
}
