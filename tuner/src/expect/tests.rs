//! Expectations against the plain sums, and against the means of replays.

use rayon::prelude::*;

use super::*;
use crate::evaluate::Evaluator;
use crate::score::Reference;
use crate::score::Tally;
use crate::space::Parameters;
use crate::testing::{recorded, synthetic};

const POINTS: [(f64, f64, f64); 6] = [
    (0.3, 0.02, 1.0),
    (1.0, 0.05, 0.5),
    (3.0, 0.004, 2.0),
    (20.0, 0.01, 0.25),
    (5.0, 0.0, 8.0),
    (0.0, 0.1, 4.0),
];

fn expectation(workload: &Workload, window_s: f64) -> Expectation {
    Expectation::with_windows(workload, &[NonZeroU64::new((window_s * 1e9) as u64).expect("a window")], true)
}

/// The probability that bump keeps each arrival, by its formula.
fn probabilities(workload: &Workload, lambda: f64, minimum: f64, window_s: f64) -> Vec<f64> {
    let mut counts = std::collections::HashMap::new();
    let probability = |arrival: &crate::workload::Arrival| {
        let window = arrival.at_ns / (window_s * 1e9) as u64;
        let count: &mut u32 = counts.entry((arrival.key, window)).or_default();
        let x = f64::from(*count);
        *count += 1;
        if x == 0.0 { 1.0 } else { (1.0 - (-lambda * lambda / (x * x)).exp()).max(minimum) }
    };
    workload.arrivals().iter().map(probability).collect()
}

#[track_caller]
fn close(what: &str, found: f64, expected: f64, tolerance: f64) {
    let difference = (found - expected).abs();
    assert!(difference <= tolerance * expected.abs().max(1e-9), "{what}: {found}, should be {expected}");
}

/// What is called exact, against sums over all arrivals.
#[test]
fn sizes_and_findings_are_exact() {
    for workload in [synthetic(3000, 1), recorded("hdfs_client_ops")] {
        for (lambda, minimum, window_s) in POINTS {
            let expectation = expectation(&workload, window_s);
            let point = BumpPoint { lambda, minimum, window: 0 };
            let mut scratch = expectation.scratch();
            let found = expectation.bump(|_| point, &mut scratch);
            let p = probabilities(&workload, lambda, minimum, window_s);
            let each = || workload.arrivals().iter().zip(&p);
            // Bins of up to 8 % of x change single probabilities by less than 0.1 %.
            let sum =
                |value: fn(&crate::workload::Arrival) -> f64| each().map(|(a, p)| p * value(a)).sum::<f64>();
            close("traces", found.traces, sum(|_| 1.0), 1e-3);
            close("spans", found.spans, sum(|arrival| f64::from(arrival.spans)), 1e-3);
            close("bytes", found.bytes, sum(|arrival| arrival.bytes as f64), 1e-3);
            close("OTLP bytes", found.otlp_bytes, sum(|arrival| arrival.otlp_bytes as f64), 1e-3);
            let (share, traces) = expectation.bump_size(|_| point, &mut scratch);
            close("share", share, found.tfcr, 1e-12);
            close("traces of the size", traces, found.traces, 1e-12);

            let mut trees = vec![1.0; workload.call_trees() as usize];
            let mut missing = vec![1.0; workload.functions().len()];
            let mut counts = vec![0.0; workload.functions().len()];
            let mut variances = vec![0.0; workload.functions().len()];
            for (index, (arrival, p)) in each().enumerate() {
                trees[arrival.call_tree as usize] *= 1.0 - p;
                for calls in workload.calls(index) {
                    let (function, count) = (calls.function as usize, f64::from(calls.count));
                    missing[function] *= 1.0 - p;
                    counts[function] += p * count;
                    variances[function] += count * count * (1.0 - p) / p.max(PROBABILITY_MIN);
                }
            }
            close("call trees", found.call_trees, trees.iter().map(|missing| 1.0 - missing).sum(), 1e-3);
            let known = || workload.functions().iter().enumerate().filter(|(_, function)| function.count > 0);
            close("functions", found.functions, known().map(|(f, _)| 1.0 - missing[f]).sum(), 1e-3);
            let total: f64 = counts.iter().sum();
            let shares = counts.iter().filter(|&&count| count > 0.0).map(|count| count / total);
            close("entropy", found.entropy_bits, shares.map(|share| -share * share.log2()).sum(), 1e-3);
            let errors: f64 = known().map(|(f, function)| variances[f].sqrt() / function.count as f64).sum();
            // Weights, 1 / p, tell counts of one bin apart better than p does.
            let tolerance = if minimum == 0.0 { 0.1 } else { 0.02 };
            let functions = known().count() as f64;
            close(
                "error of counts",
                found.count_error.expect("bump has weights"),
                errors / functions,
                tolerance,
            );
        }
    }
}

/// A workload so small that every kept part can be scored: 2^n of them.
#[test]
fn everything_is_exact_where_every_trace_is_set_apart() {
    // 11 traces are kept by chance; a function has four weighty traces at most, as many as are set apart.
    let workload = synthetic(12, 4);
    let (lambda, minimum, window_s) = (0.8, 0.3, 120.0);
    let p = probabilities(&workload, lambda, minimum, window_s);
    let reference = Reference::new(&workload);
    let (mut ss_squared, mut trees) = (0.0, 0.0);
    for part in 0..1u32 << p.len() {
        let mut tally = Tally::new(&workload, &reference);
        let mut probability = 1.0;
        for (arrival, p) in p.iter().enumerate() {
            if part >> arrival & 1 == 1 {
                tally.keep(arrival);
                probability *= p;
            } else {
                probability *= 1.0 - p;
            }
        }
        let score = tally.score();
        ss_squared += probability * score.ss_ms * score.ss_ms;
        trees += probability * score.call_trees as f64;
    }
    let expectation = expectation(&workload, window_s);
    let mut scratch = expectation.scratch();
    let found = expectation.bump(|_| BumpPoint { lambda, minimum, window: 0 }, &mut scratch);
    close("call trees", found.call_trees, trees, 1e-9);
    // The root of SS^2 is an approximation, and not every function has four traces only: see the next test.
    let by_function: f64 = expectation
        .functions
        .iter()
        .enumerate()
        .map(|(f, function)| {
            let kept = &scratch.pivots[f * PIVOTS..(f + 1) * PIVOTS];
            let mut found = Vec::new();
            let (sums, pivots) = (&scratch.functions[f], expectation.pivots.of(f));
            distances(function.duration_ms, sums, pivots, kept, &mut found);
            found.iter().map(|(probability, given)| probability * given.mean).sum::<f64>()
        })
        .sum();
    close("SS^2", by_function, ss_squared, 0.05);
}

/// The means of 200 replays through the samplers themselves. Exact quantities lie within four standard errors of the
/// mean (a normal number is farther out once in 16,000, and the seeds are fixed); SS and dist/entropy,
/// which are not exact, within four standard errors and 4 %.
#[test]
fn replays_agree() {
    const REPLAYS: u64 = 200;
    let few: &[(f64, f64, f64)] = &[(1.0, 0.05, 2.69)];
    let more: &[(f64, f64, f64)] = &[(1.0, 0.05, 2.69), (3.0, 0.01, 1.0), (10.0, 0.03, 5.0)];
    let workloads =
        [("synthetic", synthetic(3000, 2), more), ("hdfs_client_ops", recorded("hdfs_client_ops"), few)];
    for (name, workload, points) in workloads {
        let evaluator = Evaluator::new(&workload);
        for &(lambda, minimum, window_s) in points {
            let config = Parameters::Bump { lambda, min: minimum, window_s }.config().expect("a sampler");
            let scores: Vec<_> = (1..=REPLAYS)
                .into_par_iter()
                .map(|seed| evaluator.score_and_latency(&config.clone().into(), seed))
                .collect();
            let expectation = expectation(&workload, window_s);
            let point = BumpPoint { lambda, minimum, window: 0 };
            let found = expectation.bump(|_| point, &mut expectation.scratch());
            let check_values = |what: &str, values: Vec<f64>, expected: f64, share: f64| {
                let MeanSd { mean, sd } = MeanSd::of(values.into_iter());
                let error = (expected - mean).abs();
                let allowed = 4.0 * sd / (REPLAYS as f64).sqrt() + share * mean + 1e-9;
                assert!(
                    error <= allowed,
                    "{name}, lambda {lambda}: {what} {expected}, replays have {mean} (sd {sd})"
                );
            };
            let check = |what: &str, of: fn(&Score) -> f64, expected: f64, share: f64| {
                check_values(what, scores.iter().map(|(score, _)| of(score)).collect(), expected, share);
            };
            check("traces", |score| score.traces as f64, found.traces, 1e-3);
            check("spans", |score| score.spans as f64, found.spans, 1e-3);
            check("size", |score| score.tfcr, found.tfcr, 1e-3);
            check("functions", |score| score.functions as f64, found.functions, 1e-3);
            check("call trees", |score| score.call_trees as f64, found.call_trees, 1e-3);
            // Of first order: the entropy of the mean is a little above the mean of the entropy.
            check("entropy", |score| score.entropy_bits, found.entropy_bits, 0.005);
            check("SS", |score| score.ss_ms, found.ss_ms, 0.04);
            check("dist/entropy", |score| score.dist_over_entropy, found.dist_over_entropy, 0.04);
            let latencies = scores.iter().map(|&(_, latency)| latency).collect();
            // The root of the expected divergence lies above the expected root; by 12 % for lambda = 3, by 2 % else.
            check_values("latency", latencies, found.latency.expect("asked for"), 0.15);
        }
    }
}

/// Sums stand for any number of traces: ten copies of each arrival, in keys of their own, are ten times as many.
#[test]
fn an_equal_share_is_a_share_of_everything() {
    let workload = synthetic(3000, 3);
    let expectation = expectation(&workload, 1.0);
    let tenth = expectation.ratio(0.1, &mut expectation.scratch());
    close("traces", tenth.traces, 300.0, 1e-9);
    close("size", tenth.tfcr, 0.1, 1e-9);
    let all = expectation.ratio(1.0, &mut expectation.scratch());
    close("functions", all.functions, all.functions_all, 1e-9);
    close("call trees", all.call_trees, all.call_trees_all, 1e-9);
    assert!(all.ss_ms < 1e-3, "{}", all.ss_ms);
}

#[test]
fn windows_are_whole_milliseconds_on_a_geometric_scale() {
    let windows = window_lengths(1_000_000_000_000);
    let seconds: Vec<f64> = windows.iter().map(|window| window.get() as f64 / 1e9).collect();
    assert_eq!(seconds[..10], [0.1, 0.109, 0.119, 0.13, 0.141, 0.154, 0.168, 0.183, 0.2, 0.218]);
    assert!(windows.iter().all(|window| window.get() % 1_000_000 == 0));
    assert!(seconds.last().is_some_and(|&last| last > 50.0 && last <= 60.0));
    assert_eq!(window_lengths(0).len(), 1);
    assert_eq!(window_lengths(1_000_000_000).last().map(|last| last.get() / 1_000_000), Some(951));
}
