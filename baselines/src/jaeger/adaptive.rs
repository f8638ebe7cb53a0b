//! Adaptive: the collector adjusts each operation's probability toward a target rate of kept
//! traces.
//!
//! Source: `PostAggregator` and `PercentageIncreaseCappedCalculator`,
//! github.com/jaegertracing/jaeger, `internal/sampling/samplingstrategy/adaptive`; the defaults are
//! those of its `options.go`. Golden vectors: `post_aggregator_test.go`.
//!
//! The collector sees only kept traces, and of these it counts only those that the probability
//! kept. Simplified: the collector's delay of two minutes and the client's polling (once a minute)
//! are left out, so a new probability applies at once. In a recording shorter than a period nothing
//! ever adapts: the result depends only on `initial` and the lower bound.

use std::collections::VecDeque;

use super::{KeepReason, LowerBound, OPERATIONS_MAX};
use crate::kind::{Kind, Parameter, Unit};
use crate::ticks::{Ticks, nanos};
use crate::{Baseline, Call};

/// The number of periods that the collector remembers (`AggregationBuckets`).
const PERIODS_MAX: usize = 10;
/// A rate within this share of the target is left alone (`DeltaTolerance`).
const TOLERANCE: f64 = 0.3;
/// The least probability (`MinSamplingProbability`).
const PROBABILITY_MIN: f64 = 1e-5;
/// The greatest factor by which a probability grows in a period.
const GROWTH_MAX: f64 = 2.0;
/// Probabilities that differ by less than this count as equal.
const SAME: f64 = 1e-10;

pub(crate) static KIND: Kind = Kind {
    name: "jaeger-adaptive",
    about: "traces per second of each key, by adjusting its probability once a minute",
    source: "PostAggregator, github.com/jaegertracing/jaeger, internal/sampling/samplingstrategy/adaptive",
    bias: "slow: at most doubles per minute, from 0.001; traces kept only by the lower bound have no unbiased weight",
    parameters: &[
        Parameter::positive("target", 1.0),
        Parameter::seconds("period", 60.0),
        Parameter { name: "buckets", unit: Unit::Whole, default: 1.0, min: 1.0, max: PERIODS_MAX as f64 },
        Parameter { name: "initial", unit: Unit::Number, default: 0.001, min: PROBABILITY_MIN, max: 1.0 },
        Parameter::seconds("lower", 60.0),
    ],
    larger_keeps_more: true,
    build: |values, keys| {
        Box::new(Adaptive {
            target: values[0],
            period_s: nanos(values[1]) as f64 / 1e9,
            ticks: Ticks::every(values[1]),
            periods_weighted: values[2] as usize,
            initial: values[3],
            lower_s: values[4],
            operations: (0..keys.count()).map(|_| None).collect(),
            known: 0,
            remembered: Vec::new(),
        })
    },
};

struct Adaptive {
    target: f64,
    period_s: f64,
    ticks: Ticks,
    periods_weighted: usize,
    initial: f64,
    lower_s: f64,
    operations: Vec<Option<Operation>>,
    known: usize,
    /// The keys for which the collector remembers traces; an update skips all others.
    remembered: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Operation {
    probability: f64,
    bound: LowerBound,
    /// The number of traces that the probability kept in the present period; `None` if no trace was
    /// kept.
    current: Option<u64>,
    /// The same for past periods, latest first. Empty if the collector remembers no trace.
    past: VecDeque<Option<u64>>,
    /// The probability before the last calculation, and whether the collector took it to be in use.
    last: Option<(f64, bool)>,
}

impl Operation {
    fn new(initial: f64, lower_s: f64, now_ns: u64) -> Self {
        Self {
            probability: initial,
            bound: LowerBound::every(lower_s, now_ns),
            current: None,
            past: VecDeque::with_capacity(PERIODS_MAX + 1),
            last: None,
        }
    }
}

impl Adaptive {
    /// Ends the period, and recalculates the probabilities.
    fn update(&mut self) {
        self.remembered.retain(|&key| {
            let Some(operation) = &mut self.operations[key as usize] else { return false };
            operation.past.push_front(operation.current.take());
            operation.past.truncate(PERIODS_MAX);
            let counts = operation.past.iter().flatten().take(self.periods_weighted);
            let rates: Vec<f64> = counts.map(|&count| count as f64 / self.period_s).collect();
            if rates.is_empty() {
                operation.past.clear();
                (operation.probability, operation.last) = (self.initial, None);
                return false;
            }
            let old = operation.probability;
            let is_initial = |probability: f64| (probability - self.initial).abs() < SAME;
            // The collector checks whether clients use the probability that it sent. Ours always
            // do: the latest traces were kept with the probability of their time. But if no trace
            // arrived, the collector relies on the result of its last check.
            let in_use = is_initial(old)
                || operation.past[0].is_some()
                || operation.last.is_some_and(|(probability, in_use)| in_use && !is_initial(probability));
            operation.last = Some((old, in_use));
            if in_use {
                operation.probability = steer(old, weighted(&rates), self.target, TOLERANCE);
            }
            true
        });
    }
}

/// The mean of rates, latest first, weighted with the fourth power of the position counted from the
/// end.
pub(super) fn weighted(rates: &[f64]) -> f64 {
    let weights = || (1..=rates.len()).rev().map(|place| (place as f64).powi(4));
    let sum: f64 = rates.iter().zip(weights()).map(|(rate, weight)| rate * weight).sum();
    sum / weights().sum::<f64>().max(1.0)
}

/// The probability that brings the rate of kept traces to the target, at most doubled at once.
pub(super) fn steer(old: f64, rate: f64, target: f64, tolerance: f64) -> f64 {
    if (rate - target).abs() / target < tolerance {
        return old;
    }
    let factor = if rate.abs() < SAME { GROWTH_MAX } else { (target / rate).min(GROWTH_MAX) };
    (old * factor).clamp(PROBABILITY_MIN, 1.0)
}

impl Baseline for Adaptive {
    fn keeps(&mut self, call: Call) -> bool {
        // Once all remembered periods have passed without traffic, further ones change nothing.
        for _ in 0..self.ticks.passed(call.at_ns).min(PERIODS_MAX as u64 + 1) {
            self.update();
        }
        let slot = &mut self.operations[call.key as usize];
        if slot.is_none() {
            if self.known == OPERATIONS_MAX {
                return call.uniform < self.initial;
            }
            self.known += 1;
        }
        let operation = slot.get_or_insert_with(|| Operation::new(self.initial, self.lower_s, call.at_ns));
        let kept = operation.bound.decide(operation.probability, call.uniform, call.at_ns);
        if let Some(kept_by) = kept {
            if operation.current.is_none() && operation.past.is_empty() {
                self.remembered.push(call.key);
            }
            *operation.current.get_or_insert(0) += u64::from(kept_by == KeepReason::Probability);
        }
        kept.is_some()
    }
}
