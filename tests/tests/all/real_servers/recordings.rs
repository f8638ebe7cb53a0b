//! Real recordings, sent with the command-line tool.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use astracer_model::{Format, Span, SpanId, TraceId};

use super::{e2e_setting, read};
use crate::repository;

/// HTrace, Nezha's CSV and Jaeger's JSON.
pub(super) const RECORDINGS: [&str; 3] = [
    "formats/tests/data/hdfs273/spans",
    "formats/tests/data/trainticket/trace",
    "formats/tests/data/jaeger_json/socialnetwork.json.gz",
];

pub(super) type Ids = BTreeSet<(TraceId, SpanId)>;

#[track_caller]
fn astracer(args: &[&str]) -> Vec<u8> {
    let output = Command::new(e2e_setting("CLI")).args(args).output().expect("the tool starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The ids of a recording's spans, each with its trace.
pub(super) fn ids(recording: &str) -> Ids {
    let path = repository(recording);
    let lines = astracer(&["convert", path.to_str().expect("UTF-8"), "-"]);
    read(Format::OtlpJson, &lines).iter().map(|span| (span.trace_id, span.span_id)).collect()
}

/// Sends a recording, checks that no span is rejected, and returns the number of accepted spans.
#[track_caller]
pub(super) fn send(recording: &str, to: &str) -> u64 {
    let path = repository(recording);
    let report = astracer(&["send", path.to_str().expect("UTF-8"), "--to", to, "--json", "--shift-to-now"]);
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(report["rejected"], 0);
    report["accepted"].as_u64().expect("a number")
}

/// Sends each recording to a server that is queried by trace, and checks that exactly its spans are
/// found. `trace` returns the spans of a trace, once there are this many.
#[track_caller]
pub(super) fn are_found(to: &str, trace: impl Fn(TraceId, usize) -> Vec<Span<'static>>) {
    for recording in RECORDINGS {
        let expected = ids(recording);
        send(recording, to);
        let mut traces: BTreeMap<TraceId, usize> = BTreeMap::new();
        expected.iter().for_each(|(trace, _)| *traces.entry(*trace).or_default() += 1);
        let found = traces.into_iter().flat_map(|(id, spans)| trace(id, spans));
        let found: Ids = found.map(|span| (span.trace_id, span.span_id)).collect();
        assert!(found == expected, "{recording}: {} of {}", found.len(), expected.len());
    }
}
