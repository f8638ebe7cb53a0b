//! `WindowedThroughput`: the total throughput, from a rolling window that is evaluated often.
//!
//! At each tick the window holds the intervals that ended within the lookback, which is truncated
//! to whole intervals. The original returns 0 for a key without a rate; like its users, this treats
//! 0 as 1. Golden vectors: `genericsampler_test.go` and `windowedthroughput_test.go`. The original
//! aligns its intervals to the Unix epoch and its ticks to its start; here both are aligned to the
//! first arrival.

use std::collections::VecDeque;

use super::throughput::throughput_rate;
use super::{ByKey, one_in};
use crate::kind::{Kind, Parameter};
use crate::ticks::{Ticks, nanos};
use crate::{Baseline, Call, Keys};

pub(crate) static WINDOWED_THROUGHPUT: Kind = Kind {
    name: "dynsampler-windowed",
    about: "traces per second in equal shares of the keys of a rolling window",
    source: "WindowedThroughput, github.com/honeycombio/dynsampler-go 0.6.3",
    bias: "unbiased weights; until the window is full, rates come from too few counts, so too much is kept",
    parameters: &[
        Parameter::positive("goal", 100.0),
        Parameter::seconds("period", 1.0),
        Parameter::seconds("lookback", 30.0),
    ],
    larger_keeps_more: true,
    build: |values, keys| Box::new(Windowed::new(values[0], values[1], values[2], keys)),
};

pub(super) struct Windowed {
    /// The number of traces that may be kept in a lookback.
    wanted: f64,
    /// The number of intervals in a lookback.
    lookback: u64,
    ticks: Ticks,
    interval: u64,
    /// The counts of the present interval.
    pub(super) counts: ByKey,
    /// Past intervals with traffic, with their counts by key; none is older than the lookback.
    pub(super) past: VecDeque<(u64, Vec<(u32, f64)>)>,
    /// The sum of the past intervals for each key. A rate is computed only when a call needs it:
    /// recomputing all rates would cost each interval as much as everything in the window.
    in_window: Vec<f64>,
    /// The number of keys in the window.
    occurring: usize,
    wanted_per_key: f64,
}

impl Windowed {
    pub(super) fn new(goal_per_s: f64, period_s: f64, lookback_s: f64, keys: &Keys) -> Self {
        let lookback = (nanos(lookback_s) / nanos(period_s)).max(1);
        Self {
            wanted: goal_per_s * lookback as f64 * nanos(period_s) as f64 / 1e9,
            lookback,
            ticks: Ticks::every(period_s),
            interval: 0,
            counts: ByKey::zero(keys.count()),
            past: VecDeque::new(),
            in_window: vec![0.0; keys.count()],
            occurring: 0,
            wanted_per_key: f64::INFINITY,
        }
    }

    /// Ends the present interval, and `passed - 1` intervals without traffic after it.
    pub(super) fn update(&mut self, passed: u64) {
        let ended: Vec<_> = self.counts.iter().collect();
        self.counts.clear();
        for &(key, count) in &ended {
            let in_window = &mut self.in_window[key as usize];
            self.occurring += usize::from(*in_window == 0.0);
            *in_window += count;
        }
        if !ended.is_empty() {
            self.past.push_back((self.interval, ended));
        }
        self.interval = self.interval.saturating_add(passed);
        let oldest = self.interval.saturating_sub(self.lookback);
        let gone = self.past.iter().take_while(|(interval, _)| *interval < oldest).count();
        for (key, count) in self.past.drain(..gone).flat_map(|(_, counts)| counts) {
            // Counts are whole numbers, so the sum returns to exactly 0.
            let in_window = &mut self.in_window[key as usize];
            *in_window -= count;
            self.occurring -= usize::from(*in_window == 0.0);
        }
        self.wanted_per_key = self.wanted / self.occurring as f64;
    }

    pub(super) fn rate(&self, key: u32) -> f64 {
        throughput_rate(self.in_window[key as usize], self.wanted_per_key)
    }
}

impl Baseline for Windowed {
    fn keeps(&mut self, call: Call) -> bool {
        let passed = self.ticks.passed(call.at_ns);
        if passed > 0 {
            self.update(passed);
        }
        self.counts.add(call.key, 1.0);
        one_in(self.rate(call.key), call.uniform)
    }
}
