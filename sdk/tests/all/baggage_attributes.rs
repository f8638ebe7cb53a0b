//! Members of the caller's baggage on spans, and in the keys of local roots.

use std::sync::Arc;

use astracer_sdk::{
    Builder, ContextMode, DroppedSpans, Key, ObservedSpan, Observer, OpenTelemetrySpanExt as _, Start,
};
use astracer_testing::{attribute, remote_parent};
use opentelemetry::baggage::{BaggageExt as _, KeyValueMetadata};
use opentelemetry::{Context, KeyValue, TraceId};
use opentelemetry_sdk::trace::SpanData;
use tracing::{Event, field, info_span};

use crate::support::{World, one, sampling, world};

const SAMPLER: &str = "bump:lambda=1000,min=1,window=1s";
const STARTS: [Start; 2] = [Start::WhenUsed, Start::AtOnce];

fn caller(members: &[(&str, &str)]) -> Context {
    let members = members.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), (*value).to_owned()));
    remote_parent(7, true).with_baggage(members.collect::<Vec<_>>())
}

fn tenants(change: impl FnOnce(Builder) -> Builder) -> World {
    sampling(SAMPLER, |builder| {
        change(
            builder
                .with_baggage_attributes(["tenant.id"])
                .with_parent_decision(astracer_sdk::ParentDecision::Ignore)
                .with_key(Key::name().with_attribute("tenant.id")),
        )
    })
}

fn keys(world: &World) -> Vec<String> {
    let mut keys: Vec<String> = world.handle.keys().into_iter().filter_map(|key| key.key).collect();
    keys.sort();
    keys
}

fn of(spans: &[SpanData], span: &str, name: &str) -> Option<String> {
    attribute(one(spans, span), name).map(ToString::to_string)
}

/// Each span of a request has the member, also one with an explicit parent, one of a task on
/// another thread, and one below; and the root is counted by it.
#[test]
fn every_span_of_a_request_has_the_members() {
    for start in STARTS {
        for mode in [ContextMode::Ids, ContextMode::Recording] {
            let world = tenants(|builder| builder.with_start(start).with_context_mode(mode));
            let spans = world.run(|| {
                let root = {
                    let _caller = caller(&[("tenant.id", "x"), ("other", "y")]).attach();
                    info_span!("root")
                };
                root.in_scope(|| info_span!("child", n = 1).in_scope(|| info_span!("grandchild")));
                let explicit = info_span!(parent: &root, "explicit");
                let task = explicit.in_scope(|| info_span!("task"));
                let dispatch = &world.dispatch;
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        tracing::dispatcher::with_default(dispatch, || {
                            task.in_scope(|| info_span!("below"));
                        });
                    });
                });
            });
            for name in ["root", "child", "grandchild", "explicit", "task", "below"] {
                assert_eq!(of(&spans, name, "tenant.id").as_deref(), Some("x"), "{name} {start:?} {mode:?}");
                assert_eq!(of(&spans, name, "other"), None);
            }
            assert_eq!(keys(&world), ["root;tenant.id=x"]);
        }
    }
}

/// Middleware sets the parent after it has made the span: a root, or a child of a span that has
/// another caller.
#[test]
fn a_parent_that_is_set_brings_its_members() {
    let world = tenants(|builder| builder);
    let spans = world.run(|| {
        let root = info_span!("root");
        root.set_parent(caller(&[("tenant.id", "x")])).unwrap();
        root.in_scope(|| {
            let message = info_span!("message");
            message.set_parent(caller(&[("tenant.id", "y")])).unwrap();
            message.in_scope(|| info_span!("child"));
            let without = info_span!("without");
            without.set_parent(remote_parent(9, true)).unwrap();
            without.in_scope(|| ());
            let by_hand = info_span!("by hand");
            by_hand.set_attribute("tenant.id", "z");
            by_hand.set_parent(remote_parent(9, true)).unwrap();
            by_hand.in_scope(|| ());
        });
    });
    let of = |name| of(&spans, name, "tenant.id");
    assert_eq!(["root", "message", "child"].map(of), ["x", "y", "y"].map(|value| Some(value.to_owned())));
    assert_eq!([of("without"), of("by hand")], [None, Some("z".to_owned())]);
    assert_eq!(keys(&world), ["by hand;tenant.id=z", "message;tenant.id=y", "root;tenant.id=x", "without"]);
}

/// A key function of the service's own sees them too.
#[test]
fn a_custom_key_sees_the_members() {
    for start in STARTS {
        let key = Key::custom(|root, key| key.push_str(&root.attribute("tenant.id").unwrap_or_default()));
        let world = tenants(|builder| builder.with_start(start).with_key(key));
        world.inside(|| {
            let _caller = caller(&[("tenant.id", "x")]).attach();
            info_span!("root").in_scope(|| ());
            info_span!("root", tenant.id = "own").in_scope(|| ());
        });
        assert_eq!(keys(&world), ["own", "x"]);
    }
}

#[test]
fn a_field_of_the_same_name_takes_precedence() {
    for start in STARTS {
        let world = tenants(|builder| builder.with_start(start));
        let spans = world.run(|| {
            let _caller = caller(&[("tenant.id", "x")]).attach();
            let root = info_span!("root", tenant.id = "own").entered();
            let late = info_span!("late", tenant.id = field::Empty);
            late.record("tenant.id", "recorded");
            late.in_scope(|| ());
            drop(root);
        });
        assert_eq!(of(&spans, "root", "tenant.id").unwrap(), "own");
        assert_eq!(of(&spans, "late", "tenant.id").unwrap(), "recorded");
        assert_eq!(one(&spans, "late").attributes.len(), 1);
        assert_eq!(keys(&world), ["root;tenant.id=own"]);
    }
}

/// A prefix selects members in the order of their names. Values are cut at 256 bytes, at the
/// boundary of a character before: 127 of two bytes after one of one byte.
#[test]
fn a_prefix_selects_members_and_values_are_cut() {
    let world = world(|builder| builder.with_baggage_attributes(["app.*", "*", "tenant"]));
    let long = format!("x{}", "é".repeat(500));
    let spans = world.run(|| {
        let members = [("app.b", &*long), ("app.a", ""), ("app", "1"), ("appx", "2"), ("tenant.id", "3")];
        let _caller = caller(&members).attach();
        info_span!("root").in_scope(|| ());
    });
    let root: Vec<String> =
        one(&spans, "root").attributes.iter().map(|a| format!("{}={}", a.key, a.value)).collect();
    assert_eq!(root, ["app.a=".to_owned(), format!("app.b=x{}", "é".repeat(127))]);
}

/// Dropped roots are counted by the members, although nothing is recorded below them.
#[test]
fn a_dropped_root_is_counted_by_its_members() {
    for dropped in [DroppedSpans::Visible, DroppedSpans::Disabled] {
        let world = tenants(|builder| {
            builder
                .with_sampler("bump:lambda=0.001,min=0,window=1s".parse().unwrap())
                .with_dropped_spans(dropped)
        });
        world.inside(|| {
            for tenant in ["x", "y", "y"] {
                let _caller = caller(&[("tenant.id", tenant)]).attach();
                info_span!("root").in_scope(|| info_span!("child").in_scope(|| ()));
            }
        });
        let mut counts: Vec<_> = world.handle.keys().into_iter().map(|key| (key.key, key.seen)).collect();
        counts.sort();
        let expected = [("root;tenant.id=x", 1), ("root;tenant.id=y", 2)];
        assert_eq!(counts, expected.map(|(key, seen)| (Some(key.to_owned()), seen)));
    }
}

/// A flow has values for a tenant, which replace the caller's.
#[derive(Debug)]
struct Tenants;

impl Observer for Tenants {
    fn root(&self, _: &ObservedSpan<'_>, _: Option<&Context>) -> u32 {
        3
    }

    fn begin(&self, span: &ObservedSpan<'_>) -> u32 {
        span.flow()
    }

    fn enter(&self, span: &ObservedSpan<'_>) -> u32 {
        span.flow()
    }

    fn exit(&self, _: &ObservedSpan<'_>) {}

    fn end(&self, _: &ObservedSpan<'_>) {}

    fn release(&self, _: u32) {}

    fn attributes(&self, flow: u32, trace: TraceId, each: &mut dyn FnMut(&str, &str)) {
        assert_ne!(trace, TraceId::INVALID);
        each("tenant.id", if flow == 0 { "of the root" } else { "of the flow" });
        each("unasked", "1");
    }

    fn event(&self, _: &ObservedSpan<'_>, _: &Event<'_>) {}
}

#[test]
fn values_of_a_flow_replace_the_callers() {
    for (start, mode) in [(Start::WhenUsed, ContextMode::Recording), (Start::AtOnce, ContextMode::Off)] {
        for has_caller in [false, true] {
            let world = tenants(|builder| {
                builder.with_start(start).with_context_mode(mode).with_observer(Arc::new(Tenants))
            });
            let spans = world.run(|| {
                let _caller = has_caller.then(|| caller(&[("tenant.id", "x")]).attach());
                info_span!("root").in_scope(|| info_span!("child"));
            });
            assert_eq!(of(&spans, "root", "tenant.id").unwrap(), "of the root");
            assert_eq!(of(&spans, "child", "tenant.id").unwrap(), "of the flow");
            assert_eq!(one(&spans, "child").attributes.len(), 1);
            assert_eq!(keys(&world), ["root;tenant.id=of the root"]);
        }
    }
}

/// A caller sends as much as a header may hold: 64 members fit into a context.
#[test]
fn a_hostile_caller_adds_no_more_than_the_limits() {
    let mut limits = astracer_sdk::SpanLimits::default();
    limits.attributes = 10;
    let world = world(|builder| builder.with_baggage_attributes(["a.*"]).with_span_limits(limits));
    let spans = world.run(|| {
        let members = (0..100_000).map(|n| KeyValueMetadata::new(format!("a.{n}"), "x".repeat(8_000), ""));
        let many = (0..100_000).map(|n| KeyValueMetadata::new(format!("a.{n}"), "x", ""));
        for members in [Context::new().with_baggage(members), Context::new().with_baggage(many)] {
            let _caller = members.attach();
            info_span!("root").in_scope(|| ());
        }
    });
    let [long, many] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((long.attributes.len(), long.dropped_attributes_count), (1, 0));
    assert_eq!((many.attributes.len(), many.dropped_attributes_count), (10, 54));
}
