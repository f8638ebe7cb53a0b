//! Runs as mixtures, in which each deciding trace is kept or missed with its chance.

use std::collections::BTreeMap;

use serde::Serialize;

use super::chance::{Chance, joint};
use super::{Lone, WatchedRun};
use crate::score::Reference;
use crate::statistics::{Distribution, Twentieths};
use crate::workload::Workload;

/// A trace decides if keeping it changes the distance, on average, by at least this share of a
/// typical run's distance.
const DECIDES: f64 = 1.0;
/// At most this many traces decide: those that add most to the variance of the distance. A run has
/// 2 to this power of outcomes.
const DECIDING_MAX: usize = 8;
/// Outcomes with a lower probability are left out.
const PROBABILITY_MIN: f64 = 1e-12;

/// dist/entropy over runs, where each run contributes every outcome for the deciding traces.
#[derive(Clone, Debug)]
pub(crate) struct Mixture {
    pub(crate) distribution: Distribution,
    pub(crate) runs: Twentieths,
    pub(crate) deciding: Deciding,
    /// The indices of the deciding traces.
    pub(super) places: Vec<usize>,
}

/// Single traces that decide dist/entropy: runs that miss one of them have a very different figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Deciding {
    /// The number of deciding traces.
    pub traces: u64,
    /// The share of runs with the likeliest outcomes for these traces, as many outcomes as are more
    /// than half of all runs.
    pub usual: f64,
    /// The mean of dist/entropy of these runs.
    pub usual_mean: f64,
    /// The mean of dist/entropy of all other runs; 0 if there are none.
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
        // The likeliest outcomes that together are most runs.
        let most = sorted.iter().scan(0.0, |sum, way| {
            *sum += way.0;
            Some(*sum)
        });
        let most = 1 + most.take_while(|&sum| sum <= 0.5).count();
        let (usual, others) =
            (of(&mut sorted.iter().copied().take(most)), of(&mut sorted.iter().copied().skip(most)));
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

/// The indices of the deciding traces, starting with the one that adds most to the variance of the
/// distance.
fn deciding(lone: &Lone, of: (&Workload, &Reference), runs: &[&WatchedRun], usual_ms: f64) -> Vec<usize> {
    // For each watched trace, summed over the runs: how much keeping it changes the distance, and
    // the variance from this.
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

/// All outcomes of a run for some traces, as bits of the kept ones, each with its probability.
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
            Chance::Placed(number, threshold) => {
                together.entry(lone.traces[place].key).or_default().push((1 << place, number, threshold));
            }
        }
    }
    together.values().for_each(|traces| add(&joint(traces)));
    combinations
}
