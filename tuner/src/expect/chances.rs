//! The probabilities with which a key's traces are kept, and sums over its tables that use them.

use super::index::{Bins, Counting};
use super::moments::Sums;
use super::table::{KeyTable, Size};

/// A smaller probability is raised to this where it is a divisor.
pub(super) const PROBABILITY_MIN: f64 = 1e-12;
/// Larger exponents of bump are clamped to this, so that sums of logarithms stay finite. e^-700 is
/// practically 0.
const EXPONENT_MAX: f64 = 700.0;

/// The rule by which a key's traces are kept.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum KeyLaw<'c> {
    /// Each trace with the same probability.
    Constant(f64),
    /// By the count, with a minimum probability.
    Bump(&'c Curve, f64),
}

/// Bump's probability for each bin of counts.
#[derive(Clone, Debug)]
pub struct Curve {
    /// In descending order, starting at probability 1.
    chances: Vec<Chance>,
}

impl Curve {
    /// p = 1 - exp(-(lambda / x)^exponent) for a count x, and 1 for the count 0.
    pub fn new(counting: Counting, lambda: f64, exponent: f64) -> Self {
        let log_lambda = lambda.ln();
        let chance = |&log_count: &f64| match log_count {
            f64::NEG_INFINITY => Chance::CERTAIN,
            _ => Chance::new((exponent * (log_lambda - log_count)).exp().min(EXPONENT_MAX)),
        };
        Self { chances: Bins::of(counting).logarithms().iter().map(chance).collect() }
    }
}

/// The probability with which a bin's traces are kept, and quantities derived from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance {
    /// p
    pub(super) probability: f64,
    /// p (1 - p)
    variance: f64,
    /// ln(1 - p), or 0 if p is 1, which is counted separately.
    log_missing: f64,
    /// (1 - p) / p
    odds_against: f64,
    /// 1 - p
    missing: f64,
}

impl Chance {
    const CERTAIN: Self =
        Self { probability: 1.0, variance: 0.0, log_missing: 0.0, odds_against: 0.0, missing: 0.0 };
    /// The start of a suffix sum, before its first bin.
    const NONE: Self =
        Self { probability: 0.0, variance: 0.0, log_missing: 0.0, odds_against: 0.0, missing: 0.0 };

    /// Probability 1 - e^(-exponent).
    fn new(exponent: f64) -> Self {
        let missing = (-exponent).exp();
        let probability = -(-exponent).exp_m1();
        Self {
            probability,
            variance: probability * missing,
            log_missing: -exponent,
            odds_against: missing / probability.max(PROBABILITY_MIN),
            missing,
        }
    }

    /// A probability of 1 is lowered to just below 1, because its logarithm must stay finite.
    fn of_probability(probability: f64) -> Self {
        Self::new((-(-probability.min(1.0 - f64::EPSILON)).ln_1p()).max(0.0))
    }
}

/// The chances of a key's bins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chances<'c> {
    /// The first bins, whose chance is above the minimum.
    above: &'c [Chance],
    /// The chance of all later bins.
    least: Chance,
}

impl<'c> Chances<'c> {
    pub(super) fn new(law: KeyLaw<'c>) -> Self {
        match law {
            KeyLaw::Constant(probability) => Self { above: &[], least: Chance::of_probability(probability) },
            KeyLaw::Bump(curve, minimum) => {
                let above = curve.chances.partition_point(|chance| chance.probability > minimum);
                // The count 0 is always kept, whatever the minimum.
                Self { above: &curve.chances[..above.max(1)], least: Chance::of_probability(minimum) }
            }
        }
    }

    /// The chance of a bin, and whether all later bins have the same.
    pub(super) fn chance(&self, bin: u32) -> (Chance, bool) {
        match self.above.get(bin as usize) {
            Some(chance) => (*chance, false),
            None => (self.least, true),
        }
    }

    pub(super) fn add_size(&self, key: KeyTable<'_>, size: &mut Size) {
        let mut before = 0.0;
        for cell in key.sizes() {
            let (chance, last) = self.chance(cell.bin);
            let step = chance.probability - before;
            before = chance.probability;
            size.iter_mut().zip(cell.size).for_each(|(total, sum)| *total += step * sum);
            if last {
                break;
            }
        }
    }

    /// The sum of p (1 - p) over the key's traces.
    pub(super) fn variance(&self, key: KeyTable<'_>) -> f64 {
        let (mut sum, mut before) = (0.0, 0.0);
        for cell in key.sizes() {
            let (chance, last) = self.chance(cell.bin);
            sum += (chance.variance - before) * cell.size[0];
            before = chance.variance;
            if last {
                break;
            }
        }
        sum
    }

    /// `fixed` is the key's sum of p (1 - p) if the number of its kept traces does not vary, else
    /// 0.
    pub(super) fn add_functions(&self, key: KeyTable<'_>, fixed: f64, functions: &mut [Sums]) {
        for (function, cells) in key.by_function() {
            // A local copy: in memory, each cell would wait for the store of the previous one.
            let mut total = functions[function];
            let mut before = Chance::NONE;
            // Sums of p (1 - p) times c, d and q, and the sum of (1 - p) c.
            let (mut varying, mut missed) = ([0.0; 3], 0.0);
            for cell in cells {
                let (chance, last) = self.chance(cell.bin);
                let (p, v) = (chance.probability - before.probability, chance.variance - before.variance);
                let [traces, c, d, q, products @ ..] = &cell.moments;
                for ((sum, varying), value) in total.expected.iter_mut().zip(&mut varying).zip([c, d, q]) {
                    *sum += p * value;
                    *varying += v * value;
                }
                for (sum, value) in total.covariances.iter_mut().zip(products) {
                    *sum += v * value;
                }
                missed += (chance.missing - before.missing) * c;
                total.estimate_variance += (chance.odds_against - before.odds_against) * products[0];
                total.log_missing += (chance.log_missing - before.log_missing) * traces;
                total.certain += u32::from(chance.probability == 1.0);
                before = chance;
                if last {
                    break;
                }
            }
            if fixed > 0.0 {
                let [c, d, q] = varying;
                let products = [c * c, c * d, c * q, d * d, d * q, q * q];
                total.covariances.iter_mut().zip(products).for_each(|(sum, product)| *sum -= product / fixed);
                total.estimate_variance -= missed * missed / fixed;
            }
            functions[function] = total;
        }
    }

    pub(super) fn add_latencies(&self, key: KeyTable<'_>, variances: &mut [f64]) {
        for (cell, bins) in key.by_latency() {
            let mut before = 0.0;
            for bin in bins {
                let (chance, last) = self.chance(bin.bin);
                variances[cell] += (chance.odds_against - before) * bin.squares;
                before = chance.odds_against;
                if last {
                    break;
                }
            }
        }
    }

    /// Sums of (1 - p) / p, 1 - p and ln(1 - p) over traces, from suffix sums of their number by
    /// bin. The last sum is minus infinity if a trace is certainly kept.
    pub(super) fn odds(&self, traces: impl Iterator<Item = (u32, f64)>) -> (f64, f64, f64) {
        let (mut odds, mut missed, mut log_missing) = (0.0, 0.0, 0.0);
        let mut before = Chance::NONE;
        for (bin, traces) in traces {
            let (chance, last) = self.chance(bin);
            odds += (chance.odds_against - before.odds_against) * traces;
            missed += (chance.missing - before.missing) * traces;
            log_missing += (chance.log_missing - before.log_missing) * traces;
            if chance.probability == 1.0 {
                log_missing = f64::NEG_INFINITY;
            }
            before = chance;
            if last {
                break;
            }
        }
        (odds, missed, log_missing)
    }

    /// The expected number of call trees found, of those that only a single trace has.
    pub(super) fn lone_trees(&self, key: KeyTable<'_>) -> f64 {
        let (mut found, mut before) = (0.0, 0.0);
        for cell in key.lone_trees() {
            let (chance, last) = self.chance(cell.bin);
            found += (chance.probability - before) * cell.traces;
            before = chance.probability;
            if last {
                break;
            }
        }
        found
    }

    /// Adds ln(1 - p) to the sums of all other call trees.
    pub(super) fn add_trees(&self, key: KeyTable<'_>, trees: &mut [f64]) {
        for (tree, cells) in key.by_tree() {
            let total = &mut trees[tree];
            let mut before = 0.0;
            for cell in cells {
                let (chance, last) = self.chance(cell.bin);
                if chance.probability == 1.0 {
                    *total = f64::NEG_INFINITY;
                    break;
                }
                *total += (chance.log_missing - before) * cell.traces;
                before = chance.log_missing;
                if last {
                    break;
                }
            }
        }
    }
}
