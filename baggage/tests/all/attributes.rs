//! Members of flows as attributes of spans, and in keys.

use std::sync::Arc;

use astracer_baggage::{BranchExt as _, Flows, Packed, branch_fn, flow};
use astracer_sdk::{Key, Start};
use astracer_testing::{World, attribute, one, remote_parent, sampling};
use opentelemetry::KeyValue;
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry_sdk::trace::SpanData;
use tracing::info_span;

fn tenants(start: Start) -> World {
    sampling("bump:lambda=1000,min=1,window=1s", |builder| {
        builder
            .with_start(start)
            .with_baggage_attributes(["tenant.id", "user.*"])
            .with_key(Key::name().with_attribute("tenant.id"))
            .with_observer(Arc::new(Flows::default()))
    })
}

fn of(spans: &[SpanData], span: &str, name: &str) -> Option<String> {
    attribute(one(spans, span), name).map(ToString::to_string)
}

/// Spans that begin after `flow::set` have the member, also in branches, but not those before it.
#[test]
fn spans_that_begin_after_set_have_the_member() {
    for start in [Start::WhenUsed, Start::AtOnce] {
        let world = tenants(start);
        let spans = world.run(|| {
            info_span!("root").in_scope(|| {
                info_span!("before").in_scope(|| ());
                flow::set("tenant.id", "acme").unwrap();
                flow::set("user.id", "7").unwrap();
                flow::set("other", "8").unwrap();
                info_span!("after").in_scope(|| info_span!("below").in_scope(|| ()));
                let branch = branch_fn(|| {
                    info_span!("task").in_scope(|| flow::set("tenant.id", "umbrella").unwrap());
                    info_span!("changed").in_scope(|| ());
                });
                let dispatch = world.dispatch.clone();
                let branch = move || tracing::dispatcher::with_default(&dispatch, branch);
                std::thread::scope(|scope| scope.spawn(branch).join()).unwrap().join();
                info_span!("last").in_scope(|| ());
            });
        });
        let expected = [
            ("root", None),
            ("before", None),
            ("after", Some("acme")),
            ("below", Some("acme")),
            ("task", Some("acme")),
            ("changed", Some("umbrella")),
            ("last", Some("acme")),
        ];
        for (span, tenant) in expected {
            assert_eq!(of(&spans, span, "tenant.id").as_deref(), tenant, "{span}");
            assert_eq!(of(&spans, span, "user.id").as_deref(), tenant.map(|_| "7"), "{span}");
            assert_eq!(of(&spans, span, "other"), None);
        }
    }
}

/// A member that is set replaces the caller's.
#[test]
fn set_replaces_the_callers_member() {
    let world = tenants(Start::WhenUsed);
    let spans = world.run(|| {
        let caller = remote_parent(7, true).with_baggage([KeyValue::new("tenant.id", "caller")]);
        let _caller = caller.attach();
        info_span!("root").in_scope(|| {
            info_span!("before").in_scope(|| ());
            flow::set("tenant.id", "set").unwrap();
            info_span!("after").in_scope(|| ());
        });
    });
    let tenants = ["root", "before", "after"].map(|span| of(&spans, span, "tenant.id").unwrap());
    assert_eq!(tenants, ["caller", "caller", "set"]);
}

/// A root that takes the flow of a message has its members before it is decided.
#[test]
fn a_root_in_a_messages_flow_is_counted_by_its_member() {
    for start in [Start::WhenUsed, Start::AtOnce] {
        let world = tenants(start);
        let spans = world.run(|| {
            let message = info_span!("sender").in_scope(|| {
                flow::set("tenant.id", "acme").unwrap();
                Packed::new(())
            });
            message.adopt_fn(|()| info_span!("worker").in_scope(|| ()));
            // Not a message: the flow has a root of another trace.
            info_span!("outer").in_scope(|| {
                flow::set("tenant.id", "acme").unwrap();
                drop(async {}.branch());
                info_span!(parent: None, "separate").in_scope(|| ());
            });
        });
        assert_eq!(of(&spans, "worker", "tenant.id").unwrap(), "acme");
        assert_eq!(of(&spans, "separate", "tenant.id"), None);
        let mut keys: Vec<String> = world.handle.keys().into_iter().filter_map(|key| key.key).collect();
        keys.sort();
        assert_eq!(keys, ["outer", "sender", "separate", "worker;tenant.id=acme"], "{start:?}");
    }
}
