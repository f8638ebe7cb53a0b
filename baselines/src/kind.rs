//! A kind of baseline and the numbers that it takes.

use super::{Baseline, Keys};

/// A kind of baseline: what it is called, where it comes from, and how it is known to be wrong.
#[derive(Debug)]
pub struct Kind {
    /// Its name, as in a [`BaselineSpec`](super::BaselineSpec).
    pub name: &'static str,
    /// One line: what it does.
    pub about: &'static str,
    /// One line: project, class or file, version.
    pub source: &'static str,
    /// One line: how it is biased, and whether the weight that the original records is true.
    pub bias: &'static str,
    /// The parameters. The first one controls the kept share.
    pub(super) parameters: &'static [Parameter],
    /// Whether a larger first parameter keeps more; else it keeps less.
    pub larger_keeps_more: bool,
    pub(super) build: fn(&[f64], &Keys) -> Box<dyn Baseline>,
}

/// A number that a kind of baseline takes.
#[derive(Debug)]
pub(super) struct Parameter {
    /// Empty where the number stands alone, as in `ratio:0.1`.
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) default: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// The notation of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// `0.05`
    Number,
    /// `10`
    Whole,
    /// `30s`
    Seconds,
}

impl Parameter {
    /// A number above 0, without a practical bound: throughputs and average rates.
    pub(super) const fn positive(name: &'static str, default: f64) -> Self {
        Self { name, unit: Unit::Number, default, min: 1e-9, max: 1e12 }
    }

    /// A length of time, from a millisecond to some 30 years.
    pub(super) const fn seconds(name: &'static str, default: f64) -> Self {
        Self { name, unit: Unit::Seconds, default, min: 1e-3, max: 1e9 }
    }

    pub(super) fn parse(&self, text: &str) -> Option<f64> {
        let digits = match self.unit {
            Unit::Seconds => text.strip_suffix('s')?,
            Unit::Number | Unit::Whole => text,
        };
        let value = digits.parse::<f64>().ok()?;
        let fits =
            (self.min..=self.max).contains(&value) && (self.unit != Unit::Whole || value.fract() == 0.0);
        fits.then_some(value)
    }
}
