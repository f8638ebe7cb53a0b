//! Against distributions worked out by hand, and against all combinations.

use super::*;

#[track_caller]
fn close(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance * expected.abs(), "{found}, should be {expected}");
}

/// Roots of gamma distributions with a known mean: an exponential's is sqrt(pi) / 2 times the root of its mean, and
/// that of a chi-squared of one degree is sqrt(2 / pi).
#[test]
fn roots_of_gamma_distributions() {
    use std::f64::consts::{FRAC_2_PI, PI};
    close(mean_of_root(Moments { mean: 4.0, variance: 16.0 }), PI.sqrt(), 2e-3);
    close(mean_of_root(Moments { mean: 1.0, variance: 2.0 }), FRAC_2_PI.sqrt(), 2e-3);
    // Of four degrees: sqrt(2) Gamma(5/2) / Gamma(2).
    close(mean_of_root(Moments { mean: 4.0, variance: 8.0 }), 2f64.sqrt() * 0.75 * PI.sqrt(), 5e-4);
    close(mean_of_root(Moments { mean: 9.0, variance: 0.0 }), 3.0, 0.0);
    close(mean_of_root(Moments { mean: 9.0, variance: 1e-300 }), 3.0, 1e-15);
    // The square of the mean divided by the variance is then close to the largest number.
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
    // Neither (0.375): 4^2 + 2^2 = 20. One alone (0.375 and 0.125): 2^2 + 2^2 = 8. Both (0.125): 0.
    close(found.mean, 0.375 * 20.0 + 0.5 * 8.0, 1e-12);
    close(found.variance, 0.375 * 400.0 + 0.5 * 64.0 - 11.5 * 11.5, 1e-12);
    let both = distance(whole, &Sums::default(), &pivots, &[1.0, 1.0, 0.0, 0.0]);
    assert_eq!(both, Moments::default());
    let none = distance(whole, &Sums::default(), &pivots, &[0.0; 4]);
    assert_eq!(none.mean, 20.0);
}

/// Many alike traces: the delta method becomes the textbook's. With n of N values kept at random, m has the variance
/// (1 - p) S^2 / n; normal values make that of s half as large.
#[test]
fn many_traces_by_the_textbook() {
    let (n_all, p) = (10_000, 0.1);
    let mut random = crate::random::Random::new(7, 0);
    // Sums of twelve uniform numbers are as good as normal here.
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
    // The fourth moment of this sum is 2.9 rather than a normal's 3.
    close(found.mean, variance_m * 1.475, 0.05);
}
