//! One probability for each key from several searches.
//!
//! A search on few draws finds what suits these, and another finds something else. The geometric
//! mean over searches on different draws transfers better to traffic to come than the best single
//! search. A part of the budget then goes to one probability for all keys, so that a key that
//! becomes important later is not starved.

use super::levels::{LEVELS, OwnKey};
use super::{DecayingCurve, HALVINGS, PerKey};
use crate::limits::{Limits, Scale};
use crate::problem::Evaluated;
use crate::space::{Parameters, round_to_4_digits};

/// The share of the budget at one probability for all keys.
const MIX: f64 = 0.0625;
/// A key of which fewer traces are kept in expectation is not lowered for other keys' sake: a trace
/// that is there once would be missed in a share [`MIX`] of all runs.
const KEPT_FEW: f64 = 40.0;

/// The probabilities found.
#[derive(Debug)]
pub(crate) struct Found {
    /// Keys, each with its parameters.
    pub(crate) keys: Vec<(usize, Parameters)>,
    /// The minimised value: the objective, increased by the error of counts. The geometric mean
    /// over the searches, each on its own sample.
    pub(crate) minimised: f64,
    /// The floor on the expected number of kept traces of each key.
    pub(crate) min_kept: f64,
    pub(crate) evaluations: u64,
}

/// The results of searches over the same keys.
#[derive(Debug)]
pub(crate) struct Combined {
    keys: Vec<Key>,
    curve: DecayingCurve,
    limits: Limits,
    scale: Scale,
    min_kept: f64,
    /// The kept shares of bytes and traces of all other keys, summed over the searches.
    others: (f64, f64),
    searches: f64,
    minimised: f64,
    evaluations: u64,
}

#[derive(Debug)]
struct Key {
    own: OwnKey,
    traces: f64,
    /// The logarithm of the probability, summed over the searches whose samples have the key, and
    /// their number.
    logarithms: (f64, f64),
    /// The kept shares of all bytes and traces at each level, summed over the searches.
    kept: Vec<(f64, f64)>,
}

impl Key {
    fn kept(&self, probability: f64) -> (f64, f64) {
        let levels = &self.own.probabilities;
        let above = levels.partition_point(|&p| p < probability).min(LEVELS - 1);
        let below = above.saturating_sub(1);
        let (low, high) = (levels[below], levels[above]);
        let part = if high > low { ((probability - low) / (high - low)).clamp(0.0, 1.0) } else { 1.0 };
        let between = |low: f64, high: f64| low + part * (high - low);
        let (low, high) = (self.kept[below], self.kept[above]);
        (between(low.0, high.0), between(low.1, high.1))
    }

    fn least(&self) -> f64 {
        self.own.probabilities[0]
    }
}

impl Combined {
    /// Starts without results.
    pub(crate) fn new(of: &PerKey<'_>) -> Self {
        let key = |(own, &traces): (&OwnKey, &f64)| Key {
            own: own.clone(),
            traces,
            logarithms: (0.0, 0.0),
            kept: vec![(0.0, 0.0); LEVELS],
        };
        Self {
            keys: of.keys.keys.iter().zip(&of.traces).map(key).collect(),
            curve: of.curve,
            limits: of.limits,
            scale: of.scale,
            min_kept: of.min_kept,
            others: (0.0, 0.0),
            searches: 0.0,
            minimised: 0.0,
            evaluations: 0,
        }
    }

    /// Adds the result of a search over the same keys.
    pub(crate) fn add(&mut self, of: &PerKey<'_>, (best, evaluations): &(Evaluated<Vec<u8>>, u64)) {
        let keys = self.keys.iter_mut().zip(of.kept.chunks_exact(LEVELS)).zip(&best.point).zip(&of.shares);
        for (((key, kept), &level), share) in keys {
            // Constants keep exactly this of the whole, whichever blocks the sample leaves out.
            let is_constant = self.curve.lambda == 0.0;
            for ((sum, kept), p) in key.kept.iter_mut().zip(kept).zip(&key.own.probabilities) {
                let kept = if is_constant { (p * share.1, p * share.0) } else { *kept };
                *sum = (sum.0 + kept.0, sum.1 + kept.1);
            }
            if kept[LEVELS - 1].1 > 0.0 {
                key.logarithms.0 += key.own.probabilities[usize::from(level)].ln();
                key.logarithms.1 += 1.0;
            }
        }
        self.others = (self.others.0 + of.kept_others.0, self.others.1 + of.kept_others.1);
        self.searches += 1.0;
        self.minimised += best.value.max(f64::MIN_POSITIVE).ln();
        self.evaluations += evaluations;
    }

    /// The mean of the searches, with a part of the budget at one probability, as large as the
    /// limits allow. `None` if nothing is within them.
    pub(crate) fn found(&self) -> Option<Found> {
        let even = self.largest(&|p| vec![p; self.keys.len()])?;
        let mean = |key: &Key| match key.logarithms {
            (sum, searches) if searches > 0.0 => (sum / searches).exp(),
            _ => even[0],
        };
        let means: Vec<f64> = self.keys.iter().map(mean).collect();
        let few = |(key, mean): (&Key, &f64)| (key.traces * mean < KEPT_FEW).then_some(*mean);
        let few: Vec<Option<f64>> = self.keys.iter().zip(&means).map(few).collect();
        let wanted: Vec<f64> =
            means.iter().zip(&even).map(|(mean, even)| (1.0 - MIX) * mean + MIX * even).collect();
        let scaled = |factor: f64, is_few_kept: bool| -> Vec<f64> {
            let of = |(wanted, few): (&f64, &Option<f64>)| {
                (factor * wanted).max(few.filter(|_| is_few_kept).unwrap_or(0.0))
            };
            wanted.iter().zip(&few).map(of).collect()
        };
        let probabilities = self
            .largest(&|factor| scaled(factor, true))
            .or_else(|| self.largest(&|factor| scaled(factor, false)))?;
        let own = |(key, p): (&Key, f64)| (key.own.key, self.curve.with_least(p));
        Some(Found {
            keys: self.keys.iter().zip(probabilities).map(own).collect(),
            minimised: (self.minimised / self.searches).exp(),
            min_kept: self.min_kept,
            evaluations: self.evaluations,
        })
    }

    /// The probabilities within the limits for the largest factor; `None` for limits that no factor
    /// meets.
    fn largest(&self, of: &dyn Fn(f64) -> Vec<f64>) -> Option<Vec<f64>> {
        let at = |logarithm: f64| -> Vec<f64> {
            let probabilities = of(f64::exp(logarithm));
            let bounded = |(p, key): (f64, &Key)| round_to_4_digits(p.clamp(key.least(), 1.0)).min(1.0);
            probabilities.into_iter().zip(&self.keys).map(bounded).collect()
        };
        let (mut low, mut high) = (-30.0, 30.0);
        for _ in 0..2 * HALVINGS {
            let middle = 0.5 * (low + high);
            if self.limits.excess(&self.scale.kept(self.kept(&at(middle)))) > 0.0 {
                high = middle;
            } else {
                low = middle;
            }
        }
        Some(at(low)).filter(|found| self.limits.hold(&self.scale.kept(self.kept(found))))
    }

    /// The kept shares of bytes and traces.
    fn kept(&self, probabilities: &[f64]) -> (f64, f64) {
        let keys = self.keys.iter().zip(probabilities).map(|(key, &p)| key.kept(p));
        let sum = keys.fold(self.others, |sum, kept| (sum.0 + kept.0, sum.1 + kept.1));
        (sum.0 / self.searches, sum.1 / self.searches)
    }
}
