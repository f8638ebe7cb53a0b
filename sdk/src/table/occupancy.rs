//! The time that threads spend inside of a span, as one word.

use crate::clock::Ticks;

/// The number of threads inside a span, in 12 bits, and since when, in ticks from its begin; if
/// there are none, until when the last one was. Both change together, so a thread that enters while
/// the last one leaves starts either a new time or none. Its clock may have been read before that
/// one left: no time counts twice for that.
#[derive(Clone, Copy)]
pub(super) struct Occupancy(pub(super) u64);

const THREAD_BITS: u32 = 12;
const THREADS_MAX: u64 = (1 << THREAD_BITS) - 1;
/// A span that is older, by weeks, is no longer busy: the time would count from a wrong tick.
const SINCE_MAX: Ticks = Ticks::MAX >> THREAD_BITS;

impl Occupancy {
    pub(super) fn threads(self) -> u64 {
        self.0 & THREADS_MAX
    }

    pub(super) fn since(self) -> Ticks {
        self.0 >> THREAD_BITS
    }

    pub(super) fn enter(self, since: Ticks) -> Self {
        match self.threads() {
            0 if since > SINCE_MAX => self,
            0 => Occupancy(since.max(self.since()) << THREAD_BITS | 1),
            THREADS_MAX => self,
            _ => Occupancy(self.0 + 1),
        }
    }

    pub(super) fn leave(self, until: Ticks) -> Self {
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

    /// A thread reads its clock, and enters when another one has left since.
    #[test]
    fn no_time_is_busy_twice() {
        let left = Occupancy(0).enter(10).leave(20);
        assert_eq!((left.threads(), left.enter(15).threads(), left.enter(15).since()), (0, 1, 20));
        // And one that leaves by a clock from before it entered.
        assert_eq!(left.enter(40).leave(35).enter(36).since(), 40);
    }

    /// A span that is open for weeks is entered and left when its age no longer fits.
    #[test]
    fn an_age_that_does_not_fit_makes_nobody_busy() {
        let (old, young) = (SINCE_MAX + 20, 10);
        let ignored = Occupancy(0).enter(young).leave(young).enter(old);
        assert_eq!((ignored.threads(), ignored.leave(old).since()), (0, young));
        let over = Occupancy(0).enter(young).leave(old);
        assert_eq!((over.threads(), over.since(), over.enter(old).threads()), (0, SINCE_MAX, 0));
    }
}
