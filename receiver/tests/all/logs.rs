//! Logs over real sockets: accepted records are in files of their own, and others are rejected as
//! the specification requires.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use astracer_exporters::{Files, WhenFilesFull};
use astracer_model::sink::{Record, Wants};
use astracer_model::{LogRecord, Problem, Severity, Sink, Span, SpanId, TraceId, UnixNanos, Value};
use astracer_receiver::{Limits, Received, Receiver, Recording, Refusal};
use astracer_recording::source::{self, Options};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1 as otlp;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tonic::Code;
use tonic::codec::CompressionEncoding;

use crate::receive::{JSON, PROTOBUF, gzip, post, proto, spans};

/// The log record of the specification's example (opentelemetry-proto, examples/logs.json), with
/// the remaining fields.
const EXAMPLE: &str = r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"my.service"}}]},
"scopeLogs":[{"scope":{"name":"my.library","version":"1.0.0","attributes":[]},"logRecords":[{
"timeUnixNano":"1544712660300000000","observedTimeUnixNano":"1544712660300000001","severityNumber":10,
"severityText":"Information","traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174",
"body":{"stringValue":"Example log record"},"flags":1,"droppedAttributesCount":2,"eventName":"tick",
"attributes":[{"key":"int.attribute","value":{"intValue":"10"}},{"key":"map.attribute","value":{"kvlistValue":
{"values":[{"key":"some.map.key","value":{"stringValue":"some value"}}]}}}]}]}]}]}"#;

fn pair(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn string(text: &str) -> any_value::Value {
    any_value::Value::StringValue(text.into())
}

/// The same record in the messages of opentelemetry-proto.
fn example() -> ExportLogsServiceRequest {
    let map = any_value::Value::KvlistValue(opentelemetry_proto::tonic::common::v1::KeyValueList {
        values: vec![pair("some.map.key", string("some value"))],
    });
    let record = otlp::LogRecord {
        time_unix_nano: 1_544_712_660_300_000_000,
        observed_time_unix_nano: 1_544_712_660_300_000_001,
        severity_number: 10,
        severity_text: "Information".into(),
        trace_id: 0x5B8E_FFF7_9803_8103_D269_B633_813F_C60C_u128.to_be_bytes().to_vec(),
        span_id: 0xEEE1_9B7E_C3C1_B174_u64.to_be_bytes().to_vec(),
        body: Some(AnyValue { value: Some(string("Example log record")) }),
        flags: 1,
        dropped_attributes_count: 2,
        event_name: "tick".into(),
        attributes: vec![pair("int.attribute", any_value::Value::IntValue(10)), pair("map.attribute", map)],
    };
    let scope = InstrumentationScope {
        name: "my.library".into(),
        version: "1.0.0".into(),
        ..InstrumentationScope::default()
    };
    let scope_logs =
        otlp::ScopeLogs { scope: Some(scope), log_records: vec![record], ..otlp::ScopeLogs::default() };
    let resource =
        Resource { attributes: vec![pair("service.name", string("my.service"))], ..Resource::default() };
    let logs = otlp::ResourceLogs {
        resource: Some(resource),
        scope_logs: vec![scope_logs],
        ..otlp::ResourceLogs::default()
    };
    ExportLogsServiceRequest { resource_logs: vec![logs] }
}

/// A request with this many records of one letter.
fn many(count: usize) -> Vec<u8> {
    let mut request = example();
    request.resource_logs[0].scope_logs[0].log_records =
        vec![otlp::LogRecord { time_unix_nano: 7, ..otlp::LogRecord::default() }; count];
    request.encode_to_vec()
}

#[derive(Default)]
struct Recorded {
    logs: Vec<LogRecord<'static>>,
    spans: usize,
}

impl Sink for Recorded {
    fn span(&mut self, _: Span<'_>, _: Record<'_>) {
        self.spans += 1;
    }

    fn wants(&self) -> Wants {
        Wants { logs: true, ..Wants::default() }
    }

    fn log(&mut self, log: LogRecord<'_>, _: Record<'_>) {
        self.logs.push(log.into_owned());
    }

    fn problem(&mut self, problem: Problem) {
        panic!("{problem}");
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        panic!("{file}: {reason}");
    }
}

fn recorded(folder: &Path) -> Recorded {
    let mut recorded = Recorded::default();
    source::read(folder, &Options::default(), &mut recorded).expect("there are files");
    recorded
}

fn receiver(folder: &Path, limits: Limits, bytes_max: u64) -> Receiver {
    let files = Files::builder(folder).with_total_bytes_max(bytes_max).with_when_full(WhenFilesFull::Refuse);
    let files = files.open().expect("a writable folder");
    let logs = files.beside("logs").expect("the same folder");
    let recording = Recording::from(files).with_logs(logs);
    Receiver::start(&["127.0.0.1:0".parse().expect("an address")], limits, recording).expect("a free port")
}

fn in_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// Sends over gRPC; returns the number of rejected records and the message.
fn export(
    address: SocketAddr,
    compression: Option<CompressionEncoding>,
    request: ExportLogsServiceRequest,
) -> Result<Option<(i64, String)>, tonic::Status> {
    in_runtime(async {
        let mut client = LogsServiceClient::connect(format!("http://{address}")).await.expect("it listens");
        if let Some(compression) = compression {
            client = client.send_compressed(compression);
        }
        let partial = client.export(request).await?.into_inner().partial_success;
        Ok(partial.map(|partial| (partial.rejected_log_records, partial.error_message)))
    })
}

fn totals(received: &Received) -> [u64; 5] {
    [received.requests, received.spans, received.rejected, received.logs, received.logs_rejected]
}

#[test]
fn every_protocol_records_every_field_beside_the_traces() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
    let address = receiver.addresses()[0];
    let protobuf = example().encode_to_vec();
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 3).expect("writing to memory succeeds");
    let mut sent = 0;
    for (content, body) in [(JSON, EXAMPLE.as_bytes()), (PROTOBUF, &protobuf)] {
        for (encoding, body) in [
            ("", body.to_vec()),
            ("content-encoding: gzip\r\n", gzip(body)),
            ("content-encoding: zstd\r\n", zstd(body)),
        ] {
            let (status, answer) = post(address, "/v1/logs", &format!("{content}{encoding}"), &body);
            assert_eq!(status, 200, "{content} {encoding}: {answer}");
            assert!(!answer.contains("artial"), "{answer}");
            sent += 1;
        }
    }
    for compression in [None, Some(CompressionEncoding::Gzip), Some(CompressionEncoding::Zstd)] {
        assert_eq!(export(address, compression, example()).expect("accepted"), None);
        sent += 1;
    }
    // Acknowledged records are on disk, before the receiver ends.
    let logs = recorded(folder.path()).logs;
    assert_eq!(logs.len() as u64, sent);
    for log in &logs {
        let (time, observed) = (log.time, log.observed);
        assert_eq!(time, Some(UnixNanos(1_544_712_660_300_000_000)));
        assert_eq!(observed, Some(UnixNanos(1_544_712_660_300_000_001)));
        assert_eq!((log.severity.number(), &*log.severity_text), (10, "Information"));
        assert_eq!(log.trace_id, TraceId(0x5B8E_FFF7_9803_8103_D269_B633_813F_C60C));
        assert_eq!(log.span_id, SpanId(0xEEE1_9B7E_C3C1_B174));
        assert_eq!(
            (log.text(), &*log.logger, &*log.event_name),
            ("Example log record", "my.library", "tick")
        );
        assert_eq!((log.flags, log.dropped_attributes, log.attributes.len()), (1, 2, 2));
        assert_eq!(log.attribute("int.attribute"), Some(&Value::Int(10)));
        let Some(Value::Map(map)) = log.attribute("map.attribute") else { panic!("{log:?}") };
        assert_eq!((&*map[0].key, map[0].value.as_str()), ("some.map.key", Some("some value")));
        assert_eq!((log.resource.service_name(), &*log.scope.version), ("my.service", "1.0.0"));
    }
    assert_eq!(post(address, "/v1/traces", PROTOBUF, &proto(&spans(2))).0, 200);
    let received = receiver.stop().expect("the files can be completed");
    assert_eq!(totals(&received), [sent + 1, 2, 0, sent, 0]);
    let mut names: Vec<_> = std::fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| entry.expect("a file").file_name().into_string().expect("a name"))
        .collect();
    names.sort();
    assert_eq!(names, ["logs-00000001.jsonl", "traces-00000001.jsonl"]);
    let both = recorded(folder.path());
    assert_eq!((both.logs.len() as u64, both.spans), (sent, 2));
}

#[test]
fn what_is_no_log_is_refused_and_a_bad_record_is_a_partial_success() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default().with_message_bytes(100_000), 1 << 30);
    let address = receiver.addresses()[0];
    let one_bad = EXAMPLE.replace("\"logRecords\":[{", "\"logRecords\":[{\"traceId\":\"x\"},{},{");
    let short_id = EXAMPLE.replace("EEE19B7EC3C1B174", "EEE1");
    let nested = "{\"arrayValue\":{\"values\":[".repeat(200) + &"]}}".repeat(200);
    let nested = EXAMPLE.replace("{\"stringValue\":\"Example log record\"}", &nested);
    let mixed = EXAMPLE.replacen(
        '{',
        "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"traceId\":\"5B8EFFF798038103D269B633813FC60C\",\
         \"spanId\":\"EEE19B7EC3C1B174\"}]}]}],",
        1,
    );
    let gzipped = format!("{JSON}content-encoding: gzip\r\n");
    let (json, logs) = (JSON.to_owned(), "/v1/logs");
    let protobuf = PROTOBUF.to_owned();
    let good = example().encode_to_vec();
    let rows: &[(&str, &String, &[u8], u16, &str)] = &[
        (logs, &json, one_bad.as_bytes(), 200, "\"rejectedLogRecords\":\"1\""),
        (logs, &json, mixed.as_bytes(), 200, "send it to /v1/traces"),
        (logs, &json, b"{}", 200, "{}"),
        (logs, &protobuf, b"", 200, ""),
        (logs, &json, short_id.as_bytes(), 400, "\"code\":3"),
        (logs, &json, nested.as_bytes(), 400, "nested"),
        (logs, &json, &EXAMPLE.as_bytes()[..EXAMPLE.len() - 1], 400, "not JSON"),
        (logs, &json, b"[]", 400, "not a JSON object"),
        (logs, &protobuf, &good[..good.len() - 1], 400, ""),
        (logs, &protobuf, &proto(&spans(1)), 400, ""),
        ("/v1/traces", &protobuf, &good, 400, ""),
        ("/v1/traces", &json, EXAMPLE.as_bytes(), 400, "logs"),
        (logs, &gzipped, &gzip(&vec![b' '; 1_000_000]), 413, "larger than 100000 bytes"),
        (logs, &gzipped, b"no gzip", 400, "cannot be decompressed"),
        (logs, &"content-type: text/plain\r\n".to_owned(), b"INFO", 415, "text/plain"),
        ("/v1/metrics", &json, b"{}", 404, "logs as POST /v1/logs"),
    ];
    for (path, headers, body, status, says) in rows {
        let (found, answer) = post(address, path, headers, body);
        assert_eq!(found, *status, "{path} {headers}: {answer}");
        assert!(answer.contains(says), "{says:?} is not in {answer}");
    }
    // The same over gRPC: a trace id of one byte.
    let mut request = example();
    let records = &mut request.resource_logs[0].scope_logs[0].log_records;
    records.push(otlp::LogRecord { trace_id: vec![1], ..otlp::LogRecord::default() });
    let (rejected, message) =
        export(address, None, request.clone()).expect("accepted in part").expect("partial");
    assert!(rejected == 1 && message.contains("16 bytes"), "{rejected} {message}");
    request.resource_logs[0].scope_logs[0].log_records.remove(0);
    let error = export(address, None, request).expect_err("nothing in it is readable");
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    let received = receiver.stop().expect("the files can be completed");
    assert_eq!(totals(&received), [5, 0, 0, 4, 3]);
    let refused = |reason| received.refused(reason);
    assert_eq!((refused(Refusal::Bad), refused(Refusal::TooLarge)), (10, 1));
    assert_eq!((refused(Refusal::Unsupported), refused(Refusal::WrongPath)), (1, 1));
    assert_eq!(recorded(folder.path()).logs.len(), 4);
}

/// A severity that no version of OTLP defines is unset, and the record stays.
#[test]
fn unknown_severities_are_unset() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
    let mut request = example();
    request.resource_logs[0].scope_logs[0].log_records[0].severity_number = 25;
    assert_eq!(export(receiver.addresses()[0], None, request).expect("accepted"), None);
    assert_eq!(recorded(folder.path()).logs[0].severity, Severity::UNSPECIFIED);
}

#[test]
fn a_receiver_without_files_for_logs_says_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = crate::receive::receiver(folder.path(), Limits::default(), 1 << 30);
    let address = receiver.addresses()[0];
    let (status, answer) = post(address, "/v1/logs", JSON, EXAMPLE.as_bytes());
    assert!(status == 404 && answer.contains("records no logs"), "{answer}");
    let error = export(address, None, example()).expect_err("there is nowhere to write it");
    assert!(error.code() == Code::Unimplemented && error.message().contains("records no logs"), "{error}");
    assert_eq!(receiver.received().refused(Refusal::WrongPath), 2);
}

/// `--total-max` is for traces and logs together.
#[test]
fn logs_and_traces_share_the_limit_of_the_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 2_000);
    let address = receiver.addresses()[0];
    let send = |path, body: &[u8]| post(address, path, PROTOBUF, body);
    assert_eq!(send("/v1/logs", &many(20)).0, 200);
    let (status, answer) = send("/v1/traces", &proto(&spans(20)));
    assert!(status == 503 && answer.contains("retry-after: 30"), "{answer}");
    assert_eq!(send("/v1/traces", &proto(&spans(1))).0, 200);
    assert_eq!(send("/v1/logs", &many(20)).0, 503);
    assert!(receiver.total_bytes() <= 2_000);
    // Somebody makes room.
    std::fs::remove_file(folder.path().join("logs-00000001.jsonl")).expect("it was there");
    assert_eq!(send("/v1/traces", &proto(&spans(10))).0, 200);
    assert_eq!((receiver.logs_removed(), receiver.spans_removed()), (20, 0));
    let received = receiver.stop().expect("the files can be completed");
    assert_eq!(totals(&received), [3, 11, 0, 20, 0]);
}

/// Any body, cut anywhere: no more is acknowledged than was stored. And long requests become lines
/// that readers can hold.
#[test]
fn no_cut_body_is_acknowledged_beyond_what_is_stored() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let receiver = receiver(folder.path(), Limits::default(), 1 << 30);
    let address = receiver.addresses()[0];
    let both = [many(1), example().encode_to_vec()].concat();
    let step = astracer_testing::size(7, 1) as usize;
    for (headers, body) in [(JSON, EXAMPLE.as_bytes()), (PROTOBUF, &both)] {
        for len in (0..body.len()).rev().step_by(step) {
            let (status, answer) = post(address, "/v1/logs", headers, &body[..len]);
            // Two messages of protobuf are one, and the first is whole.
            let is_whole = headers == PROTOBUF && (len == 0 || len == many(1).len());
            assert_eq!(status, if is_whole { 200 } else { 400 }, "{len}: {answer}");
        }
    }
    let received = receiver.received();
    assert!(received.logs <= 1 && received.logs_rejected == 0, "{received:?}");
    assert_eq!(post(address, "/v1/logs", PROTOBUF, &many(10_000)).0, 200);
    receiver.stop().expect("the files can be completed");
    let text = std::fs::read_to_string(folder.path().join("logs-00000001.jsonl")).expect("a file");
    let expected = received.logs as usize;
    assert_eq!((text.lines().count(), recorded(folder.path()).logs.len()), (expected + 3, expected + 10_000));
}
