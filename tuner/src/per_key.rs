//! A probability for each key, found by annealing.
//!
//! A key whose durations vary little, or whose functions other keys have too, needs few traces; one with rare slow calls
//! needs all of them. No function of count and time can know that: a recording does. Each point is a probability for
//! each key, and the objective is averaged over samples that leave out blocks of time in turn, so that a probability is
//! not fitted to what happened once. A floor on each key's expected number of traces kept makes weights usable.

use rayon::prelude::*;

use crate::anneal::{Schedule, anneal};
use crate::blocks::{BLOCKS, sample};
use crate::expect::{Counting, Curve, Design, Expectation, Expected, Extras, KeyLaw, Scratch};
use crate::limits::Limits;
use crate::objective::Target;
use crate::problem::{Archive, Evaluated, Landscape, Scale};
use crate::random::Random;
use crate::space::{self, Parameters};
use crate::stop::Stop;
use crate::workload::Workload;

/// Keys, those with most bytes, that have probabilities of their own at most; others keep the common parameters.
const KEYS_MAX: usize = 256;
/// Probabilities lie from this to 1, evenly in their logarithm.
const PROBABILITY_MIN: f64 = 1e-3;
/// Floors that are tried, traces; the most that is cheap enough is taken.
const FLOORS: [f64; 6] = [40.0, 20.0, 10.0, 5.0, 3.0, 1.0];
/// A floor may cost this share of the greatest size.
const FLOOR_COST_MAX: f64 = 0.5;
/// Most moves change one or two keys.
const KEYS_MOVED: u32 = 3;
/// Halvings of the way to the greatest common probability within the limits.
const HALVINGS: u32 = 30;
/// With a share of the bytes above this, a key is a loop: its first calls matter, and a constant averages them away.
const LOOP_SHARE: f64 = 0.8;

/// The search's samples and bounds.
#[derive(Debug)]
pub(crate) struct PerKey<'t> {
    /// One for each sample of blocks.
    expectations: Vec<Expectation>,
    /// Of all other keys.
    common: (Curve, f64),
    /// Only a key's first call is above it.
    first: Curve,
    /// Keys with probabilities of their own, each with the least.
    keys: Vec<(usize, f64)>,
    /// For each of `keys`, the logarithm of Neyman's probability, in units of a coordinate.
    weights: Vec<f64>,
    /// By key: its place in `keys`.
    places: Vec<Option<usize>>,
    limits: Limits,
    scale: Scale,
    target: &'t Target,
    /// The least number of traces kept of a key, in expectation.
    pub(crate) min_kept: f64,
}

/// The best probabilities found.
#[derive(Debug)]
pub(crate) struct Found {
    /// Keys, each with its probability.
    pub(crate) keys: Vec<(usize, f64)>,
    pub(crate) value: f64,
    pub(crate) evaluations: u64,
}

/// By key: its traces and their bytes.
fn sizes(workload: &Workload) -> Vec<(f64, f64)> {
    let mut sizes = vec![(0.0, 0.0); workload.keys().len()];
    for arrival in workload.arrivals() {
        let (traces, bytes) = &mut sizes[arrival.key as usize];
        *traces += 1.0;
        *bytes += arrival.bytes as f64;
    }
    sizes
}

/// By key: ln(p) / -ln(PROBABILITY_MIN) for Neyman's p, the root of the key's share in SS^2 by its bytes. A trace's
/// share is the square of what its absence moves a function's mean by, and its deviation.
fn neyman(workload: &Workload, sizes: &[(f64, f64)]) -> Vec<f64> {
    let mut shares = vec![0.0; sizes.len()];
    for (index, arrival) in workload.arrivals().iter().enumerate() {
        for calls in workload.calls(index) {
            let function = &workload.functions()[calls.function as usize];
            let (count, sd) = (function.count as f64, function.duration_ms.sd.max(f64::MIN_POSITIVE));
            let mean_moved = calls.deviation / count;
            let sd_moved = (calls.deviation_squared - f64::from(calls.count) * sd * sd) / (2.0 * sd * count);
            shares[arrival.key as usize] += mean_moved * mean_moved + sd_moved * sd_moved;
        }
    }
    let unit = -PROBABILITY_MIN.ln();
    // Keys without a share are the least likely that a coordinate can express.
    shares
        .iter()
        .zip(sizes)
        .map(|(share, (_, bytes))| (0.5 * (share / bytes).ln() / unit).max(-1e3))
        .collect()
}

/// The share of the bytes of the key that has most, if that is a loop's.
pub(crate) fn loop_share(workload: &Workload) -> Option<f64> {
    let sizes = sizes(workload);
    let all: f64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    let most = sizes.iter().map(|(_, bytes)| bytes).fold(0.0, |most: f64, &bytes| most.max(bytes));
    Some(most / all).filter(|&share| share > LOOP_SHARE)
}

/// The most of [`FLOORS`] that costs at most half of the greatest size; 0 if none does.
fn default_floor(sizes: &[(f64, f64)], size_max: f64) -> f64 {
    let all: f64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    let cost = |floor: f64| {
        let kept = sizes.iter().filter(|(traces, _)| *traces > 0.0);
        kept.map(|(traces, bytes)| bytes * (floor / traces).min(1.0)).sum::<f64>()
    };
    FLOORS.into_iter().find(|&floor| cost(floor) <= FLOOR_COST_MAX * size_max * all).unwrap_or(0.0)
}

impl<'t> PerKey<'t> {
    /// Sums up samples of a workload; `None` if asked to stop, or if there are not two keys to shift anything between.
    pub(crate) fn new(
        workload: &Workload,
        common: &Parameters,
        (limits, target): (Limits, &'t Target),
        (min_kept, extras, stratified): (Option<f64>, Extras, bool),
        stop: Stop<'_>,
    ) -> Option<Self> {
        // Constants are beside decaying counts only: a window would keep the first call in each.
        let Parameters::Decaying { lambda, min, half_life_s, exponent } = *common else { return None };
        let curve = |lambda: f64| Curve::new(Counting::Decaying, lambda, exponent);
        let sizes = sizes(workload);
        let min_kept = min_kept.unwrap_or_else(|| default_floor(&sizes, limits.size_max));
        let mut keys: Vec<usize> = (0..sizes.len()).filter(|&key| sizes[key].0 > 0.0).collect();
        if keys.len() < 2 {
            return None;
        }
        keys.sort_by(|&a, &b| sizes[b].1.total_cmp(&sizes[a].1).then(a.cmp(&b)));
        keys.truncate(KEYS_MAX);
        let mut places = vec![None; sizes.len()];
        keys.iter().enumerate().for_each(|(place, &key)| places[key] = Some(place));
        let design = Design {
            counting: Counting::Decaying,
            lengths_ns: vec![std::num::NonZeroU64::new((half_life_s * 1e9).round() as u64)?],
            phase: 0.0,
            extras,
            stratified,
        };
        let weights = neyman(workload, &sizes);
        let expectation = |number: usize| Expectation::new(&sample(workload, number), &design, stop);
        Some(Self {
            expectations: (0..BLOCKS).into_par_iter().map(expectation).collect::<Option<_>>()?,
            common: (curve(lambda), min),
            first: curve(0.0),
            weights: keys.iter().map(|&key| weights[key]).collect(),
            keys: keys.into_iter().map(|key| (key, (min_kept / sizes[key].0).min(1.0))).collect(),
            places,
            limits,
            scale: Scale::new(workload),
            target,
            min_kept,
        })
    }

    /// The cost of a score, in units of some ns.
    pub(crate) fn cost(&self) -> u64 {
        self.expectations.iter().map(Expectation::cost).sum()
    }

    /// Searches from the greatest common probability; `None` if nothing is within the limits.
    pub(crate) fn search(
        &self,
        (starts, schedule): (u64, Schedule),
        seed: u64,
        stop: Stop<'_>,
        done: &(dyn Fn() + Sync),
    ) -> Option<Found> {
        let starts_at = [self.start(true).or_else(|| self.start(false))?, self.start(false)?];
        let walk = |stream: u64| {
            let start = starts_at[stream as usize % 2].clone();
            anneal(self, start, schedule, Random::new(seed, stream), stop, &|_| done())
        };
        let archives: Vec<Archive<Vec<f64>>> = (0..starts).into_par_iter().map(walk).collect();
        let evaluations = archives.iter().map(|archive| archive.evaluations).sum();
        let bests = archives.into_iter().filter_map(|archive| archive.best);
        let best = bests.min_by(|a, b| a.value.total_cmp(&b.value))?;
        let keys = self.keys.iter().zip(&best.point);
        Some(Found {
            keys: keys.map(|(&(key, floor), &coordinate)| (key, probability(coordinate, floor))).collect(),
            value: best.value,
            evaluations,
        })
    }

    /// Where a walk begins: at the same probability for all keys, or at Neyman's allocation, which is in proportion to
    /// the root of a key's share in SS^2 by its bytes, either as large as the limits allow.
    fn start(&self, by_weight: bool) -> Option<Vec<f64>> {
        let scaled = |shift: f64| -> Vec<f64> {
            let coordinate = |weight: &f64| (if by_weight { *weight } else { 0.0 } + shift).clamp(0.0, 1.0);
            self.weights.iter().map(coordinate).collect()
        };
        let (mut low, mut high) = (-2.0, 2.0);
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if self.limits.excess(&self.kept(&scaled(middle))) > 0.0 { high = middle } else { low = middle }
        }
        Some(scaled(low)).filter(|point| self.allows(point))
    }

    fn law(&self, point: &[f64], key: usize) -> KeyLaw<'_> {
        match self.places[key] {
            Some(place) => KeyLaw::Bump(&self.first, probability(point[place], self.keys[place].1)),
            None => KeyLaw::Bump(&self.common.0, self.common.1),
        }
    }

    fn kept(&self, point: &[f64]) -> crate::limits::Kept {
        let mut sums = (0.0, 0.0);
        for expectation in &self.expectations {
            let (bytes, traces) = expectation.kept(0, |key| self.law(point, key));
            sums = (sums.0 + bytes, sums.1 + traces);
        }
        let samples = self.expectations.len() as f64;
        self.scale.kept((sums.0 / samples, sums.1 / samples))
    }
}

fn probability(coordinate: f64, floor: f64) -> f64 {
    let least = floor.max(PROBABILITY_MIN);
    space::round_to_4_digits(PROBABILITY_MIN.powf(1.0 - coordinate).max(least)).min(1.0)
}

impl Landscape for PerKey<'_> {
    type Point = Vec<f64>;
    type Scratch = Scratch;

    fn allows(&self, point: &Vec<f64>) -> bool {
        self.limits.hold(&self.kept(point))
    }

    fn step(&self, from: &Vec<f64>, scale: f64, random: &mut Random) -> Vec<f64> {
        let mut point = from.clone();
        for _ in 0..1 + random.below(KEYS_MOVED) {
            let moved = random.below(point.len() as u32) as usize;
            point[moved] = space::reflect(point[moved] + scale * random.cauchy());
        }
        point
    }

    fn evaluate(&self, point: &Vec<f64>, scratch: &mut Scratch) -> Evaluated<Vec<f64>> {
        let law = |key| self.law(point, key);
        let scores: Vec<Expected> =
            self.expectations.iter().map(|expectation| expectation.expected(0, law, scratch)).collect();
        Evaluated {
            point: point.clone(),
            expected: Expected::mean(&scores),
            value: self.target.value(&scores),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: keys of 1000, 100 and 4 traces of a byte each, so 40 of each are 40 + 40 + 4 = 84 bytes of 1104.
    #[test]
    fn the_floor_is_the_most_that_costs_half() {
        let sizes = [(1000.0, 1000.0), (100.0, 100.0), (4.0, 4.0), (0.0, 0.0)];
        assert_eq!(default_floor(&sizes, 2.0 * 84.0 / 1104.0 + 1e-9), 40.0);
        assert_eq!(default_floor(&sizes, 2.0 * 84.0 / 1104.0 - 1e-9), 20.0);
        // 1 + 1 + 1 bytes.
        assert_eq!(default_floor(&sizes, 2.0 * 3.0 / 1104.0 + 1e-9), 1.0);
        assert_eq!(default_floor(&sizes, 2.0 * 3.0 / 1104.0 - 1e-9), 0.0);
    }

    #[test]
    fn a_floor_is_below_every_coordinate() {
        assert_eq!((probability(0.0, 0.0), probability(1.0, 0.0)), (1e-3, 1.0));
        assert_eq!((probability(0.0, 0.25), probability(0.5, 0.25)), (0.25, 0.25));
        assert_eq!((probability(0.5, 0.0), probability(0.3, 1.0)), (0.03162, 1.0));
    }
}
