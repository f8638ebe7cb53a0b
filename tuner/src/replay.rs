//! Sends a workload through a sampler, in recorded time.

use astracer_samplers::{Nanos, Randomness, Request, Sampler, Threshold};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::workload::Workload;

/// Decides each arrival in order and calls `keep` with the index of each one kept, and with how many traces it stands
/// for, if the sampler tells.
///
/// The randomness of arrival `n` depends on the seed and on `n` alone, so that different samplers are compared on the
/// same draws, and a seed gives the same traces anywhere.
pub fn replay(workload: &Workload, sampler: &Sampler, seed: u64, mut keep: impl FnMut(usize, Option<f64>)) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for (index, arrival) in workload.arrivals().iter().enumerate() {
        let randomness = Randomness::from_low_bits(rng.next_u64());
        let request = Request::new(workload.key(arrival), randomness, Nanos::new(arrival.at_ns));
        let decision = sampler.decide(&request);
        if decision.keep {
            keep(index, decision.threshold.map(Threshold::adjusted_count));
        }
    }
}
