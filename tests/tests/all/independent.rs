//! The scores of real recordings, computed by code that shares nothing with ours: it reads the
//! archive's lines with serde_json, joins them with hash maps, keeps complete lists of durations,
//! and writes call trees as text.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;

use astracer_tuner::{Candidate, Draw, Evaluator, Grouping, Score, Workload};
use serde_json::Value;

struct Span {
    trace: String,
    id: String,
    parent: Option<String>,
    name: String,
    ms: f64,
    bytes: usize,
}

/// Traces by the 16 hexadecimal digits of their id.
type Traces = BTreeMap<String, Vec<Span>>;

fn load(path: &str) -> Traces {
    let file = File::open(crate::repository(path)).expect("the recording is in the repository");
    let mut archive = tar::Archive::new(liblzma::read::XzDecoder::new(file));
    let mut lines = Vec::new();
    for entry in archive.entries().expect("a tar archive") {
        let mut text = String::new();
        entry.and_then(|mut entry| entry.read_to_string(&mut text)).expect("UTF-8");
        lines.extend(text.lines().map(str::to_owned));
    }
    let unique: BTreeSet<String> = lines.into_iter().collect();
    let mut spans: HashMap<String, Span> =
        unique.iter().map(|line| span(line)).map(|span| (span.id.clone(), span)).collect();
    let ids: Vec<String> = spans.keys().cloned().collect();
    for id in ids {
        let mut at = id.clone();
        while spans[&at].trace.bytes().all(|digit| digit == b'0') {
            at = spans[&at]
                .parent
                .clone()
                .filter(|parent| spans.contains_key(parent))
                .expect("a chain that ends in a trace");
        }
        let trace = spans[&at].trace.clone();
        spans.get_mut(&id).expect("known").trace = trace;
    }
    let mut traces = Traces::new();
    for span in spans.into_values() {
        traces.entry(span.trace.clone()).or_default().push(span);
    }
    traces
}

fn span(line: &str) -> Span {
    let value: Value = serde_json::from_str(line).expect("JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let time = |key: &str| value[key].as_u64().expect("a time");
    let (trace, id) = match value.get("a") {
        Some(both) => (text(both)[..16].to_owned(), text(both)),
        None => (text(&value["i"]), text(&value["s"])),
    };
    // In the names of the repository's recordings, ids consist of decimal digits only.
    let mut name = String::new();
    for piece in text(&value["d"]).split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = piece.trim_end_matches(|c: char| !c.is_ascii_digit());
        name.push_str(if digits.len() >= 3 { "*" } else { digits });
        name.push_str(&piece[digits.len()..]);
    }
    let parent = value["p"].as_array().and_then(|parents| parents.first()).map(text);
    Span { trace, id, parent, name, ms: (time("e") - time("b")) as f64, bytes: line.len() }
}

fn tree(spans: &[Span], top: &Span) -> String {
    let mut below: Vec<String> = spans
        .iter()
        .filter(|span| span.parent.as_ref() == Some(&top.id))
        .map(|span| tree(spans, span))
        .collect();
    below.sort();
    format!("{}({})", top.name, below.join(" "))
}

struct Expected {
    traces: u64,
    spans: u64,
    bytes: u64,
    functions: u64,
    call_trees: u64,
    ss_ms: f64,
    entropy_bits: f64,
}

fn moments(durations: &[f64]) -> (f64, f64) {
    if durations.is_empty() {
        return (0.0, 0.0);
    }
    let count = durations.len() as f64;
    let mean = durations.iter().sum::<f64>() / count;
    (mean, (durations.iter().map(|ms| (ms - mean) * (ms - mean)).sum::<f64>() / count).sqrt())
}

fn by_function<'t>(traces: impl Iterator<Item = &'t Vec<Span>>) -> BTreeMap<&'t str, Vec<f64>> {
    let mut functions: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for span in traces.flatten() {
        functions.entry(&span.name).or_default().push(span.ms);
    }
    functions
}

fn expect(traces: &Traces, trees: &BTreeMap<&str, String>, kept: &BTreeSet<String>) -> Expected {
    let whole = by_function(traces.values());
    let chosen = || traces.iter().filter(|(id, _)| kept.contains(*id));
    let part = by_function(chosen().map(|(_, spans)| spans));
    let spans: u64 = part.values().map(|durations| durations.len() as u64).sum();
    let squares = whole.iter().map(|(name, durations)| {
        let (mean, sd) = moments(durations);
        let (kept_mean, kept_sd) = part.get(name).map_or((0.0, 0.0), |durations| moments(durations));
        (mean - kept_mean).powi(2) + (sd - kept_sd).powi(2)
    });
    let shares = part.values().map(|durations| durations.len() as f64 / spans as f64);
    Expected {
        traces: chosen().count() as u64,
        spans,
        bytes: chosen().flat_map(|(_, spans)| spans).map(|span| span.bytes as u64).sum(),
        functions: part.len() as u64,
        call_trees: chosen().map(|(id, _)| &trees[&**id]).collect::<BTreeSet<_>>().len() as u64,
        ss_ms: squares.sum::<f64>().sqrt(),
        entropy_bits: shares.map(|share| -share * share.log2()).sum(),
    }
}

#[track_caller]
fn compare(sampler: &str, score: &Score, expected: &Expected) {
    assert_eq!(
        (score.traces, score.spans, score.bytes, score.functions, score.call_trees),
        (expected.traces, expected.spans, expected.bytes, expected.functions, expected.call_trees),
        "{sampler}"
    );
    let close = |actual: f64, expected: f64| {
        assert!(
            (actual - expected).abs() <= 1e-6 * expected.abs().max(1.0),
            "{sampler}: {actual} is not {expected}"
        );
    };
    close(score.ss_ms, expected.ss_ms);
    close(score.entropy_bits, expected.entropy_bits);
}

#[track_caller]
fn check(path: &str) {
    let traces = load(path);
    let root = |spans: &[Span]| spans.iter().position(|span| span.parent.is_none()).expect("a root");
    let trees: BTreeMap<&str, String> =
        traces.iter().map(|(id, spans)| (&**id, tree(spans, &spans[root(spans)]))).collect();
    let recording = crate::read(path);
    let workload = Workload::new(&recording, &Grouping::default());
    let evaluator = Evaluator::new(&workload);
    for sampler in
        ["always", "never", "ratio:0.1", "every:100", "bump:lambda=10,min=0.01", "bucket:capacity=5,rate=0.5"]
    {
        let config = Candidate::Ours(sampler.parse().expect("a sampler"));
        for seed in [1, 2] {
            let kept: BTreeSet<String> = evaluator
                .kept(&config, &Draw { stratified: false, ..Draw::recorded(seed) })
                .iter()
                .map(|id| format!("{:016x}", id.0))
                .collect();
            compare(
                sampler,
                &evaluator.score(&config, &Draw { stratified: false, ..Draw::recorded(seed) }),
                &expect(&traces, &trees, &kept),
            );
        }
    }
}

#[test]
fn htrace3_recording_with_pipelines_that_carry_no_trace_id() {
    check("workloads/hdfs_client_ops.tar.xz");
}

#[test]
fn htrace4_recording_of_the_papers_write_workload() {
    check("workloads/dfsioe_write.tar.xz");
}
