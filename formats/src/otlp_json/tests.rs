//! Requests as recorders write them, valid and invalid.

use std::fs;
use std::sync::Arc;

use proptest::prelude::*;

use crate::Limits;
use crate::otlp::testing::{Collected, cases, spans};
use astracer_model::Format;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::span::{Event, Link, Resource, Scope, Span, SpanKind, Status};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

fn read(input: impl AsRef<[u8]>) -> Collected {
    let mut kept = Collected::default();
    crate::read(Format::OtlpJson, &mut input.as_ref(), &"f".into(), &Limits::default(), &mut kept);
    kept
}

fn sample(name: &str) -> Collected {
    let path = format!("{}/tests/data/otlp_json/{name}", env!("CARGO_MANIFEST_DIR"));
    read(fs::read(path).expect("the sample is there"))
}

fn write(spans: &[Span<'_>]) -> String {
    let mut out = Vec::new();
    let mut writer = crate::writer(Format::OtlpJson, Box::new(&mut out)).expect("there is a writer");
    writer.trace(spans).expect("writing to memory succeeds");
    writer.finish().expect("writing to memory succeeds");
    drop(writer);
    String::from_utf8(out).expect("JSON is text")
}

/// A span that uses every field of OTLP, and its text as the writer writes it.
fn full() -> (Span<'static>, &'static str) {
    let trace_id = TraceId(0x5b8efff798038103d269b633813fc60c);
    let span = Span {
        trace_id,
        span_id: SpanId(0xeee19b7ec3c1b174),
        parents: [0xeee19b7ec3c1b173, 7].into_iter().map(SpanId).collect(),
        name: "I'm a \"server\" span".into(),
        kind: SpanKind::Server,
        start: Some(UnixNanos(1544712660000000000)),
        end: Some(UnixNanos(1544712661000000000)),
        status: Status::Error,
        status_message: "tab\there".into(),
        attributes: vec![
            Attribute::new("text", "some value"),
            Attribute::new("whole", Value::Int(-42)),
            Attribute::new("fraction", Value::Double(0.25)),
            Attribute::new("infinite", Value::Double(f64::NEG_INFINITY)),
            Attribute::new("truth", Value::Bool(true)),
            Attribute::new("bytes", Value::Bytes(vec![0, 0, 48, 57].into())),
            Attribute::new("nothing", Value::Empty),
            Attribute::new("list", Value::Array(vec![Value::Int(1), "two".into()])),
            Attribute::new("map", Value::Map(vec![Attribute::new("k", Value::Array(vec![]))])),
        ],
        dropped_attributes: 1,
        events: vec![Event {
            time: UnixNanos(1544712660500000000),
            name: "event".into(),
            attributes: vec![Attribute::new("e", "v")],
            dropped_attributes: 2,
        }],
        dropped_events: 3,
        links: vec![Link {
            trace_id,
            span_id: SpanId(9),
            trace_state: "a=b".into(),
            attributes: vec![Attribute::new("l", "v")],
            dropped_attributes: 4,
            flags: 256,
        }],
        dropped_links: 5,
        trace_state: "ot=th:8".into(),
        flags: 257,
        shared: true,
        follows: false,
        lone_duration: None,
        wording: Default::default(),
        resource: Arc::new(Resource {
            attributes: vec![Attribute::new("service.name", "s")],
            dropped_attributes: 6,
            schema_url: "https://example.org/resource".to_owned(),
        }),
        scope: Arc::new(Scope {
            name: "library".to_owned(),
            version: "1.0".to_owned(),
            attributes: vec![Attribute::new("c", "v")],
            dropped_attributes: 7,
            schema_url: "https://example.org/scope".to_owned(),
        }),
    };
    let text = concat!(
        r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"s"}}],"#,
        r#""droppedAttributesCount":6},"scopeSpans":[{"scope":{"name":"library","version":"1.0","#,
        r#""attributes":[{"key":"c","value":{"stringValue":"v"}}],"droppedAttributesCount":7},"#,
        r#""spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","#,
        r#""traceState":"ot=th:8","parentSpanId":"eee19b7ec3c1b173","flags":257,"#,
        r#""name":"I'm a \"server\" span","kind":2,"#,
        r#""startTimeUnixNano":"1544712660000000000","endTimeUnixNano":"1544712661000000000","#,
        r#""attributes":[{"key":"text","value":{"stringValue":"some value"}},"#,
        r#"{"key":"whole","value":{"intValue":"-42"}},{"key":"fraction","value":{"doubleValue":0.25}},"#,
        r#"{"key":"infinite","value":{"doubleValue":"-Infinity"}},{"key":"truth","value":{"boolValue":true}},"#,
        r#"{"key":"bytes","value":{"bytesValue":"AAAwOQ=="}},{"key":"nothing","value":{}},"#,
        r#"{"key":"list","value":{"arrayValue":{"values":[{"intValue":"1"},{"stringValue":"two"}]}}},"#,
        r#"{"key":"map","value":{"kvlistValue":{"values":[{"key":"k","value":{"arrayValue":{"values":[]}}}]}}},"#,
        r#"{"key":"astracer.shared","value":{"boolValue":true}}],"droppedAttributesCount":1,"#,
        r#""events":[{"timeUnixNano":"1544712660500000000","name":"event","#,
        r#""attributes":[{"key":"e","value":{"stringValue":"v"}}],"droppedAttributesCount":2}],"#,
        r#""droppedEventsCount":3,"#,
        r#""links":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"0000000000000007","#,
        r#""attributes":[{"key":"astracer.parent","value":{"boolValue":true}}]},"#,
        r#"{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"0000000000000009","traceState":"a=b","#,
        r#""attributes":[{"key":"l","value":{"stringValue":"v"}}],"droppedAttributesCount":4,"flags":256}],"#,
        r#""droppedLinksCount":5,"status":{"message":"tab\there","code":2}}],"#,
        r#""schemaUrl":"https://example.org/scope"}],"schemaUrl":"https://example.org/resource"}]}"#,
        "\n"
    );
    (span, text)
}

#[test]
fn every_field_is_written_and_read_back() {
    let (span, text) = full();
    assert_eq!(write(std::slice::from_ref(&span)), text);
    read(text).assert_spans(&[span]);
}

#[test]
fn every_field_is_read_under_its_name_in_protobuf() {
    let (span, text) = full();
    let mut snake = String::new();
    let mut quoted = String::new();
    // Keys are the strings before a colon; only their case changes.
    for char in text.chars() {
        quoted.push(char);
        if char == ':' && quoted.ends_with("\":") {
            for char in quoted.drain(..) {
                if char.is_ascii_uppercase() && !snake.ends_with(' ') {
                    snake.push('_');
                }
                snake.push(char.to_ascii_lowercase());
            }
        } else if char == '"' && quoted.len() > 1 {
            // A string's content is copied unchanged until it proves to be a key.
            let start = quoted[..quoted.len() - 1].rfind('"').unwrap_or(0);
            if start > 0 {
                snake.push_str(&quoted[..start]);
                quoted.drain(..start);
            }
        }
    }
    snake.push_str(&quoted);
    assert!(snake.contains("\"dropped_attributes_count\":4") && !snake.contains("schemaUrl"), "{snake}");
    read(snake).assert_spans(&[span]);
}

proptest! {
    #![proptest_config(cases(50))]

    #[test]
    fn any_spans_are_written_and_read_back(spans in spans()) {
        read(write(&spans)).assert_spans(&spans);
    }
}

#[test]
fn nan_is_written_and_read_back() {
    let mut span = Span { span_id: SpanId(1), ..Span::default() };
    span.attributes.push(Attribute::new("nan", Value::Double(f64::NAN)));
    let kept = read(write(&[span]));
    assert!(matches!(kept.spans[0].attributes[0].value, Value::Double(value) if value.is_nan()));
}

#[test]
fn a_large_trace_takes_several_lines() {
    let spans: Vec<_> = (1..=10_000).map(|id| Span { span_id: SpanId(id), ..Span::default() }).collect();
    let text = write(&spans);
    assert_eq!(text.lines().count(), 3);
    let kept = read(text);
    assert_eq!(kept.problems, [""; 0]);
    assert_eq!(kept.spans, spans);
}

#[test]
fn spans_of_equal_resources_that_follow_each_other_are_one_group() {
    let spans = ["a", "b", "b", "a"].map(|service| Span {
        span_id: SpanId(1),
        resource: Arc::new(Resource::service(service)),
        ..Span::default()
    });
    let text = write(&spans);
    let services: Vec<_> =
        text.matches(r#""stringValue":"a""#).chain(text.matches(r#""stringValue":"b""#)).collect();
    assert_eq!(services.len(), 3, "{text}");
    read(text).assert_spans(&spans);
}

#[test]
fn the_example_of_the_specification() {
    let kept = sample("otel_proto_trace.json");
    assert_eq!(kept.problems, [""; 0]);
    let [span] = &kept.spans[..] else { panic!("{:?}", kept.spans) };
    assert_eq!(
        *span,
        Span {
            trace_id: TraceId(0x5b8efff798038103d269b633813fc60c),
            span_id: SpanId(0xeee19b7ec3c1b174),
            parents: [SpanId(0xeee19b7ec3c1b173)].into_iter().collect(),
            name: "I'm a server span".into(),
            kind: SpanKind::Server,
            start: Some(UnixNanos(1544712660000000000)),
            end: Some(UnixNanos(1544712661000000000)),
            attributes: vec![Attribute::new("my.span.attr", "some value")],
            resource: Arc::new(Resource::service("my.service")),
            scope: Arc::new(Scope {
                name: "my.library".to_owned(),
                version: "1.0.0".to_owned(),
                attributes: vec![Attribute::new("my.scope.attribute", "some scope attribute")],
                ..Scope::default()
            }),
            ..Span::default()
        }
    );
    let (record, line, _) = &kept.records[0];
    assert_eq!(*line, 29);
    let value: serde_json::Value = serde_json::from_slice(record).expect("a record is a JSON object");
    assert_eq!(value["spanId"], "EEE19B7EC3C1B174");
}

#[test]
fn requests_on_lines_and_in_one_are_the_same() {
    let (lines, one) = (sample("multi-in.jsonl"), sample("multi-in-combined.json"));
    assert_eq!((lines.problems.len(), one.problems.len()), (0, 0));
    let names: Vec<_> = lines.spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["ohboy.do", "ohboy.do", "info", "main"]);
    assert!(lines.spans[3].parents.is_empty(), "the empty parent of a root is none");
    one.assert_spans(&lines.spans);
    // Lines with the same resource share it.
    assert!(Arc::ptr_eq(&lines.spans[0].resource, &lines.spans[3].resource));
    assert!(!Arc::ptr_eq(&lines.spans[0].scope, &lines.spans[3].scope));
}

#[test]
fn spans_of_every_kind() {
    let kept = sample("jaeger_otel_traces_01.json");
    assert_eq!(kept.problems, [""; 0]);
    let seen: Vec<_> =
        kept.spans.iter().map(|span| (&*span.name, span.kind, span.events.len(), span.links.len())).collect();
    assert_eq!(
        seen,
        [
            ("test-general-conversion-2", SpanKind::Server, 2, 2),
            ("test-general-conversion-3", SpanKind::Client, 2, 2),
            ("test-general-conversion-4", SpanKind::Producer, 2, 2),
            ("test-general-conversion-5", SpanKind::Consumer, 2, 2),
        ]
    );
    let [.., blob, temperature] = &kept.spans[0].attributes[..] else { panic!("{:?}", kept.spans[0]) };
    assert_eq!(blob.value, Value::Bytes(vec![0, 0, 48, 57].into()));
    assert_eq!(temperature.value, Value::Double(72.5));
    assert_eq!(kept.spans[0].trace_state, "state.2");
}

/// A request with one span that has these members.
fn request(members: &str) -> String {
    format!(
        r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"spanId":"0000000000000001",{members}}}]}}]}}]}}"#
    )
}

#[track_caller]
fn one(members: &str) -> Span<'static> {
    let mut kept = read(request(members));
    assert_eq!(kept.problems, [""; 0]);
    kept.spans.pop().expect("a span")
}

#[test]
fn what_other_recorders_wrote() {
    let span = one(concat!(
        r#""traceId":"W47/95gDgQPSabYzgT/GDA==","parentSpanId":"7uGbfsPBsXQ=","kind":"SPAN_KIND_CLIENT","#,
        r#""startTimeUnixNano":1544712660000000001,"endTimeUnixNano":null,"name":null,"attributes":null,"#,
        r#""events":null,"links":null,"status":{"code":"STATUS_CODE_OK","message":null},"flags":"1","#,
        r#""somethingNew":[{"a":[]}]"#
    ));
    let expected = Span {
        trace_id: TraceId(0x5b8efff798038103d269b633813fc60c),
        span_id: SpanId(1),
        parents: [SpanId(0xeee19b7ec3c1b174)].into_iter().collect(),
        kind: SpanKind::Client,
        start: Some(UnixNanos(1544712660000000001)),
        status: Status::Ok,
        flags: 1,
        ..Span::default()
    };
    assert_eq!(span, expected);
    assert_eq!(one(r#""kind":"3""#).kind, SpanKind::Client);
    assert_eq!(one(r#""status":null"#).status, Status::Unset);
    let values = r#"[{"key":"a","value":{"intValue":7}},{"key":"b","value":null},{"key":null},
        {"key":"c","value":{"stringValue":null,"doubleValue":"1.5"}},{"key":"d","value":{"doubleValue":2}},
        {"key":"e","value":{"arrayValue":{"values":null}}},{"key":"f","value":{"kvlistValue":{}}}]"#;
    let values: Vec<_> = one(&format!(r#""attributes":{values}"#))
        .attributes
        .into_iter()
        .map(|attribute| attribute.value)
        .collect();
    let (empty, list, map) = (Value::Empty, Value::Array(vec![]), Value::Map(vec![]));
    let expected = [Value::Int(7), empty.clone(), empty, Value::Double(1.5), Value::Double(2.0), list, map];
    assert_eq!(values, expected);
}

#[test]
fn old_versions_and_query_apis() {
    let spans = r#"{"instrumentationLibrary":{"name":"l"},"spans":[{"spanId":"0000000000000001"}]}"#;
    let resource = r#"{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"s"}}]}"#;
    let unit = format!(r#"{resource},"instrumentationLibrarySpans":[{spans}]}}"#);
    for request in [
        format!(r#"{{"resourceSpans":[{unit}]}}"#),
        format!(r#"{{"batches":[{unit}]}}"#),
        format!(r#"{{"trace":{{"resourceSpans":[{unit}]}}}}"#),
        format!(r#"{{"result":{{"resourceSpans":[{unit}]}}}}"#),
        format!(r#"[{{"resource_spans":[{unit}]}}]"#),
    ] {
        let kept = read(&request);
        assert_eq!((kept.problems.len(), kept.spans.len()), (0, 1), "{request}: {:?}", kept.problems);
        assert_eq!((kept.spans[0].resource.service_name(), &*kept.spans[0].scope.name), ("s", "l"));
    }
}

#[test]
fn resource_scope_and_schema_may_stand_behind_the_spans() {
    let (span, text) = full();
    let value: serde_json::Value = serde_json::from_str(text).expect("the text is JSON");
    let unit = &value["resourceSpans"][0];
    let group = &unit["scopeSpans"][0];
    let request = format!(
        r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":{},"schemaUrl":{},"scope":{}}}],"schemaUrl":{},"resource":{}}}]}}"#,
        group["spans"], group["schemaUrl"], group["scope"], unit["schemaUrl"], unit["resource"],
    );
    // Alone, among others on its line, and over many lines.
    read(&request).assert_spans(std::slice::from_ref(&span));
    let other = write(&[Span { span_id: SpanId(1), ..Span::default() }]);
    let kept = read(format!("{}{request}{}", other.trim(), other.trim()));
    assert_eq!((kept.problems.len(), kept.spans.len()), (0, 3));
    assert_eq!(kept.spans[1], span);
    assert_eq!(kept.spans[2].resource, Arc::default());
    let value: serde_json::Value = serde_json::from_str(&request).expect("the request is JSON");
    read(serde_json::to_string_pretty(&value).expect("JSON can be written")).assert_spans(&[span]);
}

#[test]
fn logs_and_metrics_are_no_spans() {
    let kept = read("{\"resourceLogs\":[]}\n{\"resourceMetrics\":[{}]}\n");
    assert_eq!((kept.problems.len(), kept.spans.len()), (0, 0));
    assert_eq!(kept.skipped, ["OTLP without traces: logs, metrics or profiles"]);
    let kept = read(format!("{{\"resourceLogs\":[]}}\n{}", request(r#""kind":1"#)));
    assert_eq!((kept.problems.len(), kept.spans.len(), kept.skipped.len()), (0, 1, 0));
}

#[track_caller]
fn check_problem(request: &str, at: &str, problem: &str) {
    // The broken request is between good ones, which must be read.
    let good = request_of_two();
    let input = format!("{good}\n{request}\n{good}\n");
    let kept = read(&input);
    let byte = good.len() + 1 + request.find(at).expect("the place is there");
    assert_eq!(kept.problems, [format!("f:2 (byte {byte}): {problem}")], "{request}");
    assert!(kept.spans.len() >= 4, "{request}");
    assert_eq!(kept.records.last().map(|record| record.1), Some(3));
}

fn request_of_two() -> String {
    write(&[1, 2].map(|id| Span { span_id: SpanId(id), ..Span::default() })).trim_end().to_owned()
}

const NO_TRACE_ID: &str = "bad record: invalid trace id: OTLP requires 32 hexadecimal digits";
const NO_SPAN_ID: &str = "bad record: invalid span id: OTLP requires 16 hexadecimal digits";

#[test]
fn bad_spans_are_named_with_their_place() {
    for (member, at, problem) in [
        (r#""traceId":"xyz""#, r#""xyz""#, NO_TRACE_ID),
        (r#""traceId":"abc""#, r#""abc""#, NO_TRACE_ID),
        // A 64-bit id, an id with a digit too many, and one of 16 bytes with a character that is
        // not hexadecimal.
        (r#""traceId":"5b8efff798038103""#, r#""5b8ef"#, NO_TRACE_ID),
        (r#""traceId":"5b8efff798038103d269b633813fc60c0""#, r#""5b8ef"#, NO_TRACE_ID),
        (r#""traceId":"5b8efff798038103d269b633813fc60g""#, r#""5b8ef"#, NO_TRACE_ID),
        (r#""traceId":"7uGbfsPBsXQ=""#, r#""7uG"#, NO_TRACE_ID),
        (r#""spanId":"abc""#, r#""abc""#, NO_SPAN_ID),
        (r#""parentSpanId":"5b8efff79803810""#, r#""5b8ef"#, NO_SPAN_ID),
        (r#""links":[{"spanId":"5b8efff7980381030"}]"#, r#""5b8ef"#, NO_SPAN_ID),
        (r#""spanId":"""#, r#"{"spanId":"0000000000000001""#, "bad record: span without an id"),
        (r#""name":7"#, "7", "bad record: expected a string"),
        (r#""startTimeUnixNano":-1"#, "-1", "bad record: expected a non-negative number"),
        (r#""endTimeUnixNano":"18446744073709551616""#, r#""184"#, "bad record: number out of range"),
        (r#""attributes":{}"#, "{}", "bad record: expected a list"),
        (r#""events":[{"name":"a"},7]"#, "7", "bad record: expected an object"),
        (r#""attributes":[{"key":"a","value":{"bytesValue":"*"}}]"#, r#""*""#, "bad record: invalid base64"),
        (
            r#""attributes":[{"key":"a","value":{"boolValue":1}}]"#,
            "1}}",
            "bad record: expected true or false",
        ),
        (r#""name":01"#, "01}", "bad record: expected a string"),
        (r#""flags":01"#, "01}", "bad record: invalid number"),
        (r#""name" "x""#, r#""x""#, "bad record: expected ':'"),
        (r#""name":"x"]"#, "]}", "bad record: expected ',' or '}'"),
    ] {
        check_problem(&request(member), at, problem);
    }
}

#[test]
fn nesting_is_bounded() {
    let value = |levels: usize| {
        let nested = r#"{"arrayValue":{"values":["#.repeat(levels) + &"]}}".repeat(levels);
        request(&format!(r#""attributes":[{{"key":"a","value":{nested}}}]"#))
    };
    // The value of an attribute is at level 10, and each of its levels takes three.
    assert_eq!(read(value(30)).spans.len(), 1);
    // The innermost list, in its value, is one level too deep.
    let request = value(31);
    check_problem(&request, r#"{"values":[]"#, "is over a limit: nested too deeply");
    let kept = read(value(50_000));
    assert_eq!((kept.problems.len(), kept.spans.len()), (1, 0));
}

#[test]
fn a_bad_resource_is_reported_and_its_spans_come() {
    let request = r#"{"resourceSpans":[{"resource":{"attributes":7},"scopeSpans":[{"scope":{"name":[]},"spans":[{"spanId":"0000000000000001"}]}]}]}"#;
    let kept = read(request);
    assert_eq!(
        kept.problems,
        ["f:1 (byte 44): bad record: expected a list", "f:1 (byte 78): bad record: expected a string"]
    );
    assert_eq!(kept.spans, [Span { span_id: SpanId(1), ..Span::default() }]);
}

#[test]
fn a_request_cut_off_anywhere_gives_the_spans_before_the_cut() {
    let text = write(&[1, 2, 3].map(|id| Span { span_id: SpanId(id), ..Span::default() }));
    let text = text.trim_end();
    let whole = read(text);
    for end in 1..text.len() {
        let kept = read(&text[..end]);
        let before =
            whole.records.iter().filter(|(bytes, _, start)| *start as usize + bytes.len() <= end).count();
        assert_eq!(kept.spans.len(), before, "cut at {end}");
        assert_eq!(kept.problems, [format!("f:1 (byte {end}): ends too early: incomplete JSON value")]);
    }
}

/// Requests of four spans in two resources, whose members are in the orders that recorders write:
/// resource and scope before the spans or after them, with or without schema URLs, on one line or
/// on many.
fn layouts() -> Vec<String> {
    let mut layouts = Vec::new();
    for (resource_first, schema) in
        [(true, ""), (false, ""), (true, r#","schemaUrl":"u""#), (false, r#","schemaUrl":"u""#)]
    {
        let order = |subject: String, spans: String| {
            if resource_first {
                format!("{{{subject},{spans}{schema}}}")
            } else {
                format!("{{{spans},{subject}{schema}}}")
            }
        };
        let unit = |ids: [u32; 2]| {
            let spans = ids
                .map(|id| format!(r#"{{"traceId":"{id:032}","spanId":"{id:016}","name":"n{id}","kind":1}}"#));
            let scope =
                order(r#""scope":{"name":"s"}"#.to_owned(), format!(r#""spans":[{}]"#, spans.join(",")));
            let resource =
                r#""resource":{"attributes":[{"key":"service.name","value":{"stringValue":"r"}}]}"#;
            order(resource.to_owned(), format!(r#""scopeSpans":[{scope}]"#))
        };
        let line = format!(r#"{{"resourceSpans":[{},{}]}}"#, unit([1, 2]), unit([3, 4]));
        // None of its strings contains these characters.
        layouts.push(line.replace('{', "{\n").replace(',', ",\n  ").replace("}]", "}\n]"));
        layouts.push(line);
    }
    layouts
}

/// The spans whose text ends at or before a byte.
fn before(whole: &Collected, end: usize) -> Vec<SpanId> {
    let ends = whole.records.iter().map(|(bytes, _, start)| *start as usize + bytes.len());
    whole.spans.iter().zip(ends).filter(|&(_, at)| at <= end).map(|(span, _)| span.span_id).collect()
}

#[test]
fn a_cut_loses_no_span_before_it_whatever_the_order_of_members() {
    for text in layouts() {
        let whole = read(&text);
        assert_eq!((whole.spans.len(), whole.problems.len()), (4, 0));
        for end in 1..text.len() {
            let kept = read(&text[..end]);
            let ids: Vec<_> = kept.spans.iter().map(|span| span.span_id).collect();
            assert_eq!(ids, before(&whole, end), "cut at {end} of {text}");
            assert_eq!(kept.problems.len(), 1, "{:?} for a cut at {end} of {text}", kept.problems);
        }
    }
}

#[test]
fn a_syntax_error_loses_no_span_before_it() {
    for text in layouts() {
        let whole = read(&text);
        for at in 1..text.len() {
            for damage in [",", "}", "]", "\"", "{", "["] {
                let kept = read(format!("{}{damage}{}", &text[..at], &text[at..]));
                let ids: Vec<_> = kept.spans.iter().map(|span| span.span_id).collect();
                let expected = before(&whole, at);
                assert!(
                    ids.starts_with(&expected),
                    "{damage:?} at {at} of {text}: {ids:?} {:?}",
                    kept.problems
                );
                let distinct: std::collections::HashSet<_> = ids.iter().collect();
                assert_eq!(distinct.len(), ids.len(), "{damage:?} at {at} of {text}: twice");
            }
        }
    }
}

#[test]
fn a_resource_over_the_limit_gives_the_spans_before_the_limit() {
    for text in layouts() {
        let whole = read(&text);
        // Up to the second resource, whose first span is at least partly beyond the limit of some
        // of these.
        for limit in 200..text.len() / 2 {
            let mut kept = Collected::default();
            let limits = Limits { record_bytes_max: limit, ..Limits::default() };
            crate::read(Format::OtlpJson, &mut text.as_bytes(), &"f".into(), &limits, &mut kept);
            let first = text.find('[').expect("a list") + 1;
            let first = first + text[first..].find('{').expect("a resource");
            let ids: Vec<_> = kept.spans.iter().map(|span| span.span_id).filter(|id| id.0 <= 2).collect();
            let expected: Vec<_> = before(&whole, first + limit).into_iter().filter(|id| id.0 <= 2).collect();
            assert_eq!(ids, expected, "{limit} of {text}: {:?}", kept.problems);
        }
    }
}

#[test]
fn a_mark_is_only_what_the_writer_writes() {
    let mark = r#"[{"key":"astracer.parent","value":{"boolValue":true}}]"#;
    let more = r#"[{"key":"astracer.parent","value":{"boolValue":true}},{"key":"a","value":{"intValue":1}}]"#;
    let link = |trace: u8, span: u8, attributes: &str| {
        format!(r#"{{"traceId":"{trace:032x}","spanId":"{span:016x}","attributes":{attributes}}}"#)
    };
    let span = one(&format!(
        r#""links":[{},{},{},{}],"traceId":"{:032x}""#,
        link(0xa, 2, mark),
        link(0xa, 0, mark),
        link(0xb, 3, mark),
        link(0xa, 4, more),
        0xa
    ));
    assert_eq!(span.parents[..], [SpanId(2)]);
    assert_eq!(span.links.len(), 3);
}

proptest! {
    #![proptest_config(cases(50))]

    /// On any input: no panic, and no span is delivered twice.
    #[test]
    fn mangled_requests_are_read_without_panic(
        spans in spans(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = write(&spans).into_bytes();
        bytes.push(b'\n');
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        prop_assert!(read(&bytes).spans.len() <= spans.len());
    }
}
