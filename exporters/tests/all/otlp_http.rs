//! OTLP over HTTP: the requests on the wire, and the effect of responses.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use astracer_exporters::{
    Compression, Delivery, Destination, ErrorKind, Exporter, Otlp, OtlpBuilder, OtlpMetrics, Protocol, Retry,
    spans,
};
use astracer_model::UnixNanos;
use astracer_model::span::Resource;
use astracer_testing::{Answer, Request, Server};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use prost::Message as _;

use super::{sample, wire};

/// Three attempts without a delay. A batch is given up at once if the server asks for a delay.
pub(crate) fn at_once() -> Retry {
    let retry = Retry::default().with_max_attempts(3).with_max_age(Duration::from_millis(200));
    retry.with_initial_delay(Duration::ZERO).with_max_delay(Duration::ZERO)
}

fn otlp(server: &Server) -> OtlpBuilder {
    Otlp::builder()
        .with_protocol(Protocol::HttpProtobuf)
        .with_endpoint(server.url("http"))
        .with_retry(at_once())
}

fn export_full(builder: OtlpBuilder) {
    let mut exporter = Exporter::new(builder.build().unwrap());
    exporter.set_resource(&sample::resource());
    futures_executor::block_on(exporter.export(vec![sample::full()])).unwrap();
    assert_eq!(exporter.counter().read().sent, 1);
}

pub(crate) fn send(otlp: &Otlp, numbers: std::ops::RangeInclusive<u64>) -> Result<Delivery, ErrorKind> {
    let batch: Vec<SpanData> = numbers.map(|number| sample::plain(1, number)).collect();
    otlp.send(&spans(&batch, &Arc::new(Resource::service("a")))).map_err(|error| error.kind())
}

#[test]
fn a_span_arrives_field_by_field() {
    let server = Server::new([]);
    export_full(otlp(&server));
    let request = server.requests().remove(0);
    assert_eq!(request.line, "POST /v1/traces HTTP/1.1");
    assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(request.header("content-encoding"), None);
    assert!(request.header("user-agent").unwrap().starts_with("astracer/"));
    let message = ExportTraceServiceRequest::decode(&request.body[..]).unwrap();
    assert_eq!(wire::without_nan(message), wire::full());
}

#[test]
fn a_span_arrives_as_json() {
    let server = Server::new([]);
    export_full(otlp(&server).with_protocol(Protocol::HttpJson));
    let request = server.requests().remove(0);
    assert_eq!(request.header("content-type"), Some("application/json"));
    // JSON has no number for NaN; this crate does not read the string that replaces it.
    let text = String::from_utf8(request.body).unwrap();
    let nan = r#"{"key":"nan","value":{"doubleValue":"NaN"}},"#;
    let infinity = r#"{"doubleValue":"Infinity"}"#;
    assert!(text.contains(nan) && text.contains(infinity), "{text}");
    let text = text.replace(nan, "").replace(infinity, r#"{"doubleValue":1.0}"#);
    let message: ExportTraceServiceRequest = serde_json::from_str(&text).unwrap();
    let mut expected = serde_json::to_string(&wire::full()).unwrap();
    expected = expected.replace(r#"{"doubleValue":null}"#, r#"{"doubleValue":1.0}"#);
    assert_eq!(message, serde_json::from_str(&expected).unwrap());
}

#[test]
fn headers_and_compression_are_those_asked_for() {
    for (compression, name) in [(Compression::Gzip, "gzip"), (Compression::Zstd, "zstd")] {
        let server = Server::new([]);
        export_full(otlp(&server).with_compression(compression).with_header("x-tenant", "blue"));
        let request = server.requests().remove(0);
        assert_eq!(request.header("content-encoding"), Some(name));
        assert_eq!(request.header("x-tenant"), Some("blue"));
        let mut body = Vec::new();
        match compression {
            Compression::Gzip => {
                flate2::read::GzDecoder::new(&request.body[..]).read_to_end(&mut body).unwrap();
            }
            _ => body = zstd::decode_all(&request.body[..]).unwrap(),
        }
        let message = ExportTraceServiceRequest::decode(&body[..]).unwrap();
        assert_eq!(wire::without_nan(message), wire::full());
    }
}

#[test]
fn a_call_that_is_too_large_is_split_and_loses_nothing() {
    let server = Server::new([]);
    let otlp = otlp(&server).with_max_request_bytes(500).build().unwrap();
    let delivery = send(&otlp, 1..=100).unwrap();
    assert_eq!((delivery.accepted, delivery.rejected), (100, 0));
    let requests = server.requests();
    let mut numbers = Vec::new();
    for request in &requests {
        assert!(request.body.len() <= 500);
        // All requests used one connection.
        assert_eq!(request.connection, 0);
        numbers.extend(wire::numbers(&ExportTraceServiceRequest::decode(&request.body[..]).unwrap()));
    }
    assert_eq!(numbers, Vec::from_iter(1..=100));
    // Each span is larger than half a request, so no request is sent in vain.
    assert!(requests.len() <= 32, "{}", requests.len());
    let counts = otlp.counter().read();
    assert_eq!((counts.sent, counts.lost.total(), counts.retries), (100, 0, 0));
}

fn numbers(server: &Server) -> Vec<Vec<u64>> {
    numbers_of(&server.requests())
}

fn numbers_of(requests: &[Request]) -> Vec<Vec<u64>> {
    let message = |body: &[u8]| ExportTraceServiceRequest::decode(body).unwrap();
    requests.iter().map(|request| wire::numbers(&message(&request.body))).collect()
}

#[test]
fn what_the_server_finds_too_large_is_sent_in_parts() {
    let server = Server::new([413, 413].map(Answer::status));
    let otlp = otlp(&server).build().unwrap();
    assert_eq!(send(&otlp, 1..=8).unwrap().accepted, 8);
    // The second four are not tried together, because the first four were rejected.
    let expected = [&[1, 2, 3, 4, 5, 6, 7, 8][..], &[1, 2, 3, 4], &[1, 2], &[3, 4], &[5, 6], &[7, 8]];
    assert_eq!(numbers(&server), expected);
    let counts = otlp.counter().read();
    assert_eq!((counts.sent, counts.lost.total(), counts.retries), (8, 0, 0));
    // The next call is split at once.
    assert_eq!(send(&otlp, 1..=8).unwrap().accepted, 8);
    assert_eq!(numbers(&server)[6..], [&[1, 2][..], &[3, 4], &[5, 6], &[7, 8]]);
}

/// The limit that a server seemed to have was that of a field, or was raised since. A single span
/// is always asked for, and if it is accepted the limit is forgotten.
#[test]
fn a_limit_that_a_server_no_longer_has_is_forgotten() {
    let server = Server::new([413, 413].map(Answer::status));
    let otlp = otlp(&server).build().unwrap();
    assert_eq!(send(&otlp, 1..=4).unwrap().accepted, 4);
    let mut giant = sample::plain(1, 5);
    giant.name = "x".repeat(3_000).into();
    let sent = otlp.send(&spans(&[giant], &Arc::new(Resource::service("a")))).unwrap();
    assert_eq!(sent.accepted, 1);
    assert_eq!(send(&otlp, 6..=9).unwrap().accepted, 4);
    let expected = [&[1, 2, 3, 4][..], &[1, 2], &[1], &[2], &[3], &[4], &[5], &[6, 7, 8, 9]];
    assert_eq!(numbers(&server), expected);
}

fn encodings(server: &Server) -> Vec<Option<String>> {
    server.requests().iter().map(|request| request.header("content-encoding").map(str::to_owned)).collect()
}

#[test]
fn a_server_without_compression_gets_plain_requests() {
    let unsupported = b"\x08\x03\x12\x22unsupported Content-Encoding: gzip";
    for refusal in [
        Answer::status(415),
        Answer::status(400).with_body("no gzip here"),
        Answer::status(400).with_header("content-type", "application/x-protobuf").with_body(*unsupported),
    ] {
        let server = Server::new([refusal]);
        let otlp = otlp(&server).with_compression(Compression::Gzip).build().unwrap();
        for number in 1..=2 {
            assert_eq!(send(&otlp, number..=number).unwrap().accepted, 1);
        }
        // Asked once, and remembered.
        assert_eq!(encodings(&server), [Some("gzip".to_owned()), None, None]);
        assert_eq!(numbers_of(&server.requests()[1..]), [[1], [2]]);
        assert_eq!((otlp.counter().read().sent, otlp.counter().read().lost.total()), (2, 0));
    }
}

#[test]
fn metrics_are_sent_plain_to_a_server_without_compression() {
    let server = Server::new([Answer::status(415)]);
    let metrics = OtlpMetrics::builder().with_protocol(Protocol::HttpProtobuf);
    let metrics = metrics.with_endpoint(server.url("http")).with_compression(Compression::Gzip);
    let metrics = metrics.build().unwrap();
    let of = (&Resource::service("a"), &astracer_exporters::metrics::Scope::default());
    for _ in 0..2 {
        metrics.send(of, (UnixNanos(1), UnixNanos(2)), &[]).unwrap();
    }
    assert_eq!(encodings(&server), [Some("gzip".to_owned()), None, None]);
}

/// The server asks for a pause of an hour, and the process ends in 200 ms.
#[test]
fn the_end_of_the_process_cuts_a_pause_short() {
    let server = Server::new([Answer::status(503).with_header("retry-after", "3600")]);
    let otlp = otlp(&server).with_retry(Retry::default()).build().unwrap();
    thread::scope(|scope| {
        let sent = scope.spawn(|| send(&otlp, 1..=5));
        server.request(0);
        otlp.end_soon(Duration::from_millis(200));
        assert_eq!(sent.join().unwrap().map(|delivery| delivery.accepted), Ok(5));
    });
    assert_eq!(server.requests().len(), 2);
}

/// A server that refuses the media type also answers 415. Its requests stay compressed, and cost
/// two attempts each.
#[test]
fn a_refusal_of_the_plain_request_is_final() {
    let server = Server::new([]).then(Answer::status(415));
    let otlp = otlp(&server).with_compression(Compression::Gzip).build().unwrap();
    for number in 1..=2 {
        assert_eq!(send(&otlp, number..=number), Err(ErrorKind::UnsupportedMedia));
    }
    let gzip = Some("gzip".to_owned());
    assert_eq!(encodings(&server), [gzip.clone(), None, gzip, None]);
    assert_eq!(otlp.counter().read().lost.of(ErrorKind::UnsupportedMedia), 2);
}

#[test]
fn a_server_that_takes_nothing_is_not_asked_for_each_span() {
    let server = Server::new((0..64).map(|_| Answer::status(413)));
    let otlp = otlp(&server).build().unwrap();
    assert_eq!(send(&otlp, 1..=64), Err(ErrorKind::TooLarge));
    assert_eq!(otlp.counter().read().lost.of(ErrorKind::TooLarge), 64);
    assert_eq!(numbers(&server).iter().map(Vec::len).collect::<Vec<_>>(), [64, 32, 16, 8, 4, 2, 1]);
}

#[test]
fn one_span_that_is_too_large_costs_no_other() {
    let server = Server::new([]);
    let otlp = otlp(&server).with_max_request_bytes(2_000).build().unwrap();
    let mut giant = sample::plain(1, 2);
    giant.name = "x".repeat(3_000).into();
    let batch = [sample::plain(1, 1), giant, sample::plain(1, 3)];
    let error = otlp.send(&spans(&batch, &Arc::new(Resource::service("a")))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let counts = otlp.counter().read();
    assert_eq!((counts.sent, counts.lost.of(ErrorKind::TooLarge), counts.lost.total()), (2, 1, 1));
}

#[test]
fn what_the_server_rejects_is_counted() {
    // Field 1: a message of 6 bytes; in it field 1 = 3, and field 2 = "no".
    let proto = Answer::status(200)
        .with_header("content-type", "application/x-protobuf")
        .with_body(*b"\x0a\x06\x08\x03\x12\x02no");
    let json = r#"{"partialSuccess":{"rejectedSpans":"1","errorMessage":"odd"}}"#;
    let json =
        Answer::status(200).with_header("content-type", "application/json; charset=utf-8").with_body(json);
    let otlp = otlp(&Server::new([proto, json])).build().unwrap();
    let first = send(&otlp, 1..=5).unwrap();
    assert_eq!((first.accepted, first.rejected, &*first.message), (2, 3, "no"));
    let second = send(&otlp, 1..=5).unwrap();
    assert_eq!((second.accepted, second.rejected, &*second.message), (4, 1, "odd"));
    let counts = otlp.counter().read();
    assert_eq!((counts.sent, counts.rejected, counts.lost.total()), (6, 4, 0));
}

#[test]
fn what_may_pass_is_sent_again_the_same() {
    for status in [429, 502, 503, 504] {
        let server =
            Server::new([Answer::status(status).with_header("retry-after", "0"), Answer::status(status)]);
        let otlp = otlp(&server).build().unwrap();
        assert_eq!(send(&otlp, 1..=5).unwrap().accepted, 5, "{status}");
        let requests = server.requests();
        assert_eq!(requests.len(), 3);
        assert!(requests.iter().all(|request| request.body == requests[0].body));
        assert_eq!((otlp.counter().read().retries, otlp.counter().read().sent), (2, 5));
    }
}

#[test]
fn a_server_that_asks_for_more_time_than_there_is_gets_no_second_request() {
    let server = Server::new([Answer::status(503).with_header("retry-after", "3600").with_body("busy")]);
    let otlp = otlp(&server).build().unwrap();
    let batch = [sample::plain(1, 1)];
    let error = otlp.send(&spans(&batch, &Arc::new(Resource::service("a")))).unwrap_err();
    assert_eq!(
        (error.kind(), error.retry_after()),
        (ErrorKind::Unavailable, Some(Duration::from_secs(3600)))
    );
    assert!(error.may_retry());
    assert_eq!(server.requests().len(), 1);
}

/// The second batch waits without sending a request: the pause that the server asked for applies to
/// all batches.
#[test]
fn the_time_that_a_server_asks_for_is_remembered_between_batches() {
    let server = Server::new([Answer::status(429).with_header("retry-after", "3600")]);
    let otlp = otlp(&server).with_retry(at_once().with_max_age(Duration::ZERO)).build().unwrap();
    for number in 1..=3 {
        assert_eq!(send(&otlp, number..=number), Err(ErrorKind::Throttled));
    }
    assert_eq!(server.requests().len(), 1);
    let waiting = otlp.counter().read().waiting.unwrap();
    assert_eq!(
        (waiting.kind(), waiting.retry_after()),
        (ErrorKind::Throttled, Some(Duration::from_secs(3600)))
    );
    assert_eq!(otlp.counter().read().lost.of(ErrorKind::Throttled), 3);
}

#[test]
fn one_attempt_leaves_to_the_caller_what_a_retry_can_deliver() {
    let server = Server::new([413, 200, 503, 400].map(Answer::status));
    let retry = Retry::default().with_initial_delay(Duration::ZERO).with_max_delay(Duration::ZERO);
    let otlp = otlp(&server).with_retry(retry).build().unwrap();
    let batch: Vec<SpanData> = (1..=8).map(|number| sample::plain(1, number)).collect();
    let batch = spans(&batch, &Arc::new(Resource::service("a")));
    // The whole call is too large. The first half is accepted, the second is not.
    let attempt = otlp.try_send(&batch, Duration::MAX);
    assert_eq!((attempt.outcome.delivery.accepted, attempt.settled), (4, 4));
    assert_eq!(attempt.outcome.error.map(|error| error.kind()), Some(ErrorKind::Unavailable));
    let counts = otlp.counter().read();
    assert_eq!((counts.sent, counts.lost.total()), (4, 0));
    // A permanent rejection leaves nothing to the caller.
    let attempt = otlp.try_send(&batch[4..], Duration::MAX);
    assert_eq!(
        (attempt.settled, attempt.outcome.error.map(|error| error.kind())),
        (4, Some(ErrorKind::BadRequest))
    );
    assert_eq!(otlp.counter().read().lost.of(ErrorKind::BadRequest), 4);
}

#[test]
fn passwords_in_urls_are_not_shown() {
    let server = Server::new([Answer::status(403)]);
    let url = server.url("http").replace("://", "://me:secret@");
    let otlp = Otlp::builder()
        .with_protocol(Protocol::HttpProtobuf)
        .with_endpoint(url)
        .with_retry(Retry::NEVER)
        .build()
        .unwrap();
    let batch = [sample::plain(1, 1)];
    let error = otlp.send(&spans(&batch, &Arc::new(Resource::service("a")))).unwrap_err();
    let text = format!("{error} {error:?} {otlp:?}");
    assert!(text.contains("//***@localhost") && !text.contains("secret") && !text.contains("//me"), "{text}");
}

/// Servers close idle connections, and crash: the next attempt makes a new connection.
#[test]
fn a_connection_that_the_server_ends_is_made_anew() {
    let server = Server::new([Answer::status(200), Answer::status(200).hanging_up()]);
    let otlp = otlp(&server).build().unwrap();
    for number in 1..=4 {
        assert_eq!(send(&otlp, number..=number).unwrap().accepted, 1);
    }
    let connections: Vec<_> = server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 0, 1, 1]);
    assert_eq!(otlp.counter().read().sent, 4);
}

#[test]
fn nothing_is_sent_after_the_end() {
    let server = Server::new([]);
    let otlp = otlp(&server).build().unwrap();
    otlp.shut_down(Duration::from_secs(1)).unwrap();
    assert_eq!(send(&otlp, 1..=2), Err(ErrorKind::ShutDown));
    assert_eq!(otlp.counter().read().lost.of(ErrorKind::ShutDown), 2);
    assert_eq!(server.requests().len(), 0);
}

/// A server that responds with this status to a head that announces more than 10 MB, and closes
/// without reading the body, as servers in Go, Rust and Java do. Returns its URL.
fn refusing_by_the_head(status: &'static str) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0_u64);
            while stream.read_line(&mut line).unwrap() > 2 {
                let header = line.to_ascii_lowercase();
                if let Some(bytes) = header.strip_prefix("content-length: ") {
                    length = bytes.trim_end().parse().unwrap();
                }
                line.clear();
            }
            let status = if length > 10_000_000 { status } else { "200 OK" };
            if length <= 10_000_000 {
                stream.by_ref().take(length).read_to_end(&mut Vec::new()).unwrap();
            }
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = stream.get_mut().write_all(head.as_bytes());
        }
    });
    url
}

/// A response that came before the body was sent was taken for a broken connection, and the same
/// request was sent again for minutes.
#[test]
fn a_refusal_before_the_body_was_read_is_an_answer() {
    let large = |number| astracer_model::Span {
        trace_id: astracer_model::TraceId(1),
        span_id: astracer_model::SpanId(number),
        name: "n".repeat(8_000_000).into(),
        ..astracer_model::Span::default()
    };
    let all = [large(1), large(2), large(3)];
    let otlp = |status| {
        let builder = Otlp::builder().with_protocol(Protocol::HttpProtobuf);
        let builder = builder.with_endpoint(refusing_by_the_head(status)).with_retry(Retry::NEVER);
        builder.with_timeout(Duration::from_secs(60)).with_max_request_bytes(64 << 20).build().unwrap()
    };
    // Each half is sent alone.
    assert_eq!(otlp("413 Content Too Large").send(&all).map(|delivery| delivery.accepted), Ok(3));
    let error = otlp("401 Unauthorized").send(&all).unwrap_err();
    assert_eq!((error.kind(), error.may_retry()), (ErrorKind::Unauthenticated, true), "{error}");
    let error = otlp("503 Busy\r\nretry-after: 7").send(&all).unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::Unavailable, Some(Duration::from_secs(7))));
}
