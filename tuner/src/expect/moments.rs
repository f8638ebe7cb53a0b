//! Expected distance of a function's kept mean and deviation from those of the whole.

use super::pivots::PIVOTS;
use crate::statistics::MeanSd;
use crate::workload::Calls;

/// Combinations that are rarer are left out; what they would add is below the formula's own error.
const NEGLIGIBLE: f64 = 1e-9;
const FRAC_1_PI: f64 = std::f64::consts::FRAC_1_PI;

/// Sums over a function's traces (but its pivots), each trace kept on its own with probability p.
///
/// c, d and q are as in [`Calls`]: the calls in a trace, and the sums of their deviations and
/// squared deviations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// Expected sums of c, d and q over what is kept.
    pub(crate) expected: [f64; 3],
    /// Their covariances: cc, cd, cq, dd, dq, qq, each the sum of p (1 - p) times the product.
    pub(crate) covariances: [f64; 6],
    /// Sum of ln(1 - p), without traces that are kept for certain.
    pub(crate) log_missing: f64,
    /// Keys that keep a trace of the function for certain.
    pub(crate) certain: u32,
    /// Sum of c^2 (1 - p) / p: the variance of the number of calls estimated by weights (Horvitz
    /// and Thompson).
    pub(crate) estimate_variance: f64,
}

/// Mean and variance of a random number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub(crate) mean: f64,
    pub(crate) variance: f64,
}

impl Sums {
    /// The probability that none of these traces is kept.
    pub(crate) fn missing(&self) -> f64 {
        // Rounding may leave a sum of logarithms a little above 0.
        if self.certain > 0 { 0.0 } else { self.log_missing.min(0.0).exp() }
    }
}

/// The mean of a root: E[sqrt(X)] of an X >= 0 with these moments, as if X had a gamma
/// distribution.
///
/// With k = mean^2 / variance it is sqrt(mean) Gamma(k + 1/2) / (Gamma(k) sqrt(k)), and by Watson
/// (1959) Gamma(k + 1/2) / Gamma(k) = k / sqrt(k + t), where t falls from 1/pi at k = 0 to 1/4 +
/// 1/(32 k) for large k.
pub(crate) fn mean_of_root(x: Moments) -> f64 {
    if x.mean <= 0.0 {
        return 0.0;
    }
    let k = x.mean * x.mean / x.variance;
    if !k.is_finite() {
        // There is no variance to speak of.
        return x.mean.sqrt();
    }
    let t = 0.25 + 1.0 / (32.0 * k + 1.0 / (FRAC_1_PI - 0.25));
    // In this order, since k may be close to the largest number there is.
    (x.mean * (k / (k + t))).sqrt()
}

/// The distribution of (m - M)^2 + (s - S)^2, where m and s are mean and deviation of a function
/// over the kept part, and M and S those over the whole; M^2 + S^2 if nothing is kept. One entry
/// for each combination of pivots, with its probability.
///
/// Exact over the pivots (every combination is counted) and in the probability that nothing is
/// kept; for the other traces of first order in the spread of the sums (the delta method for
/// ratios).
pub(crate) fn distances(
    whole: MeanSd,
    sums: &Sums,
    pivots: &[Calls],
    kept: &[f64],
    found: &mut Vec<(f64, Moments)>,
) {
    found.clear();
    let missing = sums.missing();
    let at_missing = whole.mean * whole.mean + whole.sd * whole.sd;
    let mut certain = [0.0; 3];
    let mut open = [(0.0, [0.0; 3]); PIVOTS];
    let mut open_count = 0;
    for (calls, &p) in pivots.iter().zip(kept).filter(|(calls, _)| calls.count > 0) {
        let values = [f64::from(calls.count), calls.deviation, calls.deviation_squared];
        if p >= 1.0 {
            certain = plus(certain, values);
        } else if p > 0.0 {
            open[open_count] = (p, values);
            open_count += 1;
        }
    }
    for combination in 0..1u32 << open_count {
        let (mut probability, mut held) = (1.0, certain);
        for (bit, &(p, values)) in open[..open_count].iter().enumerate() {
            if combination >> bit & 1 == 1 {
                probability *= p;
                held = plus(held, values);
            } else {
                probability *= 1.0 - p;
            }
        }
        if probability < NEGLIGIBLE {
            continue;
        }
        if held[0] > 0.0 {
            found.push((probability, given(whole.sd, plus(held, sums.expected), &sums.covariances, 1.0)));
            continue;
        }
        if missing > 0.0 {
            found.push((probability * missing, Moments { mean: at_missing, variance: 0.0 }));
        }
        if missing < 1.0 && sums.expected[0] > 0.0 {
            // Given that something is kept, sums and covariances are larger by this.
            let scale = 1.0 / (1.0 - missing);
            let expected = sums.expected.map(|sum| sum * scale);
            let given = given(whole.sd, expected, &sums.covariances, scale);
            found.push((probability * (1.0 - missing), given));
        }
    }
}

/// The same given expected sums and covariances of what is kept, something being kept.
fn given(whole_sd: f64, [c, d, q]: [f64; 3], covariances: &[f64; 6], scale: f64) -> Moments {
    let &[cc, cd, cq, dd, dq, qq] = covariances;
    let scale = scale / (c * c);
    let offset = d / c;
    let square = q / c;
    // m - M = D / C: its gradient by (C, D) is (-offset, 1) / C.
    let variance_m = ((dd - 2.0 * offset * cd + offset * offset * cc) * scale).max(0.0);
    // s^2 = Q / C - (D / C)^2: its gradient by (C, D, Q) is (-g, -2 offset, 1) / C.
    let g = square - 2.0 * offset * offset;
    let variance_s2 = ((qq + 4.0 * offset * offset * dd + g * g * cc - 4.0 * offset * dq - 2.0 * g * cq
        + 4.0 * offset * g * cd)
        * scale)
        .max(0.0);
    // The kept mean takes up some of the spread: E[s^2] = E[Q / C] - E[(m - M)^2].
    let mean_s2 = (square - offset * offset - variance_m).max(0.0);
    let mean_s = mean_of_root(Moments { mean: mean_s2, variance: variance_s2 });
    let variance_s = (mean_s2 - mean_s * mean_s).max(0.0);
    let shift = mean_s - whole_sd;
    Moments {
        mean: offset * offset + variance_m + shift * shift + variance_s,
        // Of the squares of two independent normal numbers with these means and variances.
        variance: 2.0 * variance_m * variance_m
            + 4.0 * offset * offset * variance_m
            + 2.0 * variance_s * variance_s
            + 4.0 * shift * shift * variance_s,
    }
}

fn plus(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

#[cfg(test)]
mod tests;
