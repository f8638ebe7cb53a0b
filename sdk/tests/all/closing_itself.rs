//! User code that ends spans while the layer works on them: fields whose formatting exits and drops
//! the span around them, filters that panic in `on_close`, and context values that panic in their
//! drop.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SpanData;
use tracing::span::Attributes;
use tracing::{Callsite, Dispatch, Metadata, info, info_span};

use crate::support::{World, draw, one, world};

/// Calls a function when it is formatted for the first time.
struct Runs<F>(RefCell<Option<F>>);

fn runs<F: FnOnce()>(f: F) -> Runs<F> {
    Runs(RefCell::new(Some(f)))
}

impl<F: FnOnce()> fmt::Debug for Runs<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(run) = self.0.borrow_mut().take() {
            run();
        }
        f.write_str("ran")
    }
}

/// Begins a root through the subscriber's own functions, because the macros do nothing while
/// `tracing` formats a value.
fn root(dispatch: &Dispatch) -> tracing::span::Id {
    let callsite = tracing::callsite! { name: "next", kind: tracing::metadata::Kind::SPAN, fields: };
    let metadata: &'static Metadata<'static> = callsite.metadata();
    let no_fields: [(&tracing::field::Field, Option<&dyn tracing::field::Value>); 0] = [];
    let id = dispatch.new_span(&Attributes::new_root(metadata, &metadata.fields().value_set(&no_fields)));
    dispatch.enter(&id);
    dispatch.exit(&id);
    id
}

/// Passes `uses` a field whose formatting ends the span around it and begins another span, which
/// ends last.
fn with_field_that_ends_its_span(uses: impl FnOnce(&dyn fmt::Debug)) -> (World, Vec<SpanData>) {
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let around = info_span!("around").entered();
        let next = RefCell::new(None);
        let field = runs(|| {
            drop(around);
            *next.borrow_mut() = Some(root(&world.dispatch));
        });
        uses(&field);
        world.dispatch.try_close(next.take().unwrap());
    });
    (world, spans)
}

/// The next span may reuse the table entry of the one that ended.
#[test]
fn an_event_that_ends_its_span_is_not_the_next_one_s() {
    let (_, spans) = with_field_that_ends_its_span(|field| info!(?field, "ends its span"));
    assert_eq!(one(&spans, "next").events.events.len(), 0, "{}", draw(&spans));
    assert_eq!(spans.len(), 2);
}

#[test]
fn a_span_that_ends_its_parent_while_it_begins_is_not_below_the_next_one() {
    let (world, spans) = with_field_that_ends_its_span(|field| drop(info_span!("child", ?field).entered()));
    assert_eq!(spans.len(), 3);
    let (around, child) = (one(&spans, "around"), one(&spans, "child"));
    assert_eq!(child.parent_span_id, around.span_context.span_id(), "{}", draw(&spans));
    assert_eq!(child.span_context.trace_id(), around.span_context.trace_id());
    assert_eq!(world.handle.stats().spans_open, 0);
}

/// A context value that panics in its drop. The span that ends holds the last reference to it.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("a value of the service's");
    }
}

#[test]
fn a_span_whose_context_panics_on_drop_releases_its_parent() {
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let root = info_span!("root").entered();
        let baggage = Context::current_with_value(Panics).with_baggage([KeyValue::new("a", "b")]);
        let attached = baggage.attach();
        let child = info_span!("child");
        drop(attached);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(child))).is_err());
        drop(root);
    });
    assert_eq!(draw(&spans), "root\n  child\n");
    assert_eq!(world.handle.stats().spans_open, 0);
}

/// The second value is dropped while the first panic unwinds.
#[test]
fn two_contexts_that_panic_when_they_are_dropped_do_not_end_the_process() {
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let root = info_span!("root").entered();
        let below = |name: &'static str| {
            let attached =
                Context::current_with_value(Panics).with_baggage([KeyValue::new("a", "b")]).attach();
            let span = info_span!("below", otel.name = name);
            // The context has two owners; this is the first.
            drop(attached);
            span
        };
        let middle = below("middle").entered();
        let leaf = below("leaf");
        // Exits the span and drops its handle. Only the leaf holds it now.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(middle)));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(leaf))).is_err());
        drop(root);
    });
    assert_eq!(spans.len(), 3, "{}", draw(&spans));
}
