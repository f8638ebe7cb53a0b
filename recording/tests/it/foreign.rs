//! Files as unmodified tools of others write them. The values are those of Zipkin's, Jaeger's or
//! the Collector's own code, or computed by hand.

use std::path::Path;

use astracer_model::span::lookup;
use astracer_model::value::Value;
use astracer_model::{ProblemKind, SpanKind, Status};
use astracer_recording::recording::{Intake, Keep, Recording, SpanView};
use astracer_recording::source::{self, Options};

use crate::sample;

fn read(path: &Path) -> Recording {
    let mut intake = Intake::new(Keep { full: true, ..Keep::default() });
    source::read(path, &Options::default(), &mut intake).unwrap_or_else(|error| panic!("{error}"));
    intake.finish()
}

/// Reads one of the minimal files.
fn foreign(name: &str) -> Recording {
    read(&sample("foreign").join(name))
}

/// Reads a file with this content.
fn written(name: &str, content: impl AsRef<[u8]>) -> Recording {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("a writable folder");
    read(&path)
}

fn problems(recording: &Recording) -> Vec<(ProblemKind, u64)> {
    recording.problems().counts().collect()
}

/// The spans of the only trace: each name, the parent's name and the duration in microseconds.
fn spans(recording: &Recording) -> Vec<(&str, &str, u64)> {
    assert_eq!(recording.trace_count(), 1);
    let trace = recording.traces().next().expect("a trace");
    let row = |span: SpanView<'_>| {
        (span.index(), span.parent().map_or(u32::MAX, SpanView::index), span.duration_ns() / 1_000)
    };
    let named = |index: u32| if index == u32::MAX { "" } else { recording.span(index).name() };
    trace.spans().map(row).map(|(own, parent, micros)| (named(own), named(parent), micros)).collect()
}

#[test]
fn servers_of_one_client_are_its_children_and_have_their_own() {
    let recording = foreign("shared-two-servers.json");
    assert_eq!(
        spans(&recording),
        [
            ("root", "", 10_000),
            ("cli", "root", 8_000),
            ("srv1", "cli", 1_000),
            ("srv2", "cli", 3_000),
            ("db", "srv2", 1_000)
        ]
    );
    assert_eq!(problems(&recording), []);
}

#[test]
fn a_span_in_pieces_is_one() {
    let recording = foreign("zipkin-two-pieces.json");
    assert_eq!(spans(&recording), [("root", "", 5_000), ("child", "root", 2_000)]);
    assert_eq!(problems(&recording), [(ProblemKind::SpanPiece, 1)]);
    let trace = recording.traces().next().expect("a trace");
    let full = trace.root().full().expect("kept");
    assert_eq!(full.attributes.len(), 1);
    assert_eq!(full.end.map(|end| end.0), Some(1_700_000_000_005_000_000));
}

#[test]
fn a_span_in_two_spellings_is_written_twice() {
    let recording = foreign("span-written-twice-differently.json");
    assert_eq!(spans(&recording), [("root", "", 10_000)]);
    assert_eq!(problems(&recording), [(ProblemKind::DuplicateSpan, 1)]);
}

#[test]
fn both_forms_of_a_trace_id_in_one_list_are_one_trace() {
    let recording = foreign("zipkin-mixed-64-128.json");
    assert_eq!(spans(&recording), [("root", "", 10_000), ("child", "root", 3_000)]);
    assert_eq!(problems(&recording), []);
    let trace = recording.traces().next().expect("a trace");
    assert_eq!(trace.id().0, 0x463a_c35c_9f64_13ad_0000_0000_0000_00a1);
    assert!(trace.spans().all(|span| span.full().is_some_and(|full| full.trace_id == trace.id())));
}

#[test]
fn an_orphan_of_a_shortened_trace_id_names_its_reason() {
    let line = |trace: &str, id: &str, parent: &str| {
        format!(
            r#"{{"data":[{{"traceID":"{trace}","spans":[{{"traceID":"{trace}","spanID":"{id}","operationName":"{id}","startTime":1,"duration":1,"references":[{parent}]}}],"processes":{{}}}}]}}"#
        )
    };
    let parent = r#"{"refType":"CHILD_OF","traceID":"a1","spanID":"1"}"#;
    let two = [line("463ac35c9f6413ad00000000000000a1", "1", ""), line("a1", "2", parent)];
    let recording = written("two.json", two.join("\n"));
    assert_eq!(recording.trace_count(), 2);
    assert_eq!(
        problems(&recording),
        [(ProblemKind::Orphan, 1), (ProblemKind::ShortTraceId, 1), (ProblemKind::NoRoot, 1)]
    );
}

#[test]
fn a_duration_without_a_start_counts() {
    let recording = foreign("duration-without-start.json");
    assert_eq!(spans(&recording), [("root", "", 100_000), ("db", "root", 40_000), ("db", "root", 40_000)]);
    assert_eq!(problems(&recording), [(ProblemKind::NoStart, 1)]);
}

#[test]
fn the_longest_of_roots_that_start_together_stands_for_the_trace() {
    for name in ["two-roots-order-1.json", "two-roots-order-2.json"] {
        let recording = foreign(name);
        assert_eq!(spans(&recording), [("long", "", 10_000), ("short", "", 1_000)], "{name}");
        assert_eq!(recording.traces().next().map(|trace| trace.root().name()), Some("long"), "{name}");
    }
}

/// The attribute `msg` of the root.
fn message(recording: &Recording) -> Value<'static> {
    let trace = recording.traces().next().expect("a trace");
    lookup(&trace.root().full().expect("kept").attributes, "msg").cloned().unwrap_or_default()
}

#[test]
fn text_that_is_not_unicode_costs_no_span() {
    let recording = foreign("half-surrogate.json");
    assert_eq!(spans(&recording), [("root", "", 10_000), ("child", "root", 1_000)]);
    assert_eq!(message(&recording), "cut here \u{fffd}".into());
    assert_eq!(problems(&recording), [(ProblemKind::BadText, 1)]);
    let recording = foreign("otlp-json-bad-utf8.json");
    let names: Vec<_> = spans(&recording).into_iter().map(|(name, ..)| name.to_owned()).collect();
    assert_eq!(names, ["root", "caf\u{fffd} x", "after"]);
    assert_eq!(problems(&recording), [(ProblemKind::BadText, 1)]);
}

#[test]
fn numbers_beyond_a_format_stay_numbers() {
    let recording = foreign("int-beyond-64-bits.json");
    assert_eq!(recording.span_count(), 2);
    assert_eq!(message(&recording), Value::Double(18_446_744_073_709_552_000.0));
    let text = std::fs::read_to_string(sample("foreign").join("bare-nan.json")).expect("a file");
    for (word, sign) in [("NaN", 0.0), ("Infinity", 1.0), ("-Infinity", -1.0)] {
        let recording = written("words.json", text.replace("NaN", word));
        assert_eq!(recording.span_count(), 2, "{word}");
        let Value::Double(number) = message(&recording) else { panic!("{word}") };
        assert!(if sign == 0.0 { number.is_nan() } else { number == sign * f64::INFINITY }, "{word}");
        assert_eq!(problems(&recording), [], "{word}");
    }
}

#[test]
fn a_time_with_an_exponent_is_exact() {
    let recording = foreign("time-with-exponent.json");
    let root = recording.traces().next().expect("a trace").root();
    assert_eq!((root.start().0, root.duration_ns()), (1_700_000_000_000_000_000, 1_000_000));
}

#[test]
fn words_and_counts_without_meaning_are_unset() {
    let recording = foreign("status-and-kind-words.json");
    let trace = recording.traces().next().expect("a trace");
    let mut found: Vec<_> = trace.spans().map(|span| (span.name(), span.kind(), span.status())).collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("a", SpanKind::Client, Status::Error),
            ("b", SpanKind::Client, Status::Unset),
            ("c", SpanKind::Unspecified, Status::Unset),
            ("d", SpanKind::Unspecified, Status::Unset),
            ("e", SpanKind::Internal, Status::Unset)
        ]
    );
    assert_eq!(problems(&recording), [(ProblemKind::UnknownWord, 4)]);
}

/// A value that no parser understands, in the middle span of three, costs at most that span.
#[test]
fn one_bad_value_costs_nothing_that_follows() {
    let otlp = |value: &str| {
        let span = |id: u32, attributes: &str| {
            format!(
                r#"{{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"000000000000000{id}","name":"n","startTimeUnixNano":"1","endTimeUnixNano":"2","attributes":[{attributes}]}}"#
            )
        };
        let bad = format!(r#"{{"key":"k","value":{{"doubleValue":{value}}}}}"#);
        let spans = [span(1, ""), span(2, &bad), span(3, "")].join(",\n");
        format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{spans}]}}]}}]}}"#)
    };
    let zipkin = |value: &str| {
        let span =
            |id: u32, tags: &str| format!(r#"{{"traceId":"a","id":"{id}","timestamp":1,"tags":{{{tags}}}}}"#);
        format!("[{}]", [span(1, ""), span(2, &format!(r#""k":{value}"#)), span(3, "")].join(","))
    };
    let jaeger = |value: &str| {
        let span = |id: u32, tags: &str| {
            format!(
                r#"{{"traceID":"a","spanID":"{id}","operationName":"n","startTime":1,"duration":1,"tags":[{tags}]}}"#
            )
        };
        let bad = format!(r#"{{"key":"k","type":"float64","value":{value}}}"#);
        let spans = [span(1, ""), span(2, &bad), span(3, "")].join(",");
        format!(r#"{{"data":[{{"traceID":"a","spans":[{spans}],"processes":{{}}}}]}}"#)
    };
    let htrace = |value: &str| {
        let span = |id: u32, end: &str| {
            format!(r#"{{"a":"0000000000000000000000000000000{id}","b":1,"e":{end},"d":"n","r":"p","p":[]}}"#)
        };
        [span(1, "2"), span(2, value), span(3, "2")].join("\n")
    };
    for value in
        ["undefined", "None", "nan", "+1", ".5", "01", "0x10", "1e", "--", "'text'", "", "1,", "@#", "TRUE"]
    {
        for (format, text) in [
            ("otlp", otlp(value)),
            ("zipkin", zipkin(value)),
            ("jaeger", jaeger(value)),
            ("htrace", htrace(value)),
        ] {
            for text in [text.clone(), text.replace('\n', "")] {
                let recording = written("bad.json", &text);
                let spans = recording.span_count() as u64;
                let bad = recording.problems().count(ProblemKind::BadRecord);
                assert!(spans >= 2 && spans + bad >= 3, "{format} {value}: {spans} spans, {bad} bad\n{text}");
            }
        }
    }
}

#[test]
fn lines_of_javas_logging_exporter_are_read_behind_any_prefix() {
    let lines = std::fs::read_to_string(sample("foreign").join("java-logging-otlp.jsonl")).expect("a file");
    let heading = "Nov 26, 2026 1:00:00 PM io.opentelemetry.exporter.logging.otlp export\nINFO: ";
    let logged: String = lines.lines().map(|line| format!("{heading}{line}\n")).collect();
    for text in [lines.clone(), logged, lines.lines().map(|line| format!("[otel] {line}\n")).collect()] {
        let recording = written("log.txt", &text);
        assert_eq!(spans(&recording), [("root", "", 10_000), ("child", "root", 1_000)], "{text}");
        assert_eq!(problems(&recording), [], "{text}");
    }
}

#[test]
fn spans_of_jaeger_without_a_trace_around_them_are_read() {
    let recording = foreign("bare-jaeger-spans.json");
    assert_eq!(spans(&recording), [("root", "", 100)]);
    assert_eq!(recording.traces().next().map(|trace| trace.root().service()), Some("svc"));
    let list = std::fs::read_to_string(sample("foreign").join("bare-jaeger-spans.json")).expect("a file");
    let recording = written("lines.jsonl", list.trim().trim_start_matches('[').trim_end_matches(']'));
    assert_eq!(spans(&recording), [("root", "", 100)]);
}

/// The first trace is larger than every prefix that is searched for a format at once.
#[test]
fn sorted_keys_and_a_large_first_trace_are_read() {
    let large = "x".repeat(2 << 20);
    let span =
        r#"{"duration":1,"operationName":"a","processID":"p1","spanID":"1","startTime":1,"traceID":"a"}"#;
    let tags = format!(r#"[{{"key":"k","type":"string","value":"{large}"}}]"#);
    let jaeger = format!(
        r#"{{"data":[{{"processes":{{"p1":{{"serviceName":"s","tags":{tags}}}}},"spans":[{span}],"traceID":"a"}}]}}"#
    );
    let bare = format!(r#"[{{"spans":[{{"tags":{tags},"spanID":"1"}}],"traceID":"a"}}]"#);
    let zipkin = format!(r#"[{{"tags":{{"k":"{large}"}},"id":"1","traceId":"a"}}]"#);
    let tempo = format!(
        r#"{{"batches":[{{"resource":{{"attributes":[{{"key":"k","value":{{"stringValue":"{large}"}}}}]}},"scopeSpans":[{{"spans":[{{"spanId":"0000000000000001","traceId":"0af7651916cd43dd8448eb211c80319c"}}]}}]}}]}}"#
    );
    for text in [jaeger, bare, zipkin, tempo] {
        let recording = written("large.json", &text);
        assert_eq!(recording.span_count(), 1, "{}", &text[..60]);
    }
}

#[test]
fn compressed_files_of_the_collector_are_read() {
    let recording = foreign("collector-file-zstd.bin");
    assert_eq!(recording.span_count(), 3);
    assert_eq!(problems(&recording).iter().filter(|(kind, _)| kind.loses_data()).count(), 0);
    // A cut file gives the messages before the cut.
    let bytes = std::fs::read(sample("foreign").join("collector-file-zstd.bin")).expect("a file");
    let recording = written("cut.bin", &bytes[..bytes.len() - 20]);
    assert!((1..3).contains(&recording.span_count()));
    assert_eq!(recording.problems().count(ProblemKind::Truncated), 1);
}

/// The JSON that Jaeger's gRPC gateway writes.
#[test]
fn protobuf_json_of_jaeger_is_read() {
    let text = r#"{"result":{"spans":[
        {"traceId":"AAAAAAAAAAAAAAAAAAAAoQ==","spanId":"AAAAAAAAAAE=","operationName":"root","flags":1,
         "startTime":"2023-11-14T22:13:20Z","duration":"0.010s",
         "tags":[{"key":"msg","vType":"INT64","vInt64":"5"},{"key":"s","vStr":"x"}],
         "process":{"serviceName":"svc"}},
        {"traceId":"AAAAAAAAAAAAAAAAAAAAoQ==","spanId":"AAAAAAAAAAI=","operationName":"child",
         "references":[{"traceId":"AAAAAAAAAAAAAAAAAAAAoQ==","spanId":"AAAAAAAAAAE="}],
         "startTime":"2023-11-14T22:13:20.001Z","duration":"0.002s","process":{"serviceName":"svc"}}]}}"#;
    for text in [text.to_owned(), text.replacen("{\"result\":", "", 1).trim_end_matches('}').to_owned() + "}"]
    {
        let recording = written("gateway.json", &text);
        assert_eq!(spans(&recording), [("root", "", 10_000), ("child", "root", 2_000)], "{text}");
        assert_eq!(message(&recording), Value::Int(5));
        assert_eq!(problems(&recording), [], "{text}");
        let root = recording.traces().next().expect("a trace").root();
        assert_eq!((root.start().0, root.service()), (1_700_000_000_000_000_000, "svc"));
    }
}
