//! Bump's law: a record's word is the window's number and the calls counted in it.

use std::sync::Arc;

use super::Bump;
use crate::decision::Reason;
use crate::division::Divisor;
use crate::law::{LATE_MAX, Law, Step};
use crate::nanos::Nanos;
use crate::threshold::Threshold;

/// Thresholds computed beforehand, at most (half a megabyte). Beyond, each call computes its own.
const TABLE_MAX: u32 = 1 << 16;
/// A count stops well before it would reach into the window's number.
const COUNT_MAX: u32 = u32::MAX - (1 << 16);
/// How many counts are tried to find where f reaches the minimum: a binary search over 32 bits.
const COUNT_BITS: u32 = u32::BITS;

/// Bump, made ready for deciding. Cloning shares the table.
///
/// The word: the window's number (its low 32 bits) above, the calls counted in it below. A count stops at
/// `saturation`, from where on f(x) is no more than the minimum and x no longer matters: calls beyond it read the
/// word and write nothing, so that threads which share a hot key do not meet there.
#[derive(Clone, Debug)]
pub(crate) struct BumpLaw {
    bump: Bump,
    thresholds: Arc<[u64]>,
    /// The threshold of the minimum.
    minimum: u64,
    /// The least count, at least 1, whose f(x) is not above the minimum.
    saturation: u32,
    window: Divisor,
    /// How many windows `now` may lie behind: [`LATE_MAX`], rounded up.
    late_max: i32,
}

impl BumpLaw {
    pub(crate) fn new(bump: &Bump) -> Self {
        let minimum = Threshold::from_probability(bump.minimum()).get();
        let saturation = saturation(bump, minimum);
        let thresholds =
            (0..saturation.min(TABLE_MAX)).map(|count| threshold(bump, count)).collect::<Vec<_>>().into();
        let late_max = (LATE_MAX.get() / bump.window().get() + 1).min(i32::MAX as u64) as i32;
        BumpLaw {
            bump: bump.clone(),
            thresholds,
            minimum,
            saturation,
            window: Divisor::new(bump.window().get()),
            late_max,
        }
    }

    fn window_number(&self, now: Nanos, offset: Nanos) -> u32 {
        self.window.quotient(now.saturating_add(offset).get()) as u32
    }

    /// By how many windows `number` lies after the word's: zero for a call that is in it, or late for it.
    fn windows_since(&self, word: u64, number: u32) -> u32 {
        let of_word = (word >> 32) as u32;
        let late = of_word.wrapping_sub(number) as i32;
        if (0..=self.late_max).contains(&late) { 0 } else { number.wrapping_sub(of_word) }
    }

    /// f is computed, not looked up: for a count beyond the table.
    #[cold]
    fn threshold_beyond_table(&self, count: u32) -> u64 {
        threshold(&self.bump, count)
    }
}

fn threshold(bump: &Bump, count: u32) -> u64 {
    Threshold::from_probability(bump.probability(u64::from(count))).get()
}

/// The least count from 1 whose threshold is the minimum's; thresholds rise with the count.
fn saturation(bump: &Bump, minimum: u64) -> u32 {
    let (mut low, mut high) = (1, COUNT_MAX);
    for _ in 0..COUNT_BITS {
        let middle = low + (high - low) / 2;
        if threshold(bump, middle) >= minimum { high = middle } else { low = (middle + 1).min(high) }
    }
    high
}

impl Law for BumpLaw {
    const REASONS: [Reason; 2] = [Reason::Bump, Reason::BumpMinimum];
    const BY_CHANCE: bool = true;

    fn offset(&self, key: &str) -> Nanos {
        self.bump.shift(key)
    }

    fn fresh(&self, now: Nanos, offset: Nanos) -> u64 {
        u64::from(self.window_number(now, offset)) << 32
    }

    #[inline]
    fn step(&self, word: u64, now: Nanos, offset: Nanos) -> Step {
        let number = self.window_number(now, offset);
        if self.windows_since(word, number) != 0 {
            // The first call of a window: x = 0, f(0) = 1.
            return Step { threshold: 0, slot: 0, next: Some(u64::from(number) << 32 | 1) };
        }
        let count = word as u32;
        if count >= self.saturation {
            return Step { threshold: self.minimum, slot: 1, next: None };
        }
        let threshold = match self.thresholds.get(count as usize) {
            Some(&threshold) => threshold,
            None => self.threshold_beyond_table(count),
        };
        Step { threshold, slot: 0, next: Some(word + 1) }
    }

    fn idle(&self, word: u64, now: Nanos, offset: Nanos) -> Nanos {
        let shifted = now.saturating_add(offset).get();
        let windows = u64::from(self.windows_since(word, self.window_number(now, offset)));
        let window = self.bump.window().get();
        match windows.checked_sub(1) {
            None => Nanos::ZERO,
            Some(between) => Nanos::new(between.saturating_mul(window).saturating_add(shifted % window)),
        }
    }
}
