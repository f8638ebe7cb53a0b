//! The time that threads spend inside of a span, as one word.

use crate::clock::Ticks;

/// The number of threads inside a span, in 12 bits, and since when, in ticks from its begin. Both change together, so
/// a thread that enters while the last one leaves starts either a new time or none.
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
            0 => Occupancy(since << THREAD_BITS | 1),
            THREADS_MAX => self,
            _ => Occupancy(self.0 + 1),
        }
    }

    pub(super) fn leave(self) -> Self {
        Occupancy(self.0 - u64::from(self.threads() > 0))
    }
}
