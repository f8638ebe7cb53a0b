//! `WindowedThroughput`: the total throughput, from a rolling window that is looked at often.
//!
//! At each tick the window holds the intervals that ended within the lookback, which is cut off to whole intervals. The
//! original answers 0 for a key that it has no rate for; as its users do, that is taken as 1. Golden vectors:
//! `genericsampler_test.go` and `windowedthroughput_test.go`. The original's intervals are aligned to the Unix epoch
//! and its ticks to its start; here both are aligned to the first arrival.

use std::collections::VecDeque;

use super::{Rates, occurring, one_in};
use crate::spec::{Kind, Parameter};
use crate::ticks::{Ticks, nanos};
use crate::{Baseline, Call, Keys};

pub(crate) static WINDOWED_THROUGHPUT: Kind = Kind {
    name: "dynsampler-windowed",
    about: "traces per second in equal shares of the keys of a rolling window",
    source: "WindowedThroughput, github.com/honeycombio/dynsampler-go 0.6.3",
    bias: "weights true; until the window is full the goal is met with too few counts, so too much is kept",
    parameters: &[
        Parameter::positive("goal", 100.0),
        Parameter::seconds("period", 1.0),
        Parameter::seconds("lookback", 30.0),
    ],
    larger_keeps_more: true,
    build: |values, keys| Box::new(Windowed::new(values[0], values[1], values[2], keys)),
};

pub(super) struct Windowed {
    /// Traces that may be kept in a lookback.
    wanted: f64,
    /// Intervals in a lookback.
    lookback: u64,
    ticks: Ticks,
    interval: u64,
    /// In the interval that goes on.
    pub(super) counts: Vec<f64>,
    /// Intervals with traffic, and their counts by key; no older than the lookback.
    pub(super) past: VecDeque<(u64, Vec<(usize, f64)>)>,
    /// Sum of the past.
    in_window: Vec<f64>,
    pub(super) rates: Rates,
}

impl Windowed {
    pub(super) fn new(goal_per_s: f64, period_s: f64, lookback_s: f64, keys: &Keys) -> Self {
        let lookback = (nanos(lookback_s) / nanos(period_s)).max(1);
        Self {
            wanted: goal_per_s * lookback as f64 * nanos(period_s) as f64 / 1e9,
            lookback,
            ticks: Ticks::every(period_s),
            interval: 0,
            counts: vec![0.0; keys.count()],
            past: VecDeque::new(),
            in_window: vec![0.0; keys.count()],
            rates: Rates::none(keys.count()),
        }
    }

    /// Ends the interval that goes on, and `passed - 1` without traffic after it.
    pub(super) fn update(&mut self, passed: u64) {
        let occurred = |(key, count): (usize, &mut f64)| (*count > 0.0).then(|| (key, std::mem::take(count)));
        let ended: Vec<_> = self.counts.iter_mut().enumerate().filter_map(occurred).collect();
        for &(key, count) in &ended {
            self.in_window[key] += count;
        }
        if !ended.is_empty() {
            self.past.push_back((self.interval, ended));
        }
        self.interval = self.interval.saturating_add(passed);
        let oldest = self.interval.saturating_sub(self.lookback);
        let gone = self.past.iter().take_while(|(interval, _)| *interval < oldest).count();
        for (key, count) in self.past.drain(..gone).flat_map(|(_, counts)| counts) {
            self.in_window[key] -= count;
        }
        let wanted_per_key = self.wanted / occurring(&self.in_window) as f64;
        self.rates.set_throughput(&self.in_window, wanted_per_key);
    }
}

impl Baseline for Windowed {
    fn keeps(&mut self, call: Call) -> bool {
        let passed = self.ticks.passed(call.at_ns);
        if passed > 0 {
            self.update(passed);
        }
        self.counts[call.key as usize] += 1.0;
        one_in(self.rates.of(call.key), call.uniform)
    }
}
