//! Weighted means and percentiles.

use serde::Serialize;

/// Durations, each with the number of traces that it stands for.
///
/// Weights take no memory while all of them are 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    ns: Vec<u64>,
    /// Empty if all weights are 1.
    weights: Vec<f64>,
}

/// A summary of durations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The mean, ms.
    pub mean_ms: f64,
    /// The requested percentiles, in the requested order, in ms: for each, the least duration that
    /// at least that percentage of the traces, by weight, do not exceed.
    pub percentiles_ms: Vec<f64>,
}

const NS_PER_MS: f64 = 1e6;

impl Times {
    /// Adds the duration of a trace that stands for `weight` traces. A trace with weight zero is
    /// ignored, so that it cannot be a percentile either.
    pub(crate) fn push(&mut self, ns: u64, weight: f64) {
        if weight == 0.0 {
            return;
        }
        if weight != 1.0 && self.weights.is_empty() {
            self.weights.resize(self.ns.len(), 1.0);
        }
        if weight != 1.0 || !self.weights.is_empty() {
            self.weights.push(weight);
        }
        self.ns.push(ns);
    }

    /// The sum of the weights.
    pub(crate) fn weight(&self) -> f64 {
        if self.weights.is_empty() { self.ns.len() as f64 } else { self.weights.iter().sum() }
    }

    /// The weighted sum, ns.
    pub(crate) fn total(&self) -> f64 {
        if self.weights.is_empty() {
            self.ns.iter().map(|&ns| u128::from(ns)).sum::<u128>() as f64
        } else {
            self.ns.iter().zip(&self.weights).map(|(&ns, weight)| ns as f64 * weight).sum()
        }
    }

    /// Mean and percentiles, each from 0 to 100.
    pub(crate) fn summary(mut self, percentiles: &[f64]) -> Summary {
        let (weight, total) = (self.weight(), self.total());
        if self.ns.is_empty() {
            return Summary { mean_ms: 0.0, percentiles_ms: vec![0.0; percentiles.len()] };
        }
        let sorted: Vec<(u64, f64)> = if self.weights.is_empty() {
            self.ns.sort_unstable();
            Vec::new()
        } else {
            let mut pairs: Vec<_> = self.ns.iter().copied().zip(self.weights.iter().copied()).collect();
            pairs.sort_unstable_by_key(|&(ns, _)| ns);
            let mut sum = 0.0;
            pairs.iter_mut().for_each(|(_, weight)| {
                sum += *weight;
                *weight = sum;
            });
            pairs
        };
        let last = self.ns.len() - 1;
        let percentile = |percent: f64| {
            // Reduced by a rounding error: 99.9 percent of 1,000 is slightly more than 999 in
            // floating point.
            let needed = percent.clamp(0.0, 100.0) * weight / 100.0 * (1.0 - 1e-12);
            let ns = if sorted.is_empty() {
                self.ns[(needed.ceil() as usize).saturating_sub(1).min(last)]
            } else {
                let at = sorted.partition_point(|&(_, sum)| sum < needed);
                sorted[at.min(last)].0
            };
            ns as f64 / NS_PER_MS
        };
        Summary {
            mean_ms: total / weight / NS_PER_MS,
            percentiles_ms: percentiles.iter().map(|&percent| percentile(percent)).collect(),
        }
    }
}

/// A weighted mean.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    pub(crate) fn push(&mut self, ns: u64, weight: f64) {
        self.sum += ns as f64 * weight;
        self.weight += weight;
    }

    /// The mean in ms; `None` if nothing was added.
    pub(crate) fn ms(self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight / NS_PER_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_counts_as_so_many_traces() {
        let (mut whole, mut weighted) = (Times::default(), Times::default());
        for (ms, times) in [(1, 3), (5, 1), (2, 6)] {
            (0..times).for_each(|_| whole.push(ms * 1_000_000, 1.0));
            weighted.push(ms * 1_000_000, times as f64);
        }
        // Sorted: 1 1 1 2 2 2 2 2 2 5. The mean is 20 / 10.
        let expected = Summary { mean_ms: 2.0, percentiles_ms: vec![1.0, 1.0, 2.0, 2.0, 5.0] };
        let percentiles = [0.0, 30.0, 31.0, 90.0, 91.0];
        assert_eq!(whole.summary(&percentiles), expected);
        assert_eq!(weighted.summary(&percentiles), expected);
    }

    /// 99.9 percent of 1,000 is 999.0000000000001 in floating point.
    #[test]
    fn a_percentage_that_makes_a_whole_number_is_that_rank() {
        for weight in [1.0, 2.0] {
            let mut outlier = Times::default();
            (0..999).for_each(|_| outlier.push(1_000_000, weight));
            outlier.push(1_000_000_000, weight);
            assert_eq!(outlier.summary(&[99.9, 99.91, 100.0]).percentiles_ms, [1.0, 1_000.0, 1_000.0]);
            let mut hundred = Times::default();
            (1..=100).for_each(|ms| hundred.push(ms * 1_000_000, weight));
            let percentiles: Vec<f64> = (1..=100).map(f64::from).collect();
            assert_eq!(hundred.summary(&percentiles).percentiles_ms, percentiles);
        }
    }

    #[test]
    fn nothing_has_no_time() {
        assert_eq!(Times::default().summary(&[50.0]), Summary { mean_ms: 0.0, percentiles_ms: vec![0.0] });
        assert_eq!(Mean::default().ms(), None);
    }
}
