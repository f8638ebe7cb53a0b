//! A tumbling count: a record's word is the window's number and the calls counted in it.

use super::Bump;
use super::common::{REASONS, batch_bits};
use super::curve::{Curve, Curves};
use crate::decision::Reason;
use crate::division::Divisor;
use crate::nanos::LATE_MAX;
use crate::nanos::Nanos;
use crate::policy::{Policy, Step, Write};

/// The word holds the low 32 bits of the window's number above the number of calls counted in that
/// window.
///
/// Threads that share a hot key contend for its word only while its count matters:
///
/// - From the curve's saturation on, f(x) is at most the minimum for every x: calls read the word
///   and write nothing.
/// - For a large x below that, each shard adds its calls in batches. A shard counts kept and
///   dropped calls separately, and its tallies continue from window to window, so each of these 2 *
///   shards batches is wrong by less than its size, in either direction. The sizes are chosen so
///   that together they are at most x / 1024: f(x), which falls with x^2, is then wrong by at most
///   0.2 %. Batches begin at x = 4096 * shards.
#[derive(Debug)]
pub(crate) struct Tumbling {
    bump: Bump,
    curve: Curve,
    length: Nanos,
    window: Divisor,
    /// The number of windows by which `now` may lie behind: [`LATE_MAX`], rounded up.
    late_max: i32,
    /// See [`batch_bits`].
    batch_bits: u32,
}

/// The part of the word that holds the count.
const COUNT: u64 = u32::MAX as u64;

impl Tumbling {
    pub(crate) fn new(bump: &Bump, length: Nanos, curves: &Curves, shards: u32) -> Self {
        let late_max = (LATE_MAX.get() / length.get() + 1).min(i32::MAX as u64) as i32;
        Tumbling {
            bump: bump.clone(),
            curve: curves.of(bump),
            length,
            window: Divisor::new(length.get()),
            late_max,
            batch_bits: batch_bits(shards),
        }
    }

    fn window_number(&self, now: Nanos, offset: Nanos) -> u32 {
        self.window.quotient(now.saturating_add(offset).get()) as u32
    }

    /// The number of windows from the word's to `number`: zero for a call in the word's window, and
    /// for one that is late for it.
    fn windows_since(&self, word: u64, number: u32) -> u32 {
        let of_word = (word >> 32) as u32;
        let late = of_word.wrapping_sub(number) as i32;
        if (0..=self.late_max).contains(&late) { 0 } else { number.wrapping_sub(of_word) }
    }
}

impl Policy for Tumbling {
    const REASONS: [Reason; 2] = REASONS;
    const BY_CHANCE: bool = true;

    fn offset(&self, hash: u64) -> Nanos {
        self.bump.shift_of(hash)
    }

    fn fresh(&self, now: Nanos, offset: Nanos) -> u64 {
        word(self.window_number(now, offset), 0)
    }

    #[inline]
    fn step(&self, word: u64, now: Nanos, offset: Nanos) -> Step {
        let number = self.window_number(now, offset);
        if self.windows_since(word, number) != 0 {
            // The first call of a window: x = 0, f(0) = 1.
            return Step { threshold: 0, slot: 0, write: Write::Word(self::word(number, 1)) };
        }
        let count = word as u32;
        if count >= self.curve.saturation() {
            return Step { threshold: self.curve.minimum(), slot: 1, write: Write::Nothing };
        }
        let write = match count >> self.batch_bits {
            0 | 1 => Write::Word(word + 1),
            batches => Write::Batch(1 << batches.ilog2()),
        };
        Step { threshold: self.curve.threshold(count), slot: 0, write }
    }

    fn batch(&self, word: u64, calls: u64, now: Nanos, offset: Nanos) -> u64 {
        let number = self.window_number(now, offset);
        match self.windows_since(word, number) {
            0 => self::word((word >> 32) as u32, (word & COUNT) + calls),
            // A window ended after the call's step. Only this call is known to be in the new one.
            _ => self::word(number, 1),
        }
    }

    /// A saturated count continues from where it stopped: f of it is at most the old minimum.
    fn carried(&self, old: &Self, word: u64, now: Nanos, offset: Nanos) -> u64 {
        if self.bump.counts_as(&old.bump) { word } else { self.fresh(now, offset) }
    }

    fn idle(&self, word: u64, now: Nanos, offset: Nanos) -> Nanos {
        let shifted = now.saturating_add(offset).get();
        let windows = u64::from(self.windows_since(word, self.window_number(now, offset)));
        let window = self.length.get();
        match windows.checked_sub(1) {
            None => Nanos::ZERO,
            Some(between) => Nanos::new(between.saturating_mul(window).saturating_add(shifted % window)),
        }
    }
}

fn word(number: u32, count: u64) -> u64 {
    u64::from(number) << 32 | count.min(COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bump::BumpPolicy;
    use crate::probability::Probability;
    use crate::threshold::Threshold;

    const SECOND: u64 = 1_000_000_000;

    fn policy(lambda: f64, minimum: f64, shards: u32) -> BumpPolicy {
        BumpPolicy::lone(&bump(lambda, minimum), shards)
    }

    fn bump(lambda: f64, minimum: f64) -> Bump {
        Bump::new(lambda, Probability::new(minimum).unwrap(), Nanos::from_secs(1)).unwrap()
    }

    fn step(policy: &BumpPolicy, word: u64, now: u64) -> Step {
        policy.step(word, Nanos::new(now), Nanos::ZERO)
    }

    /// Makes one call: replaces `word`, and returns the threshold that the call met.
    #[track_caller]
    fn call(policy: &BumpPolicy, word: &mut u64, now: u64) -> u64 {
        let step = step(policy, *word, now);
        match step.write {
            Write::Word(next) => *word = next,
            Write::Nothing => {}
            Write::Batch(calls) => panic!("a batch of {calls}"),
        }
        step.threshold
    }

    #[test]
    fn counts_calls_and_begins_anew_with_each_window() {
        let (policy, bump) = (policy(2.0, 0.1, 1), bump(2.0, 0.1));
        let threshold = |count: u64| Threshold::from_probability(bump.probability(count as f64)).get();
        for start in [0, 5 * SECOND] {
            let mut word = policy.fresh(Nanos::new(start), Nanos::ZERO);
            for window in 0..3 {
                for count in 0..20 {
                    let now = start + window * SECOND + count * 50_000_000;
                    assert_eq!(
                        call(&policy, &mut word, now),
                        threshold(count),
                        "call {count} of window {window}"
                    );
                }
            }
            assert_eq!(call(&policy, &mut word, start + 3 * SECOND - 1), threshold(20));
            assert_eq!(call(&policy, &mut word, start + 3 * SECOND), 0);
        }
    }

    #[test]
    fn writes_nothing_once_f_is_below_the_minimum() {
        // f(x) <= 0.01 from x = 100 on.
        let policy = policy(10.0, 0.01, 8);
        assert_eq!(step(&policy, 99, 0).write, Write::Word(100));
        assert_eq!(step(&policy, 99, 0).slot, 0);
        let at = step(&policy, 100, 0);
        let minimum = Threshold::from_probability(Probability::new(0.01).unwrap()).get();
        assert_eq!(at, Step { threshold: minimum, slot: 1, write: Write::Nothing });
    }

    #[test]
    fn a_late_call_counts_in_the_window_that_others_have_reached() {
        let policy = policy(1.0, 0.0, 1);
        let mut word = policy.fresh(Nanos::new(100 * SECOND), Nanos::ZERO);
        assert_eq!(call(&policy, &mut word, 100 * SECOND), 0);
        // f(1) and f(2): late by a nanosecond, and by the full minute that a thread may be late.
        assert_ne!(call(&policy, &mut word, 100 * SECOND - 1), 0);
        assert_ne!(call(&policy, &mut word, 40 * SECOND), 0);
        assert_eq!(word, 100 << 32 | 3);
        assert_ne!(call(&policy, &mut word, 39 * SECOND), 0, "61 windows back");
        // Further back: the clock was set back.
        assert_eq!(call(&policy, &mut word, 39 * SECOND - 1), 0);
        assert_eq!(word, 38 << 32 | 1);
    }

    #[test]
    fn numbers_of_windows_may_wrap() {
        let policy = policy(1.0, 0.0, 1);
        let wrap = (1 << 32) * SECOND;
        let mut word = policy.fresh(Nanos::new(wrap - 1), Nanos::ZERO);
        assert_eq!(word, u64::from(u32::MAX) << 32);
        assert_eq!(call(&policy, &mut word, wrap - 1), 0);
        assert_eq!(call(&policy, &mut word, wrap), 0, "a new window");
        assert_eq!(word, 1);
        assert_ne!(call(&policy, &mut word, wrap - 1), 0, "late for it");
        assert_eq!(word, 2);
    }

    #[test]
    fn batches_begin_where_they_are_a_thousandth() {
        for (shards, first) in [(1, 4_096), (8, 32_768), (256, 1 << 20)] {
            // Saturation is far above all of these counts.
            let policy = policy(1e7, 0.0, shards);
            assert_eq!(step(&policy, first - 1, 0).write, Write::Word(first));
            assert_eq!(step(&policy, first, 0).write, Write::Batch(2));
            assert_eq!(step(&policy, 2 * first - 1, 0).write, Write::Batch(2));
            assert_eq!(step(&policy, 2 * first, 0).write, Write::Batch(4));
        }
    }

    #[test]
    fn a_batch_is_added_to_its_window_only() {
        let policy = policy(1e7, 0.0, 1);
        let batch = |word, now| policy.batch(word, 8, Nanos::new(now), Nanos::ZERO);
        assert_eq!(batch(7 << 32 | 9_000, 7 * SECOND), 7 << 32 | 9_008);
        assert_eq!(batch(7 << 32 | 9_000, 6 * SECOND), 7 << 32 | 9_008, "late");
        assert_eq!(batch(7 << 32 | 9_000, 8 * SECOND), 8 << 32 | 1, "a new window");
        assert_eq!(
            batch((7 << 32) | (COUNT - 1), 7 * SECOND),
            7 << 32 | COUNT,
            "never into the window's number"
        );
    }

    #[test]
    fn is_idle_from_the_end_of_its_window() {
        let policy = policy(10.0, 0.0, 1);
        let idle = |word, now, offset| policy.idle(word, Nanos::new(now), Nanos::new(offset)).get();
        let word = 7 << 32 | 3;
        assert_eq!(idle(word, 7 * SECOND, 0), 0);
        assert_eq!(idle(word, 8 * SECOND - 1, 0), 0);
        assert_eq!(idle(word, 8 * SECOND, 0), 0);
        assert_eq!(idle(word, 8 * SECOND + 1, 0), 1);
        assert_eq!(idle(word, 20 * SECOND + 5, 0), 12 * SECOND + 5);
        assert_eq!(idle(word, 8 * SECOND, 1), 1, "its windows end earlier");
        assert_eq!(idle(word, 6 * SECOND, 0), 0, "late");
        assert!(idle(100 << 32, 7 * SECOND, 0) > 1 << 60, "the clock was set back");
    }
}
