//! The time at which a local root is decided, without reading the clock for each one.
//!
//! Most roots are decided right after they began, so their start time serves. A root that waited
//! long for its first use has a start time far in the past. Samplers would take that for a clock
//! set back, and reset its key. Such a root gets the current time instead, as long as others were
//! decided in the meantime. Only the first root after a pause without decisions may still use an
//! old time.

use astracer_samplers::Nanos;

use astracer_spans::sync::{AtomicU64, Ordering};

/// A root's start time serves as the decision time if it is at most this much older than the last
/// clock reading.
const LATE: Nanos = Nanos::from_secs(30);
/// The clock is read again for the first root that begins this much later. Samplers tolerate one
/// minute, which is more than the sum of both.
const AHEAD: Nanos = Nanos::from_secs(10);
const SPAN: u64 = LATE.saturating_add(AHEAD).get();
/// The clock has not been read yet: no root begins within 40 s of this time, which is 292 years
/// after the clock's origin.
const NEVER: u64 = 1 << 63;

/// The start in nanoseconds of the interval, [`SPAN`] long, of start times that serve as decision
/// times.
#[derive(Debug)]
pub(crate) struct DecisionTime(AtomicU64);

impl DecisionTime {
    pub(crate) fn new() -> Self {
        DecisionTime(AtomicU64::new(NEVER))
    }

    /// The time for a root that began at `began` and is decided now. It is at most [`SPAN`] before
    /// an earlier result, unless the clock was set back. `now` reads the clock.
    #[inline]
    pub(crate) fn of(&self, began: Nanos, now: impl FnOnce() -> Nanos) -> Nanos {
        // Relaxed: the value is only a time, and guards no other memory.
        let from = self.0.load(Ordering::Relaxed);
        if is_within(began, from) { began } else { self.look(began, now()) }
    }

    /// Several threads may do this at once. The last store wins; the next root outside its interval
    /// reads the clock again.
    #[cold]
    #[inline(never)]
    fn look(&self, began: Nanos, now: Nanos) -> Nanos {
        let from = now.saturating_sub(LATE).get();
        self.0.store(from, Ordering::Relaxed);
        if is_within(began, from) { began } else { now }
    }
}

#[inline]
fn is_within(began: Nanos, from: u64) -> bool {
    began.get().wrapping_sub(from) < SPAN
}

#[cfg(all(test, loom))]
mod loom_models {
    use std::sync::Arc;

    use super::*;

    /// Two threads read the clock at once. Afterwards time moves forwards, whichever was later.
    #[test]
    fn loom_an_old_root_does_not_set_the_time() {
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
        // The start of each root, the clock's time if the root reads it, and the time of its
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
            // The clock was set back. A root that began before that looks as if it began in the
            // future.
            (100, Some(100), 100),
            (3_652, Some(101), 101),
            (101, None, 101),
        ] {
            let mut was_read = None;
            let given = time.of(secs(began), || {
                was_read = read;
                secs(read.expect("an unexpected clock reading"))
            });
            assert_eq!((given, was_read), (secs(expected), read), "began at {began} s");
        }
    }
}
