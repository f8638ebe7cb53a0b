//! Samplers of other projects, to compare ours with: reimplemented from their published algorithms.
//!
//! A rival decides from recorded time and from the same draws as our samplers. What the original does in a thread of
//! its own once a period is done here at the next arrival: tick `n` falls `n` periods after the first arrival, and an
//! arrival at the very moment of a tick comes after it. Networks between parts of the original (an agent that sends
//! rates to its clients, a collector that is asked once a minute) are taken to be instant, which flatters a rival
//! whose feedback is slow.
//!
//! One file for each algorithm; each says where it comes from, what is simplified, whether the weight that the
//! original records is true, and how it is known to be biased. [`all`] lists them, [`at_equal_size`] finds the
//! parameter with which one keeps a wanted share of the bytes.

mod brave;
mod consistent_rate;
mod dynsampler;
mod equal_size;
mod fixed;
mod jaeger;
mod spec;
mod ticks;
mod water_fill;
mod xray;

use std::sync::Arc;

use astracer_samplers::Randomness;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

pub use equal_size::{EqualSize, TOLERANCE, at_equal_size};
pub use spec::{InvalidRival, Kind, RivalSpec};

use crate::workload::Workload;

/// A sampler that keeps its state between calls.
pub trait Rival {
    /// Whether this trace is kept. Calls come in order of time.
    fn keeps(&mut self, call: Call) -> bool;
}

/// A trace that begins, as a rival sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// Its key: a place in the [`Keys`] that the rival was built for.
    pub key: u32,
    /// Nanoseconds since the first arrival.
    pub at_ns: u64,
    /// The draw, in [0, 1): what is kept with probability `p` is kept if this is below `p`.
    pub uniform: f64,
}

/// The keys of a workload, and their order by name: some rivals hand out rates in that order.
#[derive(Clone, Debug)]
pub struct Keys {
    by_name: Arc<[u32]>,
}

impl Keys {
    /// Keys with these names; the first is key 0.
    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut named: Vec<(&str, u32)> = names.into_iter().zip(0..).collect();
        named.sort_unstable();
        Self { by_name: named.into_iter().map(|(_, key)| key).collect() }
    }

    /// How many keys there are.
    fn count(&self) -> usize {
        self.by_name.len()
    }

    /// The keys in the order of their names' bytes.
    fn by_name(&self) -> impl Iterator<Item = usize> {
        self.by_name.iter().map(|&key| key as usize)
    }
}

/// Every kind of rival, with its default parameters.
pub fn all() -> Vec<RivalSpec> {
    spec::KINDS.iter().map(|kind| RivalSpec::with_defaults(kind)).collect()
}

/// Decides each arrival in order and calls `keep` with the index of each one kept.
///
/// The draws are those of our samplers' replay with the same seed: what a ratio keeps there, the same ratio keeps here.
pub fn replay(workload: &Workload, spec: &RivalSpec, seed: u64, keep: impl FnMut(usize)) {
    let mut rival = spec.build(&Keys::new(workload.keys().names()));
    run(workload, rival.as_mut(), seed, keep);
}

fn run(workload: &Workload, rival: &mut dyn Rival, seed: u64, mut keep: impl FnMut(usize)) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for (index, arrival) in workload.arrivals().iter().enumerate() {
        let uniform = uniform(Randomness::from_low_bits(rng.next_u64()));
        if rival.keeps(Call { key: arrival.key, at_ns: arrival.at_ns, uniform }) {
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
mod tests;
