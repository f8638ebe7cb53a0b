//! Spans that nest unlike a call tree: one request's future polled inside another's, spans entered
//! again inside other roots, parents that a filter hides. Each span stays in its own trace, and so
//! do the headers of calls made inside it.
//!
//! `proof` finds such programs at random; these are the ones that failed once.

use std::task::{Context as TaskContext, Poll, Waker};

use astracer_sdk::ContextMode;
use opentelemetry::Context;
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceId};
use opentelemetry_sdk::trace::SpanData;
use tracing::{Dispatch, Instrument as _, debug_span, info, info_span};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry};

use crate::support::{draw, one, world};

fn current() -> SpanContext {
    Context::current().span().span_context().clone()
}

const WITH_CONTEXT: [ContextMode; 2] = [ContextMode::Ids, ContextMode::Recording];

fn trace(spans: &[SpanData], name: &str) -> TraceId {
    one(spans, name).span_context.trace_id()
}

/// As in a data loader, a future of one request is polled inside another's. The sampler keeps the
/// first trace, and drops the second.
#[test]
fn a_dropped_request_s_future_polled_in_a_kept_one_keeps_its_trace() {
    for mode in WITH_CONTEXT {
        let world = world(|builder| builder.with_context_mode(mode).with_sampler("every:2".parse().unwrap()));
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

#[test]
fn a_span_of_one_dropped_trace_entered_in_another_keeps_its_trace() {
    for mode in WITH_CONTEXT {
        let world = world(|builder| builder.with_context_mode(mode).with_sampler("never".parse().unwrap()));
        world.run(|| {
            let (a, b) = (info_span!("a"), info_span!("b"));
            let (child, own) = a.in_scope(|| (info_span!("child"), current().trace_id()));
            let other = b.in_scope(|| {
                child.in_scope(|| assert_eq!(current().trace_id(), own, "{mode:?}"));
                current().trace_id()
            });
            assert_ne!(own, other);
        });
    }
}

/// For the registry the parent of `child` is `other`, and for our layer it is `root`. So `root` may
/// be closed before `child` ends.
#[test]
fn a_span_below_one_that_was_entered_again_is_exported() {
    for with_fields in [false, true] {
        let spans = world(|builder| builder).run(|| {
            let root = info_span!("root");
            let other = info_span!(parent: None, "other");
            let make = || if with_fields { info_span!("child", n = 1) } else { info_span!("child") };
            let child = root.in_scope(|| other.in_scope(|| root.in_scope(make)));
            drop(root);
            // The slot of the root's trace is free, and this root may take it.
            let third = info_span!(parent: None, "third").entered();
            child.in_scope(|| info_span!("below", n = 1).in_scope(|| ()));
            drop((third, child, other));
        });
        assert_eq!(spans.len(), 5, "{with_fields}: {}", draw(&spans));
        let root = one(&spans, "root").span_context.clone();
        assert_eq!(one(&spans, "child").parent_span_id, root.span_id());
        for name in ["child", "below"] {
            assert_eq!(trace(&spans, name), root.trace_id(), "{name}");
        }
    }
}

/// As above, with a filter on the layer that hides the registry's parent.
#[test]
fn a_span_below_a_hidden_one_is_exported_in_its_trace() {
    let world = world(|builder| builder);
    let layer = world.astracer.layer.clone().with_filter(LevelFilter::INFO);
    let dispatch = Dispatch::new(Registry::default().with(layer).with(Everything));
    tracing::dispatcher::with_default(&dispatch, || {
        let root = info_span!("root");
        let hidden = debug_span!(parent: None, "hidden");
        assert!(!hidden.is_disabled());
        let child = root.in_scope(|| hidden.in_scope(|| info_span!("child")));
        drop(root);
        info_span!("third").in_scope(|| child.in_scope(|| info_span!("below", n = 1).in_scope(|| ())));
        drop(child);
    });
    let spans = world.exported();
    assert_eq!(spans.len(), 4, "{}", draw(&spans));
    for name in ["child", "below"] {
        assert_eq!(trace(&spans, name), trace(&spans, "root"), "{name}");
    }
}

/// A layer without a filter, for which every span exists.
struct Everything;

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Everything {}

/// A span beyond its trace's bound: its context is of its own trace, never of an earlier one.
#[test]
fn a_span_beyond_a_bound_has_its_own_trace_s_context() {
    for mode in WITH_CONTEXT {
        let world = world(|builder| {
            builder
                .with_context_mode(mode)
                .with_spans_per_trace_max(2)
                .with_sampler("every:2".parse().unwrap())
        });
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

/// A span has the baggage of the place where it began, not of the place where it is first entered.
#[test]
fn baggage_of_whoever_enters_a_span_stays_outside() {
    for mode in WITH_CONTEXT {
        let tenant = || Context::current().baggage().get("tenant").map(|tenant| tenant.as_str().to_owned());
        let bob = || {
            let pair = opentelemetry::KeyValue::new("tenant", "bob");
            Context::current().with_baggage([pair])
        };
        world(|builder| builder.with_context_mode(mode)).run(|| {
            let child = info_span!("request a").in_scope(|| info_span!("child of a"));
            let root = info_span!("fresh");
            info_span!("request b").in_scope(|| {
                let _bob = bob().attach();
                assert_eq!(child.in_scope(tenant), None, "{mode:?}");
                assert_eq!(root.in_scope(tenant), None, "{mode:?}");
                assert_eq!(tenant().as_deref(), Some("bob"));
            });
        });
    }
}

/// In dropped traces as in kept ones, a span that begins in an empty context has no parent.
#[test]
fn a_span_below_an_attached_empty_context_begins_a_trace() {
    for sampler in ["always", "never"] {
        let world = world(|builder| builder.with_sampler(sampler.parse().unwrap()));
        world.run(|| {
            let _root = info_span!("root").entered();
            let own = current().trace_id();
            let _nobody = Context::new().attach();
            for with_fields in [false, true] {
                let span = if with_fields { info_span!("span", n = 1) } else { info_span!("span") };
                span.in_scope(|| assert!(current().is_valid() && current().trace_id() != own, "{sampler}"));
            }
        });
        let stats = world.handle.stats();
        assert_eq!(stats.roots_kept + stats.roots_dropped, 3, "{sampler}");
    }
}

/// The context of a dropped trace stays current while a span of it is entered.
#[test]
fn a_dropped_trace_s_context_stays_until_its_last_span_is_left() {
    let world = world(|builder| builder.with_sampler("never".parse().unwrap()));
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

#[test]
fn a_span_may_follow_from_a_dropped_one() {
    for below in [false, true] {
        let world = world(|builder| builder.with_sampler("every:2".parse().unwrap()));
        let mut ids = SpanContext::NONE;
        let spans = world.run(|| {
            info_span!("kept first").in_scope(|| ());
            let dropped = info_span!("dropped");
            let from = dropped.in_scope(|| {
                ids = current();
                if below { info_span!("below") } else { dropped.clone() }
            });
            let kept = info_span!("kept");
            kept.in_scope(|| kept.follows_from(&from));
        });
        let links = &one(&spans, "kept").links.links;
        assert_eq!(links.len(), 1, "{below}");
        assert_eq!(links[0].span_context.trace_id(), ids.trace_id());
        assert!(!links[0].span_context.is_sampled());
    }
}

/// One dropped trace has two contexts. Each stays with the spans that were entered after it.
#[test]
fn spans_of_a_dropped_trace_left_out_of_order_keep_their_context() {
    let world = world(|builder| builder.with_sampler("every:2".parse().unwrap()));
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
    let world = world(|builder| builder.with_sampler("never".parse().unwrap()));
    world.run(|| {
        let dropped = info_span!("dropped");
        let (context, own) = dropped.in_scope(|| (Context::current(), current().trace_id()));
        let attached = context.attach();
        let _inside = dropped.enter();
        drop(attached);
        assert_eq!(current().trace_id(), own);
    });
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
