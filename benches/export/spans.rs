//! The exported spans, as from a web shop: eight per trace, five attributes each, an event on every
//! fourth.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

pub(crate) fn resource() -> Resource {
    Resource::builder()
        .with_service_name("shop")
        .with_attributes([
            KeyValue::new("deployment.environment", "production"),
            KeyValue::new("host.name", "web-7"),
        ])
        .build()
}

pub(crate) fn batches(spans: usize, count: usize) -> Vec<Vec<SpanData>> {
    let scope = InstrumentationScope::builder("shop").with_version("1.0.0").build();
    (0..count).map(|batch| (0..spans).map(|number| span(batch * spans + number, &scope)).collect()).collect()
}

fn at(number: usize, micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_219_200) + Duration::from_micros(number as u64 * 10 + micros)
}

fn span(number: usize, scope: &InstrumentationScope) -> SpanData {
    // Ids look random, as real ones do, so that a compressor gains nothing from them.
    let trace = (number as u128 / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let id = |number: usize| SpanId::from((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut events = SpanEvents::default();
    if number.is_multiple_of(4) {
        let attributes =
            vec![KeyValue::new("level", "INFO"), KeyValue::new("cache.hit", number.is_multiple_of(8))];
        events.events.push(Event::new("looked up the basket", at(number, 40), attributes, 0));
    }
    SpanData {
        span_context: SpanContext::new(
            TraceId::from(trace),
            id(number),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: if number.is_multiple_of(8) { SpanId::INVALID } else { id(number / 8 * 8) },
        parent_span_is_remote: false,
        span_kind: if number.is_multiple_of(8) { SpanKind::Server } else { SpanKind::Internal },
        name: Cow::Borrowed(if number.is_multiple_of(8) { "GET /orders/{id}" } else { "load order lines" }),
        start_time: at(number, 0),
        end_time: at(number, 850),
        attributes: vec![
            KeyValue::new("http.request.method", "GET"),
            KeyValue::new("url.path", format!("/orders/{number}")),
            KeyValue::new("http.response.status_code", 200),
            KeyValue::new("shop.order.total", 12.5 + number as f64),
            KeyValue::new("code.file.path", "src/orders/lines.rs"),
        ],
        dropped_attributes_count: 0,
        events,
        links: SpanLinks::default(),
        status: if number.is_multiple_of(64) { Status::error("out of stock") } else { Status::Unset },
        instrumentation_scope: scope.clone(),
    }
}
