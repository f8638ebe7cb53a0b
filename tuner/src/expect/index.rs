//! Which call of its window an arrival is, and bins for large counts.

use std::num::NonZeroU64;

use crate::workload::Workload;

/// Counts below this have a bin of their own.
const EXACT: u32 = 32;
/// From there on, each bin ends at this multiple of its beginning.
const GROWTH: f64 = 1.08;

/// For each arrival, how many calls of its key came before it in the same window: what bump calls x.
///
/// Windows are counted from the first arrival, as in a replay.
pub(crate) fn counts_before(workload: &Workload, window_ns: NonZeroU64) -> Vec<u32> {
    let mut records = vec![(u64::MAX, 0u32); workload.keys().len()];
    let count = |arrival: &crate::workload::Arrival| {
        let number = arrival.at_ns / window_ns;
        let record = &mut records[arrival.key as usize];
        if record.0 != number {
            *record = (number, 0);
        }
        let before = record.1;
        record.1 = before.saturating_add(1);
        before
    };
    workload.arrivals().iter().map(count).collect()
}

/// Counts put together into bins that f(x) can hardly tell apart.
///
/// A bin is stood for by the mean of 1/x^2 over its arrivals. Where f(x) is about lambda^2/x^2, which is where most
/// counts lie, that is exact; elsewhere the error is of second order in the bin's width, below 0.1 % of a probability.
#[derive(Debug)]
pub(crate) struct Bins {
    /// The first count of each bin; ascending, from 0.
    starts: Vec<u32>,
}

impl Bins {
    pub(crate) fn new() -> Self {
        let mut starts: Vec<u32> = (0..=EXACT).collect();
        let mut start = f64::from(EXACT);
        loop {
            start = (start * GROWTH).ceil();
            if start > f64::from(u32::MAX) {
                return Self { starts };
            }
            starts.push(start as u32);
        }
    }

    pub(crate) fn bin(&self, count: u32) -> usize {
        if count < EXACT {
            return count as usize;
        }
        // `starts` begins with 0, so at least one is not larger.
        self.starts.partition_point(|&start| start <= count).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_counts_are_alone_and_bins_grow_slowly() {
        let bins = Bins::new();
        for count in 0..=EXACT {
            assert_eq!(bins.bin(count), count as usize);
        }
        for pair in bins.starts.windows(2) {
            assert_eq!(bins.bin(pair[1]), bins.bin(pair[0]) + 1);
            assert_eq!(bins.bin(pair[1] - 1), bins.bin(pair[0]));
            let ratio = f64::from(pair[1]) / f64::from(pair[0]);
            assert!(pair[0] < EXACT || ratio < GROWTH + 1.0 / f64::from(EXACT), "{pair:?}");
        }
        assert_eq!(bins.bin(u32::MAX), bins.starts.len() - 1);
        assert!(bins.starts.len() < 300);
    }
}
