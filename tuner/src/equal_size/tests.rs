//! Baselines replayed over a workload: their decisions, their seeds and their sizes.

use std::sync::Arc;

use astracer_baselines::all;
use astracer_model::problem::Place;
use astracer_model::sink::{Record, Sink};
use astracer_model::{Span, SpanId, TraceId, UnixNanos};
use astracer_recording::recording::{Intake, Keep};
use astracer_samplers::Config;

use super::*;
use crate::candidate::Candidate;
use crate::key::Grouping;

/// Traces of one span and 100 bytes each, one per millisecond, in four keys. Of every 100 traces,
/// 70 have the first key, 20 the second, 9 the third and one the last.
fn workload(traces: u64) -> Workload {
    let mut intake = Intake::new(Keep::default());
    let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
    for n in 0..traces {
        let (name, start) = match n * 37 % 100 {
            0 => ("rare", n),
            1..10 => ("third", n),
            10..30 => ("second", n),
            _ => ("first", n),
        };
        let span = Span {
            trace_id: TraceId(u128::from(n + 1)),
            span_id: SpanId(n + 1),
            name: name.into(),
            start: Some(UnixNanos(start * 1_000_000)),
            end: Some(UnixNanos(start * 1_000_000 + 1000)),
            ..Span::default()
        };
        intake.span(span, Record { bytes: &[b'x'; 100], place: &place });
    }
    Workload::new(&intake.finish(), &Grouping::default())
}

fn sized(workload: &Workload, spec: &BaselineSpec, wanted: f64, seeds: u64) -> EqualSize {
    let draws: Vec<Draw> = (1..=seeds).map(Draw::recorded).collect();
    at_equal_size(workload, spec, wanted, &draws, Stop::never()).expect("not stopped")
}

fn replay(workload: &Workload, spec: &BaselineSpec, seed: u64, mut keep: impl FnMut(usize)) {
    let draw = Draw::recorded(seed);
    Candidate::from(spec.clone()).replay(workload, &draw, Stop::never(), |index, _| keep(index));
}

/// The probabilities are powers of two because our `ratio` rounds its threshold to few digits.
#[test]
fn ours_and_theirs_keep_the_same_traces() {
    let workload = workload(2000);
    for text in ["ratio:0.5", "ratio:0.0625", "ratio:1", "every:1", "every:7"] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let config: Config = text.parse().expect(text);
        let draw = Draw { stratified: false, ..Draw::recorded(3) };
        Candidate::from(config).replay(&workload, &draw, Stop::never(), |index, _| ours.push(index));
        replay(&workload, &text.parse().expect(text), 3, |index| theirs.push(index));
        assert_eq!(theirs, ours, "{text}");
    }
}

#[test]
fn a_seed_decides_everything() {
    let workload = workload(2000);
    for spec in all() {
        let kept = |seed: u64| {
            let mut kept = Vec::new();
            replay(&workload, &spec, seed, |index| kept.push(index));
            kept
        };
        assert_eq!(kept(1), kept(1), "{spec}");
        assert!(kept(1).is_sorted(), "{spec}");
    }
}

#[test]
fn a_size_is_met_by_turning_the_knob() {
    let workload = workload(20_000);
    for spec in all() {
        let found = sized(&workload, &spec, 0.1, 3);
        let again = {
            let mut bytes = 0;
            for seed in 1..=3 {
                replay(&workload, &found.spec, seed, |index| bytes += workload.arrivals()[index].bytes);
            }
            bytes as f64 / 3.0 / 2e6
        };
        assert!((found.tfcr - again).abs() < 1e-12, "{} says {} and keeps {again}", found.spec, found.tfcr);
        match spec.kind().name {
            // The 20 s are shorter than its period, so only the initial probability and the lower
            // bound keep anything: 4 traces and some 20.
            "jaeger-adaptive" => assert!(!found.is_met() && found.tfcr < 0.002, "{found:?}"),
            // It keeps everything in the first 30 s.
            "dynsampler-per-key" | "dynsampler-total" => assert_eq!(found.tfcr, 1.0, "{found:?}"),
            _ => assert!(found.is_met(), "{found:?}"),
        }
    }
}

/// Keeping every tenth of 20,000 traces keeps 10 %. For 9.7 %, a whole number cannot come nearer
/// than 10.
#[test]
fn a_whole_number_comes_as_near_as_it_can() {
    let workload = workload(20_000);
    let every = |n: u64| format!("every:{n}").parse::<BaselineSpec>().expect("a baseline");
    assert_eq!(every(2).with_knob(2.6), every(3));
    assert_eq!(every(2).with_knob(0.1), every(1));
    assert_eq!(sized(&workload, &every(10), 0.1, 1).tries, 1);
    for (wanted, expected) in [(0.1, "every:10"), (0.097, "every:10"), (0.9, "every:1"), (0.3, "every:3")] {
        let found = sized(&workload, &every(2), wanted, 1);
        assert_eq!(found.spec.to_string(), expected, "{wanted}: {found:?}");
    }
}

#[test]
fn nothing_is_needed_of_an_empty_workload() {
    let empty = workload(0);
    for spec in all() {
        replay(&empty, &spec, 1, |index| panic!("kept {index}"));
        assert_eq!(sized(&empty, &spec, 0.1, 2).tfcr, 0.0, "{spec}");
    }
}
