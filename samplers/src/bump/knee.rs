//! A knee: a constant probability that falls once a key is called far more often than recorded.
//!
//! With x calls of the key counted, whose weight halves with each [`HALF_LIFE`] calls of all keys,
//! p(x) = p min(1, lambda / x), where lambda = [`MULTIPLE`] times the x of a key that has its
//! recorded share of calls, plus [`CALLS`]. So a key has its constant up to four times its share.
//! Above, it keeps as many calls as at four times its share, however frequent it becomes. (Scaling
//! p both ways would be a rate limiter, which keeps the traffic of a loop even when it is the
//! recorded one.)
//!
//! The share is one among the keys present in this process. A process with few of the recorded keys
//! sees larger shares of them: `absent` is log2 of 1 / (the sum of the recorded shares of keys that
//! have a record), and raises lambda by as much. A process with one key is never cut.

use super::curve::{LOG_BITS, LOG_ONE, Tables};
use crate::nanos::Nanos;
use crate::pace::CALL;
use crate::policy::{Step, Write};
use crate::probability::Probability;
use crate::threshold::Threshold;

/// The calls of all keys with which a key's count halves.
const HALF_LIFE: f64 = 2_000.0;
/// A key keeps its constant up to this multiple of its recorded share.
const MULTIPLE: f64 = 4.0;
/// Added to lambda, so that a few calls of a very rare key change nothing.
const CALLS: f64 = 10.0;
/// A count below 2^-4 is as good as 0: lambda is at least 10.
const FORGOTTEN: i64 = -4 * LOG_ONE;
/// The logarithm of the largest count; counts converge to 2,886.
const COUNT_MAX: i64 = 44 * LOG_ONE;

/// A key with a constant probability and a recorded share. The record's word is that of a decaying
/// count, whose time is the table's pace.
#[derive(Debug)]
pub(crate) struct Knee {
    tables: &'static Tables,
    /// The threshold of the constant.
    threshold: u64,
    lambda_log2: i64,
    share: Probability,
}

/// The count up to which a key with this share has its constant, if all recorded keys are present.
pub(crate) fn lambda(share: f64) -> f64 {
    lambda_of(share, HALF_LIFE)
}

/// As [`lambda`], for a count with this half-life in calls of all keys.
pub(super) fn lambda_of(share: f64, half_life: f64) -> f64 {
    MULTIPLE * share * half_life / std::f64::consts::LN_2 + CALLS
}

/// By how much the probability of a key falls in the long run, if it has `share_now` of all calls
/// and had `share` of those recorded: min(1, lambda / x), where x is the count of a key that is
/// called at a constant rate. For reports; decisions use the count.
pub fn knee_factor(share: f64, share_now: f64) -> f64 {
    knee_factor_of(share, share_now, HALF_LIFE)
}

/// As [`knee_factor`], for a key whose count halves with this many calls of all keys.
pub fn knee_factor_of(share: f64, share_now: f64, half_life: f64) -> f64 {
    (lambda_of(share, half_life) * std::f64::consts::LN_2 / (share_now * half_life)).min(1.0)
}

impl Knee {
    pub(super) fn new(constant: Probability, share: Probability, tables: &'static Tables) -> Self {
        Knee {
            tables,
            threshold: Threshold::from_probability(constant).get(),
            lambda_log2: (lambda(share.get()).log2() * LOG_ONE as f64) as i64,
            share,
        }
    }

    pub(super) fn share(&self) -> Probability {
        self.share
    }

    /// The pace's time in half-lives, as a fixed-point number that wraps around.
    #[inline]
    fn time(pace: Nanos) -> u64 {
        // 2^32 / (HALF_LIFE * CALL) with 32 bits more, rounded.
        const MULTIPLIER: u64 = ((1u128 << 64) / (HALF_LIFE as u128 * CALL as u128)) as u64;
        ((u128::from(pace.get()) * u128::from(MULTIPLIER)) >> 32) as u64
    }

    pub(super) fn fresh(pace: Nanos) -> u64 {
        Self::time(pace).wrapping_add_signed(FORGOTTEN - 1)
    }

    #[inline]
    pub(super) fn step(&self, word: u64, pace: Nanos, absent: u64) -> Step {
        let time = Self::time(pace);
        let log2 = word.wrapping_sub(time) as i64;
        if !(FORGOTTEN..=COUNT_MAX).contains(&log2) {
            return Step { threshold: self.threshold, slot: 1, write: Write::Word(time) };
        }
        let write = Write::Word(self.tables.sum(word, time));
        let above = log2.saturating_sub(self.lambda_log2.saturating_add_unsigned(absent));
        if above <= 0 {
            return Step { threshold: self.threshold, slot: 1, write };
        }
        // p lambda / x, in units of 2^-56, of which at least one is kept.
        let kept = Threshold::RANGE - self.threshold;
        let kept = self.tables.power(kept, above as u64).max(1);
        Step { threshold: Threshold::RANGE - kept, slot: 0, write }
    }

    /// The pace's time for which the count has been forgotten.
    pub(super) fn idle(word: u64, pace: Nanos) -> Nanos {
        let log2 = word.wrapping_sub(Self::time(pace)) as i64;
        if log2 > COUNT_MAX {
            return Nanos::new(u64::MAX);
        }
        let forgotten = u128::from(FORGOTTEN.saturating_sub(log2).max(0).unsigned_abs());
        let pace = (forgotten * (HALF_LIFE as u128 * CALL as u128)) >> LOG_BITS;
        Nanos::new(u64::try_from(pace).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::super::curve::TABLES;
    use super::*;

    fn knee(constant: f64, share: f64) -> Knee {
        Knee::new(Probability::new(constant).unwrap(), Probability::new(share).unwrap(), &TABLES)
    }

    fn at(calls: f64) -> Nanos {
        Nanos::new((calls * CALL as f64) as u64)
    }

    fn probability(step: Step) -> f64 {
        Threshold::new(step.threshold).unwrap().probability().get()
    }

    /// Calls each `gap` calls of all keys; the probability of each.
    fn run(knee: &Knee, gap: f64, calls: usize, absent: u64) -> Vec<f64> {
        let mut word = Knee::fresh(at(0.0));
        let call = |n: usize| {
            let step = knee.step(word, at(n as f64 * gap), absent);
            let Write::Word(next) = step.write else { panic!("{step:?}") };
            word = next;
            probability(step)
        };
        (0..calls).map(call).collect()
    }

    /// By hand: at a share of 0.01 lambda is 4 * 0.01 * 2,000 / ln 2 + 10 = 125.4, and a key that
    /// is every 100th call has x = 28.9, every 25th 115.4: both below.
    #[test]
    fn a_key_has_its_constant_up_to_four_times_its_share() {
        for gap in [10_000.0, 100.0, 25.0] {
            let found = run(&knee(0.7, 0.01), gap, 2_000, 0);
            assert!(found.iter().all(|p| (p - 0.7).abs() < 1e-9), "{gap}");
        }
        // A burst of 100 calls at once is within lambda too.
        assert!(run(&knee(1.0, 0.01), 0.0, 100, 0).iter().all(|&p| p == 1.0));
    }

    /// Compared with a count in floating point.
    #[test]
    fn above_it_falls_with_the_count() {
        for (share, gap) in [(0.001, 3.0), (0.01, 1.0), (0.01, 0.0), (0.0, 20.0)] {
            let (mut x, decay) = (0.0f64, (-gap / HALF_LIFE).exp2());
            for (n, found) in run(&knee(0.5, share), gap, 5_000, 0).into_iter().enumerate() {
                let expected = 0.5 * (lambda(share) / x).min(1.0);
                assert!((found / expected - 1.0).abs() < 1e-3, "{share} {gap} {n}: {found}, {expected}");
                x = (x + 1.0) * decay;
            }
        }
    }

    /// In n calls of all keys, a key keeps at most p (lambda + 1) (1 + ln(1 + x / lambda) + n ln 2
    /// / H): in the integral of p(x) from 0, a call is at least worth its probability, and decay
    /// takes p lambda ln 2 / H per call of all keys.
    #[test]
    fn what_is_kept_is_bounded_however_often_the_key_is_called() {
        for (share, gap) in [(0.001, 1.0), (0.01, 1.0), (0.01, 0.1), (0.05, 0.01)] {
            let calls = 20_000;
            let kept: f64 = run(&knee(1.0, share), gap, calls, 0).iter().sum();
            let (lambda, ticks) = (lambda(share), gap * calls as f64);
            let x = calls as f64;
            let bound =
                (lambda + 1.0) * (1.0 + (1.0 + x / lambda).ln() + ticks * std::f64::consts::LN_2 / HALF_LIFE);
            assert!(kept <= bound, "{share} {gap}: {kept} above {bound}");
            // A key with the long run's share of all calls falls by the report's factor.
            if gap == 1.0 {
                let last = *run(&knee(1.0, share), gap, calls, 0).last().unwrap();
                assert!((last / knee_factor(share, 1.0) - 1.0).abs() < 0.01, "{share}: {last}");
            }
        }
    }

    /// In a process whose only key had a thousandth of the recorded calls, x is at most 2,886 and
    /// lambda 1,000 times 21.5.
    #[test]
    fn a_process_with_one_key_is_never_cut() {
        for share in [0.5, 0.001, 1e-6] {
            let absent = ((1.0f64 / share).log2() * LOG_ONE as f64) as u64;
            assert!(run(&knee(0.3, share), 1.0, 20_000, absent).iter().all(|p| (p - 0.3).abs() < 1e-9));
        }
    }

    #[test]
    fn is_idle_since_it_was_forgotten() {
        let mut word = Knee::fresh(at(100.0));
        assert_eq!(Knee::idle(word, at(100.0)), Nanos::ZERO);
        let Write::Word(next) = knee(1.0, 0.1).step(word, at(100.0), 0).write else { panic!("a word") };
        word = next;
        // A count of 1 is forgotten after 4 half-lives.
        assert_eq!(Knee::idle(word, at(8_000.0)), Nanos::ZERO);
        assert!(Knee::idle(word, at(9_100.0)).get().abs_diff(1_000 * CALL) < CALL);
        assert_eq!(Knee::idle(word.wrapping_add_signed(50 * LOG_ONE), at(100.0)).get(), u64::MAX);
    }
}
