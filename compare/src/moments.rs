//! Means and their variances, of weighted values.
//!
//! For values x with weights w, the mean is Σwx / Σw, and the estimated variance of that mean is
//! n/(n-1) Σw²(x - mean)² / (Σw)² (C.-E. Särndal, B. Swensson and J. Wretman, "Model Assisted
//! Survey Sampling", 1992, ch. 5, for a ratio with replacement). With equal weights these are the
//! usual mean and s²/n.

/// The largest value that is summed: fourth powers of larger ones, in degrees of freedom, overflow.
pub const VALUE_MAX: f64 = 1e70;

/// True for numbers that can be summed.
pub fn is_usable(value: f64) -> bool {
    value.abs() <= VALUE_MAX
}

/// The weight of an instance; 1 if each counts once.
pub(super) fn weight_at(weights: Option<&[f64]>, at: usize) -> f64 {
    weights.map_or(1.0, |weights| weights[at])
}

/// Sums over values, added one by one without cancellation: the mean by Neumaier's summation, and
/// squares by Welford's update.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    n: u64,
    /// Σw and Σw².
    w: f64,
    u: f64,
    /// Σwx, and what rounding took from it: so a mean of whole numbers is exact.
    sum: f64,
    carry: f64,
    /// The mean of the values weighted by w².
    mean_u: f64,
    /// Σw²(x - mean_u)².
    square_u: f64,
}

impl Moments {
    /// Adds a value. Weights of 0 and less are ignored, and so are values beyond [`VALUE_MAX`].
    pub fn add(&mut self, value: f64, weight: f64) {
        if !is_usable(value) || !weight.is_finite() || weight <= 0.0 {
            return;
        }
        self.n += 1;
        self.w += weight;
        self.add_to_sum(weight * value);
        let square = weight * weight;
        self.u += square;
        let off = value - self.mean_u;
        self.mean_u += square / self.u * off;
        self.square_u += square * off * (value - self.mean_u);
    }

    fn add_to_sum(&mut self, value: f64) {
        let sum = self.sum + value;
        let (large, small) =
            if self.sum.abs() >= value.abs() { (self.sum, value) } else { (value, self.sum) };
        self.carry += (large - sum) + small;
        self.sum = sum;
    }

    /// Adds the values of other sums (T. Chan, G. Golub and R. LeVeque, 1979).
    pub fn merge(&mut self, other: &Self) {
        if other.n == 0 {
            return;
        }
        if self.n == 0 {
            *self = *other;
            return;
        }
        let w = self.w + other.w;
        self.add_to_sum(other.sum);
        self.carry += other.carry;
        let u = self.u + other.u;
        let off = other.mean_u - self.mean_u;
        self.mean_u += other.u / u * off;
        self.square_u += other.square_u + self.u * (other.u / u) * off * off;
        (self.n, self.w, self.u) = (self.n + other.n, w, u);
    }

    /// Adds zeros until the sums have as many values, and as much weight, as `all`. Does nothing if
    /// `all` has no more values than these sums.
    pub(super) fn add_zeros(&mut self, all: &Self) {
        if all.n > self.n {
            let rest =
                Moments { n: all.n - self.n, w: all.w - self.w, u: all.u - self.u, ..Moments::default() };
            self.merge(&rest);
        }
    }

    /// The number of values.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// The sum of weights.
    pub fn weight(&self) -> f64 {
        self.w
    }

    /// The weighted mean; NaN without values.
    pub fn mean(&self) -> f64 {
        if self.n == 0 { f64::NAN } else { (self.sum + self.carry) / self.w }
    }

    /// Kish's effective number of values, (Σw)²/Σw².
    pub fn effective(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.w * self.w / self.u }
    }

    /// The estimated variance of the mean; 0 with fewer than two values.
    pub fn variance_of_mean(&self) -> f64 {
        // Equal values have no variance, though their mean may be rounded.
        if self.n < 2 || self.square_u == 0.0 {
            return 0.0;
        }
        let n = self.n as f64;
        let off = self.mean() - self.mean_u;
        let square = self.square_u + self.u * off * off;
        n / (n - 1.0) * square / (self.w * self.w)
    }

    /// The standard deviation of the values, by n - 1.
    pub fn deviation(&self) -> f64 {
        (self.variance_of_mean() * self.n as f64).max(0.0).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(f64, f64)]) -> Moments {
        let mut all = Moments::default();
        values.iter().for_each(|&(value, weight)| all.add(value, weight));
        all
    }

    /// Values 1, 2, 6: the mean is 3, the squares 4, 1, 9 sum to 14, s² = 7, s²/n = 7/3. With
    /// weights 1, 1, 2 the mean is 15/4, Σw²(x - mean)² = 121/16 + 49/16 + 4 x 81/16 = 494/16,
    /// and 3/2 x 494/16 / 16 = 2.894...
    #[test]
    fn means_and_variances_are_those_worked_by_hand() {
        let plain = of(&[(1.0, 1.0), (2.0, 1.0), (6.0, 1.0)]);
        assert_eq!(plain.mean(), 3.0);
        assert!((plain.variance_of_mean() - 7.0 / 3.0).abs() < 1e-15);
        let weighted = of(&[(1.0, 1.0), (2.0, 1.0), (6.0, 2.0)]);
        assert_eq!(weighted.mean(), 3.75);
        assert!((weighted.variance_of_mean() - 1.5 * 494.0 / 256.0).abs() < 1e-14);
        assert!((weighted.effective() - 16.0 / 6.0).abs() < 1e-15);
    }

    #[test]
    fn equal_weights_of_any_size_change_nothing_but_rounding() {
        let values = [3.25, 9.5, -1.0, 7.75, 1e6];
        let plain = of(&values.map(|value| (value, 1.0)));
        let heavy = of(&values.map(|value| (value, (1u64 << 56) as f64)));
        assert!((plain.mean() / heavy.mean() - 1.0).abs() < 1e-14);
        assert!((plain.variance_of_mean() / heavy.variance_of_mean() - 1.0).abs() < 1e-14);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let mut random = astracer_testing::SplitMix::new(5);
        for _ in 0..100 {
            let mut value = || (1e3 + (random.next() >> 40) as f64, 1.0 + (random.next() >> 60) as f64);
            let all: Vec<(f64, f64)> = (0..40).map(|_| value()).collect();
            let (first, second) = all.split_at(13);
            let mut merged = of(first);
            merged.merge(&of(second));
            let whole = of(&all);
            assert_eq!(merged.n(), whole.n());
            for (a, b) in [
                (merged.mean(), whole.mean()),
                (merged.variance_of_mean(), whole.variance_of_mean()),
                (merged.effective(), whole.effective()),
            ] {
                assert!((a / b - 1.0).abs() < 1e-12, "{a} {b}");
            }
        }
    }

    #[test]
    fn equal_values_have_no_variance_at_all() {
        let same = of(&[(0.1, 3.0), (0.1, 1.0), (0.1, 7.0), (0.1, 1.0)]);
        assert_eq!(same.variance_of_mean(), 0.0);
        assert!((same.mean() - 0.1).abs() < 1e-16);
    }
}
