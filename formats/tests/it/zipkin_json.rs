//! Zipkin's recordings, compared with the results of a plain JSON parser.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;

use astracer_model::span::lookup;
use astracer_model::value::{Attribute, Value};
use astracer_model::{Format, Span, SpanKind, Status};
use serde_json::Value as Json;

use crate::collected::Collected;
use crate::sample;

fn text(name: &str) -> String {
    let mut file = File::open(sample("zipkin_json").join(name)).unwrap();
    let mut text = String::new();
    if name.ends_with(".gz") {
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    } else {
        file.read_to_string(&mut text).unwrap();
    }
    text
}

/// Checks every field of a span of these files.
#[track_caller]
fn check_span(span: &Span<'_>, json: &Json) {
    let hex = |id: &str| u128::from_str_radix(id, 16).unwrap();
    let text = |key: &str| json[key].as_str();
    let micros = |json: &Json| json.as_u64().map(|micros| micros * 1_000);
    assert_eq!(span.trace_id.0, hex(text("traceId").unwrap()));
    assert_eq!(u128::from(span.span_id.0), hex(text("id").unwrap()));
    let parents: Vec<_> = span.parents.iter().map(|parent| u128::from(parent.0)).collect();
    assert_eq!(parents, text("parentId").map(hex).into_iter().collect::<Vec<_>>());
    assert_eq!(span.name, text("name").unwrap_or(""));
    let kind = match text("kind") {
        None => SpanKind::Unspecified,
        Some("CLIENT") => SpanKind::Client,
        Some("SERVER") => SpanKind::Server,
        Some("PRODUCER") => SpanKind::Producer,
        Some("CONSUMER") => SpanKind::Consumer,
        Some(other) => panic!("{other}"),
    };
    assert_eq!(span.kind, kind);
    let (start, duration) = (micros(&json["timestamp"]), micros(&json["duration"]));
    assert_eq!(span.start.map(|time| time.0), start);
    assert_eq!(span.end.map(|time| time.0), start.zip(duration).map(|(start, duration)| start + duration));
    assert_eq!(span.shared, json["shared"] == true);

    let mut resource = BTreeMap::new();
    let local = &json["localEndpoint"];
    for (key, field) in [("service.name", "serviceName"), ("net.host.ip", "ipv4"), ("net.host.port", "port")]
    {
        resource.extend(value(&local[field]).map(|value| (key, value)));
    }
    assert_eq!(map(&span.resource.attributes), resource);

    let mut attributes: BTreeMap<_, _> = json["tags"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, text)| (key.as_str(), value(text).unwrap()))
        .collect();
    let status = attributes.remove("error");
    assert_eq!(span.status == Status::Error, status.is_some());
    let description = status.as_ref().and_then(Value::as_str).filter(|&text| text != "true");
    assert_eq!(span.status_message, description.unwrap_or(""));
    let remote = &json["remoteEndpoint"];
    for (key, field) in [
        ("peer.service", "serviceName"),
        ("network.peer.address", "ipv4"),
        ("network.peer.address", "ipv6"),
        ("network.peer.port", "port"),
    ] {
        attributes.extend(value(&remote[field]).map(|value| (key, value)));
    }
    assert_eq!(map(&span.attributes), attributes);

    let annotations = json["annotations"].as_array().into_iter().flatten();
    let events: Vec<_> = span.events.iter().map(|event| (event.time.0, &*event.name)).collect();
    let written = annotations
        .map(|annotation| (micros(&annotation["timestamp"]).unwrap(), annotation["value"].as_str().unwrap()));
    assert_eq!(events, written.collect::<Vec<_>>());
}

fn value(json: &Json) -> Option<Value<'_>> {
    json.as_str().map(Value::from).or_else(|| json.as_i64().map(Value::Int))
}

fn map<'s>(attributes: &'s [Attribute<'_>]) -> BTreeMap<&'s str, Value<'s>> {
    let map: BTreeMap<_, _> = attributes.iter().map(|own| (&*own.key, own.value.clone())).collect();
    assert_eq!(map.len(), attributes.len(), "each key once");
    map
}

/// Reads a recording, compares it with the JSON tree, writes it, and reads it back.
#[track_caller]
fn check(name: &str, spans: usize) -> Collected {
    let text = text(name);
    let read = Collected::from_text(Format::ZipkinJson, &text);
    assert_eq!(read.problems, []);
    assert_eq!(read.spans.len(), spans);
    read.assert_places(text.as_bytes());
    let json: Json = serde_json::from_str(&text).unwrap();
    for (span, json) in read.spans.iter().zip(json.as_array().unwrap()) {
        check_span(span, json);
    }

    let mut written = Vec::new();
    let mut writer = astracer_formats::writer(Format::ZipkinJson, Box::new(&mut written)).unwrap();
    writer.trace(&read.spans).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let again: Json = serde_json::from_slice(&written).unwrap();
    for (again, json) in again.as_array().unwrap().iter().zip(json.as_array().unwrap()) {
        for field in [
            "traceId",
            "id",
            "parentId",
            "name",
            "kind",
            "timestamp",
            "duration",
            "shared",
            "remoteEndpoint",
            "annotations",
            "tags",
        ] {
            assert_eq!(again[field], json[field], "{field} of {json}");
        }
    }
    let again = Collected::from_text(Format::ZipkinJson, &written);
    for (again, span) in again.spans.iter().zip(&read.spans) {
        // Only spans of a service without a name gained one.
        if !span.resource.service_name().is_empty() {
            assert_eq!(again, span);
        }
    }
    assert_eq!(again.spans.len(), spans);
    read
}

#[test]
fn smartthings_a_real_trace_of_a_thousand_spans() {
    let read = check("smartthings-mobile-web-install.json.gz", 1041);
    assert_eq!(read.spans.iter().filter(|span| span.start.is_none()).count(), 84);
    assert_eq!(read.spans.iter().filter(|span| span.shared).count(), 294);
}

#[test]
fn smartthings_through_several_systems() {
    check("smartthings-oauth-authorization.json.gz", 175);
}

#[test]
fn clocks_that_differ_and_ids_that_are_shared() {
    let read = check("skew.json", 4);
    assert_eq!(read.spans.iter().map(|span| span.shared).collect::<Vec<_>>(), [false, true, false, false]);
    check("ascend.json", 8);
}

#[test]
fn proxies_and_brokers() {
    let read = check("envoy.json", 1);
    assert_eq!(read.spans[0].resource.service_name(), "");
    assert_eq!(
        lookup(&read.spans[0].resource.attributes, "net.host.ip"),
        Some(&Value::from("169.254.65.45"))
    );
    check("messaging.json", 4);
    check("messaging-kafka.json", 28);
    check("yelp.json", 16);
}
