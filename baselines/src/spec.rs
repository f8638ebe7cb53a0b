//! The choice of a baseline and its parameters, as values and as text.

use std::fmt;
use std::str::FromStr;

use super::kind::{Kind, Parameter, Unit};
use super::{Baseline, Keys, brave, consistent_rate, dynsampler, fixed, grafana, jaeger, water_fill, xray};

/// The number of divisors that are tried. The greatest is 5 * 10^9.
const DIVISORS_MAX: usize = 30;

/// Every kind of baseline.
pub(super) static KINDS: &[&Kind] = &[
    &fixed::RATIO,
    &fixed::EVERY_NTH,
    &dynsampler::AVERAGE_RATE,
    &dynsampler::MOVING_RATE,
    &dynsampler::MOVING_THROUGHPUT,
    &dynsampler::PER_KEY_THROUGHPUT,
    &dynsampler::TOTAL_THROUGHPUT,
    &dynsampler::WINDOWED_THROUGHPUT,
    &grafana::DIVERSITY,
    &jaeger::ADAPTIVE,
    &jaeger::GUARANTEED,
    &water_fill::KIND,
    &brave::KIND,
    &consistent_rate::KIND,
    &xray::KIND,
];

/// A baseline and its parameters. [`FromStr`] reads, and [`Display`](fmt::Display) prints, this
/// text:
///
/// ```text
/// dynsampler-avg:goal=10,period=30s    parameters by name; missing ones have their defaults
/// dynsampler-avg                       all defaults
/// ratio:0.1  every:10                  a single number, as for our own samplers
/// ```
#[derive(Clone)]
pub struct BaselineSpec {
    kind: &'static Kind,
    values: Vec<f64>,
}

impl fmt::Debug for BaselineSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BaselineSpec").field(&format_args!("{self}")).finish()
    }
}

impl PartialEq for BaselineSpec {
    fn eq(&self, other: &Self) -> bool {
        self.kind.name == other.kind.name && self.values == other.values
    }
}

impl BaselineSpec {
    pub(super) fn with_defaults(kind: &'static Kind) -> Self {
        Self { kind, values: kind.parameters.iter().map(|parameter| parameter.default).collect() }
    }

    /// The kind of baseline.
    pub fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// Builds the baseline, before its first call, for a workload with these keys.
    pub fn build(&self, keys: &Keys) -> Box<dyn Baseline> {
        (self.kind.build)(&self.values, keys)
    }

    /// The value of the first parameter, which controls the kept share.
    pub fn knob(&self) -> f64 {
        self.values[0]
    }

    /// The same baseline with another value of the first parameter, rounded if it is a whole
    /// number, and clamped to its range.
    #[must_use]
    pub fn with_knob(&self, knob: f64) -> Self {
        let parameter = self.knob_parameter();
        let knob = if parameter.unit == Unit::Whole { knob.round() } else { knob };
        let mut changed = self.clone();
        changed.values[0] = knob.clamp(parameter.min, parameter.max);
        changed
    }

    /// The same baseline with all its times divided by one number: the first of 1, 2, 5, 10, 20, 50
    /// and so on with which each time passes at least [`Self::PERIODS_MIN`] times in a recording of
    /// that many seconds.
    ///
    /// Recordings are often shorter than the half minute or minute after which many baselines first
    /// adapt. With their default times, such baselines would only show how they start.
    #[must_use]
    pub fn quickened_for(&self, recording_s: f64) -> Self {
        let mut changed = self.clone();
        let values = changed.values.iter_mut().zip(self.kind.parameters);
        let mut times: Vec<_> = values.filter(|(_, parameter)| parameter.unit == Unit::Seconds).collect();
        let longest_s = times.iter().map(|(time, _)| **time).fold(0.0, f64::max);
        let divisors = (0..).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
        let fits = |divisor: &f64| longest_s / divisor * Self::PERIODS_MIN <= recording_s;
        let divisor = divisors.take(DIVISORS_MAX).find(fits).unwrap_or(1.0);
        for (time, parameter) in &mut times {
            **time = (**time / divisor).max(parameter.min);
        }
        changed
    }

    /// The least number of periods of a quickened baseline within a recording.
    pub const PERIODS_MIN: f64 = 10.0;

    /// The least and the greatest value of the first parameter.
    pub fn knob_range(&self) -> (f64, f64) {
        let parameter = self.knob_parameter();
        (parameter.min, parameter.max)
    }

    /// Whether the first parameter is a whole number.
    pub fn knob_is_whole(&self) -> bool {
        self.knob_parameter().unit == Unit::Whole
    }

    fn knob_parameter(&self) -> &'static Parameter {
        &self.kind.parameters[0]
    }
}

impl fmt::Display for BaselineSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name)?;
        let mut separator = ':';
        for (parameter, value) in self.kind.parameters.iter().zip(&self.values) {
            write!(f, "{separator}{}", parameter.name)?;
            if !parameter.name.is_empty() {
                f.write_str("=")?;
            }
            write!(f, "{value}{}", if parameter.unit.is_time() { "s" } else { "" })?;
            separator = ',';
        }
        Ok(())
    }
}

/// The text does not describe a baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidBaseline(String);

impl fmt::Display for InvalidBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidBaseline {}

impl FromStr for BaselineSpec {
    type Err = InvalidBaseline;

    fn from_str(text: &str) -> Result<Self, InvalidBaseline> {
        let (name, parameters) = match text.split_once(':') {
            Some((name, parameters)) => (name, Some(parameters)),
            None => (text, None),
        };
        let kind = KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let names: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
            InvalidBaseline(format!("'{name}' is not a baseline: use one of {}", names.join(", ")))
        })?;
        let mut spec = Self::with_defaults(kind);
        let mut given = vec![false; kind.parameters.len()];
        for part in parameters.into_iter().flat_map(|parameters| parameters.split(',')) {
            let (name, value) = part.split_once('=').unwrap_or(("", part));
            let place =
                kind.parameters.iter().position(|parameter| parameter.name == name).ok_or_else(|| {
                    let example = Self::with_defaults(kind);
                    InvalidBaseline(format!(
                        "{}: unknown parameter '{part}': write it as in {example}",
                        kind.name
                    ))
                })?;
            if std::mem::replace(&mut given[place], true) {
                return Err(InvalidBaseline(format!("{}: '{part}' is given twice", kind.name)));
            }
            let parameter = &kind.parameters[place];
            spec.values[place] = parameter.parse(value).ok_or_else(|| {
                let form = match parameter.unit {
                    Unit::Number => "a number",
                    Unit::Whole => "a whole number",
                    Unit::Seconds | Unit::Guarantee => "seconds, such as 30s,",
                };
                let (min, max) = (parameter.min, parameter.max);
                InvalidBaseline(format!("{}: '{part}' must be {form} from {min} to {max}", kind.name))
            })?;
        }
        Ok(spec)
    }
}
