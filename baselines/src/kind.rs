//! A kind of baseline and its parameters.

use super::{Baseline, Keys};

/// A kind of baseline: its name, source, parameters and known bias.
#[derive(Debug)]
pub struct Kind {
    /// Its name, as in a [`BaselineSpec`](super::BaselineSpec).
    pub name: &'static str,
    /// A description, in one line.
    pub about: &'static str,
    /// The project, class or file, and version, in one line.
    pub source: &'static str,
    /// The known bias, and whether the weight that the original records is unbiased, in one line.
    pub bias: &'static str,
    /// The parameters. The first one controls the kept share.
    pub(super) parameters: &'static [Parameter],
    /// Whether a larger first parameter keeps more; if false, it keeps less.
    pub larger_keeps_more: bool,
    pub(super) build: fn(&[f64], &Keys) -> Box<dyn Baseline>,
}

/// A numeric parameter of a kind of baseline.
#[derive(Debug)]
pub(super) struct Parameter {
    /// Empty if the number stands alone, as in `ratio:0.1`.
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) default: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// The notation of a parameter, with an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// `0.05`
    Number,
    /// `10`
    Whole,
    /// `30s`: a time after which the baseline adapts, which may be shortened for a short recording.
    Seconds,
    /// `900s`: a time that users are promised, and that stays.
    Guarantee,
}

impl Unit {
    /// Whether the number is a time, which is written with an `s`.
    pub(super) fn is_time(self) -> bool {
        matches!(self, Self::Seconds | Self::Guarantee)
    }
}

impl Parameter {
    /// A number above 0 without a practical upper bound, for throughputs and average rates.
    pub(super) const fn positive(name: &'static str, default: f64) -> Self {
        Self { name, unit: Unit::Number, default, min: 1e-9, max: 1e12 }
    }

    /// A duration, from a millisecond to some 30 years.
    pub(super) const fn seconds(name: &'static str, default: f64) -> Self {
        Self { name, unit: Unit::Seconds, default, min: 1e-3, max: 1e9 }
    }

    pub(super) fn parse(&self, text: &str) -> Option<f64> {
        let digits = if self.unit.is_time() { text.strip_suffix('s')? } else { text };
        let value = digits.parse::<f64>().ok()?;
        let fits =
            (self.min..=self.max).contains(&value) && (self.unit != Unit::Whole || value.fract() == 0.0);
        fits.then_some(value)
    }
}
