//! The stock extension trait on our layer, beyond what `span_ext` compares: threads, and
//! references that outlive a call.

use std::sync::{Arc, Barrier};
use std::thread;

use astracer_testing::remote_parent;
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry::{Context, TraceId};
use tracing::{Dispatch, Span, info, info_span};
use tracing_opentelemetry::{OpenTelemetrySpanExt as _, get_otel_context};

use crate::support::{draw, one, world};
use astracer_sdk::ContextMode;

fn remote() -> Context {
    remote_parent(77, true)
}

fn ids(cx: &Context) -> SpanContext {
    cx.span().span_context().clone()
}

#[test]
fn one_context_whoever_asks_first() {
    for mode in [ContextMode::Off, ContextMode::Ids, ContextMode::Recording] {
        let world = world(|builder| builder.with_context_mode(mode));
        let mut seen = Vec::new();
        let spans = world.run(|| {
            let root = info_span!("root");
            root.set_parent(remote()).unwrap();
            // The child's context is read first.
            let child = info_span!(parent: &root, "child");
            seen.push(ids(&child.context()));
            seen.push(ids(&root.context()));
            assert_eq!(ids(&astracer_sdk::OpenTelemetrySpanExt::context(&root)), seen[1]);
            let dispatch = tracing::dispatcher::get_default(Dispatch::clone);
            assert_eq!(ids(&get_otel_context(&root.id().unwrap(), &dispatch).unwrap()), seen[1]);
            let ours = astracer_sdk::get_otel_context(&root.id().unwrap(), &dispatch);
            assert_eq!(ids(&ours.unwrap()), seen[1]);
            root.in_scope(|| assert_eq!(ids(&Span::current().context()), seen[1]));
        });
        assert_eq!(one(&spans, "child").span_context, seen[0], "{mode:?}");
        assert_eq!(one(&spans, "root").span_context, seen[1], "{mode:?}");
        assert_eq!(seen[1].trace_id(), TraceId::from(77u128));
    }
}

#[test]
fn threads_ask_about_one_span_at_once() {
    const THREADS: i64 = 4;
    const ROUNDS: i64 = 50;
    for round in 0..ROUNDS {
        let world = world(|builder| builder);
        let spans = world.run(|| {
            let root = info_span!("root");
            let barrier = Barrier::new(THREADS as usize);
            let contexts = thread::scope(|scope| {
                let ask = |n: i64| {
                    let (root, barrier, dispatch) = (&root, &barrier, &world.dispatch);
                    move || {
                        barrier.wait();
                        root.set_attribute(format!("before {n}"), n);
                        if n == round % THREADS {
                            tracing::dispatcher::with_default(dispatch, || root.in_scope(|| info!("inside")));
                        }
                        root.add_event(format!("event {n}"), vec![]);
                        ids(&root.context())
                    }
                };
                let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(ask(n))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            assert!(contexts.iter().all(|cx| cx.is_valid() && *cx == contexts[0]), "{contexts:?}");
        });
        let root = one(&spans, "root");
        assert_eq!((root.attributes.len() as i64, root.events.len() as i64), (THREADS, THREADS + 1));
    }
}

/// A span moves to a thread that has no default subscriber, and its context is read there.
#[test]
fn a_span_is_asked_on_a_thread_without_a_subscriber() {
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let root = info_span!("root");
        thread::scope(|scope| {
            scope.spawn(|| {
                root.set_parent(remote()).unwrap();
                root.set_attribute("n", 1);
                assert_eq!(ids(&root.context()).trace_id(), TraceId::from(77u128));
            });
        });
    });
    assert_eq!(draw(&spans), "root n=1\n");
}

/// A call leaves no reference behind, neither to what its context holds nor to the trace.
#[test]
fn arguments_of_a_call_are_released() {
    struct Held;
    let world = world(|builder| builder);
    let held = Arc::new(Held);
    world.run(|| {
        for sampled in [true, false] {
            let root = info_span!("root");
            let given = Context::new().with_value(held.clone());
            let parent = remote_parent(7, sampled).span().span_context().clone();
            root.set_parent(given.with_remote_span_context(parent)).unwrap();
            assert!(root.context().get::<Arc<Held>>().is_some());
            root.in_scope(|| assert!(Span::current().context().get::<Arc<Held>>().is_some()));
        }
    });
    assert_eq!(Arc::strong_count(&held), 1);
}
