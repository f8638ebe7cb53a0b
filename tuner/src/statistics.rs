//! Means, deviations and quantiles, as the documentation of the metrics defines them.

use serde::Serialize;

/// Mean and standard deviation of a population.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MeanSd {
    /// The arithmetic mean; 0 of nothing.
    pub mean: f64,
    /// The population's standard deviation (divided by n); 0 of nothing.
    pub sd: f64,
}

impl MeanSd {
    /// Of some values. The mean is infinite, and the deviation undefined (NaN), if any of them is.
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let Some(first) = values.clone().next() else { return Self::default() };
        let (mut count, mut sum) = (0.0, 0.0);
        for value in values.clone() {
            count += 1.0;
            // From the first one on, so that equal values have exactly their mean, and no deviation.
            sum += value - first;
        }
        let mean = first + sum / count;
        if !mean.is_finite() {
            return Self { mean: f64::INFINITY, sd: f64::NAN };
        }
        let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        Self { mean, sd: variance.sqrt() }
    }
}

/// The quantile of sorted values by linear interpolation between the two nearest ranks (Hyndman and Fan's type 7,
/// the default of NumPy and R); 0 of nothing.
pub fn quantile(sorted: &[u64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let rank = q.clamp(0.0, 1.0) * last as f64;
    let below = rank.floor() as usize;
    let (low, high) = (sorted[below] as f64, sorted[(below + 1).min(last)] as f64);
    low + (high - low) * (rank - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_sd_are_the_populations() {
        // The textbook's example: mean 5, variance 4.
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(MeanSd::of(values.into_iter()), MeanSd { mean: 5.0, sd: 2.0 });
        assert_eq!(MeanSd::of([3.0].into_iter()), MeanSd { mean: 3.0, sd: 0.0 });
        assert_eq!(MeanSd::of(std::iter::empty()), MeanSd::default());
        let tenths = [0.1; 10];
        assert_eq!(MeanSd::of(tenths.into_iter()), MeanSd { mean: 0.1, sd: 0.0 });
        for values in [[f64::INFINITY, 1.0], [1.0, f64::INFINITY]] {
            let of = MeanSd::of(values.into_iter());
            assert!(of.mean == f64::INFINITY && of.sd.is_nan(), "{of:?}");
        }
    }

    #[test]
    fn quantiles_interpolate_between_ranks() {
        let values = [10, 20, 30, 40];
        assert_eq!(quantile(&values, 0.0), 10.0);
        assert_eq!(quantile(&values, 0.5), 25.0);
        assert_eq!(quantile(&values, 0.75), 32.5);
        assert_eq!(quantile(&values, 1.0), 40.0);
        assert_eq!(quantile(&[7], 0.95), 7.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
