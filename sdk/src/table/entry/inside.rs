//! The time that threads spend inside a span.

use super::Entry;
use astracer_spans::clock::Ticks;
use astracer_spans::sync::Ordering;

impl Entry {
    #[inline]
    pub(crate) fn occupy(&self, now: Ticks) {
        let since = now.saturating_sub(self.began());
        // The exchange changes the count and the time in one step.
        let enter = |word| Some(Occupancy(word).enter(since).0);
        let _ = self.occupancy.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
    }

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

    #[inline]
    pub(crate) fn busy(&self) -> Ticks {
        self.busy.load(Ordering::Relaxed)
    }
}

/// The number of threads inside a span (12 bits), and since when at least one has been inside, in
/// ticks since the span's start. While no thread is inside, the time is when the last one left.
///
/// Both change in one atomic step. A thread that enters while the last one leaves therefore either
/// continues its interval or starts a new one. Its clock may have been read before the other thread
/// left, so `enter` clamps the start to that time: no time is counted twice.
#[derive(Clone, Copy)]
struct Occupancy(u64);

const THREAD_BITS: u32 = 12;
const THREADS_MAX: u64 = (1 << THREAD_BITS) - 1;
/// The largest time that fits. A span that is older, by weeks, no longer becomes busy: its time
/// would start from a truncated tick.
const SINCE_MAX: Ticks = Ticks::MAX >> THREAD_BITS;

impl Occupancy {
    fn threads(self) -> u64 {
        self.0 & THREADS_MAX
    }

    fn since(self) -> Ticks {
        self.0 >> THREAD_BITS
    }

    fn enter(self, since: Ticks) -> Self {
        match self.threads() {
            0 if since > SINCE_MAX => self,
            0 => Occupancy(since.max(self.since()) << THREAD_BITS | 1),
            THREADS_MAX => self,
            _ => Occupancy(self.0 + 1),
        }
    }

    fn leave(self, until: Ticks) -> Self {
        match self.threads() {
            0 => self,
            1 => Occupancy(until.clamp(self.since(), SINCE_MAX) << THREAD_BITS),
            _ => Occupancy(self.0 - 1),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A thread reads its clock, another thread leaves, and only then does the first one enter.
    #[test]
    fn no_time_is_busy_twice() {
        let left = Occupancy(0).enter(10).leave(20);
        assert_eq!((left.threads(), left.enter(15).threads(), left.enter(15).since()), (0, 1, 20));
        // The same for a thread whose clock was read before it entered.
        assert_eq!(left.enter(40).leave(35).enter(36).since(), 40);
    }

    /// A span that stays open for weeks is entered and exited when its age no longer fits.
    #[test]
    fn an_age_that_overflows_records_no_busy_time() {
        let (old, young) = (SINCE_MAX + 20, 10);
        let ignored = Occupancy(0).enter(young).leave(young).enter(old);
        assert_eq!((ignored.threads(), ignored.leave(old).since()), (0, young));
        let over = Occupancy(0).enter(young).leave(old);
        assert_eq!((over.threads(), over.since(), over.enter(old).threads()), (0, SINCE_MAX, 0));
    }
}
