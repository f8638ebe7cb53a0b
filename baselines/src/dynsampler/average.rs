//! `AvgSampleRate`: an average rate, met with the counts of the last interval.
//!
//! Before the first interval is over, every key has the average rate itself. Golden vectors: `genericsampler_test.go`
//! and `avgsamplerate_test.go`.

use super::allocation::allocate;
use super::{Rates, one_in};
use crate::spec::{Kind, Parameter};
use crate::ticks::Ticks;
use crate::{Baseline, Call, Keys};

pub(crate) static AVERAGE_RATE: Kind = Kind {
    name: "dynsampler-avg",
    about: "an average sample rate, frequent keys more, by the logarithm of their counts in the last interval",
    source: "AvgSampleRate, github.com/honeycombio/dynsampler-go 0.6.3",
    bias: "weights true; rates rounded up, so fewer are kept; keys unseen in the last interval are kept whole",
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
    pub(super) counts: Vec<f64>,
    pub(super) rates: Rates,
    has_data: bool,
}

impl AverageRate {
    pub(super) fn new(goal: f64, period_s: f64, keys: &Keys) -> Self {
        Self {
            goal,
            ticks: Ticks::every(period_s),
            keys: keys.clone(),
            counts: vec![0.0; keys.count()],
            rates: Rates::none(keys.count()),
            has_data: false,
        }
    }

    pub(super) fn update(&mut self) {
        let total: f64 = self.counts.iter().sum();
        if total == 0.0 {
            self.rates.clear();
            return;
        }
        let logarithms: f64 =
            self.counts.iter().filter(|&&count| count > 0.0).map(|count| count.log10()).sum();
        allocate(&self.keys, total / self.goal / logarithms, &self.counts, &mut self.rates);
        self.counts.fill(0.0);
        self.has_data = true;
    }
}

impl Baseline for AverageRate {
    fn keeps(&mut self, call: Call) -> bool {
        // After one interval without traffic, further ones change nothing.
        for _ in 0..self.ticks.passed(call.at_ns).min(2) {
            self.update();
        }
        self.counts[call.key as usize] += 1.0;
        one_in(if self.has_data { self.rates.of(call.key) } else { self.goal }, call.uniform)
    }
}
