//! Every n-th call, whatever its key (HTrace's CountSampler).

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

    /// The same sampler, before its first call.
    pub(crate) fn fresh(&self) -> Self {
        Self::new(self.n)
    }

    /// Returns true for calls 1, n + 1, 2n + 1 and so on. Relaxed: `fetch_add` gives each call its
    /// own number, and no other memory depends on it.
    pub(crate) fn keeps_next(&self) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed) % self.n == 0
    }
}
