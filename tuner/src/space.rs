//! The parameters that are searched, and their bounds.
//!
//! A point has one coordinate from 0 to 1 for each parameter. Rates, counts and probabilities are spread evenly on a
//! logarithmic scale: from 0.01 to 0.02 is as far as from 0.1 to 0.2.

use std::num::NonZeroU64;

use astracer_samplers::{Bump, Config, ConfigError, Nanos, Probability, TokenBucket};
use serde::Serialize;

use crate::expect::BumpPoint;
use crate::random::Random;
use crate::workload::Workload;

/// A bucket fills within this time, seconds: half a year. Much longer ones the sampler refuses.
const FILL_SECONDS_MAX: f64 = 1.5e7;

/// Which sampler is tuned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tunable {
    /// Keep with a probability that falls with the number of calls in the window.
    #[default]
    Bump,
    /// Keep while there are tokens.
    Bucket,
}

impl Tunable {
    /// As in a sampler's text form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bump => "bump",
            Self::Bucket => "bucket",
        }
    }
}

/// A sampler's parameters, as they are written: each with four digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Parameters {
    /// Of bump.
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
}

/// Bump with these parameters; those of another sampler make none.
pub(crate) fn bump_of(parameters: &Parameters) -> Result<Bump, ConfigError> {
    let (lambda, min, window_s) = match *parameters {
        Parameters::Bump { lambda, min, window_s } => (lambda, min, window_s),
        Parameters::Bucket { .. } => (f64::NAN, 0.0, 0.0),
    };
    let min = Probability::new(min).unwrap_or(Probability::ONE);
    Bump::new(lambda, min, Nanos::new((window_s * 1e9).round() as u64))
}

/// The bucket with these parameters; those of another sampler make none.
pub(crate) fn bucket_of(parameters: &Parameters) -> Result<TokenBucket, ConfigError> {
    match *parameters {
        Parameters::Bucket { capacity, rate } => TokenBucket::new(capacity, rate),
        Parameters::Bump { .. } => TokenBucket::new(f64::NAN, f64::NAN),
    }
}

impl Parameters {
    /// The sampler with these parameters for every key.
    ///
    /// # Errors
    ///
    /// If the sampler does not allow them; those that a search returns are allowed.
    pub fn config(&self) -> Result<Config, ConfigError> {
        match self {
            Self::Bump { .. } => bump_of(self).map(Config::from),
            Self::Bucket { .. } => bucket_of(self).map(Config::from),
        }
    }
}

/// A point of the search: as many coordinates as there are parameters, the rest are 0.
pub(crate) type Point = [f64; 3];

/// From a least to a greatest value, on a logarithmic scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Axis {
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Axis {
    fn new(min: f64, max: f64) -> Self {
        Self { min, max: max.max(min) }
    }

    pub(crate) fn at(self, coordinate: f64) -> f64 {
        round_to_4_digits(self.min * (self.max / self.min).powf(coordinate)).clamp(self.min, self.max)
    }
}

fn round_to_4_digits(value: f64) -> f64 {
    // Through text, so that 0.1 stays 0.1.
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// The parameters of one sampler within bounds that the workload gives.
#[derive(Clone, Debug)]
pub(crate) enum Space {
    Bump { lambda: Axis, min: Axis, windows_ns: Vec<NonZeroU64> },
    Bucket { capacity: Axis, rate: Axis },
}

impl Space {
    /// Bump: lambda from where the second call of a window is kept once in 400 windows, to the most calls of any key;
    /// the minimum from one kept trace in the whole recording to `size_max`, beyond which it alone would keep too much.
    pub(crate) fn bump(workload: &Workload, windows_ns: &[NonZeroU64], size_max: f64) -> Self {
        let traces = workload.arrivals().len().max(1) as f64;
        Self::Bump {
            lambda: Axis::new(0.05, most_calls(workload).max(1.0)),
            min: Axis::new((1.0 / traces).min(size_max), size_max.min(1.0)),
            windows_ns: windows_ns.to_vec(),
        }
    }

    /// Bucket: from a single token to the most calls of any key; from a tenth of a token in the whole recording to as
    /// many tokens as there are calls, were they all in a tenth of it.
    pub(crate) fn bucket(workload: &Workload) -> Self {
        let seconds = workload.arrivals().last().map_or(0.0, |last| last.at_ns as f64 / 1e9).max(0.1);
        let calls = most_calls(workload).max(1.0);
        let slowest = (0.1 / seconds).max(calls / FILL_SECONDS_MAX);
        Self::Bucket { capacity: Axis::new(1.0, calls), rate: Axis::new(slowest, 10.0 * calls / seconds) }
    }

    pub(crate) fn dimensions(&self) -> usize {
        match self {
            Self::Bump { windows_ns, .. } => 2 + usize::from(windows_ns.len() > 1),
            Self::Bucket { .. } => 2,
        }
    }

    /// Which window a point has; bump only.
    pub(crate) fn window(&self, point: &Point) -> usize {
        match self {
            Self::Bump { windows_ns, .. } => {
                ((point[2] * windows_ns.len() as f64) as usize).min(windows_ns.len() - 1)
            }
            Self::Bucket { .. } => 0,
        }
    }

    pub(crate) fn parameters(&self, point: &Point) -> Parameters {
        match self {
            Self::Bump { lambda, min, windows_ns } => Parameters::Bump {
                lambda: lambda.at(point[0]),
                min: min.at(point[1]),
                window_s: windows_ns[self.window(point)].get() as f64 / 1e9,
            },
            Self::Bucket { capacity, rate } => {
                Parameters::Bucket { capacity: capacity.at(point[0]), rate: rate.at(point[1]) }
            }
        }
    }

    /// A point of bump. The bucket's space has none: it is never asked.
    pub(crate) fn bump_point(&self, point: &Point) -> BumpPoint {
        match self.parameters(point) {
            Parameters::Bump { lambda, min, .. } => {
                BumpPoint { lambda, minimum: min, window: self.window(point) }
            }
            Parameters::Bucket { .. } => BumpPoint { lambda: 0.0, minimum: 0.0, window: 0 },
        }
    }

    /// A point of the bucket. Bump's space has none: it is never asked.
    pub(crate) fn token_bucket(&self, point: &Point) -> TokenBucket {
        bucket_of(&self.parameters(point)).expect("the space's bounds are valid parameters")
    }

    /// The same with a minimum up to 1: for single roots, of which more than the whole's share may be kept.
    pub(crate) fn for_roots(&self) -> Self {
        match self.clone() {
            Self::Bump { lambda, min, windows_ns } => {
                Self::Bump { lambda, min: Axis::new(min.min, 1.0), windows_ns }
            }
            bucket @ Self::Bucket { .. } => bucket,
        }
    }

    /// The point of [`for_roots`](Self::for_roots) with the same parameters.
    pub(crate) fn root_point(&self, point: &Point) -> Point {
        match (self, self.for_roots()) {
            (Self::Bump { min, .. }, Self::Bump { min: of_roots, .. }) => {
                let mut same = *point;
                same[1] *= (min.max / min.min).ln() / (of_roots.max / of_roots.min).ln();
                same
            }
            _ => *point,
        }
    }

    /// Anywhere.
    pub(crate) fn random(&self, random: &mut Random) -> Point {
        let mut point = [0.0; 3];
        point[..self.dimensions()].fill_with(|| random.uniform());
        point
    }

    /// A step away from a point along some of the axes: at least one, each other with an even chance. `scale` is a
    /// share of the axis.
    pub(crate) fn step(&self, from: &Point, scale: f64, random: &mut Random) -> Point {
        let dimensions = self.dimensions();
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
    pub(crate) fn grid(&self, steps: usize) -> impl Iterator<Item = Point> {
        let dimensions = self.dimensions();
        let steps = steps.max(2);
        (0..steps.pow(dimensions as u32)).map(move |mut number| {
            let mut point = [0.0; 3];
            for coordinate in &mut point[..dimensions] {
                *coordinate = (number % steps) as f64 / (steps - 1) as f64;
                number /= steps;
            }
            point
        })
    }

    /// The points that keep the least and the most of all points with this window (bump) or of all (bucket).
    pub(crate) fn extremes(&self) -> Vec<(Point, Point)> {
        match self {
            Self::Bump { windows_ns, .. } => {
                let middle = |window: usize| (window as f64 + 0.5) / windows_ns.len() as f64;
                (0..windows_ns.len())
                    .map(|window| ([0.0, 0.0, middle(window)], [1.0, 1.0, middle(window)]))
                    .collect()
            }
            Self::Bucket { .. } => vec![([0.0; 3], [1.0, 1.0, 0.0])],
        }
    }
}

/// Back into [0, 1] as from mirrors at both ends.
fn reflect(coordinate: f64) -> f64 {
    let folded = coordinate.rem_euclid(2.0);
    if folded > 1.0 { 2.0 - folded } else { folded }
}

/// Traces of the key that has most.
fn most_calls(workload: &Workload) -> f64 {
    let mut calls = vec![0u32; workload.keys().len()];
    for arrival in workload.arrivals() {
        calls[arrival.key as usize] += 1;
    }
    f64::from(calls.into_iter().max().unwrap_or(0))
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
}
