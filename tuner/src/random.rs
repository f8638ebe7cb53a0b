//! Seeded random numbers for searches and draws.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A stream of random numbers, determined by a seed and a stream number on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Stream number `stream` of a seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        // A Weyl sequence by the golden ratio spaces the streams' seeds far apart, and the
        // generator's seeding mixes them again.
        Self(Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number in [0, 1), in steps of 2^-53.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A uniform whole number below `end`, which must be above 0.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        (self.uniform() * f64::from(end)) as u32
    }

    /// A normal number with mean 0 and standard deviation 1 (the first number of Box and Muller's
    /// method).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.uniform()).cos()
    }

    /// A number with a Cauchy distribution, centred at 0 with scale 1. Most steps are small, and a
    /// few are very long.
    pub(crate) fn cauchy(&mut self) -> f64 {
        (std::f64::consts::PI * (self.uniform() - 0.5)).tan()
    }
}
