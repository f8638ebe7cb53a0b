//! One allowance as a bucket: pure arithmetic, and the atomic word that holds its state.
//!
//! The word is the time at which the bucket is full again, in ns. At or before now, the bucket is
//! full. A caller whose `now` is behind sees an emptier bucket than the real one.

use super::Allowance;
use crate::nanos::LATE_MAX;
use crate::nanos::Nanos;
use crate::randomness::Randomness;
use crate::sync::{AtomicU64, Ordering};
use crate::threshold::Threshold;

/// The number of fraction bits in which the time of a unit is held.
const FRACTION_BITS: u32 = 20;
/// From this time per unit on, in ns, the time is rounded up to whole ns: at most a millionth more.
const WHOLE_FROM: f64 = 1e6;
/// The number of times that the kept share is halved between a half-full and an empty bucket.
const HALVINGS: u64 = 16;
/// The number of fraction bits of a halving.
const STEP_BITS: u32 = 16;
/// The time in ns after a strike (a refusal by an empty bucket) for which kept traces have no
/// weight.
const UNWEIGHED: u64 = 1_000_000_000;
/// A strike within this many ns of the last noted one is not noted; otherwise each dropped call
/// would write.
const NOTED: u64 = UNWEIGHED / 8;

/// An allowance, compiled for deciding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bucket {
    /// The time for a unit to come back, in 2^-`fraction` ns, rounded up so that the bound holds
    /// exactly.
    unit: u64,
    /// [`FRACTION_BITS`], or 0 for a long unit: 64 bits hold the unit of the least rate in whole
    /// ns, but not with a fraction.
    fraction: u32,
    /// The time for an empty bucket to fill, in ns, rounded down.
    fill: u64,
    /// The time for one unit to come back, in ns, rounded up.
    one: u64,
    /// The number of whole units in a burst.
    burst: u64,
}

/// A bucket's decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Kept, with this threshold.
    Kept {
        threshold: u64,
        /// False if the bucket was empty within the last second, so that the threshold is not a
        /// true weight.
        is_weighed: bool,
    },
    /// Dropped by the raised threshold.
    Raised,
    /// Dropped because the bucket is empty.
    Empty,
}

impl Bucket {
    pub(crate) fn new(allowance: Allowance) -> Self {
        let unit_ns = 1e9 / allowance.rate();
        // Whole nanoseconds, so that a burst of ten takes exactly as long as ten units; otherwise
        // the last of them would not fit.
        let fraction = if unit_ns >= WHOLE_FROM { 0 } else { FRACTION_BITS };
        let parts = f64::from(1u32 << fraction);
        let unit = (unit_ns * parts).ceil();
        let fill = (allowance.burst() * unit / parts).floor();
        // Neither overflows, given the bounds of an allowance.
        let (unit, fill) = (unit as u64, fill as u64);
        Bucket { unit, fraction, fill, one: unit.div_ceil(1 << fraction), burst: allowance.burst() as u64 }
    }

    /// Whether these units fit in a full bucket, although their time is rounded up and the bucket's
    /// is rounded down. The bound holds even so: their full time must pass before any others are
    /// admitted.
    #[cold]
    fn is_burst(&self, units: u64, missing: u64) -> bool {
        missing == 0 && units <= self.burst
    }

    /// The time for this number of units to come back, in ns, rounded up.
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

    /// The threshold with which a bucket with this credit keeps what `threshold` would.
    #[inline]
    fn raised(&self, credit: u64, threshold: u64) -> u64 {
        let half = self.fill / 2;
        if credit >= half { threshold } else { self.raised_by(half - credit, half, threshold) }
    }

    #[inline(never)]
    fn raised_by(&self, missing: u64, half: u64, threshold: u64) -> u64 {
        let missing = (u128::from(missing) * u128::from(HALVINGS << STEP_BITS) / u128::from(half)) as u64;
        let (halvings, part) = (missing >> STEP_BITS, missing & ((1 << STEP_BITS) - 1));
        // Linear between two halvings.
        let kept = Threshold::RANGE.saturating_sub(threshold) >> halvings;
        let kept = kept - ((u128::from(kept) * u128::from(part)) >> (STEP_BITS + 1)) as u64;
        Threshold::RANGE - kept.max(1)
    }
}

/// The state of one allowance: two words, which any number of threads may use at once.
#[derive(Debug)]
pub struct Meter {
    word: AtomicU64,
    /// The time at which a strike was last noted, plus 1; 0 if never.
    struck: AtomicU64,
}

impl Default for Meter {
    /// A full bucket.
    fn default() -> Self {
        Meter { word: AtomicU64::new(0), struck: AtomicU64::new(0) }
    }
}

impl Meter {
    /// Admits this number of units, or none of them. For bytes, which are known when a trace is
    /// exported. `now` is the caller's monotonic clock.
    #[must_use]
    pub fn admit(&self, allowance: &Allowance, units: u64, now: Nanos) -> bool {
        let bucket = Bucket::new(*allowance);
        matches!(self.ask(&bucket, units, 0, Randomness::MAX, now), Answer::Kept { .. })
    }

    /// The fill level of the bucket, from 0 to 1.
    pub fn level(&self, allowance: &Allowance, now: Nanos) -> f64 {
        let bucket = Bucket::new(*allowance);
        let credit = bucket.credit(self.word.load(Ordering::Relaxed), now.get());
        if bucket.fill == 0 { 1.0 } else { credit as f64 / bucket.fill as f64 }
    }

    /// Decides about a trace with this randomness that the sampler would keep with `threshold`.
    ///
    /// A call that loses the race for the word is decided again, by the bucket as it then is. Its
    /// credit is smaller and its threshold higher, so a call that was dropped at first would also
    /// be dropped then. Each call is therefore decided as if it had come alone, and its threshold
    /// is its true one.
    // Inlined in both places that ask for a single trace: a call, with its answer returned in
    // memory, would cost 30 instructions each.
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
            // Relaxed: the word is the bucket's whole state, and publishes no other memory.
            match self.word.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Answer::Kept { threshold: raised, is_weighed: !self.was_struck(now) },
                Err(seen) => word = seen,
            }
        }
    }

    /// The threshold with which [`Meter::ask`] would keep these units now; `None` if the bucket
    /// lacks the credit.
    pub(crate) fn peek(&self, bucket: &Bucket, units: u64, threshold: u64, now: Nanos) -> Option<u64> {
        let missing = self.word.load(Ordering::Relaxed).saturating_sub(now.get());
        let is_enough = missing.saturating_add(bucket.cost(units)) <= bucket.fill;
        let is_enough = is_enough || bucket.is_burst(units, missing);
        is_enough.then(|| bucket.raised(bucket.fill - missing, threshold))
    }

    /// Gives back units that [`Meter::admit`] admitted and another allowance refused.
    pub(crate) fn take_back(&self, allowance: &Allowance, units: u64) {
        self.give_back(&Bucket::new(*allowance), units);
    }

    /// Clamps the bucket's debt to what it can hold under another allowance. Otherwise, units used
    /// at a slow rate would have to come back at that rate before the new allowance admits
    /// anything.
    pub fn clamp_debt(&self, allowance: &Allowance, now: Nanos) {
        self.clip(&Bucket::new(*allowance), now);
    }

    /// As [`Meter::owes_at_most`]. Only for a change of the allowance: to a late thread, a bucket
    /// in use seems to have more debt than it can hold.
    pub(crate) fn clip(&self, bucket: &Bucket, now: Nanos) {
        let empty_at = now.get().saturating_add(bucket.fill);
        let clipped = |word| (word > empty_at).then_some(empty_at);
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, clipped);
    }

    /// Gives back units that [`Meter::ask`] took and another allowance refused.
    pub(crate) fn give_back(&self, bucket: &Bucket, units: u64) {
        let cost = bucket.cost(units);
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| word.checked_sub(cost));
    }

    /// Whether the bucket is full, so that forgetting it changes nothing.
    pub(crate) fn is_full(&self, now: Nanos) -> bool {
        self.word.load(Ordering::Relaxed) <= now.get()
    }

    pub(crate) fn clear(&self) {
        self.word.store(0, Ordering::Relaxed);
        self.struck.store(0, Ordering::Relaxed);
    }

    /// Whether a strike was noted within the last second. Relaxed: a thread that does not see a
    /// concurrent strike yet treats its trace as one from before it.
    fn was_struck(&self, now: u64) -> bool {
        let struck = self.struck.load(Ordering::Relaxed);
        struck != 0 && now.abs_diff(struck - 1) < UNWEIGHED
    }

    /// Refuses a call for lack of credit, and notes the strike.
    #[cold]
    fn refuse(&self, bucket: &Bucket, word: u64, now: u64) -> Answer {
        let empty_at = now.saturating_add(bucket.fill);
        if word > empty_at.saturating_add(LATE_MAX.get()) {
            // The clock was set back. The bucket continues empty, as if it had just been used up.
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
