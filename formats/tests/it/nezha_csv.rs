use astracer_formats::Limits;
use astracer_model::span::lookup;
use astracer_model::{Format, ProblemKind, SpanId, TraceId, UnixNanos, Value};

use crate::collected::Collected;
use crate::sample;

const HEADER: &str =
    "TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano,Duration\n";

fn read(text: impl AsRef<[u8]>) -> Collected {
    let collected = Collected::from_text(Format::NezhaCsv, text.as_ref());
    collected.assert_places(text.as_ref());
    collected
}

#[test]
fn a_row_is_a_span() {
    let row = "898fbabdd1894463575af052c4cd7982,f613c6a34f920926,233d5101e107e112,ts-order-service-6f6cfc45b-h5m2n,\
               HTTP GET,1674982159219813595,1674982159246951110,27137";
    let collected = read(format!("{HEADER}{row}\r\n"));
    assert_eq!(collected.problems, []);
    let [span] = &collected.spans[..] else { panic!("{:?}", collected.spans) };
    assert_eq!(span.trace_id, TraceId(0x898fbabdd1894463575af052c4cd7982));
    assert_eq!(span.span_id, SpanId(0xf613c6a34f920926));
    assert_eq!(span.parents[..], [SpanId(0x233d5101e107e112)]);
    assert_eq!(span.name, "HTTP GET");
    assert_eq!(span.start, Some(UnixNanos(1_674_982_159_219_813_595)));
    assert_eq!(span.end, Some(UnixNanos(1_674_982_159_246_951_110)));
    assert_eq!(span.resource.service_name(), "ts-order-service");
    let pod = lookup(&span.resource.attributes, "k8s.pod.name");
    assert_eq!(pod, Some(&Value::from("ts-order-service-6f6cfc45b-h5m2n")));
    assert_eq!(collected.records[0].1, row.as_bytes(), "without its line's end");
}

#[test]
fn columns_stand_where_the_header_says() {
    let collected = read(
        "\u{feff}StartTimeUnixNano,\"OperationName\",Extra,SpanID,Duration, traceid \n\
         5000,\"a, \"\"b\"\"\",x,2,3,1\n\
         6000,c,x,3,,1\n\
         StartTimeUnixNano,SpanID,TraceID\n\
         7000,4,1\n",
    );
    assert_eq!(collected.problems, []);
    assert_eq!(collected.names(), ["a, \"b\"", "c", ""]);
    // The end follows from the duration in microseconds, or is unknown.
    let ends: Vec<_> = collected.spans.iter().map(|span| span.end).collect();
    assert_eq!(ends, [Some(UnixNanos(8000)), None, None]);
    assert_eq!(collected.spans[2].span_id, SpanId(4));
    assert_eq!(collected.records[0].1, b"5000,\"a, \"\"b\"\"\",x,2,3,1");
}

#[test]
fn a_root_says_root() {
    let collected = read(format!("{HEADER}1,2,root,frontend,GET,1,2,\n1,3,,a-b,GET,1,2,\n"));
    assert!(collected.spans.iter().all(|span| span.parents.is_empty()));
    let zeros = read(format!("{HEADER}1,2,0000000000000000,a,GET,1,2,\n"));
    assert!(zeros.spans[0].parents.is_empty());
    let services: Vec<_> = collected.spans.iter().map(|span| span.resource.service_name()).collect();
    // The name has too few parts for a deployment's pod and is used unchanged.
    assert_eq!(services, ["frontend", "a-b"]);
}

#[test]
fn bad_rows_are_named_and_the_others_come() {
    let good = "1,2,root,a,good,1,2,\n";
    for (row, reason) in [
        ("x,2,root,a,b,1,2,", "invalid TraceID 'x'"),
        ("1,,root,a,b,1,2,", "invalid SpanID ''"),
        ("1,0,root,a,b,1,2,", "invalid SpanID '0'"),
        ("1,2,none,a,b,1,2,", "invalid ParentID 'none'"),
        ("1,2,root,a,b,-1,2,", "invalid StartTimeUnixNano '-1'"),
        ("1,2,root,a,b,99999999999999999999,2,", "invalid StartTimeUnixNano '99999999999999999999'"),
        ("1,2,root,a,b,1,soon,", "invalid EndTimeUnixNano 'soon'"),
        ("1,2,root,a,b,1,,long", "invalid Duration 'long'"),
        ("1,2,root,a,b,1,,18446744073709551615", "invalid Duration '18446744073709551615'"),
        ("1,2", "invalid StartTimeUnixNano ''"),
        // A stray quote consumes only the rest of its line.
        ("1,2,root,a,\"b,1,2,", "invalid StartTimeUnixNano ''"),
    ] {
        let collected = read(format!("{HEADER}{good}{row}\n{good}"));
        assert_eq!(collected.names(), ["good", "good"], "{row}");
        let byte = (HEADER.len() + good.len()) as u64;
        assert_eq!(collected.places(), [(ProblemKind::BadRecord, 3, byte)], "{row}");
        assert_eq!(collected.problems[0].detail, reason, "{row}");
    }
    let collected = read([HEADER.as_bytes(), b"1,2,root,a,\xff,1,2,\n", good.as_bytes()].concat());
    assert_eq!(collected.names(), ["good"]);
    assert_eq!(collected.problems[0].detail, "invalid UTF-8");
    let collected = read(good);
    assert_eq!(collected.kinds(), [ProblemKind::BadRecord], "no header");
}

#[test]
fn a_row_over_the_limit_is_left_out() {
    let limits = Limits { record_bytes_max: 200, ..Limits::default() };
    let text = format!("{HEADER}1,2,root,a,{},1,2,\n1,3,root,a,b,1,2,", "x".repeat(100_000));
    let collected = Collected::from_text_within(Format::NezhaCsv, text, &limits);
    assert_eq!(collected.places(), [(ProblemKind::Limit, 2, HEADER.len() as u64)]);
    assert_eq!(collected.names(), ["b"]);
}

#[test]
fn a_real_file() {
    let collected = read(std::fs::read(sample("trainticket/trace/08_50_trace.csv")).unwrap());
    assert_eq!(collected.problems, []);
    assert_eq!(collected.spans.len(), 138);
    assert_eq!(collected.spans.iter().filter(|span| span.parents.is_empty()).count(), ROOTS);
    assert!(collected.spans.iter().all(|span| span.resource.service_name().ends_with("-service")));
}

/// Counted with `grep -c ,root,`.
const ROOTS: usize = 2;
