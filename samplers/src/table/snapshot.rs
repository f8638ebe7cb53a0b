//! The calls that a sampler saw, kept and dropped, by key.

use super::tally::Tally;
use crate::decision::Reason;

/// A sampler's counts. Their sum is the number of its decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Keys that have a record, in the order of their names.
    pub keys: Vec<KeyCounts>,
    /// Keys that found no room, together.
    pub overflow: Counts,
    /// Keys that had a record once and gave it up for others, together. One that comes back begins at zero.
    pub evicted: Counts,
    /// The number of times that a key gave up its record.
    pub keys_evicted: u64,
    /// The number of keys that can have a record.
    pub keys_max: u32,
}

/// The counts of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyCounts {
    /// The key; of one longer than 88 bytes the beginning, and an ellipsis.
    pub key: String,
    /// Its counts.
    pub counts: Counts,
}

/// Calls, kept and dropped, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    reasons: [Reason; 2],
    tally: Tally,
}

impl Counts {
    pub(super) fn new(reasons: [Reason; 2], tally: Tally) -> Self {
        Counts { reasons, tally }
    }

    /// Calls.
    pub fn seen(&self) -> u64 {
        self.dropped() + self.kept()
    }

    /// Calls that were kept.
    pub fn kept(&self) -> u64 {
        self.tally.0.iter().map(|[_, kept]| kept).sum()
    }

    /// Calls that were dropped.
    pub fn dropped(&self) -> u64 {
        self.tally.0.iter().map(|[dropped, _]| dropped).sum()
    }

    /// (dropped, kept) for this reason.
    fn of(&self, reason: Reason) -> [u64; 2] {
        let mut sum = [0, 0];
        for (known, [dropped, kept]) in self.reasons.iter().zip(self.tally.0) {
            if *known == reason {
                sum = [sum[0] + dropped, sum[1] + kept];
            }
        }
        sum
    }

    /// Calls that were kept for this reason.
    pub fn kept_by(&self, reason: Reason) -> u64 {
        self.of(reason)[1]
    }

    /// Calls that were dropped for this reason.
    pub fn dropped_by(&self, reason: Reason) -> u64 {
        self.of(reason)[0]
    }
}
