//! Spans that our writer writes are read back unchanged, except for the losses that [`write_span`]
//! documents. `held` repeats those losses in code.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::super::TraceWriter as _;
use super::super::super::drawn::{collect, draw};
use super::super::super::otlp::testing::{cases, spans};
use super::super::super::plain_json::text_of;
use super::super::*;
use astracer_model::span::{Event, Link, Resource, Scope, Span, SpanKind, Status};
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

fn written(span: &Span<'_>) -> serde_json::Value {
    let mut text = Vec::new();
    write_span(&mut text, span);
    serde_json::from_slice(&text).unwrap()
}

/// The value after a round trip through JSON: bytes and non-finite numbers become strings.
fn in_json(value: Value<'static>) -> Value<'static> {
    match value {
        Value::Bytes(_) => Value::String(text_of(&value).into_owned().into()),
        Value::Double(number) if !number.is_finite() => Value::String(text_of(&value).into_owned().into()),
        Value::Array(items) => Value::Array(items.into_iter().map(in_json).collect()),
        Value::Map(members) => Value::Map(members_in_json(members)),
        _ => value,
    }
}

fn members_in_json(members: Vec<Attribute<'static>>) -> Vec<Attribute<'static>> {
    members.into_iter().map(|Attribute { key, value }| Attribute { key, value: in_json(value) }).collect()
}

fn micros(time: UnixNanos) -> UnixNanos {
    UnixNanos(time.0 / 1_000 * 1_000)
}

fn held(span: Span<'static>) -> Span<'static> {
    let (services, tags): (Vec<_>, Vec<_>) =
        span.resource.attributes.iter().cloned().partition(|attribute| attribute.key == "service.name");
    let (telling, tags): (Vec<_>, Vec<_>) =
        tags.into_iter().partition(|attribute| attribute.key.starts_with("host."));
    let mut resource =
        vec![services.into_iter().next().unwrap_or(Attribute::new("service.name", "unknown_service"))];
    let mut attributes: Vec<Attribute<'static>> = Vec::new();
    for (Attribute { key, value }, list) in span
        .attributes
        .into_iter()
        .chain(span.scope.attributes.iter().cloned())
        .chain(tags)
        .map(|attribute| (attribute, 0))
        .chain(telling.into_iter().map(|attribute| (attribute, 1)))
    {
        let list = if list == 0 { &mut attributes } else { &mut resource };
        if list.iter().all(|known| known.key != key) {
            let value = Value::String(text_of(&value).into_owned().into());
            list.push(Attribute { key, value });
        }
    }
    let start = span.start.map(micros).filter(|&start| start != UnixNanos(0));
    let links = span.links.into_iter().map(|link| Link {
        attributes: members_in_json(link.attributes),
        flags: 0,
        ..link
    });
    let events = span.events.into_iter().map(|event| Event {
        time: micros(event.time),
        attributes: members_in_json(event.attributes),
        ..event
    });
    Span {
        start,
        end: start.zip(span.end).map(|(start, end)| {
            let duration = span.start.map_or(0, |start| end.since(start)) / 1_000;
            UnixNanos(start.0 + duration.max(1) * 1_000)
        }),
        attributes,
        links: links.collect(),
        events: events.collect(),
        flags: 0,
        resource: Arc::new(Resource { attributes: resource, ..Resource::default() }),
        scope: Arc::new(Scope {
            name: span.scope.name.clone(),
            version: span.scope.version.clone(),
            ..Scope::default()
        }),
        ..span
    }
}

/// Arbitrary spans that Zipkin accepts. Some resources have a service and a host.
fn acceptable() -> impl Strategy<Value = Vec<Span<'static>>> {
    (spans(), 1..=u128::MAX, proptest::option::of("[a-z\"]{1,5}")).prop_map(
        |(mut spans, trace_id, service)| {
            for span in &mut spans {
                span.trace_id = TraceId(trace_id);
                // The largest end time would overflow when rounded up.
                span.end = span.end.map(|end| UnixNanos(end.0 / 2));
                span.start = span.start.map(|start| UnixNanos(start.0 / 2));
                if let Some(service) = &service {
                    let mut resource = Resource::clone(&span.resource);
                    resource.attributes.push(Attribute::new("service.name", &**service).into_owned());
                    resource.attributes.insert(0, Attribute::new("host.name", "h"));
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
    fn what_is_written_is_read_back(first in acceptable(), second in acceptable()) {
        let text = write(&[&first, &second]);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(json.as_array().map(Vec::len), Some(first.len() + second.len()));
        let read = collect(read, text.as_bytes());
        prop_assert_eq!(&read.problems, &Vec::<String>::new());
        let expected: Vec<_> = first.into_iter().chain(second).map(held).collect();
        prop_assert_eq!(&read.spans, &expected);
        // A second round trip changes nothing.
        let again = collect(super::read, write(&[&read.spans]).as_bytes());
        prop_assert_eq!(&again.spans, &expected);
    }

    /// Attributes that form the remote endpoint come back unchanged: the endpoint adds nothing to
    /// them.
    #[test]
    fn what_names_the_peer_is_read_back(
        kind in 0i64..=5,
        peers in proptest::collection::btree_map(
            proptest::sample::select(vec![
                "peer.service", "server.address", "net.peer.name", "network.peer.address", "server.socket.domain",
                "server.socket.address", "net.sock.peer.name", "net.sock.peer.addr", "net.sock.peer.port",
                "net.peer.ip", "net.peer.port", "peer.hostname", "peer.address", "db.name",
            ]),
            proptest::sample::select(vec!["s", "h:80", "10.0.0.1", "10.0.0.2:80", "::1", "[::2]:80", "80", ""]),
            0..5,
        ),
        port in proptest::option::of(0i64..70_000),
    ) {
        let mut attributes: Vec<_> = peers.iter().map(|(&key, &text)| Attribute::new(key, text)).collect();
        attributes.extend(port.map(|port| Attribute { key: "network.peer.port".into(), value: Value::Int(port) }));
        let span = Span {
            trace_id: TraceId(1),
            span_id: SpanId(1),
            kind: SpanKind::from_otlp(kind),
            attributes,
            resource: Arc::new(Resource::service("s")),
            ..Span::default()
        };
        let read = collect(read, write(&[std::slice::from_ref(&span)]).as_bytes());
        let endpoint = &written(&span)["remoteEndpoint"];
        // A port without an address cannot be in the endpoint, and is text in a tag.
        let held = Span {
            attributes: span
                .attributes
                .iter()
                .map(|Attribute { key, value }| match value {
                    Value::Int(port) if endpoint["port"] != *port => {
                        Attribute { key: key.clone(), value: Value::String(port.to_string().into()) }
                    }
                    _ => Attribute { key: key.clone(), value: value.clone() },
                })
                .collect(),
            ..span.clone()
        };
        prop_assert_eq!(read.spans.iter().map(draw).collect::<Vec<_>>(), vec![draw(&held)]);
    }
}

/// A span that uses every field of Zipkin's model.
fn example() -> Span<'static> {
    Span {
        trace_id: TraceId(0x5af7183fb1d4cf5f_463ac35c9f6413ad),
        span_id: SpanId(0x352bff9a74ca9ad2),
        parents: [SpanId(1), SpanId(2), SpanId(3)].into_iter().collect(),
        name: "GET".into(),
        kind: SpanKind::Client,
        start: Some(UnixNanos(1_556_604_172_355_737_999)),
        end: Some(UnixNanos(1_556_604_172_355_739_233)),
        status: Status::Error,
        status_message: "refused".into(),
        attributes: vec![
            Attribute { key: "n".into(), value: Value::Int(-1) },
            Attribute { key: "b".into(), value: Value::Bool(true) },
            Attribute { key: "l".into(), value: Value::Array(vec!["a".into(), Value::Double(1.0)]) },
            Attribute::new("net.peer.name", "upstream"),
            Attribute::new("network.peer.address", "192.0.2.7"),
            Attribute { key: "network.peer.port".into(), value: Value::Int(443) },
            Attribute { key: "zipkin.debug".into(), value: Value::Bool(true) },
        ],
        events: vec![
            Event { time: UnixNanos(1_556_604_172_355_738_000), name: "plain".into(), ..Event::default() },
            Event {
                time: UnixNanos(1_556_604_172_355_738_999),
                name: "my-event-name".into(),
                attributes: vec![Attribute::new("key1", "value1"), Attribute::new("key2", "value2")],
                dropped_attributes: 0,
            },
        ],
        links: vec![Link {
            trace_id: TraceId(0xa),
            span_id: SpanId(0xb),
            trace_state: "c=d".into(),
            ..Link::default()
        }],
        dropped_links: 2,
        trace_state: "a=b".into(),
        shared: true,
        resource: Arc::new(Resource {
            attributes: vec![
                Attribute::new("service.name", "backend"),
                Attribute::new("net.host.ip", "2001:db8::1"),
                Attribute { key: "net.host.port".into(), value: Value::Int(8080) },
                Attribute::new("host.name", "h"),
                Attribute::new("n", "of the resource"),
            ],
            ..Resource::default()
        }),
        scope: Arc::new(Scope { name: "lib".into(), version: "1".into(), ..Scope::default() }),
        ..Span::default()
    }
}

#[test]
fn the_object_is_what_the_transformation_asks_for() {
    // Written by hand from OpenTelemetry's "OpenTelemetry to Zipkin Transformation" and Zipkin's
    // API.
    let expected = serde_json::json!({
        "traceId": "5af7183fb1d4cf5f463ac35c9f6413ad",
        "id": "352bff9a74ca9ad2",
        "parentId": "0000000000000001",
        "name": "GET",
        "kind": "CLIENT",
        "timestamp": 1_556_604_172_355_737u64,
        "duration": 1,
        "localEndpoint": {"serviceName": "backend", "ipv6": "2001:db8::1", "port": 8080},
        "remoteEndpoint": {"serviceName": "upstream", "ipv4": "192.0.2.7", "port": 443},
        "annotations": [
            {"timestamp": 1_556_604_172_355_738u64, "value": "plain"},
            {"timestamp": 1_556_604_172_355_738u64, "value": r#""my-event-name": {"key1":"value1","key2":"value2"}"#},
        ],
        "tags": {
            "otel.status_code": "ERROR",
            "error": "refused",
            "otel.status_description": "refused",
            "astracer.parents": "0000000000000002,0000000000000003",
            "otel.scope.name": "lib",
            "otel.scope.version": "1",
            "otel.library.name": "lib",
            "otel.library.version": "1",
            "w3c.tracestate": "a=b",
            "otel.dropped_links_count": "2",
            "otlp.link.0": "0000000000000000000000000000000a|000000000000000b|c=d|{}|0",
            "n": "-1",
            "b": "true",
            "l": r#"["a",1.0]"#,
            "net.peer.name": "upstream",
            "network.peer.address": "192.0.2.7",
            "network.peer.port": "443",
            "host.name": "h",
        },
        "shared": true,
        "debug": true,
    });
    assert_eq!(written(&example()), expected);
}

#[test]
fn what_is_empty_is_not_written() {
    let span =
        Span { trace_id: TraceId(1), span_id: SpanId(2), kind: SpanKind::Unspecified, ..Span::default() };
    assert_eq!(
        written(&span),
        serde_json::json!({
            "traceId": "0000000000000001",
            "id": "0000000000000002",
            "localEndpoint": {"serviceName": "unknown_service"},
        })
    );
    assert_eq!(collect(read, write(&[]).as_bytes()).drawing, "");
}

#[test]
fn names_that_look_like_more_than_a_name_stay_names() {
    for name in [r#""e": {}"#, r#""e": {"a":1}"#, "e|{}|0", "e|{", ""] {
        let event = Event { name: name.into(), ..Event::default() };
        let span = Span { events: vec![event.clone()], ..example() };
        assert_eq!(collect(read, write(&[&[span]]).as_bytes()).spans[0].events, [event]);
    }
}

#[test]
fn a_start_that_is_none_in_microseconds_is_not_written() {
    let span = Span { start: Some(UnixNanos(999)), end: Some(UnixNanos(5_000)), ..Span::default() };
    let json = written(&span);
    assert_eq!((&json["timestamp"], &json["duration"]), (&serde_json::Value::Null, &serde_json::Value::Null));
}

#[test]
fn the_tag_error_is_there_only_for_errors() {
    let tags = |status: Status, message: &'static str, error: Value<'static>| {
        let attributes = vec![Attribute { key: "error".into(), value: error }];
        let span = Span { status, status_message: message.into(), attributes, ..Span::default() };
        written(&span)["tags"].clone()
    };
    assert_eq!(tags(Status::Unset, "", Value::Bool(false)), serde_json::Value::Null);
    assert_eq!(tags(Status::Unset, "", "false".into()), serde_json::Value::Null);
    assert_eq!(tags(Status::Ok, "", Value::Bool(false)), serde_json::json!({"otel.status_code": "OK"}));
    assert_eq!(
        tags(Status::Error, "", "own".into()),
        serde_json::json!({"otel.status_code": "ERROR", "error": ""})
    );
}

#[test]
fn the_remote_endpoint_follows_the_ranks() {
    let remote = |kind, attributes: &[(&'static str, &'static str)]| {
        let attributes = attributes.iter().map(|&(key, text)| Attribute::new(key, text)).collect();
        written(&Span { kind, attributes, ..Span::default() })["remoteEndpoint"].clone()
    };
    let ranks = [
        ("peer.service", "a"),
        ("server.address", "b"),
        ("net.peer.name", "c"),
        ("server.socket.domain", "d"),
        ("net.sock.peer.name", "e"),
        ("peer.hostname", "f"),
        ("peer.address", "g"),
        ("db.name", "h"),
    ];
    for first in 0..ranks.len() {
        // In any order, the best rank wins.
        let mut found: Vec<_> = ranks[first..].to_vec();
        found.reverse();
        assert_eq!(remote(SpanKind::Client, &found), serde_json::json!({"serviceName": ranks[first].1}));
    }
    for (attributes, expected) in [
        (
            vec![("network.peer.address", "10.0.0.1"), ("network.peer.port", "80"), ("db.name", "x")],
            serde_json::json!({"ipv4": "10.0.0.1", "port": 80}),
        ),
        (
            vec![("server.address", "x"), ("net.sock.peer.addr", "::1"), ("net.sock.peer.port", "80")],
            serde_json::json!({"serviceName": "x", "ipv6": "::1", "port": 80}),
        ),
        (vec![("peer.address", "10.0.0.1:80")], serde_json::json!({"ipv4": "10.0.0.1", "port": 80})),
        (vec![("network.peer.address", "/run/socket")], serde_json::json!({"serviceName": "/run/socket"})),
        (
            vec![("peer.service", "x"), ("network.peer.port", "80")],
            serde_json::json!({"serviceName": "x", "port": 80}),
        ),
        (vec![("network.peer.address", "10.0.0.01")], serde_json::json!({"ipv4": "10.0.0.01"})),
        (vec![("network.peer.address", "10.0.0.256")], serde_json::json!({"serviceName": "10.0.0.256"})),
        (vec![("network.peer.port", "80")], serde_json::Value::Null),
        (vec![("http.url", "x")], serde_json::Value::Null),
    ] {
        assert_eq!(remote(SpanKind::Producer, &attributes), expected);
    }
    // A server's own address is not its caller's.
    assert_eq!(
        remote(SpanKind::Server, &[("server.address", "x"), ("db.name", "y")]),
        serde_json::Value::Null
    );
    assert_eq!(remote(SpanKind::Server, &[("peer.service", "x")]), serde_json::json!({"serviceName": "x"}));
}

/// Tags by which recorders state status and scope, in all their forms, come out unchanged, and
/// nothing is lost.
#[test]
fn tags_of_zipkin_come_out_as_they_came_in() {
    let texts = |key: &str, texts: &[Option<&str>]| -> Vec<Option<(String, String)>> {
        texts.iter().map(|text| text.map(|text| (key.to_owned(), text.to_owned()))).collect()
    };
    let codes = texts("otel.status_code", &[None, Some("ERROR"), Some("OK")]);
    let descriptions = texts("otel.status_description", &[None, Some("d"), Some("true")]);
    let errors = texts("error", &[None, Some("true"), Some("false"), Some(""), Some("d"), Some("x")]);
    let names = texts("otel.scope.name", &[None, Some("l")]);
    let old_names = texts("otel.library.name", &[None, Some("l"), Some("m")]);
    let versions = texts("otel.scope.version", &[None, Some("1")]);
    let old_versions = texts("otel.library.version", &[None, Some("1")]);
    let mut sets: Vec<Vec<(String, String)>> = vec![vec![("k".to_owned(), "v".to_owned())]];
    for choices in [codes, descriptions, errors, names, old_names, versions, old_versions] {
        let with = |set: &Vec<_>, choice: &Option<_>| set.iter().cloned().chain(choice.clone()).collect();
        sets = sets.iter().flat_map(|set| choices.iter().map(move |choice| with(set, choice))).collect();
    }
    assert_eq!(sets.len(), 3 * 3 * 6 * 2 * 3 * 2 * 2);
    for set in sets {
        let tags: serde_json::Map<_, _> = set.into_iter().map(|(key, text)| (key, text.into())).collect();
        let tags = serde_json::Value::Object(tags);
        let input = serde_json::json!({"traceId": "a", "id": "1", "localEndpoint": {"serviceName": "s"}, "tags": tags});
        let read = collect(super::read, input.to_string().as_bytes());
        let span = &read.spans[0];
        assert_eq!(written(span)["tags"], tags);
        let again = collect(super::read, write(&[std::slice::from_ref(span)]).as_bytes());
        assert_eq!(again.spans, read.spans, "{tags}");
        let mut losses = crate::losses::Losses::default();
        losses.count(crate::Format::ZipkinJson, span);
        assert_eq!(losses.counts().count(), 0, "{tags}: {losses:?}");
    }
}

/// A peer that tags name and a peer in the endpoint are kept apart, and nothing is lost.
#[test]
fn the_remote_endpoint_of_zipkin_comes_out_as_it_came_in() {
    let endpoints = [
        serde_json::Value::Null,
        serde_json::json!({"ipv4": "192.0.2.1", "port": 5432}),
        serde_json::json!({"serviceName": "db"}),
        serde_json::json!({"serviceName": "other", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "port": 80}),
        serde_json::json!({"ipv6": "2001:db8::1"}),
        serde_json::json!({"port": 5432}),
    ];
    let named = ["peer.service", "server.address", "net.peer.name", "net.peer.ip", "db.name", "k"];
    for (endpoint, key) in endpoints.iter().flat_map(|endpoint| named.map(|key| (endpoint, key))) {
        for kind in ["CLIENT", "SERVER"] {
            let text = if key == "net.peer.ip" { "192.0.2.9" } else { "db" };
            let mut input = serde_json::json!({
                "traceId": "1", "id": "2", "kind": kind, "timestamp": 1, "duration": 1,
                "localEndpoint": {"serviceName": "s"}, "tags": {key: text}
            });
            if !endpoint.is_null() {
                input["remoteEndpoint"] = endpoint.clone();
            }
            let read = collect(super::read, input.to_string().as_bytes());
            let span = &read.spans[0];
            let output = written(span);
            let is_other_service = key == "peer.service" && endpoint["serviceName"] == "other";
            if is_other_service {
                continue;
            }
            assert_eq!(output["remoteEndpoint"], *endpoint, "{input}");
            assert_eq!(output["tags"], input["tags"], "{input}");
            let again = collect(super::read, write(&[std::slice::from_ref(span)]).as_bytes());
            assert_eq!(again.spans, read.spans, "{input}");
            let mut losses = crate::losses::Losses::default();
            losses.count(crate::Format::ZipkinJson, span);
            assert_eq!(losses.counts().count(), 0, "{input}: {losses:?}");
        }
    }
}
