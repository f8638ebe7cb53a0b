//! Files as unmodified tools of others write them. The values are those of Zipkin's, Jaeger's or
//! the Collector's own code, or computed by hand.

use std::path::Path;

use astracer_model::ProblemKind;
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
