//! Threads that trace while their thread-local values are dropped. A registry panics then, which
//! aborts the process.

use std::cell::RefCell;
use std::thread;

use astracer_sdk::ContextMode;
use opentelemetry::Context;
use tracing::dispatcher::with_default;
use tracing::field::{Field, Value};
use tracing::metadata::Kind;
use tracing::span::{Attributes, Id};
use tracing::{Callsite, Dispatch, info_span};

use crate::support::{one, world};

/// Traces in its drop at the end of a thread.
struct Last(Option<Box<dyn FnOnce()>>);

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(trace) = self.0.take() {
            trace();
        }
    }
}

thread_local!(static LAST: RefCell<Last> = const { RefCell::new(Last(None)) });

/// Thread-locals that a thread used after [`Last`], and that are therefore dropped before it.
#[derive(Clone, Copy, Debug)]
enum Used {
    Nothing,
    Contexts,
    Spans,
}

/// OpenTelemetry's context may be gone by then, and with it the thread's stack of spans.
#[test]
fn a_thread_that_ends_may_trace() {
    for used in [Used::Nothing, Used::Contexts, Used::Spans] {
        for mode in [ContextMode::Off, ContextMode::Ids, ContextMode::Recording] {
            let world = world(|builder| builder.with_context_mode(mode));
            let dispatch = world.dispatch.clone();
            thread::spawn(move || {
                // The value that is used first is dropped last.
                LAST.with(|_| ());
                let earlier = with_default(&dispatch, || info_span!(parent: None, "earlier"));
                let own = dispatch.clone();
                LAST.with(|last| last.borrow_mut().0 = Some(Box::new(move || trace_by(&own, &earlier))));
                match used {
                    Used::Nothing => (),
                    Used::Contexts => drop(Context::new().attach()),
                    Used::Spans => with_default(&dispatch, || info_span!("before").in_scope(|| ())),
                }
            })
            .join()
            .unwrap();
            let spans = world.exported();
            let mut names: Vec<_> =
                spans.iter().map(|span| &*span.name).filter(|name| *name != "before").collect();
            names.sort_unstable();
            assert_eq!(names, ["below", "earlier", "last"], "{used:?}, {mode:?}");
            let [last, below] = ["last", "below"].map(|name| one(&spans, name));
            assert_eq!(below.parent_span_id, last.span_context.span_id(), "{used:?}, {mode:?}");
            assert_eq!(world.handle.stats().spans_open, 0);
        }
    }
}

/// `tracing`'s own thread-local may be gone too, after which its macros find no scoped subscriber.
fn trace_by(dispatch: &Dispatch, earlier: &tracing::Span) {
    earlier.in_scope(|| ());
    let begin = |callsite: &'static dyn Callsite, parent: Option<&Id>| {
        let metadata = callsite.metadata();
        let no_fields: [(&Field, Option<&dyn Value>); 0] = [];
        let values = metadata.fields().value_set(&no_fields);
        dispatch.new_span(&match parent {
            Some(parent) => Attributes::child_of(parent.clone(), metadata, &values),
            None => Attributes::new(metadata, &values),
        })
    };
    let last = begin(tracing::callsite! { name: "last", kind: Kind::SPAN, fields: }, None);
    dispatch.enter(&last);
    let below = begin(tracing::callsite! { name: "below", kind: Kind::SPAN, fields: }, Some(&last));
    dispatch.enter(&below);
    dispatch.exit(&below);
    dispatch.try_close(below);
    dispatch.exit(&last);
    dispatch.try_close(last);
}

/// A worker stays inside a span until its thread ends: a thread-local holds the guard, and is
/// dropped after the thread's stack of spans. The handles that the thread reserved for children
/// must not be lost with the stack.
#[test]
fn a_thread_may_be_inside_of_a_span_until_it_ends() {
    thread_local!(static WORKER: RefCell<Vec<tracing::span::EnteredSpan>> = const { RefCell::new(Vec::new()) });
    for mode in [ContextMode::Off, ContextMode::Ids, ContextMode::Recording] {
        for depth in 1..=3 {
            let world = world(|builder| builder.with_context_mode(mode));
            let dispatch = world.dispatch.clone();
            thread::spawn(move || {
                WORKER.with(|_| ());
                with_default(&dispatch, || {
                    for _ in 0..depth {
                        let worker = info_span!("worker").entered();
                        WORKER.with(|entered| entered.borrow_mut().push(worker));
                        info_span!("job").in_scope(|| ());
                    }
                });
            })
            .join()
            .unwrap();
            assert_eq!(world.exported().len(), 2 * depth, "{mode:?}, {depth}");
            assert_eq!(world.handle.stats().spans_open, 0, "{mode:?}, {depth}");
        }
    }
}
