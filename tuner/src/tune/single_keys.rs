//! The stage that gives keys probabilities of their own, where they are better.

use super::{PerKeyTrial, PerKeyUse, RootParameters, Run, Stage, Tuning, affordable, config, stream};
use crate::anneal::Schedule;
use crate::blocks;
use crate::draw::Draw;
use crate::held_out::Replayed;
use crate::objective::Target;
use crate::per_key::{self, PerKey};
use crate::space::Parameters;
use crate::workload::Workload;

/// Annealing over single keys begins here.
const HOT_PER_KEY: f64 = 0.1;
const STEP_PER_KEY: f64 = 0.15;
const STARTS_PER_KEY: u64 = 4;
/// Curves below probabilities of single keys, each with lambda as a share of the common parameters'. They are tried where
/// one key is a loop: elsewhere they gained nothing on draws that the search did not see.
const CURVE_SHARES: [f64; 2] = [0.3, 1.0];
/// A curve is used if it makes the objective smaller than this share of what constants have: it needs counts, and hangs on
/// the order of calls.
const CURVE_GAIN: f64 = 0.9;
/// The stream of random numbers of these searches.
const PER_KEY_STREAM: u64 = 1 << 34;
/// Draws that probabilities of single keys are scored on. These are runs of chance, so there are more of them than of
/// draws for common parameters, whose scores are means over chance already.
const DRAWS_PER_KEY: usize = 48;
/// With more keys a probability for each is not tried, nor other keys, which are as many or more: most of them hardly
/// occur.
pub const KEYS_TRIED_MAX: usize = 10_000;
/// Replays on each side when single keys are tried.
const TRIAL_REPLAYS: usize = 24;
/// Probabilities of single keys are used although common parameters have a value up to this much better: their figure
/// does not hang on windows or on the order of calls, and counts by weights err much less.
const TRIAL_TOLERANCE: f64 = 1.1;
const TRIAL_STARTS: u32 = 1;

impl Run<'_> {
    /// Searches for a probability for each key, beside common parameters for keys that come later.
    fn single_keys<'t>(
        &'t self,
        workload: &Workload,
        common: &Parameters,
        target: &'t Target,
        (starts, curves): (u64, bool),
    ) -> Option<(per_key::Found, PerKey<'t>)> {
        let options = self.options;
        let settings = (options.min_kept, options.objective.extras());
        let draws = Draw::seen(DRAWS_PER_KEY, options.seed, options.random);
        let problem = (options.limits, target);
        let with_curve = |share: f64| {
            let per_key = PerKey::new(workload, (common, share), problem, settings, &draws, self.stop)?;
            let iterations = options.per_key_iterations.min(affordable(per_key.cost()) / starts);
            let schedule =
                Schedule { hot: HOT_PER_KEY, step_hot: STEP_PER_KEY, iterations, stall: iterations.max(1) };
            self.watch.begin(Stage::PerKey, starts * (iterations + 1));
            let done = || self.watch.evaluated(None);
            let seed = stream(options.seed, PER_KEY_STREAM);
            let found = per_key.search((starts, schedule), seed, self.stop, &done)?;
            Some((found, per_key))
        };
        let mut best = with_curve(0.0);
        if curves {
            for share in CURVE_SHARES {
                let Some(beside) = with_curve(share) else { continue };
                let better = |(best, _): &(per_key::Found, _)| beside.0.value < CURVE_GAIN * best.value;
                if best.as_ref().is_none_or(better) {
                    best = Some(beside);
                }
            }
        }
        best
    }

    /// Uses probabilities of single keys where they are better on blocks of time that they were not tuned on.
    pub(super) fn use_single_keys(&self, train: &Workload, target: &Target, tuning: &mut Tuning) {
        let loop_share = per_key::loop_share(train);
        if self.options.per_key == PerKeyUse::Auto {
            let keys = train.keys().len();
            if keys > KEYS_TRIED_MAX {
                tuning.warnings.push(format!(
                    "single keys: not tried, {keys} keys are too many to have probabilities of their own; fold ids out of \
                     names, or use a key that takes fewer values"
                ));
                return;
            }
            // Halves of a loop's time say little: its first calls are in one of them.
            if loop_share.is_none() {
                tuning.per_key_trial = self.try_single_keys(train);
                if !tuning.per_key_trial.is_some_and(|trial| trial.better) {
                    return;
                }
            }
        }
        let starts = (STARTS_PER_KEY, loop_share.is_some());
        let Some((found, per_key)) = self.single_keys(train, &tuning.parameters, target, starts) else {
            return;
        };
        if let Some(share) = loop_share.filter(|_| self.options.per_key == PerKeyUse::Auto) {
            // Samples leave out a block of time, which alone makes the distance larger.
            let whole = found.value * blocks::shortened();
            if whole > TRIAL_TOLERANCE * tuning.value {
                tuning.warnings.push(format!(
                    "single keys: not used, one key has {:.0} % of the bytes: in such a loop the first calls matter, and \
                     with a probability for each key dist/entropy is {whole:.3}, not {:.3}",
                    share * 1e2,
                    tuning.value
                ));
                return;
            }
        }
        tuning.evaluations += found.evaluations;
        tuning.value = found.value;
        tuning.min_kept = Some(per_key.min_kept);
        tuning.per_root = named(train, &found).collect();
    }

    /// Both tuned on every other block and replayed on the blocks between, and the other way round.
    fn try_single_keys(&self, train: &Workload) -> Option<PerKeyTrial> {
        let half = |remainder: usize| blocks::select(train, |block| block % 2 == remainder, self.stop);
        let (even, odd) = (half(0)?, half(1)?);
        let there = self.try_single_keys_on(&even, &odd)?;
        let back = self.try_single_keys_on(&odd, &even)?;
        // A sample of half the size is farther from the whole by the root of 2.
        let at_equal_size = |replayed: &Replayed| replayed.dist_over_entropy.mean * replayed.tfcr.mean.sqrt();
        let ratio = |(common, per_key): &(Replayed, Replayed)| at_equal_size(per_key) / at_equal_size(common);
        let better = (ratio(&there) * ratio(&back)).sqrt() < TRIAL_TOLERANCE;
        Some(PerKeyTrial { common: [there.0, back.0], per_key: [there.1, back.1], better })
    }

    /// Common parameters and probabilities of single keys, tuned on one part and replayed on another.
    fn try_single_keys_on(&self, first: &Workload, rest: &Workload) -> Option<(Replayed, Replayed)> {
        let target = self.target(first)?;
        let common = self.common(first, &target, TRIAL_STARTS, false)?;
        if common.infeasible.is_some() {
            return None;
        }
        let (found, _) = self.single_keys(first, &common.parameters, &target, (1, false))?;
        let roots: Vec<_> = named(first, &found).collect();
        let draws =
            Draw::unseen(TRIAL_REPLAYS, stream(self.options.seed, PER_KEY_STREAM), self.options.random);
        self.watch.begin(Stage::Replaying, 2 * TRIAL_REPLAYS as u64);
        let replay = |roots: &[RootParameters]| {
            let config = config(&common.parameters, roots).ok()?;
            Replayed::new(rest, &config.into(), &draws, self.stop, &|| self.watch.evaluated(None))
        };
        Some((replay(&[])?, replay(&roots)?))
    }
}

fn named<'w>(
    workload: &'w Workload,
    found: &'w per_key::Found,
) -> impl Iterator<Item = RootParameters> + use<'w> {
    let names: Vec<&str> = workload.keys().names().collect();
    found.keys.iter().map(move |&(key, parameters)| RootParameters { key: names[key].to_owned(), parameters })
}
