use super::*;

#[track_caller]
fn check(text: &[u8], expected: Option<Format>) {
    let found = detect(text, true);
    let format = if let Detection::Format(format) = found { Some(format) } else { None };
    assert_eq!(format, expected, "{:?} gives {found:?}", String::from_utf8_lossy(text));
}

const HTRACE_4: &str = r#"{"a":"b9f2a1e07b6e4f16b0c2b27303b20e79","b":1,"e":2,"d":"x","r":"t","p":[]}"#;
const HTRACE_3: &str =
    r#"{"i":"0000000000000000","s":"aef696f3bdcdc508","b":1,"e":2,"d":"x","r":"t","p":[]}"#;
const ZIPKIN: &str = r#"{"traceId":"5aab74dbb904746b","id":"e457b5a2e4d86bd1","timestamp":1}"#;
const JAEGER: &str =
    r#"{"traceID":"151e8ea44a5cf41c","spans":[{"traceID":"151e8ea44a5cf41c","spanID":"1"}]}"#;
const OTLP: &str = r#"{"resourceSpans":[{"resource":{}}]}"#;

#[test]
fn each_json_format_is_known_by_its_keys() {
    for (format, record) in [
        (Format::HTrace, HTRACE_4),
        (Format::HTrace, HTRACE_3),
        (Format::HTrace, r#"{"SpanID":-12,"TraceID":5,"ParentID":477902,"Start":1,"Stop":2}"#),
        (Format::ZipkinJson, ZIPKIN),
        (Format::JaegerJson, JAEGER),
        (Format::OtlpJson, OTLP),
    ] {
        check(record.as_bytes(), Some(format));
        check(format!("\u{feff}\r\n\n  {record}").as_bytes(), Some(format));
        check(format!("{record}{record}").as_bytes(), Some(format));
        check(format!("{record}\n{record}\n").as_bytes(), Some(format));
        check(record.replace(',', ",\n  ").replace(':', " : ").as_bytes(), Some(format));
        // Log rotation truncated the first record, or it is damaged.
        check(format!("{}\n{record}\n", &record[record.len() / 2..]).as_bytes(), Some(format));
        check(format!("{}\n{record}\n", &record[..record.len() / 2]).as_bytes(), Some(format));
    }
}

#[test]
fn lists_and_envelopes_are_looked_into() {
    check(format!("[{ZIPKIN}]").as_bytes(), Some(Format::ZipkinJson));
    check(format!("[[{ZIPKIN}],[]]").as_bytes(), Some(Format::ZipkinJson));
    check(br#"[{"traceId":"1","id":"a"}]"#, Some(Format::ZipkinJson));
    check(format!("[{JAEGER}]").as_bytes(), Some(Format::JaegerJson));
    check(format!(r#"{{"data":[{JAEGER}],"total":0}}"#).as_bytes(), Some(Format::JaegerJson));
    check(format!(r#"{{"errors":null,"total":0,"data":[{JAEGER}]}}"#).as_bytes(), Some(Format::JaegerJson));
    check(format!("[{OTLP}]").as_bytes(), Some(Format::OtlpJson));
}

/// Responses of Jaeger's and Tempo's query APIs.
#[test]
fn answers_of_otlp_are_looked_into() {
    let batches = r#"{"batches":[{"resource":{"attributes":[]},"scopeSpans":[{"spans":[]}]}]}"#;
    let older = r#"{"batches":[{"instrumentationLibrarySpans":[]}]}"#;
    for answer in [batches, older, OTLP] {
        for wrapped in [
            answer.to_owned(),
            format!(r#"{{"result":{answer}}}"#),
            format!(r#"{{"metrics":{{}},"trace":{answer}}}"#),
        ] {
            check(wrapped.as_bytes(), Some(Format::OtlpJson));
            check(format!("{wrapped}\n{wrapped}\n").as_bytes(), Some(Format::OtlpJson));
        }
    }
    for other in [ZIPKIN, JAEGER, HTRACE_4, r#"{"x":{"resourceSpans":[]}}"#, r#"{"x":{"scopeSpans":[]}}"#] {
        check(format!(r#"{{"result":{other},"trace":{other},"batches":[{other}]}}"#).as_bytes(), None);
    }
    check(br#"{"result":{"scopeSpans":[]},"trace":{"scopeSpans":[]},"batches":[1]}"#, None);
    check(format!(r#"{{"trace":[{OTLP}],"batches":{batches},"result":"resourceSpans"}}"#).as_bytes(), None);
}

#[test]
fn a_telling_key_may_come_late() {
    let filler = format!(r#"["{}", {{"a":[1,2,{{}}]}}]"#, r#"text \" with {\"quotes\": ["#.repeat(1000));
    check(format!(r#"{{"schema":{filler},"resourceSpans":[]}}"#).as_bytes(), Some(Format::OtlpJson));
    let jaeger = format!(r#"{{"data":[{{"warnings":{filler},"processes":{{}},"traceID":"1"}}]}}"#);
    check(jaeger.as_bytes(), Some(Format::JaegerJson));
    let zipkin = format!(r#"[{{"annotations":{filler},"id":"a","traceId":"1"}}]"#);
    check(zipkin.as_bytes(), Some(Format::ZipkinJson));

    let cut = &jaeger.as_bytes()[..2000];
    assert!(matches!(detect(cut, false), Detection::Open(_)), "the rest of the file may decide");
    assert!(matches!(detect(cut, true), Detection::Other(_)));
}

#[test]
fn keys_inside_records_tell_nothing() {
    check(format!(r#"{{"log":{OTLP},"list":[{JAEGER},{ZIPKIN},{HTRACE_4}]}}"#).as_bytes(), None);
    check(br#"{"message":"\"resourceSpans\":[]", "resourceSpans":"none"}"#, None);
}

#[test]
fn other_files_get_a_reason() {
    for (text, reason) in [
        ("", "empty"),
        (" \r\n\n", "blank"),
        ("[]", "text or JSON without spans"),
        (
            "{\"what\":\"x\",\n \"hadoop\":[1],\n\"n\":1,\"more\":2}",
            "JSON without traces (first keys: what, hadoop, n)",
        ),
        // HTrace's keys with values that HTrace does not write.
        (r#"{"a":1,"b":2,"d":"x","p":[]}"#, "JSON without traces (first keys: a, b, d)"),
        (r#"{"a":"short","b":2,"d":"x"}"#, "JSON without traces (first keys: a, b, d)"),
        // A structured log.
        (r#"{"traceId":"00ff","id":"12","msg":"x"}"#, "JSON without traces (first keys: traceId, id, msg)"),
        (r#"{"resourceLogs":[{"scopeLogs":[]}]}"#, "OTLP logs or metrics, without spans"),
        ("1795222378918\t4\treadSmall\t115827\t0\t\n", "a table without span columns"),
        ("Timestamp,Node,TraceID,SpanID,Log\n1,2,3,4,5\n", "a table without span columns"),
        ("2026-11-21 01:05:00,123 INFO x\n", "text, not traces"),
        ("MIT License\n\nCopyright", "text, not traces"),
        ("PK\u{3}\u{4}abc", "a zip archive; unpack it, or pack it as tar"),
        ("BZh91AY", "bzip2; decompress it, or use gz, xz or zst"),
        ("\u{7f}ELF\0\0\0", "binary data in an unknown format"),
    ] {
        let unusable = reason.contains(';') || matches!(reason, "empty" | "blank");
        let expected = if unusable { Detection::Unusable } else { Detection::Other };
        assert_eq!(detect(text.as_bytes(), true), expected(reason.to_owned()), "{text:?}");
    }
    let utf_16 = detect(b"\xff\xfe{\0\"\0", true);
    assert_eq!(utf_16, Detection::Unusable("UTF-16 text; convert it to UTF-8".to_owned()));
}

#[test]
fn nezha_is_known_by_its_columns_in_any_order() {
    let header = "TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano,Duration";
    check(br#"[{"id":"small.json","reports":[{"X-Trace":["19"#, Some(Format::XTraceJson));
    check(br#"{"id":"57C1C4A67A6A88FD","reports":["#, Some(Format::XTraceJson));
    check(br#"{"reports":[1,2],"title":"sales"}"#, None);
    check(header.as_bytes(), Some(Format::NezhaCsv));
    check(format!("\u{feff}{header}\r\n1,2,3\r\n").as_bytes(), Some(Format::NezhaCsv));
    check(b"\"StartTimeUnixNano\", traceid ,\"SpanID\"\n", Some(Format::NezhaCsv));
    check(b"TraceID,SpanID,Duration\n", None);
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128);
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

#[test]
fn protobuf_requests_are_known_bare_and_behind_a_length() {
    let span = [field(1, &[7; 16]), field(2, &[9; 8]), field(5, b"GET /")].concat();
    let scope_spans = [field(1, b""), field(2, &span)].concat();
    let service = field(1, &[field(1, b"service.name"), field(2, &field(1, b"shop"))].concat());
    let request = field(1, &[field(1, &service), field(2, &scope_spans)].concat());
    check(&request, Some(Format::OtlpProto));
    check(&[request.clone(), request.clone()].concat(), Some(Format::OtlpProto));
    check(
        &[&[request.len() as u8], &*request, &[request.len() as u8], &request].concat(),
        Some(Format::OtlpProto),
    );
    check(&[&[0, 0, 0, request.len() as u8], &*request].concat(), Some(Format::OtlpProto));
    // Truncated after the span's ids.
    check(&request[..request.len() - 3], Some(Format::OtlpProto));

    // A log record begins with its time, a metric with its name.
    let log_record = [&[9, 1, 2, 3, 4, 5, 6, 7, 8][..], &field(3, b"INFO")].concat();
    let metric = [field(1, b"http.requests"), field(2, b"how many")].concat();
    for record in [log_record, metric] {
        check(&field(1, &[field(1, &service), field(2, &field(2, &record))].concat()), None);
    }
}

#[test]
fn no_prefix_of_anything_panics() {
    for text in [HTRACE_4, HTRACE_3, ZIPKIN, JAEGER, OTLP, "\u{feff} {\"\\", "]]}}{[:,\"\\u12"] {
        for len in 0..text.len() {
            let _ = detect(&text.as_bytes()[..len], false);
            let _ = detect(&text.as_bytes()[len..], true);
        }
    }
}
