//! OTLP's messages, and the sample spans as messages, written by hand.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};

use super::sample::EPOCH_NS;

fn any(value: Any) -> AnyValue {
    AnyValue { value: Some(value) }
}

fn of(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(any(value)), ..KeyValue::default() }
}

fn text(text: &str) -> Any {
    Any::StringValue(text.to_owned())
}

fn list(items: Vec<Any>) -> Any {
    Any::ArrayValue(ArrayValue { values: items.into_iter().map(any).collect() })
}

/// The request of [`full`](super::sample::full). Its NaN attribute is separate, because NaN does
/// not equal itself.
pub(crate) fn full() -> ExportTraceServiceRequest {
    let span = Span {
        trace_id: vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        span_id: vec![0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18],
        trace_state: "ot=th:8,a=b".to_owned(),
        parent_span_id: vec![0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28],
        // The flags sampled, "has is remote" and "is remote".
        flags: 0x301,
        name: "SELECT \"orders\" \u{1f980}".to_owned(),
        kind: 3,
        start_time_unix_nano: EPOCH_NS + 1,
        end_time_unix_nano: EPOCH_NS + 1_000_999,
        attributes: vec![
            of("text", text("a\nb")),
            of("yes", Any::BoolValue(true)),
            of("int", Any::IntValue(i64::MIN)),
            of("double", Any::DoubleValue(-0.5)),
            of("bools", list(vec![Any::BoolValue(true), Any::BoolValue(false)])),
            of("ints", list(vec![Any::IntValue(1), Any::IntValue(-2)])),
            of("doubles", list(vec![Any::DoubleValue(1.5), Any::DoubleValue(f64::INFINITY)])),
            of("texts", list(vec![text("x"), text("")])),
            of("none", list(vec![])),
            of("peer.service", text("orders-db")),
            of("network.peer.address", text("192.0.2.7")),
            of("network.peer.port", Any::IntValue(5432)),
        ],
        dropped_attributes_count: 8,
        events: vec![
            Event {
                time_unix_nano: EPOCH_NS + 500_123,
                name: "retry".to_owned(),
                attributes: vec![of("attempt", Any::IntValue(2))],
                dropped_attributes_count: 3,
            },
            Event { time_unix_nano: EPOCH_NS + 900_000, name: "done".to_owned(), ..Event::default() },
        ],
        dropped_events_count: 4,
        links: vec![Link {
            trace_id: vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0xed],
            span_id: vec![0, 0, 0, 0, 0, 0, 0xbe, 0xef],
            trace_state: "v=1".to_owned(),
            attributes: vec![of("why", text("batch"))],
            dropped_attributes_count: 5,
            flags: 0x301,
        }],
        dropped_links_count: 6,
        status: Some(Status { message: "deadlock".to_owned(), code: 2 }),
    };
    let scope = InstrumentationScope {
        name: "shop.db".to_owned(),
        version: "1.2.3".to_owned(),
        attributes: vec![of("pool", Any::BoolValue(true))],
        dropped_attributes_count: 0,
    };
    let spans = ScopeSpans {
        scope: Some(scope),
        spans: vec![span],
        schema_url: "https://example.org/scope".to_owned(),
    };
    let resource = Resource {
        attributes: vec![of("service.instance.id", Any::IntValue(7)), of("service.name", text("shop"))],
        ..Resource::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![spans],
            schema_url: "https://example.org/resource".to_owned(),
        }],
    }
}

/// Checks and removes the NaN attribute from a request with one span.
pub(crate) fn without_nan(mut request: ExportTraceServiceRequest) -> ExportTraceServiceRequest {
    let attributes = &mut request.resource_spans[0].scope_spans[0].spans[0].attributes;
    let at = attributes.iter().position(|own| own.key == "nan").unwrap();
    let value = attributes.remove(at).value.unwrap().value.unwrap();
    assert!(matches!(value, Any::DoubleValue(value) if value.is_nan()), "{value:?}");
    request
}

/// The numbers of the spans of a request.
pub(crate) fn numbers(request: &ExportTraceServiceRequest) -> Vec<u64> {
    let scopes = request.resource_spans.iter().flat_map(|unit| &unit.scope_spans);
    let spans = scopes.flat_map(|scope| &scope.spans);
    spans.map(|span| u64::from_be_bytes(span.span_id[..].try_into().unwrap())).collect()
}
