//! The simplest baselines: a fixed share at random, and every n-th trace.
//!
//! - `ratio`: OpenTelemetry's probability sampling ("TraceState: Probability Sampling": keep if
//!   `R >= T`), without rounding the threshold to few digits. Its weight, 1/p, is unbiased. It does
//!   not adapt, so rare keys are lost.
//! - `every`: HTrace 4.0.1, `CountSampler` (and Zipkin Brave's `CountingSampler` without its
//!   shuffling). The original starts counting at a random number; here, as in our own `every`, the
//!   first trace is kept. A weight of n is unbiased only if the order of traces is unrelated to
//!   their content: with an even n, a client that alternates between two calls is seen through only
//!   one of them.

use super::kind::{Kind, Parameter, Unit};
use super::{Baseline, Call};

pub(super) static RATIO: Kind = Kind {
    name: "ratio",
    about: "a fixed share of the traces, at random",
    source: "OpenTelemetry specification, TraceState: Probability Sampling",
    bias: "none; unbiased weights; rare keys are lost",
    parameters: &[Parameter { name: "", unit: Unit::Number, default: 0.1, min: 1e-9, max: 1.0 }],
    larger_keeps_more: true,
    build: |values, _| Box::new(Ratio { probability: values[0] }),
};

pub(super) static EVERY_NTH: Kind = Kind {
    name: "every",
    about: "the first of each n traces, whatever their keys",
    source: "HTrace 4.0.1, org.apache.htrace.core.CountSampler",
    bias: "biased by any rhythm in the traffic; a weight of n is unbiased only without one",
    parameters: &[Parameter { name: "", unit: Unit::Whole, default: 10.0, min: 1.0, max: 1e12 }],
    larger_keeps_more: false,
    build: |values, _| Box::new(EveryNth { n: values[0] as u64, calls: 0 }),
};

struct Ratio {
    probability: f64,
}

impl Baseline for Ratio {
    fn keeps(&mut self, call: Call) -> bool {
        call.uniform < self.probability
    }
}

struct EveryNth {
    n: u64,
    calls: u64,
}

impl Baseline for EveryNth {
    fn keeps(&mut self, _: Call) -> bool {
        let keep = self.calls.is_multiple_of(self.n);
        self.calls += 1;
        keep
    }
}
