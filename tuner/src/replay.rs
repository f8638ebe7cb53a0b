//! Sends a workload through a sampler, in recorded time.

use astracer_baselines::{Baseline, Call};
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

/// The same for a baseline, on the same draws: a ratio keeps here what the same ratio of ours keeps there.
pub(crate) fn replay_baseline(
    workload: &Workload,
    baseline: &mut dyn Baseline,
    seed: u64,
    mut keep: impl FnMut(usize),
) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for (index, arrival) in workload.arrivals().iter().enumerate() {
        let uniform = uniform(Randomness::from_low_bits(rng.next_u64()));
        if baseline.keeps(Call { key: arrival.key, at_ns: arrival.at_ns, uniform }) {
            keep(index);
        }
    }
}

/// A number in [0, 1) that is below `p` when a threshold of probability `p` keeps the randomness: high randomness is
/// kept, so it is turned round. Three bits are lost, for a double holds 53.
fn uniform(randomness: Randomness) -> f64 {
    const LOST_BITS: u32 = Randomness::BITS - f64::MANTISSA_DIGITS;
    ((Randomness::MAX.get() - randomness.get()) >> LOST_BITS) as f64 / (1u64 << f64::MANTISSA_DIGITS) as f64
}

#[cfg(test)]
mod tests {
    use astracer_samplers::Probability;

    use super::*;

    #[test]
    fn draws_are_those_of_our_samplers() {
        assert_eq!(uniform(Randomness::MAX), 0.0);
        assert_eq!(uniform(Randomness::MIN), 1.0 - f64::EPSILON / 2.0);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        for p in [1.0, 0.5, 0.1, 0.001] {
            let threshold = Threshold::from_probability(Probability::new(p).expect("a probability"));
            for _ in 0..1000 {
                let randomness = Randomness::from_low_bits(rng.next_u64());
                assert_eq!(
                    uniform(randomness) < p,
                    threshold.keeps(randomness),
                    "{randomness:?} against {p}"
                );
            }
        }
    }
}
