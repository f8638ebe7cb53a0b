//! Every n-th call, whatever its key: HTrace's CountSampler.

use std::num::NonZeroU64;

use crate::sync::{AtomicU64, Ordering};

/// Counts calls, over all keys and threads.
#[derive(Debug)]
pub(crate) struct EveryNth {
    n: NonZeroU64,
    calls: AtomicU64,
}

impl EveryNth {
    pub(crate) fn new(n: NonZeroU64) -> Self {
        EveryNth { n, calls: AtomicU64::new(0) }
    }

    /// The same, before its first call.
    pub(crate) fn fresh(&self) -> Self {
        Self::new(self.n)
    }

    /// Returns true for the first call, the n + 1st, the 2n + 1st ...
    pub(crate) fn keeps_next(&self) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed) % self.n == 0
    }
}
