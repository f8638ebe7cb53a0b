use astracer_formats::logs;
use astracer_model::{LogFormat, Severity, SpanId, TraceId, UnixNanos, Value};

use crate::collected::Collected;

fn detected(bytes: &[u8]) -> Option<LogFormat> {
    logs::detect(bytes, &logs::Options::default())
}

/// OpenTelemetry's example of a request (opentelemetry-proto, `examples/logs.json`, Apache-2.0),
/// with a place.
const REQUEST: &str = r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"my.service"}}]},"scopeLogs":[{"scope":{"name":"my.library"},"logRecords":[{"timeUnixNano":"1544712660300000000","observedTimeUnixNano":"1544712660300000001","severityNumber":10,"severityText":"Information","traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174","body":{"stringValue":"Example log record"},"attributes":[{"key":"code.line.number","value":{"intValue":"12"}}]},{"severityNumber":"SEVERITY_NUMBER_WARN2"}]}]}]}"#;

#[test]
fn json_requests_are_read() {
    assert_eq!(detected(REQUEST.as_bytes()), Some(LogFormat::OtlpJson));
    let lines = format!("{REQUEST}\n{REQUEST}\n");
    let collected = Collected::from_logs(LogFormat::OtlpJson, &lines);
    collected.assert_places(lines.as_bytes());
    assert_eq!((collected.problems.len(), collected.logs.len()), (0, 4));
    let log = &collected.logs[0];
    assert_eq!(log.time, Some(UnixNanos(1_544_712_660_300_000_000)));
    assert_eq!(
        (log.trace_id, log.span_id),
        (TraceId(0x5b8efff798038103d269b633813fc60c), SpanId(0xeee19b7ec3c1b174))
    );
    assert_eq!((log.severity, log.text()), (Severity::from_otlp(10), "Example log record"));
    assert_eq!((&*log.logger, log.code.line, log.resource.service_name()), ("my.library", 12, "my.service"));
    assert_eq!(collected.logs[1].severity, Severity::from_otlp(14));
}

#[test]
fn spans_and_logs_of_one_file_are_both_read() {
    let spans = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"x"}]}]}]}"#;
    let text = format!("{spans}\n{REQUEST}\n");
    let mut collected = Collected { wants_logs: true, ..Collected::default() };
    let limits = astracer_formats::Limits::default();
    let json = astracer_model::Format::OtlpJson;
    astracer_formats::read(json, &mut text.as_bytes(), &"f".into(), &limits, &mut collected);
    assert_eq!((collected.spans.len(), collected.logs.len(), collected.problems.len()), (1, 2, 0));
    let unasked = Collected::from_text(json, &text);
    assert_eq!((unasked.spans.len(), unasked.logs.len(), unasked.problems.len()), (1, 0, 0));
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

/// The field numbers are those of opentelemetry-proto's `logs.proto`.
#[test]
fn protobuf_requests_are_read_bare_and_behind_a_length() {
    let time = [&[9], &1_544_712_660_300_000_000_u64.to_le_bytes()[..]].concat();
    let body = field(5, &field(1, b"charged"));
    let log =
        [time, vec![2 << 3, 17], field(3, b"ERROR"), body, field(9, &[7; 16]), field(10, &[9; 8])].concat();
    let scope_logs = [field(1, &field(1, b"pay.Card")), field(2, &log)].concat();
    let request = field(1, &[field(1, b""), field(2, &scope_logs)].concat());
    let framed = [&[request.len() as u8], &request[..]].concat();
    for bytes in [request, framed] {
        assert_eq!(detected(&bytes), Some(LogFormat::OtlpProto));
        let collected = Collected::from_logs(LogFormat::OtlpProto, &bytes);
        let [log] = &collected.logs[..] else { panic!("{:?}", collected.logs) };
        assert_eq!((log.severity, &*log.severity_text), (Severity::ERROR, "ERROR"));
        assert_eq!((&log.body, &*log.logger), (&Value::from("charged"), "pay.Card"));
        assert_eq!(
            (log.trace_id, log.span_id),
            (TraceId(u128::from_be_bytes([7; 16])), SpanId(0x0909_0909_0909_0909))
        );
    }
}
