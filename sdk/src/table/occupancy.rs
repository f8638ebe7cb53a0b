//! The time that threads spend inside of a span, as one word.

use crate::clock::Ticks;

/// The number of threads inside a span, in 12 bits, and since when, in ticks from its begin; if there are none, until when
/// the last one was. Both change together, so a thread that enters while the last one leaves starts either a new time or
/// none. Its clock may have been read before that one left: no time counts twice for that.
#[derive(Clone, Copy)]
pub(super) struct Occupancy(pub(super) u64);

const THREAD_BITS: u32 = 12;
const THREADS_MAX: u64 = (1 << THREAD_BITS) - 1;

impl Occupancy {
    pub(super) fn threads(self) -> u64 {
        self.0 & THREADS_MAX
    }

    pub(super) fn since(self) -> Ticks {
        self.0 >> THREAD_BITS
    }

    pub(super) fn enter(self, since: Ticks) -> Self {
        match self.threads() {
            0 => Occupancy(since.max(self.since()) << THREAD_BITS | 1),
            THREADS_MAX => self,
            _ => Occupancy(self.0 + 1),
        }
    }

    pub(super) fn leave(self, until: Ticks) -> Self {
        match self.threads() {
            0 => self,
            1 => Occupancy(until.max(self.since()) << THREAD_BITS),
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
}
