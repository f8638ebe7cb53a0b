//! The expected distance of a function's kept mean and standard deviation from those of the whole.

use super::pivots::PIVOTS;
use crate::statistics::MeanSd;
use crate::workload::Calls;

/// Rarer combinations are skipped, because they would add less than the error of the formula
/// itself.
const NEGLIGIBLE: f64 = 1e-9;
const FRAC_1_PI: f64 = std::f64::consts::FRAC_1_PI;

/// Sums over a function's traces except its pivots, where each trace is kept independently with
/// probability p.
///
/// c, d and q are as in [`Calls`]: the calls in a trace, and the sums of their deviations and
/// squared deviations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// Expected sums of c, d and q over the kept traces.
    pub(crate) expected: [f64; 3],
    /// Covariances of these sums: cc, cd, cq, dd, dq, qq, each the sum of p (1 - p) times the
    /// product.
    pub(crate) covariances: [f64; 6],
    /// Sum of ln(1 - p), without traces that are certainly kept.
    pub(crate) log_missing: f64,
    /// The number of keys that certainly keep a trace of the function.
    pub(crate) certain: u32,
    /// Sum of c^2 (1 - p) / p: the variance of the number of calls estimated by weights (Horvitz
    /// and Thompson).
    pub(crate) estimate_variance: f64,
}

/// Mean and variance of a random variable.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub(crate) mean: f64,
    pub(crate) variance: f64,
}

impl Sums {
    /// The probability that none of these traces is kept.
    pub(crate) fn missing(&self) -> f64 {
        // Rounding may leave a sum of logarithms slightly above 0.
        if self.certain > 0 { 0.0 } else { self.log_missing.min(0.0).exp() }
    }
}

/// The mean of a root: E[sqrt(X)] for an X >= 0 with these moments, assuming a gamma distribution.
///
/// With k = mean^2 / variance this is sqrt(mean) Gamma(k + 1/2) / (Gamma(k) sqrt(k)). By Watson
/// (1959), Gamma(k + 1/2) / Gamma(k) = k / sqrt(k + t), where t falls from 1/pi at k = 0 to 1/4 +
/// 1/(32 k) for large k.
pub(crate) fn mean_of_root(x: Moments) -> f64 {
    if x.mean <= 0.0 {
        return 0.0;
    }
    let k = x.mean * x.mean / x.variance;
    if !k.is_finite() {
        // The variance is negligible.
        return x.mean.sqrt();
    }
    let t = 0.25 + 1.0 / (32.0 * k + 1.0 / (FRAC_1_PI - 0.25));
    // This order of operations does not overflow if k is near the largest double.
    (x.mean * (k / (k + t))).sqrt()
}

/// The distribution of (m - M)^2 + (s - S)^2, where m and s are a function's mean and standard
/// deviation over the kept calls, and M and S those over the whole. If nothing is kept it is M^2 +
/// S^2. `found` gets an entry for each combination of pivots, with its probability.
///
/// Exact over the pivots (every combination is counted) and in the probability that nothing is
/// kept. Over the other traces it is of first order in the spread of the sums (the delta method for
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
            // Conditional on something being kept, sums and covariances are larger by this factor.
            let scale = 1.0 / (1.0 - missing);
            let expected = sums.expected.map(|sum| sum * scale);
            let given = given(whole.sd, expected, &sums.covariances, scale);
            found.push((probability * (1.0 - missing), given));
        }
    }
}

/// The moments of the same distance, given that something is kept, from the expected sums and their
/// covariances.
fn given(whole_sd: f64, [c, d, q]: [f64; 3], covariances: &[f64; 6], scale: f64) -> Moments {
    let &[cc, cd, cq, dd, dq, qq] = covariances;
    let scale = scale / (c * c);
    let offset = d / c;
    let square = q / c;
    // m - M = D / C has the gradient (-offset, 1) / C by (C, D).
    let variance_m = ((dd - 2.0 * offset * cd + offset * offset * cc) * scale).max(0.0);
    // s^2 = Q / C - (D / C)^2 has the gradient (-g, -2 offset, 1) / C by (C, D, Q).
    let g = square - 2.0 * offset * offset;
    let variance_s2 = ((qq + 4.0 * offset * offset * dd + g * g * cc - 4.0 * offset * dq - 2.0 * g * cq
        + 4.0 * offset * g * cd)
        * scale)
        .max(0.0);
    // The kept mean absorbs part of the spread: E[s^2] = E[Q / C] - E[(m - M)^2].
    let mean_s2 = (square - offset * offset - variance_m).max(0.0);
    let mean_s = mean_of_root(Moments { mean: mean_s2, variance: variance_s2 });
    let variance_s = (mean_s2 - mean_s * mean_s).max(0.0);
    let shift = mean_s - whole_sd;
    Moments {
        mean: offset * offset + variance_m + shift * shift + variance_s,
        // The variance of the sum of squares of two independent normal variables.
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
