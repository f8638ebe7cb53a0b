//! Runs as mixtures: each with the traces that decide kept and missed, by their chances.

use std::collections::BTreeMap;

use serde::Serialize;

use super::chance::{Chance, turned};
use super::{Lone, WatchedRun};
use crate::score::Reference;
use crate::statistics::{Distribution, Twentieths};
use crate::workload::Workload;

/// A trace decides if keeping it or not changes the distance by this share of a usual run's, on the
/// average.
const DECIDES: f64 = 1.0;
/// Traces that decide, at most: those that spread the distance most. A run has 2 to this power of
/// ways.
const DECIDING_MAX: usize = 8;
/// Ways of a lower probability are left out.
const PROBABILITY_MIN: f64 = 1e-12;

/// dist/entropy over runs, each in all ways in which it may keep the traces that decide.
#[derive(Clone, Debug)]
pub(crate) struct Mixture {
    pub(crate) distribution: Distribution,
    pub(crate) runs: Twentieths,
    pub(crate) deciding: Deciding,
    /// The places of the traces that decide.
    pub(super) places: Vec<usize>,
}

/// Single traces that decide about dist/entropy: runs that miss one have another figure than all
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Deciding {
    /// The number of them.
    pub traces: u64,
    /// The share of runs that keep the most likely ones of them.
    pub usual: f64,
    /// The mean of dist/entropy of these runs.
    pub usual_mean: f64,
    /// The mean of all others; 0 if there are none.
    pub other_mean: f64,
}

impl Mixture {
    /// `None` if no trace decides.
    pub(crate) fn of(
        lone: &Lone,
        (workload, reference): (&Workload, &Reference),
        runs: &[&WatchedRun],
        usual_ms: f64,
    ) -> Option<Self> {
        let places = deciding(lone, (workload, reference), runs, usual_ms);
        if places.is_empty() {
            return None;
        }
        let mut values = Vec::new();
        let mut means = Vec::new();
        let mut by_way: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        let each = 1.0 / runs.len() as f64;
        for run in runs {
            let mut mean = 0.0;
            let others = places.iter().fold(run.kept, |bits, place| bits & !(1 << place));
            for (bits, probability) in combinations(lone, run, &places) {
                let value = run.score(lone, (workload, reference), others | bits).1;
                mean += probability * value;
                values.push((value, probability * each));
                let way = by_way.entry(bits).or_default();
                *way = (way.0 + probability * each, way.1 + probability * each * value);
            }
            means.push((run.jitter_ms, mean));
        }
        let of = |combinations: &mut dyn Iterator<Item = (f64, f64)>| {
            combinations.fold((0.0, 0.0), |sum, way| (sum.0 + way.0, sum.1 + way.1))
        };
        let mut sorted: Vec<(f64, f64)> = by_way.into_values().collect();
        sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (usual, others) =
            (of(&mut sorted.iter().copied().take(1)), of(&mut sorted.iter().copied().skip(1)));
        let mean = |(probability, sum): (f64, f64)| if probability > 0.0 { sum / probability } else { 0.0 };
        Some(Self {
            runs: Twentieths::of_weighted(&mut values),
            distribution: Distribution::of_mixture(&mut values, &means),
            deciding: Deciding {
                traces: places.len() as u64,
                usual: usual.0,
                usual_mean: mean(usual),
                other_mean: mean(others),
            },
            places,
        })
    }
}

/// The places of the traces that decide, those first that spread the distance most.
fn deciding(lone: &Lone, of: (&Workload, &Reference), runs: &[&WatchedRun], usual_ms: f64) -> Vec<usize> {
    // By place: the effect of keeping the trace or not, and the variance that this makes, each
    // summed up over the runs.
    let mut sums = vec![(0.0, 0.0); lone.traces.len()];
    for run in runs {
        for (place, (effects, variances)) in sums.iter_mut().enumerate() {
            let (p, bit) = (run.chances[place].probability(), 1 << place);
            let [with, without] = [run.kept | bit, run.kept & !bit].map(|bits| run.score(lone, of, bits).0);
            *effects += (with - without).abs();
            *variances += p * (1.0 - p) * (with - without).powi(2);
        }
    }
    let least = DECIDES * usual_ms * runs.len() as f64;
    let mut places: Vec<usize> =
        (0..sums.len()).filter(|&place| sums[place].0 >= least && sums[place].1 > 0.0).collect();
    places.sort_by(|&a, &b| sums[b].1.total_cmp(&sums[a].1));
    places.truncate(DECIDING_MAX);
    places
}

/// All ways in which a run may keep some traces: their bits, with the way's probability.
fn combinations(lone: &Lone, run: &WatchedRun, places: &[usize]) -> Vec<(u32, f64)> {
    let mut together: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    let mut combinations = vec![(0u32, 1.0)];
    let mut add = |group: &[(u32, f64)]| {
        let joined = combinations
            .iter()
            .flat_map(|&(bits, p)| group.iter().map(move |&(more, q)| (bits | more, p * q)));
        combinations = joined.filter(|&(_, probability)| probability > PROBABILITY_MIN).collect();
    };
    for &place in places {
        match run.chances[place] {
            Chance::Alone(chance) => add(&[(1 << place, chance), (0, 1.0 - chance)]),
            Chance::Turning(randomness, threshold) => {
                together.entry(lone.traces[place].key).or_default().push((1 << place, randomness, threshold));
            }
        }
    }
    together.values().for_each(|traces| add(&turned(traces)));
    combinations
}
