//! Hand-made spans: one with a value in every field, and a plain one.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use astracer_model::span::{Event as ModelEvent, Link as ModelLink, Resource as ModelResource, Scope};
use astracer_model::value::{Attribute, Value as ModelValue};
use astracer_model::{
    Span, SpanId as ModelSpanId, SpanKind as ModelKind, Status as ModelStatus, TraceId as ModelTraceId,
    UnixNanos,
};
use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

/// 2026-11-21 00:00:00 UTC.
pub(crate) const EPOCH_NS: u64 = 1_795_219_200_000_000_000;

pub(crate) fn at(nanos: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(EPOCH_NS + nanos)
}

pub(crate) fn resource() -> Resource {
    Resource::builder_empty()
        .with_schema_url(
            [KeyValue::new("service.name", "shop"), KeyValue::new("service.instance.id", 7)],
            "https://example.org/resource",
        )
        .build()
}

/// A span with a value in every field.
pub(crate) fn full() -> SpanData {
    let context = |trace: u128, span: u64, remote: bool, state: &str| {
        let state: TraceState = state.parse().unwrap();
        SpanContext::new(TraceId::from(trace), SpanId::from(span), TraceFlags::SAMPLED, remote, state)
    };
    let mut events = SpanEvents::default();
    events.events.push(Event::new("retry", at(500_123), vec![KeyValue::new("attempt", 2)], 3));
    events.events.push(Event::new("done", at(900_000), vec![], 0));
    events.dropped_count = 4;
    let mut links = SpanLinks::default();
    let other = context(0xfeed, 0xbeef, true, "v=1");
    links.links.push(Link::new(other, vec![KeyValue::new("why", "batch")], 5));
    links.dropped_count = 6;
    let scope = InstrumentationScope::builder("shop.db")
        .with_version("1.2.3")
        .with_schema_url("https://example.org/scope")
        .with_attributes([KeyValue::new("pool", true)])
        .build();
    SpanData {
        span_context: context(
            0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
            0x1112_1314_1516_1718,
            false,
            "ot=th:8,a=b",
        ),
        parent_span_id: SpanId::from(0x2122_2324_2526_2728),
        parent_span_is_remote: true,
        span_kind: SpanKind::Client,
        name: Cow::Borrowed("SELECT \"orders\" \u{1f980}"),
        start_time: at(1),
        end_time: at(1_000_999),
        attributes: vec![
            KeyValue::new("text", "a\nb"),
            KeyValue::new("yes", true),
            KeyValue::new("int", i64::MIN),
            KeyValue::new("double", -0.5),
            KeyValue::new("nan", f64::NAN),
            KeyValue::new("bools", Value::Array(Array::Bool(vec![true, false]))),
            KeyValue::new("ints", Value::Array(Array::I64(vec![1, -2]))),
            KeyValue::new("doubles", Value::Array(Array::F64(vec![1.5, f64::INFINITY]))),
            KeyValue::new(
                "texts",
                Value::Array(Array::String(vec![StringValue::from("x"), StringValue::from("")])),
            ),
            KeyValue::new("none", Value::Array(Array::String(vec![]))),
            KeyValue::new("peer.service", "orders-db"),
            KeyValue::new("network.peer.address", "192.0.2.7"),
            KeyValue::new("network.peer.port", 5432),
        ],
        dropped_attributes_count: 8,
        events,
        links,
        status: Status::error("deadlock"),
        instrumentation_scope: scope,
    }
}

/// A span of trace `trace` with only the required fields.
pub(crate) fn plain(trace: u128, span: u64) -> SpanData {
    SpanData {
        span_context: SpanContext::new(
            TraceId::from(trace),
            SpanId::from(span),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: Cow::Borrowed("tick"),
        start_time: at(0),
        end_time: at(1_000),
        attributes: vec![],
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::default(),
    }
}

fn text(key: &'static str, text: &'static str) -> Attribute<'static> {
    Attribute::new(key, text)
}

fn of(key: &'static str, value: ModelValue<'static>) -> Attribute<'static> {
    Attribute { key: key.into(), value }
}

/// The model's form of [`full`], written by hand. Its NaN attribute is omitted, because NaN does
/// not equal itself.
pub(crate) fn full_in_the_model() -> Span<'static> {
    use ModelValue::{Array as List, Bool, Double, Int};
    Span {
        trace_id: ModelTraceId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        span_id: ModelSpanId(0x1112_1314_1516_1718),
        parents: [ModelSpanId(0x2122_2324_2526_2728)].into_iter().collect(),
        name: "SELECT \"orders\" \u{1f980}".into(),
        kind: ModelKind::Client,
        start: Some(UnixNanos(EPOCH_NS + 1)),
        end: Some(UnixNanos(EPOCH_NS + 1_000_999)),
        status: ModelStatus::Error,
        status_message: "deadlock".into(),
        attributes: vec![
            text("text", "a\nb"),
            of("yes", Bool(true)),
            of("int", Int(i64::MIN)),
            of("double", Double(-0.5)),
            of("bools", List(vec![Bool(true), Bool(false)])),
            of("ints", List(vec![Int(1), Int(-2)])),
            of("doubles", List(vec![Double(1.5), Double(f64::INFINITY)])),
            of("texts", List(vec!["x".into(), "".into()])),
            of("none", List(vec![])),
            text("peer.service", "orders-db"),
            text("network.peer.address", "192.0.2.7"),
            of("network.peer.port", Int(5432)),
        ],
        dropped_attributes: 8,
        events: vec![
            ModelEvent {
                time: UnixNanos(EPOCH_NS + 500_123),
                name: "retry".into(),
                attributes: vec![of("attempt", Int(2))],
                dropped_attributes: 3,
            },
            ModelEvent { time: UnixNanos(EPOCH_NS + 900_000), name: "done".into(), ..ModelEvent::default() },
        ],
        dropped_events: 4,
        links: vec![ModelLink {
            trace_id: ModelTraceId(0xfeed),
            span_id: ModelSpanId(0xbeef),
            trace_state: "v=1".into(),
            attributes: vec![text("why", "batch")],
            dropped_attributes: 5,
            // The flags sampled, "has is remote" and "is remote".
            flags: 0x301,
        }],
        dropped_links: 6,
        trace_state: "ot=th:8,a=b".into(),
        flags: 0x301,
        shared: false,
        follows: false,
        lone_duration: None,
        wording: Default::default(),
        resource: Arc::new(ModelResource {
            attributes: vec![of("service.instance.id", Int(7)), text("service.name", "shop")],
            dropped_attributes: 0,
            schema_url: "https://example.org/resource".to_owned(),
        }),
        scope: Arc::new(Scope {
            name: "shop.db".to_owned(),
            version: "1.2.3".to_owned(),
            attributes: vec![of("pool", Bool(true))],
            dropped_attributes: 0,
            schema_url: "https://example.org/scope".to_owned(),
        }),
    }
}

/// Checks the NaN attribute of a span and removes it.
pub(crate) fn without_nan(mut span: Span<'_>) -> Span<'_> {
    let nans = span.attributes.extract_if(.., |own| own.key == "nan").collect::<Vec<_>>();
    assert!(
        matches!(nans[..], [Attribute { value: ModelValue::Double(value), .. }] if value.is_nan()),
        "{nans:?}"
    );
    span
}
