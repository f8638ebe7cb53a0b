//! Compares expectations with plain sums over traces and with the means of replays.

use astracer_samplers::Config;
use rayon::prelude::*;

use super::*;
use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::half_life::{Clock, HalfLife};
use crate::held_out::Replayed;
use crate::latency::LatencyTally;
use crate::paths::PathTally;
use crate::score::{Reference, Tally};
use crate::space::Parameters;
use crate::testing::{many_names, recorded, synthetic};

mod single_traces;

const POINTS: [(f64, f64, f64); 6] = [
    (0.3, 0.02, 1.0),
    (1.0, 0.05, 0.5),
    (3.0, 0.004, 2.0),
    (20.0, 0.01, 0.25),
    (5.0, 0.0, 8.0),
    (0.0, 0.1, 4.0),
];

fn expectation(workload: &Workload, counting: Counting, length_s: f64) -> Expectation {
    let design = Design {
        counting,
        lengths_ns: vec![NonZeroU64::new((length_s * 1e9) as u64).expect("a length")],
        phase: 0.0,
        extras: Extras::ALL,
        stratified: false,
    };
    Expectation::new(workload, &design, Stop::never()).expect("not stopped")
}

/// The score of bump with the same parameters for each key, and the sums behind it.
fn bump(expectation: &Expectation, counting: Counting, lambda: f64, minimum: f64) -> (Expected, Scratch) {
    let (curve, mut scratch) = (Curve::new(counting, lambda, 2.0), Scratch::default());
    (
        expectation
            .expected(0, |_| KeyLaw::Bump(&curve, minimum), &mut scratch, Stop::never())
            .expect("not stopped"),
        scratch,
    )
}

/// The probability with which bump keeps each arrival, by its formula.
fn probabilities(
    workload: &Workload,
    counting: Counting,
    lambda: f64,
    minimum: f64,
    length_s: f64,
) -> Vec<f64> {
    let length = NonZeroU64::new((length_s * 1e9) as u64).expect("a length");
    let counts = super::index::counts_before(workload, counting, length, 0.0, &mut Pulse::never());
    let counts = counts.expect("not stopped");
    let probability =
        |x: &f64| if *x == 0.0 { 1.0 } else { (1.0 - (-lambda * lambda / (x * x)).exp()).max(minimum) };
    counts.iter().map(probability).collect()
}

#[track_caller]
fn close(what: &str, found: f64, expected: f64, tolerance: f64) {
    let difference = (found - expected).abs();
    assert!(difference <= tolerance * expected.abs().max(1e-9), "{what}: {found}, should be {expected}");
}

/// The quantities documented as exact, compared with sums over all arrivals.
#[test]
fn sizes_and_findings_are_exact() {
    for workload in [synthetic(3000, 1), recorded("hdfs_client_ops")] {
        for ((lambda, minimum, length_s), counting) in
            POINTS.into_iter().flat_map(|point| [(point, Counting::Tumbling), (point, Counting::Decaying)])
        {
            let expectation = expectation(&workload, counting, length_s);
            let (found, _) = bump(&expectation, counting, lambda, minimum);
            let p = probabilities(&workload, counting, lambda, minimum, length_s);
            let each = || workload.arrivals().iter().zip(&p);
            // Bins are 8 to 10 % of x wide, which changes single probabilities by up to that, in
            // both directions.
            let sum =
                |value: fn(&crate::workload::Arrival) -> f64| each().map(|(a, p)| p * value(a)).sum::<f64>();
            close("traces", found.traces, sum(|_| 1.0), 0.01);
            close("spans", found.spans, sum(|arrival| f64::from(arrival.spans)), 0.01);
            close("bytes", found.bytes, sum(|arrival| arrival.bytes as f64), 0.01);
            close("OTLP bytes", found.otlp_bytes, sum(|arrival| arrival.otlp_bytes as f64), 0.01);
            let curve = Curve::new(counting, lambda, 2.0);
            let (share, traces) =
                expectation.kept(0, |_| KeyLaw::Bump(&curve, minimum), Stop::never()).expect("not stopped");
            close("share", share, found.tfcr, 1e-12);
            close("traces of the size", traces * workload.arrivals().len() as f64, found.traces, 1e-12);

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
            close("call trees", found.call_trees, trees.iter().map(|missing| 1.0 - missing).sum(), 0.01);
            let known = || workload.functions().iter().enumerate().filter(|(_, function)| function.count > 0);
            close("functions", found.functions, known().map(|(f, _)| 1.0 - missing[f]).sum(), 0.01);
            let total: f64 = counts.iter().sum();
            let shares = counts.iter().filter(|&&count| count > 0.0).map(|count| count / total);
            close("entropy", found.entropy_bits, shares.map(|share| -share * share.log2()).sum(), 0.01);
            let errors: f64 = known().map(|(f, function)| variances[f].sqrt() / function.count as f64).sum();
            // Weights, 1 / p, differ more within a bin than p does.
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

/// A workload so small that each of the 2^n possible kept parts can be scored.
#[test]
fn everything_is_exact_where_every_trace_is_set_apart() {
    // 11 traces are kept by chance. Each function has at most four weighty traces, so all of them
    // are pivots.
    let workload = synthetic(12, 4);
    let (lambda, minimum, window_s) = (0.8, 0.3, 120.0);
    let p = probabilities(&workload, Counting::Tumbling, lambda, minimum, window_s);
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
    let expectation = expectation(&workload, Counting::Tumbling, window_s);
    let (found, scratch) = bump(&expectation, Counting::Tumbling, lambda, minimum);
    close("call trees", found.call_trees, trees, 1e-9);
    // The root of SS^2 is approximate, and some functions have more than four traces: see the next
    // test.
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
    let (mean, sd) = (found.ss_ms, found.ss_sd_ms);
    close("mean and variance of SS", mean * mean + sd * sd, by_function, 1e-9);
    assert!(sd > 0.0);
}

/// A part of the recording lacks some functions, buckets and path kinds of the whole. These must
/// not count.
#[test]
fn a_part_has_the_functions_and_kinds_of_its_own_traces() {
    let whole = synthetic(3000, 1);
    let part = whole.part(0..40, Stop::never()).expect("not stopped");
    let functions: std::collections::BTreeSet<u32> =
        (0..40).flat_map(|index| part.calls(index)).map(|calls| calls.function).collect();
    let kinds: std::collections::BTreeSet<u32> =
        part.arrivals().iter().map(|arrival| arrival.path_kind).collect();
    assert!(functions.len() < whole.functions().len() && kinds.len() < whole.path_kinds().len());
    assert!(part.latency_cells().iter().any(|cell| cell.count == 0));
    let expectation = expectation(&part, Counting::Tumbling, 1.0);
    let all = expectation.ratio(1.0, &mut Scratch::default(), Stop::never()).expect("not stopped");
    assert_eq!((all.functions_all, all.paths_all), (functions.len() as f64, kinds.len() as f64));
    close("functions", all.functions, functions.len() as f64, 1e-9);
    close("paths", all.paths.expect("asked for"), kinds.len() as f64, 1e-9);
    assert!(
        all.latency.expect("asked for") < 1e-6 && all.path_distance.expect("asked for") < 1e-6,
        "{all:?}"
    );
    assert!(all.count_error.expect("weights") < 1e-6, "{all:?}");
    // For the tenth kept, the mean error is over the part's functions, and not over all functions
    // of the whole.
    let tenth = expectation.ratio(0.1, &mut Scratch::default(), Stop::never()).expect("not stopped");
    let mut errors = 0.0;
    for &function in &functions {
        let squares = (0..40).flat_map(|index| part.calls(index)).filter(|calls| calls.function == function);
        let variance: f64 = squares.map(|calls| f64::from(calls.count).powi(2) * 9.0).sum();
        errors += variance.sqrt() / part.functions()[function as usize].count as f64;
    }
    close("error of counts", tenth.count_error.expect("weights"), errors / functions.len() as f64, 1e-9);
}

/// There is nothing to keep, or nothing is kept: no result is a quotient of zeros.
#[test]
fn nothing_is_no_quotient_of_zeros() {
    let whole = synthetic(300, 1);
    let empty = whole.part(0..0, Stop::never()).expect("not stopped");
    for workload in [&empty, &synthetic(0, 1)] {
        let expectation = expectation(workload, Counting::Tumbling, 1.0);
        for share in [0.0, 0.5, 1.0] {
            let found =
                expectation.ratio(share, &mut Scratch::default(), Stop::never()).expect("not stopped");
            let nothing = Expected {
                latency: found.latency.map(|_| 0.0),
                count_error: Some(0.0),
                paths: found.paths.map(|_| 0.0),
                path_distance: found.path_distance.map(|_| 0.0),
                call_trees_all: f64::from(workload.call_trees()),
                ..Expected::default()
            };
            assert_eq!(found, nothing);
            let kept = expectation.kept(0, |_| KeyLaw::Constant(share), Stop::never());
            assert_eq!(kept, Some((0.0, 0.0)));
        }
    }
    let expectation = expectation(&whole, Counting::Tumbling, 1.0);
    let none = expectation.ratio(0.0, &mut Scratch::default(), Stop::never()).expect("not stopped");
    assert_eq!((none.traces, none.spans, none.tfcr, none.functions), (0.0, 0.0, 0.0, 0.0));
    assert_eq!((none.call_trees, none.entropy_bits, none.paths), (0.0, 0.0, Some(0.0)));
    assert_eq!((none.latency, none.path_distance, none.ss_sd_ms), (Some(1.0), Some(1.0), 0.0));
    let squares = whole.functions().iter().map(|function| function.duration_ms);
    let ss_ms = squares.map(|of| of.mean * of.mean + of.sd * of.sd).sum::<f64>().sqrt();
    close("SS", none.ss_ms, ss_ms, 1e-9);
    assert_eq!(none.dist_over_entropy, f64::INFINITY);
}

/// Leaving out call trees changes nothing else, whatever the working memory held before.
#[test]
fn a_score_without_call_trees_lacks_nothing_else() {
    let workload = synthetic(900, 5);
    let expectation = expectation(&workload, Counting::Decaying, 1.0);
    let curve = Curve::new(Counting::Decaying, 2.0, 1.5);
    let law = |_| KeyLaw::Bump(&curve, 0.05);
    let mut scratch = Scratch::default();
    let all = expectation.expected(0, law, &mut scratch, Stop::never()).expect("not stopped");
    let without = expectation.score(0, law, false, &mut scratch, Stop::never());
    assert!(all.call_trees > 0.0);
    assert_eq!(without, Some(Expected { call_trees: 0.0, ..all }));
    assert_eq!(expectation.expected(0, law, &mut scratch, Stop::never()), Some(all));
}

/// Keeps half of the traces of one root, each of which calls two functions once, and nothing else.
/// The entropy is one bit; functions that are never kept do not contribute.
#[test]
fn functions_that_are_never_kept_are_no_part_of_the_entropy() {
    let workload = synthetic(3000, 1);
    let quiet = workload.keys().names().position(|name| name == "quiet").expect("known");
    let traces = workload.arrivals().iter().filter(|arrival| arrival.key as usize == quiet).count() as f64;
    let expectation = expectation(&workload, Counting::Tumbling, 1.0);
    let law = |key: usize| KeyLaw::Constant(if key == quiet { 0.5 } else { 0.0 });
    let found = expectation.expected(0, law, &mut Scratch::default(), Stop::never()).expect("not stopped");
    close("entropy", found.entropy_bits, 1.0, 1e-12);
    close("functions", found.functions, 2.0, 1e-9);
    close("traces", found.traces, traces / 2.0, 1e-12);
}

/// The logarithm of the estimated share of a bucket, ln(N / M), with n of a function's m calls, has
/// the slope 1/n - 1/m by the bucket's own calls and -1/m by those of each other bucket.
#[test]
fn divergences_have_the_slopes_of_shares() {
    let workload = synthetic(900, 5);
    let expectation = expectation(&workload, Counting::Tumbling, 1.0);
    let cells = workload.latency_cells();
    let variances: Vec<f64> = (0..cells.len()).map(|cell| 3.0 + 7.0 * (cell % 5) as f64).collect();
    let found = expectation.divergences(&variances).expect("asked for");
    for (index, function) in workload.functions().iter().enumerate() {
        let all = function.count as f64;
        let own = || {
            cells.iter().zip(&variances).enumerate().filter(|(_, (cell, _))| cell.function as usize == index)
        };
        let mut expected = 0.0;
        for (place, (cell, _)) in own() {
            let count = cell.count as f64;
            let slope = |other: usize| if other == place { 1.0 / count - 1.0 / all } else { -1.0 / all };
            let relative: f64 = own().map(|(other, (_, variance))| slope(other).powi(2) * variance).sum();
            expected += count / all * relative / (relative + 8.0 * std::f64::consts::LN_2);
        }
        close("divergence", found[index], expected, 1e-9);
    }
}

/// The mean is calculated field by field. A field that one score lacks is missing in the mean.
#[test]
fn a_mean_is_that_of_every_field() {
    let at = |at: f64| Expected {
        traces: at,
        spans: 2.0 * at,
        bytes: 3.0 * at,
        otlp_bytes: 4.0 * at,
        tfcr: 5.0 * at,
        functions: 6.0 * at,
        functions_all: 7.0 * at,
        call_trees: 8.0 * at,
        call_trees_all: 9.0 * at,
        ss_ms: 10.0 * at,
        ss_sd_ms: 11.0 * at,
        entropy_bits: 12.0 * at,
        dist_over_entropy: 13.0 * at,
        latency: Some(14.0 * at),
        count_error: Some(15.0 * at),
        paths: Some(16.0 * at),
        paths_all: 17.0 * at,
        path_distance: Some(18.0 * at),
    };
    assert_eq!(Expected::mean(&[at(1.0), at(2.0), at(6.0)]), at(3.0));
    let without = Expected { latency: None, count_error: None, ..at(2.0) };
    assert_eq!(
        Expected::mean(&[at(1.0), without, at(6.0)]),
        Expected { latency: None, count_error: None, ..at(3.0) }
    );
    assert_eq!(Expected::mean(&[]), Expected::default());
}

/// Compares with the means of 200 replays through the samplers themselves. Exact quantities must
/// lie within 1 % (for the bins) plus four standard errors of the mean, which a normal variable
/// exceeds once in 16,000 cases; the seeds are fixed. SS and dist/entropy are approximate and must
/// lie within 5 % plus four standard errors.
#[test]
fn replays_agree() {
    const REPLAYS: u64 = 200;
    let few: &[(f64, f64, f64)] = &[(1.0, 0.05, 2.69)];
    let more: &[(f64, f64, f64)] = &[(1.0, 0.05, 2.69), (3.0, 0.01, 1.0), (10.0, 0.03, 5.0)];
    let workloads = [
        ("synthetic", synthetic(3000, 2), more, Counting::Tumbling),
        ("synthetic", synthetic(3000, 2), more, Counting::Decaying),
        ("hdfs_client_ops", recorded("hdfs_client_ops"), few, Counting::Decaying),
    ];
    for (name, workload, points, counting) in workloads {
        let paced = Draw::recorded(0).timed(Clock::Calls, &workload, Stop::never()).expect("not stopped");
        let paced = workload.arranged(&paced, Stop::never()).expect("not stopped");
        let last_s = workload.seconds();
        for &(lambda, minimum, length_s) in points {
            // A half-life is in calls, of which each takes a millisecond of the pace's time.
            let half_life_calls = (length_s / last_s * workload.arrivals().len() as f64).round();
            let (parameters, expectation) = match counting {
                Counting::Tumbling => (
                    Parameters::Bump { lambda, min: minimum, window_s: length_s },
                    expectation(&workload, counting, length_s),
                ),
                Counting::Decaying => (
                    Parameters::Decaying {
                        lambda,
                        min: minimum,
                        half_life: HalfLife::Calls(half_life_calls),
                        exponent: 2.0,
                    },
                    expectation(&paced, counting, half_life_calls / 1e3),
                ),
            };
            let config = Candidate::from(parameters.config().expect("a sampler"));
            let reference = Reference::new(&workload);
            let scores: Vec<_> = (1..=REPLAYS)
                .into_par_iter()
                .map(|seed| {
                    let mut tally = Tally::new(&workload, &reference);
                    let mut histograms = LatencyTally::new(&workload);
                    let mut paths = PathTally::new(&workload);
                    let draw = Draw { stratified: false, ..Draw::recorded(seed) };
                    config.replay(&workload, &draw, Stop::never(), |arrival, weight| {
                        tally.keep(arrival);
                        histograms.keep(arrival, weight.unwrap_or(1.0));
                        paths.keep(arrival, weight.unwrap_or(1.0));
                    });
                    (tally.score(), histograms.distance(), paths.score())
                })
                .collect();
            let (found, _) = bump(&expectation, counting, lambda, minimum);
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
                check_values(what, scores.iter().map(|(score, ..)| of(score)).collect(), expected, share);
            };
            check("traces", |score| score.traces as f64, found.traces, 0.01);
            check("spans", |score| score.spans as f64, found.spans, 0.01);
            check("size", |score| score.tfcr, found.tfcr, 0.01);
            check("functions", |score| score.functions as f64, found.functions, 0.01);
            check("call trees", |score| score.call_trees as f64, found.call_trees, 0.01);
            // A first-order result: the entropy of the mean is slightly above the mean of the
            // entropy.
            check("entropy", |score| score.entropy_bits, found.entropy_bits, 0.01);
            check("SS", |score| score.ss_ms, found.ss_ms, 0.05);
            check("dist/entropy", |score| score.dist_over_entropy, found.dist_over_entropy, 0.05);
            let latencies = scores.iter().map(|&(_, latency, _)| latency).collect();
            // The root of the expected divergence is above the expected root: by 12 % for lambda =
            // 3, otherwise by 2 %.
            check_values("latency", latencies, found.latency.expect("asked for"), 0.15);
            let paths = |of: fn(&PathScore) -> f64| scores.iter().map(|(.., paths)| of(paths)).collect();
            check_values("paths", paths(|own| own.paths as f64), found.paths.expect("asked for"), 0.01);
            let distance = found.path_distance.expect("asked for");
            check_values("path distance", paths(|own| own.path_distance), distance, 0.1);
        }
    }
}

/// Compares with the means and standard deviations of 200 replays with stratified randomness. The
/// number of traces kept of a key does not vary, and the error of counts estimated by weights is
/// smaller.
#[test]
fn replays_with_stratified_randomness_agree() {
    let workload = synthetic(3000, 2);
    // The key with one trace is kept with probability 1: otherwise its error would be that of a
    // single random number, which stratification cannot reduce.
    let config: Config = r#"bump:lambda=0,min=0.1,count=none;"once":min=1"#.parse().expect("a sampler");
    let sampler = Candidate::from(config);
    let once = workload.keys().names().position(|name| name == "once").expect("known");
    let law = |key: usize| KeyLaw::Constant(if key == once { 1.0 } else { 0.1 });
    let score = |stratified: bool| {
        let draws: Vec<Draw> = (1..=200).map(|seed| Draw { stratified, ..Draw::recorded(seed) }).collect();
        let replayed =
            Replayed::new(&workload, &sampler, &draws, Stop::never(), &|| ()).expect("not stopped");
        let design = Design::uncounted(Extras::ALL, stratified);
        let expectation = Expectation::new(&workload, &design, Stop::never()).expect("not stopped");
        let found =
            expectation.expected(0, law, &mut Scratch::default(), Stop::never()).expect("not stopped");
        (replayed, found)
    };
    let ((independent, plain), (spread, fixed)) = (score(false), score(true));
    for (replayed, found) in [(&independent, &plain), (&spread, &fixed)] {
        let of = replayed.dist_over_entropy;
        close("dist/entropy", found.dist_over_entropy, of.mean, 0.08 + 4.0 * of.sd / of.mean / 200f64.sqrt());
        let errors = replayed.counts.expect("a constant has weights");
        close("error of counts", found.count_error.expect("weights"), errors.functions, 0.25);
        close("paths", found.paths.expect("asked for"), replayed.paths.mean, 0.02);
        close("path distance", found.path_distance.expect("asked for"), replayed.path_distance.mean, 0.15);
    }
    let (before, after) = (independent.counts.expect("weights"), spread.counts.expect("weights"));
    assert!(after.roots < 0.6 * before.roots, "{after:?} {before:?}");
    assert!(fixed.count_error < plain.count_error);
    assert!(fixed.path_distance < plain.path_distance);
}

/// 2,000 of 12,000 keys do not fit in the sampler's table and count as one. This changes the size
/// by about a tenth.
#[test]
fn keys_without_room_count_together() {
    let workload = many_names(12_000, 30_000, 2);
    for (sampler, counting, exponent) in [
        ("bump:lambda=0.3,min=0.01,count=decaying,tau=1s,exponent=2", Counting::Decaying, 2.0),
        ("bump:lambda=0.3,min=0.01,window=1s", Counting::Tumbling, 2.0),
    ] {
        let config: Config = sampler.parse().expect("a sampler");
        let draws: Vec<Draw> = (1..=3).map(Draw::recorded).collect();
        let replayed = Replayed::new(&workload, &config.into(), &draws, Stop::never(), &|| ());
        let replayed = replayed.expect("not stopped");
        let curve = Curve::new(counting, 0.3, exponent);
        let expectation = expectation(&workload, counting, 1.0);
        let law = |_| KeyLaw::Bump(&curve, 0.01);
        let found = expectation.expected(0, law, &mut Scratch::default(), Stop::never());
        let found = found.expect("not stopped");
        close("size", found.tfcr, replayed.tfcr.mean, 0.01);
        close("dist/entropy", found.dist_over_entropy, replayed.dist_over_entropy.mean, 0.05);
    }
}

/// A function is in the family of the root that most of its traces have. Each root has its own
/// family.
#[test]
fn families_are_those_of_roots() {
    let workload = synthetic(3000, 1);
    let expectation = expectation(&workload, Counting::Tumbling, 1.0);
    let family = |name: &str| {
        let place = workload.functions().iter().position(|function| &*function.name == name).expect("known");
        expectation.functions[place].family
    };
    assert_eq!(family("busy"), family("lookup"));
    assert_eq!(family("quiet"), family("store"), "quiet has more of its traces than busy");
    let roots: std::collections::HashSet<usize> = ["busy", "quiet", "once"].map(family).into();
    assert_eq!((roots.len(), expectation.families.len()), (3, 3));
}

/// "store" is called by one trace of "busy" and by one of "quiet". The root with the lower key
/// number gets the function.
#[test]
fn a_function_of_two_roots_alike_is_of_the_first() {
    let workload = synthetic(8, 1);
    let expectation = expectation(&workload, Counting::Tumbling, 1.0);
    let family = |name: &str| {
        let place = workload.functions().iter().position(|function| &*function.name == name).expect("known");
        expectation.functions[place].family
    };
    let key = |name: &str| workload.keys().names().position(|key| key == name).expect("known");
    let first = if key("busy") < key("quiet") { "busy" } else { "quiet" };
    assert_ne!(family("busy"), family("quiet"));
    assert_eq!(family("store"), family(first));
}

/// An equal share of a tenth keeps a tenth of everything, and an equal share of 1 keeps everything.
#[test]
fn an_equal_share_is_a_share_of_everything() {
    let workload = synthetic(3000, 3);
    let expectation = expectation(&workload, Counting::Tumbling, 1.0);
    let tenth = expectation.ratio(0.1, &mut Scratch::default(), Stop::never()).expect("not stopped");
    close("traces", tenth.traces, 300.0, 1e-9);
    close("size", tenth.tfcr, 0.1, 1e-9);
    // A kept call counts for ten: each trace adds c^2 (1 - p) / p to the variance of a function's
    // count.
    let mut variances = vec![0.0; workload.functions().len()];
    for arrival in 0..workload.arrivals().len() {
        for calls in workload.calls(arrival) {
            variances[calls.function as usize] += f64::from(calls.count).powi(2) * 0.9 / 0.1;
        }
    }
    let errors = variances.iter().zip(workload.functions()).map(|(of, whole)| of.sqrt() / whole.count as f64);
    let error = errors.sum::<f64>() / variances.len() as f64;
    close("error of counts", tenth.count_error.expect("weights"), error, 1e-9);
    let all = expectation.ratio(1.0, &mut Scratch::default(), Stop::never()).expect("not stopped");
    close("functions", all.functions, all.functions_all, 1e-9);
    close("call trees", all.call_trees, all.call_trees_all, 1e-9);
    assert!(all.ss_ms < 1e-3, "{}", all.ss_ms);
}
