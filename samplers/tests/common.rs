//! Helpers for several modules: seeded randomness and shorthands.

use astracer_samplers::{Config, Decision, Limits, Nanos, Randomness, Request, Sampler};
use astracer_testing::SplitMix;

/// Draws what decides about a trace.
pub(crate) trait Draw {
    fn randomness(&mut self) -> Randomness;
}

impl Draw for SplitMix {
    fn randomness(&mut self) -> Randomness {
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
