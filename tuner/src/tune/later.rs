//! Tries a result on time that it did not see: tuned on each half, judged on the other one.
//!
//! A search's own figure is of the traffic that it was tuned on. If tomorrow's keys, or their
//! durations, are others, probabilities by key may be no better than an equal share. So the same
//! search runs on each half of the time, and its result is replayed on the other half beside an
//! equal share. Two things are chosen there: whether keys get their own probabilities, and whether
//! to use the result at all.

use std::borrow::Cow;

use serde::Serialize;

use super::check::trial_replays;
use super::roots::{bounded, named};
use super::single_keys::{Effort, is_better};
use super::{Common, PerKeyTrial, RootParameters, Run, Stage, config, stream};
use crate::bootstrap;
use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::half_life::Clock;
use crate::held_out::{HeldOut, Replayed};
use crate::objective::{Objective, Target};
use crate::statistics::{Distribution, MeanSd};
use crate::stop::Stop;
use crate::workload::Workload;

/// A result is worth its file if its figure on the halves is at most this share of an equal
/// share's.
pub(super) const WORTH: f64 = 0.9;
/// With fewer traces, half of the time says nothing.
pub(super) const TRACES_MIN: usize = 400;
/// If the first half of the time has a smaller or larger share of the traces, the traces are halved
/// instead.
const BALANCED: std::ops::RangeInclusive<f64> = 0.3..=0.7;
pub(super) const REPLAYS: u64 = 24;
/// Each half consists of evenly spaced stretches if it has more traces.
const HALF_MAX: usize = 150_000;
pub(super) const LATER_STREAM: u64 = 1 << 35;
/// Standard errors to either side of a 95 % interval.
const ERRORS: f64 = 1.96;

/// The standard deviation of the ratio's logarithm over the traffic that was tuned on: the file's
/// parameters come from twice as much as those tried here. Chosen so that nine in ten ratios on
/// traffic that follows are within the interval (docs/results/adaptive.md).
const TUNED: f64 = 0.2;

/// The result of tuning on each half, on the other half.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Later {
    /// dist/entropy as a share of that of an equal share of the same size, by weights: the value
    /// that decides. As counted if decisions have no weights. The geometric mean over the halves.
    pub ratio: f64,
    /// An interval for the ratio on other traffic of this length (95 %): over draws, over which
    /// blocks of time a recording consists of, once for the halves and once for the other traffic,
    /// and over the halves if they differ by more than that.
    pub interval: [f64; 2],
    /// The same from plain means, as counted.
    pub ratio_as_counted: f64,
    /// The replays on the later half and on the first one.
    pub there: Vec<HeldOut>,
}

/// The ratio on one half.
struct OnHalf {
    ratio: f64,
    ratio_as_counted: f64,
    /// The standard error of the ratio's logarithm over draws.
    error: f64,
}

impl OnHalf {
    fn new(there: &HeldOut) -> Option<Self> {
        let (found, share) = (there.replayed, there.replayed_share?.dist_over_entropy);
        let by_weights = found.by_weights();
        let error = |of: &Distribution| (of.mean_interval[1] / of.mean - 1.0) / ERRORS;
        let ratio = by_weights.mean / share.mean;
        ratio.is_finite().then(|| Self {
            ratio,
            ratio_as_counted: found.dist_over_entropy.mean / share.mean,
            error: error(&by_weights).hypot(error(&share)),
        })
    }
}

impl Later {
    /// Each half comes with the standard deviation of its ratio's logarithm over drawn recordings.
    pub(super) fn new(halves: Vec<(HeldOut, f64)>) -> Option<Self> {
        let on: Vec<OnHalf> = halves.iter().map(|(there, _)| OnHalf::new(there)).collect::<Option<_>>()?;
        let number = on.len() as f64;
        let mean = |of: &dyn Fn(usize) -> f64| (0..on.len()).map(of).sum::<f64>() / number;
        let logarithms = MeanSd::of(on.iter().map(|half| half.ratio.ln()));
        // Each half is one recording of its traffic, and the traffic to come is another one.
        let other = mean(&|half| halves[half].1.powi(2));
        let expected = (mean(&|half| on[half].error.powi(2)) + other) / number;
        // The variance of a sample's mean; `sd` divides by the number.
        let seen = if on.len() > 1 { logarithms.sd.powi(2) / (number - 1.0) } else { 0.0 };
        let off = (ERRORS * (expected.max(seen) + other + TUNED * TUNED).sqrt()).exp();
        let ratio = logarithms.mean.exp();
        ratio.is_finite().then(|| Self {
            ratio,
            interval: [ratio / off, ratio * off],
            ratio_as_counted: mean(&|half| on[half].ratio_as_counted.ln()).exp(),
            there: halves.into_iter().map(|(there, _)| there).collect(),
        })
    }

    /// Whether the parameters are at least 10 % better than an equal share, by the mean.
    pub fn is_worth_it(&self) -> bool {
        self.ratio <= WORTH
    }

    /// Whether the whole interval lies above what is worth a file.
    pub fn is_clearly_not(&self) -> bool {
        self.interval[0] > WORTH
    }

    /// A warning for people if the parameters may not be worth it. `is_replaced` is whether an
    /// equal share is used instead.
    pub(super) fn warning(&self, is_replaced: bool) -> Option<String> {
        let [low, high] = self.interval;
        let figure = format!(
            "tuned on each half, dist/entropy by weights on the other half is {:.2} of an equal share's ({low:.2} to \
             {high:.2})",
            self.ratio
        );
        let size = MeanSd::of(self.there.iter().map(|there| there.replayed.tfcr.mean)).mean;
        match (is_replaced, self.is_clearly_not()) {
            (true, _) => {
                Some(format!("{figure}, not 10 % better: an equal share (ratio) is used; try another --key"))
            }
            (false, true) => {
                Some(format!("{figure}, not 10 % better: use ratio:{size:.2}, or another --key"))
            }
            (false, false) if !self.is_worth_it() => Some(format!(
                "{figure}, so it may be better or worse than one: --or-equal writes an equal share instead"
            )),
            (false, false) => None,
        }
    }
}

/// A result on a half, with its spread over drawn recordings, for which half of the draws suffice.
pub(super) fn with_spread(
    workload: &Workload,
    sampler: &Candidate,
    there: HeldOut,
    draws: &[Draw],
    stop: Stop<'_>,
) -> (HeldOut, f64) {
    let spread = spread(workload, sampler, &there, &draws[..draws.len().div_ceil(2)], stop);
    (there, spread.unwrap_or(0.0))
}

/// The standard deviation, over recordings drawn from the blocks of a workload, of the logarithm of
/// a result's ratio to an equal share.
fn spread(
    workload: &Workload,
    sampler: &Candidate,
    there: &HeldOut,
    draws: &[Draw],
    stop: Stop<'_>,
) -> Option<f64> {
    let share = Candidate::equal_share(there.replayed.tfcr.mean)?;
    bootstrap::spread_of_ratio(workload, [sampler, &share], draws, stop)
}

/// The first half of the time and the rest; of the traces if they are too uneven. `None` if asked
/// to stop.
pub(super) fn halves(workload: &Workload, stop: Stop<'_>) -> Option<[Workload; 2]> {
    let all = workload.arrivals().len();
    let (first, rest) = workload.split(0.5, stop)?;
    let (first, rest) = match BALANCED.contains(&(first.arrivals().len() as f64 / all as f64)) {
        true => (first, rest),
        false => (workload.part(0..all / 2, stop)?, workload.part(all / 2..all, stop)?),
    };
    let thinned = |half: Workload| half.thinned(HALF_MAX, stop).map(Cow::into_owned);
    Some([thinned(first)?, thinned(rest)?])
}

/// A half to replay, and what tuning on the other half found.
struct Half<'w> {
    name: &'static str,
    workload: &'w Workload,
    draws: Vec<Draw>,
    common: Common,
    target: Target,
    single: Option<Vec<RootParameters>>,
    /// The half that was tuned on.
    tuned_on: &'w Workload,
}

/// A sampler on a half that it was not tuned on.
struct Tried {
    sampler: Candidate,
    there: HeldOut,
}

impl Run<'_> {
    /// Tunes on each half, with or without single keys, and replays the result on the other half.
    /// `None` for small recordings, if nothing is within the limits, or if asked to stop.
    pub(super) fn try_later(&self, train: &Workload, has_single_keys: bool, clock: Clock) -> Option<Later> {
        if !self.has_later(train) {
            return None;
        }
        let halves = halves(train, self.stop)?;
        let halves = self.tuned_on_halves(&halves, has_single_keys, clock)?;
        self.later(&halves, |half| match has_single_keys {
            true => self.on(half, half.single.as_ref()?),
            false if half.common.infeasible.is_some() => None,
            false => self.on(half, &[]),
        })
    }

    fn has_later(&self, train: &Workload) -> bool {
        let options = self.options;
        options.replays > 0 && options.split.is_none() && train.arrivals().len() >= TRACES_MIN
    }

    /// Tunes common parameters and probabilities of single keys on each half, and replays both on
    /// the other half. Returns which are better, and the replays of these. `None` if either was not
    /// found, or if asked to stop.
    pub(super) fn try_single_keys(
        &self,
        train: &Workload,
        target: &Target,
    ) -> Option<(PerKeyTrial, Option<Later>)> {
        let halves = halves(train, self.stop)?;
        let halves = self.tuned_on_halves(&halves, true, Clock::Calls)?;
        let mut tried = Vec::new();
        for half in &halves {
            tried.push([self.on(half, &[])?, self.on(half, half.single.as_ref()?)?]);
        }
        let value = |half: &Half<'_>, tried: &Tried| self.value(half, &tried.there.replayed, target);
        let mut values = Vec::new();
        for (half, [common, single]) in halves.iter().zip(&tried) {
            values.push((value(half, common)?, value(half, single)?));
        }
        let better = is_better(&values);
        let [[there_common, there_single], [back_common, back_single]] =
            <[[Tried; 2]; 2]>::try_from(tried).ok()?;
        let trial = PerKeyTrial {
            common: [there_common.there.replayed, back_common.there.replayed],
            per_key: [there_single.there.replayed, back_single.there.replayed],
            common_values: [values[0].0, values[1].0],
            per_key_values: [values[0].1, values[1].1],
            better,
        };
        let mut used = match better {
            true => [there_single, back_single],
            false => [there_common, back_common],
        }
        .into_iter();
        let later = match self.has_later(train) {
            true => self.later(&halves, |_| used.next()),
            false => None,
        };
        Some((trial, later))
    }

    /// The objective beside an equal share of the same size. dist/entropy is the geometric mean of
    /// that by weights and as counted: the first is printed for these halves, the second for the
    /// whole.
    fn value(&self, half: &Half<'_>, replayed: &Replayed, target: &Target) -> Option<f64> {
        let value = replayed.beside_share(half.workload, target, self.options.random, self.stop)?;
        let counted = replayed.dist_over_entropy.mean;
        let by_weights =
            replayed.dist_over_entropy_weighted.filter(|_| self.options.objective == Objective::paper());
        Some(by_weights.map_or(value, |weighted| value * (weighted.mean / counted).sqrt()))
    }

    /// Tunes on each half; the later half is judged first.
    fn tuned_on_halves<'w>(
        &self,
        [first, rest]: &'w [Workload; 2],
        has_single_keys: bool,
        clock: Clock,
    ) -> Option<[Half<'w>; 2]> {
        let tuned = |name, tuned_on: &'w Workload, workload: &'w Workload| {
            let target = self.target(tuned_on)?;
            let common = self.common(tuned_on, &target, (1, false), clock)?;
            let found = match has_single_keys {
                true => self.single_keys(tuned_on, &common.parameters, &target, Effort::FULL),
                false => None,
            };
            let single = found.map(|found| named(tuned_on, &found).collect());
            let replays = trial_replays(workload, REPLAYS.min(self.options.replays.max(1)));
            let seed = stream(self.options.seed, LATER_STREAM);
            let draws = Draw::unseen(replays as usize, seed, self.options.random);
            Some(Half { name, workload, draws, common, target, single, tuned_on })
        };
        Some([tuned("the later half", first, rest)?, tuned("the first half", rest, first)?])
    }

    /// Replays what was found on the other half, with these keys. `None` if asked to stop.
    fn on(&self, half: &Half<'_>, roots: &[RootParameters]) -> Option<Tried> {
        self.watch.begin(Stage::Replaying, 1);
        let parameters = &half.common.parameters;
        let bounded = bounded(half.tuned_on, parameters, roots, half.target.baseline.tfcr);
        let sampler = config(parameters, roots.iter().chain(&bounded)).ok()?.into();
        let there = HeldOut::new(half.name, half.workload, &sampler, None, &half.draws, self.stop)?;
        Some(Tried { sampler, there })
    }

    fn later<'w>(
        &self,
        halves: &[Half<'w>; 2],
        mut on: impl FnMut(&Half<'w>) -> Option<Tried>,
    ) -> Option<Later> {
        let judged = halves.iter().map(|half| {
            let Tried { sampler, there } = on(half)?;
            Some(with_spread(half.workload, &sampler, there, &half.draws, self.stop))
        });
        Later::new(judged.collect::<Option<_>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic;

    fn replayed(workload: &Workload, text: &str) -> HeldOut {
        let config: astracer_samplers::Config = text.parse().expect("a sampler");
        let draws = Draw::unseen(24, 1, astracer_samplers::RandomSource::Stratified);
        HeldOut::new("there", workload, &config.into(), None, &draws, Stop::never()).expect("not stopped")
    }

    /// An equal share is as good as itself, so it is not worth a file.
    #[test]
    fn an_equal_share_has_the_ratio_one() {
        let workload = synthetic(2000, 1);
        let later = Later::new(vec![(replayed(&workload, "ratio:0.1"), 0.0)]).expect("finite");
        assert!((later.ratio_as_counted - 1.0).abs() < 0.1, "{later:?}");
        assert!(later.interval[0] < 1.0 && later.interval[1] > 1.0, "{:?}", later.interval);
        // By hand: with a spread of 0.3, exp(1.96 * sqrt(2 * 0.3^2 + 0.2^2)) = 2.508 to either
        // side, and a little more for the draws.
        let wide = Later::new(vec![(replayed(&workload, "ratio:0.1"), 0.3)]).expect("finite");
        let off = wide.interval[1] / wide.ratio;
        assert!(off > 2.50 && off < 2.7 && (wide.ratio / wide.interval[0] / off - 1.0).abs() < 1e-9, "{off}");
        assert!(!later.is_worth_it());
        assert!(later.warning(true).expect("a warning").contains("(ratio) is used"));
        // The interval reaches below 0.9, so nothing is clear, until it no longer does.
        assert!(!later.is_clearly_not() && wide.interval[0] < later.interval[0]);
        assert!(later.warning(false).expect("a warning").contains("--or-equal writes an equal share"));
        let clear = Later { interval: [0.91, 1.2], ..later.clone() };
        assert!(clear.is_clearly_not());
        assert!(clear.warning(false).expect("a warning").contains("use ratio:0.10"));
        let better = Later { ratio: 0.8, interval: [0.7, 0.9], ..later };
        assert_eq!((better.is_worth_it(), better.warning(false)), (true, None));
    }

    /// By hand: ratios r and 4 r have the geometric mean 2 r. The standard deviation of their
    /// logarithms as a sample is ln 4 / sqrt(2), so that of the mean is ln 4 / 2 = 0.693; with 0.2
    /// of the tuned part, exp(1.96 * sqrt(0.693^2 + 0.2^2)) = 4.113.
    #[test]
    fn halves_that_differ_widen_the_interval() {
        let workload = synthetic(2000, 1);
        let half = |times: f64| {
            let mut there = replayed(&workload, "ratio:0.1");
            let weighted = there.replayed.dist_over_entropy_weighted.as_mut().expect("weights");
            weighted.mean *= times;
            weighted.mean_interval = weighted.mean_interval.map(|end| end * times);
            (there, 0.0)
        };
        let one = Later::new(vec![half(1.0)]).expect("finite");
        let both = Later::new(vec![half(1.0), half(4.0)]).expect("finite");
        assert!((both.ratio / one.ratio - 2.0).abs() < 1e-9, "{both:?}");
        assert!((both.interval[1] / both.ratio - 4.113).abs() < 0.001, "{:?}", both.interval);
        // Equal halves are known better than one.
        let equal = Later::new(vec![half(1.0), half(1.0)]).expect("finite");
        assert!(equal.interval[1] < one.interval[1] && equal.interval[0] > one.interval[0]);
    }

    #[test]
    fn halves_are_of_time_or_of_traces() {
        let workload = synthetic(2000, 1);
        let [first, rest] = halves(&workload, Stop::never()).expect("not stopped");
        assert_eq!(first.arrivals().len() + rest.arrivals().len(), 2000);
        let middle = workload.arrivals()[1999].at_ns / 2;
        assert_eq!(first.arrivals().len(), workload.arrivals().partition_point(|one| one.at_ns < middle));
        let late: Vec<(u64, u32)> = (0..2000).map(|n| (u64::from(n).pow(4), n)).collect();
        let late = workload.arranged(&late, Stop::never()).expect("not stopped");
        assert_eq!(halves(&late, Stop::never()).expect("not stopped")[0].arrivals().len(), 1000);
    }
}
