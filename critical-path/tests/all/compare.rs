//! `compare` on a recording in which one DataNode stutters and the mix of requests changes.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use astracer_critical_path::{Analyser, By, Comparison, Method, Profile, Profiler, compare};
use astracer_model::problem::Problem;
use astracer_model::sink::{Content, Record, Sink};
use astracer_model::{Format, Span, SpanId, UnixNanos};
use astracer_recording::recording::{Intake, Keep, Recording, TraceView};
use astracer_recording::source::{self, Options};
use astracer_samplers::Template;
use astracer_testing::{SplitMix, mix};

/// The length of a stall of the DataNode, and the number of its calls per stall.
const STALL_NS: u64 = 300_000_000;
const ONE_IN: u64 = 12;
/// The file of the DataNode that stutters; all three DataNodes have the same name.
const DATA_NODE: &str = "dn2.json";

/// Passes spans on, with each time after a stall moved by the length of the stall.
struct Stuttering<'s> {
    intake: Intake<'static>,
    /// The spans of the DataNode.
    of_data_node: HashSet<SpanId>,
    /// For each span, the instants at which its trace stalls.
    stalls: &'s HashMap<SpanId, Vec<u64>>,
}

impl Sink for Stuttering<'_> {
    fn span(&mut self, mut span: Span<'_>, record: Record<'_>) {
        if let Some(stalls) = self.stalls.get(&span.span_id) {
            let late = |time: UnixNanos| {
                UnixNanos(time.0 + stalls.iter().filter(|&&at| time.0 > at).count() as u64 * STALL_NS)
            };
            (span.start, span.end) = (span.start.map(late), span.end.map(late));
        }
        if record.place.file.ends_with(DATA_NODE) {
            self.of_data_node.insert(span.span_id);
        }
        self.intake.span(span, record);
    }

    fn file(&mut self, file: &Arc<str>, content: Content) {
        self.intake.file(file, content);
    }

    fn problem(&mut self, problem: Problem) {
        self.intake.problem(problem);
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        self.intake.skipped(file, reason);
    }
}

/// The recording of real HDFS, with ids in names folded, and the spans of the DataNode.
fn read(stalls: &HashMap<SpanId, Vec<u64>>) -> (Recording, HashSet<SpanId>) {
    let template = Template::default();
    let rename = move |raw: &str, out: &mut String| {
        if !template.fold(raw, out) {
            *out = raw.to_owned();
        }
    };
    let intake = Intake::new(Keep::default()).rename_with(rename);
    let mut sink = Stuttering { intake, of_data_node: HashSet::new(), stalls };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/hdfs_client_ops.tar.xz");
    source::read(&path, &Options::default(), &mut sink).unwrap_or_else(|error| panic!("{error}"));
    (sink.intake.finish(), sink.of_data_node)
}

/// SplitMix64 of a span's id: selects the same spans in every run.
/// For each span of a trace with stalls, the instants of the stalls: in the middle of calls to the
/// DataNode.
fn stalls(recording: &Recording, of_data_node: &HashSet<SpanId>) -> HashMap<SpanId, Vec<u64>> {
    let mut stalls = HashMap::new();
    for trace in recording.traces() {
        let calls = trace.spans().filter(|span| {
            let is_call = span.name().starts_with("OpReadBlock") || span.name().starts_with("OpWriteBlock");
            is_call && of_data_node.contains(&span.id()) && mix(span.id().0).is_multiple_of(ONE_IN)
        });
        let instants: Vec<u64> = calls.map(|span| span.start().0 + span.duration_ns() / 2).collect();
        if !instants.is_empty() {
            stalls.extend(trace.spans().map(|span| (span.id(), instants.clone())));
        }
    }
    stalls
}

fn profile(recording: &Recording, weight_of_root: impl Fn(&str) -> f64) -> Profile {
    let mut profiler = Profiler::new(recording, By::Function).with_roots();
    let mut analyser = Analyser::new(Method::default());
    for trace in recording.traces() {
        let weight = weight_of_root(trace.root().name());
        profiler.add(&analyser.trace(recording, trace), Some(weight));
    }
    profiler.finish(&[])
}

fn names(comparison: &Comparison) -> Vec<&str> {
    comparison.differences.iter().map(|row| &*row.name[0]).collect()
}

#[test]
fn a_stuttering_data_node_shows_as_reads_and_the_pipelines_wait() {
    let (before, of_data_node) = read(&HashMap::new());
    let stalls = stalls(&before, &of_data_node);
    assert!(stalls.len() > 100, "{} spans", stalls.len());
    let (after, _) = read(&stalls);
    let whole = profile(&before, |_| 1.0);
    // Large files are created three times as often, so that closing them takes a larger part of the
    // time, and file status requests are a fifth as frequent.
    let mix = |root: &str| {
        if root.contains("createLarge") {
            3.0
        } else if root.contains("stat") {
            0.2
        } else {
            1.0
        }
    };
    let comparison = compare(&whole, &profile(&after, mix));
    let first = names(&comparison)[..2].to_vec();
    assert!(first.contains(&"waitForAckedSeqno"), "{first:?}");
    let is_read =
        |name: &&str| ["ReadBlock", "BlockReader", "InputStream"].iter().any(|part| name.contains(part));
    assert!(first.iter().any(is_read), "{first:?}");
    // By the plain difference, closing files ranks before reading them, only because of the mix.
    let mut raw: Vec<_> = comparison.differences.iter().collect();
    raw.sort_by(|a, b| b.difference_ms.abs().total_cmp(&a.difference_ms.abs()));
    let place = |of: &dyn Fn(&&str) -> bool| raw.iter().position(|row| of(&&*row.name[0]));
    assert!(place(&|name| *name == "completeFile") < place(&is_read), "{raw:?}");
    let close =
        comparison.differences.iter().find(|row| row.name == ["completeFile"]).expect("the row exists");
    assert!(close.same_roots_ms.abs() < 0.05 * close.mix_ms.abs(), "{close:?}");
    // The parts add up.
    for row in &comparison.differences {
        assert!((row.same_roots_ms + row.mix_ms - row.difference_ms).abs() < 1e-9, "{row:?}");
    }
    let same_roots: f64 = comparison.differences.iter().map(|row| row.same_roots_ms).sum();
    assert!((same_roots - comparison.same_roots_ms).abs() < 1e-9);
    let change = comparison.after_ms - comparison.before_ms;
    assert!((comparison.same_roots_ms + comparison.mix_ms - change).abs() < 1e-9);
}

/// Another mix of the same traces: the whole difference is due to the mix.
#[test]
fn another_mix_of_the_same_traces_is_no_change() {
    let (recording, _) = read(&HashMap::new());
    let mix = |root: &str| if root.len().is_multiple_of(2) { 2.0 } else { 0.5 };
    let comparison = compare(&profile(&recording, |_| 1.0), &profile(&recording, mix));
    assert!(comparison.mix_ms.abs() > 0.1, "{comparison:?}");
    assert!(comparison.differences.iter().all(|row| row.same_roots_ms.abs() < 1e-9));
    assert!(comparison.new_roots == 0.0 && comparison.new_roots.is_sign_positive());
    // A root that the other recording does not have counts as mix.
    let only = |root: &str| if root.contains("stat") { 0.0 } else { 1.0 };
    let gone = compare(&profile(&recording, only), &profile(&recording, |_| 1.0));
    assert!(gone.differences.iter().all(|row| row.same_roots_ms.is_finite()));
}

/// Traces of a single span, their root, with this name and length in ms.
fn roots(traces: &[(&str, u64)]) -> Profile {
    profile(&recording_of_roots(traces), |_| 1.0)
}

/// The same, each with a weight.
fn weighted_roots(traces: &[(&str, u64, f64)]) -> Profile {
    let roots: Vec<_> = traces.iter().map(|&(name, ms, _)| (name, ms)).collect();
    let recording = recording_of_roots(&roots);
    let mut profiler = Profiler::new(&recording, By::Function).with_roots();
    let mut analyser = Analyser::new(Method::default());
    for (trace, &(name, _, weight)) in recording.traces().zip(traces) {
        assert_eq!(trace.root().name(), name);
        profiler.add(&analyser.trace(&recording, trace), Some(weight));
    }
    profiler.finish(&[])
}

fn recording_of_roots(traces: &[(&str, u64)]) -> Recording {
    let span = |(id, &(name, ms)): (usize, &(&str, u64))| {
        let start = id as u64 * 1_000_000_000;
        let end = start + ms * 1_000_000;
        format!(
            r#"{{"traceId":"{id:032x}","spanId":"{id:016x}","name":"{name}","startTimeUnixNano":"{start}","endTimeUnixNano":"{end}"}}"#
        )
    };
    let spans: Vec<String> = (1..).zip(traces).map(span).collect();
    let request = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.join(","));
    let mut intake = Intake::new(Keep::default());
    let (file, limits) = ("request".into(), astracer_formats::Limits::default());
    astracer_formats::read(Format::OtlpJson, &mut request.as_bytes(), &file, &limits, &mut intake);
    intake.finish()
}

/// By hand. Three of six traces here are of `read`, which took 10 ms there and takes 11, 12 and 13
/// here: 1 ms more per trace of all six, and the variance of their mean is 2/3 by 2. One is of
/// `rare`, 7.5 ms more per trace of all six. But a single trace on either side says little: the
/// error is a sixth of the root of 5^2 + 50^2.
#[test]
fn a_change_is_at_the_mix_here_and_what_is_certain_comes_first() {
    let there = roots(&[("read", 10), ("read", 10), ("read", 10), ("quick", 2), ("rare", 5)]);
    let here = roots(&[("read", 11), ("read", 12), ("read", 13), ("quick", 2), ("quick", 2), ("rare", 50)]);
    let comparison = compare(&there, &here);
    assert_eq!(names(&comparison), ["read", "rare", "quick"]);
    let [read, rare, quick] = &comparison.differences[..] else { panic!("{comparison:?}") };
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    near(read.same_roots_ms, 1.0);
    near(read.error_ms, 0.5 * (1.0f64 / 3.0).sqrt());
    near(rare.same_roots_ms, 7.5);
    near(rare.error_ms, 2_525f64.sqrt() / 6.0);
    near(quick.same_roots_ms, 0.0);
    // Three of six traces instead of three of five: `read` takes 6 ms per trace, here and there.
    near(read.difference_ms, 0.0);
    near(read.mix_ms, -1.0);
}

/// By hand: all traces of `late` there have weight zero, so half of the traces here have a root
/// that is not there. Of the four traces of `kept` there, one has a weight and gives its time; the
/// mean is as uncertain as without the other three.
#[test]
fn traces_that_stand_for_none_are_no_root_and_tell_nothing_of_a_spread() {
    let there = weighted_roots(&[
        ("late", 90, 0.0),
        ("kept", 2, 4.0),
        ("kept", 9, 0.0),
        ("kept", 8, 0.0),
        ("kept", 7, 0.0),
    ]);
    let alone = weighted_roots(&[("kept", 2, 4.0)]);
    let here = weighted_roots(&[("late", 50, 1.0), ("kept", 3, 1.0), ("gone", 7, 0.0)]);
    for (there, here) in [(&there, &here), (&alone, &here)] {
        let comparison = compare(there, here);
        assert_eq!(comparison.new_roots, 0.5);
        assert_eq!((comparison.same_roots_ms, comparison.mix_ms), (0.5, 24.0), "{comparison:?}");
        let row = |name: &str| {
            let row = comparison.differences.iter().find(|row| row.name == [name]).expect("the row exists");
            (row.same_roots_ms, row.mix_ms, row.error_ms)
        };
        assert_eq!(row("late"), (0.0, 25.0, 0.0));
        // Half of the traces here, and the root of 2^2 + 3^2.
        assert_eq!(row("kept"), (0.5, -1.0, 0.5 * 13f64.sqrt()));
    }
    let back = compare(&here, &there);
    assert_eq!(
        back.differences.iter().find(|row| row.name == ["late"]).map(|row| row.same_roots_ms),
        Some(0.0)
    );
}

/// In each pair one trace makes up nearly the whole mean, and a single trace has no known spread.
#[test]
fn an_interval_knows_that_one_trace_may_be_most_of_the_mean() {
    let error = |before: &[(&str, u64, f64)], after: &[(&str, u64, f64)]| {
        let comparison = compare(&weighted_roots(before), &weighted_roots(after));
        comparison.differences[0].error_ms
    };
    let before = [("x", 100, 1_000.0), ("x", 101, 1.0)];
    assert!(error(&before, &[("x", 150, 1_000.0), ("x", 100, 1.0)]) > 30.0);
    // Exactly as uncertain as a single trace.
    let single = error(&[("x", 100, 1.0)], &[("x", 150, 1.0)]);
    let hardly = error(&[("x", 100, 1e12), ("x", 100, 1.0)], &[("x", 150, 1e12), ("x", 900, 1.0)]);
    assert!(hardly <= single * 1.001, "{hardly} {single}");
    // Equal weights have the same effect as no weights.
    let times = [10, 11, 14, 30];
    let weighted = |weight: f64| {
        let traces = times.map(|ms| ("x", ms, weight));
        error(&traces, &traces)
    };
    assert_eq!(weighted(4.0), weighted(1.0));
    let known = 2.0 * (1_317.0 / 4.0 - (65.0f64 / 4.0).powi(2)) / 3.0;
    assert!((weighted(1.0) - known.sqrt()).abs() < 1e-9, "{} {known}", weighted(1.0));
}

/// Random halves of a recording are alike, also if one is sampled by root and octave of the
/// duration, with few traces of large weight. 95 % intervals exclude 0 in at most 5 % of rows; by
/// the variance of each half alone they do in 5.9 %.
#[test]
fn a_sample_by_outcome_does_not_differ_from_everything() {
    let (recording, _) = read(&HashMap::new());
    let (mut rows, mut outside) = (0u32, 0u32);
    for seed in 0..20 {
        let mut random = SplitMix::new(seed);
        let whole: HashSet<usize> =
            (0..recording.trace_count()).filter(|_| random.next().is_multiple_of(2)).collect();
        let sampled = |at: &usize| !whole.contains(at);
        let stratum = |trace: TraceView<'_>| {
            (trace.root().name().to_owned(), trace.root().duration_ns().max(1).ilog2())
        };
        let mut counts: HashMap<_, f64> = HashMap::new();
        for (at, trace) in recording.traces().enumerate() {
            *counts.entry(stratum(trace)).or_default() += f64::from(u8::from(sampled(&at)));
        }
        let mut profiles = [true, false].map(|is_whole| {
            let mut profiler = Profiler::new(&recording, By::Function).with_roots();
            let mut analyser = Analyser::new(Method::default());
            let of_half = recording.traces().enumerate().filter(|(at, _)| is_whole != sampled(at));
            for (_, trace) in of_half {
                let probability = if is_whole { 1.0 } else { 5.0 / counts[&stratum(trace)] };
                let probability = probability.clamp(1.0 / 80.0, 1.0);
                if (random.next() >> 11) as f64 / (1u64 << 53) as f64 <= probability {
                    profiler.add(&analyser.trace(&recording, trace), Some(1.0 / probability));
                }
            }
            profiler.finish(&[])
        });
        for _ in 0..2 {
            profiles.reverse();
            for row in compare(&profiles[0], &profiles[1]).differences {
                rows += u32::from(row.error_ms > 0.0 || row.same_roots_ms != 0.0);
                outside += u32::from(row.same_roots_ms.abs() > 1.96 * row.error_ms);
            }
        }
    }
    println!("{outside} of {rows} intervals exclude 0");
    assert!(f64::from(outside) <= 0.05 * f64::from(rows), "{outside} of {rows}");
}
