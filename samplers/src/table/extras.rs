//! Each record's allowance, and the counts of decisions by caps and overrides.
//!
//! They are separate from the tallies, which count the sampler's own decisions. Most tables have no
//! cap and no overrides, and so pay neither memory nor time for them.

use crate::cap::Meter;
use crate::sync::{AtomicU64, Ordering};

/// Decisions of a cap or an override that differ from the sampler's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Overruled {
    /// Dropped by the cap: because it raised the threshold, or because its bucket was empty.
    pub(super) raised: u64,
    pub(super) empty: u64,
    /// Kept, or dropped, by an override where the sampler decided otherwise.
    pub(super) forced_kept: u64,
    pub(super) forced_dropped: u64,
}

impl Overruled {
    pub(super) fn plus(self, other: Self) -> Self {
        Overruled {
            raised: self.raised + other.raised,
            empty: self.empty + other.empty,
            forced_kept: self.forced_kept + other.forced_kept,
            forced_dropped: self.forced_dropped + other.forced_dropped,
        }
    }
}

/// One record's allowance and counts.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Extra {
    pub(super) meter: Meter,
    counts: [AtomicU64; 4],
}

/// An index into [`Extra`]'s counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    Raised,
    Empty,
    ForcedKept,
    ForcedDropped,
}

impl Extra {
    /// Counts a decision. Relaxed: counts are only read for snapshots, and publish no other memory.
    pub(super) fn count(&self, cause: Cause) {
        self.counts[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Overruled {
        let [raised, empty, forced_kept, forced_dropped] =
            [0, 1, 2, 3].map(|at: usize| self.counts[at].load(Ordering::Relaxed));
        Overruled { raised, empty, forced_kept, forced_dropped }
    }

    /// Prepares for a new key: refills the meter, resets the counts, and returns them as those of
    /// the evicted key.
    pub(super) fn renew(&self) -> Overruled {
        self.meter.clear();
        let [raised, empty, forced_kept, forced_dropped] =
            [0, 1, 2, 3].map(|at: usize| self.counts[at].swap(0, Ordering::Relaxed));
        Overruled { raised, empty, forced_kept, forced_dropped }
    }
}
