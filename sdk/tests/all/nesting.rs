//! Spans of dropped traces that nest unlike a call tree, and contexts that outlive their spans.
//! Each span stays in its own trace, and so do the headers of calls made inside it.
//!
//! `proof` finds such programs at random, with futures polled inside others, filters, baggage,
//! links, and spans that are left out of order; these are the ones that it meets too rarely.

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt as _;
use tracing::info_span;

use crate::support::{current, sampling, world};

/// The registry reuses a span's id after some thousands of spans. A context that outlives the first
/// span must not write to the second.
#[test]
fn a_context_kept_for_longer_than_its_span_does_not_write_to_the_next_of_its_id() {
    let mut met = false;
    let spans = world(|builder| builder).run(|| {
        let first = info_span!("first");
        let (id, stale) = (first.id(), first.in_scope(Context::current));
        drop(first);
        for _ in 0..100_000 {
            let later = info_span!("later");
            met |= later.id() == id;
            if later.id() == id || !crate::BASE.uses_ids_again() {
                later.in_scope(|| stale.span().set_attribute(opentelemetry::KeyValue::new("stale", 1)));
            }
            if met {
                break;
            }
        }
    });
    assert_eq!(met, crate::BASE.uses_ids_again());
    assert!(spans.iter().all(|span| span.attributes.is_empty()));
}

/// The context of a dropped trace stays current while a span of it is entered.
#[test]
fn a_dropped_trace_s_context_stays_until_its_last_span_is_left() {
    let world = sampling("never", |builder| builder);
    world.run(|| {
        let root = info_span!("root").entered();
        let own = current().trace_id();
        let child = info_span!("child").entered();
        drop(root);
        assert_eq!(current().trace_id(), own);
        let again = info_span!("below").entered();
        assert_eq!(current().trace_id(), own);
        drop(child);
        assert_eq!(current().trace_id(), own);
        drop(again);
        assert!(!current().is_valid());
    });
}

/// One dropped trace has two contexts. Each stays with the spans that were entered after it.
#[test]
fn spans_of_a_dropped_trace_left_out_of_order_keep_their_context() {
    let world = sampling("every:2", |builder| builder);
    world.run(|| {
        let (kept, dropped) = (info_span!("kept"), info_span!("dropped"));
        kept.in_scope(|| ());
        let (below, again, own) =
            dropped.in_scope(|| (info_span!("below"), info_span!("again"), current().trace_id()));
        let first = dropped.enter();
        let _between = kept.enter();
        let second = below.enter();
        let third = again.enter();
        drop(first);
        drop(second);
        assert_eq!(current().trace_id(), own);
        drop(third);
        assert!(current().is_sampled());
    });
}

/// The service attaches a context with the ids of a dropped span, and detaches it at any time.
#[test]
fn a_dropped_span_entered_under_its_own_context_keeps_it() {
    let world = sampling("never", |builder| builder);
    world.run(|| {
        let dropped = info_span!("dropped");
        let (context, own) = dropped.in_scope(|| (Context::current(), current().trace_id()));
        let attached = context.attach();
        let _inside = dropped.enter();
        drop(attached);
        assert_eq!(current().trace_id(), own);
    });
}
