//! Helpers for several modules: seeded randomness and shorthands.

use astracer_samplers::{Config, Decision, Limits, Nanos, Randomness, Request, Sampler};

/// SplitMix64 (Steele, Lea, Flood 2014): the same numbers for the same seed, everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn randomness(&mut self) -> Randomness {
        Randomness::from_low_bits(self.next())
    }
}

pub(crate) fn sampler(config: &str) -> Sampler {
    Sampler::new(&config.parse().unwrap())
}

pub(crate) fn limited(config: &str, limits: Limits) -> Sampler {
    Sampler::with_limits(&config.parse::<Config>().unwrap(), limits)
}

/// A call at this many milliseconds that is kept unless nothing is.
pub(crate) fn call(sampler: &Sampler, key: &str, millis: u64) -> Decision {
    sampler.decide(&Request::new(key, Randomness::MAX, Nanos::from_millis(millis)))
}

/// A call that is dropped unless everything is kept.
pub(crate) fn unlucky(sampler: &Sampler, key: &str, millis: u64) -> Decision {
    sampler.decide(&Request::new(key, Randomness::MIN, Nanos::from_millis(millis)))
}
