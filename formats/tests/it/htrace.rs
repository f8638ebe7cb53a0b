use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use astracer_formats::Limits;
use astracer_formats::htrace::write_span;
use astracer_model::sink::Record;
use astracer_model::span::{Event, Link, Resource, Scope, SpanKind, Status};
use astracer_model::value::{Attribute, Value};
use astracer_model::{Format, Problem, ProblemKind, Sink, Span, SpanId, TraceId, UnixNanos};

use crate::collected::Collected;
use crate::sample;

fn read(text: impl AsRef<[u8]>) -> Collected {
    let collected = Collected::from_text(Format::HTrace, text.as_ref());
    collected.assert_places(text.as_ref());
    collected
}

#[track_caller]
fn read_one(text: &str) -> Span<'static> {
    let mut collected = read(text);
    assert_eq!(collected.problems, []);
    assert_eq!(collected.spans.len(), 1);
    assert_eq!(collected.records[0].1, text.as_bytes());
    collected.spans.remove(0)
}

#[track_caller]
fn reason(text: &str) -> String {
    let collected = read(text);
    assert_eq!(collected.names(), [""; 0]);
    assert_eq!(collected.kinds(), [ProblemKind::BadRecord]);
    collected.problems[0].detail.clone()
}

#[test]
fn every_field_of_htrace_4() {
    let span = read_one(
        r#"{"a":"00000000000000aa00000000000000bb","b":1424736225037,"e":1424736225901,"d":"open \"x\"","r":"FsShell",
        "p":["00000000000000aa00000000000000cc","00000000000000aa00000000000000dd"],
        "n":{"path":"/\u00e9","bytes":12},"t":[{"t":1424736225100,"m":"asked"},{"t":1424736225200,"m":"told"}]}"#,
    );
    assert_eq!(span.trace_id, TraceId(0xaa));
    assert_eq!(span.span_id, SpanId(0xbb));
    assert_eq!(span.parents[..], [SpanId(0xcc), SpanId(0xdd)]);
    assert_eq!(span.name, "open \"x\"");
    assert_eq!(span.start, Some(UnixNanos(1_424_736_225_037_000_000)));
    assert_eq!(span.end, Some(UnixNanos(1_424_736_225_901_000_000)));
    assert_eq!(span.resource.service_name(), "FsShell");
    let path = Attribute::new("path", "/é");
    let bytes = Attribute { key: "bytes".into(), value: Value::Int(12) };
    assert_eq!(span.attributes, [path, bytes]);
    let events: Vec<_> = span.events.iter().map(|event| (event.time.0, &*event.name)).collect();
    assert_eq!(events, [(1_424_736_225_100_000_000, "asked"), (1_424_736_225_200_000_000, "told")]);
    assert_eq!(span.links, []);
}

#[test]
fn a_parent_in_another_trace_is_a_link() {
    let span = read_one(
        r#"{"a":"000000000000000a0000000000000001","b":1,"p":["000000000000000b0000000000000002","000000000000000a0000000000000003"]}"#,
    );
    assert_eq!(span.parents[..], [SpanId(3)]);
    assert_eq!(span.links, [Link { trace_id: TraceId(0xb), span_id: SpanId(2), ..Link::default() }]);
}

#[test]
fn htrace_3_has_two_ids_and_zeros_for_an_unknown_trace() {
    let span = read_one(
        r#"{"i":"a3573e44001d6b0a","s":"fb167ae609426bf7","b":5,"e":6,"d":"x","r":"W","p":["ffffffffffffffff"]}"#,
    );
    assert_eq!(span.trace_id, TraceId(0xa3573e44001d6b0a));
    assert_eq!(span.span_id, SpanId(0xfb167ae609426bf7));
    assert_eq!(span.parents[..], [SpanId(u64::MAX)]);
    assert_eq!(read_one(r#"{"i":"0000000000000000","s":"1","b":5,"p":["2"]}"#).trace_id, TraceId::ZERO);
    assert_eq!(read_one(r#"{"s":"1","b":5,"p":["2"]}"#).trace_id, TraceId::ZERO);
}

#[test]
fn htrace_2_has_long_names_and_signed_ids() {
    let span = read_one(
        r#"{"SpanID":-2,"TraceID":7,"ParentID":-9,"Start":1000,"Stop":1001,"Description":"get","Annotations":{}}"#,
    );
    assert_eq!((span.trace_id, span.span_id), (TraceId(7), SpanId(u64::MAX - 1)));
    assert_eq!(span.parents[..], [SpanId((-9i64) as u64)]);
    assert_eq!(span.start, Some(UnixNanos(1_000_000_000)));
    assert_eq!(span.name, "get");
    // 477902 means "no parent".
    let root = read_one(r#"{"SpanID":3,"TraceID":7,"ParentID":477902,"Start":1}"#);
    assert!(root.parents.is_empty());
}

#[test]
fn zeros_are_no_parent() {
    for text in [
        r#"{"i":"7","s":"1","b":5,"p":["0"]}"#,
        r#"{"i":"7","s":"1","b":5,"p":["0000000000000000"]}"#,
        r#"{"SpanID":1,"TraceID":7,"ParentID":0,"Start":1}"#,
        r#"{"a":"000000000000000a0000000000000001","b":1,"p":["00000000000000000000000000000000"]}"#,
        r#"{"a":"000000000000000a0000000000000001","b":1,"p":["000000000000000a0000000000000000"]}"#,
    ] {
        let span = read_one(text);
        assert_eq!((span.parents.len(), span.links.len()), (0, 0), "{text}");
    }
}

#[test]
fn what_is_left_out_or_null_or_unknown_does_no_harm() {
    let span = read_one(
        r#"{"x":[{"a":1}],"a":"00000000000000aa00000000000000bb","b":null,"e":0,"d":null,"r":null,"p":null,"n":null,"t":null}"#,
    );
    assert_eq!((span.start, span.end), (None, None));
    assert_eq!(span.name, "");
    assert_eq!(span.resource.attributes, []);
}

#[test]
fn a_bad_object_gives_a_reason() {
    const ID: &str = r#""a":"00000000000000aa00000000000000bb""#;
    for (text, expected) in [
        (r#"{"b":1,"d":"x"}"#.to_owned(), "span without an id: expected a member 'a' or 's'"),
        (r#"{"a":"00000000000000aa0000000000000000"}"#.to_owned(), "the span id is zero"),
        (
            r#"{"a":"aa"}"#.to_owned(),
            "invalid id: 'a' must have 32 hexadecimal digits, 'i' and 's' at most 16",
        ),
        (
            r#"{"s":"aa","i":"00000000000000aa00000000000000bb"}"#.to_owned(),
            "invalid id: 'a' must have 32 hexadecimal digits, 'i' and 's' at most 16",
        ),
        (r#"{"a":"zz"}"#.to_owned(), "invalid id"),
        (r#"{"a":true}"#.to_owned(), "invalid id"),
        (r#"{"s":1.5}"#.to_owned(), "invalid id"),
        (format!(r#"{{{ID},"b":"yesterday"}}"#), "expected a number"),
        (format!(r#"{{{ID},"b":-5}}"#), "expected a non-negative number"),
        (format!(r#"{{{ID},"b":18446744073709551615}}"#), "the time is outside the years 1970 to 2554"),
        (format!(r#"{{{ID},"b":1e999}}"#), "number out of range"),
        (format!(r#"{{{ID},"p":"aa"}}"#), "expected a list"),
        (format!(r#"{{{ID},"n":"aa"}}"#), "expected an object"),
        ("true".to_owned(), "expected an object or a list"),
    ] {
        assert_eq!(reason(&text), expected, "{text}");
    }
}

fn span(name: &str) -> String {
    format!(r#"{{"a":"00000000000000aa00000000000000bb","b":1,"e":2,"d":"{name}","n":{{"k":"v"}}}}"#)
}

#[test]
fn objects_may_follow_each_other_in_any_way() {
    let (a, b, c) = (span("a"), span("b"), span("c"));
    for text in [
        format!("{a}{b}{c}"),
        format!("{a}\n{b}\n{c}\n"),
        format!("\u{feff}\n\n  {a}\r\n\r\n{b}\t{c}   "),
        format!("[{a},{b}, {c}]"),
        format!("[{a}]\n[{b},{c}]"),
        format!("{a}{b}\n{c}").replace(',', ",\n  "),
    ] {
        let collected = read(&text);
        assert_eq!(collected.names(), ["a", "b", "c"], "{text}");
        assert_eq!(collected.problems, [], "{text}");
    }
}

#[test]
fn good_spans_come_from_around_bad_ones() {
    let (a, b, c) = (span("a"), span("b"), span("c"));
    for bad in [
        // The brackets match, the content is wrong.
        r#"{"a":5e9,"n":{"x":"}{\""}}"#,
        r#"{"d":"no id","n":{"k":[{},{}]}}"#,
        // The brackets do not match.
        r#"{"a":"00000000000000aa00000000000000bb" "b":1}"#,
        r#"{"a":"00000000000000aa00000000000000bb","n":{"k":{"#,
        r#"{"a":"00000000000000aa00000000000000bb","n":{"k":{"x":"y"}"#,
        r#"{"a":"00000000000000aa0000000"#,
        "2026-11-21 00:51:21,732 INFO a log line",
        "}}}",
    ] {
        let text = format!("{a}\n{b}\n{bad}\n{c}\n");
        let collected = read(&text);
        assert_eq!(collected.names(), ["a", "b", "c"], "{bad}");
        let [(ProblemKind::BadRecord, 3, byte)] = collected.places()[..] else {
            panic!("{:?}", collected.problems)
        };
        let start = (a.len() + b.len() + 2) as u64;
        assert!((start..=start + bad.len() as u64).contains(&byte), "{bad} at {start}: {byte}");
    }
    for bad in [
        r#"{"a":5e9,"n":{"x":"}{\""}}"#,
        r#"{"a":"00000000000000aa00000000000000bb" "b":1}"#,
        r#"{"a":"00000000000000aa00000000000000bb","n":{"k":"v"}"#,
        "}",
    ] {
        // All on one line, as HTrace 4.0.1 writes.
        let collected = read(format!("{a}{bad}{b}{c}"));
        assert_eq!(collected.names(), ["a", "b", "c"], "{bad}");
        let [(ProblemKind::BadRecord, 1, byte)] = collected.places()[..] else {
            panic!("{:?}", collected.problems)
        };
        let start = a.len() as u64;
        assert!((start..=start + bad.len() as u64).contains(&byte), "{bad} at {start}: {byte}");
    }
    let invalid_utf_8 = [a.as_bytes(), b"\n{\"d\":\"\xff\"}\n", b.as_bytes()].concat();
    let collected = read(&invalid_utf_8);
    assert_eq!(collected.names(), ["a", "b"]);
    assert_eq!(collected.places(), [(ProblemKind::BadRecord, 2, a.len() as u64 + 1)]);
}

#[test]
fn deep_nesting_is_over_a_limit() {
    let deep = format!(r#"{{"n":{{"k":{}{}}}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let collected = read(format!("{}\n{deep}\n{}", span("a"), span("b")));
    assert_eq!(collected.names(), ["a", "b"]);
    assert_eq!(collected.kinds(), [ProblemKind::Limit]);
}

#[test]
fn a_cut_file_keeps_its_whole_spans() {
    let text = format!("{}\n{}", span("a"), span("b"));
    for len in 0..text.len() {
        let collected = read(&text[..len]);
        let whole = usize::from(len >= span("a").len());
        assert_eq!(collected.spans.len(), whole, "cut to {len} bytes");
        let is_cut_inside = len > whole * (span("a").len() + 1) && len != span("a").len();
        let expected = if is_cut_inside { vec![ProblemKind::Truncated] } else { vec![] };
        assert_eq!(collected.kinds(), expected, "cut to {len} bytes");
    }
}

#[test]
fn an_object_over_the_limit_is_left_out() {
    let limits = Limits { record_bytes_max: 1000, ..Limits::default() };
    let long = span(&"x".repeat(5000));
    let text = format!("{}\n{long}\n{}\n{long}{}", span("a"), span("b"), span("c"));
    let collected = Collected::from_text_within(Format::HTrace, &text, &limits);
    assert_eq!(collected.names(), ["a", "b", "c"]);
    let second = (text.len() - long.len() - span("c").len()) as u64;
    let first = span("a").len() as u64 + 1;
    assert_eq!(collected.places(), [(ProblemKind::Limit, 2, first), (ProblemKind::Limit, 4, second)]);
    // The largest record that fits.
    let fits = span(&"x".repeat(1000 - span("").len()));
    assert_eq!(Collected::from_text_within(Format::HTrace, fits, &limits).spans.len(), 1);
}

#[test]
fn a_sink_that_wants_no_more_gets_no_more() {
    let mut collected = Collected { stop_after: Some(2), ..Collected::default() };
    let text = span("a").repeat(5);
    astracer_formats::read(
        Format::HTrace,
        &mut text.as_bytes(),
        &"f".into(),
        &Limits::default(),
        &mut collected,
    );
    assert_eq!(collected.spans.len(), 2);
}

#[test]
fn real_files() {
    let text = std::fs::read(sample("hdfs283/spans/client-3.json")).unwrap();
    let collected = read(&text);
    assert_eq!(collected.problems, []);
    // Counted with grep: 20 line ends, and 144 times "}{".
    assert_eq!(collected.spans.len(), 165);
    assert_eq!(collected.records[164].0.line, 21);
    assert_eq!(collected.spans[164].name, "ClientNamenodeProtocol#addBlock");
    assert_eq!(collected.spans[164].trace_id, TraceId(0x93ca477096cd094b));
    assert_eq!(collected.spans[164].span_id, SpanId(0x836ecacf2adf0aa0));
    assert_eq!(collected.spans[164].parents[..], [SpanId(0x8708280ff2cc3947)]);

    let text = std::fs::read(sample("hdfs273/spans/dn1.json")).unwrap();
    let collected = read(&text);
    assert_eq!(collected.problems, []);
    assert_eq!(collected.spans.len(), 40);
    assert!(collected.spans.iter().any(|span| span.trace_id == TraceId::ZERO && !span.parents.is_empty()));

    let collected = read(std::fs::read(sample("htrace4_sample_spans.jsonl")).unwrap());
    assert_eq!(collected.problems, []);
    assert_eq!(
        collected.names(),
        ["ClientNamenodeProtocol#getFileInfo", "getFileInfo", "getFileDescriptors", "getFileDescriptors2"]
    );
    assert_eq!(collected.spans[3].events.len(), 2);
}

/// An endless line: the same objects repeated without a newline.
struct OneLine<'c> {
    period: Vec<u8>,
    given: &'c Cell<u64>,
    bytes: u64,
}

impl Read for OneLine<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let given = self.given.get();
        let at = (given % self.period.len() as u64) as usize;
        let left = (self.bytes - given).min((self.period.len() - at) as u64) as usize;
        let count = left.min(out.len());
        out[..count].copy_from_slice(&self.period[at..at + count]);
        self.given.set(given + count as u64);
        Ok(count)
    }
}

/// Measures the distance by which the reader is ahead of the spans it delivered.
struct Ahead<'c> {
    given: &'c Cell<u64>,
    bytes_max: u64,
    spans: u64,
}

impl Sink for Ahead<'_> {
    fn span(&mut self, _: Span<'_>, record: Record<'_>) {
        self.spans += 1;
        self.bytes_max = self.bytes_max.max(self.given.get() - record.place.byte);
    }

    fn problem(&mut self, problem: Problem) {
        panic!("{problem}");
    }

    fn skipped(&mut self, _: &Arc<str>, _: &str) {}
}

#[test]
fn a_line_of_120_megabytes_is_held_in_small_parts() {
    // Long names keep the number of records, and so the test's duration, small.
    let period: String = (0..8).map(|n| span(&n.to_string().repeat(8 << 10))).collect();
    let bytes = (120 << 20) / period.len() as u64 * period.len() as u64;
    let given = Cell::new(0);
    let line = OneLine { period: period.into_bytes(), given: &given, bytes };
    let spans = bytes / line.period.len() as u64 * 8;
    let mut ahead = Ahead { given: &given, bytes_max: 0, spans: 0 };
    astracer_formats::read(
        Format::HTrace,
        &mut BufReader::new(line),
        &"f".into(),
        &Limits::default(),
        &mut ahead,
    );
    assert_eq!((given.get(), ahead.spans), (bytes, spans));
    assert!(ahead.bytes_max < 2 << 20, "{} bytes ahead", ahead.bytes_max);
}

fn written(span: &Span<'_>) -> String {
    let mut line = Vec::new();
    write_span(&mut line, span);
    String::from_utf8(line).unwrap()
}

#[test]
fn what_htrace_4_wrote_is_written_again_as_it_was() {
    for name in ["hdfs283/spans/client-3.json", "htrace4_sample_spans.jsonl"] {
        let collected = read(std::fs::read(sample(name)).unwrap());
        for (span, (place, record)) in collected.spans.iter().zip(&collected.records) {
            let (ours, theirs): (serde_json::Value, serde_json::Value) =
                (serde_json::from_str(&written(span)).unwrap(), serde_json::from_slice(record).unwrap());
            assert_eq!(ours, theirs, "{place}");
        }
    }
}

#[test]
fn a_span_of_another_format_keeps_what_htrace_can_hold() {
    let mut resource = Resource::service("shop");
    resource.attributes.push(Attribute::new("host.name", "a1"));
    let full = Span {
        trace_id: TraceId(0x1111_2222_3333_4444_5555_6666_7777_8888),
        span_id: SpanId(0x99),
        parents: [SpanId(0xaa), SpanId(0xbb)].into_iter().collect(),
        name: "GET \"/\"\n".into(),
        kind: SpanKind::Server,
        start: Some(UnixNanos(1_500_000_000_123_456_789)),
        end: Some(UnixNanos(1_500_000_000_124_000_000)),
        status: Status::Error,
        status_message: "late".into(),
        attributes: vec![
            Attribute { key: "http.status".into(), value: Value::Int(500) },
            Attribute::new("span.kind", "odd"),
            Attribute::new("host.name", "of the span"),
        ],
        events: vec![
            Event { time: UnixNanos(1_500_000_000_123_500_000), name: "retry".into(), ..Event::default() },
            Event::default(),
        ],
        links: vec![
            Link { trace_id: TraceId(0xcc), span_id: SpanId(0xdd), ..Link::default() },
            Link { trace_id: TraceId(0x5555_6666_7777_8888), span_id: SpanId(0xee), ..Link::default() },
        ],
        dropped_events: 3,
        trace_state: "a=b".into(),
        resource: Arc::new(resource),
        scope: Arc::new(Scope { name: "lib".into(), version: "1".into(), ..Scope::default() }),
        ..Span::default()
    };
    let expected = concat!(
        r#"{"a":"55556666777788880000000000000099","b":1500000000123,"e":1500000000124,"d":"GET \"/\"\n","r":"shop","#,
        r#""p":["555566667777888800000000000000aa","555566667777888800000000000000bb","00000000000000cc00000000000000dd"],"#,
        r#""n":{"span.kind":"server","otel.status_code":"ERROR","otel.status_description":"late","#,
        r#""otel.scope.name":"lib","otel.scope.version":"1","w3c.tracestate":"a=b","otel.dropped_events_count":"3","#,
        r#""http.status":"500","host.name":"of the span"},"t":[{"t":1500000000123,"m":"retry"},{"m":""}]}"#,
    );
    assert_eq!(written(&full), expected);
    let back = read_one(expected);
    assert_eq!((back.kind, back.status, &*back.status_message), (SpanKind::Server, Status::Error, "late"));
    assert_eq!((&*back.scope.name, &*back.scope.version), ("lib", "1"));
    assert_eq!((&*back.trace_state, back.dropped_events), ("a=b", 3));
    assert_eq!(
        back.attributes,
        [Attribute::new("http.status", "500"), Attribute::new("host.name", "of the span")]
    );
    assert_eq!(written(&back), expected);

    let empty = Span { span_id: SpanId(1), start: Some(UnixNanos(999_999)), ..Span::default() };
    assert_eq!(written(&empty), r#"{"a":"00000000000000000000000000000001","p":[]}"#);
}

#[test]
fn the_writer_writes_a_line_for_each_span() {
    let text = std::fs::read(sample("hdfs283/spans/client-3.json")).unwrap();
    let collected = read(&text);
    let mut out = Vec::new();
    let mut writer = astracer_formats::writer(Format::HTrace, Box::new(&mut out)).unwrap();
    for trace in collected.spans.chunks(10) {
        writer.trace(trace).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 165);
    assert_eq!(read(&out).spans, collected.spans);
}
