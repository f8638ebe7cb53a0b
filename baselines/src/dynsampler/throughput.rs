//! `PerKeyThroughput` and `TotalThroughput`: a number of traces per second, for each key or shared
//! equally by all keys.
//!
//! The rate is the key's count in the last interval divided by the number it may keep, truncated to
//! a whole number. Golden vectors: `genericsampler_test.go` and `perkeythroughput_test.go`. For the
//! total they are computed by hand, because the original's tests still expect the results from
//! before 0.6.0, when a share could not be a fraction.

use super::{ByKey, one_in};
use crate::kind::{Kind, Parameter};
use crate::ticks::{Ticks, nanos};
use crate::{Baseline, Call, Keys};

pub(crate) static PER_KEY_THROUGHPUT: Kind = Kind {
    name: "dynsampler-per-key",
    about: "traces per second of each key, from its count in the last interval",
    source: "PerKeyThroughput, github.com/honeycombio/dynsampler-go 0.6.3",
    bias: "unbiased weights; rates truncated to whole numbers, so up to twice the goal; first interval kept whole",
    parameters: &[Parameter::positive("goal", 10.0), Parameter::seconds("period", 30.0)],
    larger_keeps_more: true,
    build: |values, keys| Box::new(Throughput::new(Share::EachKey, values[0], values[1], keys)),
};

pub(crate) static TOTAL_THROUGHPUT: Kind = Kind {
    name: "dynsampler-total",
    about: "traces per second in equal shares of the keys of the last interval",
    source: "TotalThroughput, github.com/honeycombio/dynsampler-go 0.6.3",
    bias: "unbiased weights; the unused part of rare keys' shares is lost; first interval kept whole",
    parameters: &[Parameter::positive("goal", 100.0), Parameter::seconds("period", 30.0)],
    larger_keeps_more: true,
    build: |values, keys| Box::new(Throughput::new(Share::AllKeys, values[0], values[1], keys)),
};

#[derive(Clone, Copy)]
pub(super) enum Share {
    EachKey,
    AllKeys,
}

pub(super) struct Throughput {
    share: Share,
    /// The number of traces that may be kept in an interval, by each key or by all.
    wanted: f64,
    ticks: Ticks,
    pub(super) counts: ByKey,
    /// The counts of the last interval.
    last: ByKey,
    wanted_per_key: f64,
}

impl Throughput {
    pub(super) fn new(share: Share, goal_per_s: f64, period_s: f64, keys: &Keys) -> Self {
        Self {
            share,
            wanted: goal_per_s * nanos(period_s) as f64 / 1e9,
            ticks: Ticks::every(period_s),
            counts: ByKey::zero(keys.count()),
            last: ByKey::zero(keys.count()),
            wanted_per_key: f64::INFINITY,
        }
    }

    pub(super) fn update(&mut self) {
        self.wanted_per_key = match self.share {
            Share::EachKey => self.wanted,
            Share::AllKeys => self.wanted / self.counts.len() as f64,
        };
        std::mem::swap(&mut self.counts, &mut self.last);
        self.counts.clear();
    }

    pub(super) fn rate(&self, key: u32) -> f64 {
        throughput_rate(self.last.of(key), self.wanted_per_key)
    }
}

/// The count divided by the wanted number, truncated to a whole number; 1 for a key that did not
/// occur.
pub(super) fn throughput_rate(count: f64, wanted_per_key: f64) -> f64 {
    if count > 0.0 { (count / wanted_per_key).max(1.0).trunc() } else { 1.0 }
}

impl Baseline for Throughput {
    fn keeps(&mut self, call: Call) -> bool {
        // Once an interval has passed without traffic, further ones change nothing.
        for _ in 0..self.ticks.passed(call.at_ns).min(2) {
            self.update();
        }
        self.counts.add(call.key, 1.0);
        one_in(self.rate(call.key), call.uniform)
    }
}
