//! The time that threads spend inside a span.

use super::super::occupancy::Occupancy;
use super::Entry;
use astracer_spans::clock::Ticks;
use astracer_spans::sync::Ordering;

impl Entry {
    /// Records that a thread enters the span.
    #[inline]
    pub(crate) fn occupy(&self, now: Ticks) {
        let since = now.saturating_sub(self.began());
        // The exchange changes the count and the time in one step.
        let enter = |word| Some(Occupancy(word).enter(since).0);
        let _ = self.occupancy.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
    }

    /// Records that a thread exits the span.
    #[inline]
    pub(crate) fn vacate(&self, now: Ticks) {
        let until = now.saturating_sub(self.began());
        let leave = |word| Some(Occupancy(word).leave(until).0);
        let Ok(before) = self.occupancy.fetch_update(Ordering::AcqRel, Ordering::Acquire, leave) else {
            return;
        };
        if Occupancy(before).threads() == 1 {
            let since = self.began() + Occupancy(before).since();
            // Relaxed: a sum. The thread that ends the span reads it, ordered after all holders.
            self.busy.fetch_add(now.saturating_sub(since), Ordering::Relaxed);
        }
    }

    /// Ticks during which at least one thread was inside.
    #[inline]
    pub(crate) fn busy(&self) -> Ticks {
        self.busy.load(Ordering::Relaxed)
    }
}
