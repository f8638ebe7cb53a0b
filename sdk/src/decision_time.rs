//! The time at which a local root is decided, without a reading of the clock for each of them.
//!
//! Most roots are decided right after they began, so that their beginning says the time. One that
//! waited for its first use says a time of long ago, which samplers take for a clock that was set
//! back: they would begin anew with its key. It is told by the roots that were decided meanwhile;
//! the first after a pause, in which nothing was, may say an old time itself.

use astracer_samplers::Nanos;

use crate::sync::{AtomicU64, Ordering};

/// A root that began as long ago as this, as seen when the clock was last read, may say the time.
const LATE: Nanos = Nanos::from_secs(30);
/// The clock is read again for the first root that begins as much later. Samplers bear a minute,
/// which is more than both.
const AHEAD: Nanos = Nanos::from_secs(10);
const SPAN: u64 = LATE.saturating_add(AHEAD).get();
/// The clock has not been read yet: no root begins in the 40 s from then on, 292 years after the
/// clock's origin.
const NEVER: u64 = 1 << 63;

/// The beginnings that say the time: those of [`SPAN`] from here on, in nanoseconds.
#[derive(Debug)]
pub(crate) struct DecisionTime(AtomicU64);

impl DecisionTime {
    pub(crate) fn new() -> Self {
        DecisionTime(AtomicU64::new(NEVER))
    }

    /// The time for a root that began at `began` and is decided now: no more than [`SPAN`] before
    /// one that was given earlier, unless the clock was set back. `now` reads the clock.
    #[inline]
    pub(crate) fn of(&self, began: Nanos, now: impl FnOnce() -> Nanos) -> Nanos {
        // Relaxed: it is a time, and nothing else depends on it.
        let from = self.0.load(Ordering::Relaxed);
        if is_within(began, from) { began } else { self.look(began, now()) }
    }

    /// Several threads may look at once: the later look counts, and the next root beyond it brings
    /// about another.
    #[cold]
    #[inline(never)]
    fn look(&self, began: Nanos, now: Nanos) -> Nanos {
        let from = now.saturating_sub(LATE).get();
        self.0.store(from, Ordering::Relaxed);
        if is_within(began, from) { began } else { now }
    }
}

/// Neither before `from` nor [`SPAN`] after it or later.
#[inline]
fn is_within(began: Nanos, from: u64) -> bool {
    began.get().wrapping_sub(from) < SPAN
}

#[cfg(all(test, loom))]
mod loom_models {
    use std::sync::Arc;

    use super::*;

    /// Two threads look at once. Afterwards the time goes on, whoever was the later.
    #[test]
    fn loom_a_root_of_long_ago_never_says_the_time() {
        loom::model(|| {
            let time = Arc::new(DecisionTime::new());
            let threads: Vec<_> = [(100, 100, 100), (0, 101, 101)]
                .map(|(began, now, expected)| {
                    let time = Arc::clone(&time);
                    loom::thread::spawn(move || {
                        let given = time.of(Nanos::from_secs(began), || Nanos::from_secs(now));
                        assert_eq!(given, Nanos::from_secs(expected));
                    })
                })
                .into();
            for thread in threads {
                thread.join().unwrap();
            }
            let of = |began| time.of(Nanos::from_secs(began), || Nanos::from_secs(102));
            assert_eq!(of(95), Nanos::from_secs(95));
            assert_eq!(of(0), Nanos::from_secs(102));
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_for_roots_of_long_ago_and_once_in_a_while() {
        let time = DecisionTime::new();
        let secs = Nanos::from_secs;
        // When each root began, the clock's time if it is read for it, and the time of its
        // decision.
        for (began, read, expected) in [
            (0, Some(36), 36),
            (6, None, 6),
            (45, None, 45),
            (46, Some(47), 46),
            (17, None, 17),
            (56, None, 56),
            (57, Some(57), 57),
            (26, Some(58), 58),
            (28, None, 28),
            // Nothing was decided for an hour.
            (3_000, Some(3_652), 3_652),
            (3_652, None, 3_652),
            // The clock was set back, and is so for roots that began before it was.
            (100, Some(100), 100),
            (3_652, Some(101), 101),
            (101, None, 101),
        ] {
            let mut was_read = None;
            let given = time.of(secs(began), || {
                was_read = read;
                secs(read.expect("the clock is not read"))
            });
            assert_eq!((given, was_read), (secs(expected), read), "began at {began} s");
        }
    }
}
