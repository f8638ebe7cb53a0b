//! Bump: the more often a key was called in the current window, the less likely the next call is kept.
//!
//! Source: the ASTracer paper. With x calls recorded before this one, keep with probability max(f(x), minimum),
//! f(x) = 1 - exp(-lambda^2 / x^2), f(0) = 1. All counts return to 0 at each window's end.

mod curve;
mod policy;

pub(crate) use policy::BumpPolicy;

use crate::config::ConfigError;
use crate::nanos::Nanos;
use crate::probability::Probability;

/// The shortest window: a record numbers its windows in 32 bits, which then last for 49 days before a number comes
/// again (for windows of a second, 136 years).
const WINDOW_MIN: Nanos = Nanos::from_millis(1);

/// Bump's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Bump {
    lambda: f64,
    minimum: Probability,
    window: Nanos,
    shifted: bool,
}

impl Bump {
    /// The window if none is given: one second.
    pub const WINDOW_DEFAULT: Nanos = Nanos::from_secs(1);

    /// About `lambda` * sqrt(pi) calls of a key are kept in each window, and a share of `minimum` of all others. With
    /// `lambda` 0 the first call of each window is kept.
    ///
    /// # Errors
    ///
    /// If `lambda` is negative, infinite or not a number, or the window is shorter than a millisecond.
    pub fn new(lambda: f64, minimum: Probability, window: Nanos) -> Result<Self, ConfigError> {
        if !lambda.is_finite() || lambda < 0.0 {
            return Err(ConfigError::out_of_range(
                format!("lambda={lambda}"),
                "lambda is a number of calls, finite and at least 0; write for example lambda=10",
            ));
        }
        if window < WINDOW_MIN {
            return Err(ConfigError::out_of_range(
                format!("window={window}"),
                "a window lasts a millisecond or longer; write for example window=1s",
            ));
        }
        // `+ 0.0` turns -0.0 into 0.0, so that equal parameters print alike.
        Ok(Bump { lambda: lambda + 0.0, minimum, window, shifted: false })
    }

    /// Whether each key's windows are shifted by a hash of the key, so that what is kept does not all lie at the start
    /// of a second. Off unless asked for.
    #[must_use]
    pub fn shifted(self, shifted: bool) -> Self {
        Bump { shifted, ..self }
    }

    /// The count up to which calls are mostly kept.
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// The least probability.
    pub fn minimum(&self) -> Probability {
        self.minimum
    }

    /// The length of a window.
    pub fn window(&self) -> Nanos {
        self.window
    }

    /// Whether each key has its own windows.
    pub fn is_shifted(&self) -> bool {
        self.shifted
    }

    /// The probability that a call is kept before which `count` calls of the key were recorded in the window:
    /// max(f(count), minimum).
    pub fn probability(&self, count: u64) -> Probability {
        let f = if count == 0 {
            1.0
        } else {
            let ratio = self.lambda / count as f64;
            // 1 - exp(-r^2), without losing the digits of a small r^2.
            -(-ratio * ratio).exp_m1()
        };
        // f lies between 0 and 1 for every count; the fallback is for the type only.
        let f = Probability::new(f).unwrap_or(self.minimum);
        if f > self.minimum { f } else { self.minimum }
    }

    /// By how much the windows of this key are shifted: less than a window, and zero unless shifting is on. Depends on
    /// the key's bytes only, and is the same in every version.
    pub fn shift(&self, key: &str) -> Nanos {
        if !self.shifted {
            return Nanos::ZERO;
        }
        let hash = crate::table::hash(key.as_bytes());
        Nanos::new(((u128::from(hash) * u128::from(self.window.get())) >> 64) as u64)
    }

    /// The number of the window in which this key's call at `now` falls: (now + shift) / window.
    pub fn window_number(&self, key: &str, now: Nanos) -> u64 {
        now.saturating_add(self.shift(key)).get() / self.window.get()
    }
}
