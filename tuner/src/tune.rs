//! Finds a sampler's parameters for a recorded workload.

mod bounding;
mod check;
mod clock;
mod equal;
mod file;
mod key_trial;
mod later;
mod measure;
mod options;
mod roots;
mod single_keys;
mod strata;
mod sums;
mod watch;

use std::borrow::Cow;
use std::time::Instant;

use astracer_samplers::{Cap, Config, ConfigError, PerKey as Keyed, Probability, RandomSource, Ratio};
use rayon::prelude::*;
use serde::Serialize;

pub use bounding::Bounds;
pub use check::{check, validate};
pub use clock::ClockTrial;
pub use equal::KEPT_MIN;
pub use file::NoParameters;
pub(crate) use key_trial::KeyTrial;
pub use key_trial::TRIED_TRACES_MAX;
pub use later::Later;
pub use options::{Options, OptionsError, PerKeyUse};
pub use single_keys::KEYS_TRIED_MAX;
pub use strata::{SLOWER, StrataOptions, StrataTuning, try_strata, tune_strata};

use crate::anneal::{Schedule, anneal};
use crate::expect::Expected;
use crate::family::Family;
use crate::growth::Growth;
use crate::half_life::Clock;
use crate::held_out::{HeldOut, Replayed, equal_share};
use crate::limits::{Limits, Scale};
use crate::objective::Target;
use crate::per_key;
use crate::problem::{Archive, Evaluated, FrontPoint, Problem};
use crate::random::Random;
use crate::records::crowded;
use crate::space::{Parameters, Tunable};
use crate::statistics::Distribution;
use crate::stop::Stop;
use crate::sweep::{grid_search, random_search};
use crate::workload::Workload;
use measure::measure;
use roots::{bounded, share_of_all};
use sums::SummedFamily;
use watch::Watch;

/// The initial temperature and step of annealing over common parameters: hot enough to leave a
/// valley, with steps of a fifth of an axis.
const HOT: f64 = 0.5;
const STEP_HOT: f64 = 0.2;
/// Streams of random numbers for the other searches; annealing starts use the streams from 0 on.
const RANDOM_STREAM: u64 = 1 << 32;
const GRID_STREAM: u64 = 1 << 33;
/// The name of the annealing method.
const ANNEALING: &str = "annealing";
/// Starts of a search whose result is only used for comparison.
const STARTS_COMPARED: u32 = 2;
/// The total cost of all scores of a search, in units of a few ns. If a score costs twice as much,
/// half as many are made.
const WORK_MAX: f64 = 2.4e9;
/// If one score costs more than this, the total is reduced, so that a workload with 100,000 names
/// takes only seconds.
const COST_LARGE: f64 = 3e6;
/// The fewest scores of a search.
const EVALUATIONS_MIN: u64 = 12;
/// A search sees only evenly spaced stretches of more traces, because chance matters little there.
/// The figures are those of all traces.
const SEARCHED_MAX: usize = 500_000;
/// A search of stretches is repeated on all traces if its result keeps more of these than the limit
/// by this factor.
const SIZE_TOLERANCE: f64 = 1.01;
/// Values that differ by at most this factor are equal: the check knows the mean within 5 %, and
/// equal results of other search seeds differ by as much.
const TIED: f64 = 1.03;
/// The search may take this share of the time allowed; the rest is for the check.
const SEARCH_SHARE: f64 = 0.7;
/// The warning for an exponent below 1.
const UNBOUNDED: &str = "the number of traces kept per second has no upper bound: with an exponent below 1 it grows as a \
                         power of the traffic. Add a hard cap (--cap) if traffic may grow";
/// The reason where the time is split before the first trace.
const NOTHING_BEFORE_SPLIT: &str =
    "no trace begins in the part of the recording that --split leaves for tuning: choose a larger share";
/// The reason of a result without anything found.
const STOPPED: &str = "the search was stopped before it found anything";

/// The state of a search, for a progress display.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// The current stage.
    pub stage: Stage,
    /// Points scored in this stage.
    pub evaluations: u64,
    /// The most points that this stage scores.
    pub evaluations_max: u64,
    /// The best value of the objective so far, over all stages.
    pub best: Option<f64>,
}

/// A stage of tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Building sums of the workload.
    Summing,
    /// Simulated annealing.
    Annealing,
    /// Random search and grid search.
    Comparing,
    /// Searching for probabilities of single keys.
    PerKey,
    /// Replaying the result.
    Replaying,
}

/// The result of a search.
#[derive(Clone, Debug, Serialize)]
pub struct Tuning {
    /// The sampler.
    pub sampler: Tunable,
    /// The best parameters, or the nearest ones if nothing is feasible.
    pub parameters: Parameters,
    /// Parameters of single keys, where they differ from the common ones.
    pub per_root: Vec<RootParameters>,
    /// Keys with the common parameters that have their recorded share, so that none of them fills
    /// what is kept if it becomes far more frequent. Empty if none would.
    pub bounded: Vec<RootParameters>,
    /// The trial that shows whether probabilities of single keys are better; `None` if it was not
    /// run.
    pub per_key_trial: Option<PerKeyTrial>,
    /// The trial of the clock of half-lives; `None` if the result counts nothing or was not
    /// compared.
    pub clock: Option<ClockTrial>,
    /// The floor on the expected number of kept traces of each key with its own probability.
    pub min_kept: Option<f64>,
    /// The score of the parameters: means of [`replayed`](Self::replayed), or what the search
    /// expects until they are replayed.
    pub score: Expected,
    /// The score from replays through the samplers themselves, on draws that the search did not
    /// use. This is the figure to trust.
    pub replayed: Option<Replayed>,
    /// An equal share of the same size on the same draws.
    pub replayed_share: Option<Replayed>,
    /// The number of traces that was tuned on.
    pub traces: u64,
    /// The cap under which services will run.
    #[serde(serialize_with = "as_text")]
    pub cap: Cap,
    /// Figures of the cap, if [`Tuning::bound`] has chosen it.
    pub bounds: Option<Bounds>,
    /// The parameters under this cap, on the same draws.
    pub replayed_capped: Option<Replayed>,
    /// dist/entropy of the first of these replays, over recordings drawn from this one's blocks of
    /// time: the spread that is due to this particular recording.
    pub bootstrap: Option<Distribution>,
    /// The same search on each half of the time, replayed on the other half: what to expect of
    /// traffic to come. `None` for small recordings.
    pub later: Option<Later>,
    /// The worst growth of the kept bytes if one key becomes far more frequent.
    pub growth: Option<Growth>,
    /// The score of an equal share of everything: means of
    /// [`replayed_share`](Self::replayed_share), or as expected of one as large as the limits
    /// allow.
    pub baseline: Expected,
    /// The objective that was minimised.
    pub objective: String,
    /// The quantile of single runs that was minimised; the mean if unset.
    pub risk: Option<f64>,
    /// The value of the objective for `score`.
    pub value: f64,
    /// The limits.
    pub limits: Limits,
    /// Whether the limits can be met.
    pub feasible: bool,
    /// The reason if they cannot.
    pub infeasible: Option<String>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The source of randomness for traces that begin in the service.
    #[serde(serialize_with = "named_random")]
    pub random: RandomSource,
    /// Points scored by annealing.
    pub evaluations: u64,
    /// The duration of the search, seconds.
    pub seconds: f64,
    /// Whether the search was interrupted; the result is then the best until that time.
    pub interrupted: bool,
    /// The search that found the common parameters: `annealing`, or `random` or `grid` if one of
    /// these found something better.
    pub found_by: &'static str,
    /// One search for each start of annealing.
    pub starts: Vec<Search>,
    /// Random search and grid search.
    pub compared: Vec<Search>,
    /// The smallest objective by size, over all points scored.
    pub front: Vec<FrontPoint>,
    /// The most call trees by size, over all points scored.
    pub front_call_trees: Vec<FrontPoint>,
    /// The result on the rest of the time, if it was split.
    pub held_out: Option<HeldOut>,
    /// Warnings for people.
    pub warnings: Vec<String>,
    /// The warnings among these that ask for no action: they say how far to trust a figure.
    #[serde(skip)]
    pub remarks: Vec<String>,
}

impl Tuning {
    /// Whether there is no result because the time ran out, and not because the limits cannot be
    /// met.
    pub fn found_nothing_in_time(&self) -> bool {
        self.infeasible.as_deref() == Some(STOPPED)
    }

    /// The name of the sampler that was found: `ratio` if an equal share is used.
    pub fn sampler_name(&self) -> &'static str {
        match self.parameters {
            Parameters::Constant { .. } if self.feasible && self.per_root.is_empty() => "ratio",
            _ => self.sampler.name(),
        }
    }

    /// The minimised objective as text for people.
    pub fn goal(&self) -> String {
        match self.risk {
            Some(risk) => format!("the quantile {risk} of single runs' {}", self.objective),
            None => self.objective.clone(),
        }
    }

    /// The sampler that was found.
    ///
    /// # Errors
    ///
    /// Never for the results of [`tune`], but parameters that were changed afterwards may be
    /// invalid.
    pub fn config(&self) -> Result<Config, ConfigError> {
        config(&self.parameters, self.per_root.iter().chain(&self.bounded))
    }
}

/// Compares probabilities of single keys with common parameters. Both are tuned on the first half
/// of the time and replayed on the later half, and then the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PerKeyTrial {
    /// Common parameters on the later half and on the first one.
    pub common: [Replayed; 2],
    /// Probabilities of single keys on the later half and on the first one.
    pub per_key: [Replayed; 2],
    /// The objective of both with common parameters, relative to an equal share of the same size;
    /// dist/entropy as the geometric mean of that by weights and as counted.
    pub common_values: [f64; 2],
    /// The same with probabilities of single keys.
    pub per_key_values: [f64; 2],
    /// Whether probabilities of single keys are better by these values, or worse by at most a
    /// tenth.
    pub better: bool,
}

/// The parameters of one root.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RootParameters {
    /// The key.
    pub key: String,
    /// The key's parameters.
    pub parameters: Parameters,
    /// The key's share of the recorded traces. Above four times it, a constant or minimum falls.
    pub share: f64,
}

/// One search.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Search {
    /// `annealing`, `random` or `grid`.
    pub method: &'static str,
    /// Points scored.
    pub evaluations: u64,
    /// The best point; `None` if none was within the limits.
    pub best: Option<FrontPoint>,
    /// The evaluations that improved the best value, each with that value: the objective or, if one
    /// key has more than 80 % of the bytes, the objective increased by the error of counts.
    pub convergence: Vec<(u64, f64)>,
}

/// Finds parameters and checks them: [`search`], then [`check`].
///
/// The result depends only on the workload and the options, and not on the number of threads,
/// unless `stop` became true or the time ran out. Both are checked at least every 50 ms, and then
/// the best result so far is returned.
pub fn tune(
    workload: &Workload,
    options: &Options,
    stop: Stop<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Tuning {
    let began = Instant::now();
    let mut tuning = search(workload, options, stop, progress);
    let left = options.time_max.map(|time| time.saturating_sub(began.elapsed()));
    check(&mut tuning, workload, &Options { time_max: left, ..options.clone() }, stop, progress);
    tuning
}

/// Finds parameters without checking them, so that they can be written early.
pub fn search(
    workload: &Workload,
    options: &Options,
    stop: Stop<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Tuning {
    let began = Instant::now();
    let run = Run::new(options, stop, progress);
    let first = match options.split.map(|share| workload.split(share, run.stop)) {
        Some(None) => return run.ended(run.tuning(), began),
        parts => parts.flatten().map(|(first, _)| first),
    };
    let Some(first) = first else {
        return run.search_in(workload, began);
    };
    if first.arrivals().is_empty() {
        let mut tuning = run.tuning();
        tuning.infeasible = Some(NOTHING_BEFORE_SPLIT.to_owned());
        return run.ended(tuning, began);
    }
    run.search_in(&first, began)
}

/// Tries a key: tunes briefly on half of the blocks of time, and replays the result on the others.
/// `None` if there was no time.
pub(crate) fn try_key(
    workload: &Workload,
    options: &Options,
    stop: Stop<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Option<KeyTrial> {
    Run::new(options, stop, progress).try_key(workload)
}

/// The constant state of one search.
struct Run<'a> {
    options: &'a Options,
    stop: Stop<'a>,
    watch: Watch<'a>,
}

/// Common parameters, and the searches that found them.
struct Common {
    parameters: Parameters,
    expected: Expected,
    value: f64,
    infeasible: Option<String>,
    found_by: &'static str,
    starts: Vec<Search>,
    compared: Vec<Search>,
    front: Vec<FrontPoint>,
    front_call_trees: Vec<FrontPoint>,
}

impl Common {
    fn report(self, tuning: &mut Tuning) {
        tuning.parameters = self.parameters;
        tuning.score = self.expected;
        tuning.value = self.value;
        tuning.feasible = self.infeasible.is_none();
        tuning.infeasible = self.infeasible;
        tuning.evaluations = self.starts.iter().map(|search| search.evaluations).sum();
        tuning.found_by = self.found_by;
        tuning.starts = self.starts;
        tuning.compared = self.compared;
        tuning.front = self.front;
        tuning.front_call_trees = self.front_call_trees;
    }
}

impl<'a> Run<'a> {
    /// Begins the first stage.
    fn new(options: &'a Options, stop: Stop<'a>, progress: &'a (dyn Fn(Progress) + Sync)) -> Self {
        let time_max = options.time_max.map(|time| time.mul_f64(SEARCH_SHARE));
        let run = Self { options, stop: stop.within(time_max), watch: Watch::new(progress) };
        run.watch.begin(Stage::Summing, 0);
        run
    }

    fn search_in(&self, workload: &Workload, began: Instant) -> Tuning {
        self.search_at_most(workload, self.searched_max(), began)
    }

    /// Searches stretches of more than `most` traces, or all if the result keeps too many of these.
    fn search_at_most(&self, workload: &Workload, most: usize, began: Instant) -> Tuning {
        let found = self.search_stretches(workload, most, began);
        let size_max = SIZE_TOLERANCE * self.options.limits.size_max;
        let is_too_large = found.feasible && found.score.tfcr > size_max;
        match workload.arrivals().len() > most && is_too_large && !self.stop.is_asked() {
            true => self.search_stretches(workload, usize::MAX, began),
            false => found,
        }
    }

    /// The most traces that a search sees. Some options need the rates or counts of all.
    fn searched_max(&self) -> usize {
        let Options { limits, windows, min_kept, risk, .. } = self.options;
        let by_second = limits.traces_per_second_max.is_some() || limits.bytes_per_second_max.is_some();
        match by_second || windows.is_some() || min_kept.is_some() || risk.is_some() {
            true => usize::MAX,
            false => SEARCHED_MAX,
        }
    }

    /// Searches evenly spaced stretches of more than `most` traces.
    fn search_stretches(&self, workload: &Workload, most: usize, began: Instant) -> Tuning {
        let options = self.options;
        let mut tuning = self.tuning();
        tuning.traces = workload.arrivals().len() as u64;
        tuning.warnings.extend(crowded(workload));
        let target = self.target(workload);
        let too_little = target.as_ref().and_then(|target| self.too_little(workload, target));
        if let (Some(reason), Some(target)) = (&too_little, &target)
            && self.use_equal_share(workload, target, &mut tuning)
        {
            tuning.warnings.push(format!("too little to tune: {reason}; an equal share (ratio) is used"));
        } else if let Some(target) = &target {
            tuning.baseline = target.baseline;
            if let Some(searched) = workload.thinned(most, self.stop) {
                let is_found = self.find(&searched, target, &mut tuning);
                if matches!(searched, Cow::Owned(_)) {
                    share_of_all(workload, &mut tuning.per_root);
                }
                if is_found {
                    self.judge((workload, &searched), target, &mut tuning);
                }
            }
        }
        if matches!(tuning.parameters, Parameters::Decaying { exponent, .. } if exponent < 1.0) {
            tuning.warnings.push(UNBOUNDED.to_owned());
        }
        let is_other = !tuning.per_root.is_empty() || workload.arrivals().len() > most;
        if tuning.feasible
            && let Some(measured) = measure(
                workload,
                &tuning.parameters,
                &tuning.per_root,
                options.random,
                self.stop.without_deadline(),
            )
        {
            tuning.score = measured;
            if let Some(target) = target.as_ref().filter(|_| is_other) {
                tuning.value = target.value(std::slice::from_ref(&measured));
            }
        }
        if let (true, Some(target)) = (tuning.feasible, &target) {
            tuning.bounded = bounded(workload, &tuning.parameters, &tuning.per_root, target.baseline.tfcr);
        }
        if let Ok(config) = tuning.config() {
            tuning.growth = Growth::worst(workload, &config, tuning.score.tfcr);
        }
        self.ended(tuning, began)
    }

    /// Searches for common parameters, then for a probability for each key. False if stopped before
    /// the first score.
    fn find(&self, workload: &Workload, target: &Target, tuning: &mut Tuning) -> bool {
        let options = self.options;
        // The sums are dropped first: tables of single keys take as much memory.
        let Some(common) = self.common(workload, target, (options.starts, true), Clock::Calls) else {
            return false;
        };
        common.report(tuning);
        let is_loop = per_key::loop_share(workload).is_some();
        if is_loop {
            self.choose_clock(workload, target, tuning);
        }
        if options.per_key != PerKeyUse::Never && options.sampler == Tunable::Bump {
            self.use_single_keys(workload, target, tuning);
        }
        // Constants do not count.
        if !is_loop && tuning.per_root.is_empty() {
            self.choose_clock(workload, target, tuning);
        }
        true
    }

    fn ended(&self, mut tuning: Tuning, began: Instant) -> Tuning {
        tuning.seconds = began.elapsed().as_secs_f64();
        tuning.interrupted = self.stop.is_interrupted();
        tuning
    }

    /// A result in which nothing has been found yet.
    fn tuning(&self) -> Tuning {
        let options = self.options;
        Tuning {
            sampler: options.sampler,
            parameters: Parameters::Constant { probability: 0.0 },
            per_root: Vec::new(),
            bounded: Vec::new(),
            per_key_trial: None,
            clock: None,
            min_kept: None,
            score: Expected::default(),
            replayed: None,
            replayed_share: None,
            traces: 0,
            cap: options.cap,
            bounds: None,
            replayed_capped: None,
            bootstrap: None,
            growth: None,
            later: None,
            baseline: Expected::default(),
            objective: options.objective.to_string(),
            risk: options.risk,
            value: f64::INFINITY,
            limits: options.limits,
            feasible: false,
            infeasible: Some(STOPPED.to_owned()),
            seed: options.seed,
            random: options.random,
            evaluations: 0,
            seconds: 0.0,
            interrupted: false,
            found_by: ANNEALING,
            starts: Vec::new(),
            compared: Vec::new(),
            front: Vec::new(),
            front_call_trees: Vec::new(),
            held_out: None,
            warnings: Vec::new(),
            remarks: Vec::new(),
        }
    }

    fn target(&self, workload: &Workload) -> Option<Target> {
        let share = self.options.limits.largest_share(workload);
        let baseline = equal_share(workload, share, self.options.random, self.stop)?;
        Some(Target { objective: self.options.objective.clone(), risk: self.options.risk, baseline })
    }

    /// Searches for common parameters; `None` if stopped before the first score.
    fn common(
        &self,
        workload: &Workload,
        target: &Target,
        (starts, report): (u32, bool),
        clock: Clock,
    ) -> Option<Common> {
        let family = self.family(workload, report, clock)?;
        let (limits, scale) = (self.options.limits, Scale::new(workload));
        let is_loop = per_key::loop_share(workload).is_some();
        let stop = self.stop;
        match &family {
            SummedFamily::Bump(family) => {
                self.search(Problem { family, limits, scale, target, is_loop, stop }, starts, report)
            }
            SummedFamily::Bucket(family) => {
                self.search(Problem { family, limits, scale, target, is_loop, stop }, starts, report)
            }
        }
    }

    /// `None` if stopped before the first score.
    fn search<F: Family>(&self, problem: Problem<'_, F>, starts: u32, report: bool) -> Option<Common> {
        let archives = self.starts(&problem, starts);
        let evaluations: u64 = archives.iter().flatten().map(|archive| archive.evaluations).sum();
        let compared = if report { self.compare(&problem, evaluations) } else { Vec::new() };
        let mut all = Archive::default();
        for archive in archives.iter().flatten().chain(compared.iter().map(|(_, archive)| archive)) {
            all.merge_fronts(archive);
        }
        // Takes the best point of any search: the comparison shows how good annealing is, but
        // should not discard a better result.
        let others = compared.iter().filter_map(|(method, archive)| Some((*method, archive.best?)));
        let found = best_of(&archives).map(|best| (ANNEALING, best)).into_iter().chain(others);
        let (found_by, best, infeasible) = match found.min_by(|(_, a), (_, b)| a.value.total_cmp(&b.value)) {
            Some((method, best)) => {
                let exact = self.tied(&problem, &best, archives.iter().flatten());
                (method, exact.unwrap_or(best), None)
            }
            None => {
                let (nearest, reason) = problem.infeasible(&mut F::Scratch::default())?;
                (ANNEALING, nearest, Some(reason))
            }
        };
        let search = |method: &'static str, archive: &Archive| Search {
            method,
            evaluations: archive.evaluations,
            best: archive.best.as_ref().map(|best| problem.front_point(best)),
            convergence: archive.convergence.clone(),
        };
        Some(Common {
            parameters: problem.family.parameters(&best.point),
            expected: best.expected,
            value: best.objective,
            infeasible,
            found_by,
            starts: archives.iter().flatten().map(|archive| search(ANNEALING, archive)).collect(),
            compared: compared.iter().map(|(method, archive)| search(method, archive)).collect(),
            front: all.by_objective.points().map(|point| problem.front_point(point)).collect(),
            front_call_trees: all.by_call_trees.points().map(|point| problem.front_point(point)).collect(),
        })
    }

    /// The point with the smallest error of counts among those that are as good as the best one but
    /// for what a check by replays can tell. For a loop the error is part of the value already.
    fn tied<'r, F: Family>(
        &self,
        problem: &Problem<'_, F>,
        best: &Evaluated,
        archives: impl Iterator<Item = &'r Archive>,
    ) -> Option<Evaluated> {
        let error = |point: &Evaluated| point.expected.count_error.unwrap_or(f64::INFINITY);
        let tied = archives.filter_map(|archive| archive.of_best_counts(TIED * best.value)).copied();
        let exact = tied.min_by(|a, b| error(a).total_cmp(&error(b)))?;
        (!problem.is_loop && error(&exact) < error(best)).then_some(exact)
    }

    /// Anneals common parameters. The result is `None` for each start that found no point within
    /// the limits.
    fn starts<F: Family>(&self, problem: &Problem<'_, F>, starts: u32) -> Vec<Option<Archive>> {
        let options = self.options;
        let affordable = affordable(problem.family.cost());
        let starts = starts.max(1).min((affordable / EVALUATIONS_MIN).max(1) as u32);
        let iterations = options.iterations.min(affordable / u64::from(starts));
        self.watch.begin(Stage::Annealing, u64::from(starts) * (iterations + 1));
        let schedule = Schedule { hot: HOT, step_hot: STEP_HOT, iterations, stall: options.stall };
        let start = |start: u32| {
            let mut random = Random::new(options.seed, u64::from(start));
            let point = problem.feasible(&mut random)?;
            let done = |archive: &Archive| self.watch.evaluated(archive.best.as_ref().map(|best| best.value));
            Some(anneal(problem, point, schedule, random, self.stop, &done))
        };
        (0..starts).into_par_iter().map(start).collect()
    }

    /// Runs the searches that annealing is compared with, each with as many evaluations.
    fn compare<F: Family>(&self, problem: &Problem<'_, F>, evaluations: u64) -> Vec<(&'static str, Archive)> {
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
}

fn as_text<S: serde::Serializer>(cap: &Cap, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(cap)
}

fn named_random<S: serde::Serializer>(random: &RandomSource, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(random.name())
}

/// The number of scores that a search may make if one of them has this cost.
fn affordable(cost: u64) -> u64 {
    let cost = cost.max(1) as f64;
    ((WORK_MAX / (1.0 + cost / COST_LARGE) / cost) as u64).max(EVALUATIONS_MIN)
}

/// Derives a seed for another purpose.
fn stream(seed: u64, stream: u64) -> u64 {
    Random::new(seed, stream).bits()
}

fn best_of(archives: &[Option<Archive>]) -> Option<Evaluated> {
    let bests = archives.iter().flatten().filter_map(|archive| archive.best);
    bests.min_by(|a, b| a.value.total_cmp(&b.value))
}

/// The sampler with common parameters, and with different ones for some keys.
fn config<'r>(
    common: &Parameters,
    roots: impl IntoIterator<Item = &'r RootParameters>,
) -> Result<Config, ConfigError> {
    let mut roots = roots.into_iter().peekable();
    match *common {
        Parameters::Bucket { .. } => Ok(Config::TokenBucket(Keyed::new(common.bucket()?))),
        Parameters::Constant { probability } if roots.peek().is_none() && probability > 0.0 => {
            Ok(Config::Ratio(Ratio::new(Probability::new(probability).unwrap_or(Probability::ONE))?))
        }
        _ => {
            let mut keyed = Keyed::new(common.bump()?);
            for root in roots {
                let own = root.parameters.bump()?;
                let share = Probability::new(root.share).filter(|_| own.count().takes_share());
                keyed = keyed.with_override(root.key.as_str(), own.with_share(share));
            }
            Ok(Config::Bump(keyed))
        }
    }
}

#[cfg(test)]
mod tests;
