//! The stage that gives keys their own probabilities if these are better.

use astracer_samplers::Config;

use super::check::trial_replays;
use super::roots::{named, with_needed_minima};
use super::{PerKeyUse, RootParameters, Run, STARTS_COMPARED, Stage, Tuning, affordable, config, stream};
use crate::anneal::Schedule;
use crate::blocks::LeftOut;
use crate::draw::Draw;
use crate::half_life::Clock;
use crate::held_out::Replayed;
use crate::objective::Target;
use crate::per_key::{self, Combined, PerKey};
use crate::space::Parameters;
use crate::workload::Workload;

/// The initial temperature and step of annealing over single keys.
const HOT_PER_KEY: f64 = 0.1;
const STEP_PER_KEY: f64 = 0.15;
const STARTS_PER_KEY: u64 = 4;
/// Searches on different draws, of which the mean is used. A loop has a single search on all draws:
/// its first calls are in one block of time only.
const SEARCHES: usize = 6;
/// Searches on each side of a trial.
const SEARCHES_TRIED: usize = 2;
/// Curves that are tried in addition to probabilities of single keys: lambda as a share of lambda
/// of the common parameters. They are tried only if one key is a loop, because otherwise they
/// gained nothing on draws that the search did not use.
const CURVE_SHARES: [f64; 2] = [0.3, 1.0];
/// A curve is used only if it reduces the minimised value to below this share, because it needs
/// counts and depends on the order of calls.
const CURVE_GAIN: f64 = 0.9;
/// The stream of random numbers for these searches.
const PER_KEY_STREAM: u64 = 1 << 34;
/// Draws on which probabilities of single keys are scored. Each is a single random run. Common
/// parameters need fewer draws, because their scores are already means over random decisions. These
/// are the draws of all searches together. Large workloads have fewer, so that together they have
/// about [`DRAWN_MAX`] traces, because chance matters less there.
const DRAWS_PER_KEY: usize = 48;
const DRAWS_LEAST: usize = 6;
const DRAWN_MAX: usize = 5_000_000;
/// With more keys, most of them hardly occur, and a probability for each is not tried. Nor are
/// groupings with more keys tried.
pub const KEYS_TRIED_MAX: usize = 10_000;
/// Replays on each side of a trial of single keys.
const TRIAL_REPLAYS: usize = 24;
/// Probabilities of single keys are used even if their value is worse than that of common
/// parameters by up to this factor, because they do not depend on windows or on the order of calls,
/// and their weighted counts have much smaller errors.
const TRIAL_TOLERANCE: f64 = 1.1;
pub(super) const TRIAL_STARTS: u32 = 1;
const ONE_KEY: &str = "--per-key has no effect, because there is only one key; omit --per-key and --min-kept, or use a key \
                       with more values";

/// The effort of a search over single keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    searches: usize,
    /// Starts of each search.
    starts: u64,
    /// Whether curves are tried beside the probabilities.
    curves: bool,
}

impl Effort {
    /// As for a result.
    pub(super) const FULL: Self = Self { searches: SEARCHES, starts: 1, curves: false };
    pub(super) const TRIAL: Self = Self { searches: SEARCHES_TRIED, starts: 1, curves: false };
    const LOOP: Self = Self { searches: 1, starts: STARTS_PER_KEY, curves: true };
}

impl Run<'_> {
    /// Searches for a probability for each key; common parameters remain for keys that come later.
    pub(super) fn single_keys(
        &self,
        workload: &Workload,
        common: &Parameters,
        target: &Target,
        effort: Effort,
    ) -> Option<per_key::Found> {
        let options = self.options;
        let settings = (options.min_kept, options.key_floor, options.objective.extras());
        let problem = (options.limits, target);
        let is_loop = per_key::loop_share(workload).is_some();
        let searches = if is_loop { 1 } else { effort.searches };
        let all = DRAWN_MAX / workload.arrivals().len().max(1);
        let draws = Draw::seen(all.clamp(DRAWS_LEAST, DRAWS_PER_KEY), options.seed, options.random);
        let each = if is_loop { draws.len() } else { draws.len() / SEARCHES };
        let of_search = |search: usize| -> Vec<(Draw, LeftOut)> {
            let numbered = draws.iter().enumerate().skip(search * each).take(each);
            numbered.map(|(number, draw)| (*draw, LeftOut::in_turn(number))).collect()
        };
        let with_curve = |share: f64| {
            let mut combined: Option<Combined> = None;
            for search in 0..searches {
                let draws = of_search(search);
                let of = PerKey::new(workload, (common, share), problem, settings, &draws, self.stop);
                let Some(per_key) = of else { break };
                let iterations = options.per_key_iterations.min(affordable(per_key.cost()) / effort.starts);
                let schedule = Schedule {
                    hot: HOT_PER_KEY,
                    step_hot: STEP_PER_KEY,
                    iterations,
                    stall: iterations.max(1),
                };
                self.watch.begin(Stage::PerKey, effort.starts * (iterations + 1));
                let done = || self.watch.evaluated(None);
                let seed = stream(options.seed, PER_KEY_STREAM + search as u64);
                let best = per_key.search((effort.starts, schedule), seed, self.stop, &done);
                if self.stop.is_interrupted() {
                    break;
                }
                if let Some(best) = best {
                    combined.get_or_insert_with(|| Combined::new(&per_key)).add(&per_key, &best);
                }
            }
            combined?.found()
        };
        let constants = with_curve(0.0);
        if !effort.curves {
            return constants;
        }
        let beside = CURVE_SHARES.into_iter().filter_map(with_curve);
        let beside = beside.min_by(|a, b| a.minimised.total_cmp(&b.minimised));
        let most = constants.as_ref().map_or(f64::INFINITY, |constants| CURVE_GAIN * constants.minimised);
        beside.filter(|beside| beside.minimised < most).or(constants)
    }

    /// Uses probabilities of single keys if they are better on blocks of time that they were not
    /// tuned on.
    pub(super) fn use_single_keys(&self, train: &Workload, target: &Target, tuning: &mut Tuning) {
        if train.traces_by_key().into_iter().filter(|&traces| traces > 0).count() < 2 {
            let is_asked = self.options.per_key == PerKeyUse::Always || self.options.min_kept.is_some();
            tuning.warnings.extend(is_asked.then(|| ONE_KEY.to_owned()));
            return;
        }
        let loop_share = per_key::loop_share(train);
        // If common parameters cannot meet the limits, there is nothing to compare with.
        let decides = self.options.per_key == PerKeyUse::Auto && tuning.feasible;
        if self.options.per_key == PerKeyUse::Auto {
            let keys = train.keys().len();
            if keys > KEYS_TRIED_MAX {
                tuning.warnings.push(format!(
                    "--per-key: not tried, because {keys} keys are too many; fold ids in names (--fold), or use a key with \
                     fewer values"
                ));
                return;
            }
            // Half of the time says little about a loop: its first calls are in one half only.
            if decides && loop_share.is_none() {
                match self.try_single_keys(train, target) {
                    Some((trial, later)) => (tuning.per_key_trial, tuning.later) = (Some(trial), later),
                    None => {
                        let half = ("in the half of the recording used for the trial, ", 0.5);
                        tuning.warnings.extend(self.nothing_found(train, half));
                    }
                }
                if !tuning.per_key_trial.is_some_and(|trial| trial.better) {
                    return;
                }
            }
        }
        let effort = if loop_share.is_some() { Effort::LOOP } else { Effort::FULL };
        let Some(found) = self.single_keys(train, &tuning.parameters, target, effort) else {
            // The halves were judged with probabilities of single keys.
            tuning.later = None;
            tuning.warnings.extend(self.nothing_found(train, ("", 1.0)));
            return;
        };
        let roots: Vec<_> = named(train, &found).collect();
        let Some(roots) = with_needed_minima(train, &tuning.parameters, roots, self.stop) else { return };
        if let Some(share) = loop_share.filter(|_| decides) {
            let draws = self.trial_draws(train);
            let trial = |roots| self.trial((train, target), (&tuning.parameters, roots), &draws);
            let (Some((_, common)), Some((_, single))) = (trial(&[]), trial(&roots)) else { return };
            if !is_better(&[(common, single)]) {
                tuning.warnings.push(format!(
                    "--per-key: not used, because one key has {:.0} % of the bytes. In such a loop the first calls matter, \
                     and a probability for each key is {:.2} times worse",
                    share * 1e2,
                    single / common
                ));
                return;
            }
        }
        if let Some(reason) = tuning.infeasible.take() {
            tuning.feasible = true;
            tuning.warnings.push(format!(
                "the common parameters, used for keys that the file does not name, alone do not meet the limits: {reason}"
            ));
        }
        tuning.evaluations += found.evaluations;
        tuning.min_kept = Some(found.min_kept);
        tuning.per_root = roots;
    }

    /// The sampler that tuning on another workload finds. It includes probabilities of single keys
    /// if the sampler that it is compared with has them; these may meet limits that common
    /// parameters alone do not. `None` if nothing does, or if asked to stop.
    pub(super) fn tuned_there(
        &self,
        has_single_keys: bool,
        other: &Workload,
        target: &Target,
    ) -> Option<Config> {
        let common = self.common(other, target, (STARTS_COMPARED, false), Clock::Calls)?;
        let single =
            has_single_keys.then(|| self.single_keys(other, &common.parameters, target, Effort::FULL));
        let roots: Vec<_> = single.flatten().iter().flat_map(|found| named(other, found)).collect();
        let is_feasible = common.infeasible.is_none() || !roots.is_empty();
        if is_feasible { config(&common.parameters, &roots).ok() } else { None }
    }

    /// The reason why nothing was found, if single keys were requested. `on` and `share` describe
    /// the part of the traces searched. `None` if interrupted, which is reported elsewhere.
    fn nothing_found(&self, train: &Workload, (on, share): (&str, f64)) -> Option<String> {
        let options = self.options;
        let is_asked = options.per_key == PerKeyUse::Always || options.min_kept.is_some();
        if !is_asked || self.stop.is_interrupted() {
            return None;
        }
        if self.stop.is_asked() {
            return Some("--per-key: not used, because the time ran out".to_owned());
        }
        let too_many = |min_kept: &f64| per_key::is_too_much(train, (*min_kept, share), options.limits);
        Some(match options.min_kept.filter(too_many) {
            Some(min_kept) => format!(
                "--per-key: not used, because {on}{min_kept} traces kept of each key exceed the limits; choose a \
                 smaller --min-kept"
            ),
            None => format!(
                "--per-key: not used, because {on}no probabilities meet the limits; allow a wider range of sizes"
            ),
        })
    }

    pub(super) fn trial_draws(&self, workload: &Workload) -> Vec<Draw> {
        let replays = trial_replays(workload, TRIAL_REPLAYS as u64) as usize;
        self.watch.begin(Stage::Replaying, 2 * replays as u64);
        Draw::unseen(replays, stream(self.options.seed, PER_KEY_STREAM), self.options.random)
    }

    /// Replays parameters. The value is that of the objective, relative to an equal share of the
    /// same size.
    pub(super) fn trial(
        &self,
        (workload, target): (&Workload, &Target),
        (common, roots): (&Parameters, &[RootParameters]),
        draws: &[Draw],
    ) -> Option<(Replayed, f64)> {
        let config = config(common, roots).ok()?;
        let replayed =
            Replayed::by_chances(workload, &config.into(), draws, self.stop, &|| self.watch.evaluated(None))?;
        let value = replayed.beside_share(workload, target, self.options.random, self.stop)?;
        Some((replayed, value))
    }
}

/// Whether probabilities of single keys are better, or worse by at most a tenth, in the geometric
/// mean of trials. Each trial has the value with common parameters, then the value with single
/// keys.
pub(super) fn is_better(trials: &[(f64, f64)]) -> bool {
    let product = |of: fn(&(f64, f64)) -> f64| trials.iter().map(of).product::<f64>();
    let tolerance = TRIAL_TOLERANCE.powi(trials.len() as i32);
    let single = product(|trial| trial.1);
    single.is_finite() && single <= tolerance * product(|trial| trial.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_worse_in_the_mean_is_still_better() {
        assert!(is_better(&[(1.0, 1.1)]) && !is_better(&[(1.0, 1.11)]));
        assert!(is_better(&[(1.0, 2.0), (2.0, 1.2)]) && !is_better(&[(1.0, 2.0), (2.0, 1.22)]));
        // All call trees were found in both cases.
        assert!(is_better(&[(0.0, 0.0)]) && !is_better(&[(0.0, 0.1)]));
        assert!(!is_better(&[(1.0, f64::INFINITY)]) && is_better(&[(f64::INFINITY, 1.0)]));
        assert!(!is_better(&[(1.0, f64::NAN)]));
    }
}
