//! Spans that our writer writes are read back unchanged, except for the losses that the writer
//! documents. `held` repeats those losses in code.

use std::io::Write;

use proptest::prelude::*;

use super::super::super::drawn::collect;
use super::super::super::otlp::testing::{cases, spans};
use super::super::super::plain_json::text_of;
use super::super::super::{Format, TraceWriter as _};
use super::super::*;
use astracer_model::span::{Event, Link, Resource, Scope, Span};
use astracer_model::value::{Attribute, Value};
use astracer_model::{SpanId, TraceId, UnixNanos};

fn write(traces: &[&[Span<'_>]]) -> String {
    let mut text = Vec::new();
    let mut writer = Writer::new(Box::new(&mut text));
    for trace in traces {
        writer.trace(trace).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    String::from_utf8(text).unwrap()
}

fn held_value(value: Value<'static>) -> Value<'static> {
    match value {
        Value::Empty | Value::Array(_) | Value::Map(_) => Value::String(text_of(&value).into_owned().into()),
        _ => value,
    }
}

fn held_attributes(attributes: Vec<Attribute<'static>>) -> Vec<Attribute<'static>> {
    attributes
        .into_iter()
        .map(|Attribute { key, value }| Attribute { key, value: held_value(value) })
        .collect()
}

fn micros(time: UnixNanos) -> UnixNanos {
    UnixNanos(time.0 / 1_000 * 1_000)
}

fn held(span: Span<'static>) -> Span<'static> {
    let links = span.links.into_iter().map(|link| Link {
        attributes: Vec::new(),
        trace_state: "".into(),
        flags: 0,
        dropped_attributes: 0,
        ..link
    });
    let (mut parents, mut follows) = (span.parents, span.follows);
    let mut links: Vec<_> = links.collect();
    if parents.is_empty()
        && let Some(near) = links.iter().position(|link| link.trace_id == span.trace_id)
    {
        parents.push(links.remove(near).span_id);
        follows = true;
    }
    let events = span.events.into_iter().map(|event| Event {
        time: micros(event.time),
        attributes: held_attributes(event.attributes),
        ..event
    });
    let (mut services, others): (Vec<_>, Vec<_>) =
        span.resource.attributes.iter().cloned().partition(|attribute| attribute.key == "service.name");
    services.extend(others);
    let mut attributes = span.attributes;
    attributes.extend(span.scope.attributes.iter().cloned());
    Span {
        parents,
        follows,
        links,
        start: span.start.map(micros),
        end: match (span.start, span.end) {
            (Some(start), Some(end)) => Some(UnixNanos(micros(start).0 + end.since(start) / 1_000 * 1_000)),
            (_, end) => end.map(micros),
        },
        events: events.collect(),
        attributes: held_attributes(attributes),
        flags: span.flags & 1,
        resource: Arc::new(Resource { attributes: held_attributes(services), ..Resource::default() }),
        scope: Arc::new(Scope {
            name: span.scope.name.clone(),
            version: span.scope.version.clone(),
            ..Scope::default()
        }),
        ..span
    }
}

/// Traces of arbitrary spans. Some resources have a service, and some links stay within the trace.
fn trace() -> impl Strategy<Value = Vec<Span<'static>>> {
    (spans(), 1..=u128::MAX, proptest::option::of("[a-z\"]{1,5}"), any::<bool>()).prop_map(
        |(mut spans, trace_id, service, near)| {
            for span in &mut spans {
                span.trace_id = TraceId(trace_id);
                span.links.iter_mut().for_each(|link| link.span_id.0 |= 1);
                if near && let Some(link) = span.links.last_mut() {
                    link.trace_id = span.trace_id;
                }
                if let Some(service) = &service {
                    let mut resource = Resource::clone(&span.resource);
                    resource.attributes.push(Attribute::new("service.name", &**service).into_owned());
                    span.resource = Arc::new(resource);
                }
            }
            spans
        },
    )
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn what_is_written_is_read_back(first in trace(), second in trace()) {
        let text = write(&[&first, &second]);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(json["data"].as_array().map(Vec::len), Some(2));
        let read = collect(read, text.as_bytes());
        prop_assert_eq!(&read.problems, &Vec::<String>::new());
        let expected: Vec<_> = first.into_iter().chain(second).map(held).collect();
        prop_assert_eq!(&read.spans, &expected);
        // A second round trip changes nothing.
        let (first, second) = read.spans.split_at(json["data"][0]["spans"].as_array().map_or(0, Vec::len));
        let again = collect(super::read, write(&[first, second]).as_bytes());
        prop_assert_eq!(&again.spans, &expected);
    }
}

/// A root and its child in one process, and a link.
fn example() -> Vec<Span<'static>> {
    let resource = Arc::new(Resource {
        attributes: vec![
            Attribute::new("host.name", "h"),
            Attribute::new("service.name", "s"),
            Attribute { key: "process.pid".into(), value: Value::Int(7) },
        ],
        ..Resource::default()
    });
    let root = Span {
        trace_id: TraceId(0xa),
        span_id: SpanId(1),
        name: "GET /".into(),
        kind: astracer_model::SpanKind::Server,
        start: Some(UnixNanos(5_000_999)),
        end: Some(UnixNanos(7_002_998)),
        status: astracer_model::Status::Error,
        status_message: "refused".into(),
        attributes: vec![
            Attribute { key: "big".into(), value: Value::Int(1 << 53) },
            Attribute { key: "raw".into(), value: Value::Bytes(vec![1, 2, 255].into()) },
        ],
        flags: 1,
        resource: Arc::clone(&resource),
        scope: Arc::new(Scope { name: "lib".into(), version: "1".into(), ..Scope::default() }),
        ..Span::default()
    };
    let child = Span {
        trace_id: TraceId(0xa),
        span_id: SpanId(2),
        parents: [SpanId(1), SpanId(3)].into_iter().collect(),
        events: vec![Event {
            time: UnixNanos(6_000_000),
            name: "e".into(),
            attributes: vec![Attribute { key: "x".into(), value: Value::Double(1.0) }],
            dropped_attributes: 0,
        }],
        links: vec![Link { trace_id: TraceId(1 << 64), span_id: SpanId(4), ..Link::default() }],
        resource: Arc::new(Resource::clone(&resource)),
        ..Span::default()
    };
    vec![root, child]
}

#[test]
fn the_text_is_what_jaeger_answers() {
    // Written by hand after Jaeger's model/json and the translation of OpenTelemetry's Collector.
    let expected = r#"{"data":[
{"traceID":"000000000000000a","spans":[
{"traceID":"000000000000000a","spanID":"0000000000000001","flags":1,"operationName":"GET /","references":[],"startTime":5000,"duration":2001,"tags":[{"key":"otel.scope.name","type":"string","value":"lib"},{"key":"otel.scope.version","type":"string","value":"1"},{"key":"big","type":"int64","value":"9007199254740992"},{"key":"raw","type":"binary","value":"AQL/"},{"key":"span.kind","type":"string","value":"server"},{"key":"otel.status_code","type":"string","value":"ERROR"},{"key":"error","type":"bool","value":true},{"key":"otel.status_description","type":"string","value":"refused"}],"logs":[],"processID":"p1","warnings":null},
{"traceID":"000000000000000a","spanID":"0000000000000002","operationName":"","references":[{"refType":"CHILD_OF","traceID":"000000000000000a","spanID":"0000000000000001"},{"refType":"CHILD_OF","traceID":"000000000000000a","spanID":"0000000000000003"},{"refType":"FOLLOWS_FROM","traceID":"00000000000000010000000000000000","spanID":"0000000000000004"}],"startTime":0,"duration":0,"tags":[],"logs":[{"timestamp":6000,"fields":[{"key":"event","type":"string","value":"e"},{"key":"x","type":"float64","value":1.0}]}],"processID":"p1","warnings":["astracer: no start was recorded","astracer: no end was recorded"]}],
"processes":{"p1":{"serviceName":"s","tags":[{"key":"host.name","type":"string","value":"h"},{"key":"process.pid","type":"int64","value":7}]}},"warnings":null}
],"total":0,"limit":0,"offset":0,"errors":null}
"#;
    assert_eq!(write(&[&example()]), expected);
}

#[test]
fn a_missing_start_is_the_end() {
    let span =
        Span { trace_id: TraceId(1), span_id: SpanId(1), end: Some(UnixNanos(7_000)), ..Span::default() };
    let text = write(&[std::slice::from_ref(&span)]);
    assert!(text.contains(r#""startTime":7,"duration":0,"#), "{text}");
    assert_eq!(collect(read, text.as_bytes()).spans, [span]);
}

#[test]
fn no_traces_are_a_list_of_none() {
    let text = write(&[]);
    assert_eq!(collect(read, text.as_bytes()).drawing, "");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["data"], serde_json::json!([]));
}

#[test]
fn flags_warnings_and_kinds_of_references_find_their_places_again() {
    let input = r#"{"data":[{"traceID":"a","spans":[{"spanID":"1","flags":3,"startTime":1,"duration":1,"warnings":["w"],
        "references":[{"refType":"CHILD_OF","traceID":"b","spanID":"2"}]}]}]}"#;
    let first = collect(read, input.as_bytes());
    let text = write(&[&first.spans]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let span = &json["data"][0]["spans"][0];
    assert_eq!(span["flags"], 3);
    assert_eq!(span["warnings"], serde_json::json!(["w"]));
    assert_eq!(span["references"][0]["refType"], "CHILD_OF");
    assert_eq!(span["tags"], serde_json::json!([]));
    assert_eq!(collect(read, text.as_bytes()).spans, first.spans);
}

#[test]
fn spans_without_a_trace_get_that_of_their_neighbours() {
    let mut spans = example();
    spans[0].trace_id = TraceId::ZERO;
    let read = collect(read, write(&[&spans]).as_bytes());
    assert_eq!(read.spans.iter().map(|span| span.trace_id).collect::<Vec<_>>(), [TraceId(0xa); 2]);
}

#[test]
fn a_full_disk_is_an_error() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = crate::writer(Format::JaegerJson, Box::new(Full)).unwrap();
    let results: Vec<_> = (0..200).map(|_| writer.trace(&example())).collect();
    assert!(results.iter().any(Result::is_err));
    assert!(writer.finish().is_err());
}

#[test]
fn equal_processes_are_one_however_many_there_are() {
    let resource = |number: usize| std::sync::Arc::new(Resource::service(&format!("service {number}")));
    let span = |id: usize, number: usize| Span {
        trace_id: TraceId(1),
        span_id: SpanId(id as u64),
        resource: resource(number),
        ..Span::default()
    };
    // Each span has its own resource in memory; from the second round on they equal earlier ones.
    let trace: Vec<_> = (0..60).map(|index| span(index + 1, index % 20)).collect();
    let json: serde_json::Value = serde_json::from_str(&write(&[&trace])).unwrap();
    let processes = json["data"][0]["processes"].as_object().unwrap();
    assert_eq!(processes.len(), 20);
    for (index, span) in json["data"][0]["spans"].as_array().unwrap().iter().enumerate() {
        let name = &processes[span["processID"].as_str().unwrap()]["serviceName"];
        assert_eq!(*name, format!("service {}", index % 20));
    }
}
