//! The space in the queue, and waiting for it.

use std::time::{Duration, Instant};

use super::{Queue, State, wait_while};
use crate::bounds::WhenQueueFull;
use crate::record::Batch;
use crate::sync::{AtomicUsize, Ordering, lock};

/// The time for which a thread may wait for space, if the queue blocks when full.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// As long as the service's threads may.
    Full,
    Until(Instant),
    /// Not at all: the caller may be a worker, and only workers free space.
    None,
}

impl Patience {
    pub fn is_over(self) -> bool {
        matches!(self, Patience::Until(end) if Instant::now() >= end)
    }
}

impl Queue {
    /// Waits for space, if the queue blocks when full, no longer than `patience` allows. The caller
    /// must hold no lock, because a worker may need any lock to free space.
    #[inline]
    pub fn wait_for_space(&self, patience: Patience) {
        if let WhenQueueFull::Block(longest) = self.bounds.when_full
            && self.is_full()
        {
            self.block(longest, patience);
        }
    }

    pub fn makes_wait(&self) -> bool {
        matches!(self.bounds.when_full, WhenQueueFull::Block(_)) && self.is_full()
    }

    #[cold]
    fn block(&self, longest: Duration, patience: Patience) {
        let longest = match patience {
            Patience::Full => longest,
            Patience::Until(end) => longest.min(end.saturating_duration_since(Instant::now())),
            Patience::None => return,
        };
        let mut state = lock(&self.state);
        state.blocked += 1;
        let waits = |_: &State| self.is_full() && !self.closed.load(Ordering::Relaxed);
        wait_while(&self.space, state, longest, waits).blocked -= 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.bounds.queue_bytes
            || self.traces.load(Ordering::Relaxed) >= self.bounds.queue_traces
    }

    pub(super) fn fits(&self, batch: &Batch) -> bool {
        // Several threads may stop waiting at the same time and fill the queue again. The bound is
        // doubled for them, so that the trace of a thread that has waited is not shed.
        let factor = if matches!(self.bounds.when_full, WhenQueueFull::Block(_)) { 2 } else { 1 };
        let fits = |held: &AtomicUsize, more: usize, max: usize| {
            held.load(Ordering::Relaxed) + more <= max.saturating_mul(factor)
        };
        fits(&self.bytes, batch.bytes_held(), self.bounds.queue_bytes)
            && fits(&self.traces, batch.traces(), self.bounds.queue_traces)
    }
}
