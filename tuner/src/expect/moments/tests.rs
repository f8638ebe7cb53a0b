//! Compares with distributions worked out by hand, and with all combinations.

use super::*;

#[track_caller]
fn close(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance * expected.abs(), "{found}, should be {expected}");
}

/// Roots of gamma distributions with known means. For an exponential distribution it is sqrt(pi) /
/// 2 times the root of the mean; for a chi-squared distribution with one degree of freedom it is
/// sqrt(2 / pi).
#[test]
fn roots_of_gamma_distributions() {
    use std::f64::consts::{FRAC_2_PI, PI};
    close(mean_of_root(Moments { mean: 4.0, variance: 16.0 }), PI.sqrt(), 2e-3);
    close(mean_of_root(Moments { mean: 1.0, variance: 2.0 }), FRAC_2_PI.sqrt(), 2e-3);
    // Four degrees of freedom: sqrt(2) Gamma(5/2) / Gamma(2).
    close(mean_of_root(Moments { mean: 4.0, variance: 8.0 }), 2f64.sqrt() * 0.75 * PI.sqrt(), 5e-4);
    close(mean_of_root(Moments { mean: 9.0, variance: 0.0 }), 3.0, 0.0);
    close(mean_of_root(Moments { mean: 9.0, variance: 1e-300 }), 3.0, 1e-15);
    // Here mean^2 / variance is near the largest double.
    close(mean_of_root(Moments { mean: 1e6, variance: 1e-295 }), 1e3, 1e-15);
    assert_eq!(mean_of_root(Moments::default()), 0.0);
}

/// Mean and variance over all combinations.
fn distance(whole: MeanSd, sums: &Sums, pivots: &[Calls], kept: &[f64]) -> Moments {
    let mut found = Vec::new();
    distances(whole, sums, pivots, kept, &mut found);
    let mean = found.iter().map(|(p, given)| p * given.mean).sum::<f64>();
    let second: f64 = found.iter().map(|(p, given)| p * (given.variance + given.mean * given.mean)).sum();
    Moments { mean, variance: second - mean * mean }
}

fn calls(count: u32, deviation: f64, deviation_squared: f64) -> Calls {
    Calls { function: 0, count, deviation, deviation_squared, max_ns: 0 }
}

const NOTHING: Calls = Calls { function: 0, count: 0, deviation: 0.0, deviation_squared: 0.0, max_ns: 0 };

/// A function with two calls, 2 ms and 6 ms, in two traces: M = 4, S = 2, deviations -2 and +2.
#[test]
fn two_traces_by_hand() {
    let whole = MeanSd { mean: 4.0, sd: 2.0 };
    let pivots = [calls(1, -2.0, 4.0), calls(1, 2.0, 4.0), NOTHING, NOTHING];
    let found = distance(whole, &Sums::default(), &pivots, &[0.5, 0.25, 0.0, 0.0]);
    // Neither is kept (0.375): 4^2 + 2^2 = 20. Only one (0.375 and 0.125): 2^2 + 2^2 = 8. Both
    // (0.125): 0.
    close(found.mean, 0.375 * 20.0 + 0.5 * 8.0, 1e-12);
    close(found.variance, 0.375 * 400.0 + 0.5 * 64.0 - 11.5 * 11.5, 1e-12);
    let both = distance(whole, &Sums::default(), &pivots, &[1.0, 1.0, 0.0, 0.0]);
    assert_eq!(both, Moments::default());
    let none = distance(whole, &Sums::default(), &pivots, &[0.0; 4]);
    assert_eq!(none.mean, 20.0);
}

/// For many similar traces, the delta method gives the textbook formula: if n of N values are kept
/// at random, m has the variance (1 - p) S^2 / n, and for normal values s has half of it.
#[test]
fn many_traces_by_the_textbook() {
    let (n_all, p) = (10_000, 0.1);
    let mut random = crate::random::Random::new(7, 0);
    // A sum of twelve uniform numbers is close enough to normal here.
    let values: Vec<f64> = (0..n_all).map(|_| (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0).collect();
    let whole = MeanSd::of(values.iter().copied());
    let mut sums = Sums::default();
    for value in &values {
        let d = value - whole.mean;
        let q = d * d;
        for (sum, term) in sums.expected.iter_mut().zip([1.0, d, q]) {
            *sum += p * term;
        }
        for (sum, term) in sums.covariances.iter_mut().zip([1.0, d, q, d * d, d * q, q * q]) {
            *sum += p * (1.0 - p) * term;
        }
        sums.log_missing += (1.0f64 - p).ln();
    }
    let found = distance(whole, &sums, &[NOTHING; PIVOTS], &[0.0; PIVOTS]);
    let variance_m = (1.0 - p) * whole.sd * whole.sd / (f64::from(n_all) * p);
    // The kurtosis of this sum is 2.9, while that of a normal distribution is 3.
    close(found.mean, variance_m * 1.475, 0.05);
}

/// Sums far from those of the whole. The slopes of the kept mean and standard deviation, as
/// functions of C, D and Q, come from central differences. The squares of two independent normal
/// variables follow the textbook: E[X^2] = m^2 + v, with the variance 2 v^2 + 4 m^2 v.
#[test]
fn the_delta_method_has_the_slopes_of_mean_and_deviation() {
    let at = [40.0, 25.0, 300.0];
    // Six kinds of traces with p (1 - p) between 0.05 and 0.25, so that the covariances are
    // possible ones.
    let kinds = [
        (0.25, [1.0, 4.0, 16.0]),
        (0.2, [2.0, -3.0, 5.0]),
        (0.1, [1.0, -1.5, 2.25]),
        (0.05, [5.0, 7.0, 20.0]),
        (0.15, [3.0, 0.5, 9.0]),
        (0.21, [1.0, 6.0, 36.0]),
    ];
    let covariance =
        |one: usize, other: usize| kinds.iter().map(|(v, of)| v * of[one] * of[other]).sum::<f64>();
    let covariances =
        [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)].map(|(one, other)| covariance(one, other));
    let variance = |of: &dyn Fn([f64; 3]) -> f64| {
        let slope = |place: usize| {
            let step = |by: f64| {
                let mut moved = at;
                moved[place] += by;
                of(moved)
            };
            (step(1e-4) - step(-1e-4)) / 2e-4
        };
        let pairs = (0..3).flat_map(|one| (0..3).map(move |other| (one, other)));
        pairs.map(|(one, other)| slope(one) * slope(other) * covariance(one, other)).sum::<f64>()
    };
    for scale in [1.0, 1.5] {
        let offset = at[1] / at[0];
        let of_mean = scale * variance(&|[c, d, _]| d / c);
        let of_square = scale * variance(&|[c, d, q]| q / c - (d / c).powi(2));
        let square = at[2] / at[0] - offset * offset - of_mean;
        let deviation = mean_of_root(Moments { mean: square, variance: of_square });
        let (whole_sd, of_deviation) = (1.25, square - deviation * deviation);
        let shift = deviation - whole_sd;
        let found = given(whole_sd, at, &covariances, scale);
        close(found.mean, offset * offset + of_mean + shift * shift + of_deviation, 1e-6);
        let variance = |mean: f64, variance: f64| 2.0 * variance * variance + 4.0 * mean * mean * variance;
        close(found.variance, variance(offset, of_mean) + variance(shift, of_deviation), 1e-6);
    }
}

/// A function without pivots, all of whose traces are missed with probability 1/4. This case has
/// its own entry, and the other entry has 4/3 of the sums.
#[test]
fn sums_are_those_given_that_something_is_kept() {
    let whole = MeanSd { mean: 3.0, sd: 2.0 };
    let covariances = [0.5, 0.1, 0.3, 0.8, 0.2, 2.0];
    let sums = Sums { expected: [6.0, 1.5, 27.0], covariances, log_missing: 0.25f64.ln(), ..Sums::default() };
    let mut found = Vec::new();
    distances(whole, &sums, &[NOTHING; PIVOTS], &[0.0; PIVOTS], &mut found);
    let [(missed, missing), (kept, something)] = found[..] else { panic!("{found:?}") };
    close(missed, 0.25, 1e-12);
    assert_eq!(missing, Moments { mean: 13.0, variance: 0.0 });
    close(kept, 0.75, 1e-12);
    let expected = given(2.0, [8.0, 2.0, 36.0], &covariances, 4.0 / 3.0);
    close(something.mean, expected.mean, 1e-12);
    close(something.variance, expected.variance, 1e-12);
    // A pivot that is kept half the time. If it is kept, the sums are its own plus the unscaled
    // ones of the other traces.
    let pivots = [calls(2, 5.0, 13.0), NOTHING, NOTHING, NOTHING];
    distances(whole, &sums, &pivots, &[0.5, 0.0, 0.0, 0.0], &mut found);
    let [(missed, _), (kept, without), (with, held)] = found[..] else { panic!("{found:?}") };
    close(missed, 0.125, 1e-12);
    close(kept, 0.375, 1e-12);
    assert_eq!(without, something);
    close(with, 0.5, 1e-12);
    let expected = given(2.0, [8.0, 6.5, 40.0], &covariances, 1.0);
    close(held.mean, expected.mean, 1e-12);
    close(held.variance, expected.variance, 1e-12);
}
