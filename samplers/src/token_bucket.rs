//! Token bucket: a key's calls are kept as long as its bucket holds a token; each that is kept takes one.
//!
//! The bucket starts full and is refilled lazily, by the time since the last call, never above its capacity. Its
//! state is one number, the time at which it would be full again (the generic cell rate algorithm's "theoretical
//! arrival time", ITU-T I.371): tokens missing = (that time - now) * rate.

use crate::config::ConfigError;
use crate::decision::Reason;
use crate::law::{LATE_MAX, Law, NEVER, Step};
use crate::nanos::Nanos;

/// The longest time that a bucket may take to fill: 2^62 ns, 146 years. Times beyond would no longer add up.
const FILL_MAX: f64 = (1u64 << 62) as f64;

/// A token bucket's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBucket {
    capacity: f64,
    rate: f64,
    /// In how many ns one token comes, rounded up.
    token: u64,
    /// In how many ns an empty bucket is full, rounded down.
    fill: u64,
}

impl TokenBucket {
    /// At most `capacity` calls of a key are kept at once, and `rate` per second in the long run; fractions are
    /// allowed.
    ///
    /// The time that a token takes is rounded up to a whole nanosecond, so that no interval holds more than
    /// capacity + rate * its length: at a rate of a million this loses at most 0.1 %, below that nothing to speak of.
    ///
    /// # Errors
    ///
    /// If the capacity is below one token (nothing would ever be kept), the rate is not above 0, either is infinite or
    /// not a number, or the bucket would take more than 146 years to fill.
    pub fn new(capacity: f64, rate: f64) -> Result<Self, ConfigError> {
        if !capacity.is_finite() || capacity < 1.0 {
            return Err(ConfigError::out_of_range(
                format!("capacity={capacity}"),
                "a bucket holds at least one token, and finitely many; write for example capacity=50, or use the \
                 sampler `never`",
            ));
        }
        if !rate.is_finite() || rate <= 0.0 {
            return Err(ConfigError::out_of_range(
                format!("rate={rate}"),
                "a rate is a number of tokens per second, finite and above 0; write for example rate=2, or use the \
                 sampler `never`",
            ));
        }
        let token = (1e9 / rate).ceil();
        let fill = (capacity * token).floor();
        if fill > FILL_MAX {
            return Err(ConfigError::out_of_range(
                format!("capacity={capacity},rate={rate}"),
                "such a bucket takes more than 146 years to fill; lower the capacity or raise the rate",
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

/// The word: the time at which the bucket is full again, in ns; at or before now, it is full.
impl Law for TokenBucket {
    const REASONS: [Reason; 2] = [Reason::TokenBucket; 2];
    const BY_CHANCE: bool = false;

    fn offset(&self, _key: &str) -> Nanos {
        Nanos::ZERO
    }

    fn fresh(&self, now: Nanos, _offset: Nanos) -> u64 {
        now.get()
    }

    /// An empty bucket writes nothing: threads which share a hot key meet only where one of them keeps a trace.
    #[inline]
    fn step(&self, word: u64, now: Nanos, _offset: Nanos) -> Step {
        let now = now.get();
        let empty = now.saturating_add(self.fill);
        if word > empty.saturating_add(LATE_MAX.get()) {
            // The clock was set back. The bucket goes on empty, as if it had just been used up.
            return Step { threshold: NEVER, slot: 0, next: Some(empty) };
        }
        let next = word.max(now).saturating_add(self.token);
        if next <= empty {
            Step { threshold: 0, slot: 0, next: Some(next) }
        } else {
            Step { threshold: NEVER, slot: 0, next: None }
        }
    }

    fn idle(&self, word: u64, now: Nanos, _offset: Nanos) -> Nanos {
        if word > now.saturating_add(LATE_MAX).get().saturating_add(self.fill) {
            return Nanos::new(u64::MAX);
        }
        now.saturating_sub(Nanos::new(word))
    }
}
