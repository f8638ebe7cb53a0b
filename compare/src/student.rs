//! Student's t distribution: tail probabilities down to the smallest numbers, and quantiles.
//!
//! The two-sided p of t with v degrees of freedom is the regularised incomplete beta function
//! I(v / (v + t²); v/2, 1/2) (Abramowitz and Stegun, 26.7.1), here by its continued fraction (DLMF
//! 8.17.22).

use std::f64::consts::PI;

/// The continued fraction needs about the square root of the degrees of freedom.
const STEPS_MAX: u32 = 100_000;

/// The two-sided p-value of `t` with `df` degrees of freedom, which need not be whole. NaN if
/// either is NaN or `df` is not positive. The relative error is below 1e-9 down to 1e-300.
pub fn two_sided(t: f64, df: f64) -> f64 {
    if t.is_nan() || df.is_nan() || df <= 0.0 {
        return f64::NAN;
    }
    let ratio = t * t / df;
    if ratio.is_infinite() {
        return 0.0;
    }
    let (a, b) = (df / 2.0, 0.5);
    // x^a (1 - x)^b / B(a, b), by logarithms where the powers are small.
    let ln_x = -ratio.ln_1p();
    let x = ln_x.exp();
    let other = ratio / (1.0 + ratio);
    let front = (a * ln_x).exp() * other.sqrt() * gamma_ratio(a) / PI.sqrt();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(a, b, x) / a
    } else {
        1.0 - front * fraction(b, a, other) / b
    }
}

/// The value of t that leaves `p` in both tails together.
pub fn quantile(p: f64, df: f64) -> f64 {
    if !(p > 0.0 && p < 1.0 && df > 0.0) {
        return f64::NAN;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, df) > p && high < 1e300 {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if two_sided(middle, df) > p { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// Γ(a + 1/2) / Γ(a): the asymptotic series (DLMF 5.11.13) far from 0, and steps down to `a`.
fn gamma_ratio(a: f64) -> f64 {
    let (mut at, mut factor) = (a, 1.0);
    while at < 20.0 {
        factor *= at / (at + 0.5);
        at += 1.0;
    }
    let inverse = 1.0 / at;
    let square = inverse * inverse;
    let series = -inverse
        * (1.0 / 8.0
            - square
                * (1.0 / 192.0
                    - square * (1.0 / 640.0 - square * (17.0 / 14_336.0 - square * (31.0 / 18_432.0)))));
    factor * at.sqrt() * series.exp()
}

/// The continued fraction of the incomplete beta function, by Lentz's method.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    for step in 1..STEPS_MAX {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / away_from_zero(1.0 + even * d);
        c = away_from_zero(1.0 + even / c);
        result *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / away_from_zero(1.0 + odd * d);
        c = away_from_zero(1.0 + odd / c);
        let change = d * c;
        result *= change;
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One degree of freedom is Cauchy's distribution, and two have a closed form too.
    #[test]
    fn one_and_two_degrees_of_freedom_have_closed_forms() {
        for t in [1e-6, 0.1, 0.5, 1.0, 3.0, 12.7, 1e3, 1e6] {
            let cauchy = 2.0 * (1.0f64 / t).atan() / PI;
            let two = 2.0 / ((t * t + 2.0).sqrt() * ((t * t + 2.0).sqrt() + t));
            for (df, want) in [(1.0, cauchy), (2.0, two)] {
                let got = two_sided(t, df);
                assert!((got / want - 1.0).abs() < 1e-12, "{t} {df}: {got} {want}");
            }
        }
    }

    /// By the power series of the incomplete beta function in decimal arithmetic of 60 digits. The
    /// second is also what scipy 1.17 says.
    #[test]
    fn tails_are_exact_down_to_the_smallest_numbers() {
        for (t, df, want) in TABLE {
            let got = two_sided(t, df);
            assert!((got / want - 1.0).abs() < 1e-10, "{t} {df}: {got:e} {want:e}");
            assert_eq!(two_sided(-t, df), got);
        }
        assert_eq!(two_sided(0.0, 3.0), 1.0);
        assert_eq!(two_sided(f64::INFINITY, 3.0), 0.0);
        assert!(two_sided(f64::NAN, 3.0).is_nan() && two_sided(1.0, 0.0).is_nan());
    }

    const TABLE: [(f64, f64, f64); 8] = [
        (2.5, 3.0, 8.770_664_700_806_555e-2),
        (7.767_631_909_654_481, 1_010.708_027_504_352_3, 1.956_938_728_195_145e-14),
        (60.0, 100.5, 1.619_558_115_954_554_4e-80),
        (1.5, 1.25, 3.373_375_535_307_625e-1),
        (30.0, 9.0, 2.483_704_704_158_262_4e-10),
        (45.0, 200.0, 1.383_950_762_597_638_8e-106),
        (5.0, 4.75, 4.727_580_552_107_144e-3),
        (1e6, 49.0, 2.913_602_809_434_414e-254),
    ];

    /// From the printed tables of the distribution.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (df, want) in [(1.0, 12.706), (2.0, 4.303), (5.0, 2.571), (30.0, 2.042), (1e6, 1.960)] {
            assert!((quantile(0.05, df) - want).abs() < 6e-4, "{df}");
        }
    }
}
