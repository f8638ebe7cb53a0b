//! Decisions: which component makes them, when, and their effect on other layers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceState};
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};
use tracing::field::Empty;
use tracing::info_span;

use crate::support::{World, one, sampling};
use astracer_sdk::{Key, OpenTelemetrySpanExt as _, ParentDecision};

/// At the edge the caller's sampled flag does not count, and its threshold is not passed on as
/// ours. A parent in this process was decided here, so its decision counts.
#[test]
fn an_edge_service_asks_its_own_sampler() {
    let world = sampling("every:2", |builder| builder.with_parent_decision(ParentDecision::Ignore));
    let state = TraceState::from_key_value([("ot", "th:8;rv:00000000000001"), ("vendor", "x")]).unwrap();
    let id = TraceId::from(77u128);
    let parent = SpanContext::new(id, SpanId::from(5u64), TraceFlags::NOT_SAMPLED, true, state);
    let spans = world.run(|| {
        for _ in 0..2 {
            let _remote = Context::new().with_remote_span_context(parent.clone()).attach();
            info_span!("root").in_scope(|| ());
        }
        let local = SpanContext::new(id, SpanId::from(6u64), TraceFlags::SAMPLED, false, TraceState::NONE);
        let _local = Context::new().with_remote_span_context(local).attach();
        info_span!("below the API's").in_scope(|| ());
    });
    let root = one(&spans, "root");
    assert_eq!((root.span_context.trace_id(), root.parent_span_id), (id, SpanId::from(5u64)));
    assert_eq!(root.span_context.trace_state().header(), "ot=rv:00000000000001,vendor=x");
    one(&spans, "below the API's");
    let stats = world.handle.stats();
    assert_eq!((stats.roots_kept, stats.roots_dropped, stats.parents_kept), (1, 1, 1));
}

fn keys(world: &World) -> Vec<String> {
    world.handle.snapshot().unwrap().keys.into_iter().map(|key| key.key).collect()
}

/// As in web frameworks, the route becomes known and is recorded after the span was created.
#[test]
fn a_key_is_made_of_what_is_known_when_the_root_is_entered() {
    let bucket = "bucket:capacity=10,rate=1";
    let key = || Key::default().with_attribute("http.route").with_attribute("tenant");
    let world = sampling(bucket, |builder| builder.with_key(key()));
    world.run(|| {
        let root = info_span!("HTTP request", otel.name = "GET", http.route = Empty);
        root.record("otel.name", "GET /orders/1234");
        root.record("http.route", "/orders/{id}");
        root.set_attribute("tenant", "a");
        root.in_scope(|| {
            root.record("otel.name", "too late");
            root.record("http.route", "/too/late");
        });
        info_span!("bare").in_scope(|| ());
        let late = info_span!("bare");
        late.set_attribute("tenant", "b");
        late.in_scope(|| ());
    });
    assert_eq!(keys(&world), ["GET /orders/*;http.route=/orders/{id};tenant=a", "bare", "bare;tenant=b"]);
}

/// The user's function is called once per root. A root that the function traces itself is counted
/// by its name. (When the function runs from within a new span, `tracing` ignores what it traces.)
#[test]
fn a_key_of_the_users_making_sees_what_is_known_and_may_trace() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let key = Key::custom(move |root, out| {
        // Fails the test before the stack overflows.
        assert!(counted.fetch_add(1, Ordering::Relaxed) < 100);
        (0..3).for_each(|_| info_span!("inside of the key", n = 1).in_scope(|| ()));
        out.push_str(root.name());
        out.push_str(&root.attribute("n").unwrap_or_default());
    });
    let world = sampling("bucket:capacity=10,rate=1", |builder| builder.with_key(key));
    world.run(|| {
        let root = info_span!("root", n = 1);
        root.record("n", 2);
        root.in_scope(|| ());
        let above = info_span!("above");
        info_span!(parent: &above, "child").in_scope(|| ());
    });
    assert_eq!(keys(&world), ["above", "inside of the key", "root2"]);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}
