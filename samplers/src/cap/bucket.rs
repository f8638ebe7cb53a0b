//! One allowance as a bucket: pure arithmetic, and the atomic word that holds its state.
//!
//! The word is the time at which the bucket is full again, in ns; at or before now, it is full. It
//! never falls but where the clock was set back: a caller whose `now` is old sees an emptier bucket
//! than there is.

use super::Allowance;
use crate::nanos::Nanos;
use crate::policy::LATE_MAX;
use crate::randomness::Randomness;
use crate::sync::{AtomicU64, Ordering};
use crate::threshold::Threshold;

/// Parts of a nanosecond, in which the time of a unit is held.
const FRACTION_BITS: u32 = 20;
/// A unit that takes as long as this, in ns, takes whole ones: a millionth more at most.
const WHOLE_FROM: f64 = 1e6;
/// The number of times that the kept share is halved on the way from a half-full bucket to an empty
/// one.
const HALVINGS: u64 = 16;
/// Bits of a halving's fraction.
const STEP_BITS: u32 = 16;
/// The time after a strike for which kept traces have no weight.
const UNWEIGHED: u64 = 1_000_000_000;
/// Strikes closer than this to the last noted one are not noted again, which would be a write for
/// each dropped call.
const NOTED: u64 = UNWEIGHED / 8;

/// An allowance, ready for deciding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bucket {
    /// The time that a unit takes to come back, in 2^-`fraction` ns, rounded up: so the bound holds
    /// exactly.
    unit: u64,
    /// [`FRACTION_BITS`], or 0 of a long unit: 64 bits hold the one of the least rate in whole ns,
    /// and no parts of them.
    fraction: u32,
    /// The time that an empty bucket takes to be full, in ns, rounded down.
    fill: u64,
    /// The time that one unit takes to come back, in ns, rounded up.
    one: u64,
    /// The whole units of a burst.
    burst: u64,
}

/// The answer of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is kept, by this threshold.
    Kept {
        threshold: u64,
        /// False if the bucket was empty within the last second: then no weight is true.
        is_weighed: bool,
    },
    /// It is dropped by the threshold that was raised.
    Raised,
    /// It is dropped because the bucket is empty.
    Empty,
}

impl Bucket {
    pub(crate) fn new(allowance: Allowance) -> Self {
        let unit_ns = 1e9 / allowance.rate();
        // Whole, so that a burst of ten takes as long as ten units do: else the last of them would
        // have no room.
        let fraction = if unit_ns >= WHOLE_FROM { 0 } else { FRACTION_BITS };
        let parts = f64::from(1u32 << fraction);
        let unit = (unit_ns * parts).ceil();
        let fill = (allowance.burst() * unit / parts).floor();
        // Both are bounded by what an allowance may be.
        let (unit, fill) = (unit as u64, fill as u64);
        Bucket { unit, fraction, fill, one: unit.div_ceil(1 << fraction), burst: allowance.burst() as u64 }
    }

    /// Whether these units have room in a bucket that is full, though their time is rounded up and
    /// the bucket's down. The bound holds all the same: they take their time to come back, before
    /// any others.
    #[cold]
    fn is_burst(&self, units: u64, missing: u64) -> bool {
        missing == 0 && units <= self.burst
    }

    /// The time that this number of units takes to come back, in ns, rounded up.
    #[inline]
    fn cost(&self, units: u64) -> u64 {
        if units == 1 {
            return self.one;
        }
        let parts = u128::from(units) * u128::from(self.unit);
        let cost = (parts + ((1 << self.fraction) - 1)) >> self.fraction;
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    /// The credit in ns, from 0 to `fill`.
    fn credit(&self, word: u64, now: u64) -> u64 {
        self.fill.saturating_sub(word.saturating_sub(now))
    }

    /// The threshold with which a bucket of this credit keeps what `threshold` would.
    #[inline]
    fn raised(&self, credit: u64, threshold: u64) -> u64 {
        let half = self.fill / 2;
        if credit >= half { threshold } else { self.raised_by(half - credit, half, threshold) }
    }

    #[inline(never)]
    fn raised_by(&self, missing: u64, half: u64, threshold: u64) -> u64 {
        let missing = (u128::from(missing) * u128::from(HALVINGS << STEP_BITS) / u128::from(half)) as u64;
        let (halvings, part) = (missing >> STEP_BITS, missing & ((1 << STEP_BITS) - 1));
        // Between two halvings, on the line between them.
        let kept = Threshold::RANGE.saturating_sub(threshold) >> halvings;
        let kept = kept - ((u128::from(kept) * u128::from(part)) >> (STEP_BITS + 1)) as u64;
        Threshold::RANGE - kept.max(1)
    }
}

/// The state of one allowance: two words, which any number of threads may use at once.
#[derive(Debug)]
pub struct Meter {
    word: AtomicU64,
    /// When a strike was last noted, plus 1; 0: never.
    struck: AtomicU64,
}

impl Default for Meter {
    /// A full one.
    fn default() -> Self {
        Meter { word: AtomicU64::new(0), struck: AtomicU64::new(0) }
    }
}

impl Meter {
    /// Admits this number of units, or none of them: for bytes, which are known when a trace is
    /// exported. `now` is the caller's monotonic clock.
    #[must_use]
    pub fn admit(&self, allowance: &Allowance, units: u64, now: Nanos) -> bool {
        let bucket = Bucket::new(*allowance);
        matches!(self.ask(&bucket, units, 0, Randomness::MAX, now), Answer::Kept { .. })
    }

    /// The share of the bucket that is full, from 0 to 1.
    pub fn level(&self, allowance: &Allowance, now: Nanos) -> f64 {
        let bucket = Bucket::new(*allowance);
        let credit = bucket.credit(self.word.load(Ordering::Relaxed), now.get());
        if bucket.fill == 0 { 1.0 } else { credit as f64 / bucket.fill as f64 }
    }

    /// Puts a trace of this randomness to the bucket, which the sampler would keep by `threshold`.
    ///
    /// A call that loses the race for the word is put to the bucket again, as it is then. Its
    /// credit is smaller, its threshold higher: a call that was dropped at first would be dropped
    /// then too. So each call is decided as if its turn had come alone, and its threshold is its
    /// true one.
    // Inlined by the two places that ask for one trace: a call, and answers in memory, cost 30
    // instructions each.
    #[inline(always)]
    pub(crate) fn ask(
        &self,
        bucket: &Bucket,
        units: u64,
        threshold: u64,
        randomness: Randomness,
        now: Nanos,
    ) -> Answer {
        let (cost, now) = (bucket.cost(units), now.get());
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let missing = word.saturating_sub(now);
            let after = missing.saturating_add(cost);
            if after > bucket.fill && !bucket.is_burst(units, missing) {
                return self.refuse(bucket, word, now);
            }
            let next = now.saturating_add(after);
            let raised = bucket.raised(bucket.fill - missing, threshold);
            if randomness.get() < raised {
                return Answer::Raised;
            }
            // Relaxed: the word says all there is to know.
            match self.word.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Answer::Kept { threshold: raised, is_weighed: !self.was_struck(now) },
                Err(seen) => word = seen,
            }
        }
    }

    /// Takes back what [`Meter::admit`] admitted and another allowance refused.
    pub(crate) fn take_back(&self, allowance: &Allowance, units: u64) {
        self.give_back(&Bucket::new(*allowance), units);
    }

    /// The allowance is another from now on, by which no bucket can miss more than it holds: what
    /// was used up by a slow rate would else have to come back before anything is admitted by the
    /// new one.
    pub fn clamp_debt(&self, allowance: &Allowance, now: Nanos) {
        self.clip(&Bucket::new(*allowance), now);
    }

    /// As [`Meter::clamp_debt`]. At a change only: to a late thread, a bucket that others use
    /// seems to miss more than it holds.
    pub(crate) fn clip(&self, bucket: &Bucket, now: Nanos) {
        let empty_at = now.get().saturating_add(bucket.fill);
        let clipped = |word| (word > empty_at).then_some(empty_at);
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, clipped);
    }

    /// Gives back what [`Meter::ask`] took for units that another allowance refused.
    pub(crate) fn give_back(&self, bucket: &Bucket, units: u64) {
        let cost = bucket.cost(units);
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| word.checked_sub(cost));
    }

    /// Whether the bucket is full, so that to forget it changes nothing.
    pub(crate) fn is_full(&self, now: Nanos) -> bool {
        self.word.load(Ordering::Relaxed) <= now.get()
    }

    pub(crate) fn clear(&self) {
        self.word.store(0, Ordering::Relaxed);
        self.struck.store(0, Ordering::Relaxed);
    }

    fn was_struck(&self, now: u64) -> bool {
        let struck = self.struck.load(Ordering::Relaxed);
        struck != 0 && now.abs_diff(struck - 1) < UNWEIGHED
    }

    /// The bucket has no room for a call.
    #[cold]
    fn refuse(&self, bucket: &Bucket, word: u64, now: u64) -> Answer {
        let empty_at = now.saturating_add(bucket.fill);
        if word > empty_at.saturating_add(LATE_MAX.get()) {
            // The clock was set back. The bucket goes on empty, as if it had just been used up.
            let _ = self.word.compare_exchange(word, empty_at, Ordering::Relaxed, Ordering::Relaxed);
        }
        let struck = self.struck.load(Ordering::Relaxed);
        if struck == 0 || now.abs_diff(struck - 1) >= NOTED {
            self.struck.store(now.saturating_add(1), Ordering::Relaxed);
        }
        Answer::Empty
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
