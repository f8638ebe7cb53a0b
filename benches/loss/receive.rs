//! The receiver's throughput and memory, measured from another process.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use astracer_exporters::Files;
use astracer_formats::otlp_proto;
use astracer_model::span::Resource;
use astracer_model::value::Attribute;
use astracer_model::{Span, SpanId, TraceId, UnixNanos, Value};
use astracer_receiver::{Limits, Receiver};

use crate::process::{Child, processor_time, resident};

const CONNECTIONS: usize = 4;
pub(crate) const BATCH: u64 = 512;
const TIME: Duration = Duration::from_secs(8);
const IDLE: usize = 1_000;

/// Runs the receiver until its input ends.
///
/// Full files are deleted continuously so that the page cache reuses their memory: on a virtual
/// machine, the first use of a page costs more processor time than the spans in it.
pub(crate) fn serve() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = Files::builder(folder.path()).with_total_bytes_max(1 << 40).open().expect("a folder");
    let path = folder.path().to_owned();
    std::thread::spawn(move || remove_full_files(&path));
    let limits = Limits::default().with_connections(2 * IDLE);
    let receiver = Receiver::start(&["127.0.0.1:0".parse().expect("an address")], limits, files);
    let receiver = receiver.expect("a free port");
    println!("{}", receiver.addresses()[0]);
    for _ in std::io::stdin().lines() {
        println!("{}", receiver.received().spans);
    }
}

fn remove_full_files(folder: &Path) {
    loop {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "jsonl"))
            .collect();
        // Names are numbers with leading zeros, so the last file is the one still being written.
        files.sort();
        files.pop();
        for file in files {
            let _ = std::fs::remove_file(file);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A request's protobuf, with spans like a service's: five attributes, and three names.
pub(crate) fn protobuf(first: u64) -> Vec<u8> {
    let text =
        |key: &'static str, value: String| Attribute { key: key.into(), value: Value::String(value.into()) };
    let resource = std::sync::Arc::new(Resource::service("shop"));
    let spans: Vec<Span<'_>> = (first..first + BATCH)
        .map(|number| Span {
            trace_id: TraceId(u128::from(number / 10) * 0x9e37_79b9_7f4a_7c15 + 1),
            span_id: SpanId(number.wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1),
            parents: (number % 10 > 0).then_some(SpanId(number)).into_iter().collect(),
            name: ["GET /orders/{id}", "SELECT orders", "check token"][number as usize % 3].into(),
            start: Some(UnixNanos(1_700_000_000_000_000_000 + number * 1_000)),
            end: Some(UnixNanos(1_700_000_000_000_123_000 + number * 1_000)),
            attributes: vec![
                text("http.request.method", "GET".to_owned()),
                text("url.path", format!("/orders/{number}")),
                text("server.address", "orders.example.org".to_owned()),
                Attribute { key: "http.response.status_code".into(), value: Value::Int(200) },
                Attribute { key: "thread.id".into(), value: Value::Int((number % 16) as i64) },
            ],
            resource: std::sync::Arc::clone(&resource),
            ..Span::default()
        })
        .collect();
    let mut body = Vec::new();
    otlp_proto::write_request(&mut body, &spans);
    body
}

/// A whole HTTP request with a gzip body.
fn request(first: u64) -> Vec<u8> {
    let body = protobuf(first);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&body).expect("writes to memory succeed");
    let body = encoder.finish().expect("writes to memory succeed");
    let mut request = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n\
         content-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(&body);
    request
}

fn send(address: SocketAddr, requests: &[Vec<u8>]) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    let begin = Instant::now();
    let mut answer = [0; 4 << 10];
    for request in requests.iter().cycle() {
        if begin.elapsed() > TIME {
            return;
        }
        stream.write_all(request).expect("sent");
        let read = stream.read(&mut answer).expect("an answer");
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..read]));
    }
}

pub(crate) fn run() {
    println!("receive: requests of {BATCH} spans with gzip over {CONNECTIONS} connections for {TIME:?}");
    let requests: Vec<_> = (0..16).map(|number| request(number * BATCH)).collect();
    let mut receiver = Child::start(&["--receiver"]);
    let address: SocketAddr = receiver.line().parse().expect("an address");
    let before = resident(&receiver.id().to_string());
    let idle: Vec<_> = (0..IDLE).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    std::thread::sleep(Duration::from_secs(1));
    let grown = resident(&receiver.id().to_string()).saturating_sub(before);
    println!("{IDLE} silent connections: {:.1} MB", grown as f64 / 1e6);
    drop(idle);
    let before = resident(&receiver.id().to_string());
    // HTTP/2's connection preface (RFC 9113, section 3.4), with an empty SETTINGS frame.
    let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let idle: Vec<_> = (0..IDLE)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(hello).expect("sent");
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    let grown = resident(&receiver.id().to_string()).saturating_sub(before);
    println!("{IDLE} idle connections of HTTP/2: {:.1} MB", grown as f64 / 1e6);
    drop(idle);
    for _ in 0..3 {
        receiver.say("count");
        let before: u64 = receiver.line().parse().expect("a count");
        let used = processor_time(receiver.id());
        let begin = Instant::now();
        std::thread::scope(|scope| {
            (0..CONNECTIONS).for_each(|_| drop(scope.spawn(|| send(address, &requests))));
        });
        let took = begin.elapsed().as_secs_f64();
        receiver.say("count");
        let spans = receiver.line().parse::<u64>().expect("a count") - before;
        let used = (processor_time(receiver.id()) - used).as_secs_f64();
        println!(
            "{spans} spans in {took:.1} s: {:.0} a second, {:.0} for a second of processor time",
            spans as f64 / took,
            spans as f64 / used
        );
    }
}
