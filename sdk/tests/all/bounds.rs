//! Many spans at once, large spans, and spans that never end: the layer loses nothing within its
//! bounds, and counts what exceeds them.

use astracer_sdk::{DroppedSpans, OpenTelemetrySpanExt as _, SpanLimits};
use opentelemetry::trace::{SpanContext, SpanKind, Status, TraceContextExt as _, TraceFlags};
use opentelemetry::{KeyValue, StringValue, Value};
use tracing::{Dispatch, Span, info, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::support::{Seen, TIMEOUT, one, world};

/// Events beyond the limit take no memory: a later span still has its attributes, name, kind and
/// status.
#[test]
fn events_that_are_cut_leave_room_for_later_spans() {
    let spans = world(|builder| builder).run(|| {
        let _root = info_span!("root", n = 0).entered();
        let text = "x".repeat(200);
        for n in 0..50_000 {
            info!("a job that goes on and on, and tells of it: step {n} {text}");
        }
        let child = info_span!(
            "child",
            text = text.as_str(),
            number = 5,
            otel.kind = "client",
            otel.name = "renamed",
            otel.status_code = "ERROR"
        );
        child.in_scope(|| info!("in the child"));
    });
    let root = one(&spans, "root");
    assert_eq!((root.events.events.len(), root.events.dropped_count), (128, 50_000 - 128));
    let child = one(&spans, "renamed");
    assert_eq!((child.attributes.len(), child.events.events.len()), (2, 1));
    assert_eq!((&child.span_kind, &child.status), (&SpanKind::Client, &Status::error("")));
}

/// If a trace has more text than it may hold, attributes are cut, but never a span's name, kind or
/// status.
#[test]
fn name_kind_and_status_are_kept_when_texts_are_cut() {
    let spans = world(|builder| builder).run(|| {
        let _root = info_span!("root").entered();
        let text = "x".repeat(30_000);
        let open: Vec<Span> = (0..400).map(|_| info_span!("large", text = text.as_str())).collect();
        let child =
            info_span!("child", otel.kind = "client", otel.name = "renamed", otel.status_code = "ERROR");
        child.in_scope(|| ());
        drop(open);
    });
    let child = one(&spans, "renamed");
    assert_eq!((&child.span_kind, &child.status), (&SpanKind::Client, &Status::error("")));
}

/// OpenTelemetry specification, "Attribute Limits": the limits apply to attributes only, not to
/// names, kinds and status.
#[test]
fn a_limit_on_texts_is_one_on_attributes() {
    let mut limits = SpanLimits::default();
    limits.text_length = 3;
    let spans = world(|builder| builder.with_span_limits(limits)).run(|| {
        let root = info_span!(
            "root",
            otel.name = "GET /orders",
            otel.kind = "server",
            otel.status_code = "error",
            a = "größer"
        );
        root.in_scope(|| tracing::info!(b = "größer", "a message"));
        root.add_event("an event", vec![]);
        let described = info_span!("x", otel.status_code = "error", otel.status_description = "refused");
        described.in_scope(|| ());
        let failed = info_span!("failed");
        failed.in_scope(|| tracing::error!(error = "refused"));
        let renamed = info_span!("y");
        renamed.set_status(Status::error("refused"));
        renamed.context().span().update_name("renamed");
    });
    let root = one(&spans, "GET /orders");
    assert_eq!((&root.span_kind, &root.status), (&SpanKind::Server, &Status::error("")));
    assert_eq!(root.attributes[0].value.as_str(), "grö");
    let events = &root.events.events;
    assert_eq!((&*events[0].name, &*events[1].name), ("a message", "an event"));
    assert!(events[0].attributes.contains(&KeyValue::new("b", "grö")));
    assert_eq!(one(&spans, "x").status, Status::error("refused"));
    assert_eq!(one(&spans, "renamed").status, Status::error("refused"));
    let failed = one(&spans, "failed");
    assert_eq!(failed.status, Status::error("\"refused\""));
    let message = KeyValue::new("exception.message", "\"re");
    assert!(failed.events.events[0].attributes.contains(&message), "{:?}", failed.events.events[0]);
}

/// OpenTelemetry specification, "Attribute Limits": "if it is an array of strings, then apply the
/// limit to each value within the array separately".
#[test]
fn texts_in_lists_are_cut() {
    let mut limits = SpanLimits::default();
    limits.text_length = 3;
    let list = |texts: [&'static str; 2]| Value::Array(texts.map(StringValue::from).to_vec().into());
    let given = || vec![KeyValue::new("k", list(["größer", "ab"]))];
    let spans = world(|builder| builder.with_span_limits(limits)).run(|| {
        let root = info_span!("root");
        root.set_attribute("k", list(["größer", "ab"]));
        root.add_event("event", given());
        root.add_link_with_attributes(
            SpanContext::new(1u128.into(), 2u64.into(), TraceFlags::SAMPLED, true, Default::default()),
            given(),
        );
    });
    let root = one(&spans, "root");
    let (event, link) = (&root.events.events[0], &root.links.links[0]);
    for attributes in [&root.attributes, &event.attributes, &link.attributes] {
        assert_eq!(attributes[0].value, list(["grö", "ab"]));
    }
}

/// A large bound allocates memory only when it is needed.
#[test]
fn the_largest_bound_can_be_set() {
    let spans = world(|builder| builder.with_open_traces_max(u32::MAX).with_spans_per_trace_max(u32::MAX))
        .run(|| info_span!("root").in_scope(|| ()));
    assert_eq!(spans.len(), 1);
}

/// `Disabled` disables only the spans of dropped traces, not those of a kept trace beyond a bound,
/// nor those after the shutdown.
#[test]
fn neither_a_bound_nor_a_shutdown_disables_spans_for_other_layers() {
    let world = world(|builder| {
        builder.with_dropped_spans(DroppedSpans::Disabled).with_spans_per_trace_max(2).with_open_traces_max(1)
    });
    let others = Seen::default();
    let dispatch = Dispatch::new(Registry::default().with(world.astracer.layer.clone()).with(others.clone()));
    let tree = || {
        let _root = info_span!("root", n = 0).entered();
        let _a = info_span!("a", n = 1).entered();
        let _b = info_span!("b").entered();
        (0..5).for_each(|_| info_span!("c", n = 3).in_scope(|| ()));
        info_span!(parent: None, "another").in_scope(|| info_span!("below").in_scope(|| ()));
    };
    tracing::dispatcher::with_default(&dispatch, tree);
    assert_eq!(others.spans().len(), 10);
    world.handle.shutdown(TIMEOUT).unwrap();
    tracing::dispatcher::with_default(&dispatch, tree);
    assert_eq!(others.spans().len(), 20);
}

/// A trace with more bytes than the queue holds is exported in parts or counted as lost. It never
/// stays in memory.
#[test]
fn a_trace_larger_than_the_queue_leaves_or_is_counted() {
    let world = world(|builder| builder.with_queue_bytes_max(200_000));
    for _ in 0..3 {
        world.run(|| {
            let _root = info_span!("root").entered();
            let text = "x".repeat(10_000);
            (0..100).for_each(|_| info_span!("large", text = text.as_str()).in_scope(|| ()));
        });
    }
    let exported = world.collector.spans().len();
    let stats = world.handle.stats();
    assert_eq!(stats.spans_exported, exported as u64);
    assert_eq!(stats.spans_exported + stats.spans_lost.total(), 3 * 101, "{stats:?}");
}
