//! OTLP JSON: requests of fifty spans, of one span, and a single request with all spans.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;

use astracer_model::problem::Place;
use astracer_model::span::{Resource, Scope};
use astracer_model::value::{Attribute, Value};
use astracer_model::{Format, Span, SpanId, SpanKind, TraceId, UnixNanos};
use criterion::{Criterion, Throughput, criterion_group};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{BYTES, Count, deliver, ours};

criterion_group! {
    name = benches;
    config = crate::settings();
    targets = reading
}

fn reading(criterion: &mut Criterion) {
    for (name, spans_per_request) in
        [("lines of 50 spans", 50), ("lines of 1 span", 1), ("one request", usize::MAX)]
    {
        let text = requests(spans_per_request);
        let spans = text.matches("\"spanId\"").count() as u64;
        assert_eq!([ours(Format::OtlpJson, &text), serde(&text), same_sink(&text)], [spans; 3]);
        let mut group = criterion.benchmark_group(format!("read OTLP JSON, {name}"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("astracer", |bencher| bencher.iter(|| ours(Format::OtlpJson, black_box(&text))));
        group.bench_function("serde_json, borrowed", |bencher| bencher.iter(|| serde(black_box(&text))));
        group.bench_function("serde_json, same sink", |bencher| bencher.iter(|| same_sink(black_box(&text))));
        group.finish();
    }
}

fn serde(text: &str) -> u64 {
    let count = |line: &str| {
        let request: Request<'_, PlainSpan<'_>> = serde_json::from_str(line).expect("the requests are valid");
        let spans =
            request.resource_spans.iter().flat_map(|unit| &unit.scope_spans).map(|scope| scope.spans.len());
        let count: usize = spans.sum();
        black_box(&request);
        count as u64
    };
    text.lines().map(count).sum()
}

/// Delivers the same spans to the same sink as our reader.
fn same_sink(text: &str) -> u64 {
    let mut count = Count::default();
    let mut place = Place::start_of(&Arc::from("f"));
    for line in text.lines() {
        let request: Request<'_, &RawValue> = serde_json::from_str(line).expect("the requests are valid");
        for unit in &request.resource_spans {
            let attributes =
                attributes(&unit.resource.attributes).into_iter().map(Attribute::into_owned).collect();
            let resource = Arc::new(Resource { attributes, ..Resource::default() });
            for group in &unit.scope_spans {
                let (name, version) = (group.scope.name.to_string(), group.scope.version.to_string());
                let scope = Arc::new(Scope { name, version, ..Scope::default() });
                for record in &group.spans {
                    let plain: PlainSpan<'_> =
                        serde_json::from_str(record.get()).expect("the spans are valid");
                    let span = plain.into_span(&resource, &scope);
                    deliver(&mut count, &mut place, text, record.get(), span);
                }
            }
        }
    }
    count.spans
}

fn attributes<'a>(plain: &[KeyValue<'a>]) -> Vec<Attribute<'a>> {
    let value = |value: &AnyValue<'a>| match value {
        AnyValue::String(text) => Value::String(text.clone()),
        AnyValue::Int(digits) => Value::Int(digits.parse().expect("an integer")),
        AnyValue::Bool(value) => Value::Bool(*value),
        AnyValue::Double(value) => Value::Double(*value),
    };
    plain.iter().map(|pair| Attribute { key: pair.key.clone(), value: value(&pair.value) }).collect()
}

impl<'a> PlainSpan<'a> {
    fn into_span(self, resource: &Arc<Resource>, scope: &Arc<Scope>) -> Span<'a> {
        let nanos = |digits: &str| UnixNanos(digits.parse().expect("an integer"));
        let mut span = Span::of(Arc::clone(resource), Arc::clone(scope));
        span.trace_id = TraceId::from_hex(self.trace_id).expect("an id");
        span.span_id = SpanId::from_hex(self.span_id).expect("an id");
        span.parents.extend(SpanId::from_hex(self.parent_span_id));
        span.name = self.name;
        span.kind = SpanKind::from_otlp(self.kind.into());
        span.start = Some(nanos(self.start_time_unix_nano));
        span.end = Some(nanos(self.end_time_unix_nano));
        span.attributes = attributes(&self.attributes);
        let event = |event: Event<'a>| astracer_model::span::Event {
            time: nanos(event.time_unix_nano),
            name: event.name,
            attributes: attributes(&event.attributes),
            dropped_attributes: 0,
        };
        span.events = self.events.into_iter().map(event).collect();
        span.status = astracer_model::Status::from_otlp(self.status.code.into());
        span.status_message = self.status.message;
        span
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a, S> {
    #[serde(borrow, bound(deserialize = "S: Deserialize<'de>"))]
    resource_spans: Vec<ResourceSpans<'a, S>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "parsed fields are not used")]
struct ResourceSpans<'a, S> {
    #[serde(borrow)]
    resource: PlainResource<'a>,
    #[serde(bound(deserialize = "S: Deserialize<'de>"))]
    scope_spans: Vec<ScopeSpans<'a, S>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed fields are not used")]
struct PlainResource<'a> {
    #[serde(borrow)]
    attributes: Vec<KeyValue<'a>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed fields are not used")]
struct ScopeSpans<'a, S> {
    #[serde(borrow)]
    scope: PlainScope<'a>,
    #[serde(bound(deserialize = "S: Deserialize<'de>"))]
    spans: Vec<S>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed fields are not used")]
struct PlainScope<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    version: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "parsed fields are not used")]
struct PlainSpan<'a> {
    trace_id: &'a str,
    span_id: &'a str,
    #[serde(default)]
    parent_span_id: &'a str,
    #[serde(borrow)]
    name: Cow<'a, str>,
    kind: u8,
    start_time_unix_nano: &'a str,
    end_time_unix_nano: &'a str,
    #[serde(default, borrow)]
    attributes: Vec<KeyValue<'a>>,
    #[serde(default, borrow)]
    events: Vec<Event<'a>>,
    #[serde(borrow)]
    status: Status<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "parsed fields are not used")]
struct Event<'a> {
    time_unix_nano: &'a str,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    attributes: Vec<KeyValue<'a>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed fields are not used")]
struct Status<'a> {
    #[serde(default)]
    code: u8,
    #[serde(default, borrow)]
    message: Cow<'a, str>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed fields are not used")]
struct KeyValue<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    value: AnyValue<'a>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed fields are not used")]
enum AnyValue<'a> {
    #[serde(rename = "stringValue", borrow)]
    String(Cow<'a, str>),
    #[serde(rename = "intValue")]
    Int(&'a str),
    #[serde(rename = "boolValue")]
    Bool(bool),
    #[serde(rename = "doubleValue")]
    Double(f64),
}

/// Requests in the form of the Collector's file exporter, with the attributes of an HTTP service:
/// four to six per span, an event in every tenth, an error in every fiftieth.
fn requests(spans_per_request: usize) -> String {
    // xorshift64*, so that the bytes are the same on every machine.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let routes =
        ["/api/v1/orders/{id}", "/api/v1/users/{id}/cart", "/healthz", "/api/v1/search", "/checkout"];
    let mut text = String::with_capacity(BYTES + (64 << 10));
    let mut start = 1_700_000_000_000_000_000u64;
    while text.len() < BYTES {
        text.push_str(concat!(
            r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"checkout"}},"#,
            r#"{"key":"service.version","value":{"stringValue":"1.14.2"}},"#,
            r#"{"key":"host.name","value":{"stringValue":"ip-10-1-33-7.eu-west-1.compute.internal"}},"#,
            r#"{"key":"telemetry.sdk.language","value":{"stringValue":"rust"}}]},"#,
            r#""scopeSpans":[{"scope":{"name":"http-server","version":"0.9.1"},"spans":["#
        ));
        for index in 0..spans_per_request {
            if text.len() >= BYTES {
                break;
            }
            if index > 0 {
                text.push(',');
            }
            let route = routes[random() as usize % routes.len()];
            start += random() % 1_000_000;
            let end = start + random() % 50_000_000;
            let (trace, span) = (u128::from(random()) << 64 | u128::from(random()), random());
            let _ = write!(text, r#"{{"traceId":"{trace:032x}","spanId":"{span:016x}","#);
            let _ = write!(
                text,
                r#""parentSpanId":"{:016x}","flags":257,"name":"GET {route}","kind":2,"#,
                random()
            );
            let _ = write!(text, r#""startTimeUnixNano":"{start}","endTimeUnixNano":"{end}","attributes":["#);
            let _ = write!(text, r#"{{"key":"http.request.method","value":{{"stringValue":"GET"}}}},"#);
            let _ = write!(text, r#"{{"key":"http.route","value":{{"stringValue":"{route}"}}}},"#);
            let _ = write!(
                text,
                r#"{{"key":"http.response.status_code","value":{{"intValue":"{}"}}}},"#,
                200 + random() % 5
            );
            let _ = write!(
                text,
                r#"{{"key":"server.address","value":{{"stringValue":"checkout.svc.cluster.local"}}}}"#
            );
            if random() % 2 == 0 {
                let _ = write!(
                    text,
                    r#",{{"key":"http.response.body.size","value":{{"intValue":"{}"}}}}"#,
                    random() % 100_000
                );
                let _ =
                    write!(text, r#",{{"key":"cache.hit","value":{{"boolValue":{}}}}}"#, random() % 2 == 0);
            }
            text.push(']');
            if random() % 10 == 0 {
                let _ = write!(
                    text,
                    r#","events":[{{"timeUnixNano":"{end}","name":"retry","attributes":[{{"key":"attempt","value":{{"intValue":"2"}}}}]}}]"#
                );
            }
            text.push_str(if random() % 50 == 0 {
                r#","status":{"message":"upstream said \"no\"","code":2}}"#
            } else {
                r#","status":{}}"#
            });
        }
        text.push_str("]}]}]}\n");
    }
    text
}
