//! Replays a result: on draws that its search did not see, on the rest of the time, on other recordings.

use astracer_samplers::{Config, Probability, Ratio};

use super::watch::Watch;
use super::{Options, Progress, Run, STARTS_COMPARED, Stage, Tuning, config};
use crate::bootstrap::bootstrap;
use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::held_out::{HeldOut, Replayed};
use crate::objective::Objective;
use crate::statistics::Distribution;
use crate::stop::Stop;
use crate::workload::Workload;

/// Arrivals and functions that all replays of a sampler go through: larger workloads are replayed less often, but at least
/// [`REPLAYS_MIN`] times, since chance matters less there and a replay takes longer.
const REPLAYED_MAX: usize = 3_000_000;
const REPLAYS_MIN: u64 = 6;

/// A replayed mean farther than this from the expectation, as a share of it, is a surprise.
const SURPRISE: f64 = 0.15;

/// Replays what was found: on draws that the search did not see, and on the rest of the time if it was split.
pub fn check(
    tuning: &mut Tuning,
    workload: &Workload,
    options: &Options,
    stop: Stop<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) {
    let Ok(found) = tuning.config() else { return };
    if !tuning.feasible {
        return;
    }
    let run = Run { options, stop: stop.within(options.time_max), watch: Watch::new(progress) };
    let parts = match options.split.map(|share| workload.split(share, run.stop)) {
        Some(None) => {
            tuning.interrupted |= run.stop.is_interrupted();
            return;
        }
        parts => parts.flatten(),
    };
    let train = parts.as_ref().map_or(workload, |(first, _)| first);
    if options.replays > 0 {
        run.check(train, &found, tuning);
    }
    if let Some((_, rest)) = parts.filter(|(_, rest)| !rest.arrivals().is_empty()) {
        let held_out = run.held_out(tuning, "the rest of the time", &rest);
        tuning.warnings.extend(held_out.iter().flat_map(|found| found.warnings(options.limits.size_max)));
        tuning.held_out = held_out;
    }
    tuning.interrupted |= run.stop.is_interrupted();
}

/// Replays what was found on another recording, next to what tuning there would reach. `None` if asked to stop.
pub fn validate(
    tuning: &Tuning,
    name: &str,
    other: &Workload,
    options: &Options,
    stop: Stop<'_>,
) -> Option<HeldOut> {
    let run = Run { options, stop: stop.within(options.time_max), watch: Watch::new(&|_| ()) };
    run.held_out(tuning, name, other)
}

/// The number of replays that a workload of this size is worth, at most as many as wanted.
pub(super) fn affordable_replays(workload: &Workload, wanted: u64) -> u64 {
    let size = workload.arrivals().len() + workload.functions().len();
    wanted.min(((REPLAYED_MAX / size.max(1)) as u64).max(REPLAYS_MIN))
}

impl Run<'_> {
    fn check(&self, train: &Workload, found: &Config, tuning: &mut Tuning) {
        let replays = affordable_replays(train, self.options.replays);
        let draws = Draw::unseen(replays as usize, self.options.seed, self.options.random);
        let cap = self.options.cap;
        self.watch.begin(Stage::Replaying, if cap.is_none() { 2 } else { 3 } * replays);
        let replay = |candidate: &Candidate| {
            Replayed::new(train, candidate, &draws, self.stop, &|| self.watch.evaluated(None))
        };
        let Some(replayed) = replay(&found.clone().into()) else {
            let why = if self.stop.is_interrupted() { "interrupted" } else { "the time was up" };
            tuning.warnings.push(format!("not checked by replay: {why}"));
            return;
        };
        tuning.warnings.extend(surprise(tuning.score.dist_over_entropy, &replayed));
        let share = Probability::new(replayed.tfcr.mean.clamp(0.0, 1.0));
        let share = share.and_then(|share| Ratio::new(share).ok()).map(Config::from);
        tuning.replayed_share = share.and_then(|share| replay(&share.into()));
        if !cap.is_none() {
            tuning.replayed_capped = replay(&Candidate::Capped(found.clone(), cap));
        }
        if let Some(share) = tuning.replayed_share.filter(|_| self.options.objective == Objective::paper()) {
            let (found, equal) = (replayed.dist_over_entropy.mean, share.dist_over_entropy.mean);
            if found > equal {
                tuning.warnings.push(format!(
                    "replayed, dist/entropy is {found:.3}, and an equal share of the same size has {equal:.3}: use \
                     `ratio`, or allow a larger size"
                ));
            }
        }
        if let (Some(of), Some(share)) = (replayed.dist_over_entropy_weighted, tuning.replayed_share) {
            let equal = share.dist_over_entropy.mean;
            if of.mean > equal {
                tuning.warnings.push(format!(
                    "by weights dist/entropy is {:.3}, worse than an equal share's {equal:.3}: weights of 1/p from \
                     very small probabilities are noise",
                    of.mean
                ));
            }
        }
        tuning.bootstrap =
            draws.first().and_then(|draw| bootstrap(train, &found.clone().into(), draw, self.stop));
        tuning.replayed = Some(replayed);
    }

    /// The same parameters on another workload, next to those tuned there.
    fn held_out(&self, tuning: &Tuning, name: &str, other: &Workload) -> Option<HeldOut> {
        let found = tuning.config().ok()?;
        let target = self.target(other)?;
        let there = self.common(other, &target, STARTS_COMPARED, false);
        let there = there.filter(|there| there.infeasible.is_none());
        let there = there.and_then(|there| config(&there.parameters, &[]).ok());
        let draws =
            Draw::unseen(self.options.replays.max(1) as usize, self.options.seed, self.options.random);
        HeldOut::new(name, other, &found, there.as_ref(), &draws, self.stop)
    }
}

/// A warning if replays do not have the expected figure, by more than chance explains.
fn surprise(expected: f64, replayed: &Replayed) -> Option<String> {
    let Distribution { mean, sd, .. } = replayed.dist_over_entropy;
    let by_chance = 3.0 * sd / (replayed.replays as f64).sqrt();
    ((mean - expected).abs() > SURPRISE * expected + by_chance).then(|| {
        format!(
            "replays have dist/entropy {mean:.3} where {expected:.3} was expected: the formulas are of first order, and \
             these traces are few or very unlike each other; trust the replays"
        )
    })
}
