//! A decaying count: a record's word is the time at which the count will have fallen to 1.
//!
//! A count x at time t is 2^((word - t) / half-life), so decay changes the count without a write to
//! the word. A call turns x into x + 1, which adds log2(1 + 1 / x) half-lives to the word. Times
//! are fixed-point numbers of half-lives that wrap around after 2^32 half-lives (49 days for a
//! half-life of a millisecond, 136 years for a second); only their differences are used.

use super::common::{REASONS, batch_bits};
use super::curve::{Curve, Curves, LOG_BITS, LOG_ONE};
use super::knee;
use super::{Bump, Count};
use crate::decision::Reason;
use crate::nanos::LATE_MAX;
use crate::nanos::Nanos;
use crate::pace::CALL;
use crate::policy::{Policy, Step, Write};
use crate::probability::Probability;
use crate::threshold::Threshold;

/// The logarithm below which a count is 0: a key with such a count is treated as new.
const FORGOTTEN: i64 = -24 * LOG_ONE;
/// The logarithm of the largest count. A billion calls a second with a half-life of an hour reach
/// 2^42.4.
const COUNT_MAX: i64 = 44 * LOG_ONE;

/// While a hot key's count is small, each of its calls writes the word, and threads contend for it.
/// From a count of 4096 * shards on, each shard adds its calls in batches of x / (2048 * shards),
/// as with a tumbling count: x is then right to one part in 1024.
#[derive(Debug)]
pub(crate) struct Decaying {
    bump: Bump,
    curve: Curve,
    half_life: Nanos,
    /// 2^(32 + shift) / half-life, in 64 bits.
    multiplier: u64,
    shift: u32,
    /// [`LATE_MAX`] in half-lives, as a logarithm of the count: how far `now` may lie behind.
    late_max: i64,
    /// See [`batch_bits`].
    batch_bits: u32,
    /// The logarithm of the count above which no more calls are kept than at it; see
    /// [`Bump::with_share`](super::Bump::with_share).
    knee_log2: i64,
}

impl Decaying {
    /// `half_life` is at least a millisecond.
    pub(super) fn new(bump: &Bump, half_life: Nanos, curves: &Curves, shards: u32) -> Self {
        let nanos = half_life.get().max(1);
        // The quotient fits in 64 bits: with `bits` the bit length of nanos - 1, 2^(63 + bits) /
        // nanos is at least 2^63 and below 2^64. Using the bit length of nanos itself would give
        // 2^64 for a power of two.
        let bits = u64::BITS - (nanos - 1).leading_zeros();
        let multiplier = ((1u128 << (63 + bits)) / u128::from(nanos)) as u64;
        let mut decaying = Decaying {
            bump: bump.clone(),
            curve: curves.of(bump),
            half_life,
            multiplier,
            shift: 31 + bits,
            late_max: 0,
            batch_bits: batch_bits(shards),
            knee_log2: match (bump.share(), bump.count()) {
                (Some(share), Count::Paced { .. }) => {
                    let half_life_calls = half_life.get() as f64 / CALL as f64;
                    (knee::lambda_of(share.get(), half_life_calls).log2() * LOG_ONE as f64) as i64
                }
                _ => i64::MAX,
            },
        };
        // Differences of rounded times are off by at most one.
        decaying.late_max = decaying.time(LATE_MAX) as i64 + 1;
        decaying
    }

    pub(super) fn share(&self) -> Option<Probability> {
        self.bump.share()
    }

    /// The thresholds of f and of the minimum for a count that is above the knee by this factor, as
    /// a logarithm. Each is bounded by its probability at the knee, divided by the factor.
    #[cold]
    fn above_knee(&self, threshold: u64, knee_log2: i64, above: i64) -> (u64, u64) {
        let divided = |at_knee: u64| {
            let kept = self.curve.tables.power(Threshold::RANGE - at_knee, above.unsigned_abs());
            Threshold::RANGE - kept.max(1)
        };
        let most = divided(self.curve.threshold_of_log2(knee_log2));
        (threshold.max(most), divided(self.curve.minimum()))
    }

    /// `now` in half-lives.
    #[inline]
    fn time(&self, now: Nanos) -> u64 {
        ((u128::from(self.multiplier) * u128::from(now.get())) >> self.shift) as u64
    }

    /// The logarithm of the count; `None` if it is 0. A late thread sees a larger count than the
    /// true one, never a smaller one, so it keeps less.
    #[inline]
    fn count_log2(&self, word: u64, time: u64) -> Option<i64> {
        let log2 = word.wrapping_sub(time) as i64;
        // A word further ahead than the largest count and a late thread explain means that the
        // clock was set back.
        let known = (FORGOTTEN..=COUNT_MAX + self.late_max).contains(&log2);
        known.then_some(log2.min(COUNT_MAX))
    }
}

impl Policy for Decaying {
    const REASONS: [Reason; 2] = REASONS;
    const BY_CHANCE: bool = true;

    fn offset(&self, _hash: u64) -> Nanos {
        Nanos::ZERO
    }

    fn fresh(&self, now: Nanos, _offset: Nanos) -> u64 {
        self.time(now).wrapping_add_signed(FORGOTTEN - 1)
    }

    /// `absent` is log2 of 1 / (the recorded shares of the keys present), as for [`knee`].
    #[inline]
    fn step(&self, word: u64, now: Nanos, absent: Nanos) -> Step {
        let time = self.time(now);
        let Some(log2) = self.count_log2(word, time) else {
            // f(0) = 1, and the count is 1.
            return Step { threshold: 0, slot: 0, write: Write::Word(time) };
        };
        let threshold = self.curve.threshold_of_log2(log2);
        let knee_log2 = self.knee_log2.saturating_add_unsigned(absent.get());
        let (threshold, minimum) = match log2.saturating_sub(knee_log2) {
            above @ 1.. => self.above_knee(threshold, knee_log2, above),
            _ => (threshold, self.curve.minimum()),
        };
        let slot = usize::from(threshold >= minimum);
        let write = match ((log2 >> LOG_BITS) as i32).checked_sub_unsigned(self.batch_bits) {
            Some(bits @ 1..) => Write::Batch(1 << bits),
            _ => Write::Word(self.curve.tables.sum(word, time)),
        };
        Step { threshold: threshold.min(minimum), slot, write }
    }

    /// `calls` is a power of two.
    fn batch(&self, word: u64, calls: u64, now: Nanos, _offset: Nanos) -> u64 {
        let time = self.time(now);
        match self.count_log2(word, time) {
            Some(_) => self.curve.tables.sum(word, time.wrapping_add(u64::from(calls.ilog2()) << LOG_BITS)),
            // The count was forgotten after the call's step. Only this call is known to be recent.
            None => time,
        }
    }

    fn carried(&self, old: &Self, word: u64, now: Nanos, offset: Nanos) -> u64 {
        if self.bump.counts_as(&old.bump) { word } else { self.fresh(now, offset) }
    }

    fn idle(&self, word: u64, now: Nanos, _offset: Nanos) -> Nanos {
        let log2 = word.wrapping_sub(self.time(now)) as i64;
        if log2 > COUNT_MAX + self.late_max {
            return Nanos::new(u64::MAX);
        }
        let forgotten = u128::from(FORGOTTEN.saturating_sub(log2).max(0).unsigned_abs());
        let nanos = (forgotten * u128::from(self.half_life.get())) >> LOG_BITS;
        Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bump::BumpPolicy;

    const SECOND: u64 = 1_000_000_000;

    fn policy(lambda: f64, minimum: f64, half_life: Nanos, shards: u32) -> (BumpPolicy, Bump) {
        let bump = Bump::new(lambda, Probability::new(minimum).unwrap(), Nanos::from_secs(1)).unwrap();
        let bump = bump.with_count(Count::Decaying { half_life }).unwrap();
        (BumpPolicy::lone(&bump, shards), bump)
    }

    fn step(policy: &BumpPolicy, word: u64, now: u64) -> Step {
        policy.step(word, Nanos::new(now), Nanos::ZERO)
    }

    /// Makes one call: replaces `word`, and returns the step.
    #[track_caller]
    fn call(policy: &BumpPolicy, word: &mut u64, now: u64) -> Step {
        let step = step(policy, *word, now);
        match step.write {
            Write::Word(next) => *word = next,
            other => panic!("{other:?}"),
        }
        step
    }

    #[track_caller]
    fn near(threshold: u64, bump: &Bump, count: f64) {
        let found = Threshold::new(threshold).unwrap().probability().get();
        let error = found / bump.probability(count).get() - 1.0;
        assert!(error.abs() < 1e-4, "{count}: {found}, off by {error}");
    }

    #[test]
    fn times_are_half_lives_however_long_those_are() {
        for nanos in [1_000_000, 1_000_001, 1 << 30, (1 << 30) + 1, 3_600 * SECOND, 1 << 62] {
            let (BumpPolicy::Decaying(decaying), _) = policy(1.0, 0.0, Nanos::new(nanos), 1) else {
                panic!("a decaying count")
            };
            for now in [0, 1, nanos / 3, nanos, 1_000 * nanos.min(SECOND), u64::MAX] {
                let exact = (u128::from(now) << 32) / u128::from(nanos);
                let found = decaying.time(Nanos::new(now));
                // The multiplier is right to one part in 2^63.
                let error = u128::from((exact as u64).wrapping_sub(found));
                assert!(error <= 1 + (exact >> 62), "{now} / {nanos}: {found}, {exact}");
            }
        }
    }

    /// By hand: calls at 0, 0, 1 and 3 half-lives see the counts 0, 1, (0 + 1 + 1) / 2 = 1 and 0.5
    /// = (1 + 1) / 4.
    #[test]
    fn a_count_halves_in_each_half_life() {
        let (policy, bump) = policy(1.0, 0.0, Nanos::from_secs(2), 1);
        for start in [0, 7 * SECOND] {
            let mut word = policy.fresh(Nanos::new(start), Nanos::ZERO);
            assert_eq!(call(&policy, &mut word, start).threshold, 0);
            for (seconds, count) in [(0, 1.0), (2, 1.0), (6, 0.5), (6, 1.5), (26, 2.5 / 1024.0)] {
                near(call(&policy, &mut word, start + seconds * SECOND).threshold, &bump, count);
            }
        }
    }

    /// Compared with a count in floating point, over bursts and pauses.
    #[test]
    fn counts_as_real_arithmetic_does() {
        for (exponent, half_life) in [(2.0, 300), (0.5, 1), (1.0, 60_000)] {
            let (_, bump) = policy(3.0, 0.0, Nanos::from_millis(half_life), 1);
            let bump = bump.with_exponent(exponent).unwrap();
            let policy = BumpPolicy::lone(&bump, 1);
            let (mut count, mut now, mut last, mut word) = (0.0f64, SECOND, SECOND, 0);
            for round in 0..3_000u64 {
                now += [0, 40, 1_000, half_life * 700, 9_000][round as usize % 5] * (1 + round % 7) * 1_000;
                count *= (-((now - last) as f64) / (half_life as f64 * 1e6)).exp2();
                last = now;
                if round == 0 {
                    word = policy.fresh(Nanos::new(now), Nanos::ZERO);
                }
                let threshold = call(&policy, &mut word, now).threshold;
                if count > 2f64.powi(-20) {
                    near(threshold, &bump, count);
                }
                count += 1.0;
            }
        }
    }

    #[test]
    fn the_minimum_holds_and_is_named() {
        let (policy, bump) = policy(2.0, 0.5, Nanos::from_secs(1), 1);
        let minimum = Threshold::from_probability(bump.minimum()).get();
        let mut word = policy.fresh(Nanos::ZERO, Nanos::ZERO);
        let steps: Vec<_> = (0..5).map(|_| call(&policy, &mut word, 0)).collect();
        // f(2) = 0.63, f(3) = 0.36.
        assert_eq!(steps.iter().map(|step| step.slot).collect::<Vec<_>>(), [0, 0, 0, 1, 1]);
        assert!(steps[2].threshold < minimum && steps[3].threshold == minimum);
    }

    /// Compared with a count in floating point: with the share 0.01 and a half-life of 100 calls,
    /// the knee is at 4 * 0.01 * 100 / ln 2 + 10 = 15.77 calls. f(15.77) is far below for lambda =
    /// 0.5, and 0.78 for lambda = 24, which falls more slowly than 1 / x at first.
    #[test]
    fn neither_the_minimum_nor_the_curve_keeps_more_calls_above_the_knee() {
        for (lambda, minimum, exponent) in [(0.5, 0.8, 2.0), (24.0, 0.01, 0.5), (24.0, 0.2, 2.0)] {
            let (_, bump) = policy(lambda, minimum, Nanos::from_secs(1), 1);
            let bump = bump.with_count(Count::Paced { half_life: 100 }).unwrap();
            let bump = bump.with_exponent(exponent).unwrap().with_share(Probability::new(0.01));
            let policy = BumpPolicy::lone(&bump, 1);
            for absent in [0, LOG_ONE as u64] {
                let knee =
                    (4.0 * 0.01 * 100.0 / std::f64::consts::LN_2 + 10.0) * if absent > 0 { 2.0 } else { 1.0 };
                let f = |x: f64| if x > 0.0 { -(-(lambda / x).powf(exponent)).exp_m1() } else { 1.0 };
                let (mut word, mut x) = (policy.fresh(Nanos::ZERO, Nanos::ZERO), 0.0f64);
                for call in 0..2_000u64 {
                    let step = policy.step(word, Nanos::new(call * CALL), Nanos::new(absent));
                    let Write::Word(next) = step.write else { panic!("{step:?}") };
                    word = next;
                    let found = Threshold::new(step.threshold).unwrap().probability().get();
                    let bounded = |p: f64| p * (knee / x).min(1.0);
                    let expected = f(x).min(bounded(f(x.min(knee)))).max(bounded(minimum));
                    assert!(
                        (found / expected - 1.0).abs() < 2e-3,
                        "{lambda} {exponent} {call}: {found}, {expected}"
                    );
                    x = (x + 1.0) * (-0.01f64).exp2();
                }
            }
        }
    }

    #[test]
    fn a_late_thread_keeps_less_and_a_clock_set_back_begins_anew() {
        let (policy, bump) = policy(1.0, 0.0, Nanos::from_secs(1), 1);
        let start = 1_000 * SECOND;
        let mut word = policy.fresh(Nanos::new(start), Nanos::ZERO);
        call(&policy, &mut word, start);
        near(step(&policy, word, start - SECOND).threshold, &bump, 2.0);
        assert_eq!(step(&policy, word, start - 60 * SECOND).threshold, Threshold::MAX.get());
        // A minute late with the largest count; then a second more.
        let full = word.wrapping_add_signed(COUNT_MAX);
        assert_eq!(step(&policy, full, start - 60 * SECOND).threshold, Threshold::MAX.get());
        let anew = step(&policy, full, start - 62 * SECOND);
        assert_eq!((anew.threshold, anew.slot), (0, 0));
        let Write::Word(word) = anew.write else { panic!("{anew:?}") };
        near(step(&policy, word, start - 62 * SECOND).threshold, &bump, 1.0);
    }

    #[test]
    fn times_may_wrap() {
        let (policy, bump) = policy(1.0, 0.0, Nanos::from_secs(1), 1);
        let wrap = (1u64 << 32) * SECOND;
        let mut word = policy.fresh(Nanos::new(wrap - SECOND), Nanos::ZERO);
        call(&policy, &mut word, wrap - SECOND);
        near(call(&policy, &mut word, wrap).threshold, &bump, 0.5);
        near(call(&policy, &mut word, wrap + SECOND).threshold, &bump, 0.75);
    }

    #[test]
    fn batches_begin_where_they_are_a_thousandth_and_add_up() {
        for (shards, first) in [(1, 4_096u64), (8, 32_768)] {
            let (policy, bump) = policy(1e7, 0.0, Nanos::from_secs(1), shards);
            let word = |log2: f64| {
                policy
                    .fresh(Nanos::ZERO, Nanos::ZERO)
                    .wrapping_add_signed(1 - FORGOTTEN)
                    .wrapping_add_signed((log2 * LOG_ONE as f64) as i64)
            };
            let log2 = (first as f64).log2();
            assert!(matches!(step(&policy, word(log2 - 1e-6), 0).write, Write::Word(_)));
            assert_eq!(step(&policy, word(log2), 0).write, Write::Batch(2));
            assert_eq!(step(&policy, word(log2 + 1.0), 0).write, Write::Batch(4));
            let after = policy.batch(word(log2), 8, Nanos::ZERO, Nanos::ZERO);
            near(step(&policy, after, 0).threshold, &bump, first as f64 + 8.0);
            // The count was forgotten in between: a small lambda distinguishes a count of 1 from 0.
            let later = policy.batch(word(log2), 8, Nanos::from_secs(100), Nanos::ZERO);
            let (small, bump) = self::policy(1.0, 0.0, Nanos::from_secs(1), shards);
            near(step(&small, later, 100 * SECOND).threshold, &bump, 1.0);
        }
    }

    #[test]
    fn is_idle_since_it_was_forgotten() {
        let (policy, _) = policy(1.0, 0.0, Nanos::from_secs(1), 1);
        let idle = |word: u64, now: u64| policy.idle(word, Nanos::new(now), Nanos::ZERO).get();
        let mut word = policy.fresh(Nanos::new(SECOND), Nanos::ZERO);
        assert_eq!(idle(word, SECOND), 0, "just created: a sweep must not evict it");
        call(&policy, &mut word, SECOND);
        // A count of 1 is forgotten after 24 half-lives.
        assert_eq!([idle(word, SECOND), idle(word, 25 * SECOND)], [0, 0]);
        assert!(idle(word, 27 * SECOND).abs_diff(2 * SECOND) < 10);
        assert_eq!(idle(word.wrapping_add_signed(110 * LOG_ONE), SECOND), u64::MAX, "the clock was set back");
    }
}
