//! AWS X-Ray: a reservoir of traces per second, and a fixed rate of the rest.
//!
//! Source: `Reservoir` and `Rule.Sample`, github.com/aws/aws-xray-sdk-go, `strategy/sampling`
//! (commit fe32e43): local rules, with the default rule's one trace per second and 5 %. Golden
//! vectors: `reservoir_test.go` and `sampling_rule_test.go`.
//!
//! One rule serves all keys here, as by default. The reservoir refills at each second (of the Unix
//! epoch in the original, from the first arrival here) and goes to whatever comes first. A trace
//! does not record whether the reservoir or the rate kept it, and has no weight; 1/rate would be
//! wrong for a quiet service, which is kept nearly whole.

use super::kind::{Kind, Parameter, Unit};
use super::{Baseline, Call};

pub(super) static KIND: Kind = Kind {
    name: "xray",
    about: "the first traces of each second, and a fixed share of the rest",
    source: "Rule.Sample, github.com/aws/aws-xray-sdk-go, strategy/sampling/sampling_rule.go, commit fe32e43",
    bias: "keeps what comes first in a second; no weight is recorded, because none would be unbiased",
    parameters: &[
        Parameter { name: "rate", unit: Unit::Number, default: 0.05, min: 0.0, max: 1.0 },
        Parameter { name: "reservoir", unit: Unit::Whole, default: 1.0, min: 0.0, max: 1e12 },
    ],
    larger_keeps_more: true,
    build: |values, _| Box::new(Rule { rate: values[0], reservoir: values[1] as u64, second: 0, taken: 0 }),
};

struct Rule {
    rate: f64,
    reservoir: u64,
    second: u64,
    taken: u64,
}

impl Baseline for Rule {
    fn keeps(&mut self, call: Call) -> bool {
        let second = call.at_ns / 1_000_000_000;
        if second != self.second {
            (self.second, self.taken) = (second, 0);
        }
        if self.taken < self.reservoir {
            self.taken += 1;
            return true;
        }
        call.uniform < self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten calls per second for 1.5 s: a reservoir of 1 keeps 2 calls, one of 10 keeps all 15
    /// (`TestOnePerSecond`, `TestTenPerSecond`).
    #[test]
    fn a_reservoir_is_full_again_each_second() {
        for (reservoir, expected) in [(0, 0), (1, 2), (10, 15)] {
            let mut rule = Rule { rate: 0.06, reservoir, second: 0, taken: 0 };
            let keeps = |n: &u64| rule.keeps(Call { key: 0, at_ns: n * 100_000_000, uniform: 0.07 });
            assert_eq!((0..15).filter(keeps).count(), expected, "reservoir {reservoir}");
        }
    }

    /// `TestBernoulliSamplePositve`, `TestLocalBernoulliSample`: draws of 0.05 and 0.07 against a
    /// rate of 0.06.
    #[test]
    fn beyond_the_reservoir_the_rate_decides() {
        let mut rule = Rule { rate: 0.06, reservoir: 1, second: 0, taken: 0 };
        let kept = [0.99, 0.05, 0.07].map(|uniform| rule.keeps(Call { key: 0, at_ns: 0, uniform }));
        assert_eq!(kept, [true, true, false]);
    }
}
