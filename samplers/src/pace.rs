//! The pace of a table: a clock that advances with the slow rate of all calls.
//!
//! A half-life in seconds is right for one speed of traffic: at twice the speed every count is
//! twice as large, and an adaptive sampler keeps half as much. The pace's time is counted in calls
//! instead: seconds times calls per second, where the rate is a mean over some 200 calls of all
//! keys. Traffic that runs ten times as fast is decided as before, and a burst or a pause is still
//! seen, because the rate lags behind it.
//!
//! Each shard counts its calls, and after each [`BATCH`] of them changes the clock. Two cells take
//! turns: a reader uses the cell of the latest version, and the next change is written to the
//! other one (a sequence lock that no writer can hold up). Only one thread at a time changes the
//! clock; calls that others bring meanwhile wait for the next change.

use crate::nanos::LATE_MAX;
use crate::nanos::Nanos;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::thread;

/// The calls after which a shard changes the clock.
const BATCH: u64 = 32;
/// The half-life of a call's weight in the mean rate, in calls.
const RATE_HALF_LIFE: f64 = 200.0;
/// The units of the pace's time in one call: 2^48 calls fit in 64 bits.
pub(crate) const CALL: u64 = 1 << 16;
/// One change of the clock changes the rate at most by this factor, so that a single pause of
/// hours does not slow the clock for thousands of calls.
const CHANGE_MAX: f64 = 2.0;
/// The least mean gap, ns per unit: 15 calls a ns. Calls at one reading of the clock have no gaps.
const GAP_MIN: f64 = 1e-6;

/// Aligned to a cache line, so that reading the clock meets no counter of calls.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Pace {
    clock: Clock,
    /// log2 of 1 / (the shares of keys with a record), as a fixed-point logarithm; see
    /// [`Pace::set_present`].
    absent_log2: AtomicU64,
    calls: Calls,
}

/// The cells and what only a change of them needs.
#[derive(Debug, Default)]
struct Clock {
    /// The number of changes. Its last bit is the cell to read.
    version: AtomicU64,
    cells: [Cell; 2],
    /// 1 while a thread changes the clock.
    changing: AtomicU64,
    /// Calls that the cells do not include yet.
    pending: AtomicU64,
    /// All calls that the cells include.
    counted: AtomicU64,
}

/// The pace at a moment, and how it goes on.
#[derive(Debug, Default)]
struct Cell {
    /// The moment, ns.
    at_ns: AtomicU64,
    /// The pace's time at that moment.
    time: AtomicU64,
    /// The bits of the rate, in units of the pace's time per ns; 0 until it is known.
    rate: AtomicU64,
}

/// The calls that each shard has counted, on cache lines of their own. Under loom one shard.
#[derive(Debug)]
struct Calls(Box<[Counter]>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// The shards for calls: the first half belong to one thread each, as in the tallies.
const SHARDS: usize = if cfg!(loom) { 1 } else { 32 };
const OWN: usize = SHARDS / 2;

impl Default for Calls {
    fn default() -> Self {
        Calls((0..SHARDS).map(|_| Counter::default()).collect())
    }
}

/// The time of a table's pace at each of these calls of one thread, in calls of all keys: the time
/// in which [`Count::Paced`](crate::Count::Paced) counts halve.
pub fn paced(calls: impl IntoIterator<Item = Nanos>) -> impl Iterator<Item = f64> {
    let pace = Pace::default();
    calls.into_iter().map(move |now| {
        let time = pace.time(now).get() as f64 / CALL as f64;
        pace.count(now);
        time
    })
}

impl Pace {
    /// The pace's time at `now`. A thread whose `now` is behind the last change reads the time of
    /// the change.
    #[inline]
    pub(crate) fn time(&self, now: Nanos) -> Nanos {
        let (at_ns, time, rate) = self.clock.read();
        let elapsed = now.get().saturating_sub(at_ns) as f64 * rate;
        Nanos::new(time.wrapping_add(elapsed as u64))
    }

    /// A span of the pace's time in ns, at the current rate; 0 while the rate is not known.
    pub(crate) fn nanos(&self, span: Nanos) -> Nanos {
        let (.., rate) = self.clock.read();
        Nanos::new(if rate > 0.0 { (span.get() as f64 / rate) as u64 } else { 0 })
    }

    /// Counts a call.
    #[inline]
    pub(crate) fn count(&self, now: Nanos) {
        let number = thread::number() as usize;
        let counted = if number < OWN {
            // Only the thread with this number writes here. Relaxed, as in the tallies.
            let counter = &self.calls.0[number].0;
            let counted = counter.load(Ordering::Relaxed) + 1;
            counter.store(counted, Ordering::Relaxed);
            counted
        } else {
            let shared = OWN + (number & (SHARDS - OWN - 1));
            self.calls.0[shared].0.fetch_add(1, Ordering::Relaxed) + 1
        };
        if counted.is_multiple_of(BATCH) {
            self.clock.add(BATCH, now);
        }
    }

    /// log2 of 1 / (the sum of the shares of keys with a record); 0 if there are none.
    #[inline]
    pub(crate) fn absent_log2(&self) -> u64 {
        // Relaxed: one number that no other memory depends on.
        self.absent_log2.load(Ordering::Relaxed)
    }

    pub(crate) fn set_absent_log2(&self, log2: u64) {
        self.absent_log2.store(log2, Ordering::Relaxed);
    }

    /// The state of the clock, for an image.
    pub(crate) fn state(&self) -> [u64; 4] {
        let (at_ns, time, rate) = self.clock.read();
        [at_ns, time, rate.to_bits(), self.clock.counted.load(Ordering::Relaxed)]
    }

    /// Continues from a state. Called before the first call.
    pub(crate) fn restore(&self, [at_ns, time, rate, counted]: [u64; 4]) {
        self.clock.counted.store(counted, Ordering::Relaxed);
        self.clock.publish(at_ns, time, f64::from_bits(rate));
    }
}

impl Clock {
    #[inline]
    fn read(&self) -> (u64, u64, f64) {
        loop {
            // Acquire pairs with the Release of `publish`: the cell of this version is complete.
            let version = self.version.load(Ordering::Acquire);
            let cell = &self.cells[(version & 1) as usize];
            let at_ns = cell.at_ns.load(Ordering::Relaxed);
            let time = cell.time.load(Ordering::Relaxed);
            let rate = cell.rate.load(Ordering::Relaxed);
            // If any of these was written for the version after the next, then this fence pairs
            // with the one in `publish`, and the next version is seen here.
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return (at_ns, time, f64::from_bits(rate));
            }
        }
    }

    /// Adds calls, and changes the clock unless another thread is just changing it.
    #[cold]
    #[inline(never)]
    fn add(&self, calls: u64, now: Nanos) {
        // Relaxed: whoever changes the clock takes what it sees, and the rest stays for the next.
        self.pending.fetch_add(calls, Ordering::Relaxed);
        // Acquire and Release: the changes of all threads follow each other.
        if self.changing.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            self.change(self.pending.swap(0, Ordering::Relaxed), now);
            self.changing.store(0, Ordering::Release);
        }
    }

    /// `calls` have come since the last change.
    fn change(&self, calls: u64, now: Nanos) {
        let (at_ns, time, rate) = self.read();
        let counted = self.counted.load(Ordering::Relaxed);
        self.counted.store(counted.wrapping_add(calls), Ordering::Relaxed);
        if now.get() < at_ns {
            // A thread that read its clock and was suspended; if the clock itself was set back, the
            // time goes on from there.
            if at_ns - now.get() > LATE_MAX.get() {
                self.publish(now.get(), time, rate);
            }
            return;
        }
        let elapsed = (now.get() - at_ns) as f64;
        let units = (calls * CALL) as f64;
        if rate == 0.0 {
            // The first calls: there is no rate yet, so the time is their number. They began at the
            // process's first call, whose time is not known; the next change has a whole interval.
            let is_first = counted == 0;
            let rate = if is_first || elapsed == 0.0 { 0.0 } else { units / elapsed };
            self.publish(now.get(), time.wrapping_add(units as u64), rate);
            return;
        }
        // The weight of these calls in the mean of the gaps: at first that of a plain mean.
        let weight = 1.0 - (-(calls as f64) / RATE_HALF_LIFE).exp2();
        let weight = weight.max(calls as f64 / counted.wrapping_add(calls) as f64);
        let gap = 1.0 / rate;
        let next =
            (gap + weight * (elapsed / units - gap)).clamp(gap / CHANGE_MAX, gap * CHANGE_MAX).max(GAP_MIN);
        self.publish(now.get(), time.wrapping_add((elapsed * rate) as u64), 1.0 / next);
    }

    /// Only the thread that has `changing` calls this.
    fn publish(&self, at_ns: u64, time: u64, rate: f64) {
        let version = self.version.load(Ordering::Relaxed);
        let cell = &self.cells[(version.wrapping_add(1) & 1) as usize];
        // Readers of the version before may still read this cell. The fence pairs with the one in
        // `read`: whoever sees one of the stores below also sees the present version, and reads
        // again.
        fence(Ordering::Release);
        cell.at_ns.store(at_ns, Ordering::Relaxed);
        cell.time.store(time, Ordering::Relaxed);
        cell.rate.store(rate.to_bits(), Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Calls with these gaps in ns; the pace's time before each, in calls.
    fn times(gaps: &[u64]) -> Vec<f64> {
        let mut now = 1_000_000_000;
        let moment = |gap: &u64| {
            now += gap;
            Nanos::new(now)
        };
        paced(gaps.iter().map(moment)).collect()
    }

    fn regular(gap: u64, calls: usize) -> Vec<u64> {
        vec![gap; calls]
    }

    #[test]
    fn regular_calls_are_one_apart_at_any_speed() {
        for gap in [1, 1_000, 60_000_000_000] {
            let times = times(&regular(gap, 2_000));
            for n in [100, 1_000, 1_999] {
                assert!((times[n] - n as f64).abs() <= BATCH as f64, "{gap}: {} after {n}", times[n]);
            }
            assert!((times[1_999] - times[999] - 1_000.0).abs() < 1.0, "{gap}");
        }
    }

    /// All times divided by 5, 2 and 10: the same pace.
    #[test]
    fn irregular_calls_have_the_same_times_at_any_speed() {
        let mut random = astracer_testing::SplitMix::new(3);
        let gaps: Vec<u64> = (0..5_000).map(|_| 1_000 * (random.next() >> 44).pow(2) / 10_000_000).collect();
        let expected = times(&gaps);
        for (times_of, by) in [(5, 1), (1, 2), (1, 10)] {
            let found = times(&gaps.iter().map(|gap| gap * times_of / by).collect::<Vec<_>>());
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-3 * expected + 0.1, "{found}, {expected}");
            }
        }
        assert!((expected[4_999] / 5_000.0 - 1.0).abs() < 0.1, "{}", expected[4_999]);
    }

    /// By hand: 100 calls' time without a call is 100 calls. Calls that suddenly come five times as
    /// fast advance the pace by a fifth each at first, and by one each in the long run.
    #[test]
    fn a_pause_and_a_burst_are_seen() {
        let mut gaps = regular(1_000, 1_000);
        gaps.push(100_000);
        let paused = times(&gaps);
        assert!((paused[1_000] - paused[999] - 100.0).abs() < 1.0);
        let mut gaps = regular(5_000, 2_000);
        gaps.extend(regular(1_000, 3_000));
        let faster = times(&gaps);
        let advanced = faster[2_000 + BATCH as usize - 1] - faster[2_000];
        assert!((advanced / 31.0 - 0.2).abs() < 0.05, "{advanced}");
        assert!((faster[4_900] - faster[3_900] - 1_000.0).abs() < 30.0);
    }

    /// A pause of a day: the rate falls to a half, and is right again within some hundred calls.
    #[test]
    fn a_night_slows_the_clock_for_some_hundred_calls_only() {
        let mut gaps = regular(1_000_000, 2_000);
        gaps.push(86_400_000_000_000);
        gaps.extend(regular(1_000_000, 1_000));
        let times = times(&gaps);
        assert!(times[2_900] - times[2_000] > 600.0, "{}", times[2_900] - times[2_000]);
    }

    #[test]
    fn a_clock_that_is_set_back_goes_on() {
        let pace = Pace::default();
        let second = |seconds: u64| Nanos::from_secs(seconds);
        (0..200).for_each(|second_of| pace.count(second(100_000 + second_of)));
        let before = pace.time(second(100_199));
        assert!(pace.time(second(100_150)) <= before, "late threads read an earlier time");
        (0..200).for_each(|second_of| pace.count(second(1_000 + second_of)));
        let after = pace.time(second(1_199));
        assert!(after >= before && after.get() - before.get() < 300 * CALL);
    }

    #[test]
    fn a_state_continues() {
        let pace = Pace::default();
        (0..500).for_each(|call| pace.count(Nanos::new(call * 1_000)));
        let other = Pace::default();
        other.restore(pace.state());
        for now in [499_000, 700_000, 5_000_000] {
            assert_eq!(other.time(Nanos::new(now)), pace.time(Nanos::new(now)));
        }
        assert_eq!(pace.nanos(Nanos::new(10 * CALL)).get() / 10, 1_000);
    }

    /// Every call is counted once, whichever threads bring them.
    #[test]
    fn threads_share_the_clock() {
        let pace = Pace::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..32_000).for_each(|call| pace.count(Nanos::new(call))));
            }
        });
        let counted = pace.clock.counted.load(Ordering::Relaxed) + pace.clock.pending.load(Ordering::Relaxed);
        assert_eq!(counted, 128_000);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;

    use super::*;

    /// A reader sees a moment, a time and a rate that belong together, while another thread changes
    /// the clock often enough to write the reader's cell again.
    #[test]
    fn loom_a_reading_is_of_one_change() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let clock = Arc::new(Clock::default());
            let other = Arc::clone(&clock);
            let thread = loom::thread::spawn(move || (1..3).for_each(|n| other.publish(n, n, n as f64)));
            let (at_ns, time, rate) = clock.read();
            assert!(at_ns == time && rate == time as f64, "{at_ns} {time} {rate}");
            thread.join().unwrap();
        });
    }

    /// Calls that two threads bring at once are all counted or wait for the next change.
    #[test]
    fn loom_no_call_is_lost() {
        loom::model(|| {
            let clock = Arc::new(Clock::default());
            let other = Arc::clone(&clock);
            let thread = loom::thread::spawn(move || other.add(BATCH, Nanos::new(5)));
            clock.add(BATCH, Nanos::new(7));
            thread.join().unwrap();
            let counted = clock.counted.load(Ordering::Relaxed) + clock.pending.load(Ordering::Relaxed);
            assert_eq!(counted, 2 * BATCH);
        });
    }
}
