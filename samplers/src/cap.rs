//! The hard cap: an upper bound on kept traces and on exported bytes, whatever the sampler decides.
//!
//! A cap is a generic cell rate algorithm (ITU-T I.371) for each of its four allowances: all
//! traces, the traces of one key, all bytes, the bytes of one key. Credit that is not used is
//! clipped at the burst, so hours of rest buy no more than one burst. The worst case is
//!
//! > in any interval of W seconds, both ends included, at most burst + rate * W are admitted; so
//! burst + rate in a second
//!
//! measured on the readings of the clock that the callers hand in. A clock that jumps ahead gains
//! nothing beyond the burst. One that is set back by up to a minute admits nothing until it has
//! caught up; one that is set back further goes on with no credit.
//!
//! # Weights
//!
//! An empty bucket drops whatever comes, and then the weights of what it did not drop no longer add
//! up to all calls. So a bucket that is less than half full raises the threshold before it is
//! empty: with each sixteenth of that half it keeps half as many. Loads of up to a thousand times
//! the rate settle where the bucket is as full as they require, and the raised threshold, which
//! depends on the calls before and not on this one's randomness, is the true weight of what is
//! kept. Where a bucket was empty all the same, traces have no weight for a second.
//!
//! A burst of fewer than about 16 has no room for that: such a cap holds its bound, and is mostly
//! empty under load.

mod bucket;
mod caps;
mod text;

use std::fmt;
use std::num::NonZeroU32;

pub use bucket::Meter;
use bucket::{Answer, Bucket};
pub(crate) use caps::Caps;

use crate::config_error::ConfigError;

/// A rate with a burst: of traces, or of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    rate: f64,
    burst: f64,
}

/// The limits of rates and bursts: beyond, times would not add up in 64 bits.
const RATE_MIN: f64 = 1e-6;
const RATE_MAX: f64 = 1e12;
/// 2^61 ns: 73 years.
const FILL_MAX: f64 = (1u64 << 61) as f64;

impl Allowance {
    /// At most `rate` a second in the long run, and `burst` at once.
    ///
    /// # Errors
    ///
    /// If the rate is not from 10^-6 to 10^12, the burst is below 1 or not finite, or the burst
    /// would take more than 73 years to come back.
    pub fn new(rate: f64, burst: f64) -> Result<Self, ConfigError> {
        Self::named(("rate", "burst"), rate, burst)
    }

    /// As [`Allowance::new`]; errors have the names that the values were given by.
    fn named((rate_name, burst_name): (&str, &str), rate: f64, burst: f64) -> Result<Self, ConfigError> {
        if !(RATE_MIN..=RATE_MAX).contains(&rate) {
            return Err(ConfigError::out_of_range(
                format!("{rate_name}={rate}"),
                "a cap's rate is a number a second from 0.000001 to 10^12; leave it out for no bound",
            ));
        }
        if !burst.is_finite() || burst < 1.0 || burst / rate * 1e9 > FILL_MAX {
            return Err(ConfigError::out_of_range(
                format!("{burst_name}={burst}"),
                "a cap's burst is a number from 1, and comes back within 73 years; write for example burst=25",
            ));
        }
        Ok(Allowance { rate, burst })
    }

    /// With a quarter of a second's rate as burst, and at least one.
    ///
    /// # Errors
    ///
    /// As [`Allowance::new`].
    pub fn per_second(rate: f64) -> Result<Self, ConfigError> {
        Self::new(rate, Self::burst_of(rate))
    }

    fn burst_of(rate: f64) -> f64 {
        (rate / 4.0).max(1.0)
    }

    /// The rate, a second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The most at once.
    pub fn burst(&self) -> f64 {
        self.burst
    }

    /// The most in any interval of `seconds`: burst + rate * seconds.
    pub fn worst_case(&self, seconds: f64) -> f64 {
        self.burst + self.rate * seconds
    }

    /// One of `replicas` equal parts. A burst stays at least 1, the smallest there is.
    #[must_use]
    pub fn shared_by(self, replicas: NonZeroU32) -> Self {
        let parts = f64::from(replicas.get());
        Allowance { rate: (self.rate / parts).max(RATE_MIN), burst: (self.burst / parts).max(1.0) }
    }
}

/// Bounds on what is kept. As text:
/// `traces=100,burst=25,key_traces=10,key_burst=2,bytes=1e6,bytes_burst=250000, key_bytes=1e5,key_bytes_burst=25000,replicas=4`,
/// of which each may be left out; a burst is a quarter of its rate unless it is given.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Cap {
    /// Kept traces of the process. Those that a parent's decision keeps are not decided here, and
    /// do not count.
    pub traces: Option<Allowance>,
    /// Kept traces of each key; keys without a record of their own share one.
    pub key_traces: Option<Allowance>,
    /// Exported bytes of the process.
    pub bytes: Option<Allowance>,
    /// Exported bytes of each key. Traces that a parent's decision keeps are in no key's, and count
    /// for `bytes` alone.
    pub key_bytes: Option<Allowance>,
    /// The number of processes that share these allowances equally.
    pub replicas: NonZeroU32,
}

impl Default for Cap {
    /// No bounds.
    fn default() -> Self {
        Cap { traces: None, key_traces: None, bytes: None, key_bytes: None, replicas: NonZeroU32::MIN }
    }
}

impl Cap {
    /// No bounds.
    pub fn none() -> Self {
        Self::default()
    }

    /// A bound on the kept traces of the process.
    #[must_use]
    pub fn with_traces(self, traces: Allowance) -> Self {
        Cap { traces: Some(traces), ..self }
    }

    /// A bound on the kept traces of each key.
    #[must_use]
    pub fn with_key_traces(self, traces: Allowance) -> Self {
        Cap { key_traces: Some(traces), ..self }
    }

    /// A bound on the exported bytes of the process.
    #[must_use]
    pub fn with_bytes(self, bytes: Allowance) -> Self {
        Cap { bytes: Some(bytes), ..self }
    }

    /// A bound on the exported bytes of each key.
    #[must_use]
    pub fn with_key_bytes(self, bytes: Allowance) -> Self {
        Cap { key_bytes: Some(bytes), ..self }
    }

    /// The number of processes that share the allowances: each gets an equal part.
    #[must_use]
    pub fn with_replicas(self, replicas: NonZeroU32) -> Self {
        Cap { replicas, ..self }
    }

    /// Returns true if nothing is bounded.
    pub fn is_none(&self) -> bool {
        let Cap { traces, key_traces, bytes, key_bytes, replicas: _ } = self;
        [traces, key_traces, bytes, key_bytes].into_iter().all(Option::is_none)
    }

    /// The allowances of this process: those of all, divided by the replicas.
    #[must_use]
    pub fn own_share(&self) -> Self {
        let share = |allowance: Option<Allowance>| allowance.map(|all| all.shared_by(self.replicas));
        Cap {
            traces: share(self.traces),
            key_traces: share(self.key_traces),
            bytes: share(self.bytes),
            key_bytes: share(self.key_bytes),
            replicas: NonZeroU32::MIN,
        }
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(self, f)
    }
}
