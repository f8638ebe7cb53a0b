//! Token buckets over a recorded workload: exact, since nothing is left to chance.

use astracer_samplers::TokenBucket;

use crate::expect::Expected;
use crate::latency::LatencyTally;
use crate::score::{Reference, Tally};
use crate::workload::Workload;

/// A workload's arrivals, put together by key.
#[derive(Debug)]
pub(crate) struct BucketReplay<'w> {
    workload: &'w Workload,
    reference: Reference,
    bytes: u64,
    /// Arrivals ordered by key, then by time.
    arrivals: Vec<KeyedArrival>,
    /// Where each key's arrivals end.
    ends: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct KeyedArrival {
    at_ns: u64,
    bytes: u64,
    index: u32,
}

/// What a token bucket keeps: traces and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BucketSize {
    pub(crate) traces: u64,
    pub(crate) bytes: u64,
}

impl<'w> BucketReplay<'w> {
    pub(crate) fn new(workload: &'w Workload) -> Self {
        let mut by_key: Vec<Vec<KeyedArrival>> = vec![Vec::new(); workload.keys().len()];
        for (index, arrival) in workload.arrivals().iter().enumerate() {
            let keyed = KeyedArrival { at_ns: arrival.at_ns, bytes: arrival.bytes, index: index as u32 };
            by_key[arrival.key as usize].push(keyed);
        }
        let ends = by_key.iter().scan(0, |end, arrivals| {
            *end += arrivals.len();
            Some(*end)
        });
        Self {
            workload,
            reference: Reference::new(workload),
            bytes: workload.arrivals().iter().map(|arrival| arrival.bytes).sum(),
            ends: ends.collect(),
            arrivals: by_key.concat(),
        }
    }

    /// Bytes of the whole.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is kept: cheaper than the score.
    pub(crate) fn size<'b>(&self, of_key: impl Fn(usize) -> &'b TokenBucket) -> BucketSize {
        let mut size = BucketSize::default();
        self.kept(of_key, |arrival| {
            size.traces += 1;
            size.bytes += arrival.bytes;
        });
        size
    }

    /// The measures of what is kept, which is the same in every replay; with the distance of latencies if it is wanted.
    /// A bucket tells no weights: each trace counts once.
    pub(crate) fn expected<'b>(
        &self,
        of_key: impl Fn(usize) -> &'b TokenBucket,
        latencies: bool,
    ) -> Expected {
        let mut tally = Tally::new(self.workload, &self.reference);
        let mut histograms = latencies.then(|| LatencyTally::new(self.workload));
        self.kept(of_key, |arrival| {
            tally.keep(arrival.index as usize);
            if let Some(histograms) = &mut histograms {
                histograms.keep(arrival.index as usize, 1.0);
            }
        });
        Expected::certain(&tally.score(), histograms.map(|histograms| histograms.distance()))
    }

    /// The sampler's own arithmetic (see [`TokenBucket`]), without its table.
    fn kept<'b>(&self, of_key: impl Fn(usize) -> &'b TokenBucket, mut keep: impl FnMut(&KeyedArrival)) {
        let mut first = 0;
        for (key, &end) in self.ends.iter().enumerate() {
            let bucket = of_key(key);
            let token_ns = (1e9 / bucket.rate()).ceil();
            let fill_ns = (bucket.capacity() * token_ns).floor() as u64;
            let token_ns = token_ns as u64;
            let arrivals = &self.arrivals[first..end];
            // When the bucket will be full again, and the arrival at hand.
            let (mut full_at, mut place) = (0, 0);
            while let Some(arrival) = arrivals.get(place) {
                let next = arrival.at_ns.max(full_at).saturating_add(token_ns);
                if next <= arrival.at_ns.saturating_add(fill_ns) {
                    full_at = next;
                    keep(arrival);
                    place += 1;
                } else {
                    // Nothing is kept before there is a token again.
                    place += until(&arrivals[place..], next.saturating_sub(fill_ns));
                }
            }
            first = end;
        }
    }
}

/// How many arrivals come before a time: at least one. Looks near the front first.
fn until(arrivals: &[KeyedArrival], at_ns: u64) -> usize {
    let mut reach = 1;
    while arrivals.get(reach).is_some_and(|arrival| arrival.at_ns < at_ns) {
        reach *= 2;
    }
    let near = &arrivals[..reach.min(arrivals.len())];
    near.partition_point(|arrival| arrival.at_ns < at_ns).max(1)
}

#[cfg(test)]
mod tests {
    use astracer_samplers::{Config, PerKey, Sampler};

    use super::*;
    use crate::replay::replay;
    use crate::testing::synthetic;

    /// The same traces as the sampler itself keeps, also where a key has its own bucket.
    #[test]
    fn keeps_what_the_sampler_keeps() {
        let workload = synthetic(3000, 5);
        for (capacity, rate) in
            [(1.0, 0.02), (1.5, 3.0), (7.3, 11.7), (40.0, 0.5), (1.0, 1e6), (5000.0, 1e-3)]
        {
            let bucket = TokenBucket::new(capacity, rate).expect("a bucket");
            let quiet = TokenBucket::new(2.0, 0.1).expect("a bucket");
            let replayed = BucketReplay::new(&workload);
            let quiet_key = (0..workload.keys().len())
                .find(|&key| workload.keys().names().nth(key) == Some("quiet"))
                .expect("the workload has a key of this name");
            let of_key = |key| if key == quiet_key { &quiet } else { &bucket };
            let mut kept = Vec::new();
            replayed.kept(of_key, |arrival| kept.push(arrival.index as usize));
            kept.sort_unstable();

            let config = PerKey::new(bucket.clone()).with_override("quiet", quiet.clone());
            let mut expected = Vec::new();
            replay(&workload, &Sampler::new(&Config::TokenBucket(config)), 1, |index, _| {
                expected.push(index)
            });
            assert_eq!(kept, expected, "capacity {capacity}, rate {rate}");

            let (size, score) = (replayed.size(of_key), replayed.expected(of_key, true));
            assert_eq!((size.traces as f64, size.bytes as f64), (score.traces, score.bytes));
            assert_eq!(size.traces, kept.len() as u64);
            let mut histograms = LatencyTally::new(&workload);
            kept.iter().for_each(|&arrival| histograms.keep(arrival, 1.0));
            assert!((histograms.distance() - score.latency.expect("asked for")).abs() < 1e-12);
        }
    }

    #[test]
    fn skipping_finds_the_first_arrival_that_is_not_before() {
        let arrivals: Vec<_> =
            (0..100).map(|n| KeyedArrival { at_ns: n / 3 * 10, bytes: 0, index: n as u32 }).collect();
        for from in 0..100 {
            for at_ns in (arrivals[from].at_ns..340).step_by(5) {
                let plain = arrivals[from..].iter().take_while(|arrival| arrival.at_ns < at_ns).count();
                assert_eq!(until(&arrivals[from..], at_ns), plain.max(1), "{from} {at_ns}");
            }
        }
    }
}
