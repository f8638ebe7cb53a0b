//! `EMASampleRate` and `EMAThroughput`: the same allocation over an exponential moving average of
//! the counts.
//!
//! A key whose average falls below the weight is forgotten. An interval without any traffic changes
//! nothing. After three intervals, traffic of twice the sum of the averages ends an interval at
//! once (burst detection); the call that reaches this number still has the old rate. Golden
//! vectors: `genericsampler_test.go`, `emasamplerate_test.go` and `emathroughput_test.go`. Until
//! 0.5.1, `EMAThroughput` divided its goal by the interval's length; here it multiplies.

use super::allocation::allocate;
use super::{ByKey, one_in};
use crate::kind::{Kind, Parameter, Unit};
use crate::ticks::Ticks;
use crate::{Baseline, Call, Keys};

/// The rate until the first interval of `EMAThroughput` is over.
const THROUGHPUT_RATE_AT_START: f64 = 10.0;
/// Traffic of this many times the sum of the averages in one interval is a burst.
const BURST_MULTIPLE: f64 = 2.0;
/// The number of intervals before bursts are detected.
const BURST_DELAY_INTERVALS: u64 = 3;

pub(crate) static MOVING_RATE: Kind = Kind {
    name: "dynsampler-ema",
    about: "an average sample rate, shared by the logarithm of each key's moving average, with burst detection",
    source: "EMASampleRate, github.com/honeycombio/dynsampler-go 0.6.3",
    bias: "unbiased weights; rates rounded up, so fewer are kept; keys without an average are kept whole",
    parameters: &[
        Parameter { min: 1.0, ..Parameter::positive("goal", 10.0) },
        Parameter::seconds("period", 15.0),
        WEIGHT,
    ],
    larger_keeps_more: false,
    build: |values, keys| Box::new(Moving::new(Goal::AverageRate(values[0]), values[1], values[2], keys)),
};

pub(crate) static MOVING_THROUGHPUT: Kind = Kind {
    name: "dynsampler-ema-throughput",
    about: "traces per second, shared by the logarithm of each key's moving average, with burst detection",
    source: "EMAThroughput, github.com/honeycombio/dynsampler-go 0.6.3",
    bias: "unbiased weights; lags by some intervals, starts at one in 10; keys without an average are kept whole",
    parameters: &[Parameter::positive("goal", 100.0), Parameter::seconds("period", 15.0), WEIGHT],
    larger_keeps_more: true,
    build: |values, keys| {
        Box::new(Moving::new(Goal::PerInterval(values[0] * values[1]), values[1], values[2], keys))
    },
};

const WEIGHT: Parameter = Parameter { name: "weight", unit: Unit::Number, default: 0.5, min: 1e-3, max: 1.0 };

#[derive(Clone, Copy)]
pub(super) enum Goal {
    /// One trace in this many.
    AverageRate(f64),
    /// This many traces per interval.
    PerInterval(f64),
}

pub(super) struct Moving {
    goal: Goal,
    /// The weight of the newest interval in the average.
    weight: f64,
    ticks: Ticks,
    keys: Keys,
    pub(super) counts: ByKey,
    pub(super) averages: ByKey,
    pub(super) rates: ByKey,
    has_data: bool,
    intervals: u64,
    calls_in_interval: f64,
    pub(super) burst_threshold: f64,
}

impl Moving {
    pub(super) fn new(goal: Goal, period_s: f64, weight: f64, keys: &Keys) -> Self {
        Self {
            goal,
            weight,
            ticks: Ticks::every(period_s),
            keys: keys.clone(),
            counts: ByKey::zero(keys.count()),
            averages: ByKey::zero(keys.count()),
            rates: ByKey::zero(keys.count()),
            has_data: false,
            intervals: 0,
            calls_in_interval: 0.0,
            burst_threshold: 0.0,
        }
    }

    pub(super) fn update(&mut self) {
        if self.counts.is_empty() {
            return;
        }
        let weight = self.weight;
        self.averages.map(|average| (1.0 - weight) * average);
        for (key, count) in self.counts.iter() {
            self.averages.add(key, weight * count);
        }
        self.averages.map(|average| if average < weight { 0.0 } else { average });
        self.averages.sort_by_name(&self.keys);
        self.counts.clear();
        self.calls_in_interval = 0.0;
        let tracked = || self.averages.numbers().map(|average| average.max(1.0));
        let total: f64 = tracked().sum();
        self.burst_threshold = BURST_MULTIPLE * total;
        let wanted = match self.goal {
            Goal::AverageRate(rate) => total / rate,
            Goal::PerInterval(traces) => traces,
        };
        let ratio = wanted / tracked().map(f64::log10).sum::<f64>();
        allocate(ratio, &self.averages, &mut self.rates);
        self.has_data = true;
    }

    fn rate(&self, key: u32) -> f64 {
        match self.goal {
            _ if self.has_data => self.rates.of(key),
            Goal::AverageRate(rate) => rate,
            Goal::PerInterval(_) => THROUGHPUT_RATE_AT_START,
        }
    }
}

impl Baseline for Moving {
    fn keeps(&mut self, call: Call) -> bool {
        let passed = self.ticks.passed(call.at_ns);
        if passed > 0 {
            // Only the first of these intervals can have had traffic.
            self.update();
            self.intervals = self.intervals.saturating_add(passed);
        }
        self.counts.add(call.key, 1.0);
        self.calls_in_interval += 1.0;
        let keep = one_in(self.rate(call.key), call.uniform);
        let is_burst = self.burst_threshold > 0.0 && self.calls_in_interval >= self.burst_threshold;
        if is_burst && self.intervals >= BURST_DELAY_INTERVALS {
            self.update();
            self.ticks.restart(call.at_ns);
        }
        keep
    }
}
