//! Points of a search, and the parameters that they stand for.
//!
//! A point has one coordinate from 0 to 1 for each parameter. Rates, counts and probabilities are
//! spread evenly on a logarithmic scale: from 0.01 to 0.02 is as far as from 0.1 to 0.2.

use astracer_samplers::{Bump, Config, ConfigError, Count, Nanos, Probability, TokenBucket};
use serde::Serialize;

use crate::random::Random;

/// Which sampler is tuned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tunable {
    /// Keep with a probability that falls with a decaying count of calls.
    #[default]
    Bump,
    /// The paper's: the count is that of the calls in a window.
    Tumbling,
    /// Keep while there are tokens.
    Bucket,
}

impl Tunable {
    /// As in a sampler's text form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bump => "bump",
            Self::Tumbling => "bump-tumbling",
            Self::Bucket => "bucket",
        }
    }
}

/// A sampler's parameters, as they are written: each with four digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Parameters {
    /// Of bump with windows.
    Bump {
        /// The count up to which calls are mostly kept.
        lambda: f64,
        /// The least probability.
        min: f64,
        /// Seconds after which counts begin anew.
        window_s: f64,
    },
    /// Of the token bucket.
    Bucket {
        /// Tokens in a full bucket.
        capacity: f64,
        /// Tokens a second.
        rate: f64,
    },
    /// Of bump with decaying counts.
    Decaying {
        /// The count up to which calls are mostly kept.
        lambda: f64,
        /// The least probability.
        min: f64,
        /// Seconds after which a call counts half.
        half_life_s: f64,
        /// The steepness of the probability's fall around lambda.
        exponent: f64,
    },
    /// The same probability for all traces of a key.
    Constant {
        /// That probability.
        probability: f64,
    },
}

impl Parameters {
    /// The sampler with these parameters for every key.
    ///
    /// # Errors
    ///
    /// If the sampler does not allow them; those that a search returns are allowed.
    pub fn config(&self) -> Result<Config, ConfigError> {
        match self {
            Self::Bucket { .. } => self.bucket().map(Config::from),
            _ => self.bump().map(Config::from),
        }
    }

    /// As bump: a constant is a least probability without a count. The parameters of a bucket make
    /// none.
    pub(crate) fn bump(&self) -> Result<Bump, ConfigError> {
        let nanos = |seconds: f64| Nanos::new((seconds * 1e9).round() as u64);
        let probability = |min: f64| Probability::new(min).unwrap_or(Probability::ONE);
        match *self {
            Self::Bump { lambda, min, window_s } => Bump::new(lambda, probability(min), nanos(window_s)),
            Self::Decaying { lambda, min, half_life_s, exponent } => {
                let count = Count::Decaying { half_life: nanos(half_life_s) };
                let bump = Bump::new(lambda, probability(min), Bump::WINDOW_DEFAULT)?;
                bump.with_count(count)?.with_exponent(exponent)
            }
            Self::Constant { probability: constant } => {
                Bump::new(0.0, probability(constant), Bump::WINDOW_DEFAULT)?.with_count(Count::Uncounted)
            }
            Self::Bucket { .. } => Bump::new(f64::NAN, Probability::ONE, Bump::WINDOW_DEFAULT),
        }
    }

    /// As a token bucket; the parameters of another sampler make none.
    pub(crate) fn bucket(&self) -> Result<TokenBucket, ConfigError> {
        match *self {
            Self::Bucket { capacity, rate } => TokenBucket::new(capacity, rate),
            _ => TokenBucket::new(f64::NAN, f64::NAN),
        }
    }
}

/// The most parameters that a sampler has.
pub(crate) const DIMENSIONS_MAX: usize = 4;

/// A point of the search: as many coordinates as there are parameters, the rest are 0.
pub(crate) type Point = [f64; DIMENSIONS_MAX];

/// From a least to a greatest value, on a logarithmic scale.
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
    // Through text, so that 0.1 stays 0.1.
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// A point anywhere.
pub(crate) fn anywhere(dimensions: usize, random: &mut Random) -> Point {
    let mut point = [0.0; DIMENSIONS_MAX];
    point[..dimensions].fill_with(|| random.uniform());
    point
}

/// A step away from a point along some of the axes: at least one, each other with an even chance.
/// `scale` is a share of the axis.
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

/// A regular grid with `steps` values on each axis, the bounds among them.
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

/// Back into [0, 1] as from mirrors at both ends.
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
        // 0.05 * 380,000^0.3, in four digits.
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
