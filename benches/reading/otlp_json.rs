//! OTLP JSON: requests of fifty spans, of one span, and one of them all.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::hint::black_box;

use astracer_model::Format;
use criterion::{Criterion, Throughput, criterion_group};
use serde::Deserialize;

use crate::{BYTES, ours};

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
        assert_eq!((ours(Format::OtlpJson, &text), serde(&text)), (spans, spans));
        let mut group = criterion.benchmark_group(format!("read OTLP JSON, {name}"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("astracer", |bencher| bencher.iter(|| ours(Format::OtlpJson, black_box(&text))));
        group.bench_function("serde_json, borrowed", |bencher| bencher.iter(|| serde(black_box(&text))));
        group.finish();
    }
}

fn serde(text: &str) -> u64 {
    let count = |line: &str| {
        let request: Request<'_> = serde_json::from_str(line).expect("the requests are good");
        let spans =
            request.resource_spans.iter().flat_map(|unit| &unit.scope_spans).map(|scope| scope.spans.len());
        let count: usize = spans.sum();
        black_box(&request);
        count as u64
    };
    text.lines().map(count).sum()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(borrow)]
    resource_spans: Vec<ResourceSpans<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "what is read is not looked at")]
struct ResourceSpans<'a> {
    #[serde(borrow)]
    resource: Resource<'a>,
    scope_spans: Vec<ScopeSpans<'a>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "what is read is not looked at")]
struct Resource<'a> {
    #[serde(borrow)]
    attributes: Vec<KeyValue<'a>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "what is read is not looked at")]
struct ScopeSpans<'a> {
    #[serde(borrow)]
    scope: Scope<'a>,
    spans: Vec<PlainSpan<'a>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "what is read is not looked at")]
struct Scope<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    version: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "what is read is not looked at")]
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
#[allow(dead_code, reason = "what is read is not looked at")]
struct Event<'a> {
    time_unix_nano: &'a str,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    attributes: Vec<KeyValue<'a>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "what is read is not looked at")]
struct Status<'a> {
    #[serde(default)]
    code: u8,
    #[serde(default, borrow)]
    message: Cow<'a, str>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "what is read is not looked at")]
struct KeyValue<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    value: AnyValue<'a>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "what is read is not looked at")]
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

/// Requests as the collector's file exporter writes them, with the attributes of an HTTP service: four to six a span,
/// an event in every tenth, an error in every fiftieth.
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
