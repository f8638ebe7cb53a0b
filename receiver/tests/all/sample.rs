//! A span with a value in every field.

use std::sync::Arc;

use astracer_model::span::{Event, Link, Resource, Scope};
use astracer_model::value::{Attribute, Value};
use astracer_model::{Span, SpanId, SpanKind, Status, TraceId, UnixNanos};

/// 2026-11-21 00:00:00 UTC.
const EPOCH_NS: u64 = 1_795_219_200_000_000_000;

fn text(key: &'static str, text: &'static str) -> Attribute<'static> {
    Attribute::new(key, text)
}

fn of(key: &'static str, value: Value<'static>) -> Attribute<'static> {
    Attribute { key: key.into(), value }
}

/// A span with a value in every field.
pub(crate) fn full() -> Span<'static> {
    use Value::{Array as List, Bool, Double, Int};
    Span {
        trace_id: TraceId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        span_id: SpanId(0x1112_1314_1516_1718),
        parents: [SpanId(0x2122_2324_2526_2728)].into_iter().collect(),
        name: "SELECT \"orders\" \u{1f980}".into(),
        kind: SpanKind::Client,
        start: Some(UnixNanos(EPOCH_NS + 1)),
        end: Some(UnixNanos(EPOCH_NS + 1_000_999)),
        status: Status::Error,
        status_message: "deadlock".into(),
        attributes: vec![
            text("text", "a\nb"),
            of("yes", Bool(true)),
            of("int", Int(i64::MIN)),
            of("double", Double(-0.5)),
            of("nan", Double(f64::NAN)),
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
            Event {
                time: UnixNanos(EPOCH_NS + 500_123),
                name: "retry".into(),
                attributes: vec![of("attempt", Int(2))],
                dropped_attributes: 3,
            },
            Event { time: UnixNanos(EPOCH_NS + 900_000), name: "done".into(), ..Event::default() },
        ],
        dropped_events: 4,
        links: vec![Link {
            trace_id: TraceId(0xfeed),
            span_id: SpanId(0xbeef),
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
        lone_duration: None,
        wording: Default::default(),
        follows: false,
        resource: Arc::new(Resource {
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
