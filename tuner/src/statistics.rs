//! Means, standard deviations and quantiles, as defined in the documentation of the metrics.

use serde::Serialize;

/// Mean and standard deviation of a population.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MeanSd {
    /// The arithmetic mean; 0 without values.
    pub mean: f64,
    /// The population standard deviation (divided by n); 0 without values.
    pub sd: f64,
}

impl MeanSd {
    /// The mean and standard deviation of some values. If any of them is infinite, the mean is
    /// infinite and the deviation NaN.
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let Some(first) = values.clone().next() else { return Self::default() };
        let (mut count, mut sum) = (0.0, 0.0);
        for value in values.clone() {
            count += 1.0;
            // Differences from the first value, so that equal values have exactly their value as
            // mean and a deviation of 0.
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

/// A number over several draws: its mean, how well the draws determine it, and how far single runs
/// are from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Distribution {
    /// The arithmetic mean; infinite if any value is.
    pub mean: f64,
    /// The standard deviation of single runs.
    pub sd: f64,
    /// The 95 % confidence interval of the mean: 1.96 standard errors in both directions. Infinite
    /// if the mean is.
    pub mean_interval: [f64; 2],
    /// The interval that contains nine in ten single runs: from the 5 % to the 95 % quantile of the
    /// draws.
    pub run_interval: [f64; 2],
}

impl Distribution {
    /// The distribution of some values.
    pub fn of(mut values: Vec<f64>) -> Self {
        let MeanSd { mean, sd } = MeanSd::of(values.iter().copied());
        // Divided by n - 1, because the deviation is from the sample's own mean.
        let error = 1.96 * sd / ((values.len().max(2) - 1) as f64).sqrt();
        values.sort_unstable_by(f64::total_cmp);
        Self {
            mean,
            sd,
            mean_interval: around(mean, error),
            run_interval: [quantile_of(&values, 0.05), quantile_of(&values, 0.95)],
        }
    }
}

/// The interval of `error` in both directions from a mean. An infinite mean is certain, because the
/// value was infinite in some draw.
fn around(mean: f64, error: f64) -> [f64; 2] {
    if mean.is_finite() { [mean - error, mean + error] } else { [mean; 2] }
}

impl Distribution {
    /// The distribution over runs that each stand for several outcomes. `values` are outcomes with
    /// their weights, which add up to 1. `means` are the means of the runs, each after the stratum
    /// that its run was drawn from. Strata have fixed shares, so the spread between them does not
    /// add to the error of the mean.
    pub(crate) fn of_mixture(values: &mut [(f64, f64)], means: &[(f64, f64)]) -> Self {
        let mean = MeanSd::of(means.iter().map(|&(_, mean)| mean)).mean;
        let variance = values.iter().map(|&(value, weight)| weight * (value - mean).powi(2)).sum::<f64>();
        let error = 1.96 * stratified_error(means);
        values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        Self {
            mean,
            sd: variance.sqrt(),
            mean_interval: around(mean, error),
            run_interval: [0.05, 0.95].map(|q| quantile_of_weighted(values, q)),
        }
    }
}

/// The standard error of the mean of `values`, each given as (stratum, value). A stratum with a
/// single value says nothing about its spread, so in that case all values are treated as one
/// stratum.
fn stratified_error(values: &[(f64, f64)]) -> f64 {
    let mut strata: Vec<f64> = values.iter().map(|&(stratum, _)| stratum).collect();
    strata.sort_unstable_by(f64::total_cmp);
    strata.dedup();
    let of = |stratum: f64| values.iter().filter(move |value| value.0 == stratum).map(|&(_, value)| value);
    let square = |count: f64, sd: f64| count * sd * sd * count / (count - 1.0);
    let all = values.len() as f64;
    let by_stratum = strata.iter().map(|&stratum| (of(stratum).count() as f64, MeanSd::of(of(stratum)).sd));
    let sum: f64 = match by_stratum.clone().all(|(count, _)| count > 1.0) {
        true => by_stratum.map(|(count, sd)| square(count, sd)).sum(),
        false => square(all.max(2.0), MeanSd::of(values.iter().map(|&(_, value)| value)).sd),
    };
    sum.sqrt() / all.max(1.0)
}

/// The smallest of sorted values, each with its weight, at which at least a share `q` of the
/// weights is reached.
fn quantile_of_weighted(sorted: &[(f64, f64)], q: f64) -> f64 {
    let all: f64 = sorted.iter().map(|&(_, weight)| weight).sum();
    let mut sum = 0.0;
    let reaches = |&&(_, weight): &&(f64, f64)| {
        sum += weight;
        sum >= q * all
    };
    sorted.iter().find(reaches).or(sorted.last()).map_or(0.0, |&(value, _)| value)
}

/// The quantiles of a number over several draws, at 0, 5, 10 and so on up to 100 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Twentieths([f64; 21]);

impl Twentieths {
    /// The quantiles of some values; zeros without values.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        Self(std::array::from_fn(|twentieth| quantile_of(&values, twentieth as f64 / 20.0)))
    }

    /// The quantiles of values with weights.
    pub(crate) fn of_weighted(values: &mut [(f64, f64)]) -> Self {
        values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        Self(std::array::from_fn(|twentieth| quantile_of_weighted(values, twentieth as f64 / 20.0)))
    }

    /// The quantile at this number of twentieths; the largest value from 20 on.
    pub fn at(&self, twentieth: usize) -> f64 {
        self.0[twentieth.min(20)]
    }
}

/// The quantile of the standard normal distribution for a probability of 0.5 to 1, within 0.0005:
/// Abramowitz and Stegun 26.2.23.
pub(crate) fn normal_quantile(probability: f64) -> f64 {
    let t = (-2.0 * (1.0 - probability).max(f64::MIN_POSITIVE).ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

/// Like [`quantile`], but for any sorted numbers.
pub(crate) fn quantile_of(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let rank = q.clamp(0.0, 1.0) * last as f64;
    let below = rank.floor() as usize;
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    let part = rank - below as f64;
    // Avoids NaN from infinity - infinity and from infinity * 0.
    if low == high || part == 0.0 { low } else { low + (high - low) * part }
}

/// The quantile of sorted values by linear interpolation between the two nearest ranks (Hyndman and
/// Fan's type 7, the default of NumPy and R); 0 without values.
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
    fn twentieths_are_quantiles() {
        let of = Twentieths::of((0..=40).rev().map(f64::from).collect());
        assert_eq!([0, 1, 10, 20, 99].map(|twentieth| of.at(twentieth)), [0.0, 2.0, 20.0, 40.0, 40.0]);
        assert_eq!(Twentieths::of(Vec::new()), Twentieths::default());
        // Infinity must not affect the ranks before it.
        let of = Twentieths::of(vec![1.0, f64::INFINITY, f64::INFINITY]);
        assert_eq!(
            [0, 1, 10, 20].map(|twentieth| of.at(twentieth)),
            [1.0, f64::INFINITY, f64::INFINITY, f64::INFINITY]
        );
    }

    #[test]
    fn mean_and_sd_are_the_populations() {
        // A textbook example: mean 5, variance 4.
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

    /// By hand: eight values with mean 5 and standard deviation 2, so the standard error of the
    /// mean is 2 / sqrt(7).
    #[test]
    fn a_mean_and_a_single_run_have_intervals_of_their_own() {
        let found = Distribution::of(vec![9.0, 2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0]);
        let error = 1.96 * 2.0 / 7f64.sqrt();
        assert_eq!((found.mean, found.sd), (5.0, 2.0));
        assert_eq!(found.mean_interval, [5.0 - error, 5.0 + error]);
        // Ranks 0.35 and 6.65.
        assert!((found.run_interval[0] - 2.7).abs() < 1e-12 && (found.run_interval[1] - 8.3).abs() < 1e-12);
        assert_eq!(Distribution::of(vec![f64::INFINITY; 3]).run_interval, [f64::INFINITY; 2]);
    }

    /// By hand: strata of 1, 3 and of 10, 10. The mean of the first has a squared error of 1 and
    /// that of the second 0; each stratum is half of the whole. With a third stratum of a single
    /// value, all five values are one stratum.
    #[test]
    fn a_mixture_has_the_error_of_its_strata_and_quantiles_by_weight() {
        let mut values = [(5.0, 0.5), (1.0, 0.05), (9.0, 0.45)];
        let found =
            Distribution::of_mixture(&mut values, &[(0.0, 1.0), (5.0, 10.0), (0.0, 3.0), (5.0, 10.0)]);
        assert_eq!(found.mean, 6.0);
        assert!((found.mean_interval[1] - 6.0 - 1.96 * 0.5).abs() < 1e-12, "{found:?}");
        assert_eq!(found.run_interval, [1.0, 9.0]);
        assert!((found.sd - (0.5 + 0.05 * 25.0 + 0.45 * 9.0f64).sqrt()).abs() < 1e-12);
        let alone = stratified_error(&[(0.0, 1.0), (5.0, 10.0), (0.0, 3.0), (5.0, 10.0), (9.0, 6.0)]);
        assert!((alone - (66.0f64 / 5.0 / 4.0).sqrt()).abs() < 1e-12, "{alone}");
    }

    /// A run that keeps calls of a single function only has an infinite dist/entropy, and so the
    /// mean of all runs is infinite.
    #[test]
    fn an_infinite_mean_is_infinite_for_certain() {
        let inf = f64::INFINITY;
        assert_eq!(Distribution::of(vec![1.0, inf, 2.0]).mean_interval, [inf; 2]);
        let mut values = [(1.0, 0.5), (inf, 0.5)];
        assert_eq!(Distribution::of_mixture(&mut values, &[(0.0, 1.0), (0.0, inf)]).mean_interval, [inf; 2]);
    }

    /// From a table of the normal distribution.
    #[test]
    fn normal_quantiles_are_those_of_tables() {
        for (probability, expected) in [(0.5, 0.0), (0.9, 1.28155), (0.95, 1.64485), (0.999, 3.09023)] {
            assert!((normal_quantile(probability) - expected).abs() < 5e-4, "{probability}");
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
