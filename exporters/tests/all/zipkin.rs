//! Zipkin: the requests on the wire, read as plain JSON.

use std::sync::Arc;

use astracer_exporters::{Destination as _, ErrorKind, Exporter, Retry, Zipkin, ZipkinBuilder, spans};
use astracer_model::span::Resource;
use astracer_testing::{Answer, Server};
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use serde_json::{Value, json};

use super::sample::{self, EPOCH_NS};

fn zipkin(server: &Server) -> ZipkinBuilder {
    let at_once = super::otlp_http::at_once();
    Zipkin::builder().with_endpoint(server.url("http") + "/api/v2/spans").with_retry(at_once)
}

/// A span on the wire.
fn sent(span: SpanData) -> Value {
    let server = Server::new([Answer::status(202)]);
    let mut exporter = Exporter::new(zipkin(&server).build().unwrap());
    exporter.set_resource(&sample::resource());
    futures_executor::block_on(exporter.export(vec![span])).unwrap();
    assert_eq!(exporter.counter().read().sent, 1);
    let request = server.requests().remove(0);
    assert_eq!(request.line, "POST /api/v2/spans HTTP/1.1");
    assert_eq!(request.header("content-type"), Some("application/json"));
    let list: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1);
    list[0].clone()
}

#[test]
fn a_span_arrives_as_the_transformation_says() {
    let micros = EPOCH_NS / 1_000;
    let expected = json!({
        "traceId": "0102030405060708090a0b0c0d0e0f10",
        "id": "1112131415161718",
        "parentId": "2122232425262728",
        "name": "SELECT \"orders\" \u{1f980}",
        "kind": "CLIENT",
        // From 1 ns to 1,000,999 ns of the second: both are truncated to microseconds.
        "timestamp": micros,
        "duration": 1_000,
        "localEndpoint": {"serviceName": "shop"},
        "remoteEndpoint": {"serviceName": "orders-db", "ipv4": "192.0.2.7", "port": 5432},
        "annotations": [
            {"timestamp": micros + 500, "value": sent(sample::full())["annotations"][0]["value"]},
            {"timestamp": micros + 900, "value": "done"},
        ],
        "tags": {
            "otel.status_code": "ERROR",
            "error": "deadlock",
            "otel.status_description": "deadlock",
            "otel.scope.name": "shop.db",
            "otel.scope.version": "1.2.3",
            "otel.library.name": "shop.db",
            "otel.library.version": "1.2.3",
            "w3c.tracestate": "ot=th:8,a=b",
            "otel.dropped_attributes_count": "8",
            "otel.dropped_events_count": "4",
            "otel.dropped_links_count": "6",
            "otlp.link.0": sent(sample::full())["tags"]["otlp.link.0"],
            "text": "a\nb",
            "yes": "true",
            "int": "-9223372036854775808",
            "double": "-0.5",
            "nan": "NaN",
            "bools": "[true,false]",
            "ints": "[1,-2]",
            "doubles": "[1.5,\"Infinity\"]",
            "texts": "[\"x\",\"\"]",
            "none": "[]",
            "peer.service": "orders-db",
            "network.peer.address": "192.0.2.7",
            "network.peer.port": "5432",
            "pool": "true",
            "service.instance.id": "7",
        },
    });
    let sent = sent(sample::full());
    assert_eq!(sent, expected);
    // An event's attributes are written as an object after its name.
    let annotation = sent["annotations"][0]["value"].as_str().unwrap();
    let (name, attributes) = annotation.split_once(": ").unwrap();
    assert_eq!(name, "\"retry\"");
    assert_eq!(serde_json::from_str::<Value>(attributes).unwrap()["attempt"], json!(2));
    assert!(sent["tags"]["otlp.link.0"].as_str().unwrap().contains("000000000000beef"));
}

#[test]
fn kinds_and_statuses() {
    for (kind, expected) in [
        (SpanKind::Server, json!("SERVER")),
        (SpanKind::Producer, json!("PRODUCER")),
        (SpanKind::Consumer, json!("CONSUMER")),
        (SpanKind::Internal, Value::Null),
    ] {
        let span = SpanData { span_kind: kind, ..sample::plain(1, 1) };
        assert_eq!(sent(span)["kind"], expected);
    }
    let ok = sent(SpanData { status: Status::Ok, ..sample::plain(1, 1) });
    assert_eq!((&ok["tags"]["otel.status_code"], &ok["tags"]["error"]), (&json!("OK"), &Value::Null));
    let unset = sent(sample::plain(1, 1));
    assert_eq!(unset["tags"]["otel.status_code"], Value::Null);
    // One microsecond, which is Zipkin's minimum.
    let short = sent(SpanData { end_time: sample::at(1), ..sample::plain(1, 1) });
    assert_eq!(short["duration"], json!(1));
}

/// An attribute of the span takes precedence over that of its scope.
#[test]
fn each_tag_is_written_once() {
    let scope = InstrumentationScope::builder("s").with_attributes([KeyValue::new("pool", "scope")]).build();
    let attributes = vec![KeyValue::new("pool", "span")];
    let span = SpanData { attributes, instrumentation_scope: scope, ..sample::plain(1, 1) };
    assert_eq!(sent(span)["tags"]["pool"], json!("span"));
}

#[test]
fn errors_are_those_of_http() {
    let batch = [sample::plain(1, 1)];
    let server = Server::new([404, 404, 503].map(Answer::status));
    let page = Answer::status(200).with_header("content-type", "text/html").with_body("<html>Log in");
    let pages = Server::new([]).then(page);
    let once = |server| zipkin(server).with_retry(Retry::NEVER).build().unwrap();
    let zipkin = zipkin(&server).build().unwrap();
    let resource = Arc::new(Resource::service("a"));
    let error = once(&server).send(&spans(&batch, &resource)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongPath);
    assert!(error.to_string().contains("for Zipkin it is /api/v2/spans"), "{error}");
    assert_eq!(zipkin.send(&spans(&batch, &resource)).unwrap().accepted, 1);
    let counts = zipkin.counter().read();
    assert_eq!((counts.sent, counts.retries, counts.lost.total()), (1, 2, 0));
    // A proxy's login page once passed for a success.
    let error = once(&pages).send(&spans(&batch, &resource)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedAnswer, "{error}");
    assert_eq!(error.detail(), "HTTP 200: <html>Log in");
}

#[test]
fn a_call_that_is_too_large_is_split() {
    let server = Server::new([]);
    let zipkin = zipkin(&server).with_max_request_bytes(2_000).build().unwrap();
    let batch: Vec<_> = (1..=50).map(|number| sample::plain(1, number)).collect();
    zipkin.send(&spans(&batch, &Arc::new(Resource::service("a")))).unwrap();
    let ids = server.requests().into_iter().flat_map(|request| {
        assert!(request.body.len() <= 2_000);
        let list: Vec<Value> = serde_json::from_slice(&request.body).unwrap();
        list.into_iter().map(|span| u64::from_str_radix(span["id"].as_str().unwrap(), 16).unwrap())
    });
    assert_eq!(ids.collect::<Vec<_>>(), Vec::from_iter(1..=50));
}

#[test]
fn what_the_server_finds_too_large_is_sent_in_parts() {
    let server = Server::new([413, 413, 202, 202, 202].map(Answer::status));
    let zipkin = zipkin(&server).build().unwrap();
    let batch: Vec<_> = (1..=6).map(|number| sample::plain(1, number)).collect();
    assert_eq!(zipkin.send(&spans(&batch, &Arc::new(Resource::service("a")))).unwrap().accepted, 6);
    let length = |body: &[u8]| serde_json::from_slice::<Vec<Value>>(body).unwrap().len();
    let lengths: Vec<_> = server.requests().iter().map(|request| length(&request.body)).collect();
    assert_eq!((lengths[..2].to_vec(), lengths[2..].iter().sum::<usize>()), (vec![6, 3], 6), "{lengths:?}");
    assert!(lengths[2..].iter().all(|&length| length < 3), "{lengths:?}: three were refused");
    let counts = zipkin.counter().read();
    assert_eq!((counts.sent, counts.lost.total(), counts.retries), (6, 0, 0));
}

#[test]
fn variables_are_read() {
    let server = Server::new([]);
    let url = server.url("http") + "/x";
    let read = |name: &'static str, value: String| {
        Zipkin::builder()
            .with_strict_variables()
            .with_variables(move |asked| (asked == name).then(|| value.clone()))
            .build()
    };
    let zipkin = read("OTEL_EXPORTER_ZIPKIN_ENDPOINT", url).unwrap();
    zipkin.send(&spans(&[sample::plain(1, 1)], &Arc::new(Resource::service("a")))).unwrap();
    assert_eq!(server.requests()[0].line, "POST /x HTTP/1.1");
    read("OTEL_EXPORTER_ZIPKIN_TIMEOUT", "0".to_owned()).unwrap();
    let error = read("OTEL_EXPORTER_ZIPKIN_TIMEOUT", "1s".to_owned()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "OTEL_EXPORTER_ZIPKIN_TIMEOUT: invalid timeout `1s`: use milliseconds, or 0 for no limit"
    );
    let error = read("OTEL_EXPORTER_ZIPKIN_ENDPOINT", "zipkin:9411".to_owned()).unwrap_err();
    assert!(error.to_string().ends_with("use http://zipkin:9411 or https://zipkin:9411"), "{error}");
}
