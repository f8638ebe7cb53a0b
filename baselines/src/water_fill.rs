//! Water-filling: traces per second shared among keys so that rare keys are kept whole and the
//! others equally.
//!
//! Source: `Sampler` in github.com/DataDog/datadog-agent, `pkg/trace/sampler/coresampler.go`
//! (commit ff58345), under the `PrioritySampler`, whose keys are services. Golden vectors:
//! `coresampler_test.go`.
//!
//! Traces are counted in six buckets (of 5 s in the original). The first arrival in a new bucket
//! updates each key's rate to the one that its fullest bucket requires, at most 1.2 times its
//! previous rate. Clients receive the rates, and one for keys without a rate, with the response to
//! that arrival, so this arrival is still decided by the old rates. The first bucket is therefore
//! kept whole, unless the target is below 0.2 traces per second, which the very first arrival
//! exceeds. The original aligns its buckets to the Unix epoch; here they are aligned to the first
//! arrival.
//!
//! The rate is recorded with the trace, and the weight from it is unbiased. The rate tends to be
//! low: it suits the busiest 5 s of the last 30, and recovers slowly.

use super::kind::{Kind, Parameter};
use super::ticks::nanos;
use super::{Baseline, Call, Keys};

const BUCKETS: u64 = 6;
/// The greatest factor by which a rate rises.
const RISE_MAX: f64 = 1.2;

pub(super) static KIND: Kind = Kind {
    name: "waterfill",
    about: "traces per second, shared so that rare keys are kept whole and the others equally",
    source: "Sampler, github.com/DataDog/datadog-agent, pkg/trace/sampler/coresampler.go, commit ff58345",
    bias: "unbiased weights; keeps less than the goal after a burst, and everything in the first bucket",
    parameters: &[Parameter::positive("rate", 10.0), Parameter::seconds("bucket", 5.0)],
    larger_keeps_more: true,
    build: |values, keys| Box::new(WaterFill::new(values[0], values[1], keys)),
};

type Buckets = [f64; BUCKETS as usize];

struct WaterFill {
    target_per_s: f64,
    bucket_ns: u64,
    bucket: Option<u64>,
    seen: Vec<Option<Buckets>>,
    /// The keys with an entry in `seen`, so that a new bucket costs nothing for keys that were
    /// forgotten or have not arrived yet.
    live: Vec<u32>,
    seen_all: Buckets,
    rates: Vec<Option<f64>>,
    rate_min: f64,
    /// The rate for keys without their own, as last sent to clients.
    default_rate: f64,
}

impl WaterFill {
    fn new(target_per_s: f64, bucket_s: f64, keys: &Keys) -> Self {
        Self {
            target_per_s,
            bucket_ns: nanos(bucket_s),
            bucket: None,
            seen: vec![None; keys.count()],
            live: Vec::new(),
            seen_all: Buckets::default(),
            rates: vec![None; keys.count()],
            rate_min: 1.0,
            default_rate: 1.0,
        }
    }

    fn bucket_s(&self) -> f64 {
        self.bucket_ns as f64 / 1e9
    }

    /// The rate that clients use for a key.
    fn rate(&self, key: u32) -> f64 {
        self.rates[key as usize].unwrap_or(self.default_rate)
    }

    /// Counts `traces` of a key; the first in a new bucket updates the rates.
    fn count(&mut self, bucket: u64, key: u32, traces: f64) {
        let last = self.bucket.replace(bucket);
        let is_new = last != Some(bucket);
        if let Some(last) = last.filter(|_| is_new) {
            self.update(last, bucket);
        }
        let place = (bucket % BUCKETS) as usize;
        let seen = &mut self.seen[key as usize];
        if seen.is_none() {
            self.live.push(key);
        }
        seen.get_or_insert_default()[place] += traces;
        self.seen_all[place] += traces;
        if is_new {
            self.default_rate = self.rate_of_unknown();
        }
    }

    fn update(&mut self, last: u64, bucket: u64) {
        let bucket_s = self.bucket_s();
        let per_s = |buckets: &mut Buckets| rotate(buckets, last, bucket) / bucket_s;
        let buckets = &mut self.seen;
        let fullest = |&key: &u32| buckets[key as usize].as_mut().map_or(0.0, per_s);
        let seen: Vec<f64> = self.live.iter().map(fullest).collect();
        per_s(&mut self.seen_all);
        let level = level(self.target_per_s, seen.clone());
        self.rate_min = 1.0;
        let mut seen = seen.into_iter();
        self.live.retain(|&key| {
            let (key, seen) = (key as usize, seen.next().unwrap_or_default());
            let wanted = if level < seen { level / seen } else { 1.0 };
            let risen = self.rates[key].filter(|&rate| rate > 0.0).map_or(1.0, |rate| rate * RISE_MAX);
            let rate = wanted.min(risen).min(1.0);
            let is_live = rate < 1.0 || seen > 0.0;
            if is_live {
                self.rate_min = self.rate_min.min(rate);
                self.rates[key] = Some(rate);
            } else {
                (self.seen[key], self.rates[key]) = (None, None);
            }
            is_live
        });
    }

    /// The rate of a key without its own: as if all traces had one key, but at most the smallest
    /// rate of any key.
    fn rate_of_unknown(&self) -> f64 {
        let seen = self.seen_all.iter().copied().fold(0.0, f64::max) / self.bucket_s();
        (self.target_per_s / seen).min(self.rate_min)
    }
}

/// The rate at which keys are capped so that all together keep `target`: keys below it leave the
/// unused part of their share to the others.
fn level(mut target: f64, mut seen: Vec<f64>) -> f64 {
    seen.sort_unstable_by(f64::total_cmp);
    let mut left = seen.len();
    for rate in seen {
        if rate >= target / left as f64 || left == 1 {
            break;
        }
        target -= rate;
        left -= 1;
    }
    target / left as f64
}

/// Advances from bucket `last` to `bucket`: empties the buckets in between, and the new one after
/// it was read for the last time. Returns the fullest.
fn rotate(buckets: &mut Buckets, last: u64, bucket: u64) -> f64 {
    let mut fullest = 0.0_f64;
    for passing in last + 1..=last + BUCKETS {
        let count = &mut buckets[(passing % BUCKETS) as usize];
        if passing >= bucket {
            fullest = fullest.max(*count);
        }
        if passing <= bucket {
            *count = 0.0;
        }
    }
    fullest
}

impl Baseline for WaterFill {
    fn keeps(&mut self, call: Call) -> bool {
        let keep = call.uniform < self.rate(call.key);
        self.count(call.at_ns / self.bucket_ns, call.key, 1.0);
        keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn water_fill(target_per_s: f64) -> WaterFill {
        WaterFill::new(target_per_s, 5.0, &Keys::new(["a", "b", "c", "d", "e"]))
    }

    /// `TestComputeTPSPerSig`.
    #[test]
    fn the_level_is_that_of_the_original() {
        let check = |target: f64, seen: [f64; 5], expected: f64| {
            let level = level(target, seen.to_vec());
            assert!((level - expected).abs() < 1e-12, "{target} over {seen:?}: {level}");
        };
        check(0.0, [0.0, 10.0, 100.0, 3.0, 0.0], 0.0);
        check(2.0, [0.0, 10.0, 100.0, 3.0, 0.0], 2.0 / 3.0);
        check(10.0, [0.0, 10.0, 100.0, 3.0, 0.0], 3.5);
        check(23.5, [10.0, 0.0, 100.0, 3.0, 0.0], 10.5);
        check(53.5, [10.0, 0.0, 100.0, 3.0, 0.0], 40.5);
    }

    /// `TestZeroAndGetMaxBuckets`.
    #[test]
    fn buckets_rotate_as_in_the_original() {
        let check = |buckets: Buckets, last: u64, bucket: u64, fullest: f64, after: Buckets| {
            let mut rotated = buckets;
            assert_eq!(rotate(&mut rotated, last, bucket), fullest, "{buckets:?} from {last} to {bucket}");
            assert_eq!(rotated, after, "{buckets:?} from {last} to {bucket}");
        };
        let full = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
        check(full, 0, 0, 15.0, full);
        for last in 0..12 {
            check(full, last, last + 7, 0.0, [0.0; 6]);
        }
        check([10.0, 11.0, 17.0, 13.0, 14.0, 19.0], 3, 7, 17.0, [0.0, 0.0, 17.0, 13.0, 0.0, 0.0]);
        check([10.0, 11.0, 10.0, 13.0, 14.0, 19.0], 3, 8, 13.0, [0.0, 0.0, 0.0, 13.0, 0.0, 0.0]);
        check([10.0, 11.0, 129_191.0, 13.0, 14.0, 19.0], 3, 8, 129_191.0, [0.0, 0.0, 0.0, 13.0, 0.0, 0.0]);
    }

    /// `TestRateIncrease`: 21/s against a target of 7/s, then no more traces of that key.
    #[test]
    fn a_rate_rises_by_a_fifth_at_most_and_an_idle_key_is_forgotten() {
        let mut sampler = water_fill(7.0);
        sampler.count(0, 0, 105.0);
        sampler.count(1, 0, 0.0);
        let mut expected = 7.0 / 21.0;
        for bucket in 6..=12 {
            sampler.count(bucket, 1, 1.0);
            assert!((sampler.rate(0) - expected).abs() < 1e-12, "bucket {bucket}: {}", sampler.rate(0));
            assert_eq!(sampler.rate(4), sampler.rate(0), "an unknown key has the least rate");
            expected *= RISE_MAX;
        }
        sampler.count(13, 1, 1.0);
        assert_eq!((sampler.rates[0], sampler.seen[0]), (None, None));
        assert_eq!(sampler.default_rate, 1.0);
    }

    /// `TestTargetTPSPerSigUpdate`: 10/s for five keys that all exceed 2/s.
    #[test]
    fn busy_keys_share_alike() {
        let mut sampler = water_fill(10.0);
        for (key, per_s) in (0..).zip([37.0, 3.0, 21.0, 2921.0, 5.0]) {
            sampler.count(0, key, per_s * 5.0);
        }
        sampler.count(1, 0, 0.0);
        let rates = [0, 1, 2, 3, 4].map(|key| sampler.rate(key));
        assert_eq!(rates, [2.0 / 37.0, 2.0 / 3.0, 2.0 / 21.0, 2.0 / 2921.0, 2.0 / 5.0]);
        assert_eq!(sampler.default_rate, 2.0 / 2921.0);
    }

    /// By hand: all 100 traces of the first 5 s (20/s) are kept; the arrival at 5 s sets the rate
    /// to 1/20, and is decided by the old one.
    #[test]
    fn the_first_bucket_is_kept_whole() {
        let mut sampler = water_fill(1.0);
        let mut call = |at_ms: u64| sampler.keeps(Call { key: 0, at_ns: at_ms * 1_000_000, uniform: 0.9 });
        assert!((0..100).all(|n| call(n * 50)));
        assert!(call(5000));
        assert!(!call(5001));
        assert_eq!(sampler.rate(0), 0.05);
    }
}
