//! A probability: a number from 0 to 1, checked once.

use std::fmt;

/// A probability: finite, at least 0, at most 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Probability(f64);

impl Probability {
    /// Impossible.
    pub const ZERO: Probability = Probability(0.0);
    /// Certain.
    pub const ONE: Probability = Probability(1.0);

    /// `None` unless `value` is a number from 0 to 1.
    pub fn new(value: f64) -> Option<Self> {
        // `+ 0.0` turns -0.0 into 0.0, so that equal probabilities print the same.
        (0.0..=1.0).contains(&value).then_some(Probability(value + 0.0))
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_closed_unit_interval_only() {
        for good in [0.0, 1.0, 0.5, f64::MIN_POSITIVE] {
            assert_eq!(Probability::new(good).unwrap().get(), good);
        }
        for bad in [-0.1, 1.0000000000000002, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Probability::new(bad), None, "{bad}");
        }
        assert_eq!(Probability::new(-0.0).unwrap().to_string(), "0");
    }
}
