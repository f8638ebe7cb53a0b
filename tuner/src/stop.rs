//! Whether to end early: the caller's wish, or a time that is up.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use astracer_recording::stop::Pulse;

/// Asked at least every 50 ms of work, in every phase.
#[derive(Clone, Copy)]
pub struct Stop<'a> {
    wish: Wish<'a>,
    deadline: Option<Instant>,
}

#[derive(Clone, Copy)]
enum Wish<'a> {
    Never,
    Flag(&'a AtomicBool),
    Function(&'a (dyn Fn() -> bool + Sync)),
}

impl fmt::Debug for Stop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// The number of arrivals between two checks for stop: a fraction of a millisecond.
pub(crate) const ARRIVALS_BETWEEN: usize = 4096;

impl<'a> Stop<'a> {
    /// Ends when `flag` becomes true.
    pub fn when_set(flag: &'a AtomicBool) -> Self {
        Self { wish: Wish::Flag(flag), deadline: None }
    }

    /// Ends when `wish` returns true. Any thread may call it, thousands of times a second.
    pub fn when(wish: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self { wish: Wish::Function(wish), deadline: None }
    }

    /// For work that nobody stops.
    pub const fn never() -> Self {
        Self { wish: Wish::Never, deadline: None }
    }

    /// Ends when this time from now is over, too. A time too long for the clock never is.
    #[must_use]
    pub fn within(self, time_max: Option<Duration>) -> Self {
        let deadline = time_max.and_then(|time| Instant::now().checked_add(time));
        let earlier = [self.deadline, deadline].into_iter().flatten().min();
        Self { deadline: earlier, ..self }
    }

    /// Whether to end now.
    pub fn is_asked(&self) -> bool {
        self.is_interrupted() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Whether the caller wishes so, whatever the time.
    pub fn is_interrupted(&self) -> bool {
        match self.wish {
            Wish::Never => false,
            Wish::Flag(flag) => flag.load(Ordering::Relaxed),
            Wish::Function(wish) => wish(),
        }
    }

    /// The same without a deadline, for what must be done though the time is up.
    #[must_use]
    pub fn without_deadline(self) -> Self {
        Self { deadline: None, ..self }
    }

    /// Counts the work of one loop, and asks now and then.
    pub fn pulse(self) -> Pulse<'a> {
        Pulse::new(move || self.is_asked())
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
        let stop = Stop::when_set(&flag);
        assert!(!stop.within(Some(Duration::MAX)).is_asked());
        assert!(stop.within(Some(Duration::ZERO)).is_asked());
        assert!(stop.within(Some(Duration::ZERO)).within(Some(Duration::from_secs(1000))).is_asked());
        assert!(!stop.within(Some(Duration::ZERO)).without_deadline().is_asked());
        flag.store(true, Ordering::Relaxed);
        assert!(stop.is_asked());
        assert!(Stop::when(&|| true).is_interrupted() && !Stop::never().is_asked());
    }
}
