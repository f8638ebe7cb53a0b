//! `AvgSampleRate`: an average rate, met by the counts of the last interval.
//!
//! Until the first interval is over, every key has the average rate itself. Golden vectors:
//! `genericsampler_test.go` and `avgsamplerate_test.go`.

use super::allocation::allocate;
use super::{ByKey, one_in};
use crate::kind::{Kind, Parameter};
use crate::ticks::Ticks;
use crate::{Baseline, Call, Keys};

pub(crate) static AVERAGE_RATE: Kind = Kind {
    name: "dynsampler-avg",
    about: "an average sample rate, shared by the logarithm of each key's count in the last interval",
    source: "AvgSampleRate, github.com/honeycombio/dynsampler-go 0.6.3",
    bias: "unbiased weights; rates rounded up, so fewer are kept; keys unseen in the last interval are kept whole",
    parameters: &[
        Parameter { min: 1.0, ..Parameter::positive("goal", 10.0) },
        Parameter::seconds("period", 30.0),
    ],
    larger_keeps_more: false,
    build: |values, keys| Box::new(AverageRate::new(values[0], values[1], keys)),
};

pub(super) struct AverageRate {
    goal: f64,
    ticks: Ticks,
    keys: Keys,
    pub(super) counts: ByKey,
    pub(super) rates: ByKey,
    has_data: bool,
}

impl AverageRate {
    pub(super) fn new(goal: f64, period_s: f64, keys: &Keys) -> Self {
        Self {
            goal,
            ticks: Ticks::every(period_s),
            keys: keys.clone(),
            counts: ByKey::zero(keys.count()),
            rates: ByKey::zero(keys.count()),
            has_data: false,
        }
    }

    pub(super) fn update(&mut self) {
        if self.counts.is_empty() {
            self.rates.clear();
            return;
        }
        self.counts.sort_by_name(&self.keys);
        let total: f64 = self.counts.numbers().sum();
        let logarithms: f64 = self.counts.numbers().map(f64::log10).sum();
        allocate(total / self.goal / logarithms, &self.counts, &mut self.rates);
        self.counts.clear();
        self.has_data = true;
    }
}

impl Baseline for AverageRate {
    fn keeps(&mut self, call: Call) -> bool {
        // Once an interval has passed without traffic, further ones change nothing.
        for _ in 0..self.ticks.passed(call.at_ns).min(2) {
            self.update();
        }
        self.counts.add(call.key, 1.0);
        one_in(if self.has_data { self.rates.of(call.key) } else { self.goal }, call.uniform)
    }
}
