//! Each record's allowance, and the counts of decisions that others than the sampler made.
//!
//! They are apart from the tallies, which count what the sampler itself decided: most tables have
//! no cap and no overrides, and pay neither memory nor time for them.

use crate::cap::Meter;
use crate::sync::{AtomicU64, Ordering};

/// The decisions that others than the sampler made, in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Overruled {
    /// Dropped by the cap, which raised the threshold; or because it was empty.
    pub(super) raised: u64,
    pub(super) empty: u64,
    /// Kept, or dropped, by an override, where the sampler decided otherwise.
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

/// A record's.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Extra {
    pub(super) meter: Meter,
    counts: [AtomicU64; 4],
}

/// A place in [`Extra`]'s counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    Raised,
    Empty,
    ForcedKept,
    ForcedDropped,
}

impl Extra {
    pub(super) fn count(&self, cause: Cause) {
        self.counts[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Overruled {
        let [raised, empty, forced_kept, forced_dropped] =
            [0, 1, 2, 3].map(|at: usize| self.counts[at].load(Ordering::Relaxed));
        Overruled { raised, empty, forced_kept, forced_dropped }
    }

    /// Takes the counts away, for the keys that have left, and fills the meter: the record gets
    /// another key.
    pub(super) fn renew(&self) -> Overruled {
        self.meter.clear();
        let [raised, empty, forced_kept, forced_dropped] =
            [0, 1, 2, 3].map(|at: usize| self.counts[at].swap(0, Ordering::Relaxed));
        Overruled { raised, empty, forced_kept, forced_dropped }
    }
}
