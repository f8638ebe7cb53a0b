//! `/metrics` and `/health`: the figures are those of the receiver itself, in the format that
//! Prometheus specifies.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use astracer_exporters::spool::Settings;
use astracer_exporters::{Files, Otlp, Protocol, Spooled, WhenFilesFull};
use astracer_receiver::{Limits, Receiver, Recording, Refusal};

use astracer_testing::wait_until;

use super::receive::{PROTOBUF, post, proto, spans};

/// Makes a receiver with figures that forwards to a server at `backend`.
fn receiver(folder: &Path, files_bytes: u64, backend: SocketAddr) -> Receiver {
    let files = Files::builder(folder.join("files")).with_total_bytes_max(files_bytes);
    let files = files.with_when_full(WhenFilesFull::Refuse).open().expect("a writable folder");
    let otlp =
        Otlp::builder().with_endpoint(format!("http://{backend}")).with_protocol(Protocol::HttpProtobuf);
    let spool = Spooled::builder(folder.join("spool")).with_settings(Settings::default());
    let spool = spool.open(otlp.build().expect("valid settings")).expect("a writable folder");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let recording = Recording::from(files).with_forward(spool).with_metrics(any);
    Receiver::start(&[any], Limits::default(), recording).expect("a free port")
}

/// Returns the status, the head and the body of a response.
fn get(address: SocketAddr, path: &str, host: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the connection ends");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head[9..12].parse().expect("a status"), head.to_lowercase(), body.to_owned())
}

/// Parses the text format 0.0.4 strictly: each metric has one HELP and one TYPE line before its
/// samples, which are together and not repeated; the name of a counter ends with `_total`.
fn parsed(text: &str) -> BTreeMap<String, u64> {
    let is_name = |name: &str| {
        name.starts_with("astracer_") && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let (mut samples, mut known) = (BTreeMap::new(), BTreeSet::new());
    let mut lines = text.strip_suffix('\n').expect("a last line feed").split('\n').peekable();
    while let Some(help) = lines.next() {
        let (name, words) = help.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).expect(help);
        assert!(is_name(name) && !words.is_empty() && known.insert(name), "{help}");
        let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect(help);
        assert!(matches!(kind, "counter" | "gauge"), "{kind}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (sample, value) = line.split_once(' ').expect(line);
            let label = sample.strip_prefix(name).expect(line);
            if !label.is_empty() {
                let reason = label.strip_prefix("{reason=\"").and_then(|label| label.strip_suffix("\"}"));
                assert!(reason.is_some_and(|reason| is_name(&format!("astracer_{reason}"))), "{line}");
            }
            assert_eq!(samples.insert(sample.to_owned(), value.parse().expect(line)), None, "{line}");
        }
    }
    samples
}

#[test]
fn the_figures_are_those_of_the_end() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port");
    let mut receiver = receiver(folder.path(), 1 << 20, nobody);
    let (address, figures) = (receiver.addresses()[0], receiver.metrics_address().expect("it has figures"));
    let _open = TcpStream::connect(address).expect("the receiver listens");
    assert_eq!(post(address, "/v1/traces", PROTOBUF, &proto(&spans(40))).0, 200);
    assert_eq!(post(address, "/v1/traces", PROTOBUF, b"\xff\xff").0, 400);
    assert_eq!(post(address, "/nowhere", PROTOBUF, b"").0, 404);
    wait_until("the spool has tried", || {
        receiver.forwarded().is_some_and(|(counts, _)| counts.waiting.is_some())
    });
    let (status, head, text) = get(figures, "/metrics", "localhost");
    assert_eq!(status, 200);
    assert!(head.contains("\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r"), "{head}");
    let found = parsed(&text);
    receiver.end().expect("the files can be completed");
    let (received, (forwarded, waiting)) = (receiver.received(), receiver.forwarded().expect("it forwards"));
    assert_eq!((received.spans, waiting), (40, 40));
    let expected = [
        ("receive_requests_total".to_owned(), received.requests),
        ("receive_spans_total".to_owned(), received.spans),
        ("receive_rejected_spans_total".to_owned(), received.rejected),
        ("receive_logs_total".to_owned(), received.logs),
        ("receive_files_bytes".to_owned(), receiver.total_bytes()),
        ("receive_lost_spans_total".to_owned(), receiver.spans_removed()),
        // The posts closed theirs.
        ("receive_connections".to_owned(), 1),
        ("forward_sent_spans_total".to_owned(), forwarded.sent),
        ("forward_waiting_spans".to_owned(), waiting),
        ("forward_dead_spans".to_owned(), 0),
        ("forward_down".to_owned(), 1),
    ];
    let refused = Refusal::ALL.iter().map(|&reason| {
        (format!("receive_refused_requests_total{{reason=\"{}\"}}", reason.slug()), received.refused(reason))
    });
    for (name, value) in expected.into_iter().chain(refused) {
        assert_eq!(found.get(&format!("astracer_{name}")), Some(&value), "{name}\n{text}");
    }
    let of = |name: &str| found[&format!("astracer_forward_{name}")];
    let lost: u64 =
        found.iter().filter(|(name, _)| name.contains("forward_lost_spans")).map(|(_, spans)| spans).sum();
    let ends = of("sent_spans_total")
        + lost
        + of("queued_again_spans_total")
        + of("dead_spans")
        + of("waiting_spans");
    assert_eq!((of("acknowledged_spans_total"), ends), (40, 40), "{text}");
    assert!(found["astracer_forward_oldest_seconds"] < 60, "{text}");
    assert_eq!((received.refused(Refusal::Bad), received.refused(Refusal::WrongPath)), (1, 1));
    receiver.stop().expect("the spool can be synced");
}

#[test]
fn health_says_why_requests_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port");
    let receiver = receiver(folder.path(), 1_000, nobody);
    let (address, figures) = (receiver.addresses()[0], receiver.metrics_address().expect("it has figures"));
    let health = || {
        let (status, _, body) = get(figures, "/health", "localhost");
        (status, body)
    };
    assert_eq!(health(), (200, "accepting\n".to_owned()));
    let send = |count| post(address, "/v1/traces", PROTOBUF, &proto(&spans(count))).0;
    assert_eq!([send(1), send(40)], [200, 503]);
    let (status, body) = health();
    assert_eq!(status, 503);
    assert!(body.starts_with("refusing requests: ") && body.contains("limit on the total size"), "{body}");
    // A sender's own mistake says nothing about the receiver, and a small request still fits.
    assert_eq!(post(address, "/v1/traces", PROTOBUF, b"\xff\xff").0, 400);
    assert_eq!(health().0, 503);
    assert_eq!(send(1), 200);
    assert_eq!(health().0, 200);
    assert_eq!(get(figures, "/", "localhost").0, 404);
    // A web page whose name resolves to loopback.
    assert_eq!(get(figures, "/metrics", "evil.example").0, 403);
    // Connections without a request keep nobody out.
    let _idle: Vec<_> = (0..8).map(|_| TcpStream::connect(figures).expect("it listens")).collect();
    assert_eq!(health().0, 200);
    drop(receiver);
    assert!(TcpStream::connect_timeout(&figures, Duration::from_secs(1)).is_err());
}
