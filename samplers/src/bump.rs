//! Bump: the more often a key was called lately, the less likely its next call is kept.
//!
//! Source: Song et al., "ASTracer: An Efficient Tracing Tool for HDFS with Adaptive Sampling", NPC
//! 2019 (<https://doi.org/10.1007/978-3-030-30709-7_9>). With x calls counted before this one, keep
//! with probability max(f(x), minimum), where f(x) = 1 - exp(-(lambda / x)^exponent) and f(0) = 1.
//! In the paper the exponent is 2 and x returns to 0 at the end of each window. Here x may decay
//! instead ([`Count::Decaying`]).

mod common;
mod curve;
mod decaying;
mod knee;
mod policy;
mod tumbling;

pub(crate) use curve::Curves;
pub use knee::{knee_factor, knee_factor_of};
pub(crate) use policy::BumpPolicy;
pub(crate) use tumbling::Tumbling;

use crate::config_error::ConfigError;
use crate::nanos::Nanos;
use crate::probability::Probability;

/// The shortest window and half-life. A record numbers windows in 32 bits: for windows this short a
/// number repeats after 49 days, for windows of a second after 136 years.
const PERIOD_MIN: Nanos = Nanos::from_millis(1);
/// The half-lives in calls of all keys.
const HALF_LIFE_CALLS: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;
/// Stands for no recorded share.
const NO_SHARE: f64 = -1.0;

/// Bump's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Bump {
    lambda: f64,
    exponent: f64,
    minimum: Probability,
    count: Count,
    /// The key's recorded share of calls; below 0 if it has none. (An option takes twice the
    /// memory, for each of 10,000 keys.)
    share: f64,
}

/// The way to count x, the number of a key's earlier calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Count {
    /// The key's calls in the current window.
    Tumbling {
        /// The length of a window.
        window: Nanos,
        /// Shifts each key's windows by a hash of the key. Otherwise the windows of all keys begin
        /// together, and their first calls, which are always kept, come in one burst.
        shifted: bool,
    },
    /// All of the key's earlier calls, each weighted by 1/2 for each half-life since then. There
    /// are no windows, and so no moment at which every key's next call is kept. Counts below 2^-24
    /// are 0.
    ///
    /// The number of kept calls is bounded. Let S be the supremum of x f(x): 0.638 lambda for an
    /// exponent of 2, lambda for an exponent of 1, and infinite for exponents below 1. Then a key
    /// keeps at most (S + 1) ln 2 / half-life + minimum * rate calls per second in the long run;
    /// see [`Bump::kept_per_second_max`].
    Decaying {
        /// The time in which a count halves.
        half_life: Nanos,
    },
    /// Like [`Count::Decaying`], but time runs with the slow rate of all calls: the half-life is a
    /// number of calls of all keys. Its length in seconds is the time that this number of calls
    /// takes at the mean rate of some 200 earlier calls. So the decisions for traffic that is ten
    /// times as fast stay the same, and bursts and pauses still count.
    Paced {
        /// The calls of all keys in which a count halves.
        half_life: u64,
    },
    /// Nothing is counted: each call is kept with the minimum probability, also a key's first one.
    /// For keys whose probability is known from a recording. Lambda and exponent have no effect.
    /// With [`Bump::with_share`], calls are counted after all.
    Uncounted,
}

impl Count {
    /// Whether a [recorded share](Bump::with_share) bounds what is kept under this count.
    pub fn takes_share(self) -> bool {
        matches!(self, Count::Uncounted | Count::Paced { .. })
    }
}

impl Bump {
    /// The paper's exponent.
    pub const EXPONENT_DEFAULT: f64 = 2.0;
    /// The window and the half-life if none is given: one second.
    pub const WINDOW_DEFAULT: Nanos = Nanos::from_secs(1);

    /// Bump with an exponent of 2 and tumbling windows. Each window keeps about `lambda` * sqrt(pi)
    /// calls of a key, and a share `minimum` of all others. With a `lambda` of 0 it keeps the first
    /// call, and the share `minimum` of the others.
    ///
    /// # Errors
    ///
    /// If `lambda` is negative, infinite or not a number, or if the window is shorter than a
    /// millisecond.
    pub fn new(lambda: f64, minimum: Probability, window: Nanos) -> Result<Self, ConfigError> {
        if !lambda.is_finite() || lambda < 0.0 {
            return Err(ConfigError::out_of_range(
                format!("lambda={lambda}"),
                "lambda must be a finite number of calls, at least 0, such as lambda=10",
            ));
        }
        check_period("window", window)?;
        let count = Count::Tumbling { window, shifted: false };
        // `+ 0.0` turns -0.0 into 0.0, so that equal parameters print the same.
        Ok(Bump { lambda: lambda + 0.0, exponent: Self::EXPONENT_DEFAULT, minimum, count, share: NO_SHARE })
    }

    /// The same parameters with another way of counting calls.
    ///
    /// # Errors
    ///
    /// If the window or the half-life is shorter than a millisecond.
    pub fn with_count(self, count: Count) -> Result<Self, ConfigError> {
        match count {
            Count::Tumbling { window, .. } => check_period("window", window)?,
            Count::Decaying { half_life } => check_period("tau", half_life)?,
            Count::Paced { half_life } if !HALF_LIFE_CALLS.contains(&half_life) => {
                return Err(ConfigError::out_of_range(
                    format!("tau={half_life}calls"),
                    "tau must be from 1 call to a billion calls, such as tau=2000calls",
                ));
            }
            Count::Paced { .. } => {}
            Count::Uncounted => {}
        }
        Ok(Bump { count, ..self })
    }

    /// The same parameters with another exponent.
    ///
    /// # Errors
    ///
    /// If the exponent is not from 0.1 to 10.
    pub fn with_exponent(self, exponent: f64) -> Result<Self, ConfigError> {
        if !(0.1..=10.0).contains(&exponent) {
            return Err(ConfigError::out_of_range(
                format!("exponent={exponent}"),
                "the exponent must be from 0.1 to 10, such as exponent=2",
            ));
        }
        Ok(Bump { exponent, ..self })
    }

    /// The same parameters with another minimum.
    #[must_use]
    pub fn with_minimum(self, minimum: Probability) -> Self {
        Bump { minimum, ..self }
    }

    /// The same parameters with the share of all recorded calls that the key had. It bounds an
    /// uncounted key: above four times its share among the keys present, it keeps as many calls as
    /// at four times its share. For x calls, whose weight halves with each 2,000 calls of all keys,
    /// the probability is the minimum times min(1, lambda / x), where lambda is 10 plus
    /// `4 share 2,000 / ln 2`. In the long run, the key's kept calls are at most a share of
    /// `minimum (4 share + 0.0035)` of all calls.
    ///
    /// It bounds a [`Count::Paced`] in the same way: lambda has the count's half-life in place of
    /// 2,000, and above lambda neither f nor the minimum keeps more calls than at it. No effect on
    /// other counts.
    #[must_use]
    pub fn with_share(self, share: Option<Probability>) -> Self {
        Bump { share: share.map_or(NO_SHARE, Probability::get), ..self }
    }

    /// Whether a count under these parameters means the same under the others: they differ in the
    /// minimum and the share at most.
    fn counts_as(&self, other: &Self) -> bool {
        Bump { share: other.share, ..self.clone().with_minimum(other.minimum) } == *other
    }

    /// Turns the shift of each key's windows on or off; see [`Count::Tumbling`]. No effect on other
    /// counts.
    #[must_use]
    pub fn shifted(self, shifted: bool) -> Self {
        match self.count {
            Count::Tumbling { window, .. } => Bump { count: Count::Tumbling { window, shifted }, ..self },
            Count::Decaying { .. } | Count::Paced { .. } | Count::Uncounted => self,
        }
    }

    /// Lambda: the count up to which most calls are kept.
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// The power of lambda / x in f(x).
    pub fn exponent(&self) -> f64 {
        self.exponent
    }

    /// The least probability with which a call is kept.
    pub fn minimum(&self) -> Probability {
        self.minimum
    }

    /// The way in which calls are counted.
    pub fn count(&self) -> Count {
        self.count
    }

    /// The share of all recorded calls; see [`Bump::with_share`].
    pub fn share(&self) -> Option<Probability> {
        Probability::new(self.share)
    }

    /// The probability that a call is kept if `count` calls of its key were counted before it:
    /// max(f(count), minimum). A tumbling count is a whole number; a decaying one need not be.
    pub fn probability(&self, count: f64) -> Probability {
        if self.count == Count::Uncounted {
            return self.minimum;
        }
        let f = self.f(count);
        if f > self.minimum { f } else { self.minimum }
    }

    fn f(&self, count: f64) -> Probability {
        let ratio = self.lambda / count;
        let power =
            if self.exponent == Self::EXPONENT_DEFAULT { ratio * ratio } else { ratio.powf(self.exponent) };
        // 1 - exp(-power), without losing the digits of a small power. A count of 0 gives 1 even if
        // lambda is 0 as well, where the ratio is 0 / 0.
        let f = if count > 0.0 { -(-power).exp_m1() } else { 1.0 };
        // f is from 0 to 1 for every count that is a number, so the fallback is only for the type.
        Probability::new(f).unwrap_or(self.minimum)
    }

    /// The greatest number of a key's calls that are kept per second in the long run, not counting
    /// the share `minimum` of all its calls. `None` if there is no such bound: for a decaying count
    /// with an exponent below 1, a tumbling one with an exponent of 1 or less, or a paced one,
    /// whose bound is per call of all keys.
    ///
    /// Proof for a tumbling window: the sum of f(x) over x >= 1 is at most the integral of f from
    /// 0, which is lambda * Gamma(1 - 1 / exponent). For a decaying count with half-life h, let
    /// W(x) be the integral of f(max(u - 1, 0)) for u from 0 to x. A call raises W by at least
    /// f(x). Decay lowers it by x f(max(x - 1, 0)) ln 2 / h per second, which is at most (S + 1) ln
    /// 2 / h because x f(x) <= S and f <= 1.
    pub fn kept_per_second_max(&self) -> Option<f64> {
        match self.count {
            Count::Tumbling { window, .. } => {
                let integral = match self.exponent {
                    Self::EXPONENT_DEFAULT => std::f64::consts::PI.sqrt(),
                    // Gamma(1 - 1/a) = a/(a-1) * Gamma(2 - 1/a), and Gamma is at most 1 on [1, 2].
                    exponent if exponent > 1.0 => exponent / (exponent - 1.0),
                    _ => return None,
                };
                Some((1.0 + self.lambda * integral) / window.as_secs_f64())
            }
            Count::Decaying { half_life } => {
                let supremum = self.lambda * supremum(self.exponent)?;
                Some((supremum + 1.0) * std::f64::consts::LN_2 / half_life.as_secs_f64())
            }
            Count::Paced { .. } => None,
            Count::Uncounted => Some(0.0),
        }
    }

    /// The time by which this key's windows are shifted: less than a window, and zero unless
    /// shifting is on. Depends only on the key's bytes, and is the same in every version.
    pub fn shift(&self, key: &str) -> Nanos {
        self.shift_of(crate::table::hash(key.as_bytes()))
    }

    /// As [`Bump::shift`], for the key with this hash.
    pub(crate) fn shift_of(&self, hash: u64) -> Nanos {
        match self.count {
            Count::Tumbling { window, shifted: true } => {
                Nanos::new(((u128::from(hash) * u128::from(window.get())) >> 64) as u64)
            }
            _ => Nanos::ZERO,
        }
    }

    /// The number of the window that this key's call at `now` falls into: (now + shift) / window.
    /// `None` if the count has no windows.
    pub fn window_number(&self, key: &str, now: Nanos) -> Option<u64> {
        match self.count {
            Count::Tumbling { window, .. } => Some(now.saturating_add(self.shift(key)).get() / window.get()),
            Count::Decaying { .. } | Count::Paced { .. } | Count::Uncounted => None,
        }
    }
}

fn check_period(name: &str, period: Nanos) -> Result<(), ConfigError> {
    if period < PERIOD_MIN {
        let subject = if name == "window" { "a window" } else { name };
        return Err(ConfigError::out_of_range(
            format!("{name}={period}"),
            format!("{subject} must last at least a millisecond, such as {name}=1s"),
        ));
    }
    Ok(())
}

/// The supremum over x > 0 of x (1 - exp(-x^-a)); `None` if it is infinite, for a < 1.
fn supremum(exponent: f64) -> Option<f64> {
    if exponent < 1.0 {
        return None;
    }
    // With y = x^-a this is y^(-1/a) (1 - e^-y), whose derivative is 0 where a y = e^y - 1; for a =
    // 1 the supremum is at y = 0. The root lies below 2 ln(a) + 2, where e^y - 1 > a y. Bisection
    // finds it to a double's precision.
    let (mut low, mut high) = (0.0, 2.0 * exponent.ln() + 2.0);
    for _ in 0..64 {
        let y: f64 = (low + high) / 2.0;
        if y.exp_m1() < exponent * y { low = y } else { high = y }
    }
    let y: f64 = high;
    Some(y.powf(-1.0 / exponent) * -(-y).exp_m1())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0.638 for an exponent of 2 and 1 for an exponent of 1 are the published values; the others
    /// are checked against a grid of 10^6 points.
    #[test]
    fn the_supremum_is_that_of_a_grid() {
        assert!((supremum(2.0).unwrap() - 0.638_172_686).abs() < 1e-8, "{:?}", supremum(2.0));
        assert!((supremum(1.0).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(supremum(0.99), None);
        for exponent in [1.2, 1.5, 3.0, 10.0] {
            let grid = (1..1_000_000).map(|i| f64::from(i) / 1e5);
            let largest = grid.map(|x| x * -(-x.powf(-exponent)).exp_m1()).fold(0.0, f64::max);
            let found = supremum(exponent).unwrap();
            assert!((found / largest - 1.0).abs() < 1e-3, "{exponent}: {found} {largest}");
        }
    }
}
