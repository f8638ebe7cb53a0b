//! Random numbers for the searches, made from a seed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A stream of random numbers: the same for the same seed and stream anywhere.
#[derive(Clone, Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The `stream`th stream of a seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        // Weyl's sequence by the golden ratio: seeds of streams lie far apart, and are spread again
        // by the generator.
        Self(Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform over [0, 1), in steps of 2^-53.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A whole number below `end`, which is above 0.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        (self.uniform() * f64::from(end)) as u32
    }

    /// The normal distribution with mean 0 and deviation 1 (Box and Muller's first number).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.uniform()).cos()
    }

    /// Cauchy's distribution, centred at 0 with scale 1: mostly small steps, now and then a long
    /// one.
    pub(crate) fn cauchy(&mut self) -> f64 {
        (std::f64::consts::PI * (self.uniform() - 0.5)).tan()
    }
}
