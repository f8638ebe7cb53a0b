//! Token buckets over a recorded workload. Their scores are exact, because no decision depends on
//! chance.

use astracer_samplers::TokenBucket;

use super::{Family, most_calls};
use crate::draw::Draw;
use crate::expect::{Expected, Extras};
use crate::latency::LatencyTally;
use crate::paths::PathTally;
use crate::records::Records;
use crate::score::{Reference, Tally};
use crate::space::{Axis, Parameters, Point};
use crate::stop::Stop;
use crate::workload::Workload;

/// A bucket must fill within this time, seconds: half a year. The sampler refuses much slower ones.
const FILL_SECONDS_MAX: f64 = 1.5e7;
/// Indices of a point's coordinates.
const CAPACITY: usize = 0;
const RATE: usize = 1;

/// The search space of token buckets.
#[derive(Debug)]
pub(crate) struct BucketFamily<'w> {
    workload: &'w Workload,
    reference: Reference,
    extras: Extras,
    /// One replay for each draw.
    replays: Vec<BucketReplay>,
    capacity: Axis,
    rate: Axis,
}

impl<'w> BucketFamily<'w> {
    /// The capacity goes from a single token to the most calls of any key. The rate goes from a
    /// tenth of a token in the whole recording to as many tokens as there would be calls if all of
    /// them came in a tenth of it. Draws differ only in the order of arrivals: a bucket has neither
    /// windows nor randomness.
    ///
    /// `None` if asked to stop.
    pub(crate) fn new(
        workload: &'w Workload,
        draws: &[Draw],
        extras: Extras,
        stop: Stop<'_>,
    ) -> Option<Self> {
        let seconds = workload.seconds().max(0.1);
        let calls = most_calls(workload).max(1.0);
        let slowest = (0.1 / seconds).max(calls / FILL_SECONDS_MAX);
        Some(Self {
            workload,
            reference: Reference::unless_stopped(workload, stop)?,
            extras,
            replays: draws
                .iter()
                .map(|draw| BucketReplay::new(workload, draw, stop))
                .collect::<Option<_>>()?,
            capacity: Axis::new(1.0, calls),
            rate: Axis::new(slowest, 10.0 * calls / seconds),
        })
    }

    /// Coordinates are within bounds that the sampler accepts.
    fn bucket(&self, point: &Point) -> TokenBucket {
        self.parameters(point).bucket().expect("the space's bounds are valid parameters")
    }

    /// The score on one draw, with the extra measures requested. A bucket has no weights, so each
    /// trace counts once. `None` if asked to stop.
    fn score(&self, replay: &BucketReplay, bucket: &TokenBucket, stop: Stop<'_>) -> Option<Expected> {
        let mut tally = Tally::new(self.workload, &self.reference);
        let mut histograms = self.extras.latencies.then(|| LatencyTally::new(self.workload));
        let mut paths = self.extras.paths.then(|| PathTally::new(self.workload));
        let keep = |arrival: &KeyedArrival| {
            tally.keep(arrival.index as usize);
            if let Some(histograms) = &mut histograms {
                histograms.keep(arrival.index as usize, 1.0);
            }
            if let Some(paths) = &mut paths {
                paths.keep(arrival.index as usize, 1.0);
            }
        };
        replay.kept(bucket, stop, keep)?;
        let latency = histograms.map(|histograms| histograms.distance());
        Some(Expected::certain(&tally.score(), latency, paths.map(|paths| paths.score())))
    }
}

impl BucketFamily<'_> {
    /// The scores of one bucket, one for each draw. `None` if asked to stop.
    pub(crate) fn scores_of(&self, bucket: &TokenBucket, stop: Stop<'_>) -> Option<Vec<Expected>> {
        self.replays.iter().map(|replay| self.score(replay, bucket, stop)).collect()
    }
}

impl Family for BucketFamily<'_> {
    type Scratch = ();

    fn dimensions(&self) -> usize {
        2
    }

    fn parameters(&self, point: &Point) -> Parameters {
        Parameters::Bucket { capacity: self.capacity.at(point[CAPACITY]), rate: self.rate.at(point[RATE]) }
    }

    fn kept(&self, point: &Point, stop: Stop<'_>) -> Option<(f64, f64)> {
        let bucket = self.bucket(point);
        let (mut bytes, mut traces) = (0, 0u64);
        for replay in &self.replays {
            replay.kept(&bucket, stop, |arrival| {
                bytes += arrival.bytes;
                traces += 1;
            })?;
        }
        let share = |kept: u64, all: u64| kept as f64 / (all * self.replays.len() as u64).max(1) as f64;
        let all = self.workload.arrivals().iter().map(|arrival| arrival.bytes).sum();
        Some((share(bytes, all), share(traces, self.workload.arrivals().len() as u64)))
    }

    fn expected(&self, point: &Point, (): &mut (), stop: Stop<'_>) -> Option<Vec<Expected>> {
        self.scores_of(&self.bucket(point), stop)
    }

    fn extremes(&self, _: &Point) -> (Point, Point) {
        ([0.0; 4], [1.0, 1.0, 0.0, 0.0])
    }

    fn corners(&self) -> Vec<Point> {
        <[Point; 2]>::from(self.extremes(&[0.0; 4])).into()
    }

    fn least(&self) -> (&'static str, &'static str) {
        ("a token bucket keeps the first call of each key", "Allow a larger size, or a key with fewer values")
    }

    fn cost(&self) -> u64 {
        let traces = self.workload.arrivals().len() + self.workload.functions().len();
        (4 * traces * self.replays.len()) as u64
    }
}

/// A workload's arrivals on one draw, grouped by the bucket that decides them: the bucket of their
/// key, or the common one for keys that do not fit in the table.
#[derive(Debug)]
struct BucketReplay {
    /// Arrivals ordered by bucket, then by time.
    arrivals: Vec<KeyedArrival>,
    /// The end of each bucket's arrivals.
    ends: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct KeyedArrival {
    at_ns: u64,
    bytes: u64,
    index: u32,
}

impl BucketReplay {
    /// `None` if asked to stop.
    fn new(workload: &Workload, draw: &Draw, stop: Stop<'_>) -> Option<Self> {
        let mut records = Records::new(workload);
        // The bucket in each record, and the time of its latest call. A key that comes back after
        // an eviction gets a new bucket.
        let mut buckets: Vec<(u32, u64)> = (0..records.len() as u32).map(|bucket| (bucket, 0)).collect();
        let mut next = buckets.len() as u32;
        let mut by_key: Vec<(u32, KeyedArrival)> = draw
            .arrivals(workload, stop)?
            .into_iter()
            .map(|(at_ns, index)| {
                let arrival = &workload.arrivals()[index as usize];
                // All candidates of a search share one table here, in which a bucket counts as idle
                // right after its latest call, as if it filled at once.
                let found =
                    records.find(arrival.key, at_ns, |record| at_ns.saturating_sub(buckets[record].1));
                let bucket = &mut buckets[found.record];
                if found.is_new {
                    *bucket = (next, at_ns);
                    next += 1;
                }
                bucket.1 = at_ns;
                (bucket.0, KeyedArrival { at_ns, bytes: arrival.bytes, index })
            })
            .collect();
        // The sort is stable, so each bucket's arrivals stay in order of time.
        if !stop.pulse().sort_by_key(&mut by_key, |&(key, _)| key) {
            return None;
        }
        let ends = by_key.chunk_by(|a, b| a.0 == b.0).scan(0, |end, arrivals| {
            *end += arrivals.len();
            Some(*end)
        });
        Some(Self { ends: ends.collect(), arrivals: by_key.iter().map(|&(_, arrival)| arrival).collect() })
    }

    /// Uses the arithmetic of the sampler itself (see [`TokenBucket`]), without its table. `None`
    /// if asked to stop.
    fn kept(&self, bucket: &TokenBucket, stop: Stop<'_>, mut keep: impl FnMut(&KeyedArrival)) -> Option<()> {
        let mut pulse = stop.pulse();
        let token_ns = (1e9 / bucket.rate()).ceil();
        let fill_ns = (bucket.capacity() * token_ns).floor() as u64;
        let token_ns = token_ns as u64;
        let mut first = 0;
        for &end in &self.ends {
            let arrivals = &self.arrivals[first..end];
            // The time at which the bucket will be full again, and the index of the current
            // arrival.
            let (mut full_at, mut place) = (0, 0);
            while let Some(arrival) = arrivals.get(place) {
                if pulse.stopped() {
                    return None;
                }
                let next = arrival.at_ns.max(full_at).saturating_add(token_ns);
                if next <= arrival.at_ns.saturating_add(fill_ns) {
                    full_at = next;
                    keep(arrival);
                    place += 1;
                } else {
                    // Nothing is kept until there is a token again, so skip to that time.
                    place += until(&arrivals[place..], next.saturating_sub(fill_ns));
                }
            }
            first = end;
        }
        Some(())
    }
}

/// The number of arrivals before `at_ns`, but at least one. Uses an exponential search, because the
/// end is usually near.
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
    use astracer_samplers::Config;

    use super::*;
    use crate::candidate::Candidate;
    use crate::testing::{many_names, synthetic};

    /// Keeps the same traces as the sampler itself.
    #[test]
    fn keeps_what_the_sampler_keeps() {
        keeps_as_the_sampler(&synthetic(3000, 5));
    }

    /// Keys that do not fit in the table share one bucket.
    #[test]
    fn keeps_what_the_sampler_keeps_of_too_many_keys() {
        keeps_as_the_sampler(&many_names(10_500, 13_000, 5));
    }

    #[track_caller]
    fn keeps_as_the_sampler(workload: &Workload) {
        for (capacity, rate) in
            [(1.0, 0.02), (1.5, 3.0), (7.3, 11.7), (40.0, 0.5), (1.0, 1e6), (5000.0, 1e-3)]
        {
            let bucket = TokenBucket::new(capacity, rate).expect("a bucket");
            let draw = Draw::recorded(1);
            let family =
                BucketFamily::new(workload, &[draw], Extras::ALL, Stop::never()).expect("not stopped");
            let mut kept = Vec::new();
            let push = |arrival: &KeyedArrival| kept.push(arrival.index as usize);
            family.replays[0].kept(&bucket, Stop::never(), push).expect("not stopped");
            kept.sort_unstable();
            let mut expected = Vec::new();
            let sampler = Candidate::from(Config::from(bucket.clone()));
            sampler.replay(workload, &draw, Stop::never(), |index, _| expected.push(index));
            assert_eq!(kept, expected, "capacity {capacity}, rate {rate}");
            let score = family.score(&family.replays[0], &bucket, Stop::never()).expect("not stopped");
            assert_eq!(score.traces, kept.len() as f64);
            let mut histograms = LatencyTally::new(workload);
            kept.iter().for_each(|&arrival| histograms.keep(arrival, 1.0));
            assert!((histograms.distance() - score.latency.expect("asked for")).abs() < 1e-12);
            let mut paths = PathTally::new(workload);
            kept.iter().for_each(|&arrival| paths.keep(arrival, 1.0));
            assert_eq!(Some(paths.score().path_distance), score.path_distance);
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
