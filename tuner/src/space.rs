//! Points of a search, and the parameters that they stand for.
//!
//! A point has one coordinate from 0 to 1 for each parameter. Rates, counts and probabilities are
//! on a logarithmic scale: 0.01 is as far from 0.02 as 0.1 is from 0.2.

use astracer_samplers::{Bump, Config, ConfigError, Count, Nanos, Probability, TokenBucket};
use serde::Serialize;

use crate::half_life::{Clock, HalfLife};
use crate::random::Random;

/// The sampler to tune.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tunable {
    /// Bump over a decaying count: keeps a trace with a probability that falls with this count.
    #[default]
    Bump,
    /// Bump as in the paper, over the calls in a window.
    Tumbling,
    /// The token bucket: keeps a trace if there is a token.
    Bucket,
}

impl Tunable {
    /// The name in the text form of samplers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bump => "bump",
            Self::Tumbling => "bump-tumbling",
            Self::Bucket => "bucket",
        }
    }
}

/// A sampler's parameters as they are written: each with four digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Parameters {
    /// Bump over windows.
    Bump {
        /// The count up to which calls are mostly kept.
        lambda: f64,
        /// The minimum probability.
        min: f64,
        /// The window, seconds; counts start again at 0 in each.
        window_s: f64,
    },
    /// The token bucket.
    Bucket {
        /// Tokens in a full bucket.
        capacity: f64,
        /// Tokens per second.
        rate: f64,
    },
    /// Bump over decaying counts.
    Decaying {
        /// The count up to which calls are mostly kept.
        lambda: f64,
        /// The minimum probability.
        min: f64,
        /// The half-life of a call's count.
        #[serde(flatten)]
        half_life: HalfLife,
        /// The steepness of the probability's fall around lambda.
        exponent: f64,
    },
    /// A constant probability for all traces of a key.
    Constant {
        /// The probability.
        probability: f64,
    },
}

impl Parameters {
    /// The sampler with these parameters for every key.
    ///
    /// # Errors
    ///
    /// If the sampler does not allow these parameters. The results of a search are always allowed.
    pub fn config(&self) -> Result<Config, ConfigError> {
        match self {
            Self::Bucket { .. } => self.bucket().map(Config::from),
            _ => self.bump().map(Config::from),
        }
    }

    /// The clock of its half-life; calls for samplers without one.
    pub(crate) fn clock(&self) -> Clock {
        match self {
            Self::Decaying { half_life, .. } => half_life.clock(),
            _ => Clock::Calls,
        }
    }

    /// These parameters as bump. A constant becomes a minimum probability without a count. Fails
    /// for the parameters of a bucket.
    pub(crate) fn bump(&self) -> Result<Bump, ConfigError> {
        let nanos = |seconds: f64| Nanos::new((seconds * 1e9).round() as u64);
        let probability = |min: f64| Probability::new(min).unwrap_or(Probability::ONE);
        match *self {
            Self::Bump { lambda, min, window_s } => Bump::new(lambda, probability(min), nanos(window_s)),
            Self::Decaying { lambda, min, half_life, exponent } => {
                let count = half_life.count();
                let bump = Bump::new(lambda, probability(min), Bump::WINDOW_DEFAULT)?;
                bump.with_count(count)?.with_exponent(exponent)
            }
            Self::Constant { probability: constant } => {
                Bump::new(0.0, probability(constant), Bump::WINDOW_DEFAULT)?.with_count(Count::Uncounted)
            }
            Self::Bucket { .. } => Bump::new(f64::NAN, Probability::ONE, Bump::WINDOW_DEFAULT),
        }
    }

    /// These parameters as a token bucket. Fails for those of any other sampler.
    pub(crate) fn bucket(&self) -> Result<TokenBucket, ConfigError> {
        match *self {
            Self::Bucket { capacity, rate } => TokenBucket::new(capacity, rate),
            _ => TokenBucket::new(f64::NAN, f64::NAN),
        }
    }
}

/// The most parameters that a sampler has.
pub(crate) const DIMENSIONS_MAX: usize = 4;

/// A point of the search, with one coordinate per parameter; the rest are 0.
pub(crate) type Point = [f64; DIMENSIONS_MAX];

/// The range of a parameter, on a logarithmic scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Axis {
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Axis {
    pub(crate) fn new(min: f64, max: f64) -> Self {
        Self { min, max: max.max(min) }
    }

    pub(crate) fn at(self, coordinate: f64) -> f64 {
        round_to_4_digits(self.min * (self.max / self.min).powf(coordinate)).clamp(self.min, self.max)
    }
}

pub(crate) fn round_to_4_digits(value: f64) -> f64 {
    // Rounding through text keeps 0.1 exactly 0.1.
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// A uniformly random point.
pub(crate) fn anywhere(dimensions: usize, random: &mut Random) -> Point {
    let mut point = [0.0; DIMENSIONS_MAX];
    point[..dimensions].fill_with(|| random.uniform());
    point
}

/// A random step from a point, along at least one axis and along each other one with probability
/// 1/2. `scale` is a share of the axis.
pub(crate) fn step(dimensions: usize, from: &Point, scale: f64, random: &mut Random) -> Point {
    let always = random.below(dimensions as u32) as usize;
    let mut point = *from;
    for (axis, coordinate) in point[..dimensions].iter_mut().enumerate() {
        if axis == always || random.uniform() < 0.5 {
            *coordinate = reflect(*coordinate + scale * random.cauchy());
        }
    }
    point
}

/// A regular grid with `steps` values on each axis, including both bounds.
pub(crate) fn grid(dimensions: usize, steps: usize) -> impl Iterator<Item = Point> {
    let steps = steps.max(2);
    (0..steps.pow(dimensions as u32)).map(move |mut number| {
        let mut point = [0.0; DIMENSIONS_MAX];
        for coordinate in &mut point[..dimensions] {
            *coordinate = (number % steps) as f64 / (steps - 1) as f64;
            number /= steps;
        }
        point
    })
}

/// Reflects a coordinate into [0, 1], as if by mirrors at both ends.
pub(crate) fn reflect(coordinate: f64) -> f64 {
    let folded = coordinate.rem_euclid(2.0);
    if folded > 1.0 { 2.0 - folded } else { folded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_reach_their_bounds_and_are_logarithmic() {
        let axis = Axis::new(0.01, 100.0);
        assert_eq!((axis.at(0.0), axis.at(0.5), axis.at(1.0)), (0.01, 1.0, 100.0));
        assert_eq!(Axis::new(1.0 / 30777.0, 0.1).at(0.0), 1.0 / 30777.0);
        // 0.05 * 380,000^0.3, rounded to four digits.
        assert_eq!(Axis::new(0.05, 19000.0).at(0.3), 2.36);
        assert_eq!(Axis::new(0.05, 19000.0).at(0.5), 30.82);
    }

    #[test]
    fn reflection_stays_inside() {
        for (outside, inside) in [(0.25, 0.25), (-0.25, 0.25), (1.25, 0.75), (2.25, 0.25), (-1.25, 0.75)] {
            assert!((reflect(outside) - inside).abs() < 1e-12, "{outside}");
        }
    }

    #[test]
    fn a_constant_is_bump_without_a_curve() {
        let config = Parameters::Constant { probability: 0.25 }.config().expect("a sampler");
        assert_eq!(config.to_string(), "bump:lambda=0,min=0.25,count=none");
        assert!(Parameters::Constant { probability: 0.25 }.bucket().is_err());
        assert!(Parameters::Bucket { capacity: 1.0, rate: 1.0 }.bump().is_err());
    }
}
