//! Tries a result on time that it did not see: tuned on the first half, judged on the later one.
//!
//! A search's own figure is of the traffic that it was tuned on. If tomorrow's keys, or their
//! durations, are others, probabilities by key may be no better than an equal share. So the same
//! search runs on the first half of the time, and its result is replayed on the later half beside
//! an equal share. Nothing is chosen there except whether to use the result at all.

use std::borrow::Cow;

use astracer_samplers::{Config, Probability, Ratio};
use serde::Serialize;

use super::check::trial_replays;
use super::roots::{bounded, named};
use super::single_keys::Effort;
use super::{Run, Stage, config, stream};
use crate::bootstrap;
use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::held_out::HeldOut;
use crate::statistics::Distribution;
use crate::stop::Stop;
use crate::workload::Workload;

/// A result is worth its file if its figure on the later half is at most this share of an equal
/// share's.
const WORTH: f64 = 0.9;
/// With fewer traces, half of the time says nothing.
const TRACES_MIN: usize = 400;
/// If the first half of the time has a smaller or larger share of the traces, the traces are halved
/// instead.
const BALANCED: std::ops::RangeInclusive<f64> = 0.3..=0.7;
const REPLAYS: u64 = 24;
/// Each half consists of evenly spaced stretches if it has more traces.
const HALF_MAX: usize = 300_000;
const LATER_STREAM: u64 = 1 << 35;
/// Standard errors to either side of a 95 % interval.
const ERRORS: f64 = 1.96;

/// The standard deviation of the ratio's logarithm over the traffic that was tuned on: the file's
/// parameters come from twice as much as those tried here. Chosen so that nine in ten ratios on
/// traffic that follows are within the interval (docs/results/adaptive.md).
const TUNED: f64 = 0.2;

/// The result of tuning on the first half, on the later half.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Later {
    /// dist/entropy as a share of that of an equal share of the same size, by weights: the value
    /// that decides. As counted if decisions have no weights.
    pub ratio: f64,
    /// An interval for the ratio on other traffic of this length (95 %): over draws and over which
    /// blocks of time a recording consists of, once for the later half and once for the other
    /// traffic.
    pub interval: [f64; 2],
    /// The same from plain means, as counted.
    pub ratio_as_counted: f64,
    /// The replays on the later half.
    pub there: HeldOut,
}

impl Later {
    /// `spread` is the standard deviation of the ratio's logarithm over drawn recordings.
    fn new(there: HeldOut, spread: f64) -> Option<Self> {
        let (found, share) = (there.replayed, there.replayed_share?.dist_over_entropy);
        let by_weights = found.dist_over_entropy_weighted.unwrap_or(found.dist_over_entropy);
        let ratio = by_weights.mean / share.mean;
        let error = |of: &Distribution| (of.mean_interval[1] / of.mean - 1.0) / ERRORS;
        let error = error(&by_weights).hypot(error(&share));
        // This half is one recording of its traffic, and the traffic to come is another one.
        let off = (ERRORS * error.hypot(spread * 2.0f64.sqrt()).hypot(TUNED)).exp();
        let ratio_as_counted = found.dist_over_entropy.mean / share.mean;
        ratio.is_finite().then_some(Self {
            ratio,
            interval: [ratio / off, ratio * off],
            ratio_as_counted,
            there,
        })
    }

    /// Whether the parameters are at least 10 % better than an equal share.
    pub fn is_worth_it(&self) -> bool {
        self.ratio <= WORTH
    }

    /// A warning for people if the parameters are not worth it. `is_replaced` is whether an equal
    /// share is used instead.
    pub(super) fn warning(&self, is_replaced: bool) -> Option<String> {
        (!self.is_worth_it()).then(|| {
            let share = self.there.replayed.tfcr.mean;
            let advice = match is_replaced {
                true => "an equal share (ratio) is used; try another --key".to_owned(),
                false => format!("use ratio:{share:.2}, or another --key"),
            };
            format!(
                "tuned on the first half, dist/entropy by weights on the later half is {:.2} of an equal share's, not 10 % \
                 better: {advice}",
                self.ratio
            )
        })
    }
}

/// The standard deviation, over recordings drawn from the blocks of a workload, of the logarithm of
/// a result's ratio to an equal share.
fn spread(
    workload: &Workload,
    config: &Config,
    there: &HeldOut,
    draws: &[Draw],
    stop: Stop<'_>,
) -> Option<f64> {
    let share = Probability::new(there.replayed.tfcr.mean.clamp(0.0, 1.0))?;
    let share = Candidate::from(Config::from(Ratio::new(share).ok()?));
    bootstrap::spread_of_ratio(workload, [&config.clone().into(), &share], draws, stop)
}

/// The first half of the time and the rest; of the traces if they are too uneven. `None` if asked
/// to stop.
fn halves(workload: &Workload, stop: Stop<'_>) -> Option<(Workload, Workload)> {
    let all = workload.arrivals().len();
    let (first, rest) = workload.split(0.5, stop)?;
    if BALANCED.contains(&(first.arrivals().len() as f64 / all as f64)) {
        return Some((first, rest));
    }
    Some((workload.part(0..all / 2, stop)?, workload.part(all / 2..all, stop)?))
}

impl Run<'_> {
    /// Tunes on the first half, with or without single keys, and replays the result on the later
    /// half. `None` for small recordings, if nothing is within the limits, or if asked to stop.
    pub(super) fn try_later(&self, train: &Workload, has_single_keys: bool) -> Option<Later> {
        let options = self.options;
        if options.replays == 0 || options.split.is_some() || train.arrivals().len() < TRACES_MIN {
            return None;
        }
        let (first, rest) = halves(train, self.stop)?;
        let thinned = |half: Workload| half.thinned(HALF_MAX, self.stop).map(Cow::into_owned);
        let (first, rest) = (thinned(first)?, thinned(rest)?);
        let target = self.target(&first)?;
        let common = self.common(&first, &target, 1, false)?;
        let parameters = &common.parameters;
        let roots: Vec<_> = match has_single_keys {
            true => named(&first, &self.single_keys(&first, parameters, &target, Effort::FULL)?).collect(),
            false if common.infeasible.is_some() => return None,
            false => Vec::new(),
        };
        let replays = trial_replays(&rest, REPLAYS.min(options.replays));
        self.watch.begin(Stage::Replaying, 1);
        let draws = Draw::unseen(replays as usize, stream(options.seed, LATER_STREAM), options.random);
        let bounded = bounded(&first, parameters, &roots, target.baseline.tfcr);
        let config = config(parameters, roots.iter().chain(&bounded)).ok()?;
        let there = HeldOut::new("the later half", &rest, &config, None, &draws, self.stop)?;
        let spread = spread(&rest, &config, &there, &draws, self.stop);
        Later::new(there, spread.unwrap_or(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic;

    fn replayed(workload: &Workload, text: &str) -> HeldOut {
        let config = text.parse().expect("a sampler");
        let draws = Draw::unseen(24, 1, astracer_samplers::RandomSource::Stratified);
        HeldOut::new("there", workload, &config, None, &draws, Stop::never()).expect("not stopped")
    }

    /// An equal share is as good as itself, so it is not worth a file.
    #[test]
    fn an_equal_share_has_the_ratio_one() {
        let workload = synthetic(2000, 1);
        let later = Later::new(replayed(&workload, "ratio:0.1"), 0.0).expect("finite");
        assert!((later.ratio_as_counted - 1.0).abs() < 0.1, "{later:?}");
        assert!(later.interval[0] < 1.0 && later.interval[1] > 1.0, "{:?}", later.interval);
        // By hand: with a spread of 0.3, exp(1.96 * sqrt(2 * 0.3^2 + 0.2^2)) = 2.508 to either
        // side, and a little more for the draws.
        let wide = Later::new(replayed(&workload, "ratio:0.1"), 0.3).expect("finite");
        let off = wide.interval[1] / wide.ratio;
        assert!(off > 2.50 && off < 2.7 && (wide.ratio / wide.interval[0] / off - 1.0).abs() < 1e-9, "{off}");
        assert!(!later.is_worth_it());
        assert!(later.warning(true).expect("a warning").contains("(ratio) is used"));
        assert!(later.warning(false).expect("a warning").contains("use ratio:0.10"));
    }

    #[test]
    fn halves_are_of_time_or_of_traces() {
        let workload = synthetic(2000, 1);
        let (first, rest) = halves(&workload, Stop::never()).expect("not stopped");
        assert_eq!(first.arrivals().len() + rest.arrivals().len(), 2000);
        let middle = workload.arrivals()[1999].at_ns / 2;
        assert_eq!(first.arrivals().len(), workload.arrivals().partition_point(|one| one.at_ns < middle));
        let late: Vec<(u64, u32)> = (0..2000).map(|n| (u64::from(n).pow(4), n)).collect();
        let late = workload.arranged(&late, Stop::never()).expect("not stopped");
        assert_eq!(halves(&late, Stop::never()).expect("not stopped").0.arrivals().len(), 1000);
    }
}
