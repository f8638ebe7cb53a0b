//! Whether to stop early: because the caller wants to, or because a deadline has passed.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use astracer_recording::stop::Pulse;

/// A stop condition. All phases of the work check it at least every 50 ms.
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

/// The number of arrivals between two checks of the stop condition: a fraction of a millisecond.
pub(crate) const ARRIVALS_BETWEEN: usize = 4096;

impl<'a> Stop<'a> {
    /// Stops when `flag` becomes true.
    pub fn when_set(flag: &'a AtomicBool) -> Self {
        Self { wish: Wish::Flag(flag), deadline: None }
    }

    /// Stops when `wish` returns true. Any thread may call it, thousands of times per second.
    pub fn when(wish: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self { wish: Wish::Function(wish), deadline: None }
    }

    /// Never stops.
    pub const fn never() -> Self {
        Self { wish: Wish::Never, deadline: None }
    }

    /// Also stops when this time from now has passed. A time beyond the clock's range sets no
    /// deadline.
    #[must_use]
    pub fn within(self, time_max: Option<Duration>) -> Self {
        let deadline = time_max.and_then(|time| Instant::now().checked_add(time));
        let earlier = [self.deadline, deadline].into_iter().flatten().min();
        Self { deadline: earlier, ..self }
    }

    /// Whether to stop now.
    pub fn is_asked(&self) -> bool {
        self.is_interrupted() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Whether the caller wants to stop, whatever the deadline.
    pub fn is_interrupted(&self) -> bool {
        match self.wish {
            Wish::Never => false,
            Wish::Flag(flag) => flag.load(Ordering::Relaxed),
            Wish::Function(wish) => wish(),
        }
    }

    /// The same condition without the deadline, for work that must be done even after it.
    #[must_use]
    pub fn without_deadline(self) -> Self {
        Self { deadline: None, ..self }
    }

    /// A counter for one loop's work, which checks the condition now and then.
    pub fn pulse(self) -> Pulse<'a> {
        Pulse::new(move || self.is_asked())
    }

    /// Checks the condition once per [`ARRIVALS_BETWEEN`] arrivals.
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
