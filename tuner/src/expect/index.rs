//! The count of earlier calls at each arrival, and bins of counts.

use std::num::NonZeroU64;
use std::sync::LazyLock;

use astracer_recording::stop::Pulse;
use serde::Serialize;

use crate::records::Records;
use crate::workload::Workload;

/// The rule by which calls before an arrival are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Counting {
    /// Each call counts 1/2 for each half-life since then. There are no window edges.
    #[default]
    Decaying,
    /// Each call counts 1 until the window ends, as in the paper.
    Tumbling,
}

/// Whole counts below this have their own bins.
const EXACT: u32 = 32;
/// From [`EXACT`] on, each bin ends at this multiple of its start.
const GROWTH: f64 = 1.08;
/// Decayed counts below this share one bin.
const DECAYED_MIN: f64 = 1.0 / 256.0;
/// Bins of decayed counts end at this multiple of their start.
const DECAYED_GROWTH: f64 = 1.1;
/// The sampler forgets a decayed count once it has fallen to 2^-24.
const FORGOTTEN_LOG2: f64 = 24.0;
/// Larger counts share the last bin.
const COUNT_MAX: f64 = 4e9;

/// For each arrival, the number of earlier calls of its key as the sampler counts them: x in bump's
/// formula. Keys that do not fit in the sampler's table are counted together.
///
/// `length_ns` is the window or the half-life. Windows are ahead by `phase`, a share of their
/// length. `None` if asked to stop.
pub(crate) fn counts_before(
    workload: &Workload,
    counting: Counting,
    length_ns: NonZeroU64,
    phase: f64,
    pulse: &mut Pulse<'_>,
) -> Option<Vec<f64>> {
    let arrivals = workload.arrivals().iter().take_while(|_| !pulse.stopped());
    let mut table = Records::new(workload);
    let counts: Vec<f64> = match counting {
        Counting::Tumbling => {
            let ahead_ns = (length_ns.get() as f64 * phase) as u64;
            let mut records = vec![(u64::MAX, 0u32); table.len()];
            let count = |arrival: &crate::workload::Arrival| {
                let at_ns = arrival.at_ns.saturating_add(ahead_ns);
                let number = at_ns / length_ns;
                // Time since the end of the window of the latest call.
                let idle_ns = |record: usize| match number.saturating_sub(records[record].0).checked_sub(1) {
                    None => 0,
                    Some(windows) => {
                        windows.saturating_mul(length_ns.get()).saturating_add(at_ns % length_ns)
                    }
                };
                let found = table.find(arrival.key, arrival.at_ns, idle_ns);
                let record = &mut records[found.record];
                if found.is_new || record.0 != number {
                    *record = (number, 0);
                }
                let before = record.1;
                record.1 = before.saturating_add(1);
                f64::from(before)
            };
            arrivals.map(count).collect()
        }
        Counting::Decaying => {
            let mut records = vec![(0u64, 0.0f64); table.len()];
            let per_ns = 1.0 / length_ns.get() as f64;
            let count = |arrival: &crate::workload::Arrival| {
                // Time since the count fell to 2^-24, which the sampler treats as 0.
                let idle_ns = |record: usize| {
                    let (last_ns, calls) = records[record];
                    let spent = (calls.log2() + FORGOTTEN_LOG2).max(0.0) / per_ns;
                    (arrival.at_ns.saturating_sub(last_ns) as f64 - spent).max(0.0) as u64
                };
                let found = table.find(arrival.key, arrival.at_ns, idle_ns);
                let record = &mut records[found.record];
                if found.is_new {
                    *record = (0, 0.0);
                }
                let before = record.1 * (-(arrival.at_ns.saturating_sub(record.0) as f64) * per_ns).exp2();
                *record = (arrival.at_ns, before + 1.0);
                before
            };
            arrivals.map(count).collect()
        }
    };
    (counts.len() == workload.arrivals().len()).then_some(counts)
}

/// Bins of counts that bump's formula can hardly tell apart.
///
/// A bin is represented by the middle of its range on a logarithmic scale. The relative error of a
/// probability is at most half of the bin's width times the exponent. Errors go in both directions,
/// so in a sum over many arrivals only the second order remains.
#[derive(Debug)]
pub(crate) struct Bins {
    /// The first count of each bin, ascending from 0. The first bin holds only the count 0.
    starts: Vec<f64>,
    /// The logarithm of the count that represents each bin.
    logarithms: Vec<f64>,
}

impl Bins {
    /// The bins for this kind of counting, which are the same for every workload.
    pub(crate) fn of(counting: Counting) -> &'static Self {
        static TUMBLING: LazyLock<Bins> = LazyLock::new(|| Bins::new(Counting::Tumbling));
        static DECAYING: LazyLock<Bins> = LazyLock::new(|| Bins::new(Counting::Decaying));
        match counting {
            Counting::Tumbling => &TUMBLING,
            Counting::Decaying => &DECAYING,
        }
    }

    fn new(counting: Counting) -> Self {
        let (mut starts, mut middles, growth) = match counting {
            Counting::Tumbling => {
                let whole: Vec<f64> = (0..=EXACT).map(f64::from).collect();
                (whole.clone(), whole[..EXACT as usize].to_vec(), GROWTH)
            }
            Counting::Decaying => {
                (vec![0.0, f64::MIN_POSITIVE, DECAYED_MIN], vec![0.0, DECAYED_MIN], DECAYED_GROWTH)
            }
        };
        let mut start = *starts.last().expect("there are bins");
        while start < COUNT_MAX {
            // Counts are whole: a bin from 40 up to 43 holds 40, 41 and 42.
            let (next, last) = match counting {
                Counting::Tumbling => ((start * growth).ceil(), (start * growth).ceil() - 1.0),
                Counting::Decaying => (start * growth, start * growth),
            };
            middles.push((start * last).sqrt());
            starts.push(next);
            start = next;
        }
        middles.push(start);
        let logarithms = middles.iter().map(|middle: &f64| middle.ln()).collect();
        Self { starts, logarithms }
    }

    pub(crate) fn bin(&self, count: f64) -> usize {
        // The first start is 0, so the partition point is at least 1 for counts that are not
        // negative.
        self.starts.partition_point(|&start| start <= count).saturating_sub(1)
    }

    /// The number of bins.
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// The logarithm of the count that represents each bin, ascending; minus infinity for the first
    /// bin, whose count is 0.
    pub(crate) fn logarithms(&self) -> &[f64] {
        &self.logarithms
    }
}

#[cfg(test)]
mod tests {
    use astracer_samplers::{Config, Limits, Nanos, Randomness, Reason, Request, Sampler};

    use super::*;
    use crate::testing::{synthetic, waves};

    #[test]
    fn small_whole_counts_are_alone_and_bins_grow_slowly() {
        let bins = Bins::of(Counting::Tumbling);
        for count in 0..EXACT {
            assert_eq!(bins.bin(f64::from(count)), count as usize);
            assert_eq!(bins.logarithms[count as usize], f64::from(count).ln());
        }
        for counting in [Counting::Tumbling, Counting::Decaying] {
            let bins = Bins::of(counting);
            assert_eq!(bins.starts.len(), bins.logarithms.len());
            assert_eq!((bins.logarithms[0], bins.bin(0.0)), (f64::NEG_INFINITY, 0));
            assert!(bins.bin(1e-300) == 1 || counting == Counting::Tumbling);
            assert!(bins.logarithms.is_sorted() && bins.starts.is_sorted());
            for count in [0.01, 1.0, 5.0, 33.0, 1234.0, 1e6, 3e9] {
                let middle = bins.logarithms[bins.bin(count)].exp();
                assert!((middle / count - 1.0).abs() < 0.11 || count < 1.0, "{counting:?} {count} {middle}");
            }
            assert_eq!(bins.bin(f64::MAX), bins.starts.len() - 1);
            assert!(bins.starts.len() < 350, "{}", bins.starts.len());
        }
    }

    /// By definition, a sum over all earlier calls of the key.
    #[test]
    fn counts_are_sums_over_earlier_calls() {
        let workload = synthetic(400, 2);
        let length = NonZeroU64::new(3_000_000_000).expect("not zero");
        for (counting, phase) in
            [(Counting::Decaying, 0.0), (Counting::Tumbling, 0.0), (Counting::Tumbling, 0.4)]
        {
            let counts = counts_before(&workload, counting, length, phase, &mut Pulse::never());
            let counts = counts.expect("not stopped");
            for (index, arrival) in workload.arrivals().iter().enumerate() {
                let earlier = workload.arrivals()[..index].iter().filter(|other| other.key == arrival.key);
                let window = |at_ns: u64| (at_ns + (3e9 * phase) as u64) / 3_000_000_000;
                let expected: f64 = match counting {
                    Counting::Decaying => {
                        earlier.map(|other| (-((arrival.at_ns - other.at_ns) as f64) / 3e9).exp2()).sum()
                    }
                    Counting::Tumbling => {
                        earlier.filter(|other| window(other.at_ns) == window(arrival.at_ns)).count() as f64
                    }
                };
                assert!((counts[index] - expected).abs() < 1e-9, "{counting:?} {index}");
            }
        }
    }

    /// Compares with the probabilities of the sampler itself while more keys arrive than its table
    /// holds and idle keys are evicted. In four minutes, more keys are idle than may be evicted at
    /// once. In 80 s, few keys are idle for long enough: a minute, which is not a multiple of the
    /// window.
    #[test]
    fn counts_are_those_of_the_sampler() {
        const DECAYING: &str = "bump:lambda=1,min=0,count=decaying,tau=2s,exponent=1";
        const TUMBLING: &str = "bump:lambda=1,min=0,window=700ms";
        for (seconds, counting, length_ns, phase, exponent, sampler) in [
            (240, Counting::Decaying, 2_000_000_000, 0.0, 1, DECAYING),
            (80, Counting::Tumbling, 700_000_000, 0.3, 2, TUMBLING),
        ] {
            let workload = waves(14_000, 40_000, seconds, 2);
            let length = NonZeroU64::new(length_ns).expect("not zero");
            let counts = counts_before(&workload, counting, length, phase, &mut Pulse::never());
            let config: Config = sampler.parse().expect("a sampler");
            let sampler = Sampler::with_limits(&config, Limits::single_threaded());
            let ahead_ns = (length_ns as f64 * phase) as u64;
            let (mut overflown, mut places) = (0, 0);
            for (arrival, count) in workload.arrivals().iter().zip(counts.expect("not stopped")) {
                let at = Nanos::new(arrival.at_ns + ahead_ns);
                let decision = sampler.decide(&Request::new(workload.key(arrival), Randomness::MAX, at));
                let probability = decision.threshold.expect("by chance").probability().get();
                let expected = if count < 1e-6 { 1.0 } else { 1.0 - (-count.powi(-exponent)).exp() };
                assert!(
                    (probability / expected - 1.0).abs() < 0.02,
                    "{counting:?} at {} ns: {probability}, should be {expected}",
                    arrival.at_ns
                );
                overflown += u32::from(decision.reason == Reason::Overflow);
                places += u32::from(count == 0.0);
            }
            assert!(overflown > 500 && places > 10_500, "{counting:?}: {overflown}, {places}");
        }
    }
}
