//! The receiver over real sockets: accepted requests are in the files, and others are rejected as
//! the specifications require.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use astracer_exporters::spool::Settings;
use astracer_exporters::{
    Compression, Destination, ErrorKind, Files, Otlp, Protocol, Retry, Spooled, WhenFilesFull,
};
use astracer_formats::{otlp_json, otlp_proto};
use astracer_model::{Problem, Sink, Span, SpanId, TraceId};
use astracer_receiver::{Event, Limits, Receiver, Recording, Refusal, Token};
use astracer_recording::source::{self, Options};

use crate::sample;

#[derive(Default)]
struct CollectedSpans(Vec<Span<'static>>);

impl Sink for CollectedSpans {
    fn span(&mut self, span: Span<'_>, _record: astracer_model::sink::Record<'_>) {
        self.0.push(span.into_owned());
    }

    fn problem(&mut self, problem: Problem) {
        panic!("{problem}");
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        panic!("{file}: {reason}");
    }
}

fn recorded(folder: &Path) -> Vec<Span<'static>> {
    let mut kept = CollectedSpans::default();
    source::read(folder, &Options::default(), &mut kept).expect("there are files");
    kept.0
}

pub(crate) fn receiver(folder: &Path, limits: Limits, bytes_max: u64) -> Receiver {
    let files = Files::builder(folder).with_total_bytes_max(bytes_max).with_when_full(WhenFilesFull::Refuse);
    let files = files.open().expect("a writable folder");
    Receiver::start(&["127.0.0.1:0".parse().expect("an address")], limits, files).expect("a free port")
}

/// Posts over HTTP/1.1 and reads the whole response.
pub(crate) fn post(address: SocketAddr, path: &str, headers: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the receiver listens");
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    )
    .expect("sent");
    // A receiver that rejects a request by its head may close before the body is sent.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer)
}

pub(crate) const PROTOBUF: &str = "content-type: application/x-protobuf\r\n";
pub(crate) const JSON: &str = "Content-Type: application/json; charset=utf-8\r\n";

pub(crate) fn spans(count: u64) -> Vec<Span<'static>> {
    let span =
        |id| Span { trace_id: TraceId(7), span_id: SpanId(id), name: "work".into(), ..Span::default() };
    (1..=count).map(span).collect()
}

pub(crate) fn proto(spans: &[Span<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    otlp_proto::write_request(&mut body, spans);
    body
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("writing to memory succeeds");
    encoder.finish().expect("writing to memory succeeds")
}

#[test]
fn every_protocol_and_compression_is_taken_on_one_port() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
    let address = receiver.addresses()[0];
    let originals = [sample::full()];
    let mut sent = 0;
    for protocol in [Protocol::Grpc, Protocol::HttpProtobuf, Protocol::HttpJson] {
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let otlp = Otlp::builder()
                .with_endpoint(format!("http://{address}"))
                .with_protocol(protocol)
                .with_compression(compression);
            let otlp = otlp.build().expect("valid settings");
            let delivery =
                otlp.send(&originals).unwrap_or_else(|error| panic!("{protocol:?} {compression:?}: {error}"));
            assert_eq!((delivery.accepted, delivery.rejected), (1, 0));
            sent += 1;
        }
    }
    let received = receiver.stop().expect("the files can be completed");
    assert_eq!((received.requests, received.spans, received.rejected), (sent, sent, 0));
    let recorded = recorded(folder.path());
    assert_eq!(recorded.len() as u64, sent);
    // NaN does not equal itself, but prints the same.
    for span in recorded {
        assert_eq!(format!("{span:?}"), format!("{:?}", originals[0]));
    }
}

#[test]
fn what_can_not_be_taken_is_refused_by_the_book() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default().with_message_bytes(10_000), 1 << 30);
    let address = receiver.addresses()[0];
    let (path, good) = ("/v1/traces", proto(&spans(1)));
    let gzipped = "content-encoding: gzip\r\n";
    let bomb = gzip(&vec![b' '; 1_000_000]);
    let rows: &[(&str, String, &[u8], u16, &str)] = &[
        (path, JSON.into(), b"{\"resourceSpans\":[{\"", 400, "\"code\":3"),
        // An empty message is valid in protobuf, but not in JSON.
        (path, JSON.into(), b" ", 400, "not a JSON object"),
        (path, JSON.into(), b"[]", 400, "not a JSON object"),
        (path, PROTOBUF.into(), b"\xff\xff\xff", 400, ""),
        (path, format!("{PROTOBUF}{gzipped}"), b"no gzip", 400, "cannot be decompressed"),
        (path, PROTOBUF.into(), &[0; 10_001], 413, "larger than 10000 bytes"),
        (path, format!("{JSON}{gzipped}"), &bomb, 413, "larger than 10000 bytes"),
        (path, "content-type: text/plain\r\n".into(), b"hello", 415, "text/plain"),
        (path, String::new(), &good, 415, "application/x-protobuf"),
        (path, format!("{PROTOBUF}content-encoding: br\r\n"), &good, 415, "use gzip, deflate, zstd"),
        ("/v1/metrics", JSON.into(), b"{}", 404, "POST /v1/traces"),
        ("/", JSON.into(), b"{}", 404, "POST /v1/traces"),
        (path, PROTOBUF.into(), b"", 200, ""),
        (path, JSON.into(), b"{}", 200, "{}"),
        (path, PROTOBUF.into(), &good, 200, ""),
    ];
    for (path, headers, body, status, says) in rows {
        let (found, answer) = post(address, path, headers, body);
        assert_eq!(found, *status, "{path} {headers}: {answer}");
        assert!(answer.contains(says), "{says:?} is not in {answer}");
    }
    let mut stream = TcpStream::connect(address).expect("the receiver listens");
    write!(stream, "GET /v1/traces HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("allow: POST"), "{answer}");

    let received = receiver.stop().expect("the files can be completed");
    assert_eq!(received.spans, 1);
    let refused: Vec<_> =
        Refusal::ALL.iter().map(|&reason| (reason.slug(), received.refused(reason))).collect();
    let expected = [
        ("bad", 5),
        ("too_large", 2),
        ("unsupported", 3),
        ("wrong_path", 3),
        ("incomplete", 0),
        ("no_room", 0),
        ("host", 0),
        ("token", 0),
    ];
    assert_eq!(refused, expected);
}

#[test]
fn a_request_with_one_bad_span_is_a_partial_success() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
    let mut json = Vec::new();
    otlp_json::write_request(&mut json, &spans(2)).expect("writing to memory succeeds");
    let json = String::from_utf8(json).expect("text").replacen(
        "\"spanId\":\"0000000000000002\"",
        "\"spanId\":\"x\"",
        1,
    );
    let (status, answer) = post(receiver.addresses()[0], "/v1/traces", JSON, json.as_bytes());
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("\"rejectedSpans\":\"1\"") && answer.contains("errorMessage"), "{answer}");
    let received = receiver.stop().expect("the files can be completed");
    assert_eq!((received.spans, received.rejected), (1, 1));
}

#[test]
fn full_files_make_senders_wait() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1_000);
    let address = receiver.addresses()[0];
    assert_eq!(post(address, "/v1/traces", PROTOBUF, &proto(&spans(1))).0, 200);
    let (status, answer) = post(address, "/v1/traces", PROTOBUF, &proto(&spans(50)));
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains("retry-after: 30"), "{answer}");
    assert!(receiver.total_bytes() <= 1_000);
    let received = receiver.stop().expect("the files can be completed");
    assert_eq!((received.spans, received.refused(Refusal::Overloaded)), (1, 1));
    assert_eq!(recorded(folder.path()).len(), 1);
}

#[test]
fn long_requests_become_lines_that_readers_can_hold() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
    let body = gzip(&proto(&spans(10_000)));
    let headers = format!("{PROTOBUF}content-encoding: gzip\r\n");
    assert_eq!(post(receiver.addresses()[0], "/v1/traces", &headers, &body).0, 200);
    receiver.stop().expect("the files can be completed");
    let text = std::fs::read_to_string(folder.path().join("traces-00000001.jsonl")).expect("a file");
    assert_eq!(text.lines().count(), 3);
    assert_eq!(recorded(folder.path()).len(), 10_000);
}

#[test]
fn an_address_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Files::builder(folder.path()).open().expect("a writable folder");
    let error = Receiver::start(&[address], Limits::default(), files).expect_err("it is taken").to_string();
    assert!(error.starts_with(&format!("can't listen on {address}: ")), "{error}");
}

/// Reads until the other side closes; false if it does not within a minute.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    loop {
        match stream.read(&mut [0; 1 << 10]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// The beginning of HTTP/2 (RFC 9113, section 3.4), and an empty SETTINGS frame.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Issue: 256 connections that were merely open blocked all other senders.
#[test]
fn idle_connections_make_room_for_new_ones() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default().with_connections(8), 1 << 30);
    let address = receiver.addresses()[0];
    let mut idle: Vec<TcpStream> = (0..20)
        .map(|number| {
            let mut stream = TcpStream::connect(address).expect("the receiver listens");
            stream.write_all(if number % 2 == 0 { HTTP2 } else { b"" }).expect("sent");
            stream
        })
        .collect();
    assert_eq!(post(address, "/v1/traces", PROTOBUF, &proto(&spans(1))).0, 200);
    // The oldest was ended.
    assert!(is_closed(&mut idle[0]));
}

/// Silent connections, and connections that only send the beginning of HTTP/2, are ended.
#[test]
fn connections_without_a_request_end() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let limits = Limits::default().with_arrival_timeout(Duration::from_millis(50));
    let receiver = receiver(folder.path(), limits, 1 << 30);
    for beginning in [&b""[..], HTTP2, b"POST /v1/traces HT"] {
        let mut stream = TcpStream::connect(receiver.addresses()[0]).expect("the receiver listens");
        stream.write_all(beginning).expect("sent");
        assert!(is_closed(&mut stream), "{}", String::from_utf8_lossy(beginning));
    }
}

/// Issue: 16 slow bodies stalled all others.
#[test]
fn slow_bodies_keep_nobody_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
    let address = receiver.addresses()[0];
    let slow: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("the receiver listens");
            let head = "POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n";
            write!(stream, "{head}{PROTOBUF}\r\nx").expect("sent");
            stream
        })
        .collect();
    assert_eq!(post(address, "/v1/traces", PROTOBUF, &proto(&spans(1))).0, 200);
    drop(slow);
}

/// Issue: a client whose requests never ended held all connections, and all other clients were
/// turned away.
#[cfg(target_os = "linux")]
#[test]
fn connections_of_one_address_leave_room_for_another() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default().with_connections(8), 1 << 30);
    let address = receiver.addresses()[0];
    let mut slow: Vec<TcpStream> = (0..8).map(|_| from(2, address)).collect();
    for stream in &mut slow {
        // A sender that got "100 Continue" has a request in progress.
        let head =
            "POST /v1/traces HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 9\r\n";
        write!(stream, "{head}{PROTOBUF}\r\n").expect("sent");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 100");
    }
    let body = proto(&spans(1));
    let mut other = from(3, address);
    write!(
        other,
        "POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n{PROTOBUF}\r\n",
        body.len()
    )
    .and_then(|()| other.write_all(&body))
    .expect("sent");
    let mut answer = [0; 12];
    other.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200");
}

/// Issue: each incomplete request delayed the shutdown by five seconds, and was not counted.
#[test]
fn half_a_request_is_counted_at_the_end() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
    let mut half = TcpStream::connect(receiver.addresses()[0]).expect("the receiver listens");
    let head = "POST /v1/traces HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 9\r\n";
    write!(half, "{head}{PROTOBUF}\r\n").expect("sent");
    let mut answer = [0; 25];
    half.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
    let received = receiver.stop().expect("the files can be completed");
    assert_eq!(received.refused(Refusal::Incomplete), 1);
    let mut answer = [0; 12];
    half.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 503");
}

/// A connection from one of the addresses of the loopback network.
#[cfg(target_os = "linux")]
pub(crate) fn from(last: u8, to: SocketAddr) -> TcpStream {
    use std::net::Ipv4Addr;

    use socket2::{Domain, Socket, Type};

    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let source = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
    socket.bind(&source.into()).expect("the loopback network is ours");
    socket.connect(&to.into()).expect("the receiver listens");
    socket.into()
}

/// A client is an address, and the loopback network has many.
#[cfg(target_os = "linux")]
#[test]
fn what_one_address_sends_leaves_room_for_another() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let limits =
        Limits::default().with_message_bytes(1 << 20).with_body_bytes(8 << 20).with_client_share(0.25);
    let receiver = receiver(folder.path(), limits, 1 << 30);
    let address = receiver.addresses()[0];
    let from = |last| from(last, address);
    let all_but_the_end = |stream: &mut TcpStream, length: usize| {
        write!(
            stream,
            "POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{PROTOBUF}\r\n"
        )
        .expect("sent");
        let _ = stream.write_all(&vec![0; length - 1]);
    };
    let status = |stream: &mut TcpStream| {
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer[9..]).into_owned()
    };

    // Each address may use a quarter of 8 MiB. Two bodies of 900 kB that never end use up the share
    // of 127.0.0.2.
    let mut greedy: Vec<TcpStream> = (0..4).map(|_| from(2)).collect();
    for stream in &mut greedy {
        all_but_the_end(stream, 900_000);
    }
    let refused = || receiver.received().refused(Refusal::Overloaded);
    let begun = std::time::Instant::now();
    while refused() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} refused", refused());
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut other = from(3);
    let body = proto(&spans(1));
    let length = body.len();
    write!(
        other,
        "POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{PROTOBUF}\r\n"
    )
    .and_then(|()| other.write_all(&body))
    .expect("sent");
    assert_eq!(status(&mut other), "200");
    assert_eq!(refused(), 2, "the first two wait for their ends");
}

#[test]
fn deflate_is_taken() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&proto(&spans(3))).expect("writing to memory succeeds");
    let body = encoder.finish().expect("writing to memory succeeds");
    let headers = format!("{PROTOBUF}content-encoding: deflate\r\n");
    assert_eq!(post(receiver.addresses()[0], "/v1/traces", &headers, &body).0, 200);
    assert_eq!(receiver.received().spans, 3);
}

/// Issue: after a folder was removed during recording, spans were acknowledged with 200 and lost.
#[test]
fn a_folder_that_is_removed_is_noticed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
    let address = receiver.addresses()[0];
    assert_eq!(post(address, "/v1/traces", PROTOBUF, &proto(&spans(2))).0, 200);
    assert_eq!(receiver.events(), []);
    std::fs::remove_dir_all(folder.path()).expect("it was there");
    assert_eq!(post(address, "/v1/traces", PROTOBUF, &proto(&spans(1))).0, 503);
    assert_eq!(post(address, "/v1/traces", PROTOBUF, &proto(&spans(1))).0, 503);
    assert_eq!(receiver.spans_removed(), 2);
    std::fs::create_dir(folder.path()).expect("it was removed");
    assert_eq!(post(address, "/v1/traces", PROTOBUF, &proto(&spans(1))).0, 200);
    let events = receiver.events();
    assert!(
        matches!(&events[..], [Event::Refusing(why), Event::Taking(2)] if why.contains("traces-")),
        "{events:?}"
    );
}

#[cfg(unix)]
#[test]
fn a_folder_has_one_receiver() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = receiver(folder.path(), Limits::default(), 1 << 30);
    let start = || {
        let files = Files::builder(folder.path()).open().expect("a writable folder");
        Receiver::start(&["127.0.0.1:0".parse().expect("an address")], Limits::default(), files)
    };
    let error = start().expect_err("it is locked").to_string();
    assert!(error.contains("another receiver writes to this folder"), "{error}");
    first.stop().expect("the files can be completed");
    start().expect("it is free again");
}

/// Sends an HTTP/1.1 request written by hand; returns the head of the response.
fn ask(address: SocketAddr, method: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the receiver listens");
    write!(stream, "{method} /v1/traces HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.to_ascii_lowercase()
}

/// Issue: browsers' preflights got 405.
/// A web page whose name resolves to 127.0.0.1 once could send anything to a receiver on loopback.
#[test]
fn a_request_for_another_host_is_refused_on_loopback() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = receiver(folder.path(), Limits::default(), u64::MAX);
    let address = receiver.addresses()[0];
    let ask = |host: &str| {
        let body = proto(&spans(1));
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!("POST /v1/traces HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
        let head =
            format!("{head}content-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    assert!(ask("localhost:9").starts_with("HTTP/1.1 200"));
    let answer = ask("evil.example");
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("--host evil.example"), "{answer}");
    assert_eq!((receiver.received().spans, receiver.received().refused(Refusal::Host)), (1, 1));
}

/// Such spans were acknowledged, and written with an empty id.
#[test]
fn spans_without_ids_are_rejected_with_a_count() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = receiver(folder.path(), Limits::default(), u64::MAX);
    let address = receiver.addresses()[0];
    let mut three = spans(3);
    three[0].trace_id = astracer_model::TraceId(0);
    three[2].span_id = astracer_model::SpanId(0);
    let (status, body) =
        post(address, "/v1/traces", "content-type: application/x-protobuf\r\n", &proto(&three));
    assert!(status == 200 && body.contains("missing or zero"), "{status} {body}");
    assert_eq!((receiver.received().spans, receiver.received().rejected), (1, 2));
    assert_eq!(recorded(folder.path()).len(), 1);
    let (status, body) =
        post(address, "/v1/traces", "content-type: application/x-protobuf\r\n", &proto(&three[..1]));
    assert!(status == 400 && body.contains("missing or zero"), "{status} {body}");
}

#[test]
fn web_pages_of_allowed_origins_may_send() {
    let preflight = "access-control-request-method: POST\r\naccess-control-request-headers: content-type\r\n";
    let page = |origin: &str| format!("origin: {origin}\r\n");
    for (origins, origin, is_allowed) in [
        (&["https://shop.example"][..], "https://shop.example", true),
        (&["https://shop.example"], "https://shop.example.evil", false),
        (&["*"], "http://localhost:3000", true),
        (&[], "https://shop.example", false),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = Files::builder(folder.path()).open().expect("a writable folder");
        let origins: Vec<String> = origins.iter().map(|&origin| origin.to_owned()).collect();
        let recording = Recording::from(files).with_origins(origins);
        let any = "127.0.0.1:0".parse().expect("an address");
        let receiver = Receiver::start(&[any], Limits::default(), recording).expect("a free port");
        let address = receiver.addresses()[0];
        let answer = ask(address, "OPTIONS", &format!("{}{preflight}", page(origin)));
        let allows = format!("access-control-allow-origin: {origin}\r\n");
        assert_eq!(answer.starts_with("http/1.1 204") && answer.contains(&allows), is_allowed, "{answer}");
        assert_eq!(answer.contains("access-control-allow-headers: content-type"), is_allowed, "{answer}");
        let body = proto(&spans(1));
        let headers = format!("{PROTOBUF}{}", page(origin));
        let (status, answer) = post(address, "/v1/traces", &headers, &body);
        assert_eq!((status, answer.contains(&allows)), (200, is_allowed), "{answer}");
    }
}

/// Rejections over gRPC, seen by an ordinary client.
#[test]
fn refusals_over_grpc_have_their_codes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default().with_message_bytes(10_000), 1_000);
    let url = format!("http://{}", receiver.addresses()[0]);
    let otlp = |compression| {
        Otlp::builder()
            .with_endpoint(&*url)
            .with_protocol(Protocol::Grpc)
            .with_compression(compression)
            .with_retry(Retry::NEVER)
            .build()
            .expect("valid settings")
    };
    // 100,000 bytes of one letter are a few hundred with gzip.
    let large = Span { name: "x".repeat(100_000).into(), ..spans(1).remove(0) };
    for compression in [Compression::None, Compression::Gzip] {
        let error = otlp(compression).send(std::slice::from_ref(&large)).expect_err("it is too large");
        assert_eq!((error.kind(), error.may_retry()), (ErrorKind::TooLarge, false), "{error}");
    }
    let attempt = otlp(Compression::None).try_send(&spans(20), Duration::MAX);
    let error = attempt.outcome.error.expect("the files are full");
    assert_eq!(
        (error.kind(), error.retry_after()),
        (ErrorKind::Unavailable, Some(Duration::from_secs(30))),
        "{error}"
    );
    let received = receiver.stop().expect("the files can be completed");
    assert_eq!((received.refused(Refusal::TooLarge), received.refused(Refusal::Overloaded)), (2, 1));
}

/// Requests without the token are refused before their bodies are read, by 401 and by gRPC's 16.
#[test]
fn only_senders_with_the_token_are_heard() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Files::builder(folder.path()).open().expect("a writable folder");
    let token = Token::new("s3cret-token").expect("a token");
    let any = "127.0.0.1:0".parse().expect("an address");
    let recording =
        Recording::from(files).with_token(token).with_origins(["https://shop.example".to_owned()]);
    let receiver = Receiver::start(&[any], Limits::default(), recording).expect("a free port");
    let address = receiver.addresses()[0];
    for (authorization, expected) in
        [("", 401), ("authorization: Bearer wrong\r\n", 401), ("authorization: Bearer s3cret-token\r\n", 200)]
    {
        let headers = format!("{PROTOBUF}{authorization}");
        let (status, answer) = post(address, "/v1/traces", &headers, &proto(&spans(1)));
        assert_eq!((status, answer.contains("www-authenticate: Bearer")), (expected, expected == 401));
        assert!(!answer.contains("s3cret"), "{answer}");
    }
    // A browser sends no token before it has asked.
    let asked = "origin: https://shop.example\r\naccess-control-request-headers: authorization\r\n";
    assert!(ask(address, "OPTIONS", asked).starts_with("http/1.1 204"));
    for (protocol, token, expected) in [
        (Protocol::Grpc, "Bearer wrong", Err(ErrorKind::Unauthenticated)),
        (Protocol::Grpc, "Bearer s3cret-token", Ok(1)),
        (Protocol::HttpJson, "Bearer wrong", Err(ErrorKind::Unauthenticated)),
        (Protocol::HttpJson, "Bearer s3cret-token", Ok(1)),
    ] {
        let otlp = Otlp::builder().with_endpoint(format!("http://{address}")).with_protocol(protocol);
        let otlp = otlp.with_header("authorization", token).with_retry(Retry::NEVER);
        let sent = otlp.build().expect("valid settings").send(&spans(1));
        let sent = sent.map(|delivery| delivery.accepted).map_err(|error| error.kind());
        assert_eq!(sent, expected, "{protocol:?}");
    }
    let received = receiver.stop().expect("the files can be completed");
    assert_eq!((received.spans, received.refused(Refusal::Token)), (3, 4));
}

/// Makes a receiver that forwards to `backend` through a spool of at most `spool_bytes`.
fn forwarding(folder: &Path, files_bytes: u64, spool_bytes: u64, backend: SocketAddr) -> Receiver {
    let files = Files::builder(folder.join("files")).with_total_bytes_max(files_bytes);
    let files = files.with_when_full(WhenFilesFull::Refuse).open().expect("a writable folder");
    let otlp =
        Otlp::builder().with_endpoint(format!("http://{backend}")).with_protocol(Protocol::HttpProtobuf);
    let spool = Spooled::builder(folder.join("spool"))
        .with_settings(Settings::default().with_max_bytes(spool_bytes))
        .open(otlp.build().expect("valid settings"))
        .expect("a writable folder");
    let any = "127.0.0.1:0".parse().expect("an address");
    Receiver::start(&[any], Limits::default(), Recording::from(files).with_forward(spool))
        .expect("a free port")
}

/// While the files are full, senders retry. Requests that were forwarded before the files were
/// tried were forwarded again with each retry.
#[test]
fn requests_that_are_refused_for_full_files_are_not_passed_on_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backend = receiver(&folder.path().join("backend"), Limits::default(), 1 << 30);
    let forwarding = forwarding(folder.path(), 1_000, 1 << 20, backend.addresses()[0]);
    let send = |count| post(forwarding.addresses()[0], "/v1/traces", PROTOBUF, &proto(&spans(count))).0;
    assert_eq!(send(1), 200);
    assert_eq!([send(40), send(40), send(40)], [503, 503, 503]);
    // The files still accept what fits, and it is forwarded.
    assert_eq!([send(1), send(40)], [200, 503]);
    assert_eq!(forwarding.drain(Duration::from_secs(60)), 0);
    // One repetition cannot be avoided, because the files are not known to be full before they are
    // tried.
    assert_eq!(backend.received().spans, 1 + 40 + 1);
    assert_eq!(forwarding.forwarded().expect("it forwards").0.sent, 1 + 40 + 1);
}

/// The reverse: while the spool is full, the files must not store each retry.
#[test]
fn requests_that_are_refused_for_a_full_spool_are_not_recorded_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
    let forwarding = forwarding(folder.path(), 1 << 20, 1_000, nobody.expect("a free port"));
    let send = |count| post(forwarding.addresses()[0], "/v1/traces", PROTOBUF, &proto(&spans(count))).0;
    assert_eq!([send(40), send(40), send(1), send(40)], [503, 503, 200, 503]);
    let (counts, waiting) = forwarding.forwarded().expect("it forwards");
    // The senders still have the rejected requests.
    assert_eq!((counts.lost.total(), waiting), (0, 1), "{counts}");
    forwarding.stop().expect("the files can be completed");
    assert_eq!(recorded(&folder.path().join("files")).len(), 1);
}

/// A request that is in progress at the shutdown is counted and forwarded.
#[test]
fn the_end_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backend = receiver(&folder.path().join("backend"), Limits::default(), 1 << 30);
    let mut forwarding = forwarding(folder.path(), 1 << 20, 1 << 20, backend.addresses()[0]);
    let mut stream = TcpStream::connect(forwarding.addresses()[0]).expect("the receiver listens");
    let body = proto(&spans(3));
    let head = format!("POST /v1/traces HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n{PROTOBUF}");
    write!(stream, "{head}content-length: {}\r\n\r\n", body.len()).expect("sent");
    let mut answer = [0; 25];
    stream.read_exact(&mut answer).expect("an answer");
    let sender = std::thread::spawn(move || {
        stream.write_all(&body).expect("sent");
        stream.read_exact(&mut [0; 12]).expect("an answer");
    });
    forwarding.end().expect("the files can be completed");
    sender.join().expect("it was answered");
    assert_eq!((forwarding.received().spans, forwarding.drain(Duration::from_secs(60))), (3, 0));
    assert_eq!(forwarding.forwarded().expect("it forwards").0.sent, 3);
    let files = std::fs::read_dir(folder.path().join("files")).expect("a folder");
    let bytes = files.map(|file| file.and_then(|file| file.metadata()).expect("a file").len());
    assert_eq!(forwarding.total_bytes(), bytes.sum::<u64>());
    forwarding.stop().expect("the spool is synced");
}

/// The file is not JSON, although two of its three spans are.
#[test]
fn a_broken_body_is_refused_as_a_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/tests/data/foreign/receive-broken-body.json");
    let body = std::fs::read(path).expect("a file");
    let (status, answer) = post(receiver.addresses()[0], "/v1/traces", JSON, &body);
    assert_eq!(status, 400, "{answer}");
    assert!(answer.contains("not JSON"), "{answer}");
    let received = receiver.stop().expect("the files can be completed");
    assert_eq!((received.requests, received.spans, received.refused(Refusal::Bad)), (0, 0, 1));
}

/// Any body, cut anywhere: no more is acknowledged than was stored.
#[test]
fn no_cut_body_is_acknowledged_beyond_what_is_stored() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
    let address = receiver.addresses()[0];
    let mut json = Vec::new();
    otlp_json::write_request(&mut json, &spans(3)).expect("writing to memory succeeds");
    let json = String::from_utf8(json).expect("text");
    // A bad id, a list that is none, and a scope without sense.
    let bad_id = json.replacen("\"spanId\":\"0000000000000002\"", "\"spanId\":\"x\"", 1);
    let bad_list = json.replacen("\"spans\":[", "\"spans\":7,\"spans\":[", 1);
    let bad_scope = json.replacen("\"scopeSpans\":[{", "\"scopeSpans\":[8,{\"scope\":[],", 1);
    let mut whole = vec![sample::full()];
    whole.extend(spans(2));
    let step = astracer_testing::size(2, 1) as usize;
    for (headers, body) in [
        (JSON, json.into_bytes()),
        (JSON, bad_id.into_bytes()),
        (JSON, bad_list.into_bytes()),
        (JSON, bad_scope.into_bytes()),
        (PROTOBUF, proto(&whole)),
        (PROTOBUF, [proto(&spans(1)), proto(&spans(2))].concat()),
    ] {
        for len in (0..=body.len()).rev().step_by(step) {
            let before = receiver.received().spans;
            let (status, answer) = post(address, "/v1/traces", headers, &body[..len]);
            let stored = receiver.received().spans - before;
            // A cut body is a whole one only between two messages of protobuf.
            let sent = if headers == PROTOBUF {
                otlp_proto::count_spans(&body[..len]).unwrap_or(0)
            } else if len < body.trim_ascii_end().len() {
                0
            } else {
                3
            };
            if status != 200 {
                assert_eq!((status, stored), (400, 0), "{len}: {answer}");
                continue;
            }
            let rejected = match answer.split_once("rejectedSpans\":\"") {
                Some((_, rest)) => {
                    rest.split('"').next().and_then(|count| count.parse().ok()).expect("a count")
                }
                None => 0,
            };
            assert!(stored + rejected >= sent, "{len}: {stored} of {sent} stored, {rejected} rejected");
        }
    }
}
