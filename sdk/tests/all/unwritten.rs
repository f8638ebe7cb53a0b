//! Spans of a kept trace for which only the beginning is recorded at first. Their records are
//! written late, without any visible difference.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use astracer_testing::attribute;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, KeyValue, Value};
use tracing::{info, info_span};

use crate::support::{one, world};

#[test]
fn each_span_has_the_thread_that_it_began_on() {
    let world = world(|builder| builder.with_threads(true));
    let spans = world.run(|| {
        let root = info_span!("root").entered();
        info_span!("here").in_scope(|| ());
        let elsewhere = || {
            world.inside(|| root.in_scope(|| info_span!("there").in_scope(|| ())));
        };
        let name = |name: &str| thread::Builder::new().name(name.to_owned());
        thread::scope(|scope| {
            name("other").spawn_scoped(scope, elsewhere).unwrap();
        });
        let ended_there = info_span!("begun here");
        thread::scope(|scope| {
            name("another").spawn_scoped(scope, || world.inside(|| drop(ended_there))).unwrap();
        });
    });
    let thread = |name| attribute(one(&spans, name), "thread.name").map(Value::to_string);
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
                let other = || world.inside(|| span.in_scope(|| pass(100_000)));
                scope.spawn(other).join().unwrap();
            });
            drop(inside);
            pass(1_000_000);
        }
        let _never = info_span!("never entered");
        pass(10);
    });
    let times = |name| {
        ["busy_ns", "idle_ns"].map(|key| match attribute(one(&spans, name), key) {
            Some(Value::I64(nanos)) => nanos / 1_000_000,
            other => panic!("{other:?}"),
        })
    };
    for name in ["late", "between", "from the start"] {
        assert_eq!(times(name), [110_110, 1_001], "{name}");
    }
    assert_eq!(times("never entered"), [0, 0]);
    assert_eq!(times("root"), [3_333_343, 0]);
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
        world.inside(|| {
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
