//! Real recordings: by every rule, segments cover every root and shares add up, and a sample is
//! representative.

use std::collections::HashMap;
use std::path::Path;

use astracer_critical_path::drawing::Drawing;
use astracer_critical_path::events::EventGraph;
use astracer_critical_path::{
    Analyser, By, Method, PathKinds, Profiler, Retiming, Rule, Segment, Shape, Skew, compare,
};
use astracer_formats::Limits;
use astracer_model::Format;
use astracer_recording::recording::{Intake, Keep, Recording};
use astracer_recording::source::{self, Options};
use astracer_recording::stop::Pulse;
use astracer_recording::weight;
use astracer_testing::SplitMix;

fn read(path: &str) -> Recording {
    let mut intake = Intake::new(Keep { labels: vec!["hostname".to_owned()], ..Keep::default() });
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    source::read(&path, &Options::default(), &mut intake).unwrap_or_else(|error| panic!("{error}"));
    intake.finish()
}

/// Recordings in every format that is read, except OTLP protobuf, which a test makes from OTLP
/// JSON.
const RECORDINGS: [&str; 11] = [
    "workloads/hdfs_client_ops.tar.xz",
    "formats/tests/data/hdfs273",
    "formats/tests/data/hdfs283",
    "formats/tests/data/htrace4_sample_spans.jsonl",
    "formats/tests/data/jaeger_json",
    "formats/tests/data/zipkin_json",
    "formats/tests/data/otlp_json",
    "formats/tests/data/trainticket",
    "critical-path/tests/data/onlineboutique",
    "critical-path/tests/data/critical_path/crisp_test_cases",
    "critical-path/tests/data/xtrace",
];

/// Writes the spans of a recording as OTLP protobuf, and reads them again.
fn as_otlp_proto(path: &str) -> Recording {
    let mut full = Intake::new(Keep { full: true, ..Keep::default() });
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    source::read(&path, &Options::default(), &mut full).unwrap_or_else(|error| panic!("{error}"));
    let full = full.finish();
    let mut bytes = Vec::new();
    let mut writer =
        astracer_formats::writer(Format::OtlpProto, Box::new(&mut bytes)).expect("the format can be written");
    for trace in full.traces() {
        let spans: Vec<_> = trace.spans().map(|span| span.full().expect("kept").clone()).collect();
        writer.trace(&spans).expect("writing to memory cannot fail");
    }
    writer.finish().expect("writing to memory cannot fail");
    drop(writer);
    let mut intake = Intake::new(Keep::default());
    let file = "otlp".into();
    astracer_formats::read(Format::OtlpProto, &mut &*bytes, &file, &Limits::default(), &mut intake);
    let recording = intake.finish();
    assert_eq!(recording.span_count(), full.span_count());
    recording
}

#[test]
fn segments_tile_every_root_and_shares_add_up_to_one() {
    let converted =
        ("hotel as OTLP protobuf", as_otlp_proto("formats/tests/data/jaeger_json/hotel-40-traces.json.gz"));
    let recordings = RECORDINGS.into_iter().map(|path| (path, read(path)));
    for (path, recording) in recordings.chain([converted]) {
        assert!(recording.trace_count() > 0, "{path}");
        for rule in Rule::ALL {
            for skew in [Skew::Shift, Skew::Clip] {
                let mut analyser = Analyser::new(Method { rule, skew });
                let mut profilers =
                    [By::Function, By::Service, By::Path].map(|by| Profiler::new(&recording, by));
                for trace in recording.traces() {
                    let traced = analyser.trace(&recording, trace);
                    let segments = &traced.path.segments;
                    let (start, end) = match traced.shape {
                        Shape::Tree(tree) => (tree.nodes()[0].start, tree.nodes()[0].end),
                        Shape::Events(_) => (
                            segments.first().expect("a segment").start,
                            segments.last().expect("a segment").end,
                        ),
                    };
                    assert!(traced.path.tiles(start, end), "{path}, {rule}: {segments:?}");
                    profilers.iter_mut().for_each(|profiler| profiler.add(&traced, Some(1.0)));
                }
                for profile in profilers.map(|profiler| profiler.finish(&[50.0])) {
                    let shares: f64 = profile.rows.iter().map(|row| row.share).sum();
                    // Events have no length, so the rules for spans find no time in them.
                    let expected = if profile.total_ms > 0.0 { 1.0 } else { 0.0 };
                    assert!((shares - expected).abs() < 1e-9, "{path}, {rule}: {shares}");
                    assert_eq!(profile.weight, recording.trace_count() as f64);
                }
            }
        }
    }
}

#[test]
fn a_weighted_sample_speaks_for_the_whole() {
    // Each trace is kept with probability p and then counts for 1 / p. The estimate of a function's
    // total, over traces with times x, has the variance sum(x^2) (1 - p) / p; the mean of 200
    // independent estimates has a 200th of that. A deviation beyond five standard errors happens by
    // chance once in 1.7 million tries; ten functions are checked.
    const SEEDS: u64 = 200;
    let p = 0.1f64;
    let recording = read("workloads/hdfs_client_ops.tar.xz");
    let mut analyser = Analyser::new(Method::default());
    let mut times = vec![vec![0u64; recording.trace_count()]; recording.names().len()];
    for (at, trace) in recording.traces().enumerate() {
        let traced = analyser.trace(&recording, trace);
        for segment in traced.path.segments.iter() {
            times[traced.name(segment.node).index()][at] += segment.length();
        }
    }
    let kept = |seed: u64, at: usize| {
        // SplitMix64 of the trace's index, with another start for each seed.
        SplitMix::new(seed << 32 | at as u64).unit() < p
    };
    let mut means = vec![0.0; recording.names().len()];
    for seed in 0..SEEDS {
        let mut profiler = Profiler::new(&recording, By::Function);
        for (_, trace) in recording.traces().enumerate().filter(|&(at, _)| kept(seed, at)) {
            profiler.add(&analyser.trace(&recording, trace), Some(1.0 / p));
        }
        for row in profiler.finish(&[]).rows {
            let name = recording.names().find(&row.name[0]).expect("a name of the recording");
            means[name.index()] += row.total_ms / SEEDS as f64;
        }
    }
    let mut by_total: Vec<usize> = (0..times.len()).collect();
    by_total.sort_by_key(|&name| std::cmp::Reverse(times[name].iter().sum::<u64>()));
    for &name in &by_total[..10] {
        let total: f64 = times[name].iter().map(|&ns| ns as f64 / 1e6).sum();
        let squares: f64 = times[name].iter().map(|&ns| (ns as f64 / 1e6).powi(2)).sum();
        let deviation = (squares * (1.0 - p) / p / SEEDS as f64).sqrt();
        let off = (means[name] - total).abs();
        let function = recording.names().names().nth(name).expect("a name");
        assert!(off <= 5.0 * deviation, "{function}: {} for {total}, {off} over {deviation}", means[name]);
    }
}

#[test]
fn weights_come_from_the_tracestate() {
    let request = |state: &str| {
        let span = |id: &str, state: &str| {
            format!(
                r#"{{"traceId":"0000000000000000000000000000000{id}","spanId":"000000000000000{id}","name":"a","startTimeUnixNano":"1","endTimeUnixNano":"2","traceState":"{state}"}}"#
            )
        };
        format!(
            r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{},{}]}}]}}]}}"#,
            span("1", state),
            span("2", "")
        )
    };
    for (state, expected) in [
        ("ot=th:8", Some(2.0)),
        ("x=1,ot=th:c;rv:ffffffffffffff", Some(4.0)),
        ("ot=th:0", Some(1.0)),
        ("ot=p:8", None),
        ("ot=th:zz", None),
    ] {
        let mut intake = Intake::new(Keep { trace_states: true, ..Keep::default() });
        let file = "request".into();
        astracer_formats::read(
            Format::OtlpJson,
            &mut request(state).as_bytes(),
            &file,
            &Limits::default(),
            &mut intake,
        );
        let recording = intake.finish();
        let weights: Vec<_> =
            recording.traces().map(|trace| weight::adjusted_count(&recording, trace)).collect();
        assert_eq!(weights, [expected, None], "{state}");
    }
}

/// The threshold of a trace is its root's, even if a span that another clock timed comes first.
/// Without one, it is the first that a span has.
#[test]
fn the_roots_weight_is_the_traces() {
    let span = |id: u64, parent: &str, start: u64, state: &str| {
        format!(
            r#"{{"traceId":"00000000000000000000000000000001","spanId":"{id:016x}","parentSpanId":"{parent}","name":"a","startTimeUnixNano":"{start}","endTimeUnixNano":"20","traceState":"{state}"}}"#
        )
    };
    for (root, child, expected) in
        [("ot=th:8", "ot=th:c", Some(2.0)), ("", "ot=th:c", Some(4.0)), ("ot=rv:00000000000000", "", None)]
    {
        let spans = [span(1, "", 10, root), span(2, "0000000000000001", 5, child)].join(",");
        let request = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{spans}]}}]}}]}}"#);
        let mut intake = Intake::new(Keep { trace_states: true, ..Keep::default() });
        let file = "request".into();
        let limits = Limits::default();
        astracer_formats::read(Format::OtlpJson, &mut request.as_bytes(), &file, &limits, &mut intake);
        let recording = intake.finish();
        let weights: Vec<_> =
            recording.traces().map(|trace| weight::adjusted_count(&recording, trace)).collect();
        assert_eq!(weights, [expected], "{root} {child}");
    }
}

/// A span in OTLP's JSON: the numbers of the trace and the span, the parent's id, the name, and
/// start and end in ms.
fn span(trace: u32, id: u64, parent: &str, name: &str, (start, end): (u64, u64)) -> String {
    let (start, end) = (start * 1_000_000, end * 1_000_000);
    format!(
        r#"{{"traceId":"0000000000000000000000000000000{trace}","spanId":"{id:016x}","parentSpanId":"{parent}","name":"{name}","startTimeUnixNano":"{start}","endTimeUnixNano":"{end}"}}"#
    )
}

fn recorded(spans: &[String]) -> Recording {
    let request = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.join(","));
    let mut intake = Intake::new(Keep::default());
    let (file, limits) = ("request".into(), Limits::default());
    astracer_formats::read(Format::OtlpJson, &mut request.as_bytes(), &file, &limits, &mut intake);
    intake.finish()
}

/// By hand: a trace of 10 ms with weight 3, in which a call takes 4 ms, and one of 2 ms with weight
/// 1; without weights, each counts once.
#[test]
fn every_figure_of_a_profile_is_by_weight() {
    let parent = "0000000000000001";
    let spans = [
        span(1, 1, "", "root", (1, 11)),
        span(1, 2, parent, "call", (2, 6)),
        span(1, 3, parent, "beside", (2, 5)),
        span(2, 1, "", "root", (21, 23)),
    ];
    let recording = recorded(&spans);
    let profile = |weights: [Option<f64>; 2]| {
        let mut profiler = Profiler::new(&recording, By::Function);
        let mut analyser = Analyser::new(Method::default());
        for (trace, weight) in recording.traces().zip(weights) {
            profiler.add(&analyser.trace(&recording, trace), weight);
        }
        profiler.finish(&[50.0, 75.0, 80.0])
    };
    let weighted = profile([Some(3.0), Some(1.0)]);
    assert_eq!((weighted.traces, weighted.weight, weighted.unweighted), (2, 4.0, 0));
    assert_eq!((weighted.total_ms, weighted.length.mean_ms), (32.0, 8.0));
    let [root, call, beside] = &weighted.rows[..] else { panic!("{weighted:?}") };
    assert_eq!((root.total_ms, root.traces, root.time.mean_ms), (20.0, 4.0, 5.0));
    // Three of four traces have 6 ms of the root, and one has 2 ms: the first quarter is 2.
    assert_eq!(root.time.percentiles_ms, [6.0, 6.0, 6.0]);
    // The drag of a root is its length: 10 three times, and 2 once.
    assert_eq!((root.drag_ms, call.drag_ms, beside.slack_ms), (Some(8.0), Some(1.0), Some(1.0)));
    assert_eq!((call.total_ms, call.share), (12.0, 0.375));
    let unweighted = profile([None, None]);
    assert_eq!((unweighted.weight, unweighted.unweighted, unweighted.total_ms), (2.0, 2, 12.0));
    let half = profile([Some(1.0), Some(3.0)]);
    assert_eq!(half.length.percentiles_ms, [2.0, 2.0, 10.0]);
}

/// A function that is on the path only in traces with weight zero has the figures of one that is
/// never on it, and such a trace is never a percentile.
#[test]
fn a_trace_that_stands_for_none_is_in_no_figure() {
    let parent = "0000000000000001";
    let kept = [
        span(1, 1, "", "root", (1, 11)),
        span(1, 2, parent, "call", (2, 6)),
        span(1, 3, parent, "beside", (2, 5)),
    ];
    let late = [
        span(2, 1, "", "root", (21, 22)),
        span(2, 2, parent, "beside", (21, 22)),
        span(3, 1, "", "root", (31, 60)),
        span(3, 2, parent, "beside", (31, 59)),
    ];
    let figures = |spans: &[String]| {
        let recording = recorded(spans);
        [By::Function, By::Path].map(|by| {
            let mut profiler = Profiler::new(&recording, by);
            let mut retiming = Retiming::new(HashMap::new());
            let mut analyser = Analyser::new(Method::default());
            for trace in recording.traces() {
                let weight = Some(if trace.id().0 == 1 { 4.0 } else { 0.0 });
                profiler.add(&analyser.trace(&recording, trace), weight);
                retiming.add(&mut analyser, weight);
            }
            let profile = profiler.finish(&[0.0, 50.0, 100.0]);
            let all = (profile.weight, profile.total_ms, profile.length, profile.rows);
            format!("{all:?} {:?}", retiming.finish(&[0.0, 100.0]))
        })
    };
    let all = [&kept[..], &late].concat();
    assert_eq!(figures(&all), figures(&kept));
    let [by_function, _] = figures(&all);
    assert!(by_function.contains("beside") && !by_function.contains("NaN"), "{by_function}");
}

/// A function belongs to a trace's kind if it has at least 5 % of its critical time: 5 of 100.
#[test]
fn kinds_have_the_functions_with_a_twentieth_of_the_time() {
    let span = |trace: u32, id: u64, parent: &str, name: &str, (start, end): (u64, u64)| {
        format!(
            r#"{{"traceId":"0000000000000000000000000000000{trace}","spanId":"{id:016x}","parentSpanId":"{parent}","name":"{name}","startTimeUnixNano":"{start}","endTimeUnixNano":"{end}"}}"#
        )
    };
    let of_trace = |trace: u32, ns: u64| {
        let root = span(trace, 1, "", "root", (1_000, 1_100));
        [root, span(trace, 2, "0000000000000001", "call", (1_010, 1_010 + ns))].join(",")
    };
    let spans: Vec<String> = (1..).zip([4, 5, 6, 0, 95, 96]).map(|(trace, ns)| of_trace(trace, ns)).collect();
    // Calls that end with the root, and leave 5 and 4 to it.
    let request = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.join(","));
    let request = request.replace(
        r#""startTimeUnixNano":"1010","endTimeUnixNano":"1105""#,
        r#""startTimeUnixNano":"1005","endTimeUnixNano":"1100""#,
    );
    let request = request.replace(
        r#""startTimeUnixNano":"1010","endTimeUnixNano":"1106""#,
        r#""startTimeUnixNano":"1004","endTimeUnixNano":"1100""#,
    );
    let mut intake = Intake::new(Keep::default());
    let (file, limits) = ("request".into(), Limits::default());
    astracer_formats::read(Format::OtlpJson, &mut request.as_bytes(), &file, &limits, &mut intake);
    let kinds =
        PathKinds::of(&intake.finish(), Method::default(), &mut Pulse::never()).expect("nothing stops it");
    // Only the root; both; both; only the root; both; only the call.
    assert_eq!(kinds.of_traces(), [0, 1, 1, 0, 1, 2]);
}

#[test]
fn adjusted_time_counts_by_weight() {
    let recording = read("formats/tests/data/jaeger_json/hotel-40-traces.json.gz");
    let fitting = |weight: f64| {
        let mut profiler = Profiler::new(&recording, By::Function);
        let mut analyser = Analyser::new(Method::default());
        for trace in recording.traces() {
            profiler.add(&analyser.trace(&recording, trace), Some(weight));
        }
        profiler.finish(&[]).fitting
    };
    let (once, twice) = (fitting(1.0), fitting(2.0));
    assert!(once.shifted_ms > 0.0, "{once:?}");
    assert_eq!(2.0 * once.shifted_ms, twice.shifted_ms);
    assert_eq!((2.0 * once.clipped_ms, 2.0 * once.dropped_ms), (twice.clipped_ms, twice.dropped_ms));
    assert_eq!(once.shifted_spans, twice.shifted_spans);
}

#[test]
fn a_slower_function_is_the_first_difference() {
    let recording = read("workloads/hdfs_client_ops.tar.xz");
    let profile = |slow: Option<(&str, u64)>| {
        let mut profiler = Profiler::new(&recording, By::Function);
        let mut analyser = Analyser::new(Method::default());
        for trace in recording.traces() {
            let traced = analyser.trace(&recording, trace);
            let mut path = traced.path.clone();
            // Each stretch of the slow function takes longer, and everything after it is later.
            let mut late = 0;
            let slower = |mut segment: Segment| {
                segment.start += late;
                if slow
                    .is_some_and(|(name, _)| recording.names().find(name) == Some(traced.name(segment.node)))
                {
                    late += slow.map_or(0, |(_, ns)| ns);
                }
                segment.end += late;
                segment
            };
            path.segments = traced.path.segments.iter().map(slower).collect();
            profiler.add(&astracer_critical_path::Traced { path: &path, ..traced }, Some(1.0));
        }
        profiler.finish(&[])
    };
    let before = profile(None);
    let after = profile(Some(("OpReadBlockProto", 40_000_000)));
    let differences = compare(&before, &after).differences;
    assert_eq!(differences[0].name, ["OpReadBlockProto"]);
    let sum: f64 = differences.iter().map(|row| row.difference_ms).sum();
    let lengths = after.length.mean_ms - before.length.mean_ms;
    assert!((sum - lengths).abs() < 1e-6, "{sum} in all, {lengths} for a trace");
    assert!(differences[1..].iter().all(|row| row.difference_ms == 0.0));
}

#[test]
fn kinds_tell_traces_apart_that_have_the_same_calls() {
    let recording = read("workloads/hdfs_client_ops.tar.xz");
    let kinds = PathKinds::of(&recording, Method::default(), &mut Pulse::never()).expect("nothing stops it");
    assert_eq!(kinds.of_traces().len(), recording.trace_count());
    let mut seen: Vec<u32> = kinds.of_traces().to_vec();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), kinds.count());
    assert!(PathKinds::of(&recording, Method::default(), &mut Pulse::new(|| true)).is_none());
}

#[test]
fn without_skew_the_longest_path_is_that_of_the_latest_parents() {
    let recording = read("critical-path/tests/data/xtrace");
    for trace in recording.traces() {
        let graph = EventGraph::read(trace);
        let time = |event: u32| graph.events()[event as usize].time;
        let skewed = graph.graph().edges().iter().any(|edge| time(edge.to) < time(edge.from));
        let (latest, longest) = (graph.path(Rule::Events), graph.path(Rule::Last));
        if !skewed {
            assert_eq!(latest, longest, "{}", trace.id());
        }
        assert_eq!(latest.last(), longest.last());
        let length = graph.retime(|_| 1.0);
        assert_eq!(graph.retime(|_| 0.5), length / 2.0);
    }
}

#[test]
fn a_drawn_path_has_one_edge_between_each_two_of_its_events() {
    let recording = read("critical-path/tests/data/xtrace");
    for trace in recording.traces() {
        let drawing = Drawing::new(&recording, trace, Rule::Last, 3);
        let events = drawing.events.iter().filter(|event| event.on_path).count();
        let edges = drawing.events.iter().flat_map(|event| &event.edges).filter(|edge| edge.on_path).count();
        assert_eq!(edges + 1, events, "{}", drawing.trace_id);
        assert!(drawing.page().matches("edge line-bad").count() == edges);
    }
}
