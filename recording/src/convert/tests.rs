//! Conversions in memory: the output, and the reported losses and problems.

use super::requests::REQUEST_BYTES;
use super::*;
use astracer_formats::Limits;
use astracer_formats::losses::Loss;
use astracer_model::ids::{SpanId, TraceId};

fn convert(from: Format, text: &str, to: Format) -> (String, Converted) {
    let mut out = Vec::new();
    let mut converter = Converter::new(to, Box::new(&mut out)).expect("the format has a writer");
    let file = "f".into();
    converter.file(&file, from.into());
    astracer_formats::read(from, &mut text.as_bytes(), &file, &Limits::default(), &mut converter);
    let converted = converter.finish().expect("writing to memory succeeds");
    (String::from_utf8(out).expect("text"), converted)
}

fn recording(from: Format, text: &str) -> crate::Recording {
    let mut intake = crate::recording::Intake::new(Default::default());
    astracer_formats::read(from, &mut text.as_bytes(), &"f".into(), &Limits::default(), &mut intake);
    intake.finish()
}

/// The trace, parent and name of each span, sorted.
fn shape(recording: &crate::Recording) -> Vec<(TraceId, Option<SpanId>, String)> {
    let mut spans: Vec<_> = recording
        .traces()
        .flat_map(|trace| {
            trace.spans().map(move |span| {
                (trace.id(), span.parent().map(|parent| parent.id()), span.name().to_owned())
            })
        })
        .collect();
    spans.sort();
    spans
}

/// A chain of three spans without a trace id, on both sides of the span that has it; a span with an
/// unknown parent; and two spans that are each other's parent.
const PIPELINE: &str = r#"
{"i":"0","s":"d","b":4,"e":5,"d":"third","p":["c"]}
{"i":"0","s":"c","b":3,"e":6,"d":"second","p":["b"]}
{"i":"a1","s":"a","b":1,"e":9,"d":"root"}
{"i":"0","s":"b","b":2,"e":7,"d":"first","p":["a"]}
{"i":"0","s":"e","b":2,"e":7,"d":"lost","p":["ff"]}
{"i":"0","s":"1","b":2,"e":7,"d":"one","p":["2"]}
{"i":"0","s":"2","b":2,"e":7,"d":"two","p":["1"]}
"#;

#[test]
fn spans_without_a_trace_get_their_parents_in_every_format() {
    for to in [Format::OtlpJson, Format::ZipkinJson, Format::JaegerJson, Format::HTrace] {
        let (text, converted) = convert(Format::HTrace, PIPELINE, to);
        assert_eq!(converted.spans, 7);
        assert_eq!(converted.problems.count(ProblemKind::NoTraceId), 3, "{to}");
        let spans = shape(&recording(to, &text));
        let in_trace: Vec<_> = spans
            .iter()
            .filter(|span| span.0 == TraceId(0xa1))
            .map(|span| (span.1.map(|id| id.0), &*span.2))
            .collect();
        let expected = [(None, "root"), (Some(0xa), "first"), (Some(0xb), "second"), (Some(0xc), "third")];
        assert_eq!(in_trace, expected, "{to}");
        assert!(spans.iter().any(|span| span.0 == TraceId(0xff) && span.2 == "lost"), "{to}: {spans:?}");
    }
}

#[test]
fn a_circle_of_spans_without_a_trace_is_one_trace() {
    let (text, _) = convert(Format::HTrace, PIPELINE, Format::OtlpJson);
    let ids = |recording: &crate::Recording| -> Vec<TraceId> {
        let names = |trace: &crate::recording::TraceView<'_>| trace.spans().any(|span| span.name() == "one");
        recording.traces().filter(names).map(|trace| trace.id()).collect()
    };
    // Reading finds the same trace.
    let read = recording(Format::HTrace, PIPELINE);
    let written = recording(Format::OtlpJson, &text);
    assert_eq!(ids(&written), ids(&read));
    let of_circle = |recording: &crate::Recording| {
        shape(recording)
            .into_iter()
            .filter(|span| ["one", "two"].contains(&&*span.2))
            .map(|span| span.0)
            .collect()
    };
    let circle: Vec<TraceId> = of_circle(&written);
    assert_eq!(circle, [circle[0]; 2]);
}

/// A chain of spans without a trace, given from either end; the first span's parent is either zero
/// or missing.
#[test]
fn a_chain_without_a_trace_takes_work_in_proportion_to_its_spans() {
    const N: u64 = 10_000;
    let line = |id: u64| {
        let parent = id - 1;
        format!("{{\"s\":\"{id:x}\",\"p\":[\"{parent:x}\"],\"b\":1,\"e\":2}}\n")
    };
    let polls = |lines: String| {
        let polls = std::cell::Cell::new(0);
        let mut converter =
            Converter::new(Format::OtlpJson, Box::new(io::sink())).expect("the format has a writer");
        converter = converter.stop_when(|| {
            polls.set(polls.get() + 1);
            false
        });
        let file = "f".into();
        converter.file(&file, Format::HTrace.into());
        astracer_formats::read(
            Format::HTrace,
            &mut lines.as_bytes(),
            &file,
            &Limits::default(),
            &mut converter,
        );
        polls.set(0);
        let converted = converter.finish().expect("nothing fails");
        assert_eq!(converted.spans, lines.lines().count() as u64);
        assert_eq!(converted.problems.count(ProblemKind::NoTraceId), converted.spans);
        polls.get()
    };
    // From 2 on, the first span's parent is missing.
    for first in [1, 2] {
        let down = |n: u64| polls((first..=n).map(line).collect());
        let up = |n: u64| polls((first..=n).rev().map(line).collect());
        for (small, large) in [(down(N), down(4 * N)), (up(N), up(4 * N))] {
            assert!(small > 0 && large <= 4 * (small + 1), "{small} polls, {large} for 4 times as many");
        }
    }
}

#[test]
fn spans_of_interleaved_services_share_a_line_and_its_resources() {
    let zipkin = r#"[{"traceId":"1","id":"1","localEndpoint":{"serviceName":"a"}},
        {"traceId":"2","id":"2","localEndpoint":{"serviceName":"b"}},
        {"traceId":"1","id":"3","localEndpoint":{"serviceName":"a"}}]"#;
    let (text, _) = convert(Format::ZipkinJson, zipkin, Format::OtlpJson);
    assert_eq!(text.lines().count(), 1);
    assert_eq!(text.matches("service.name").count(), 2, "{text}");
    assert_eq!(shape(&recording(Format::OtlpJson, &text)), shape(&recording(Format::ZipkinJson, zipkin)));
}

#[test]
fn a_trace_in_pieces_becomes_one_in_jaeger() {
    let zipkin = r#"[{"traceId":"1","id":"1"},{"traceId":"2","id":"2"},{"traceId":"1","id":"3"}]"#;
    let (text, _) = convert(Format::ZipkinJson, zipkin, Format::JaegerJson);
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let ids: Vec<_> =
        json["data"].as_array().expect("traces").iter().map(|trace| &trace["traceID"]).collect();
    assert_eq!(ids, ["0000000000000001", "0000000000000002"]);
    assert_eq!(json["data"][0]["spans"].as_array().map(Vec::len), Some(2));
}

#[test]
fn interleaved_traces_of_any_length_become_whole_in_jaeger() {
    let span = |id: usize| {
        let (trace, pad) = (id % 7 + 1, "x".repeat(id % 500));
        format!("{{\"traceId\":\"{trace:x}\",\"id\":\"{id:x}\",\"name\":\"{pad}\"}}\n")
    };
    // A few megabytes: several blocks.
    let zipkin: String = (1..=6_000).map(span).collect();
    let (text, converted) = convert(Format::ZipkinJson, &zipkin, Format::JaegerJson);
    assert_eq!(converted.spans, 6_000);
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let traces = json["data"].as_array().expect("traces");
    assert_eq!(traces.len(), 7);
    for (index, trace) in traces.iter().enumerate() {
        // Trace 1 has spans 7, 14, ...; trace 2, which comes first, has 1, 8, ...
        let ids: Vec<_> = trace["spans"]
            .as_array()
            .expect("spans")
            .iter()
            .map(|span| span["spanID"].as_str().unwrap_or_default())
            .collect();
        let expected: Vec<_> = (index + 1..=6_000).step_by(7).map(|id| format!("{id:016x}")).collect();
        assert_eq!(ids, expected);
        assert!(
            trace["spans"].as_array().expect("spans").iter().all(|span| span["traceID"] == trace["traceID"])
        );
    }
}

#[test]
fn long_inputs_become_many_lines() {
    let spans: String = (1..=10_000).map(|id| format!("{{\"traceId\":\"1\",\"id\":\"{id:x}\"}}\n")).collect();
    let (text, converted) = convert(Format::ZipkinJson, &spans, Format::OtlpJson);
    assert_eq!(converted.spans, 10_000);
    assert!(text.lines().count() > 1);
    assert!(
        text.lines()
            .all(|line| line.len() < REQUEST_BYTES + 1_000 && line.matches("spanId").count() <= REQUEST_SPANS)
    );
    assert_eq!(recording(Format::OtlpJson, &text).span_count(), 10_000);
}

#[test]
fn losses_are_counted_by_kind() {
    let zipkin = r#"[{"traceId":"1","id":"1","timestamp":1001,"duration":5,"shared":true},
        {"traceId":"1","id":"2","timestamp":1000,"duration":1000,"shared":true}]"#;
    let (_, converted) = convert(Format::ZipkinJson, zipkin, Format::HTrace);
    let counts: Vec<_> = converted.losses.counts().collect();
    assert_eq!(counts, [(Loss::TimePrecision, 1), (Loss::Shared, 2)]);
    assert!(convert(Format::ZipkinJson, zipkin, Format::OtlpJson).1.losses.is_empty());
}

#[test]
fn an_output_that_fails_ends_the_reading() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let spans: String = (1..=10_000).map(|id| format!("{{\"traceId\":\"1\",\"id\":\"{id:x}\"}}\n")).collect();
    let mut converter = Converter::new(Format::OtlpJson, Box::new(Full)).expect("the format has a writer");
    astracer_formats::read(
        Format::ZipkinJson,
        &mut spans.as_bytes(),
        &"f".into(),
        &Limits::default(),
        &mut converter,
    );
    assert!(converter.stopped());
    assert_eq!(converter.finish().expect_err("it is full").kind(), io::ErrorKind::StorageFull);
}

#[test]
fn formats_that_are_only_read_have_no_converter() {
    assert!(Converter::new(Format::NezhaCsv, Box::new(io::sink())).is_none());
}
