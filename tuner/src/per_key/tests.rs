use astracer_samplers::Config;

use super::*;
use crate::candidate::Candidate;
use crate::evaluate::Evaluator;
use crate::held_out::Replayed;
use crate::objective::Objective;
use crate::testing::{late_loop, synthetic};

/// By hand: keys of 1000, 100 and 4 traces of one byte each. Keeping 40 of each keeps 40 + 40 + 4 =
/// 84 bytes of 1104.
#[test]
fn the_floor_is_the_most_that_costs_half() {
    let sizes = [(1000.0, 1000.0), (100.0, 100.0), (4.0, 4.0), (0.0, 0.0)];
    for of in [|share: f64| (share, f64::INFINITY), |share: f64| (1.0, share)] {
        assert_eq!(default_floor(&sizes, of(2.0 * 84.0 / 1104.0 + 1e-9)), 40.0);
        assert_eq!(default_floor(&sizes, of(2.0 * 84.0 / 1104.0 - 1e-9)), 20.0);
        // One trace of each key.
        assert_eq!(default_floor(&sizes, of(2.0 * 3.0 / 1104.0 + 1e-9)), 1.0);
        assert_eq!(default_floor(&sizes, of(2.0 * 3.0 / 1104.0 - 1e-9)), 0.0);
        // Half a trace of each key is 1.5, within half of 3.1.
        assert_eq!(least_floor(&sizes, of(3.1 / 1104.0)), 0.5);
        assert!((least_floor(&sizes, of(0.3 / 1104.0)) - 0.05).abs() < 1e-12);
    }
    // A size of 0 still keeps a hundredth of a trace.
    assert_eq!(least_floor(&sizes, (0.0, f64::INFINITY)), 0.01);
}

/// Scores from tables equal those of replays through the samplers themselves, whatever the levels:
/// with and without jitter, with independent and stratified randomness, with and without a curve,
/// by either clock.
#[test]
fn tables_keep_what_a_replay_keeps() {
    tables_keep_what_a_replay_keeps_by(HalfLife::Calls(20.0));
    tables_keep_what_a_replay_keeps_by(HalfLife::Seconds(3.0));
}

fn tables_keep_what_a_replay_keeps_by(half_life: HalfLife) {
    let workload = synthetic(3000, 3);
    let stop = Stop::never();
    let common = Parameters::Decaying { lambda: 2.0, min: 0.07, half_life, exponent: 1.3 };
    let others = DecayingCurve::of(&common, 1.0).expect("decaying");
    let sizes = sizes(&workload);
    let key = |name: &str| workload.keys().names().position(|known| known == name).expect(name);
    // "once" does not have its own probability.
    let floors = ["busy", "quiet"].map(|name| (key(name), 5.0 / sizes[key(name)].0));
    let own_keys = OwnKeys::new(&workload, &floors, (Extras::ALL, true));
    let without_trees = OwnKeys::new(&workload, &floors, (Extras::ALL, false));
    let evaluator = Evaluator::new(&workload);
    let mut random = Random::new(7, 0);
    for (share, jitter_ms, stratified) in
        [(0.0, 0.0, false), (0.0, 50.0, true), (1.0, 0.0, true), (0.4, 5.0, false)]
    {
        let own = DecayingCurve::of(&common, share).expect("decaying");
        let draw = Draw { jitter_ms, stratified, ..Draw::recorded(11) };
        let sample = Sample::new(&workload, LeftOut::NOTHING, stop).expect("not stopped");
        let of = |keys| tables(&sample, keys, (&own, &others), &draw, stop).expect("not stopped");
        let (mut tables, mut treeless) = ([of(&own_keys)], [of(&without_trees)]);
        let rows = Rows::gather(&mut tables, &own_keys);
        let treeless_rows = Rows::gather(&mut treeless, &without_trees);
        let count_errors = CountErrors::new(&mut tables, &own_keys);
        let (mut scratch, mut treeless_scratch) = (Scratch::default(), Scratch::default());
        for _ in 0..5 {
            let point = [0, 1].map(|_| random.below(LEVELS as u32) as u8);
            treeless_scratch.move_to(&treeless, &treeless_rows, &without_trees, &point);
            let no_trees = treeless_scratch.score(0, &treeless[0], &without_trees, &point);
            scratch.move_to(&tables, &rows, &own_keys, &point);
            let found = scratch.score(0, &tables[0], &own_keys, &point);
            assert_eq!(no_trees, Expected { call_trees: 0.0, ..found }, "nothing else is lost");
            let config = own_keys.keys.iter().zip(point).fold(
                astracer_samplers::PerKey::new(common.bump().expect("valid")),
                |config, (own_key, level)| {
                    let least = own.with_least(own_key.probabilities[usize::from(level)]);
                    let name = workload.keys().names().nth(own_key.key).expect("a key");
                    config.with_override(name, least.bump().expect("valid"))
                },
            );
            let sampler = Candidate::from(Config::Bump(config));
            let replayed = Replayed::new(&workload, &sampler, &[draw], stop, &|| ()).expect("not stopped");
            let score = evaluator.score(&sampler, &draw);
            let what = format!("{share} {draw:?} {point:?}");
            assert_eq!(found.traces, score.traces as f64, "{what}");
            assert_eq!((found.bytes, found.spans), (score.bytes as f64, score.spans as f64), "{what}");
            assert_eq!(found.functions, score.functions as f64, "{what}");
            assert_eq!(found.call_trees, score.call_trees as f64, "{what}");
            let close = |found: f64, expected: f64| (found - expected).abs() <= 1e-9 * expected;
            assert!(close(found.ss_ms, score.ss_ms), "{what}: {found:?} {score:?}");
            assert!(close(found.dist_over_entropy, score.dist_over_entropy), "{what}: {found:?}");
            // The samplers' thresholds are rounded to a relative precision of 2^-16 in places, and
            // so are weights.
            let close = |found: f64, expected: f64| (found - expected).abs() <= 1e-3 * expected + 1e-6;
            assert!(close(found.latency.expect("asked for"), replayed.latency.mean), "{what}: {found:?}");
            assert_eq!(found.paths, Some(replayed.paths.mean), "{what}");
            assert!(close(found.path_distance.expect("asked for"), replayed.path_distance.mean), "{what}");
            let error = count_errors.mean(&scratch.count_errors());
            let expected = replayed.counts.expect("weights").functions;
            assert!(close(error, expected), "{what}: {error}, should be {expected}");
        }
    }
}

const COMMON: Parameters =
    Parameters::Decaying { lambda: 1.0, min: 0.05, half_life: HalfLife::Calls(40.0), exponent: 2.0 };

fn draws() -> Vec<Draw> {
    Draw::seen(8, 1, astracer_samplers::RandomSource::Stratified)
}

/// Constant probabilities on eight draws, with this floor on the traces kept of each key.
fn constants<'t>(workload: &Workload, target: &'t Target, min_kept: f64) -> PerKey<'t> {
    with_floor(workload, target, min_kept, 0.0625)
}

/// The same with this part of the budget shared evenly among the keys.
fn with_floor<'t>(workload: &Workload, target: &'t Target, min_kept: f64, part: f64) -> PerKey<'t> {
    let draws: Vec<_> =
        draws().into_iter().enumerate().map(|(number, draw)| (draw, LeftOut::in_turn(number))).collect();
    let settings = (Some(min_kept), part, Extras::default());
    let problem = (Limits::default(), target);
    PerKey::new(workload, (&COMMON, 0.0), problem, settings, &draws, Stop::never()).expect("three keys")
}

fn target() -> Target {
    Target { objective: Objective::paper(), risk: None, baseline: Expected::default() }
}

/// The expected size is linear in the probabilities: compares with a sum over the keys' bytes.
#[test]
fn sizes_are_exact_means() {
    let (workload, target) = (synthetic(2000, 1), target());
    let per_key = constants(&workload, &target, 3.0);
    let sizes = sizes(&workload);
    let all: f64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    for level in [0u8, 17, 39] {
        let point = vec![level; per_key.keys.keys.len()];
        let kept: f64 = per_key
            .keys
            .keys
            .iter()
            .map(|own| own.probabilities[usize::from(level)] * sizes[own.key].1)
            .sum();
        // Each of eight samples leaves out another block, so each trace is in seven of them.
        assert!((per_key.kept(&point).size / (kept / all) - 1.0).abs() < 1e-9, "{level}");
    }
}

#[test]
fn each_key_begins_at_its_floor() {
    let (workload, target) = (synthetic(2000, 1), target());
    let sizes = sizes(&workload);
    let floors = |min_kept: f64| -> Vec<(f64, f64)> {
        let keys = constants(&workload, &target, min_kept).keys.keys;
        keys.iter().map(|own| (own.probabilities[0] * sizes[own.key].0, sizes[own.key].0)).collect()
    };
    // Where a sixteenth of a tenth of the bytes, shared evenly among three keys, is more, that is
    // kept.
    let all: f64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    let names: Vec<&str> = workload.keys().names().collect();
    let of = |min_kept: f64, name: &str| {
        let place = names.iter().position(|key| *key == name).expect(name);
        let kept = floors(min_kept).into_iter().find(|(_, traces)| *traces == sizes[place].0).expect(name).0;
        (kept, 0.0625 * 0.1 * all / 3.0 / sizes[place].1 * sizes[place].0)
    };
    for (min_kept, name, by_bytes) in
        [(30.0, "busy", false), (30.0, "quiet", false), (3.0, "busy", true), (0.0, "busy", true)]
    {
        let (kept, share) = of(min_kept, name);
        let expected = if by_bytes { share } else { min_kept };
        assert!((kept / expected - 1.0).abs() < 1e-3, "{min_kept} {name}: {kept} {share}");
    }
    assert_eq!(of(3.0, "once").0, 1.0);
    // With nine tenths of the budget shared evenly, that is more of "quiet" than the tenth that an
    // equal share keeps, which then is its floor.
    let quiet = sizes[names.iter().position(|key| *key == "quiet").expect("quiet")];
    assert!(0.9 * 0.1 * all / 3.0 > 0.1 * quiet.1);
    let keys = with_floor(&workload, &target, 0.0, 0.9).keys.keys;
    let kept = keys.iter().find(|own| sizes[own.key] == quiet).expect("quiet").probabilities[0];
    assert!((kept / 0.1 - 1.0).abs() < 1e-3, "{kept}");
}

/// The mean of two searches is closer to an equal share than either, is as large as the limits
/// allow, and lowers no key of which few traces are kept.
#[test]
fn the_mean_of_searches_is_as_large_as_the_limits_allow() {
    let (workload, target) = (synthetic(2000, 1), target());
    let of_search = |search: usize| {
        let draws: Vec<_> = draws().into_iter().map(|draw| (draw, LeftOut::in_turn(search))).collect();
        let settings = (Some(3.0), 0.0625, Extras::default());
        let problem = (Limits::default(), &target);
        PerKey::new(&workload, (&COMMON, 0.0), problem, settings, &draws, Stop::never()).expect("keys")
    };
    let mut combined: Option<Combined> = None;
    let mut points = Vec::new();
    for search in 0..2 {
        let per_key = of_search(search);
        let point = per_key.start(search == 0).expect("within the limits");
        let best = per_key.evaluate(&point, &mut Scratch::default()).expect("not stopped");
        combined.get_or_insert_with(|| Combined::new(&per_key)).add(&per_key, &(best, 1));
        let keys = per_key.keys.keys.iter().zip(&point);
        points.push(keys.map(|(own, &level)| own.probabilities[usize::from(level)]).collect::<Vec<f64>>());
    }
    let found = combined.expect("two").found().expect("within the limits");
    assert_eq!(found.evaluations, 2);
    let sizes = sizes(&workload);
    let all: f64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    let p = |parameters: Parameters| match parameters {
        Parameters::Constant { probability } => probability,
        other => panic!("{other:?}"),
    };
    let kept: f64 = found.keys.iter().map(|&(key, parameters)| p(parameters) * sizes[key].1).sum();
    assert!((0.0999..=0.1).contains(&(kept / all)), "{}", kept / all);
    let spread = |of: &[f64]| of.iter().copied().fold(0.0, f64::max) / of.iter().copied().fold(1.0, f64::min);
    let means: Vec<f64> = found.keys.iter().map(|&(_, parameters)| p(parameters)).collect();
    assert!(spread(&means) < spread(&points[0]), "{means:?} {points:?}");
    for (place, &(key, parameters)) in found.keys.iter().enumerate() {
        let mean = (points[0][place] * points[1][place]).sqrt();
        assert!(mean * sizes[key].0 >= 40.0 || p(parameters) >= 0.999 * mean, "{key}: {parameters:?} {mean}");
    }
}

/// Recalculated from single draws: each function's root mean square over the draws in which it has
/// calls, averaged over the functions. In `late_loop`, the last block has the calls of all but one
/// function, and the first block has only that one.
#[test]
fn errors_of_counts_are_root_mean_squares_over_draws() {
    for workload in [synthetic(2000, 1), late_loop(1000)] {
        let target = target();
        let per_key = constants(&workload, &target, 3.0);
        let point: Vec<u8> = (0..per_key.keys.keys.len()).map(|place| 7 + place as u8).collect();
        let found = per_key.evaluate(&point, &mut Scratch::default()).expect("not stopped");
        let block = blocks::of(&workload, blocks::BLOCKS);
        let curves = [0.0, 1.0].map(|share| DecayingCurve::of(&COMMON, share).expect("decaying"));
        // For each function, the sum of squares and the number of draws in which it has calls.
        let mut sums = vec![(0.0, 0.0); workload.functions().len()];
        for (number, draw) in draws().iter().enumerate() {
            let left_out = LeftOut::in_turn(number);
            let here = (0..workload.arrivals().len()).filter(|&index| !left_out.has(block(index)));
            let has: std::collections::BTreeSet<u32> =
                here.flat_map(|index| workload.calls(index)).map(|calls| calls.function).collect();
            let curves = (&curves[0], &curves[1]);
            let sample = Sample::new(&workload, left_out, Stop::never()).expect("not stopped");
            let one = tables(&sample, &per_key.keys, curves, draw, Stop::never());
            let mut one = [one.expect("not stopped")];
            let (rows, mut scratch) = (Rows::gather(&mut one, &per_key.keys), Scratch::default());
            scratch.move_to(&one, &rows, &per_key.keys, &point);
            assert_eq!(scratch.count_errors().len(), sums.len(), "each function is of a key of its own");
            for ((function, square), sum) in (0u32..).zip(scratch.count_errors()).zip(&mut sums) {
                *sum = (sum.0 + square, sum.1 + f64::from(u8::from(has.contains(&function))));
            }
        }
        let error =
            sums.iter().map(|(squares, draws)| (squares / draws).sqrt()).sum::<f64>() / sums.len() as f64;
        let count_error = found.expected.count_error.expect("weights");
        assert!(error > 0.01 && (count_error / error - 1.0).abs() < 1e-9, "{count_error}, by hand {error}");
        assert!((found.value / (found.objective * (1.0 + error)) - 1.0).abs() < 1e-9);
    }
}

/// A walk updates the score from point to point. Scoring a point from scratch gives the same to the
/// last bit.
#[test]
fn scores_do_not_depend_on_the_way() {
    let (workload, target) = (synthetic(2000, 1), target());
    let per_key = constants(&workload, &target, 3.0);
    let (mut random, mut scratch) = (Random::new(5, 0), Scratch::default());
    let mut point = vec![17u8; per_key.keys.keys.len()];
    for _ in 0..300 {
        point = per_key.step(&point, 0.3, &mut random);
        let alone = per_key.evaluate(&point, &mut Scratch::default());
        assert_eq!(per_key.evaluate(&point, &mut scratch), alone);
    }
}
