//! Tuning from start to end, on small workloads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use crate::half_life::{Clock, HalfLife};
use crate::held_out::Replayed;
use crate::objective::Objective;
use crate::testing::{many_names, recorded, synthetic};

fn quick(sampler: Tunable) -> Options {
    Options {
        sampler,
        starts: 3,
        iterations: 40,
        stall: 40,
        replays: 0,
        compare: true,
        per_key: PerKeyUse::Never,
        ..Options::default()
    }
}

fn run(workload: &Workload, options: &Options) -> Tuning {
    tune(workload, options, Stop::never(), &|_| {})
}

/// The parts of a result that must not depend on time or on the number of threads.
fn essence(tuning: &Tuning) -> String {
    format!("{:?} {:?} {:?} {:?}", tuning.parameters, tuning.score, tuning.evaluations, tuning.starts)
}

#[test]
fn a_seed_gives_one_result_with_any_number_of_threads() {
    let workload = synthetic(1000, 1);
    for sampler in [Tunable::Bump, Tunable::Tumbling, Tunable::Bucket] {
        let on = |threads: usize, seed: u64| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            essence(&pool.install(|| run(&workload, &Options { seed, ..quick(sampler) })))
        };
        let one = on(1, 7);
        assert_eq!(one, on(3, 7));
        assert_ne!(one, on(1, 8), "another seed gives another result");
    }
}

#[test]
fn results_are_within_the_limits_and_better_than_an_equal_share() {
    let workload = synthetic(1500, 1);
    for sampler in [Tunable::Bump, Tunable::Tumbling, Tunable::Bucket] {
        for limits in [
            Limits::default(),
            Limits { size_min: 0.0, size_max: 0.05, ..Limits::default() },
            Limits { traces_per_second_max: Some(2.0), ..Limits::default() },
            Limits { bytes_per_second_max: Some(500.0), ..Limits::default() },
        ] {
            let tuning = run(&workload, &Options { limits, ..quick(sampler) });
            assert!(tuning.feasible, "{sampler:?} {limits:?}: {:?}", tuning.infeasible);
            let seconds = workload.seconds();
            let kept = crate::limits::KeptSizes {
                size: tuning.score.tfcr,
                traces_per_second: tuning.score.traces / seconds,
                bytes_per_second: tuning.score.bytes / seconds,
            };
            // The phases of windows differ between the search and the figures.
            let about = |max: Option<f64>| max.map(|max| 1.01 * max);
            let about = Limits {
                size_min: 0.99 * limits.size_min,
                size_max: 1.01 * limits.size_max,
                traces_per_second_max: about(limits.traces_per_second_max),
                bytes_per_second_max: about(limits.bytes_per_second_max),
            };
            assert!(about.hold(&kept), "{sampler:?} {limits:?} {kept:?}");
            assert!(tuning.value < tuning.baseline.dist_over_entropy, "{tuning:?}");
        }
    }
}

/// The limit per second allows a fiftieth of the traces. The equal share next to the result must
/// not be larger.
#[test]
fn the_equal_share_is_within_limits_by_second() {
    let workload = synthetic(1500, 1);
    let seconds = workload.seconds();
    let bytes: u64 = workload.arrivals().iter().map(|arrival| arrival.bytes).sum();
    let none = Limits { size_min: 0.0, ..Limits::default() };
    for limits in [
        Limits { traces_per_second_max: Some(0.02 * 1500.0 / seconds), ..none },
        Limits { bytes_per_second_max: Some(0.02 * bytes as f64 / seconds), ..none },
    ] {
        let tuning = run(&workload, &Options { limits, ..quick(Tunable::Bump) });
        assert!((tuning.baseline.tfcr / 0.02 - 1.0).abs() < 1e-6, "{limits:?} {:?}", tuning.baseline);
        let file = tuning.file("", &crate::key::Grouping::default()).expect("a file").to_string();
        assert!(file.contains("an equal share of 2.00 % of the bytes"), "{file}");
    }
}

/// 120 of 6,000 traces with 22 keys may be kept. A floor of ten per key is too much, and two would
/// be more than half of the limit, so it is one.
#[test]
fn a_floor_is_within_limits_by_second() {
    let workload = many_names(22, 6000, 2);
    let seconds = workload.seconds();
    let limits = Limits { size_min: 0.0, traces_per_second_max: Some(120.0 / seconds), ..Limits::default() };
    let per_key = PerKeyUse::Always;
    let options = Options { limits, per_key, per_key_iterations: 20, compare: false, ..quick(Tunable::Bump) };
    let tuning = run(&workload, &options);
    assert_eq!((tuning.per_root.len(), tuning.min_kept), (22, Some(1.0)), "{:?}", tuning.warnings);
}

/// The limit per second is below the smallest size allowed.
#[test]
fn a_limit_by_second_below_the_least_size_is_reported() {
    let workload = synthetic(1500, 1);
    let seconds = workload.seconds();
    let limits = Limits { traces_per_second_max: Some(0.005 * 1500.0 / seconds), ..Limits::default() };
    let tuning = run(&workload, &Options { limits, ..quick(Tunable::Bucket) });
    let reason = tuning.infeasible.unwrap_or_default();
    assert!(
        reason.contains("between 1.000 % and 10.000 % of the bytes (the limit per second allows 0.500 %)"),
        "{reason}"
    );
}

/// Keeping a thousand of each of eight keys means keeping all traces.
#[test]
fn a_least_number_kept_that_does_not_fit_is_reported() {
    let workload = many_names(8, 1000, 2);
    for (per_key, says) in [
        (
            PerKeyUse::Auto,
            "--per-key: not used, because in the half of the recording used for the trial, 1000 traces",
        ),
        (PerKeyUse::Always, "--per-key: not used, because 1000 traces kept of each key exceed the limits"),
    ] {
        let options = Options { per_key, min_kept: Some(1000.0), ..quick(Tunable::Bump) };
        let tuning = run(&workload, &options);
        assert!(tuning.per_root.is_empty());
        assert!(tuning.warnings.iter().any(|warning| warning.starts_with(says)), "{:?}", tuning.warnings);
        let tuning = run(&workload, &Options { min_kept: Some(1.0), ..options });
        assert!(
            !tuning.warnings.iter().any(|warning| warning.contains("--min-kept")),
            "{:?}",
            tuning.warnings
        );
    }
}

/// The search for single keys gets the time that is left after the one for common parameters.
#[test]
fn single_keys_that_were_asked_for_are_told_if_there_was_no_time() {
    let workload = many_names(2, 1000, 2);
    for (per_key, min_kept, told) in [
        (PerKeyUse::Always, None, true),
        (PerKeyUse::Always, Some(40.0), true),
        (PerKeyUse::Auto, Some(40.0), true),
        (PerKeyUse::Auto, None, false),
    ] {
        let options = Options { per_key, min_kept, ..quick(Tunable::Bump) };
        let at = |time: Option<Duration>| Run::new(&options, Stop::never().within(time), &|_| {});
        let run = at(None);
        let (target, mut tuning) = (run.target(&workload).expect("not stopped"), run.tuning());
        run.common(&workload, &target, (2, false), Clock::Calls).expect("not stopped").report(&mut tuning);
        assert!(tuning.feasible);
        at(Some(Duration::ZERO)).use_single_keys(&workload, &target, &mut tuning);
        assert!(tuning.per_root.is_empty());
        let says = |warning: &String| warning == "--per-key: not used, because the time ran out";
        assert_eq!(tuning.warnings.iter().any(says), told, "{per_key:?}: {:?}", tuning.warnings);
    }
}

/// The probabilities tried are a few percent apart, and the range of sizes is only a thousandth of
/// its value, so none fits.
#[test]
fn single_keys_that_meet_no_limits_are_told_without_blame() {
    let workload = many_names(2, 1000, 2);
    let limits = Limits { size_min: 0.0999, size_max: 0.1, ..Limits::default() };
    for min_kept in [None, Some(40.0)] {
        let options = Options { limits, min_kept, per_key: PerKeyUse::Always, ..quick(Tunable::Bump) };
        let tuning = run(&workload, &options);
        assert!(tuning.feasible && tuning.per_root.is_empty(), "{:?}", tuning.infeasible);
        let about: Vec<&String> = tuning.warnings.iter().filter(|text| text.contains("--per-key")).collect();
        let says =
            "--per-key: not used, because no probabilities meet the limits; allow a wider range of sizes";
        assert_eq!(about, [says], "{min_kept:?}");
    }
}

/// Probabilities of single keys that are requested but impossible.
#[test]
fn one_key_is_no_single_key() {
    let workload = many_names(1, 100, 2);
    let told = |per_key: PerKeyUse, min_kept: Option<f64>| {
        let tuning = run(&workload, &Options { per_key, min_kept, ..quick(Tunable::Bump) });
        assert!(tuning.per_root.is_empty());
        tuning.warnings.iter().filter(|warning| warning.contains("there is only one key")).count()
    };
    assert_eq!(told(PerKeyUse::Always, None), 1);
    assert_eq!(told(PerKeyUse::Always, Some(5.0)), 1);
    assert_eq!(told(PerKeyUse::Auto, Some(5.0)), 1);
    assert_eq!(told(PerKeyUse::Auto, None), 0);
}

/// A recorded share bounds constants and counts in calls. A count in seconds takes none, and a file
/// that had one would be refused.
#[test]
fn a_share_is_written_only_for_counts_that_take_it() {
    for (clock, takes_share) in [(Clock::Calls, true), (Clock::Seconds, false)] {
        let half_life = HalfLife::of_ns(clock, 1e9);
        let common = Parameters::Decaying { lambda: 2.0, min: 0.1, half_life, exponent: 2.0 };
        let own = Parameters::Decaying { lambda: 2.0, min: 0.2, half_life, exponent: 2.0 };
        let root = RootParameters { key: "GET /".to_owned(), parameters: own, share: 0.3 };
        let config = config(&common, [&root]).expect("valid");
        let file = astracer_samplers::parameters::Parameters::new(config).to_string();
        assert_eq!(file.contains("share"), takes_share, "{file}");
        assert!(file.parse::<astracer_samplers::parameters::Parameters>().is_ok(), "{file}");
    }
}

/// With one key, few traces or traces that are all alike, an equal share is used, unless a sampler
/// of single keys is asked for.
#[test]
fn too_little_gives_an_equal_share() {
    let auto = Options { per_key: PerKeyUse::Auto, ..quick(Tunable::Bump) };
    let cases = [(many_names(1, 2000, 2), "same key"), (synthetic(900, 1), "90 of 900 traces")];
    for (workload, says) in cases {
        let tuning = run(&workload, &auto);
        assert!(tuning.warnings.iter().any(|text| text.contains(says)), "{:?}", tuning.warnings);
        assert_eq!(tuning.config().expect("valid").to_string(), "ratio:0.1");
        assert_eq!((tuning.sampler_name(), tuning.per_root.len()), ("ratio", 0));
        let file = tuning.file("here", &crate::Grouping::default()).expect("a file").to_string();
        assert!(file.parse::<astracer_samplers::parameters::Parameters>().is_ok(), "{file}");
        let searched = run(&workload, &Options { per_key: PerKeyUse::Never, ..auto.clone() });
        assert_eq!(searched.sampler_name(), "bump");
    }
}

/// The file is of an equal share exactly where the whole interval is above 0.9 or, if that is asked
/// for, the ratio itself. Common parameters gain nothing here that is clear.
#[test]
fn an_equal_share_is_used_where_the_interval_or_the_option_says_so() {
    let workload = synthetic(4000, 2);
    let auto = Options { per_key: PerKeyUse::Auto, replays: 24, compare: false, ..quick(Tunable::Bump) };
    for or_equal in [false, true] {
        let tuning = run(&workload, &Options { or_equal, ..auto.clone() });
        let later = tuning.later.as_ref().expect("enough traces");
        let ([low, high], ratio) = (later.interval, later.ratio);
        assert!(low <= ratio && ratio <= high && later.there.len() == 2, "{later:?}");
        let is_equal = if or_equal { ratio > 0.9 } else { low > 0.9 };
        assert_eq!(tuning.sampler_name(), if is_equal { "ratio" } else { "bump" }, "{later:?}");
        let asks = |text: &String| text.contains("--or-equal");
        assert_eq!(tuning.warnings.iter().any(asks), !is_equal && ratio > 0.9, "{:?}", tuning.warnings);
    }
}

#[test]
fn a_goal_tells_its_risk() {
    let goal = |risk: Option<f64>| run(&synthetic(200, 1), &Options { risk, ..quick(Tunable::Bump) }).goal();
    assert_eq!(goal(None), "dist/entropy");
    assert_eq!(goal(Some(0.9)), "the quantile 0.9 of single runs' dist/entropy");
}

#[test]
fn the_front_goes_through_the_best() {
    let workload = many_names(8, 1000, 2);
    let tuning = run(&workload, &quick(Tunable::Bump));
    let least = tuning.front.iter().map(|point| point.objective).fold(f64::INFINITY, f64::min);
    let found = tuning.starts.iter().chain(&tuning.compared).filter_map(|search| search.best);
    assert_eq!(least, found.map(|best| best.objective).fold(f64::INFINITY, f64::min));
    let falling = tuning
        .front
        .windows(2)
        .all(|pair| pair[0].size < pair[1].size && pair[0].objective > pair[1].objective);
    assert!(falling, "{:?}", tuning.front);
    for search in &tuning.starts {
        assert!(search.convergence.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1));
        assert_eq!(search.convergence.last().map(|last| last.1), search.best.map(|best| best.objective));
    }
}

/// One key has nearly all bytes. The minimised value is the objective multiplied by one plus the
/// error of counts, so the result need not be the best point of the front.
#[test]
fn counts_have_a_weight_where_one_key_is_a_loop() {
    let workload = synthetic(1000, 2);
    let tuning = run(&workload, &Options { compare: false, ..quick(Tunable::Bump) });
    for search in &tuning.starts {
        let (minimised, best) =
            (search.convergence.last().expect("a score").1, search.best.expect("a score"));
        assert!(minimised > 1.01 * best.objective, "{minimised}, {best:?}");
    }
    let best = |search: &Search| search.best.map(|best| best.objective);
    assert!(tuning.starts.iter().filter_map(best).any(|objective| objective == tuning.value), "{tuning:?}");
    let least = tuning.front.iter().map(|point| point.objective).fold(f64::INFINITY, f64::min);
    assert!(least <= tuning.value, "{:?}", tuning.front);
}

/// With windows of one second, bump keeps the first call of each key in every second, which on this
/// recording is already too much.
#[test]
fn limits_that_cannot_be_met_are_said_to_be_so() {
    let workload = recorded("hdfs_client_ops");
    let options = Options { windows: Some(vec![Duration::from_secs(1)]), ..quick(Tunable::Tumbling) };
    let tuning = run(&workload, &options);
    assert!(!tuning.feasible);
    let reason = tuning.infeasible.as_deref().unwrap_or_default();
    assert!(
        reason.contains("first call of each key in each window") && reason.contains("limit 10.000 %"),
        "{reason}"
    );
    let mut seen = std::collections::HashSet::new();
    let (mut first, mut all) = (0, 0);
    for arrival in workload.arrivals() {
        all += arrival.bytes;
        first += if seen.insert((arrival.key, arrival.at_ns / 1_000_000_000)) { arrival.bytes } else { 0 };
    }
    let (least, nearest) = (first as f64 / all as f64, tuning.score.tfcr);
    // The mean over the phases is near the share for this phase.
    assert!(least > 0.1 && (nearest / least - 1.0).abs() < 0.2, "{least} {nearest}");
    assert_eq!(tuning.evaluations, 0);
}

#[test]
fn stopping_returns_the_best_so_far() {
    let workload = synthetic(1000, 1);
    let stop = AtomicBool::new(false);
    let stop_soon = |progress: Progress| {
        if progress.stage == Stage::Annealing && progress.evaluations >= 32 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let tuning = tune(&workload, &quick(Tunable::Bump), Stop::when_set(&stop), &stop_soon);
    assert!(tuning.interrupted && tuning.feasible);
    assert!(tuning.evaluations >= 4 && tuning.evaluations < 120, "{}", tuning.evaluations);
    assert!(tuning.compared.iter().all(|search| search.evaluations == 0));
}

/// Whichever check of the stop condition first returns true, in whichever phase, the search ends
/// soon and returns something usable.
#[test]
fn every_phase_stops_soon() {
    use std::sync::atomic::AtomicU64;
    let workload = synthetic(400, 6);
    let options = Options {
        per_key: PerKeyUse::Always,
        per_key_iterations: 12,
        iterations: 12,
        replays: 2,
        split: Some(0.7),
        ..quick(Tunable::Bump)
    };
    let counted = |stop_at: u64| {
        let count = AtomicU64::new(0);
        let wish = || count.fetch_add(1, Ordering::Relaxed) + 1 >= stop_at;
        let tuning = tune(&workload, &options, Stop::when(&wish), &|_| {});
        (tuning, count.into_inner())
    };
    let (whole, all) = counted(u64::MAX);
    assert!(whole.feasible && whole.held_out.is_some() && !whole.per_root.is_empty() && all > 100, "{all}");
    let mut found = 0;
    for number in 0..=40 {
        let stop_at = (all * number / 41).max(1);
        let (tuning, asked) = counted(stop_at);
        assert!(asked <= stop_at + 100, "stopped at {stop_at} of {all}, asked {asked} times");
        assert!(tuning.interrupted, "stopped at {stop_at} of {all}");
        assert!(!tuning.feasible || tuning.config().is_ok());
        assert_eq!(tuning.found_nothing_in_time(), tuning.value.is_infinite());
        found += u32::from(tuning.feasible);
    }
    assert!(found > 10 && found < 41, "{found} of 41 had found something");
}

#[test]
fn an_empty_workload_has_no_parameters() {
    let tuning = run(&synthetic(0, 1), &quick(Tunable::Bump));
    assert!(!tuning.feasible);
    assert!(!run(&synthetic(0, 1), &quick(Tunable::Bucket)).feasible);
}

/// The durations of one root hardly vary, and those of the other vary much. Common parameters
/// cannot give the two different shares.
#[test]
fn keys_get_probabilities_of_their_own() {
    let workload = synthetic(4000, 6);
    let always = Options {
        per_key: PerKeyUse::Always,
        per_key_iterations: 200,
        replays: 6,
        compare: false,
        ..quick(Tunable::Bump)
    };
    let tuning = run(&workload, &always);
    assert_eq!(tuning.per_root.len(), 3);
    let min_kept = tuning.min_kept.expect("a floor");
    for root in &tuning.per_root {
        let Parameters::Constant { probability } = root.parameters else { panic!("{root:?}") };
        let traces =
            workload.arrivals().iter().filter(|arrival| workload.key(arrival) == root.key).count() as f64;
        assert!(probability * traces >= min_kept.min(traces) * 0.999, "{root:?} of {traces}, {min_kept}");
    }
    let config = tuning.config().expect("valid parameters").to_string();
    assert!(config.contains("count=none"), "{config}");
    let replayed = tuning.replayed.expect("asked for");
    assert!(replayed.tfcr.mean < 0.11, "{replayed:?}");
    // The busy root has more than 80 % of the bytes, so it is a loop, and there is no trial on
    // halves of the time.
    let auto = run(&workload, &Options { per_key: PerKeyUse::Auto, ..always });
    let warned = auto.warnings.iter().any(|warning| warning.contains("% of the bytes"));
    assert!(auto.per_key_trial.is_none() && auto.per_root.is_empty() == warned, "{auto:?}");
}

/// A search sees stretches of a large workload; shares, figures and the limit are of all traces.
#[test]
fn a_search_of_stretches_is_told_by_all_traces() {
    let workload = synthetic(3000, 3);
    let options = Options { per_key: PerKeyUse::Always, replays: 0, ..quick(Tunable::Bump) };
    let run = Run::new(&options, Stop::never(), &|_| {});
    let tuning = run.search_at_most(&workload, 1000, Instant::now());
    let size_max = SIZE_TOLERANCE * options.limits.size_max;
    assert!(tuning.feasible && tuning.score.tfcr <= size_max, "{:?}", tuning.score);
    let calls: Vec<(&str, u32)> = workload.keys().names().zip(workload.traces_by_key()).collect();
    // The search of stretches alone, whether or not it was repeated on all.
    let stretches = run.search_stretches(&workload, 1000, Instant::now());
    assert!(!stretches.per_root.is_empty());
    for root in &stretches.per_root {
        let (_, calls) = calls.iter().find(|(key, _)| *key == root.key).expect("a recorded key");
        assert_eq!(root.share, f64::from(*calls) / 3000.0, "{}", root.key);
    }
    // An equal share of all keeps a tenth of them; stretches would keep a tenth of 1,000.
    assert!((stretches.baseline.traces - 300.0).abs() < 20.0, "{:?}", stretches.baseline);
}

/// Limits by second, windows, least numbers kept and risks depend on how many traces there are.
#[test]
fn options_that_need_all_traces_are_searched_on_all() {
    let most = |options: &Options| Run::new(options, Stop::never(), &|_| {}).searched_max();
    let some = quick(Tunable::Bump);
    let by_second = Limits { traces_per_second_max: Some(5.0), ..some.limits };
    let all = [
        Options { limits: by_second, ..some.clone() },
        Options { windows: Some(vec![Duration::from_secs(1)]), ..some.clone() },
        Options { min_kept: Some(5.0), ..some.clone() },
        Options { risk: Some(0.9), ..some.clone() },
    ];
    assert_eq!(most(&some), SEARCHED_MAX);
    assert!(all.iter().all(|options| most(options) == usize::MAX));
}

/// Bump keeps the first calls of each key, which are more than 1 % of the bytes here. Probabilities
/// can be as small as necessary.
#[test]
fn single_keys_meet_limits_that_common_parameters_cannot() {
    let workload = recorded("hdfs_client_ops");
    let limits = Limits { size_min: 0.001, size_max: 0.01, ..Limits::default() };
    let options =
        Options { limits, per_key_iterations: 100, replays: 24, compare: false, ..quick(Tunable::Bump) };
    assert!(!run(&workload, &options).feasible);
    let tuning = run(&workload, &Options { per_key: PerKeyUse::Always, ..options.clone() });
    assert!(tuning.feasible && tuning.infeasible.is_none(), "{:?}", tuning.infeasible);
    assert!(
        tuning.warnings.iter().any(|warning| warning.contains("alone do not meet")),
        "{:?}",
        tuning.warnings
    );
    assert_eq!(tuning.per_root.len(), workload.keys().len());
    // Keys that come later have the steepest curve, because nothing else keeps as little.
    assert!(
        matches!(tuning.parameters, Parameters::Decaying { exponent: 3.0, .. }),
        "{:?}",
        tuning.parameters
    );
    assert!(!tuning.warnings.iter().any(|warning| warning == UNBOUNDED), "{:?}", tuning.warnings);
    // Half a trace of each key would already be more than 0.1 %.
    let limits = Limits { size_min: 0.0, size_max: 0.001, ..limits };
    let small =
        run(&workload, &Options { limits, per_key: PerKeyUse::Always, replays: 0, ..options.clone() });
    assert!(small.feasible && small.score.tfcr < 0.001, "{:?}", small.infeasible);
    let replayed = tuning.replayed.expect("asked for");
    // One large trace more or less among some 30 kept changes the size by 10 %, and the mean of 24
    // replays errs by a few percent.
    assert!(replayed.tfcr.mean < 0.0115, "{replayed:?}");
    // Tuning on the other workload also uses single keys, because common parameters would find
    // nothing.
    let held_out = validate(&tuning, "itself", &workload, &options, Stop::never()).expect("not stopped");
    let there = held_out.tuned_there.expect("single keys").dist_over_entropy.mean;
    let ratio = held_out.replayed.dist_over_entropy.mean / there;
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
}

/// Constant probabilities have a smaller error of counts than bump. With counts as the objective,
/// the trial's values are these errors, and it must decide by them.
#[test]
fn the_trial_of_single_keys_decides_by_the_objective() {
    let workload = recorded("hdfs_client_ops");
    let objective: Objective = "counts".parse().expect("an objective");
    let options = Options {
        objective,
        per_key: PerKeyUse::Auto,
        per_key_iterations: 100,
        compare: false,
        starts: 1,
        ..quick(Tunable::Bump)
    };
    let trial = run(&workload, &options).per_key_trial.expect("a trial");
    let errors = |replayed: [Replayed; 2]| {
        replayed.map(|replayed| replayed.counts.expect("weights").functions).into_iter().product::<f64>()
    };
    assert_eq!(trial.better, errors(trial.per_key) < 1.21 * errors(trial.common), "{trial:?}");
}

/// The mean of replays on draws that the search did not use is close to the search's own figure.
#[test]
fn the_figure_holds_on_other_draws() {
    let workload = recorded("hdfs_client_ops");
    let options = Options { replays: 24, compare: false, ..quick(Tunable::Bump) };
    let tuning = run(&workload, &options);
    let (found, replayed) = (tuning.score.dist_over_entropy, tuning.replayed.expect("asked for"));
    let [low, high] = replayed.dist_over_entropy.mean_interval;
    assert!(found > 0.9 * low && found < 1.1 * high, "{found}: {replayed:?}");
    let share = tuning.replayed_share.expect("asked for");
    assert!((share.tfcr.mean / replayed.tfcr.mean - 1.0).abs() < 0.05);
    assert!(share.dist_over_entropy.mean > high);
    let bootstrap = tuning.bootstrap.expect("there are blocks");
    assert!(bootstrap.run_interval[0] < bootstrap.run_interval[1]);
}

#[test]
fn impossible_options_are_refused() {
    let check = |options: Options, says: &str| {
        let error = options.check().expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    };
    let windows = |window: Duration| Options { windows: Some(vec![window]), ..Options::default() };
    check(windows(Duration::from_nanos(1)), "millisecond");
    check(windows(Duration::from_secs(1 << 40)), "too long");
    check(Options { windows: Some(Vec::new()), ..Options::default() }, "empty");
    let limits = Limits { size_min: 0.5, ..Limits::default() };
    check(Options { limits, ..Options::default() }, "above the largest");
    check(Options { risk: Some(1.0), ..Options::default() }, "quantile");
    let objective: Objective = "counts".parse().expect("an objective");
    check(Options { objective, sampler: Tunable::Bucket, ..Options::default() }, "weights");
    assert_eq!(Options::default().check(), Ok(()));
    assert_eq!(windows(Duration::from_millis(1)).check(), Ok(()));
}

/// If the time runs out before the start, nothing is found and nothing panics.
#[test]
fn a_time_that_is_up_ends_every_phase() {
    let workload = synthetic(1000, 1);
    for time in [Duration::ZERO, Duration::MAX] {
        let tuning = run(&workload, &Options { time_max: Some(time), replays: 3, ..quick(Tunable::Bump) });
        assert_eq!(tuning.feasible, time > Duration::ZERO, "{:?}", tuning.infeasible);
        assert_eq!(tuning.replayed.is_some(), tuning.feasible);
    }
}

#[test]
fn a_split_is_tuned_on_its_first_part_and_looked_at_on_the_rest() {
    let workload = synthetic(2000, 7);
    let options = Options { split: Some(0.6), replays: 5, compare: false, ..quick(Tunable::Bump) };
    let tuning = run(&workload, &options);
    let held_out = tuning.held_out.as_ref().expect("a split has a rest");
    let (first, rest) = workload.split(0.6, Stop::never()).expect("not stopped");
    assert_eq!(held_out.traces, rest.arrivals().len() as u64);
    let alone = run(&first, &Options { split: None, ..options.clone() });
    assert_eq!(tuning.parameters, alone.parameters);
    // Validating on the rest directly gives the same result.
    let again = validate(&alone, "the rest of the time", &rest, &options, Stop::never());
    assert_eq!(again.as_ref(), Some(held_out));
    assert!(held_out.tuned_there.is_some());
}

#[test]
fn the_file_says_what_was_found() {
    use crate::key::Grouping;
    use astracer_samplers::Template;
    use astracer_samplers::parameters::Parameters as File;
    let workload = synthetic(1000, 1);
    for sampler in [Tunable::Bump, Tunable::Tumbling, Tunable::Bucket] {
        let mut tuning = run(&workload, &Options { replays: 3, ..quick(sampler) });
        if sampler == Tunable::Bump {
            let parameters = Parameters::Constant { probability: 0.25 };
            tuning.per_root.push(RootParameters { key: "quiet".to_owned(), parameters, share: 0.01 });
        }
        let key = "name+http.route"
            .parse::<Grouping>()
            .expect("a grouping")
            .with_template(Template::default().hex(Some(4)));
        let file = tuning.file("a.tar.xz", &key).expect("a file");
        let text = file.to_string();
        let back: File = text.parse().expect("what was written is read");
        assert_eq!((Ok(back.config), Grouping::Key(back.key)), (tuning.config(), key));
        for part in ["# Made by `astracer tune` from a.tar.xz", "seed 1.", "Replayed 3 times"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(tuning.file("", &Grouping::Tree).is_err());
        tuning.feasible = false;
        assert!(tuning.file("", &crate::Grouping::default()).is_err());
    }
}
