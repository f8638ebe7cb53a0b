//! Time: cheap to read on the service's threads, turned into dates on ours.
//!
//! Spans hold raw ticks of a monotonic counter. What a tick is worth, and which date it was, is computed when a trace
//! is exported, against the wall clock of that moment: within one trace durations and order are then those of the
//! counter, whatever happens to the wall clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use astracer_samplers::Nanos;

/// Where ticks and dates come from.
#[derive(Clone, Debug)]
pub struct Clock {
    counter: quanta::Clock,
    origin: Ticks,
    wall: Wall,
}

/// A reading of the counter. 0 is "never": the counter is past it before the first span.
pub(crate) type Ticks = u64;

#[derive(Clone, Debug)]
enum Wall {
    System,
    /// The date of the counter's origin.
    Of(SystemTime),
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl Clock {
    /// The machine's clocks. The first call in a process calibrates the counter, which takes some milliseconds.
    pub fn system() -> Self {
        let counter = quanta::Clock::new();
        let origin = counter.raw();
        Clock { counter, origin, wall: Wall::System }
    }

    /// A clock for tests that stands at `start` until it is told to go on.
    pub fn manual(start: SystemTime) -> (Self, ManualClock) {
        let (counter, mock) = quanta::Clock::mock();
        mock.increment(1u64);
        let origin = counter.raw();
        (Clock { counter, origin, wall: Wall::Of(start) }, ManualClock { mock })
    }

    #[inline]
    pub(crate) fn ticks(&self) -> Ticks {
        self.counter.raw()
    }

    /// The time since this clock was made.
    #[inline]
    pub(crate) fn since_origin(&self, ticks: Ticks) -> Nanos {
        Nanos::new(self.counter.delta_as_nanos(self.origin, ticks))
    }

    pub(crate) fn nanos_between(&self, start: Ticks, end: Ticks) -> u64 {
        self.counter.delta_as_nanos(start, end)
    }

    /// Reads both clocks, so that ticks of the recent past can be dated.
    pub(crate) fn anchor(&self) -> Anchor<'_> {
        let ticks = self.ticks();
        let wall = match self.wall {
            Wall::System => SystemTime::now(),
            Wall::Of(start) => start + Duration::from_nanos(self.since_origin(ticks).get()),
        };
        Anchor { clock: self, ticks, wall }
    }
}

/// One moment on both clocks.
pub(crate) struct Anchor<'a> {
    clock: &'a Clock,
    ticks: Ticks,
    wall: SystemTime,
}

impl Anchor<'_> {
    /// The date of `ticks`.
    pub(crate) fn date(&self, ticks: Ticks) -> SystemTime {
        let date = if ticks <= self.ticks {
            self.wall.checked_sub(Duration::from_nanos(self.clock.nanos_between(ticks, self.ticks)))
        } else {
            self.wall.checked_add(Duration::from_nanos(self.clock.nanos_between(self.ticks, ticks)))
        };
        date.unwrap_or(self.wall)
    }
}

/// Moves a [`Clock::manual`].
#[derive(Clone, Debug)]
pub struct ManualClock {
    mock: Arc<quanta::Mock>,
}

impl ManualClock {
    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        self.mock.increment(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_dates_around_the_anchor() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let (clock, hand) = Clock::manual(start);
        let first = clock.ticks();
        assert_ne!(first, 0);
        hand.advance(Duration::from_millis(250));
        let second = clock.ticks();
        assert_eq!(clock.since_origin(second), Nanos::from_millis(250));
        let anchor = clock.anchor();
        hand.advance(Duration::from_millis(5));
        assert_eq!(anchor.date(first), start);
        assert_eq!(anchor.date(second), start + Duration::from_millis(250));
        assert_eq!(anchor.date(clock.ticks()), start + Duration::from_millis(255));
    }
}
