//! Finds a sampler's parameters for a recorded workload.

use std::num::NonZeroU64;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use serde::Serialize;

use crate::anneal::{Schedule, anneal};
use crate::contender::Contender;
use crate::evaluate::Evaluator;
use crate::expect::{Expectation, Expected};
use crate::limits::Limits;
use crate::objective::Objective;
use crate::problem::{Archive, Evaluated, FrontPoint, Problem};
use crate::random::Random;
use crate::space::{Parameters, Tunable};
use crate::statistics::MeanSd;
use crate::sweep::{grid_search, random_search};
use crate::workload::Workload;

/// Streams of random numbers for the searches that are compared with; starts have the streams from 0.
const RANDOM_STREAM: u64 = 1 << 32;
const GRID_STREAM: u64 = 1 << 33;

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
        }
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
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Summing up the workload.
    Summing,
    /// Simulated annealing.
    Annealing,
    /// Random search and grid.
    Comparing,
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
    /// Each start of annealing.
    pub starts: Vec<Search>,
    /// Random search and grid.
    pub compared: Vec<Search>,
    /// Smallest objective by size, of all points scored.
    pub front: Vec<FrontPoint>,
    /// Most call trees by size, of all points scored.
    pub front_call_trees: Vec<FrontPoint>,
    /// What a person should know.
    pub warnings: Vec<String>,
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

/// Means over several replays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// How many replays.
    pub replays: u64,
    /// Mean and standard deviation of dist/entropy.
    pub dist_over_entropy: MeanSd,
    /// Of the share of bytes.
    pub tfcr: MeanSd,
    /// Of the call trees found.
    pub call_trees: MeanSd,
    /// Of the traces kept.
    pub traces: MeanSd,
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
    progress(Progress { stage: Stage::Summing, evaluations: 0, evaluations_max: 0, best: None });
    let problem = problem(workload, options);
    let (archives, watch) = run_starts(&problem, options, began, stop, progress);
    let evaluations: u64 = archives.iter().flatten().map(|archive| archive.evaluations).sum();
    let mut compared = Vec::new();
    if options.compare && evaluations > 0 {
        watch.begin(Stage::Comparing, 2 * evaluations);
        let done = || watch.evaluated(None);
        let random = random_search(&problem, evaluations, stream(options.seed, RANDOM_STREAM), stop, &done);
        let grid = grid_search(&problem, evaluations, stream(options.seed, GRID_STREAM), stop, &done);
        compared = vec![("random", random), ("grid", grid)];
    }
    let mut all = Archive::default();
    for archive in archives.iter().flatten().chain(compared.iter().map(|(_, archive)| archive)) {
        all.merge_fronts(archive);
    }
    let mut finalists: Vec<Evaluated> =
        archives.iter().flatten().filter_map(|archive| archive.best).collect();
    finalists.sort_by(|a, b| a.value.total_cmp(&b.value));
    let (best, infeasible) = match finalists.first() {
        Some(best) => (*best, None),
        None => {
            let (nearest, reason) = problem.infeasible(&mut problem.scratch());
            (nearest, Some(reason))
        }
    };
    let parameters = problem.space.parameters(&best.point);
    let replayed = (options.replays > 0 && !stop.load(Ordering::Relaxed)).then(|| {
        watch.begin(Stage::Replaying, options.replays);
        replay(workload, &parameters, options.replays, &|| watch.evaluated(None))
    });
    let search = |method: &'static str, archive: &Archive| Search {
        method,
        evaluations: archive.evaluations,
        best: archive.best.as_ref().map(|best| problem.front_point(best)),
        convergence: archive.convergence.clone(),
    };
    Tuning {
        sampler: options.sampler,
        parameters,
        per_root: Vec::new(),
        score: best.expected,
        replayed,
        baseline: *problem.baseline(),
        objective: options.objective.to_string(),
        value: best.value,
        limits: options.limits,
        feasible: infeasible.is_none(),
        infeasible,
        seed: options.seed,
        evaluations,
        seconds: began.elapsed().as_secs_f64(),
        interrupted: stop.load(Ordering::Relaxed),
        starts: archives.iter().flatten().map(|archive| search("annealing", archive)).collect(),
        compared: compared.iter().map(|(method, archive)| search(method, archive)).collect(),
        front: all.by_objective.points().map(|point| problem.front_point(point)).collect(),
        front_call_trees: all.by_call_trees.points().map(|point| problem.front_point(point)).collect(),
        warnings: Vec::new(),
    }
}

/// Another seed for another purpose.
fn stream(seed: u64, stream: u64) -> u64 {
    Random::new(seed, stream).bits()
}

fn problem<'w>(workload: &'w Workload, options: &Options) -> Problem<'w> {
    match options.sampler {
        Tunable::Bump => {
            let expectation = match &options.windows {
                Some(windows) => {
                    let windows: Vec<_> = windows
                        .iter()
                        .filter_map(|window| NonZeroU64::new(window.as_nanos() as u64))
                        .collect();
                    Expectation::with_windows(workload, &windows)
                }
                None => Expectation::new(workload),
            };
            Problem::bump(workload, expectation, options.limits, options.objective.clone())
        }
        Tunable::Bucket => Problem::bucket(workload, options.limits, options.objective.clone()),
    }
}

fn run_starts<'p>(
    problem: &Problem<'_>,
    options: &Options,
    began: Instant,
    stop: &AtomicBool,
    progress: &'p (dyn Fn(Progress) + Sync),
) -> (Vec<Option<Archive>>, Watch<'p>) {
    let watch = Watch::new(progress);
    watch.begin(Stage::Annealing, u64::from(options.starts) * (options.iterations + 1));
    let schedule = Schedule {
        iterations: options.iterations,
        stall: options.stall,
        deadline: options.time_max.map(|time| began + time),
    };
    let start = |start: u32| {
        let random = Random::new(options.seed, u64::from(start));
        anneal(problem, schedule, random, stop, &|archive| watch.evaluated(archive.best.as_ref()))
    };
    ((0..options.starts.max(1)).into_par_iter().map(start).collect(), watch)
}

fn replay(workload: &Workload, parameters: &Parameters, replays: u64, done: &(dyn Fn() + Sync)) -> Replayed {
    let evaluator = Evaluator::new(workload);
    let config = Contender::from(parameters.config().expect("a search returns valid parameters"));
    let score = |seed: u64| {
        let score = evaluator.score(&config, seed);
        done();
        score
    };
    let scores: Vec<_> = (1..=replays).into_par_iter().map(score).collect();
    Replayed {
        replays,
        dist_over_entropy: MeanSd::of(scores.iter().map(|score| score.dist_over_entropy)),
        tfcr: MeanSd::of(scores.iter().map(|score| score.tfcr)),
        call_trees: MeanSd::of(scores.iter().map(|score| score.call_trees as f64)),
        traces: MeanSd::of(scores.iter().map(|score| score.traces as f64)),
    }
}

/// Counts evaluations of all threads and tells the caller.
struct Watch<'p> {
    progress: &'p (dyn Fn(Progress) + Sync),
    evaluations: AtomicU64,
    stage: Mutex<(Stage, u64, Option<f64>)>,
}

/// The caller is told after so many evaluations.
const TELL_EVERY: u64 = 16;

impl<'p> Watch<'p> {
    fn new(progress: &'p (dyn Fn(Progress) + Sync)) -> Self {
        Self { progress, evaluations: AtomicU64::new(0), stage: Mutex::new((Stage::Summing, 0, None)) }
    }

    fn begin(&self, stage: Stage, evaluations_max: u64) {
        self.evaluations.store(0, Ordering::Relaxed);
        if let Ok(mut state) = self.stage.lock() {
            (state.0, state.1) = (stage, evaluations_max);
            (self.progress)(Progress { stage, evaluations: 0, evaluations_max, best: state.2 });
        }
    }

    fn evaluated(&self, best: Option<&Evaluated>) {
        let evaluations = self.evaluations.fetch_add(1, Ordering::Relaxed) + 1;
        if !evaluations.is_multiple_of(TELL_EVERY) {
            return;
        }
        if let Ok(mut state) = self.stage.lock() {
            if let Some(best) = best {
                state.2 = Some(state.2.map_or(best.value, |old| old.min(best.value)));
            }
            let (stage, evaluations_max, best) = *state;
            (self.progress)(Progress { stage, evaluations, evaluations_max, best });
        }
    }
}

#[cfg(test)]
mod tests;
