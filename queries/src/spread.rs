//! The spread of estimates from sampled traces, and the intervals that it gives.

use crate::sum::FloatSum;

/// The quantile of the normal distribution for 95 %.
const Z: f64 = 1.96;

/// An estimate's error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The standard error; `None` for a quantile.
    pub error: Option<f64>,
    /// The 95 % interval; `None` where nothing bounds it.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// Whether one trace makes up more than a third of the variance. Others like it may have been
    /// dropped, so that the interval is too narrow.
    pub is_of_one: bool,
}

/// The moments of an aggregate over traces that were kept with a probability: of its sum s, and of
/// the number n by which it is divided, if any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread {
    /// The variances: of s, of both, and of n.
    second: [FloatSum; 3],
    /// The third moments, from that of s to that of n.
    third: [FloatSum; 4],
    /// The largest part of one trace in the variance of s, and in that of n.
    most: [f64; 2],
    /// The sum of s over what was seen, whatever it stands for.
    seen: FloatSum,
    /// Traces that stand for others, too.
    traces: u64,
    /// Traces that stand for no other.
    certain: u64,
    /// The weight of some trace is not known.
    is_unknown: bool,
}

impl Spread {
    /// Adds a trace's rows, by weight, each with s and n. Rows of one trace were sampled by one
    /// number: two weights were both kept whenever the larger was, so the unbiased estimate of the
    /// variance is the sum of (v w - max(v, w)) x y over pairs of them. A trace kept with
    /// probability 1/w adds w (w - 1) (w - 2) x^3 to the third moment.
    pub(crate) fn add(&mut self, parts: impl Iterator<Item = (f64, (f64, f64))> + Clone) {
        parts.clone().for_each(|(_, (s, _))| self.seen.add(s));
        let parts = parts.filter(|(weight, _)| *weight > 0.0);
        let largest = parts.clone().map(|(weight, _)| weight).fold(0.0, f64::max);
        let (mut own, mut s, mut n) = ([0.0; 2], 0.0, 0.0);
        for (weight, (of_s, of_n)) in parts.clone() {
            s += of_s * weight / largest;
            n += of_n * weight / largest;
            for (other, (more_s, more_n)) in parts.clone() {
                let factor = weight * other - weight.max(other);
                own[0] += factor * of_s * more_s;
                own[1] += factor * of_n * more_n;
                self.second[1].add(factor * of_s * more_n);
            }
        }
        self.second[0].add(own[0]);
        self.second[2].add(own[1]);
        self.most = [self.most[0].max(own[0]), self.most[1].max(own[1])];
        self.traces += u64::from(largest > 1.0);
        self.certain += u64::from(largest == 1.0);
        let factor = largest * (largest - 1.0) * (largest - 2.0);
        for (moment, product) in self.third.iter_mut().zip([s * s * s, s * s * n, s * n * n, n * n * n]) {
            moment.add(factor * product);
        }
    }

    pub(crate) fn merge(&mut self, other: &Spread) {
        let own = self.second.iter_mut().chain(&mut self.third);
        own.zip(other.second.iter().chain(&other.third)).for_each(|(sum, more)| sum.merge(more, 1.0));
        self.most = [self.most[0].max(other.most[0]), self.most[1].max(other.most[1])];
        self.seen.merge(&other.seen, 1.0);
        self.traces += other.traces;
        self.certain += other.certain;
        self.is_unknown |= other.is_unknown;
    }

    /// Notes a trace whose weight is not known. What it stands for is at least itself.
    pub(crate) fn note_unknown(&mut self) {
        self.is_unknown = true;
    }

    /// An interval, of which only the known ends stay.
    fn known(&self, estimate: Estimate) -> Estimate {
        match self.is_unknown {
            true => Estimate { error: None, low: None, high: None, is_of_one: false },
            false => estimate,
        }
    }

    fn is_of_one(&self, part: usize) -> bool {
        let variance = self.second[2 * part].total();
        self.most[part] > variance / 3.0 && variance > 0.0
    }

    /// The error of a count, which is at least what was seen. An estimate may be below that, if
    /// traces of weight 0 were seen; the interval then begins at the estimate.
    pub(crate) fn of_count(&self, count: f64) -> Estimate {
        let Estimate { error, low, high, is_of_one } = self.of_sum(count);
        let seen = self.seen.total();
        Estimate { error, low: Some(low.unwrap_or(seen).max(seen).min(count)), high, is_of_one }
    }

    /// The error of a sum.
    pub(crate) fn of_sum(&self, sum: f64) -> Estimate {
        let variance = self.second[0].total();
        self.known(interval(sum, variance, self.third[0].total(), self.is_of_one(0)))
    }

    /// The error of a ratio: that of the sum of s less the ratio of n, by the first term of its
    /// Taylor series.
    pub(crate) fn of_ratio(&self, ratio: f64, n: f64) -> Estimate {
        let [ss, sn, nn] = self.second.each_ref().map(FloatSum::total);
        let [sss, ssn, snn, nnn] = self.third.each_ref().map(FloatSum::total);
        let variance = ss - 2.0 * ratio * sn + ratio * ratio * nn;
        let third = sss - 3.0 * ratio * ssn + 3.0 * ratio * ratio * snn - ratio.powi(3) * nnn;
        // One trace alone has no residual.
        if (self.traces, self.certain) == (1, 0) {
            return Estimate { error: None, low: None, high: None, is_of_one: true };
        }
        self.known(interval(ratio, variance / (n * n), third / n.powi(3), self.is_of_one(1)))
    }

    /// The error of a quantile of `n` values, which the values at the ends of an interval of its
    /// rank have: Woodruff, "Confidence Intervals for Medians and Other Position Measures", 1952.
    /// The values of a trace are taken as being all on one side.
    pub(crate) fn of_quantile(&self, share: f64, n: f64, at: impl Fn(f64) -> Option<f64>) -> Estimate {
        let error = (share * (1.0 - share) * self.second[2].total().max(0.0)).sqrt() / n;
        // A sample bounds neither the least nor the greatest of all values.
        let is_whole = self.traces == 0;
        let end = |share: f64| at(share).filter(|_| is_whole || (share > 0.0 && share < 1.0));
        let (low, high) = (end(share - Z * error), end(share + Z * error));
        self.known(Estimate { error: None, low, high, is_of_one: self.is_of_one(1) })
    }
}

/// An interval without the skewness that few large terms give: Hall, "On the Removal of Skewness by
/// Transformation", 1992.
fn interval(value: f64, variance: f64, third: f64, is_of_one: bool) -> Estimate {
    let error = variance.max(0.0).sqrt();
    // Terms of weight 2 or more give at most 1. Those of smaller weights give less than -1 if
    // nearly nothing was dropped, where the transformation does not hold.
    let skewness = if error > 0.0 { (third / error.powi(3)).clamp(-1.0, 1.0) } else { 0.0 };
    let end = |z: f64| {
        let straightened = if skewness.abs() < 1e-6 {
            z
        } else {
            3.0 / skewness * ((1.0 + skewness * (z - skewness / 6.0)).cbrt() - 1.0)
        };
        Some(value - error * straightened).filter(|end| end.is_finite())
    };
    Estimate { error: Some(error).filter(|error| error.is_finite()), low: end(Z), high: end(-Z), is_of_one }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found - expected).abs() < 1e-9 * expected.abs().max(1.0))
    }

    /// By hand: four traces of 1, kept with 1/4: 4 x 4 x 3 = 48, and 4 x 4 x 3 x 2 = 96.
    #[test]
    fn moments_of_few_traces() {
        let mut spread = Spread::default();
        (0..4).for_each(|_| spread.add([(4.0, (1.0, 0.0))].into_iter()));
        let estimate = spread.of_sum(16.0);
        assert!(near(estimate.error, 48_f64.sqrt()) && !estimate.is_of_one);
        let skewness = 96.0 / 48_f64.powf(1.5);
        // Hall's transformation maps either end to the normal one.
        for (end, z) in [(estimate.low, Z), (estimate.high, -Z)] {
            let t = (16.0 - end.unwrap()) / 48_f64.sqrt();
            let g = t + skewness * t * t / 3.0 + skewness * skewness * t.powi(3) / 27.0 + skewness / 6.0;
            assert!((g - z).abs() < 1e-9, "{g} {z}");
        }
    }

    #[test]
    fn one_trace_is_told() {
        let mut spread = Spread::default();
        (0..4).for_each(|_| spread.add([(4.0, (1.0, 0.0))].into_iter()));
        spread.add([(4.0, (2.0, 0.0))].into_iter());
        // 4 of 8 parts of the variance.
        assert!(spread.of_sum(24.0).is_of_one);
        (0..4).for_each(|_| spread.add([(4.0, (1.0, 0.0))].into_iter()));
        // 4 of 12 parts are not more than a third.
        assert!(!spread.of_sum(40.0).is_of_one);
    }

    /// A ratio of equal parts has no error, whichever traces are kept.
    #[test]
    fn a_ratio_that_all_traces_have_is_exact() {
        let mut spread = Spread::default();
        for n in [1.0, 5.0, 2.0] {
            spread.add([(10.0, (3.0 * n, n))].into_iter());
        }
        let estimate = spread.of_ratio(3.0, 80.0);
        assert!(near(estimate.error, 0.0) && near(estimate.low, 3.0) && near(estimate.high, 3.0));
        // One trace alone shows nothing of the others.
        let mut spread = Spread::default();
        spread.add([(10.0, (3.0, 1.0))].into_iter());
        assert_eq!(spread.of_ratio(3.0, 10.0).high, None);
    }

    /// Where nearly nothing was dropped, the interval holds the number of what was seen.
    #[test]
    fn weights_near_one_have_intervals() {
        for (weight, count) in [(1.0005, 5), (1.000_001, 900), (1.3, 40), (1.9, 3)] {
            let mut spread = Spread::default();
            (0..count).for_each(|_| spread.add([(weight, (1.0, 0.0))].into_iter()));
            let sum = weight * f64::from(count);
            let estimate = spread.of_count(sum);
            let (low, high) = (estimate.low.unwrap(), estimate.high.unwrap());
            assert!(low <= sum && sum <= high, "{estimate:?}");
            // Most probably all were seen.
            assert!(weight > 1.01 || low <= f64::from(count) + 1e-9, "{estimate:?}");
        }
        // Traces that were kept for themselves add nothing to the estimate.
        let mut spread = Spread::default();
        (0..50).for_each(|n| spread.add([(f64::from(n % 10), (1.0, 0.0))].into_iter()));
        let sum = 5.0 * 45.0;
        assert!(spread.of_count(sum).low.unwrap() <= sum);
        (0..900).for_each(|_| spread.add([(0.0, (1.0, 0.0))].into_iter()));
        assert!(spread.of_count(sum).low.unwrap() <= sum, "{:?}", spread.of_count(sum));
        // A trace of unknown weight bounds nothing but itself.
        let mut spread = Spread::default();
        spread.add([(1.0, (1.0, 0.0))].into_iter());
        spread.note_unknown();
        assert_eq!((spread.of_count(1.0).low, spread.of_count(1.0).high), (Some(1.0), None));
        assert_eq!(spread.of_sum(1.0).low, None);
    }

    /// By hand: 100 traces of one value, kept with 1/2: n = 200, its variance 100 x 2 = 200; the
    /// rank of the median has the error (0.25 x 200)^0.5 / 200 = 0.0354.
    #[test]
    fn a_quantile_is_between_ranks() {
        let mut spread = Spread::default();
        (0..100).for_each(|_| spread.add([(2.0, (0.0, 1.0))].into_iter()));
        let at = |share: f64| Some(1000.0 * share);
        let estimate = spread.of_quantile(0.5, 200.0, at);
        let error = 50_f64.sqrt() / 200.0;
        assert!(near(estimate.low, 500.0 - 1960.0 * error) && near(estimate.high, 500.0 + 1960.0 * error));
        // Nothing seen bounds the largest ones.
        let estimate = spread.of_quantile(0.99, 200.0, at);
        assert!(estimate.low.is_some() && estimate.high.is_none());
    }
}
