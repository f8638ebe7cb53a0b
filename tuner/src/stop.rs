//! Whether to end early: the caller's flag, or a time that is up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Asked at least every 50 ms of work, in every phase.
#[derive(Clone, Copy, Debug)]
pub struct Stop<'a> {
    flag: &'a AtomicBool,
    deadline: Option<Instant>,
}

/// The number of arrivals between two checks for stop: a fraction of a millisecond.
pub(crate) const ARRIVALS_BETWEEN: usize = 4096;

impl<'a> Stop<'a> {
    /// Ends when `flag` becomes true, or when `time_max` from now is over. A time too long for the clock never is.
    pub fn new(flag: &'a AtomicBool, time_max: Option<Duration>) -> Self {
        Self { flag, deadline: time_max.and_then(|time| Instant::now().checked_add(time)) }
    }

    /// Whether to end now.
    pub fn is_asked(&self) -> bool {
        self.is_interrupted() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Whether the flag was set, whatever the time.
    pub fn is_interrupted(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The same without a deadline, for what must be done though the time is up.
    #[must_use]
    pub fn without_deadline(self) -> Self {
        Self { deadline: None, ..self }
    }

    /// Once for every [`ARRIVALS_BETWEEN`] arrivals.
    pub(crate) fn is_asked_at(&self, arrival: usize) -> bool {
        arrival.is_multiple_of(ARRIVALS_BETWEEN) && self.is_asked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_beyond_the_clock_is_no_deadline() {
        let flag = AtomicBool::new(false);
        assert!(!Stop::new(&flag, Some(Duration::MAX)).is_asked());
        assert!(Stop::new(&flag, Some(Duration::ZERO)).is_asked());
        assert!(!Stop::new(&flag, Some(Duration::ZERO)).without_deadline().is_asked());
        flag.store(true, Ordering::Relaxed);
        assert!(Stop::new(&flag, None).is_asked());
    }
}
