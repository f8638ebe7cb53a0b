//! Sends a workload through a sampler, in recorded time.

use astracer_samplers::{Nanos, Randomness, Request, Sampler};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::workload::Workload;

/// Decides each arrival in order and calls `keep` with the index of each one kept.
///
/// The randomness of arrival `n` depends on the seed and on `n` alone, so that different samplers are compared on the
/// same draws, and a seed gives the same traces anywhere.
pub fn replay(workload: &Workload, sampler: &Sampler, seed: u64, mut keep: impl FnMut(usize)) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for (index, arrival) in workload.arrivals().iter().enumerate() {
        let randomness = Randomness::from_low_bits(rng.next_u64());
        let request = Request::new(workload.key(arrival), randomness, Nanos::new(arrival.at_ns));
        if sampler.decide(&request).keep {
            keep(index);
        }
    }
}
