//! Guaranteed throughput: one probability for all operations, and at least one trace of each
//! operation per interval.
//!
//! Source: `GuaranteedThroughputProbabilisticSampler` under `PerOperationSampler`,
//! github.com/uber/jaeger-client-go 2.30.0.

use super::{LowerBound, OPERATIONS_MAX};
use crate::kind::{Kind, Parameter, Unit};
use crate::{Baseline, Call, Keys};

pub(crate) static KIND: Kind = Kind {
    name: "jaeger-guaranteed",
    about: "one probability, and at least one trace of each key in an interval",
    source: "GuaranteedThroughputProbabilisticSampler, github.com/uber/jaeger-client-go 2.30.0",
    bias: "traces kept only by the lower bound have no unbiased weight",
    parameters: &[
        Parameter { name: "rate", unit: Unit::Number, default: 0.1, min: 1e-9, max: 1.0 },
        Parameter::seconds("lower", 60.0),
    ],
    larger_keeps_more: true,
    build: |values, keys| Box::new(Guaranteed::new(values[0], values[1], keys)),
};

struct Guaranteed {
    probability: f64,
    interval_s: f64,
    bounds: Vec<Option<LowerBound>>,
    operations: usize,
}

impl Guaranteed {
    fn new(probability: f64, interval_s: f64, keys: &Keys) -> Self {
        Self { probability, interval_s, bounds: vec![None; keys.count()], operations: 0 }
    }
}

impl Baseline for Guaranteed {
    fn keeps(&mut self, call: Call) -> bool {
        let bound = &mut self.bounds[call.key as usize];
        if bound.is_none() {
            if self.operations == OPERATIONS_MAX {
                return call.uniform < self.probability;
            }
            self.operations += 1;
        }
        let bound = bound.get_or_insert_with(|| LowerBound::every(self.interval_s, call.at_ns));
        bound.decide(self.probability, call.uniform, call.at_ns).is_some()
    }
}
