//! Races that random programs of one step at a time cannot have, and code that traces while it is
//! formatted. `proof::stress` has eight threads at once.

use std::fmt;
use std::sync::{Arc, Barrier};
use std::thread;

use astracer_sdk::{ContextMode, DroppedSpans, ProvisionalMode, Tail};
use astracer_testing::remote_parent;
use tracing::dispatcher::with_default;
use tracing::{info, info_span};

use crate::support::{draw, sampling, world};

/// Two threads enter a new root at the same moment. The sampler decides once.
#[test]
fn a_root_that_two_threads_enter_at_once_is_decided_once() {
    const ROUNDS: u64 = 200;
    for with_fields in [false, true] {
        let world = sampling("every:2", |builder| builder);
        let spans = world.run(|| {
            for _ in 0..ROUNDS {
                let root = if with_fields { info_span!("root", n = 1) } else { info_span!("root") };
                let barrier = Barrier::new(2);
                let enter = || {
                    world.inside(|| {
                        barrier.wait();
                        root.in_scope(|| info_span!("child").in_scope(|| ()));
                    });
                };
                thread::scope(|scope| {
                    scope.spawn(enter);
                    enter();
                });
            }
        });
        let stats = world.handle.stats();
        assert_eq!((stats.roots_kept, stats.roots_dropped), (ROUNDS / 2, ROUNDS / 2));
        assert_eq!(spans.len() as u64, 3 * ROUNDS / 2, "{with_fields} {stats:?}");
    }
}

#[test]
pub(crate) fn in_exclusive_mode_a_refused_span_s_task_begins_a_trace() {
    let world = sampling("every:2", |builder| builder.with_dropped_spans(DroppedSpans::Disabled));
    let spans = world.run(|| {
        info_span!("kept").in_scope(|| ());
        let refused = info_span!("dropped").in_scope(|| {
            assert!(info_span!(parent: None, "alone").is_disabled());
            info_span!("refused")
        });
        assert!(refused.is_disabled());
        let dispatch = world.dispatch.clone();
        let work = move || {
            with_default(&dispatch, || refused.in_scope(|| info_span!("begins").in_scope(|| ())));
        };
        thread::spawn(work).join().unwrap();
    });
    // Traces of different threads leave in any order.
    let drawn = draw(&spans);
    assert!(["begins\nkept\n", "kept\nbegins\n"].contains(&&*drawn), "{drawn}");
}

/// A panic in the caller's formatting code reaches the caller, and the layer continues.
#[test]
fn a_panic_while_formatting_leaves_the_layer_in_order() {
    struct Panics;
    impl fmt::Debug for Panics {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("as the test wants it")
        }
    }
    let spans = world(|builder| builder).run(|| {
        let root = info_span!("root").entered();
        let caught = std::panic::catch_unwind(|| info!(field = ?Panics, "lost"));
        assert!(caught.is_err());
        info!("kept");
        drop(root);
    });
    assert_eq!(draw(&spans), "root\n  * kept level=\"INFO\" target=\"tests::threads\"\n");
}

/// `set_parent` on one thread while another enters the span for the first time. The returned result
/// agrees with the exported parent, whichever thread is first.
#[test]
fn set_parent_reports_correctly_while_another_thread_enters() {
    use astracer_sdk::OpenTelemetrySpanExt as _;
    use opentelemetry::trace::TraceId;
    const ROUNDS: u64 = 600;
    for mode in [ContextMode::Off, ContextMode::Ids, ContextMode::Recording] {
        let world = world(|builder| builder.with_context_mode(mode));
        let mut set = Vec::new();
        let spans = world.run(|| {
            for n in 1..=ROUNDS {
                let root = info_span!("root", n).entered();
                let child = match n % 3 {
                    0 => info_span!("child", n),
                    1 => info_span!(parent: None, "child", n),
                    _ => info_span!("child", n, otel.kind = "server"),
                };
                let barrier = Barrier::new(2);
                let other = || {
                    world.inside(|| {
                        barrier.wait();
                        child.set_parent(remote_parent(n.into(), true)).is_ok()
                    })
                };
                set.push(thread::scope(|scope| {
                    let other = scope.spawn(other);
                    barrier.wait();
                    child.in_scope(|| info_span!("below", n).in_scope(|| ()));
                    other.join().unwrap()
                }));
                drop((child, root));
            }
        });
        assert_eq!(spans.len() as u64, 3 * ROUNDS, "{mode:?}");
        let of = |name: &str, n: u64| {
            let n = opentelemetry::Value::I64(n as i64);
            let is = |span: &&opentelemetry_sdk::trace::SpanData| {
                span.name == name && span.attributes.iter().any(|pair| pair.value == n)
            };
            spans.iter().find(is).unwrap()
        };
        for (n, was_set) in (1..).zip(set) {
            let (root, child, below) = (of("root", n), of("child", n), of("below", n));
            let trace = child.span_context.trace_id();
            assert_eq!(trace == TraceId::from(u128::from(n)), was_set, "{mode:?}: {n}");
            let is_below_root = trace == root.span_context.trace_id();
            assert_eq!(is_below_root, !was_set && n % 3 != 1, "{mode:?}: {n}");
            assert_eq!(below.span_context.trace_id(), trace);
            assert_eq!(below.parent_span_id, child.span_context.span_id());
        }
    }
}

/// Tables are built in place on the heap, not on the stack of the thread that first needs them:
/// musl gives a thread 128 KiB.
#[test]
fn a_thread_needs_little_stack() {
    const STACK: usize = 64 << 10;
    for (sampler, policies) in [("always", ""), ("never", ""), ("never", "error,slow:p99,odd")] {
        let world = Arc::new(sampling(sampler, |builder| {
            let builder = builder.with_context_mode(ContextMode::Recording);
            match policies.parse::<Tail>() {
                Ok(tail) => builder.with_tail(tail.with_provisional(ProvisionalMode::Always)),
                Err(_) => builder,
            }
        }));
        let own = world.clone();
        let traced = move || {
            with_default(&own.dispatch, || {
                let root = info_span!("root", n = 1, text = "some").entered();
                info_span!("child", n = 2).in_scope(|| tracing::error!("an event"));
                drop(root);
            });
        };
        thread::Builder::new().stack_size(STACK).spawn(traced).unwrap().join().unwrap();
        let expected = if sampler == "always" || !policies.is_empty() { 2 } else { 0 };
        assert_eq!(world.exported().len(), expected, "{sampler} {policies}");
    }
}
