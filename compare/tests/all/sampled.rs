//! Comparisons of sampled traces: intervals hold the truth, and a sampler makes no alarms.

use std::collections::HashMap;
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

/// The traces that strata of type and octave of the length keep, about `of_each` of a stratum and
/// at least one in 80, with their weights.
fn kept_by_outcome(
    sample: &Sample,
    calls: &[Call],
    of_each: f64,
    random: &mut SplitMix,
) -> Vec<(usize, u32, f64)> {
    let stratum = |call: &Call| (call.stratum, sample.length(call.at).max(0.5).log2().floor() as i32);
    let mut counts: HashMap<_, f64> = HashMap::new();
    calls.iter().for_each(|call| *counts.entry(stratum(call)).or_default() += 1.0);
    let keep = |call: &Call| {
        let probability = (of_each / counts[&stratum(call)]).clamp(1.0 / 80.0, 1.0);
        let is_kept = (random.next() >> 11) as f64 / (1u64 << 53) as f64 <= probability;
        is_kept.then_some((call.at, call.stratum, 1.0 / probability))
    };
    calls.iter().filter_map(keep).collect()
}

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

/// Random halves of the recording are alike, too, if one is sampled by outcome and the other is
/// whole, or sampled by type, though the few traces of large weight often have no variance of their
/// own, and rare events are seen in a single trace of large weight. Other traffic is still found:
/// that of the two most frequent types under each other's name.
#[test]
fn a_sample_by_outcome_is_compared_with_everything() {
    with_sample(|sample, calls, types| {
        let seeds = size(20, 200);
        let mut of_type = vec![0u32; types.len()];
        calls.iter().for_each(|call| of_type[call.stratum as usize] += 1);
        let mut frequent: Vec<u32> = (0..types.len() as u32).collect();
        frequent.sort_by_key(|&stratum| std::cmp::Reverse(of_type[stratum as usize]));
        let renamed = |&(at, stratum, weight): &(usize, u32, f64)| {
            let place = frequent.iter().position(|&frequent| frequent == stratum);
            let stratum = match place {
                Some(place @ (0 | 1)) => frequent[1 - place],
                _ => stratum,
            };
            (at, stratum, weight)
        };
        let alarms = |good: &[(usize, u32, f64)], bad: &[(usize, u32, f64)]| {
            let part = |group: u32| {
                move |&(at, stratum, weight): &(usize, u32, f64)| Part { at, stratum, group, weight }
            };
            let parts: Vec<Part> = good.iter().map(part(0)).chain(bad.iter().map(part(1))).collect();
            let tests = Sums::new(sample, &parts, types.len(), 2).tested(0, 1, &Conditions::TYPED);
            u32::from(tests.iter().any(|tested| is_significant(&tested.test, tests.len())))
        };
        let (mut whole, mut head, mut found) = (0, 0, 0);
        for seed in 0..seeds {
            let mut random = SplitMix::new(seed);
            let (good, bad): (Vec<Call>, Vec<Call>) =
                calls.iter().copied().partition(|_| random.below(2) == 0);
            let more = kept_by_outcome(sample, &good, 20.0, &mut random);
            let good = kept_by_outcome(sample, &good, 5.0, &mut random);
            let by_type = kept(&bad, types, BUMP, &mut random);
            let bad: Vec<_> = bad.iter().map(|call| (call.at, call.stratum, 1.0)).collect();
            whole += alarms(&good, &bad) + alarms(&bad, &good);
            head += alarms(&good, &by_type);
            found += alarms(&more, &bad.iter().map(renamed).collect::<Vec<_>>());
        }
        println!("{seeds} halves: {whole} and {head} alarms, {found} differences found");
        // 5 % of 40 and of 20 are 2 and 1; more than 6 and 4 have a probability of 1 and 0.3 %.
        assert!(f64::from(whole) <= 0.15 * seeds as f64 * 2.0, "{whole}");
        assert!(f64::from(head) <= 0.2 * seeds as f64, "{head}");
        assert_eq!(u64::from(found), seeds as u64);
    });
}
