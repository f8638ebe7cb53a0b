//! Path kinds: how many are found, and how far their estimated shares are from the true ones.
//!
//! The estimate N of a kind with n traces is the sum of the weights of its kept traces, and M is
//! the same for all m traces. By the delta method, the kind's share N / M has the relative variance
//! var(N) / n^2 - 2 cov(N, M) / (n m) + var(M) / m^2. The distance is the sum over the kinds of
//! share * E(1 - X)+, where X is the estimated share divided by the true one. Positive and negative
//! differences cancel, so the sum of the negative ones is half of the sum of all absolute
//! differences.

use std::f64::consts::TAU;

use super::chances::Chances;
use super::table::KeyTable;

/// Sums over the keys, for one candidate.
#[derive(Clone, Debug, Default)]
pub(super) struct PathSums {
    pub(super) kinds: Vec<KindSums>,
    /// var(M)
    pub(super) variance: f64,
}

/// Sums over the traces of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KindSums {
    /// Sum of ln(1 - p), or minus infinity if one of the traces is certainly kept.
    pub(super) log_missing: f64,
    /// var(N)
    pub(super) variance: f64,
    /// cov(N, M)
    pub(super) covariance: f64,
}

/// The expected measures of paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedPaths {
    pub(super) found: f64,
    pub(super) distance: f64,
}

impl PathSums {
    pub(super) fn clear(&mut self, kinds: usize) {
        self.kinds.clear();
        self.kinds.resize(kinds, KindSums::default());
        self.variance = 0.0;
    }

    /// The measures, given the number of traces of each kind and of all traces; `None` if there are
    /// no kinds.
    pub(super) fn score(&self, traces: &[u32], all: f64) -> Option<ExpectedPaths> {
        if traces.is_empty() {
            return None;
        }
        let mut score = ExpectedPaths { found: 0.0, distance: 0.0 };
        for (sums, &traces) in self.kinds.iter().zip(traces).filter(|&(_, &traces)| traces > 0) {
            let missing = sums.log_missing.exp();
            let traces = f64::from(traces);
            let relative = sums.variance / (traces * traces) - 2.0 * sums.covariance / (traces * all)
                + self.variance / (all * all);
            score.found += 1.0 - missing;
            score.distance += traces / all * shortfall(relative.max(0.0), missing);
        }
        Some(score)
    }
}

/// E(1 - X)+ of an estimate X with mean 1 and this variance, which is 0 with probability `missing`.
///
/// For a gamma distribution it is sqrt(v / (v + 2 pi)) within 3 %. This equals sqrt(v / 2 pi), as
/// for a normal distribution, for a small variance v, and 1 for an infinite one. A rare kind
/// differs: if it is found, it counts for at least 1 / p traces. So the chance of missing it is
/// treated separately. The estimate of a kind that is found is taken as a normal variable whose
/// standard deviation is chosen so that both formulas agree if nothing is missed. The result is
/// within 20 % of binomial distributions of 1 to 200 traces with p up to 0.9.
fn shortfall(variance: f64, missing: f64) -> f64 {
    let found = 1.0 - missing;
    // The relative variance of X given that it is not 0.
    let rest = ((variance + 1.0) * found - 1.0).max(0.0);
    let deviation = (TAU * rest / (rest + TAU)).sqrt();
    if deviation == 0.0 {
        return missing;
    }
    // E(found - Y)+ of a Y with mean 1.
    let at = missing / deviation;
    missing + (deviation * density(at) - missing * normal_above(at)).max(0.0)
}

/// The density of the standard normal distribution.
fn density(at: f64) -> f64 {
    (-0.5 * at * at).exp() / TAU.sqrt()
}

/// The probability that a standard normal variable exceeds `at`, which must not be negative: within
/// 1e-5, by Abramowitz and Stegun 26.2.16.
fn normal_above(at: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.332_67 * at);
    density(at) * t * (0.436_183_6 + t * (-0.120_167_6 + t * 0.937_298_0))
}

impl Chances<'_> {
    /// Adds a key's traces. `fixed` is the key's sum of p (1 - p) if the number of its kept traces
    /// does not vary, else 0.
    pub(super) fn add_paths(&self, key: KeyTable<'_>, fixed: f64, sums: &mut PathSums) {
        if sums.kinds.is_empty() {
            return;
        }
        // Sums of (1 - p) / p and of 1 - p, over all traces of the key and over those of one kind.
        let sizes = key.sizes().iter().map(|cell| (cell.bin, cell.size[0]));
        let (odds, missed, _) = self.odds(sizes);
        let apart = |one: f64, other: f64| if fixed > 0.0 { one * other / fixed } else { 0.0 };
        sums.variance += odds - apart(missed, missed);
        for (kind, cells) in key.by_path() {
            let kind = &mut sums.kinds[kind];
            let (own_odds, own_missed, log_missing) =
                self.odds(cells.iter().map(|cell| (cell.bin, cell.traces)));
            kind.variance += own_odds - apart(own_missed, own_missed);
            kind.covariance += own_odds - apart(own_missed, missed);
            kind.log_missing += log_missing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// n traces, each kept with probability p, by the binomial distribution.
    #[test]
    fn a_shortfall_is_near_that_of_a_binomial_distribution() {
        for n in [1u32, 2, 5, 20, 200] {
            for p in [0.01, 0.1, 0.5, 0.9] {
                let (mut exact, mut chance) = (0.0, (1.0f64 - p).powi(n as i32));
                for kept in 0..=n {
                    exact += chance * (1.0 - f64::from(kept) / (f64::from(n) * p)).max(0.0);
                    chance *= f64::from(n - kept) / f64::from(kept + 1) * p / (1.0 - p);
                }
                let found = shortfall((1.0 - p) / p / f64::from(n), (1.0f64 - p).powi(n as i32));
                let off = (found / exact - 1.0).abs();
                assert!(off < 0.2, "{n} traces, p {p}: {found}, should be {exact}");
            }
        }
        assert_eq!(shortfall(0.0, 0.0), 0.0);
        assert_eq!(shortfall(1e300, 1.0), 1.0);
    }

    /// E(1 - m - Y)+ of a normal Y with mean 1, integrated in small steps. The standard deviation
    /// is the one at which the result equals sqrt(v / (v + 2 pi)), that of the gamma distribution,
    /// if nothing is missed.
    #[test]
    fn a_shortfall_is_that_of_a_normal_number_and_of_a_miss() {
        for (variance, missing) in [(0.3, 0.1), (0.05, 0.01), (2.0, 0.4), (20.0, 0.2), (1.5, 0.0)] {
            let found = 1.0 - missing;
            // Given that X is not 0, E X = 1 / found and E X^2 = (1 + v) / found.
            let (mean, square) = (1.0 / found, (1.0 + variance) / found);
            let relative = square / (mean * mean) - 1.0;
            let deviation = (relative / (relative + TAU)).sqrt() * TAU.sqrt();
            let step = 1e-3;
            let sum: f64 = (-8000..8000)
                .map(|place| {
                    let z = f64::from(place) * step;
                    (found - (1.0 + deviation * z)).max(0.0) * (-z * z / 2.0).exp() / TAU.sqrt() * step
                })
                .sum();
            let (short, expected) = (shortfall(variance, missing), missing + sum);
            assert!(
                (short - expected).abs() < 1e-4,
                "v {variance}, m {missing}: {short}, should be {expected}"
            );
        }
    }

    /// Two kinds with 4 and 6 of 10 traces, and one without traces. By hand, the relative variances
    /// of their shares are 8/16 - 2 5/40 + 30/100 and 9/36 - 2 7/60 + 30/100.
    #[test]
    fn shares_of_kinds_vary_with_their_own_and_with_all_estimates() {
        let kind = |missing: f64, variance: f64, covariance: f64| KindSums {
            log_missing: missing.ln(),
            variance,
            covariance,
        };
        let sums = PathSums {
            kinds: vec![kind(0.2, 8.0, 5.0), KindSums::default(), kind(0.1, 9.0, 7.0)],
            variance: 30.0,
        };
        let score = sums.score(&[4, 0, 6], 10.0).expect("three kinds");
        let distance = 0.4 * shortfall(0.55, 0.2) + 0.6 * shortfall(0.25 - 7.0 / 30.0 + 0.3, 0.1);
        assert!((score.found - 1.7).abs() < 1e-12, "{score:?}");
        assert!((score.distance - distance).abs() < 1e-12, "{score:?}, should be {distance}");
        assert!(sums.score(&[], 0.0).is_none());
    }

    #[test]
    fn the_normal_distribution_is_that_of_tables() {
        for (at, expected) in [(0.0, 0.5), (0.5, 0.308_54), (1.0, 0.158_66), (2.0, 0.022_75), (3.0, 0.001_35)]
        {
            assert!((normal_above(at) - expected).abs() < 2e-5, "{at}");
        }
    }
}
