//! Token bucket: a key's calls are kept while its bucket holds a token; each kept call takes one.
//!
//! The bucket starts full and is refilled lazily, by the time since the last call, up to its
//! capacity. Its state is one number, the time at which it would be full again: tokens missing =
//! (that time - now) * rate. That time is the "theoretical arrival time" of the generic cell rate
//! algorithm (ITU-T I.371).

use crate::config_error::ConfigError;
use crate::decision::Reason;
use crate::nanos::LATE_MAX;
use crate::nanos::Nanos;
use crate::policy::{NEVER, Policy, Step, Write};

/// The longest time that a bucket may take to fill: 2^62 ns, 146 years. Beyond, adding times could
/// overflow.
const FILL_MAX: f64 = (1u64 << 62) as f64;

/// A token bucket's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBucket {
    capacity: f64,
    rate: f64,
    /// The time for one token to arrive, in ns, rounded up.
    token: u64,
    /// The time for an empty bucket to fill, in ns, rounded down.
    fill: u64,
}

impl TokenBucket {
    /// A bucket that keeps at most `capacity` calls of a key at once, and `rate` per second in the
    /// long run. Both may be fractions.
    ///
    /// The time per token is rounded up to a whole nanosecond, so that no interval keeps more than
    /// capacity + rate * its length. At a million tokens per second this loses at most 0.1 % of
    /// them, at lower rates less.
    ///
    /// # Errors
    ///
    /// If the capacity is below one token (nothing would ever be kept), the rate is not above 0,
    /// either is infinite or not a number, or the bucket would take more than 146 years to fill.
    pub fn new(capacity: f64, rate: f64) -> Result<Self, ConfigError> {
        if !capacity.is_finite() || capacity < 1.0 {
            return Err(ConfigError::out_of_range(
                format!("capacity={capacity}"),
                "a bucket must hold at least one token, and finitely many, such as capacity=50; to keep nothing, use \
                 the sampler `never`",
            ));
        }
        if !rate.is_finite() || rate <= 0.0 {
            return Err(ConfigError::out_of_range(
                format!("rate={rate}"),
                "the rate must be a finite number of tokens per second, above 0, such as rate=2; to keep nothing, use \
                 the sampler `never`",
            ));
        }
        let token = (1e9 / rate).ceil();
        let fill = (capacity * token).floor();
        if fill > FILL_MAX {
            return Err(ConfigError::out_of_range(
                format!("capacity={capacity},rate={rate}"),
                "this bucket would take more than 146 years to fill; lower the capacity or raise the rate",
            ));
        }
        Ok(TokenBucket { capacity, rate, token: token as u64, fill: fill as u64 })
    }

    /// Tokens in a full bucket.
    pub fn capacity(&self) -> f64 {
        self.capacity
    }

    /// Tokens per second.
    pub fn rate(&self) -> f64 {
        self.rate
    }
}

/// The word is the time at which the bucket is full again, in ns. At or before now, the bucket is
/// full.
impl Policy for TokenBucket {
    const REASONS: [Reason; 2] = [Reason::TokenBucket; 2];
    const BY_CHANCE: bool = false;

    fn offset(&self, _hash: u64) -> Nanos {
        Nanos::ZERO
    }

    fn fresh(&self, now: Nanos, _offset: Nanos) -> u64 {
        now.get()
    }

    /// An empty bucket writes nothing, so threads contend for a hot key's word only when they keep
    /// a trace.
    #[inline]
    fn step(&self, word: u64, now: Nanos, _offset: Nanos) -> Step {
        let now = now.get();
        let empty = now.saturating_add(self.fill);
        if word > empty.saturating_add(LATE_MAX.get()) {
            // The clock was set back. The bucket continues empty, as if it had just been used up.
            return Step { threshold: NEVER, slot: 0, write: Write::Word(empty) };
        }
        let next = word.max(now).saturating_add(self.token);
        if next <= empty {
            Step { threshold: 0, slot: 0, write: Write::Word(next) }
        } else {
            Step { threshold: NEVER, slot: 0, write: Write::Nothing }
        }
    }

    fn batch(&self, word: u64, _calls: u64, _now: Nanos, _offset: Nanos) -> u64 {
        word
    }

    /// A used bucket stays used, and its debt is clamped to what it can hold.
    fn carried(&self, _old: &Self, word: u64, now: Nanos, _offset: Nanos) -> u64 {
        word.min(now.get().saturating_add(self.fill))
    }

    fn tokens(&self, word: u64, now: Nanos) -> Option<f64> {
        let missing = word.saturating_sub(now.get()).min(self.fill);
        Some((self.fill - missing) as f64 / self.token as f64)
    }

    fn idle(&self, word: u64, now: Nanos, _offset: Nanos) -> Nanos {
        if word > now.saturating_add(LATE_MAX).get().saturating_add(self.fill) {
            return Nanos::new(u64::MAX);
        }
        now.saturating_sub(Nanos::new(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn step(bucket: &TokenBucket, word: u64, now: u64) -> Step {
        bucket.step(word, Nanos::new(now), Nanos::ZERO)
    }

    const DROP: Step = Step { threshold: NEVER, slot: 0, write: Write::Nothing };

    fn keep(word: u64) -> Step {
        Step { threshold: 0, slot: 0, write: Write::Word(word) }
    }

    #[test]
    fn gives_a_token_as_long_as_there_is_one() {
        // Two tokens, one per half second: full again a second after it was empty.
        let bucket = TokenBucket::new(2.0, 2.0).unwrap();
        let now = 10 * SECOND;
        let full = bucket.fresh(Nanos::new(now), Nanos::ZERO);
        assert_eq!(full, now, "full since now: a sweep must not evict it");
        assert_eq!(step(&bucket, full, now), keep(now + SECOND / 2));
        assert_eq!(step(&bucket, now + SECOND / 2, now), keep(now + SECOND));
        assert_eq!(step(&bucket, now + SECOND, now), DROP);
        assert_eq!(step(&bucket, now + SECOND, now + SECOND / 2 - 1), DROP);
        assert_eq!(step(&bucket, now + SECOND, now + SECOND / 2), keep(now + 3 * SECOND / 2));
        // After a long idle time it is full, and not fuller.
        assert_eq!(step(&bucket, now, now + 100 * SECOND), keep(now + 100 * SECOND + SECOND / 2));
    }

    #[test]
    fn rounds_so_that_it_gives_no_more_than_it_may() {
        let third = TokenBucket::new(1.5, 3.0).unwrap();
        assert_eq!((third.token, third.fill), (333_333_334, 500_000_001));
        assert_eq!(TokenBucket::new(1.0, 1e12).unwrap().token, 1, "a billion per second is the most");
        let slow = TokenBucket::new(1.0, 1e-9).unwrap();
        assert_eq!((slow.token, slow.fill), (1_000_000_000_000_000_000, 1_000_000_000_000_000_000));
    }

    #[test]
    fn takes_146_years_to_fill_at_most() {
        // 2^62 ns = 4611686018.43 s.
        assert!(TokenBucket::new(4.6116e9, 1.0).is_ok());
        assert!(TokenBucket::new(4.6117e9, 1.0).unwrap_err().is_out_of_range());
        assert!(TokenBucket::new(1.0, f64::MIN_POSITIVE).is_err());
    }

    #[test]
    fn a_clock_set_back_empties_it_and_a_late_thread_does_not() {
        let bucket = TokenBucket::new(2.0, 1.0).unwrap();
        // Empty at 100 s, so full at 102 s. A thread that is up to a minute late finds no token.
        assert_eq!(step(&bucket, 102 * SECOND, 99 * SECOND), DROP);
        assert_eq!(step(&bucket, 102 * SECOND, 40 * SECOND), DROP);
        // Further back, the clock was set back: two seconds until the bucket is full.
        let begun = Step { threshold: NEVER, slot: 0, write: Write::Word(42 * SECOND - 1) };
        assert_eq!(step(&bucket, 102 * SECOND, 40 * SECOND - 1), begun);
    }

    #[test]
    fn ends_with_the_clock_harmlessly() {
        let bucket = TokenBucket::new(2.0, 1.0).unwrap();
        assert_eq!(step(&bucket, u64::MAX, u64::MAX), keep(u64::MAX));
    }

    #[test]
    fn is_idle_since_it_was_full() {
        let bucket = TokenBucket::new(2.0, 1.0).unwrap();
        let idle = |word, now| bucket.idle(word, Nanos::new(now), Nanos::ZERO).get();
        assert_eq!(idle(10 * SECOND, 9 * SECOND), 0);
        assert_eq!(idle(10 * SECOND, 10 * SECOND), 0);
        assert_eq!(idle(10 * SECOND, 12 * SECOND), 2 * SECOND);
        assert_eq!(idle(102 * SECOND, 40 * SECOND), 0);
        assert_eq!(idle(102 * SECOND + 1, 40 * SECOND), u64::MAX, "the clock was set back");
    }

    #[test]
    fn a_batch_is_nothing_to_it() {
        let bucket = TokenBucket::new(2.0, 1.0).unwrap();
        assert_eq!(bucket.batch(7, 8, Nanos::ZERO, Nanos::ZERO), 7);
        assert_eq!((bucket.capacity(), bucket.rate()), (2.0, 1.0));
    }
}
