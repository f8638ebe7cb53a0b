//! OpenTelemetry's consistent rate limiting: a probability from a smoothed rate of all traces.
//!
//! Source: `ConsistentRateLimitingSampler`, github.com/open-telemetry/opentelemetry-java-contrib,
//! `consistent-sampling` (package `consistent56`, commit 04c83ba), after Wright, "Forecasting data
//! published at irregular time intervals using an extension of Holt's method", Management Science
//! 32.4 (1986). Golden vectors: by hand, and the rates that `ConsistentRateLimitingSamplerTest`
//! requires.
//!
//! With b = e^(-dt/adaptation), C = b C + 1 and W = b W + dt, a trace is kept with probability
//! min(1, target W / C). The threshold is recorded, and the weight is unbiased, because the
//! probability depends only on arrival times. Keys are ignored, so rare ones are lost. At the first
//! arrival no time has passed, and the probability is 0. After a change of the traffic's rate, the
//! probability is off for about `adaptation`. Traces within one clock tick have no time between
//! them, so coarse clocks understate W.

use super::kind::{Kind, Parameter};
use super::ticks::nanos;
use super::{Baseline, Call};

pub(super) static KIND: Kind = Kind {
    name: "otel-rate",
    about: "traces per second over all keys, at random, from a smoothed rate",
    source: "ConsistentRateLimitingSampler, github.com/open-telemetry/opentelemetry-java-contrib, commit 04c83ba",
    bias: "unbiased weights; overshoots at the start of a burst; rare keys are lost",
    parameters: &[Parameter::positive("rate", 10.0), Parameter::seconds("adaptation", 5.0)],
    larger_keeps_more: true,
    build: |values, _| Box::new(ConsistentRate::new(values[0], values[1])),
};

struct ConsistentRate {
    target_per_ns: f64,
    adaptation_ns: f64,
    count: f64,
    window_ns: f64,
    last_ns: u64,
}

impl ConsistentRate {
    fn new(target_per_s: f64, adaptation_s: f64) -> Self {
        Self {
            target_per_ns: target_per_s / 1e9,
            adaptation_ns: nanos(adaptation_s) as f64,
            count: 0.0,
            window_ns: 0.0,
            last_ns: 0,
        }
    }

    /// Counts a trace, and returns the probability with which to keep it.
    fn probability(&mut self, at_ns: u64) -> f64 {
        let since_ns = at_ns.saturating_sub(self.last_ns) as f64;
        let decay = (-since_ns / self.adaptation_ns).exp();
        self.count = self.count * decay + 1.0;
        self.window_ns = self.window_ns * decay + since_ns;
        self.last_ns = self.last_ns.max(at_ns);
        (self.window_ns * self.target_per_ns / self.count).min(1.0)
    }
}

impl Baseline for ConsistentRate {
    fn keeps(&mut self, call: Call) -> bool {
        call.uniform < self.probability(call.at_ns)
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    use super::*;

    /// Target 1/s, adaptation 1 s. At 0 the probability is 0. At 1 s: W = 1, C = e^-1 + 1. At 1.5
    /// s: W = e^-0.5 + 0.5, C = (e^-1 + 1) e^-0.5 + 1. At a second arrival at 1.5 s, C is one more.
    #[test]
    fn follows_the_recursion() {
        let mut sampler = ConsistentRate::new(1.0, 1.0);
        let expected =
            [(0, 0.0), (1000, 0.731_058_578_630), (1500, 0.604_773_654_057), (1500, 0.391_047_100_750)];
        for (at_ms, probability) in expected {
            let found = sampler.probability(at_ms * 1_000_000);
            assert!((found - probability).abs() < 1e-12, "at {at_ms} ms: {found}");
        }
        assert_eq!(ConsistentRate::new(3.0, 1.0).probability(10_000_000_000), 1.0);
    }

    /// `testRateIncrease`, with rates ten times lower: 1,000/s for 50 s, then 10,000/s for 50 s,
    /// with a target of 100/s. The original requires 5 %; 500 kept in 5 s have a standard deviation
    /// of at most 22 (binomial), so 20 % is 4.5 standard deviations.
    #[test]
    fn reaches_the_target_and_overshoots_after_a_change() {
        let mut sampler = ConsistentRate::new(100.0, 5.0);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut kept_in = [0; 20];
        let slow = (1..=50_000).map(|n| n * 1_000_000);
        let fast = (1..=500_000).map(|n| 50_000_000_000 + n * 100_000);
        for at_ns in slow.chain(fast) {
            let uniform = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            let kept = sampler.keeps(Call { key: 0, at_ns, uniform });
            kept_in[((at_ns - 1) / 5_000_000_000) as usize] += u64::from(kept);
        }
        assert!((400..=600).contains(&kept_in[9]), "before the change: {kept_in:?}");
        assert!(kept_in[10] > 1000, "after the change: {kept_in:?}");
        assert!((400..=600).contains(&kept_in[19]), "at the end: {kept_in:?}");
    }
}
