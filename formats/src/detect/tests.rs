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

/// Sorted keys, as from Python, `jq -S` or Elasticsearch, and a first trace beyond every prefix.
#[test]
fn detection_does_not_depend_on_the_order_of_keys() {
    let span = r#"{"duration":1,"logs":[],"operationName":"a","processID":"p1","references":[],"spanID":"1","startTime":1,"tags":[],"traceID":"a"}"#;
    let spans = vec![span; 20_000].join(",");
    for trace in [
        format!(
            r#"{{"processes":{{"p1":{{"serviceName":"s","tags":[]}}}},"spans":[{spans}],"traceID":"a"}}"#
        ),
        format!(r#"{{"spans":[{spans}],"traceID":"a"}}"#),
        format!(r#"{{"spans":[{spans}]}}"#),
    ] {
        for text in [
            trace.clone(),
            format!("[{trace}]"),
            format!(r#"{{"data":[{trace}],"errors":null,"limit":0}}"#),
            format!(r#"{{"errors":null,"limit":0,"data":[{trace}]}}"#),
        ] {
            let prefix = &text.as_bytes()[..64 << 10];
            assert_eq!(detect(prefix, false), Detection::Format(Format::JaegerJson), "{}", &text[..100]);
        }
    }
}

#[test]
fn lines_of_javas_logging_exporter_are_known() {
    let line = r#"{"resource":{"attributes":[]},"scopeSpans":[{"scope":{},"spans":[]}]}"#;
    check(line.as_bytes(), Some(Format::OtlpJson));
    let sorted = r#"{"resource":{"attributes":[]},"schemaUrl":"","scopeSpans":[]}"#;
    check(format!("{sorted}\n{sorted}\n").as_bytes(), Some(Format::OtlpJson));
    let logged = format!("Nov 26, 2026 1:00:00 PM io.opentelemetry.exporter export\nINFO: {line}\n");
    check(logged.as_bytes(), Some(Format::OtlpJson));
    check(format!("INFO: {}", r#"{"resource":{},"scopeLogs":[]}"#).as_bytes(), None);
}

#[test]
fn empty_answers_are_empty_recordings_and_errors_are_told() {
    for (text, format) in [
        ("[]", Format::ZipkinJson),
        ("[[]]", Format::ZipkinJson),
        (r#"{"data":[],"total":0,"limit":0,"offset":0,"errors":null}"#, Format::JaegerJson),
        (r#"{"data":null,"total":0,"errors":null}"#, Format::JaegerJson),
        (r#"{"batches":[]}"#, Format::OtlpJson),
        (r#"{"resourceSpans":[]}"#, Format::OtlpJson),
        (r#"{"trace":{}}"#, Format::OtlpJson),
        (r#"{"result":{}}"#, Format::OtlpJson),
    ] {
        check(text.as_bytes(), Some(format));
    }
    check(br#"{"data":[],"name":"x"}"#, None);
    let error = br#"{"data":null,"total":0,"errors":[{"code":404,"msg":"trace not found"}]}"#;
    let expected = "Jaeger's answer is an error: trace not found".to_owned();
    assert_eq!(detect(error, true), Detection::Unusable(expected));
}

#[test]
fn formats_that_are_not_read_are_named() {
    for (text, name) in [
        (r#"{"traceEvents":[{"name":"a","ph":"X","ts":1,"dur":2,"pid":1,"tid":1}]}"#, "Chrome"),
        (r#"[{"name":"a","ph":"X","ts":1,"dur":2,"pid":1,"tid":1}]"#, "Chrome"),
        (
            r#"{"trace_id":"1-5759e988-bd862e3fe1be46a994272793","id":"53995c3f42cd8ad8","start_time":1.5,"end_time":2.5,"name":"a"}"#,
            "X-Ray",
        ),
        (r#"{"Traces":[{"Id":"1-5","Duration":1,"Segments":[{"Id":"5","Document":"{}"}]}]}"#, "X-Ray"),
        (
            r#"[[{"trace_id":1,"span_id":2,"parent_id":0,"name":"a","resource":"/","service":"s","start":1,"duration":2,"error":0}]]"#,
            "Datadog",
        ),
        (
            r#"{"traceId":"a.1.2","traceSegmentId":"a.1.3","service":"s","spans":[{"spanId":0,"parentSpanId":-1}]}"#,
            "SkyWalking",
        ),
        (
            r#"[{"time":"2026-01-01T00:00:00Z","data":{"trace.trace_id":"a","trace.span_id":"b","name":"x"}}]"#,
            "Honeycomb",
        ),
        (
            r#"{"metadata":{"service":{"name":"s"}}}
            {"transaction":{"id":"a","trace_id":"b","duration":1}}"#,
            "Elastic",
        ),
    ] {
        let found = detect(text.as_bytes(), true);
        assert!(matches!(&found, Detection::Unusable(reason) if reason.contains(name)), "{text}: {found:?}");
    }
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
