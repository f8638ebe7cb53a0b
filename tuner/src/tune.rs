//! Finds a sampler's parameters for a recorded workload.

mod file;
mod measure;
mod watch;

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use astracer_samplers::{Config, ConfigError, PerKey};
use rayon::prelude::*;
use serde::Serialize;

use crate::anneal::{Schedule, anneal};
use crate::expect::{Expectation, Expected};
use crate::held_out::{HeldOut, Replayed};
use crate::limits::Limits;
use crate::objective::Objective;
use crate::per_root::{Found, PerRoot};
use crate::problem::{Archive, Evaluated, FrontPoint, Landscape, Problem};
use crate::random::Random;
use crate::space::{self, Parameters, Tunable};
use crate::statistics::MeanSd;
use crate::sweep::{grid_search, random_search};
use crate::workload::Workload;
use measure::measure;
use watch::Watch;

/// Where annealing over common parameters begins: as hot as to leave a valley, with steps of a fifth of an axis.
const HOT: f64 = 0.5;
const STEP_HOT: f64 = 0.2;
/// Where annealing over single roots begins, near a good point already.
const HOT_PER_ROOT: f64 = 0.02;
const STEP_PER_ROOT: f64 = 0.1;
/// Streams of random numbers for the other searches; starts have the streams from 0.
const RANDOM_STREAM: u64 = 1 << 32;
const GRID_STREAM: u64 = 1 << 33;
const PER_ROOT_STREAM: u64 = 1 << 34;
/// Single roots are tried on this share of the time, and looked at on the rest.
const TRIAL_SHARE: f64 = 0.5;
/// The tuner's own method.
const ANNEALING: &str = "annealing";
/// A replayed mean farther than this from what was expected is told of.
const SURPRISE: f64 = 0.15;
/// With more spans a first look is at few window lengths.
const SPANS_FOR_ALL_WINDOWS: u64 = 300_000;
/// From 0.1 s to 37 s, each 1.8 times the one before.
const COARSE_WINDOWS: i32 = 11;
const COARSE_FACTOR: f64 = 1.8;
const WINDOW_LEAST: Duration = Duration::from_millis(100);
/// Starts for what is only compared with.
const STARTS_COMPARED: u32 = 2;

/// What to search for, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The sampler.
    pub sampler: Tunable,
    /// What to make small.
    pub objective: Objective,
    /// What may be kept.
    pub limits: Limits,
    /// Window lengths for bump; `None` searches for the length too.
    pub windows: Option<Vec<Duration>>,
    /// Everything that is random comes from this.
    pub seed: u64,
    /// Searches from different random points.
    pub starts: u32,
    /// Proposals that each start scores, at most.
    pub iterations: u64,
    /// A start ends when so many proposals brought nothing better.
    pub stall: u64,
    /// Starts end after this; the result then depends on the machine's speed.
    pub time_max: Option<Duration>,
    /// Whether to search at random and on a grid too, with as many evaluations.
    pub compare: bool,
    /// Replays that the result is checked with (seeds 1 to this); 0 for none.
    pub replays: u64,
    /// Whether to look for parameters of single roots. They are used only if they are better on the second half of the
    /// time after tuning on the first.
    pub per_root: bool,
    /// Proposals that the search over single roots scores.
    pub per_root_iterations: u64,
    /// Tunes on this first share of the time, and looks at the result on the rest.
    pub split: Option<f64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sampler: Tunable::Bump,
            objective: Objective::paper(),
            limits: Limits::default(),
            windows: None,
            seed: 1,
            starts: 8,
            iterations: 1500,
            stall: 600,
            time_max: None,
            compare: true,
            replays: 20,
            per_root: false,
            per_root_iterations: 8000,
            split: None,
        }
    }
}

impl Options {
    /// The same search for common parameters, and nothing beside it: no comparison, no single roots, no check.
    pub(crate) fn search_only(&self) -> Self {
        Self { compare: false, per_root: false, replays: 0, split: None, ..self.clone() }
    }
}

/// What is being done, for a progress display.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// In words.
    pub stage: Stage,
    /// Points scored in this stage.
    pub evaluations: u64,
    /// Of at most so many.
    pub evaluations_max: u64,
    /// The best value of the objective so far, in any stage.
    pub best: Option<f64>,
}

/// A part of tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Summing up the workload.
    Summing,
    /// Simulated annealing.
    Annealing,
    /// Random search and grid.
    Comparing,
    /// Searching over single roots.
    PerRoot,
    /// Replaying what was found.
    Replaying,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Tuning {
    /// The sampler.
    pub sampler: Tunable,
    /// The best parameters; the nearest if nothing is feasible.
    pub parameters: Parameters,
    /// Parameters of single roots that differ.
    pub per_root: Vec<RootParameters>,
    /// Whether single roots are worth it; `None` if that was not asked for.
    pub per_root_trial: Option<PerRootTrial>,
    /// What the parameters keep: in expectation for bump, exactly for the bucket.
    pub score: Expected,
    /// The same by replay, with the samplers themselves.
    pub replayed: Option<Replayed>,
    /// An equal share of everything, as large as the limits allow, in expectation.
    pub baseline: Expected,
    /// What was made small.
    pub objective: String,
    /// Its value for `score`.
    pub value: f64,
    /// The limits.
    pub limits: Limits,
    /// Whether the limits can be met.
    pub feasible: bool,
    /// If not, why.
    pub infeasible: Option<String>,
    /// The seed.
    pub seed: u64,
    /// Points scored by annealing.
    pub evaluations: u64,
    /// How long it all took.
    pub seconds: f64,
    /// Whether it was stopped before its end: this is then the best so far.
    pub interrupted: bool,
    /// The search that found the common parameters: `annealing`, or `random` or `grid` if one of these was lucky.
    pub found_by: &'static str,
    /// Each start of annealing.
    pub starts: Vec<Search>,
    /// Random search and grid.
    pub compared: Vec<Search>,
    /// Smallest objective by size, of all points scored.
    pub front: Vec<FrontPoint>,
    /// Most call trees by size, of all points scored.
    pub front_call_trees: Vec<FrontPoint>,
    /// On the rest of the time, if it was split.
    pub held_out: Option<HeldOut>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

impl Tuning {
    /// The sampler that was found.
    ///
    /// # Errors
    ///
    /// None for the results of [`tune`]; parameters that were changed since may be impossible.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let roots = self.per_root.iter().map(|root| (root.key.as_str(), root.parameters));
        config(&self.parameters, roots)
    }
}

/// Parameters of single roots against common ones, both tuned on the first part of the time and replayed on the rest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PerRootTrial {
    /// With common parameters.
    pub common: Replayed,
    /// With those of single roots.
    pub per_root: Replayed,
    /// Whether single roots were better, and did not keep more.
    pub better: bool,
}

/// Parameters of one root.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RootParameters {
    /// The key.
    pub key: String,
    /// Its parameters.
    pub parameters: Parameters,
}

/// One search.
#[derive(Clone, Debug, Serialize)]
pub struct Search {
    /// `annealing`, `random` or `grid`.
    pub method: &'static str,
    /// Points scored.
    pub evaluations: u64,
    /// The best of them; `None` if none was within the limits.
    pub best: Option<FrontPoint>,
    /// At which evaluations the best became better, and its value then.
    pub convergence: Vec<(u64, f64)>,
}

/// Finds parameters.
///
/// The result depends on the workload and the options only, not on the number of threads; unless `stop` became true
/// or the time was up. Both are looked at after each evaluation, and the best so far is returned.
pub fn tune(
    workload: &Workload,
    options: &Options,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Tuning {
    let began = Instant::now();
    let run = Run {
        options,
        stop,
        watch: Watch::new(progress),
        deadline: options.time_max.map(|time| began + time),
    };
    run.watch.begin(Stage::Summing, 0);
    let parts = options.split.map(|share| workload.split(share));
    let (train, rest) = match &parts {
        Some((first, rest)) => (first, Some(rest)),
        None => (workload, None),
    };
    let problem = problem(train, options);
    let archives = run.starts(&problem, options.starts);
    let evaluations: u64 = archives.iter().flatten().map(|archive| archive.evaluations).sum();
    let compared = run.compare(&problem, evaluations);
    let mut all = Archive::default();
    for archive in archives.iter().flatten().chain(compared.iter().map(|(_, archive)| archive)) {
        all.merge_fronts(archive);
    }
    // Whichever search found it: the comparison is to tell how good annealing is, not to throw something better away.
    let others = compared.iter().filter_map(|(method, archive)| Some((*method, archive.best?)));
    let found = best_of(&archives).map(|best| (ANNEALING, best)).into_iter().chain(others);
    let (found_by, best, infeasible) = match found.min_by(|(_, a), (_, b)| a.value.total_cmp(&b.value)) {
        Some((method, best)) => (method, best, None),
        None => {
            let (nearest, reason) = problem.infeasible(&mut problem.scratch());
            (ANNEALING, nearest, Some(reason))
        }
    };
    let search = |method: &'static str, archive: &Archive| Search {
        method,
        evaluations: archive.evaluations,
        best: archive.best.as_ref().map(|best| problem.front_point(best)),
        convergence: archive.convergence.clone(),
    };
    let mut tuning = Tuning {
        sampler: options.sampler,
        parameters: problem.space.parameters(&best.point),
        per_root: Vec::new(),
        per_root_trial: None,
        score: best.expected,
        replayed: None,
        baseline: *problem.baseline(),
        objective: options.objective.to_string(),
        value: best.value,
        limits: options.limits,
        feasible: infeasible.is_none(),
        infeasible,
        seed: options.seed,
        evaluations,
        seconds: 0.0,
        interrupted: false,
        found_by,
        starts: archives.iter().flatten().map(|archive| search(ANNEALING, archive)).collect(),
        compared: compared.iter().map(|(method, archive)| search(method, archive)).collect(),
        front: all.by_objective.points().map(|point| problem.front_point(point)).collect(),
        front_call_trees: all.by_call_trees.points().map(|point| problem.front_point(point)).collect(),
        held_out: None,
        warnings: Vec::new(),
    };
    if tuning.feasible {
        if options.per_root {
            run.use_single_roots(train, &problem, &best, &mut tuning);
        }
        if let Some(measured) = measure(train, &tuning.parameters, &tuning.per_root) {
            tuning.score = measured;
        }
        run.check(train, rest, &mut tuning);
    }
    tuning.seconds = began.elapsed().as_secs_f64();
    tuning.interrupted = run.stopped();
    tuning
}

/// What stays the same over one call of [`tune`].
struct Run<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    watch: Watch<'a>,
    deadline: Option<Instant>,
}

impl Run<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Anneals common parameters. `None` for each start that found nothing within the limits.
    fn starts(&self, problem: &Problem<'_>, starts: u32) -> Vec<Option<Archive>> {
        let options = self.options;
        self.watch.begin(Stage::Annealing, u64::from(starts) * (options.iterations + 1));
        let schedule = Schedule {
            hot: HOT,
            step_hot: STEP_HOT,
            iterations: options.iterations,
            stall: options.stall,
            deadline: self.deadline,
        };
        let start = |start: u32| {
            let mut random = Random::new(options.seed, u64::from(start));
            let point = problem.feasible(&mut random, &mut problem.scratch())?;
            let done = |archive: &Archive| self.watch.evaluated(archive.best.as_ref().map(|best| best.value));
            Some(anneal(problem, point, schedule, random, self.stop, &done))
        };
        (0..starts.max(1)).into_par_iter().map(start).collect()
    }

    /// Searches in other ways, with as many evaluations.
    fn compare(&self, problem: &Problem<'_>, evaluations: u64) -> Vec<(&'static str, Archive)> {
        if !self.options.compare || evaluations == 0 {
            return Vec::new();
        }
        self.watch.begin(Stage::Comparing, 2 * evaluations);
        let done = || self.watch.evaluated(None);
        let seed = self.options.seed;
        let random = random_search(problem, evaluations, stream(seed, RANDOM_STREAM), self.stop, &done);
        let grid = grid_search(problem, evaluations, stream(seed, GRID_STREAM), self.stop, &done);
        vec![("random", random), ("grid", grid)]
    }

    fn single_roots(&self, workload: &Workload, problem: &Problem<'_>, common: &Evaluated) -> Option<Found> {
        let iterations = self.options.per_root_iterations;
        let schedule = Schedule {
            hot: HOT_PER_ROOT,
            step_hot: STEP_PER_ROOT,
            iterations,
            stall: iterations,
            deadline: self.deadline,
        };
        self.watch.begin(Stage::PerRoot, 2 * iterations);
        let seed = stream(self.options.seed, PER_ROOT_STREAM);
        let done = || self.watch.evaluated(None);
        PerRoot::new(problem, workload).search(&common.point, schedule, seed, self.stop, &done)
    }

    /// Tries single roots on a part of the time; if they are worth it, looks for them on all of it.
    fn use_single_roots(
        &self,
        train: &Workload,
        problem: &Problem<'_>,
        best: &Evaluated,
        tuning: &mut Tuning,
    ) {
        let Some(trial) = self.try_single_roots(train) else {
            let reason = "single roots: not tried, the first half of the time has too few traces of each, or cannot \
                          meet the limits";
            tuning.warnings.push(reason.to_owned());
            return;
        };
        tuning.per_root_trial = Some(trial);
        let (common, single) = (trial.common.dist_over_entropy.mean, trial.per_root.dist_over_entropy.mean);
        if !trial.better {
            tuning.warnings.push(format!(
                "single roots: tuned on the first half, dist/entropy on the second is {single:.3} with parameters \
                 of their own and {common:.3} with common ones, at {:.2} % and {:.2} % of the bytes; common ones are \
                 used",
                trial.per_root.tfcr.mean * 1e2,
                trial.common.tfcr.mean * 1e2,
            ));
            return;
        }
        if let Some(found) =
            self.single_roots(train, problem, best).filter(|found| found.best.value < best.value)
        {
            tuning.evaluations += found.evaluations;
            tuning.score = found.best.expected;
            tuning.value = found.best.value;
            tuning.parameters = found.common;
            tuning.per_root = named(train, &found).collect();
        }
    }

    fn try_single_roots(&self, train: &Workload) -> Option<PerRootTrial> {
        let (first, rest) = train.split(TRIAL_SHARE);
        let problem = problem(&first, self.options);
        let best = best_of(&self.starts(&problem, STARTS_COMPARED))?;
        let found = self.single_roots(&first, &problem, &best)?;
        let replays = self.options.replays.max(1);
        let common = config(&problem.space.parameters(&best.point), []).ok()?;
        let roots: Vec<_> = named(&first, &found).collect();
        let roots = roots.iter().map(|root| (root.key.as_str(), root.parameters));
        let single = config(&found.common, roots).ok()?;
        self.watch.begin(Stage::Replaying, 2 * replays);
        let done = || self.watch.evaluated(None);
        let common = Replayed::new(&rest, &common, replays, &done);
        let per_root = Replayed::new(&rest, &single, replays, &done);
        let size_max = common.tfcr.mean.max(self.options.limits.size_max);
        let better =
            per_root.dist_over_entropy.mean < common.dist_over_entropy.mean && per_root.tfcr.mean <= size_max;
        Some(PerRootTrial { common, per_root, better })
    }

    /// Replays what was found: on what it was tuned on, and on the rest.
    fn check(&self, train: &Workload, rest: Option<&Workload>, tuning: &mut Tuning) {
        let replays = self.options.replays;
        let Ok(found) = tuning.config() else { return };
        if replays > 0 && !self.stopped() {
            self.watch.begin(Stage::Replaying, replays);
            let replayed = Replayed::new(train, &found, replays, &|| self.watch.evaluated(None));
            tuning.warnings.extend(surprise(&tuning.score, &replayed));
            tuning.replayed = Some(replayed);
        }
        let Some(rest) = rest.filter(|rest| !rest.arrivals().is_empty() && !self.stopped()) else { return };
        let there = problem(rest, self.options);
        let best = best_of(&self.starts(&there, STARTS_COMPARED));
        let best = best.and_then(|best| config(&there.space.parameters(&best.point), []).ok());
        let held_out = HeldOut::new("the rest of the time", rest, &found, best.as_ref(), replays.max(1));
        tuning.warnings.extend(held_out.warnings(self.options.limits.size_max));
        tuning.held_out = Some(held_out);
    }
}

/// Replays what was found on another recording, next to what tuning there would reach.
pub fn validate(
    tuning: &Tuning,
    name: &str,
    other: &Workload,
    options: &Options,
    stop: &AtomicBool,
) -> Option<HeldOut> {
    let found = tuning.config().ok()?;
    let there = Options { starts: STARTS_COMPARED, ..options.search_only() };
    let there = tune(other, &there, stop, &|_| ());
    let there = if there.feasible { there.config().ok() } else { None };
    Some(HeldOut::new(name, other, &found, there.as_ref(), options.replays.max(1)))
}

/// What to say if replays do not have what was expected, by more than chance explains.
fn surprise(expected: &Expected, replayed: &Replayed) -> Option<String> {
    let (expected, MeanSd { mean, sd }) = (expected.dist_over_entropy, replayed.dist_over_entropy);
    let by_chance = 3.0 * sd / (replayed.replays as f64).sqrt();
    ((mean - expected).abs() > SURPRISE * expected + by_chance).then(|| {
        format!(
            "replays have dist/entropy {mean:.3} where {expected:.3} was expected: the formulas are of first order, and \
             these traces are few or very unlike each other; trust the replays"
        )
    })
}

/// Window lengths for a first look, if the options say none: few of them where summing up for each takes long.
pub(crate) fn windows_for_a_look(options: &Options, workload: &Workload) -> Option<Vec<Duration>> {
    let spans: u64 = workload.arrivals().iter().map(|arrival| u64::from(arrival.spans)).sum();
    if options.windows.is_some() || spans <= SPANS_FOR_ALL_WINDOWS {
        return options.windows.clone();
    }
    let last = Duration::from_nanos(workload.arrivals().last().map_or(0, |last| last.at_ns));
    // Whole milliseconds, as people write them.
    let length = |step| Duration::from_millis((100.0 * COARSE_FACTOR.powi(step)) as u64);
    Some((0..COARSE_WINDOWS).map(length).take_while(|length| *length <= last.max(WINDOW_LEAST)).collect())
}

/// Another seed for another purpose.
fn stream(seed: u64, stream: u64) -> u64 {
    Random::new(seed, stream).bits()
}

fn best_of(archives: &[Option<Archive>]) -> Option<Evaluated> {
    let bests = archives.iter().flatten().filter_map(|archive| archive.best);
    bests.min_by(|a, b| a.value.total_cmp(&b.value))
}

fn named<'w>(workload: &'w Workload, found: &'w Found) -> impl Iterator<Item = RootParameters> {
    let names: Vec<&str> = workload.keys().names().collect();
    found
        .roots
        .iter()
        .map(move |&(key, parameters)| RootParameters { key: names[key].to_owned(), parameters })
}

/// The sampler with these parameters, and others for some keys.
fn config<'k>(
    common: &Parameters,
    roots: impl IntoIterator<Item = (&'k str, Parameters)>,
) -> Result<Config, ConfigError> {
    match common {
        Parameters::Bump { .. } => {
            let roots = roots.into_iter();
            per_key(space::bump_of(common)?, roots.map(|(key, own)| Ok((key, space::bump_of(&own)?))))
                .map(Config::Bump)
        }
        Parameters::Bucket { .. } => {
            let roots = roots.into_iter();
            per_key(space::bucket_of(common)?, roots.map(|(key, own)| Ok((key, space::bucket_of(&own)?))))
                .map(Config::TokenBucket)
        }
    }
}

fn per_key<'k, P>(
    common: P,
    mut roots: impl Iterator<Item = Result<(&'k str, P), ConfigError>>,
) -> Result<PerKey<P>, ConfigError> {
    roots.try_fold(PerKey::new(common), |all, root| {
        let (key, own) = root?;
        Ok(all.with_override(key, own))
    })
}

fn problem<'w>(workload: &'w Workload, options: &Options) -> Problem<'w> {
    match options.sampler {
        Tunable::Bump => {
            let latencies = options.objective.needs_latencies();
            let expectation = match &options.windows {
                Some(windows) => {
                    let windows: Vec<_> = windows
                        .iter()
                        .filter_map(|window| NonZeroU64::new(window.as_nanos() as u64))
                        .collect();
                    Expectation::with_windows(workload, &windows, latencies)
                }
                None => Expectation::new(workload, latencies),
            };
            Problem::bump(workload, expectation, options.limits, options.objective.clone())
        }
        Tunable::Bucket => Problem::bucket(workload, options.limits, options.objective.clone()),
    }
}

#[cfg(test)]
mod tests;
