//! Time: cheap to read on the service's threads, converted to dates on the exporter's threads.
//!
//! Spans hold raw ticks of a monotonic counter. The exporter's thread compares the counter with the
//! wall clock and records an anchor whenever the two have drifted apart. All spans of a trace are
//! dated by the anchor that was valid when the trace began, even if they are exported in separate
//! parts. So durations and order within one trace are those of the counter, even if the wall clock
//! is set.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use astracer_samplers::Nanos;

/// The source of ticks and dates.
#[derive(Clone, Debug)]
pub struct Clock {
    counter: quanta::Clock,
    origin: Ticks,
    /// Stored, because every comparison of the two clocks gives a slightly different date.
    origin_date: SystemTime,
    /// The date of the counter's origin on a manual clock; `None`: the machine's wall clock.
    wall: Option<SystemTime>,
}

/// A reading of the counter. 0 means "never": the counter has passed it before the first span.
pub type Ticks = u64;

/// Ticks whose time is known precisely enough to convert others.
const SAMPLE: Ticks = 1 << 40;

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl Clock {
    /// The machine's clocks. The first call in a process calibrates the counter, which takes a few
    /// milliseconds.
    pub fn system() -> Self {
        let counter = quanta::Clock::new();
        let origin = counter.raw();
        Clock { counter, origin, origin_date: SystemTime::now(), wall: None }
    }

    /// A clock for tests that stays at `start` until it is advanced.
    pub fn manual(start: SystemTime) -> (Self, ManualClock) {
        let (counter, mock) = quanta::Clock::mock();
        mock.increment(1u64);
        let origin = counter.raw();
        (Clock { counter, origin, origin_date: start, wall: Some(start) }, ManualClock { mock })
    }

    #[inline]
    pub fn ticks(&self) -> Ticks {
        self.counter.raw()
    }

    /// The time from the creation of this clock to `ticks`.
    #[inline]
    pub fn since_origin(&self, ticks: Ticks) -> Nanos {
        Nanos::new(self.counter.delta_as_nanos(self.origin, ticks))
    }

    /// The number of ticks in a duration.
    pub fn ticks_of(&self, duration: Duration) -> Ticks {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        // The counter only converts ticks to nanoseconds, in proportion.
        let ticks = u128::from(nanos) * u128::from(SAMPLE) / u128::from(self.nanos_between(0, SAMPLE).max(1));
        Ticks::try_from(ticks).unwrap_or(Ticks::MAX).min(Ticks::MAX >> 1)
    }

    #[inline]
    pub fn nanos_between(&self, start: Ticks, end: Ticks) -> u64 {
        self.counter.delta_as_nanos(start, end)
    }

    /// The duration in nanoseconds of a span that began at `start`. It ended at `end` or, if its
    /// end was set explicitly, at that date.
    pub fn duration(&self, start: Ticks, end: Ticks, by_hand: Option<SystemTime>) -> u64 {
        let Some(date) = by_hand else { return self.nanos_between(start, end) };
        let duration = date.duration_since(self.date(start)).unwrap_or_default();
        u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The date of a recent reading.
    pub fn date(&self, ticks: Ticks) -> SystemTime {
        self.compare().date(self, ticks)
    }

    /// The date at which this clock was created, as the wall clock showed it then.
    pub fn origin(&self) -> SystemTime {
        self.origin_date
    }

    /// Reads both clocks.
    fn compare(&self) -> Anchor {
        let ticks = self.ticks();
        let wall = match self.wall {
            None => SystemTime::now(),
            Some(start) => {
                start.checked_add(Duration::from_nanos(self.since_origin(ticks).get())).unwrap_or(start)
            }
        };
        Anchor { ticks, wall }
    }
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Anchor {
    ticks: Ticks,
    wall: SystemTime,
}

impl Anchor {
    /// The date of `ticks`. Two dates by one anchor differ by as much as [`Clock::since_origin`] of
    /// their ticks: nanoseconds are rounded once, from the origin.
    pub fn date(&self, clock: &Clock, ticks: Ticks) -> SystemTime {
        let (own, ticks) = (clock.since_origin(self.ticks).get(), clock.since_origin(ticks).get());
        let date = if ticks <= own {
            self.wall.checked_sub(Duration::from_nanos(own - ticks))
        } else {
            self.wall.checked_add(Duration::from_nanos(ticks - own))
        };
        date.unwrap_or(self.wall)
    }
}

/// The anchors of a clock, oldest first.
#[derive(Debug)]
pub struct Anchors {
    pub clock: Clock,
    anchors: VecDeque<Anchor>,
}

/// The drift at which a new anchor is added: about as much as two consecutive readings of both
/// clocks may differ.
const APART: Duration = Duration::from_micros(20);
/// The number of anchors kept. Traces that began before the oldest one are dated by it.
const ANCHORS_MAX: usize = 1024;

impl Anchors {
    pub fn new(clock: Clock) -> Self {
        let anchors = [clock.compare()].into();
        Anchors { clock, anchors }
    }

    /// Compares the clocks, and adds an anchor if they have drifted apart.
    pub fn compare(&mut self) {
        let now = self.clock.compare();
        let expected = self.anchors.back().map_or(now.wall, |last| last.date(&self.clock, now.ticks));
        let apart = now.wall.duration_since(expected).unwrap_or_else(|error| error.duration());
        if apart < APART {
            return;
        }
        if self.anchors.len() == ANCHORS_MAX {
            self.anchors.pop_front();
        }
        self.anchors.push_back(now);
    }

    /// The anchor for a trace that began at `began`: the last one before it, or the oldest.
    pub fn of(&self, began: Ticks) -> Anchor {
        let after = self.anchors.partition_point(|anchor| anchor.ticks <= began);
        self.anchors[after.saturating_sub(1)]
    }
}

/// Moves a [`Clock::manual`].
#[derive(Clone, Debug)]
pub struct ManualClock {
    mock: Arc<quanta::Mock>,
}

impl ManualClock {
    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        self.mock.increment(by);
    }

    /// Sets the clock back, which no monotonic clock should do.
    pub fn set_back(&self, by: Duration) {
        self.mock.decrement(by);
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
        let anchors = Anchors::new(clock.clone());
        hand.advance(Duration::from_millis(5));
        let date = |ticks| anchors.of(first).date(&clock, ticks);
        assert_eq!(date(first), start);
        assert_eq!(date(second), start + Duration::from_millis(250));
        assert_eq!(date(clock.ticks()), start + Duration::from_millis(255));
    }

    /// Where a tick is not a whole number of nanoseconds, dates that are rounded on their own
    /// would be 1 ns off in a part of the spans. The machine's counter usually is such a one.
    #[test]
    fn durations_of_spans_are_differences_of_times_since_the_origin() {
        let clock = Clock::system();
        let anchors = Anchors::new(clock.clone());
        for number in 0..10_000 {
            let began = clock.origin + number * 7_919;
            let ended = began + 1 + number * 31;
            let anchor = anchors.of(began);
            let duration = anchor.date(&clock, ended).duration_since(anchor.date(&clock, began)).unwrap();
            let expected = clock.since_origin(ended).get() - clock.since_origin(began).get();
            assert_eq!(duration.as_nanos(), u128::from(expected), "{number}");
        }
    }

    /// Cumulative metrics start at the origin, so a different date would look like a reset.
    #[test]
    fn the_date_of_the_origin_stays_when_the_wall_clock_is_set() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let (mut clock, hand) = Clock::manual(start);
        hand.advance(Duration::from_secs(1));
        clock.wall = Some(start - Duration::from_secs(3_600));
        assert_eq!(clock.origin(), start);
    }

    /// The wall clock is set back one hour while a trace is open.
    #[test]
    fn a_trace_keeps_the_comparison_it_began_with() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let (mut clock, hand) = Clock::manual(start);
        let mut anchors = Anchors::new(clock.clone());
        hand.advance(Duration::from_secs(1));
        let (began, hour) = (clock.ticks(), Duration::from_secs(3_600));
        hand.advance(Duration::from_secs(1));
        clock.wall = Some(start - hour);
        anchors.clock = clock.clone();
        anchors.compare();
        hand.advance(Duration::from_secs(1));
        anchors.compare();
        assert_eq!(anchors.anchors.len(), 2, "one drift");
        let now = clock.ticks();
        assert_eq!(anchors.of(began).date(&clock, now), start + Duration::from_secs(3));
        assert_eq!(anchors.of(now).date(&clock, now), start + Duration::from_secs(3) - hour);
    }
}
