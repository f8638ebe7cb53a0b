//! Comparisons of sampled traces: intervals hold the truth, and a sampler makes no alarms.

use std::path::Path;

use astracer_compare::instances::{Class, Head, Source as _};
use astracer_compare::moments::Moments;
use astracer_compare::ranking::is_significant;
use astracer_compare::sample::Sample;
use astracer_compare::student;
use astracer_compare::traces::{Chosen, Method, Traces};
use astracer_compare::typed::{Conditions, Part, Sums};
use astracer_recording::recording::{Intake, Keep, Recording};
use astracer_recording::source::{self, Options};
use astracer_recording::stop::Pulse;
use astracer_samplers::{Config, Nanos, Randomness, Request, Sampler};
use astracer_testing::{SplitMix, size};

fn recording() -> Recording {
    let mut intake = Intake::new(Keep::default());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/hdfs_client_ops.tar.xz");
    source::read(&path, &Options::default(), &mut intake).unwrap_or_else(|error| panic!("{error}"));
    intake.finish()
}

/// A trace as a sampler sees it.
#[derive(Clone, Copy)]
struct Call {
    at: usize,
    start: u64,
    stratum: u32,
}

/// The traces that a sampler keeps, with their weights.
fn kept(calls: &[Call], types: &[String], config: &str, random: &mut SplitMix) -> Vec<(usize, u32, f64)> {
    let config: Config = config.parse().expect("a sampler");
    let sampler = Sampler::new(&config);
    let first = calls[0].start;
    let mut kept = Vec::new();
    for call in calls {
        let randomness = Randomness::from_low_bits(random.next());
        let now = Nanos::new(call.start - first);
        let decision = sampler.decide(&Request::new(&types[call.stratum as usize], randomness, now));
        if decision.keep {
            let threshold = decision.threshold.expect("kept by chance");
            kept.push((call.at, call.stratum, threshold.adjusted_count()));
        }
    }
    kept
}

/// A sampler that keeps 30 % of these traces, from 5 to 100 % of a type.
const BUMP: &str = "bump:lambda=100,min=0.05,window=600s";
/// Another one, which keeps 35 %.
const OTHER: &str = "bump:lambda=10,min=0.3,window=600s";
/// Means of fewer values (by Kish) have no normal distribution here: most durations are 0 ms.
const EFFECTIVE_MIN: f64 = 50.0;

/// Runs `body` with the traces of the recording in the order of their starts.
fn with_sample(body: impl FnOnce(&Sample, &[Call], &[String])) {
    let recording = recording();
    let method = Method { paper: true, ..Method::default() };
    let mut pulse = Pulse::never();
    let chosen = |trace| Chosen { recording: &recording, trace, class: Class::Good, run: 0 };
    let traces =
        Traces::new(recording.traces().map(chosen).collect(), &method, &mut pulse).expect("not stopped");
    let sample = Sample::new(&traces, 20_000, true, &mut pulse).expect("not stopped");
    let call = |(at, head): (usize, &Head)| Call { at, start: head.start_ns, stratum: head.stratum };
    let mut calls: Vec<Call> = traces.heads().iter().enumerate().map(call).collect();
    calls.sort_by_key(|call| (call.start, call.at));
    body(&sample, &calls, traces.types());
}

/// The sums of all columns. Counts of 0 are left out.
fn moments(sample: &Sample, rows: impl Iterator<Item = (usize, f64)>) -> Vec<Moments> {
    let mut columns = vec![Moments::default(); sample.columns()];
    for (at, weight) in rows {
        sample.row(at).for_each(|(column, value)| columns[column as usize].add(value, weight));
    }
    columns
}

/// The 95 % intervals of 93 to 97 % of all means hold the whole recording's mean. Without weights
/// about half do.
#[test]
fn intervals_of_means_cover_those_of_the_whole() {
    with_sample(|sample, calls, types| {
        let truth = moments(sample, calls.iter().map(|call| (call.at, 1.0)));
        let is_covered = |own: &Moments, truth: &Moments| {
            let bound = student::quantile(0.05, own.effective() - 1.0) * own.variance_of_mean().sqrt();
            (own.mean() - truth.mean()).abs() <= bound
        };
        let (mut all, mut weighted, mut plain) = (0u64, 0u64, 0u64);
        for seed in 0..size(30, 200) {
            let kept = kept(calls, types, BUMP, &mut SplitMix::new(seed));
            let own = moments(sample, kept.iter().map(|&(at, _, weight)| (at, weight)));
            let equal = moments(sample, kept.iter().map(|&(at, ..)| (at, 1.0)));
            for ((truth, own), equal) in truth.iter().zip(&own).zip(&equal) {
                if own.effective() >= EFFECTIVE_MIN && truth.deviation() > 0.0 {
                    all += 1;
                    weighted += u64::from(is_covered(own, truth));
                    plain += u64::from(is_covered(equal, truth));
                }
            }
        }
        let [weighted, plain] = [weighted, plain].map(|covered| covered as f64 / all as f64);
        println!("{all} intervals: {weighted:.3} weighted, {plain:.3} unweighted");
        assert!((0.93..=0.97).contains(&weighted), "{weighted}");
        assert!(plain < 0.7, "{plain}");
    });
}

/// Random halves of the recording are alike. Sampled differently, they still are, by their weights.
#[test]
fn two_alike_classes_sampled_differently_raise_no_alarm() {
    with_sample(|sample, calls, types| {
        let seeds = size(40, 200);
        let mut alarms = [0u64; 2];
        for seed in 0..seeds {
            let mut random = SplitMix::new(seed);
            let (good, bad): (Vec<Call>, Vec<Call>) =
                calls.iter().copied().partition(|_| random.below(2) == 0);
            let good = kept(&good, types, BUMP, &mut random);
            let bad = kept(&bad, types, OTHER, &mut random);
            for (alarms, is_weighted) in alarms.iter_mut().zip([true, false]) {
                let part = |group: u32| {
                    move |&(at, stratum, weight): &(usize, u32, f64)| Part {
                        at,
                        stratum,
                        group,
                        weight: if is_weighted { weight } else { 1.0 },
                    }
                };
                let parts: Vec<Part> = good.iter().map(part(0)).chain(bad.iter().map(part(1))).collect();
                let tests = Sums::new(sample, &parts, types.len(), 2).tested(0, 1, &Conditions::TYPED);
                let any = tests.iter().any(|tested| is_significant(&tested.test, tests.len()));
                *alarms += u64::from(any);
            }
        }
        let [weighted, plain] = alarms.map(|alarms| alarms as f64 / seeds as f64);
        println!("alarms: {weighted} weighted, {plain} unweighted");
        assert!(weighted <= 0.08, "{weighted}");
        assert!(plain > 0.25, "{plain}");
    });
}
