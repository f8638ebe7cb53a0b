//! Joined spans, rendered as trees; counted problems are in brackets.

use std::sync::Arc;

use super::*;
use crate::stop::Pulse;
use astracer_model::sink::{Record, Sink};
use astracer_model::span::{Parents, Resource};
use astracer_model::value::{Attribute, Value};
use astracer_model::{Problem, ProblemKind, TraceId, UnixNanos};

/// One span per line: `trace id parents name start end [service] [kind]`. A `-` is an absent field,
/// parents are separated by commas, and times are in ns.
fn intake(lines: &str, keep: Keep) -> Recording {
    let mut intake = Intake::new(keep);
    add(&mut intake, lines);
    intake.finish()
}

fn add(intake: &mut Intake<'_>, lines: &str) {
    let file: Arc<str> = "test".into();
    let mut byte = 0;
    for (line, text) in (1..).zip(lines.trim().lines().map(str::trim)) {
        let mut words = text.split_whitespace();
        let mut word = || words.next().unwrap_or("-");
        let number = |word: &str| word.parse::<u64>().ok();
        let mut span = Span {
            trace_id: TraceId(u128::from(number(word()).unwrap_or(0))),
            span_id: SpanId(number(word()).expect("a span id")),
            parents: word().split(',').filter_map(number).map(SpanId).collect::<Parents>(),
            name: word().into(),
            start: number(word()).map(UnixNanos),
            end: number(word()).map(UnixNanos),
            resource: Arc::new(Resource::service(word())),
            ..Span::default()
        };
        match word() {
            "client" => span.kind = SpanKind::Client,
            "server" => span.kind = SpanKind::Server,
            "shared" => span.shared = true,
            _ => {}
        }
        let place = Place { file: Arc::clone(&file), line, byte };
        byte += text.len() as u64 + 1;
        intake.span(span, Record { bytes: text.as_bytes(), place: &place });
    }
}

fn draw(recording: &Recording) -> String {
    fn below(out: &mut String, trace: TraceView<'_>, parent: Option<u32>, depth: usize) {
        for span in trace.spans().filter(|span| span.parent().map(SpanView::index) == parent) {
            let name = span.name();
            out.push_str(&format!("{}{name}\n", "  ".repeat(depth)));
            below(out, trace, Some(span.index()), depth + 1);
        }
    }
    let mut out = String::new();
    for trace in recording.traces() {
        out.push_str(&format!("trace {} ({})\n", trace.id().0, trace.root().name()));
        below(&mut out, trace, None, 1);
    }
    let problems: Vec<_> =
        recording.problems().counts().map(|(kind, count)| format!("{} {count}", kind.slug())).collect();
    if !problems.is_empty() {
        out.push_str(&format!("[{}]\n", problems.join(", ")));
    }
    out
}

#[track_caller]
fn check(lines: &str, tree: &str) {
    // The literals are indented by nine columns, except for their first line.
    let tree: Vec<_> = tree.lines().map(|line| line.strip_prefix("         ").unwrap_or(line)).collect();
    assert_eq!(draw(&intake(lines, Keep::default())).trim_end(), tree.join("\n"));
}

#[test]
fn spans_in_any_order_become_trees_by_start() {
    check(
        "7 3 2 leaf 12 13
         8 1 - other 5 6
         7 1 - root 10 20
         7 4 1 second 15 16
         7 2 1 first 11 14",
        "trace 8 (other)
           other
         trace 7 (root)
           root
             first
               leaf
             second",
    );
}

#[test]
fn spans_without_a_trace_id_join_their_parents_through_any_number_of_hops() {
    check(
        "- 3 2 hop2 12 13
         - 4 3 hop3 13 13
         - 2 1 hop1 11 14
         7 1 - root 10 20",
        "trace 7 (root)
           root
             hop1
               hop2
                 hop3",
    );
}

#[test]
fn spans_without_a_trace_id_and_without_known_parent_form_a_trace_named_by_the_missing_span() {
    check(
        "- 3 9 a 12 13
         - 4 9 b 13 14
         - 5 4 c 13 14
         - 6 - d 20 20",
        "trace 9 (a)
           a
           b
             c
         trace 6 (d)
           d
         [no_trace_id 3, orphan 2, no_root 1]",
    );
}

#[test]
fn a_cycle_of_spans_without_trace_ids_ends() {
    check(
        "- 3 4 a 12 13
         - 4 3 b 11 14",
        "trace 4 (b)
           b
             a
         [no_trace_id 1, no_root 1, cycle 1]",
    );
}

#[test]
fn a_span_written_twice_counts_once() {
    check(
        "7 1 - root 10 20
         7 2 1 child 11 12
         7 2 1 child 11 12
         7 2 1 child 11 12",
        "trace 7 (root)
           root
             child
         [duplicate_span 2]",
    );
}

#[test]
fn different_spans_with_one_id_are_both_kept() {
    check(
        "7 1 - root 10 20
         7 2 1 one 11 12
         7 2 1 two 12 13
         7 3 2 child 12 13",
        "trace 7 (root)
           root
             one
               child
             two
         [duplicate_id 1]",
    );
}

#[test]
fn one_id_in_two_traces_is_no_duplicate() {
    check(
        "7 1 - a 10 20
         8 1 - b 11 12",
        "trace 7 (a)
           a
         trace 8 (b)
           b",
    );
}

#[test]
fn a_shared_id_is_a_call_from_client_to_server() {
    // Zipkin's B3 model: both sides write span 2. The server's own children name it as their
    // parent, and so does a local span of the client's service.
    check(
        "7 1 - root 10 90 front
         7 2 1 get 20 80 front client
         7 2 1 get-served 30 70 back shared
         7 3 2 query 40 50 back client
         7 4 2 local 60 61 front",
        "trace 7 (root)
           root
             get
               get-served
                 query
               local",
    );
    check(
        "7 2 1 serve 30 70 back server
         7 2 1 call 20 80 front client
         7 1 - root 10 90 front",
        "trace 7 (root)
           root
             call
               serve",
    );
}

#[test]
fn two_spans_with_one_id_are_a_call_only_if_one_calls_and_the_other_serves() {
    for kinds in [["shared", "shared"], ["server", "server"], ["client", "client"], ["client", ""]] {
        let [one, two] = kinds;
        let lines = format!("7 1 - root 10 90 a\n7 2 1 one 20 80 a {one}\n7 2 1 two 30 70 b {two}");
        let tree = "trace 7 (root)\n  root\n    one\n    two\n[duplicate_id 1]";
        assert_eq!(draw(&intake(&lines, Keep::default())).trim_end(), tree, "{kinds:?}");
    }
}

#[test]
fn a_service_that_calls_itself_serves_what_lies_below() {
    check(
        "7 1 - root 10 90 one
         7 2 1 call 20 80 one client
         7 2 1 serve 30 70 one server
         7 3 2 below 40 50 one",
        "trace 7 (root)
           root
             call
               serve
                 below",
    );
}

#[test]
fn orphans_stay_in_their_trace_and_are_counted() {
    check(
        "7 1 - root 10 20
         7 3 2 lost 11 12
         7 4 3 below 11 12",
        "trace 7 (root)
           root
           lost
             below
         [orphan 1]",
    );
    check(
        "7 3 2 later 13 14
         7 4 9 earlier 11 12",
        "trace 7 (earlier)
           earlier
           later
         [orphan 2, no_root 1]",
    );
}

#[test]
fn a_span_with_several_parents_hangs_under_the_first_that_is_there() {
    check(
        "7 1 - root 10 20
         7 2 1 a 11 12
         7 3 1 b 12 13
         7 4 9,3,2 joined 14 15",
        "trace 7 (root)
           root
             a
             b
               joined",
    );
    let recording = intake("7 4 9,3,2 joined 14 15", Keep::default());
    let span = recording.traces().next().expect("a trace").root();
    assert_eq!(span.parent_ids().collect::<Vec<_>>(), [SpanId(9), SpanId(3), SpanId(2)]);
}

#[test]
fn the_earliest_of_several_roots_stands_for_the_trace() {
    check(
        "7 2 - late 12 13
         7 1 - early 10 20
         7 3 - later 14 20",
        "trace 7 (early)
           early
           late
           later
         [several_roots 1]",
    );
}

#[test]
fn a_cycle_is_cut_above_its_earliest_span() {
    check(
        "7 1 3 a 12 13
         7 2 1 b 11 14
         7 3 2 c 15 16
         7 4 3 tail 17 18",
        "trace 7 (b)
           b
             c
               a
               tail
         [no_root 1, cycle 1, clock_skew 1]",
    );
    check(
        "7 1 1 own-parent 12 13",
        "trace 7 (own-parent)
           own-parent
         [no_root 1, cycle 1]",
    );
}

#[test]
fn odd_times_are_counted_and_never_negative() {
    let lines = "7 1 - root 10 20
                 7 2 1 backwards 12 11
                 7 3 1 endless 13 -
                 7 4 3 startless - 15
                 7 5 1 skewed 9 12";
    let recording = intake(lines, Keep::default());
    let trace = recording.traces().next().expect("a trace");
    let times: Vec<_> = trace.spans().map(|span| (span.name(), span.start().0, span.duration_ns())).collect();
    assert_eq!(
        times,
        [("skewed", 9, 3), ("root", 10, 10), ("backwards", 12, 0), ("startless", 13, 2), ("endless", 13, 0)]
    );
    assert_eq!(trace.root().name(), "root");
    let counts: Vec<_> = recording.problems().counts().collect();
    assert_eq!(
        counts,
        [
            (ProblemKind::NoStart, 1),
            (ProblemKind::NoEnd, 1),
            (ProblemKind::EndBeforeStart, 1),
            (ProblemKind::ClockSkew, 1)
        ]
    );
    let example = &recording.problems().examples()[0];
    assert_eq!((example.place.line, &*example.detail), (4, "span 0000000000000004"));
}

#[test]
fn a_trace_without_any_time_starts_at_the_epoch() {
    let recording = intake("7 1 - a - -", Keep::default());
    let root = recording.traces().next().expect("a trace").root();
    assert_eq!((root.start(), root.duration_ns()), (UnixNanos(0), 0));
}

#[test]
fn labels_come_from_the_span_or_else_from_its_resource() {
    let keep = Keep {
        labels: vec!["http.route".into(), "service.name".into()],
        own_labels: vec!["service.name".into()],
        ..Keep::default()
    };
    let recording = intake("7 1 - root 10 20 front", keep);
    let label = recording.traces().next().and_then(|trace| trace.root().label_symbol()).expect("a label");
    assert_eq!(recording.label_values(label).collect::<Vec<_>>(), [None, Some("front"), None]);
}

/// A service's policies compare texts, numbers and booleans; its keys can be made of any value.
#[test]
fn own_labels_are_no_lists() {
    let list = vec![Value::String("a".into()), Value::String("b".into())];
    let map = vec![Attribute { key: "a".into(), value: Value::Int(1) }];
    for (value, text) in [
        (Value::Array(list), Some(r#"["a","b"]"#)),
        (Value::Map(map), Some(r#"{"a":1}"#)),
        (Value::Bytes([7, 8][..].into()), Some("0708")),
        (Value::Int(5), None),
    ] {
        let (labels, own_labels) = (vec!["tags".into()], vec!["tags".into()]);
        let mut intake = Intake::new(Keep { labels, own_labels, ..Keep::default() });
        let span = Span {
            trace_id: TraceId(7),
            span_id: SpanId(1),
            attributes: vec![Attribute { key: "tags".into(), value }],
            ..Span::default()
        };
        intake.span(span, Record { bytes: b"", place: &Place::start_of(&"f".into()) });
        let recording = intake.finish();
        let label = recording.traces().next().and_then(|trace| trace.root().label_symbol()).expect("a label");
        let expected = text.map_or([Some("5"); 2], |text| [Some(text), None]);
        assert_eq!(recording.label_values(label).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn names_are_renamed_once_each() {
    let mut calls = 0;
    let mut intake = Intake::new(Keep::default()).rename_with(|raw, out| {
        calls += 1;
        out.push_str(raw.trim_end_matches(|c: char| c.is_ascii_digit()));
    });
    let place = Place::start_of(&"f".into());
    for (id, name) in [(1, "read1"), (2, "read2"), (3, "read1")] {
        let span = Span { trace_id: TraceId(id), span_id: SpanId(1), name: name.into(), ..Span::default() };
        intake.span(span, Record { bytes: b"", place: &place });
    }
    let recording = intake.finish();
    assert_eq!(recording.names().names().collect::<Vec<_>>(), ["read"]);
    assert_eq!(calls, 2);
}

#[test]
fn a_chain_of_a_hundred_thousand_spans_is_joined_without_recursion() {
    let len = 100_000;
    let mut intake = Intake::new(Keep::default());
    let place = Place::start_of(&"f".into());
    for id in (1..=len).rev() {
        let span = Span {
            // Only the root has the trace's id.
            trace_id: TraceId(u128::from(id == 1)),
            span_id: SpanId(id),
            parents: [SpanId(id - 1)].into_iter().filter(|&id| id != SpanId::ZERO).collect(),
            name: "link".into(),
            start: Some(UnixNanos(id)),
            end: Some(UnixNanos(id)),
            ..Span::default()
        };
        intake.span(span, Record { bytes: &id.to_be_bytes(), place: &place });
    }
    let recording = intake.finish();
    assert_eq!((recording.trace_count(), recording.span_count()), (1, len as usize));
    assert!(recording.problems().is_empty());
    let mut shapes = crate::shape::Shapes::default();
    let trace = recording.traces().next().expect("a trace");
    let shape = shapes.of_trace(trace, &mut Default::default(), &mut Pulse::never());
    assert!(shape.is_some());
    let mut stopping = Pulse::new(|| true);
    assert_eq!(
        shapes.of_trace(trace, &mut Default::default(), &mut stopping),
        None,
        "stops inside the trace"
    );
    assert_eq!(shapes.len(), len as usize);
}

#[test]
fn problems_of_readers_come_through() {
    let mut intake = Intake::new(Keep::default());
    let place = Place::start_of(&"f".into());
    intake.problem(Problem::new(ProblemKind::BadRecord, place, String::new()));
    intake.skipped(&"run.log".into(), "not a trace format");
    let recording = intake.finish();
    assert_eq!(recording.problems().count(ProblemKind::BadRecord), 1);
    assert_eq!(recording.skipped().1, 1);
    assert_eq!(recording.traces().len(), 0);
}

/// The number of polls while joining; there is one per 4,096 units of work.
fn work(lines: &str) -> usize {
    let polls = std::cell::Cell::new(0);
    let mut intake = Intake::new(Keep::default()).stop_when(|| {
        polls.set(polls.get() + 1);
        false
    });
    add(&mut intake, lines);
    let recording = intake.finish();
    assert_eq!(recording.span_count(), lines.lines().count());
    polls.get()
}

/// A name, and a function from the number of spans to their lines.
type Shape = (&'static str, fn(u64) -> String);

/// Shapes of recordings that once took, or could take, quadratic time. Each line is a span.
const SHAPES: &[Shape] = &[
    // The spans of a trace are visited by id, here from the leaf.
    ("a chain without starts whose parents have larger ids", |n| {
        (1..=n).map(|id| format!("1 {id} {} n\n", (id + 1) % (n + 1))).collect()
    }),
    ("a chain", |n| (1..=n).map(|id| format!("1 {id} {} n {id} {n}\n", id - 1)).collect()),
    ("a chain without starts", |n| (1..=n).map(|id| format!("1 {id} {} n\n", id - 1)).collect()),
    ("a chain without starts, from its end", |n| {
        (1..=n).rev().map(|id| format!("1 {id} {} n\n", id - 1)).collect()
    }),
    ("a chain without trace ids", |n| (1..=n).map(|id| format!("- {id} {} n 1 2\n", id - 1)).collect()),
    ("a chain without trace ids, from its end", |n| {
        (1..=n).rev().map(|id| format!("- {id} {} n 1 2\n", id - 1)).collect()
    }),
    ("a circle", |n| (1..=n).map(|id| format!("1 {id} {} n 1 2\n", id % n + 1)).collect()),
    ("a circle with a long tail", |n| {
        (1..=n).map(|id| format!("1 {id} {} n 1 2\n", if id <= 2 { 3 - id } else { id - 1 })).collect()
    }),
    ("children of one span", |n| (1..=n).map(|id| format!("1 {id} {} n 1 2\n", u64::from(id > 1))).collect()),
    ("orphans", |n| (1..=n).map(|id| format!("1 {id} {} n\n", n + id)).collect()),
    ("traces", |n| (1..=n).map(|id| format!("{id} {id} - n 1 2\n")).collect()),
    ("different spans with one id", |n| (1..=n).map(|id| format!("1 7 - n {id} {n}\n")).collect()),
    ("many parents", |n| {
        let parents: Vec<_> = (1..=n / 2).map(|id| id.to_string()).collect();
        let chain = (2..=n).map(|id| format!("1 {id} {} n 1 2\n", id - 1));
        chain.chain([format!("1 {} {} n 1 2\n", n + 1, parents.join(","))]).collect()
    }),
];

#[test]
fn joining_is_linear_in_spans_of_any_shape() {
    const N: u64 = 10_000;
    // Sorting is slightly more than linear: with 4 N spans, each of the two sorts needs two merge
    // passes; with N spans, none.
    const MERGING: usize = 2 * 2 * 4 * N as usize / 4096;
    for (shape, lines) in SHAPES {
        let (small, large) = (work(&lines(N)), work(&lines(4 * N)));
        // One poll is lost by rounding.
        assert!(
            small > 0 && large <= 4 * (small + 1) + MERGING,
            "{shape}: {small} polls for {N} spans, {large} for 4 times as many"
        );
        // Each span costs a few units: parent, cycle, start.
        assert!(large <= 6 * 4 * N as usize / 4096 + MERGING, "{shape}: {large} polls");
    }
}

#[test]
fn joining_stops_when_the_user_wants_no_more() {
    for (shape, lines) in SHAPES {
        let mut intake = Intake::new(Keep::default()).stop_when(|| true);
        add(&mut intake, &lines(20_000));
        assert_eq!(intake.finish().trace_count(), 0, "{shape}");
    }
}

/// Recorders that write a span twice rarely write it at the same byte of a file.
#[test]
fn a_span_written_twice_counts_once_wherever_it_stands() {
    let twice = "7 1 - root 10 20\n7 2 1 child 11 12\n7 1 - root 10 20\n7 2 1 child 11 12";
    let recording = intake(twice, Keep::default());
    assert_eq!(recording.span_count(), 2);
    assert_eq!(recording.problems().count(ProblemKind::DuplicateSpan), 2);
    assert_eq!(recording.problems().count(ProblemKind::DuplicateId), 0);
}
