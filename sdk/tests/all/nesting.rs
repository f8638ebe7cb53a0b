//! Spans that nest unlike a call tree: one request's future polled inside another's, spans entered
//! again inside other roots, parents that a filter hides. Each span stays in its own trace, and so
//! do the headers of calls made inside it.
//!
//! `proof` finds such programs at random, with filters, baggage, links, and spans that are left out
//! of order; these are the ones that it meets too rarely.

use std::task::{Context as TaskContext, Poll, Waker};

use astracer_sdk::ContextMode;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use tracing::{Instrument as _, info, info_span};

use crate::support::{draw, sampling, world};

fn current() -> SpanContext {
    Context::current().span().span_context().clone()
}

const WITH_CONTEXT: [ContextMode; 2] = [ContextMode::Ids, ContextMode::Recording];

/// As in a data loader, a future of one request is polled inside another's. The sampler keeps the
/// first trace, and drops the second.
#[test]
fn a_dropped_request_s_future_polled_in_a_kept_one_keeps_its_trace() {
    for mode in WITH_CONTEXT {
        let world = sampling("every:2", |builder| builder.with_context_mode(mode));
        let spans = world.run(|| {
            let (kept, dropped) = (info_span!("kept"), info_span!("dropped"));
            kept.in_scope(|| assert!(current().is_sampled()));
            let outside = dropped.in_scope(current);
            assert!(outside.is_valid() && !outside.is_sampled());
            let load = dropped.in_scope(|| {
                async {
                    info_span!("client", otel.kind = "client").in_scope(|| ());
                    current()
                }
                .instrument(info_span!("load"))
            });
            let mut load = std::pin::pin!(load);
            let Poll::Ready(inside) =
                kept.in_scope(|| load.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())))
            else {
                panic!("it waits")
            };
            assert_eq!((inside.trace_id(), inside.is_sampled()), (outside.trace_id(), false), "{mode:?}");
            kept.in_scope(|| assert!(current().is_sampled()));
        });
        assert_eq!(draw(&spans), "kept\n", "{mode:?}");
    }
}

/// A span beyond its trace's bound: its context is of its own trace, never of an earlier one.
#[test]
fn a_span_beyond_a_bound_has_its_own_trace_s_context() {
    for mode in WITH_CONTEXT {
        let world =
            sampling("every:2", |builder| builder.with_context_mode(mode).with_spans_per_trace_max(2));
        world.run(|| {
            // Dropped roots leave their ids in entries that are reused.
            for _ in 0..80 {
                info_span!("before").in_scope(|| ());
            }
            let kept = info_span!("kept").entered();
            let trace = current();
            assert!(trace.is_sampled());
            let open = info_span!("open", n = 1);
            let more = info_span!("more");
            info!(parent: &more, "recorded late");
            let inside = more.in_scope(current);
            assert_eq!((inside.trace_id(), inside.is_sampled()), (trace.trace_id(), true), "{mode:?}");
            drop((more, open, kept));
        });
    }
}

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
