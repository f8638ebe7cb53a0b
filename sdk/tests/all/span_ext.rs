//! The extension trait in three combinations: ours and the stock one on our layer, and the stock
//! one on the stock layer. The same code runs with each, and the exported spans are compared, as in
//! `parity`.

use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{SpanContext, Status, TraceContextExt as _, TraceState};
use opentelemetry::{Context, KeyValue, SpanId, TraceFlags, TraceId};
use tracing::{Span, info, info_span};

use crate::parity::{lines, ours, stock};
use crate::support::{Row, current};

/// A remote parent with baggage.
fn remote(sampled: bool) -> Context {
    let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    let state = TraceState::from_key_value([("vendor", "x"), ("ot", "rv:80000000000000")]).unwrap();
    let parent = SpanContext::new(TraceId::from(77u128), SpanId::from(5u64), flags, true, state);
    Context::new().with_remote_span_context(parent).with_baggage([KeyValue::new("tenant", "a")])
}

fn tenant(cx: &Context) -> Option<String> {
    Some(cx.baggage().get("tenant")?.as_str().to_owned())
}

/// The rows, using the given trait named `OpenTelemetrySpanExt`.
macro_rules! rows {
    ($name:ident, $ext:path) => {
        pub(crate) const $name: &[Row] = {
            use $ext as _;
            &[
                ("set_parent", || {
                    let root = info_span!("root", otel.kind = "server", n = 1);
                    root.set_parent(remote(true)).unwrap();
                    root.in_scope(|| {
                        assert_eq!(current().trace_id(), TraceId::from(77u128));
                        assert_eq!(current().trace_state().header(), "vendor=x,ot=rv:80000000000000");
                        assert_eq!(tenant(&Context::current()).as_deref(), Some("a"));
                        info_span!("child").in_scope(|| ());
                    });
                    let bare = info_span!("bare");
                    bare.set_parent(remote(true)).unwrap();
                    drop(bare);
                }),
                ("set_parent: a context that suppresses telemetry", || {
                    for parent in [remote(true), Context::new()] {
                        let root = info_span!("root");
                        root.set_parent(parent.with_telemetry_suppressed()).unwrap();
                        root.in_scope(|| info_span!("child").in_scope(|| ()));
                    }
                    info_span!("another").in_scope(|| ());
                }),
                ("set_parent: a dropped trace", || {
                    let root = info_span!("root", n = 1);
                    root.set_parent(remote(false)).unwrap();
                    let outside = root.context().span().span_context().clone();
                    assert_eq!((outside.trace_id(), outside.is_sampled()), (TraceId::from(77u128), false));
                    root.in_scope(|| {
                        assert_eq!(current(), outside);
                        assert_eq!(tenant(&Context::current()).as_deref(), Some("a"));
                        let child = info_span!("child").entered();
                        child.set_attribute("n", 1);
                        let inside = child.context().span().span_context().clone();
                        assert_eq!((inside.trace_id(), inside.is_sampled()), (TraceId::from(77u128), false));
                        assert_eq!(inside.trace_state().header(), "vendor=x,ot=rv:80000000000000");
                        assert_eq!(tenant(&child.context()).as_deref(), Some("a"));
                    });
                    info_span!("kept").in_scope(|| ());
                }),
                ("set_parent: no parent, in place of the current context's", || {
                    let _around = remote(true).attach();
                    let root = info_span!("root", n = 1);
                    root.set_parent(Context::new()).unwrap();
                    root.in_scope(|| assert_ne!(current().trace_id(), TraceId::from(77u128)));
                    info_span!("other").in_scope(|| assert_eq!(current().trace_id(), TraceId::from(77u128)));
                }),
                ("set_parent: an empty context", || {
                    let root = info_span!("root");
                    root.set_parent(Context::new()).unwrap();
                    let outer = info_span!("outer").entered();
                    let left = current().trace_id();
                    let alone = info_span!("alone", n = 1);
                    alone.set_parent(Context::new()).unwrap();
                    drop(outer);
                    // The context that is current at the entry does not become the parent.
                    let _around = remote(true).attach();
                    for span in [root, alone] {
                        span.in_scope(|| {
                            assert!(![left, TraceId::from(77u128)].contains(&current().trace_id()));
                            assert_eq!(tenant(&Context::current()), None);
                            info_span!("below").in_scope(|| ());
                        });
                    }
                }),
                ("set_parent: the last call counts", || {
                    let root = info_span!("root");
                    root.set_parent(remote(false)).unwrap();
                    root.set_parent(remote(true)).unwrap();
                    root.in_scope(|| ());
                }),
                ("set_parent: a span inside a span of another trace", || {
                    let _outer = info_span!("outer", n = 1).entered();
                    let before = info_span!("before", n = 2).entered();
                    let moved = info_span!("moved", otel.name = "renamed", n = 3, text = "x");
                    drop(before);
                    moved.set_attribute("more", "y");
                    moved.add_event("event", vec![KeyValue::new("n", 1)]);
            info!(parent: &moved, text = "z", "an event of tracing");
                    moved.add_link(remote(true).span().span_context().clone());
                    moved.set_status(Status::error("why"));
                    info!("of the outer one");
                    moved.set_parent(remote(true)).unwrap();
                    moved.set_attribute("after", 1);
                    moved.in_scope(|| {
                        assert_eq!(current().trace_id(), TraceId::from(77u128));
                        assert_eq!(tenant(&Context::current()).as_deref(), Some("a"));
                        info_span!("below").in_scope(|| ());
                    });
                    info_span!("after", n = 4).in_scope(|| ());
                    let dropped = info_span!("dropped", n = 5);
                    dropped.set_parent(remote(false)).unwrap();
                    dropped.in_scope(|| info_span!("below").in_scope(|| ()));
                }),
                ("set_parent: a span that outlives the trace it leaves", || {
                    let outer = info_span!("outer");
                    let moved = outer.in_scope(|| info_span!("moved", n = 1));
                    drop(outer);
                    moved.set_parent(remote(true)).unwrap();
                    moved.in_scope(|| info_span!("below").in_scope(|| ()));
                }),
                ("set_parent: too late", || {
                    let started = |span: &Span| {
                        let error = span.set_parent(remote(true)).unwrap_err();
                        assert_eq!(format!("{error:?}"), "AlreadyStarted");
                    };
                    let entered = info_span!("entered");
                    entered.in_scope(|| started(&entered));
                    started(&entered);
                    let asked = info_span!("asked");
                    let ids = asked.context().span().span_context().clone();
                    started(&asked);
                    asked.in_scope(|| assert_eq!(current(), ids));
                    let above = info_span!("above");
            info_span!(parent: &above, "below").in_scope(|| ());
                    started(&above);
                    // Spans that are not roots.
                    let _outer = info_span!("outer").entered();
                    let child = info_span!("child");
                    child.in_scope(|| ());
                    started(&child);
                    let child = info_span!("child");
                    let _ = child.context();
                    started(&child);
                    let child = info_span!("child");
            info_span!(parent: &child, "grandchild").in_scope(|| ());
                    started(&child);
                    let child = info_span!("child");
                    info_span!("follower").follows_from(&child);
                    started(&child);
                    let error = Span::none().set_parent(remote(true)).unwrap_err();
                    assert_eq!(format!("{error:?}"), "SpanDisabled");
                }),
                ("context", || {
                    let root = info_span!("root", n = 1);
                    let before = root.context();
                    let ids = before.span().span_context().clone();
                    assert!(ids.is_valid() && ids.is_sampled() && !ids.is_remote());
                    root.in_scope(|| {
                        assert_eq!(current(), ids);
                        let child = info_span!("child");
                        let below = child.context().span().span_context().clone();
                        assert_eq!(below.trace_id(), ids.trace_id());
                        assert_ne!(below.span_id(), ids.span_id());
                        child.in_scope(|| assert_eq!(current(), below));
                        assert_eq!(*Span::current().context().span().span_context(), ids);
                    });
                    assert_eq!(*root.context().span().span_context(), ids);
                    // Attributes set on a context obtained earlier are recorded.
                    before.span().set_attribute(KeyValue::new("from afar", true));
                    assert!(!Span::none().context().has_active_span());
                }),
                ("set_attribute", || {
                    let root = info_span!("root", declared = 1);
                    root.set_attribute("before", "text");
                    root.in_scope(|| {
                        root.set_attribute("inside", 2.5);
                        info_span!("child").set_attribute("list", vec_of([1, 2]));
                    });
                    root.set_attribute("after", true);
                    // A child that is never entered.
            let child = info_span!(parent: &root, "another");
                    child.set_attribute("n", 1);
                }),
                ("set_status", || {
                    let a = info_span!("a");
                    a.set_status(Status::error("before"));
                    a.in_scope(|| ());
                    let b = info_span!("b").entered();
                    b.set_status(Status::error("inside"));
                    drop(b);
                    let c = info_span!("c");
                    c.set_status(Status::Ok);
                    c.in_scope(|| c.set_status(Status::error("too late")));
                    info_span!("d").set_status(Status::Unset);
                }),
                ("add_event, add_event_with_timestamp", || {
                    let root = info_span!("root");
                    root.add_event("before", vec![KeyValue::new("n", 1)]);
                    root.in_scope(|| {
                        info!("of tracing");
                        root.add_event(String::from("inside"), vec![]);
                        let time = std::time::SystemTime::UNIX_EPOCH;
                        root.add_event_with_timestamp("long ago", time, vec![KeyValue::new("n", 2)]);
                    });
                    root.add_event("after", vec![]);
                }),
                ("add_link, add_link_with_attributes", || {
                    let to = remote(true).span().span_context().clone();
                    let root = info_span!("root");
                    root.add_link(to.clone());
                    root.add_link(SpanContext::NONE);
                    root.in_scope(|| {
                        root.add_link_with_attributes(to, vec![KeyValue::new("why", "because")])
                    });
                }),
                ("changes before set_parent", || {
                    let to = remote(true).span().span_context().clone();
                    for sampled in [true, false] {
                        let root = info_span!("root", n = 1, late = tracing::field::Empty);
                        root.set_attribute("before", 1);
                        root.add_link(to.clone());
                        root.add_event("event", vec![]);
                        root.record("late", "x");
                        root.set_status(Status::error("why"));
                        root.set_parent(remote(sampled)).unwrap();
                        root.set_attribute("after", 2);
                        root.in_scope(|| ());
                    }
                }),
            ]
        };
    };
}

fn vec_of(list: [i64; 2]) -> opentelemetry::Value {
    opentelemetry::Value::Array(opentelemetry::Array::I64(list.to_vec()))
}

rows!(OUR_TRAIT, astracer_sdk::OpenTelemetrySpanExt);
rows!(STOCK_TRAIT, tracing_opentelemetry::OpenTelemetrySpanExt);

#[test]
fn every_method_does_what_the_stock_one_does_on_the_stock_layer() {
    let mut different = Vec::new();
    for ((name, our_body), (_, stock_body)) in OUR_TRAIT.iter().zip(STOCK_TRAIT) {
        // The two traits' rows have different source lines.
        let expected = lines(&stock(|layer| layer.with_location(false), *stock_body));
        assert!(!expected.is_empty(), "{name}");
        for (which, body) in [("our trait", our_body), ("stock trait", stock_body)] {
            let got = lines(&ours(|builder| builder.with_location(false), *body));
            if got != expected {
                let (got, expected) = (got.join("\n    "), expected.join("\n    "));
                different.push(format!("{name}, {which}\n    {got}\n  stock layer:\n    {expected}"));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
