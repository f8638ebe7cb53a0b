//! Welch's t-test of two means with different variances.

use serde::Serialize;

use super::moments::Moments;
use super::student;

/// The result of a t-test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Test {
    /// The number of values in the good and in the bad class.
    pub n: [u64; 2],
    /// The means of both classes.
    pub means: [f64; 2],
    /// The difference of the means, good less bad, by its standard error.
    pub t: f64,
    /// Degrees of freedom by Welch and Satterthwaite.
    pub df: f64,
    /// The two-sided p-value.
    pub p: f64,
}

/// Tests whether two means differ. `None` if a class has fewer than two values, or if neither
/// class has any variance.
pub fn welch(good: &Moments, bad: &Moments) -> Option<Test> {
    if good.n() < 2 || bad.n() < 2 {
        return None;
    }
    let parts = [(1.0, good), (1.0, bad)].map(|(share, moments)| Part::new(share, moments));
    let (variance, df) = satterthwaite(&parts)?;
    let t = (good.mean() - bad.mean()) / variance.sqrt();
    Some(Test {
        n: [good.n(), bad.n()],
        means: [good.mean(), bad.mean()],
        t,
        df,
        p: student::two_sided(t, df),
    })
}

/// One mean's part in the variance of a weighted sum of means.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    variance: f64,
    df: f64,
}

impl Part {
    /// The part of a mean that enters the sum with a factor of `share`.
    pub(super) fn new(share: f64, moments: &Moments) -> Self {
        Part { variance: share * share * moments.variance_of_mean(), df: moments.effective() - 1.0 }
    }
}

/// The variance of a sum of means, and its degrees of freedom (F. Satterthwaite, 1946). `None`
/// without variance.
pub(super) fn satterthwaite(parts: &[Part]) -> Option<(f64, f64)> {
    let variance: f64 = parts.iter().map(|part| part.variance).sum();
    if variance.is_nan() || variance <= 0.0 || variance.is_infinite() {
        return None;
    }
    let share = |part: &Part| (part.variance / variance).powi(2) / part.df.max(f64::MIN_POSITIVE);
    let below: f64 = parts.iter().filter(|part| part.variance > 0.0).map(share).sum();
    Some((variance, 1.0 / below))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Welch's formulas by hand: 1, 2, 3 against 4, 6, 8, 10. Means 2 and 7, variances of the means
    /// 1/3 and 20/12; t = -5/√2; df = 4 / (1/9/2 + 25/9/3) = 108/26.5.
    #[test]
    fn a_test_worked_by_hand() {
        let of = |values: &[f64]| {
            let mut moments = Moments::default();
            values.iter().for_each(|&value| moments.add(value, 1.0));
            moments
        };
        let test = welch(&of(&[1.0, 2.0, 3.0]), &of(&[4.0, 6.0, 8.0, 10.0])).expect("a test");
        assert_eq!((test.n, test.means), ([3, 4], [2.0, 7.0]));
        assert!((test.t + 5.0 / 2.0f64.sqrt()).abs() < 1e-14, "{}", test.t);
        assert!((test.df - 4.0 / (1.0 / 18.0 + 25.0 / 27.0)).abs() < 1e-13, "{}", test.df);
        assert!(welch(&of(&[1.0]), &of(&[1.0, 2.0])).is_none(), "one value has no variance");
        assert!(welch(&of(&[1.0, 1.0]), &of(&[2.0, 2.0])).is_none(), "nothing varies");
        assert!(welch(&of(&[1.0, 1.0]), &of(&[2.0, 3.0])).is_some());
    }
}
