//! Realistic traces, rendered span by span, and traces written by our writer, read back.

use super::super::drawn::{self, collect};
use super::*;

mod round_trip;

#[track_caller]
fn check(input: impl AsRef<[u8]>, expected: &str) {
    drawn::check(read, input.as_ref(), expected);
}

/// A trace with one span, which has ids and these members.
#[track_caller]
fn check_span(members: &str, expected: &str) {
    let input = format!(r#"{{"traceID":"a","spans":[{{"spanID":"1","operationName":"n",{members}}}]}}"#);
    check(&input, &format!("1:24 a/1 \"n\"{expected}"));
}

const TRACE: &str = r#"{"traceID":"a","spans":[{"traceID":"a","spanID":"1","operationName":"n","references":[],
"startTime":5,"duration":7,"tags":[],"logs":[],"processID":"p1","warnings":null}],"processes":{"p1":
{"serviceName":"s","tags":[{"key":"k","type":"string","value":"v"}]}},"warnings":null}"#;

#[test]
fn the_query_apis_answer_bare_lists_and_single_traces() {
    let span = |place: &str| format!("{place} a/1 \"n\" 5000..12000 of {{service.name=\"s\" k=\"v\"}}\n");
    check(TRACE, &span("1:24"));
    check(format!("[{TRACE},{TRACE}]"), &(span("1:25") + &span("3:302")));
    check(
        format!("{{\"data\":[{TRACE},{TRACE}],\"total\":0,\"errors\":null}}"),
        &(span("1:33") + &span("3:310")),
    );
    check(format!("{TRACE}\n{TRACE}\n"), &(span("1:24") + &span("4:301")));
    let line = TRACE.replace('\n', "");
    check(format!("{line}\n{line}\n"), &(span("1:24") + &span("2:299")));
    check(r#"{"data":[]}{"data":null}{"data":[{"traceID":"1","spans":null}]}[]"#, "");
    check("{\"datum\":[]}", "f:1 (byte 0): bad record: expected a member 'data'");
}

#[test]
fn processes_may_stand_before_their_spans_or_inside_of_them() {
    check(
        r#"{"processes":{"p1":{"serviceName":"s"}},"spans":[
        {"traceID":"a","spanID":"1","processID":"p1"},
        {"traceID":"a","spanID":"2","processID":"p1","process":{"serviceName":"t","tags":[{"key":"k","value":1}]}},
        {"traceID":"a","spanID":"3","processID":"p2"},
        {"traceID":"a","spanID":"4","process":null}]}"#,
        r#"2:58 a/1 "" of {service.name="s"}
           3:113 a/2 "" of {service.name="t" k=1}
           f:4 (byte 229): bad record: span 0000000000000003 refers to a process that its trace does not define
           4:229 a/3 ""
           5:284 a/4 """#,
    );
}

#[test]
fn equal_processes_are_one_resource() {
    let read = collect(read, format!("[{TRACE},{TRACE}]").as_bytes());
    assert!(Arc::ptr_eq(&read.spans[0].resource, &read.spans[1].resource));
}

#[test]
fn a_service_that_had_no_name_gets_none() {
    check(
        r#"{"traceID":"a","processes":{"p":{"serviceName":"OTLPResourceNoServiceName","tags":[]}},
        "spans":[{"spanID":"1","processID":"p"}]}"#,
        r#"2:105 a/1 """#,
    );
}

#[test]
fn references_make_parents_and_links() {
    let rows = [
        (r#"{"refType":"CHILD_OF","traceID":"a","spanID":"2"}"#, " <2", ""),
        (r#"{"refType":"CHILD_OF","traceID":"0a","spanID":"3"},{"spanID":"2"}"#, " <3 <2", ""),
        // In Jaeger's own model a FOLLOWS_FROM is the parent if the trace has no CHILD_OF.
        (
            r#"{"refType":"FOLLOWS_FROM","spanID":"2"},{"refType":"FOLLOWS_FROM","spanID":"3"}"#,
            " <2",
            " ->/3",
        ),
        (r#"{"refType":"FOLLOWS_FROM","spanID":"2"},{"refType":"CHILD_OF","spanID":"3"}"#, " <3", " ->/2"),
        (
            r#"{"refType":"CHILD_OF","traceID":"b","spanID":"2"},{"refType":"FOLLOWS_FROM","traceID":"b","spanID":"3"}"#,
            "",
            " ->b/2 {opentracing.ref_type=\"child_of\"} ->b/3",
        ),
        (
            r#"{"refType":"CHILD_OF","traceID":"a","spanID":"0000"},{"refType":"CHILD_OF","traceID":"a"}"#,
            "",
            "",
        ),
    ];
    for (references, parents, links) in rows {
        let input = format!(r#"{{"traceID":"a","spans":[{{"spanID":"1","references":[{references}]}}]}}"#);
        check(&input, &format!("1:24 a/1{parents} \"\"{links}"));
    }
}

#[test]
fn the_parent_id_of_old_recordings_counts_where_no_reference_is_nearer() {
    let follows = r#""references":[{"refType":"FOLLOWS_FROM","spanID":"3"}]"#;
    for (members, drawn) in [
        (r#""parentSpanID":"2""#.to_owned(), " <2 \"\""),
        (r#""parentSpanID":"0""#.to_owned(), " \"\""),
        (format!(r#""parentSpanID":"2",{follows}"#), " <2 \"\" ->/3"),
        (r#""parentSpanID":"2","references":[{"spanID":"3"}]"#.to_owned(), " <3 \"\""),
    ] {
        let input = format!(r#"{{"traceID":"a","spans":[{{"spanID":"1",{members}}}]}}"#);
        check(&input, &format!("1:24 a/1{drawn}"));
    }
}

#[test]
fn spans_inside_references_are_stepped_over_however_deep() {
    let depth = 20_000;
    let open = r#"{"refType":"CHILD_OF","spanID":"2","span":{"references":["#.repeat(depth);
    let input = format!(
        r#"{{"data":[{{"traceID":"a","spans":[{{"spanID":"1","references":[{open}{}]}},{{"spanID":"3"}}]}}]}}"#,
        "]}}".repeat(depth)
    );
    let read = collect(read, input.as_bytes());
    assert_eq!(read.problems, [""; 0]);
    assert_eq!(
        read.spans.iter().map(|span| span.parents.to_vec()).collect::<Vec<_>>(),
        [vec![astracer_model::SpanId(2)], vec![]]
    );
}

#[test]
fn tags_have_their_types() {
    for (kind, value, drawn) in [
        ("string", r#""v""#, r#""v""#),
        ("string", "1", r#""1""#),
        ("string", "null", "-"),
        ("bool", "true", "true"),
        ("bool", r#""false""#, "false"),
        ("bool", r#""maybe""#, r#""maybe""#),
        ("int64", "-5", "-5"),
        ("int64", r#""9223372036854775807""#, "9223372036854775807"),
        ("int64", "9223372036854775808", r#""9223372036854775808""#),
        ("int64", "1.5", r#""1.5""#),
        ("float64", "1", "1.0"),
        ("float64", "0.1", "0.1"),
        ("float64", r#""-Infinity""#, "-inf"),
        ("float64", "1e999", r#""1e999""#),
        ("FLOAT64", "1", "1.0"),
        ("binary", r#""AQL/""#, "bytes[1, 2, 255]"),
        ("binary", r#""not base64!""#, r#""not base64!""#),
        ("", "7", "7"),
        ("", "7.0", "7.0"),
        ("", "1e999", r#""1e999""#),
        ("", "false", "false"),
        ("unheard of", "7", r#""7""#),
        ("string", r#"[1, {"a":"b"}]"#, r#""[1, {\"a\":\"b\"}]""#),
    ] {
        check_span(
            &format!(r#""tags":[{{"value":{value},"key":"k","type":"{kind}"}}]"#),
            &format!(" {{k={drawn}}}"),
        );
    }
}

#[test]
fn ids_of_zeros_are_no_ids() {
    let reference = r#"{"refType":"CHILD_OF","traceID":"0","spanID":"5"}"#;
    check(
        format!(r#"{{"traceID":"a","spans":[{{"spanID":"1","references":[{reference}]}}]}}"#),
        r#"1:24 a/1 <5 """#,
    );
    check_span(r#""references":[{"refType":"CHILD_OF","traceID":"a","spanID":"0"}],"parentSpanID":"0""#, "");
    check_span(r#""traceID":"0""#, "");
}

#[test]
fn some_tags_are_fields() {
    for (tags, drawn) in [
        (r#"{"key":"span.kind","value":"server"}"#, " Server"),
        (r#"{"key":"span.kind","value":"broker"}"#, r#" {span.kind="broker"}"#),
        (r#"{"key":"error","type":"bool","value":true}"#, " Error()"),
        (r#"{"key":"error","type":"string","value":"true"}"#, " Error()"),
        (r#"{"key":"error","type":"bool","value":false}"#, " {error=false}"),
        (r#"{"key":"error","type":"string","value":"refused"}"#, r#" {error="refused"}"#),
        (
            r#"{"key":"otel.status_code","value":"ERROR"},{"key":"otel.status_description","value":"d"}"#,
            " Error(d)",
        ),
        // The tag `error` decides, wherever it is in the list.
        (r#"{"key":"error","type":"bool","value":true},{"key":"otel.status_code","value":"OK"}"#, " Error()"),
        (
            r#"{"key":"otel.status_code","value":"UNSET"},{"key":"error","value":"true"},{"key":"otel.status_description","value":"d"}"#,
            " Error(d)",
        ),
        (r#"{"key":"otel.status_code","value":"OK"}"#, " Ok()"),
        (r#"{"key":"otel.status_code","value":"STATUS_CODE_OK"}"#, " Ok()"),
        (r#"{"key":"otel.status_code","value":"fine"}"#, r#" {otel.status_code="fine"}"#),
        (r#"{"key":"otel.scope.name","value":"l"},{"key":"otel.scope.version","value":"1"}"#, " by l@1"),
        (r#"{"key":"otel.library.name","value":"l"},{"key":"otel.library.version","value":"1"}"#, " by l@1"),
        (
            r#"{"key":"otel.library.name","value":"old"},{"key":"otel.scope.name","value":"new"}"#,
            r#" {otel.library.name="old"} by new@"#,
        ),
        (r#"{"key":"w3c.tracestate","value":"a=b,c=d"}"#, " state=a=b,c=d"),
        (
            r#"{"key":"otel.dropped_attributes_count","type":"int64","value":2},{"key":"otel.dropped_events_count","type":"string","value":"3"},{"key":"otel.dropped_links_count","type":"int64","value":-4}"#,
            " {otel.dropped_links_count=-4 -2} -3 events",
        ),
    ] {
        check_span(&format!(r#""tags":[{tags}]"#), drawn);
    }
}

#[test]
fn logs_are_events() {
    check_span(
        r#""logs":[{"timestamp":3,"fields":[{"key":"a","type":"int64","value":1},{"key":"event","type":"string","value":"e"},
        {"key":"event","type":"string","value":"f"}]},{"fields":null},{"timestamp":"4","fields":[{"key":"event","type":"bool","value":true},
        {"key":"otel.dropped_attributes_count","type":"int64","value":5}]}]"#,
        r#" @3000 "e" {a=1 event="f"} @0 "" @4000 "" {event=true -5}"#,
    );
}

#[test]
fn times_are_numbers_or_text_and_may_be_missing() {
    for (members, drawn) in [
        (r#""startTime":1,"duration":2"#, " 1000..3000"),
        (r#""startTime":"1","duration":"2""#, " 1000..3000"),
        (r#""startTime":1.5,"duration":0.25"#, " 1500..1750"),
        (r#""startTime":1e3,"duration":0"#, " 1000000..1000000"),
        (r#""startTime":1"#, " 1000..?"),
        (r#""duration":1"#, ""),
        (r#""startTime":5,"duration":-2"#, " 5000..3000"),
        (r#""startTime":18446744073709551,"duration":0"#, " 18446744073709551000..18446744073709551000"),
    ] {
        check_span(members, drawn);
    }
}

#[test]
fn times_that_make_no_sense_are_problems_at_their_byte() {
    for (members, problem) in [
        (r#""startTime":-1"#, "f:1 (byte 70): bad record: expected microseconds since 1970"),
        (r#""startTime":18446744073709552"#, "f:1 (byte 70): bad record: expected microseconds since 1970"),
        (r#""startTime":1e400"#, "f:1 (byte 70): bad record: expected a number of microseconds"),
        (r#""startTime":true"#, "f:1 (byte 70): bad record: expected a number of microseconds"),
        (r#""startTime":{}"#, "f:1 (byte 70): bad record: expected a simple value"),
        (r#""duration":"soon""#, "f:1 (byte 69): bad record: expected a number of microseconds"),
        (
            r#""duration":1e300,"startTime":0"#,
            "f:1 (byte 69): bad record: the span's end is outside the years 1970 to 2554",
        ),
        (
            r#""duration":9223372036854775,"startTime":9999999999999999"#,
            "f:1 (byte 69): bad record: the span's end is outside the years 1970 to 2554",
        ),
        (
            r#""duration":-2,"startTime":1"#,
            "f:1 (byte 69): bad record: the span's end is outside the years 1970 to 2554",
        ),
    ] {
        let input = format!(r#"{{"traceID":"a","spans":[{{"spanID":"1","operationName":"n",{members}}}]}}"#);
        check(&input, problem);
    }
}

#[test]
fn flags_and_warnings_are_kept() {
    check_span(r#""flags":1"#, " flags=1");
    check_span(r#""flags":3"#, " {jaeger.flags=3} flags=1");
    check_span(r#""flags":8"#, " {jaeger.flags=8}");
    check_span(r#""warnings":["w",null]"#, r#" {@jaeger@warnings=["w" ""]}"#);
    check_span(r#""warnings":null"#, "");
}

#[test]
fn ids_that_are_none_are_hashed_and_named() {
    let read = collect(
        read,
        br#"{"traceID":"trace-1","spans":[{"spanID":"span-A"},
        {"spanID":"0123456789abcdef0","references":[{"refType":"CHILD_OF","spanID":"span-A"}]},{"spanID":"b"}]}"#,
    );
    let [a, long, b] = &read.spans[..] else { panic!("{read:?}") };
    // FNV-1a with 128 bits of "trace-1", and the exclusive or of the halves for "span-A".
    assert_eq!(a.trace_id.to_string(), "3f343f2e264ff78ddf882912caaf3a10");
    assert_eq!(a.span_id.to_string(), "14e2b6ecaae76d20");
    assert_eq!(long.parents.to_vec(), [a.span_id]);
    assert_ne!(long.span_id, a.span_id);
    assert_eq!(b.span_id, astracer_model::SpanId(0xb));
    assert_eq!(read.problems.len(), 3);
    assert_eq!(
        read.problems[2],
        format!(
            "f:2 (byte 146): an id is not hexadecimal, a hash of it is used: read as span 000000000000000b of trace {}",
            a.trace_id
        )
    );
}

#[test]
fn bad_records_are_problems_at_their_byte_and_their_neighbours_come() {
    check(
        r#"{"data":[{"traceID":"a","spans":[{"spanID":"1"},
        {"operationName":"no id"},
        {"spanID":"2","tags":{"k":"v"}},
        7,
        {"spanID":3},
        {"spanID":"4","logs":[{"timestamp":[]}]},
        {"spanID":"5","operationName":"\ud800"},
        {"spanID":"6"}],
        "processes":{"p":{"serviceName":[]},"q":null}},
        "no trace",{"traceID":[],"spans":[{"spanID":"7"}]},
        {"traceID":"b","spans":{"spanID":"8"}},
        {"spans":[{"spanID":"9"}]},
        {"traceID":"c","spans":[{"spanID":"a"}]}]}"#,
        r#"f:9 (byte 322): bad record: expected a string
           1:33 a/1 ""
           f:2 (byte 57): bad record: span without a traceID or a spanID
           f:3 (byte 113): bad record: expected a list
           f:4 (byte 133): bad record: expected an object
           f:5 (byte 154): bad record: expected a string
           f:6 (byte 201): bad record: expected a simple value
           f:7 (byte 216): text that is not Unicode, U+FFFD replaces it: span 0000000000000005
           7:216 a/5 "�"
           8:265 a/6 ""
           f:10 (byte 346): bad record: expected an object
           f:10 (byte 368): bad record: expected a string
           f:11 (byte 429): bad record: expected a list
           f:12 (byte 464): bad record: span without a traceID or a spanID
           13:514 c/a """#,
    );
}

#[test]
fn invalid_utf8_costs_no_span() {
    let spoil =
        |text: &str| text.bytes().map(|byte| if byte == b'?' { 0xff } else { byte }).collect::<Vec<_>>();
    check(
        spoil(r#"{"traceID":"a","spans":[{"spanID":"1","operationName":"?"},{"spanID":"2"}]}"#),
        "f:1 (byte 24): text that is not Unicode, U+FFFD replaces it: span 0000000000000001
         1:24 a/1 \"�\"
         1:59 a/2 \"\"",
    );
    // Invalid UTF-8 is harmless in skipped values, and replaced in a value kept as text.
    check(
        spoil(
            r#"{"traceID":"a","spans":[{"spanID":"1","x":["?"]},{"spanID":"2","tags":[{"value":["?"]}]}]}"#,
        ),
        "1:24 a/1 \"\"
         f:1 (byte 49): text that is not Unicode, U+FFFD replaces it: span 0000000000000002
         1:49 a/2 \"\" {=\"[\\\"�\\\"]\"}",
    );
}

#[test]
fn of_a_trace_that_is_cut_off_come_the_spans_before_the_cut() {
    let trace = r#"{"traceID":"a","spans":[{"spanID":"1","processID":"p"},{"spanID":"2","processID":"p"}],"processes":{"p":{"serviceName":"s"}}}"#;
    let whole = [1, 2].map(|id| format!("1:{} a/{id} \"\" of {{service.name=\"s\"}}", 24 + (id - 1) * 31));
    check(trace, &whole.join("\n"));
    for end in 1..trace.len() {
        let read = collect(read, &trace.as_bytes()[..end]);
        assert_eq!(read.problems.len(), 1, "{end}: {}", read.drawing);
        assert!(read.problems[0].contains("ends too early"), "{end}: {}", read.drawing);
        let spans = usize::from(end >= 54) + usize::from(end >= 85);
        assert_eq!(read.spans.len(), spans, "{end}: {}", read.drawing);
    }
}

#[test]
fn a_reader_stops_when_the_sink_wants_no_more() {
    struct One(usize);
    impl Sink for One {
        fn span(&mut self, _: astracer_model::Span<'_>, _: astracer_model::sink::Record<'_>) {
            self.0 += 1;
        }
        fn problem(&mut self, problem: astracer_model::Problem) {
            panic!("{problem}");
        }
        fn skipped(&mut self, _: &Arc<str>, _: &str) {}
        fn stopped(&self) -> bool {
            self.0 == 1
        }
    }
    for input in [
        format!("[{TRACE},{TRACE}]"),
        r#"{"traceID":"a","spans":[{"spanID":"1"},{"spanID":"2"}]}"#.to_owned(),
    ] {
        let mut sink = One(0);
        read(&mut input.as_bytes(), &"f".into(), &Limits::default(), &mut sink);
        assert_eq!(sink.0, 1);
    }
}
