//! The hard cap: an upper bound on kept traces and on exported bytes, whatever the sampler decides.
//!
//! A cap has up to five allowances: all traces, the traces of one key, the first traces of new
//! keys, all bytes, the bytes of one key. Each is a generic cell rate algorithm (ITU-T I.371).
//! Unused credit is clamped to the burst, so hours of rest buy no more than one burst. The worst
//! case is
//!
//! > in any interval of W seconds, both ends included, at most burst + rate * W are admitted; so
//! > burst + rate in a second
//!
//! measured on the clock readings that callers pass in. A clock that jumps ahead gains nothing
//! beyond the burst. A clock that is set back by up to a minute admits nothing until it has caught
//! up; one that is set back further continues without credit.
//!
//! # Weights
//!
//! An empty bucket drops every trace, and then the weights of the kept ones no longer add up to all
//! calls. So a bucket that is less than half full raises the threshold before it is empty: for each
//! sixteenth of that half it keeps half as many traces. Loads of up to a thousand times the rate
//! settle at the fill level that matches them. The raised threshold depends on earlier calls and
//! not on this call's randomness, so it is the true weight of a kept trace. If a bucket does become
//! empty, traces have no weight for a second.
//!
//! A burst below about 16 is too small for these steps: such a cap holds its bound, and is mostly
//! empty under load.

mod bucket;
mod caps;
pub(crate) mod meters;
mod text;

use std::fmt;
use std::num::NonZeroU32;

pub use bucket::Meter;
pub(crate) use bucket::{Answer, Bucket};
pub(crate) use caps::Caps;

use crate::config_error::ConfigError;

/// A rate with a burst: of traces, or of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    rate: f64,
    burst: f64,
}

/// The limits of rates and bursts: beyond them, times would not add up in 64 bits.
const RATE_MIN: f64 = 1e-6;
const RATE_MAX: f64 = 1e12;
/// 2^61 ns: 73 years.
const FILL_MAX: f64 = (1u64 << 61) as f64;

impl Allowance {
    /// A hundred per second, and a hundred at once.
    pub(crate) const HUNDRED: Allowance = Allowance { rate: 100.0, burst: 100.0 };

    /// At most `rate` per second in the long run, and `burst` at once.
    ///
    /// # Errors
    ///
    /// If the rate is not from 10^-6 to 10^12, the burst is below 1 or not finite, or the burst
    /// would take more than 73 years to refill.
    pub fn new(rate: f64, burst: f64) -> Result<Self, ConfigError> {
        Self::named(("rate", "burst"), rate, burst)
    }

    /// As [`Allowance::new`], with the names by which errors refer to the values.
    fn named((rate_name, burst_name): (&str, &str), rate: f64, burst: f64) -> Result<Self, ConfigError> {
        if !(RATE_MIN..=RATE_MAX).contains(&rate) {
            return Err(ConfigError::out_of_range(
                format!("{rate_name}={rate}"),
                "a cap's rate must be from 0.000001 to 10^12 per second; leave it out for no bound",
            ));
        }
        if !burst.is_finite() || burst < 1.0 || burst / rate * 1e9 > FILL_MAX {
            return Err(ConfigError::out_of_range(
                format!("{burst_name}={burst}"),
                "a cap's burst must be at least 1 and refill within 73 years, such as burst=25",
            ));
        }
        Ok(Allowance { rate, burst })
    }

    /// An allowance whose burst is the rate of a quarter of a second, and at least 1.
    ///
    /// # Errors
    ///
    /// As for [`Allowance::new`].
    pub fn per_second(rate: f64) -> Result<Self, ConfigError> {
        Self::new(rate, Self::burst_of(rate))
    }

    fn burst_of(rate: f64) -> f64 {
        (rate / 4.0).max(1.0)
    }

    /// The number per second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The greatest number at once.
    pub fn burst(&self) -> f64 {
        self.burst
    }

    /// The greatest number in any interval of `seconds`: burst + rate * seconds.
    pub fn worst_case(&self, seconds: f64) -> f64 {
        self.burst + self.rate * seconds
    }

    /// One of `replicas` equal parts. The burst of a part is at least 1, the smallest possible.
    #[must_use]
    pub fn shared_by(self, replicas: NonZeroU32) -> Self {
        let parts = f64::from(replicas.get());
        Allowance { rate: (self.rate / parts).max(RATE_MIN), burst: (self.burst / parts).max(1.0) }
    }
}

/// Bounds on what is kept. The text form is a list such as one of these:
///
/// ```text
/// traces=100,burst=25,key_traces=10,key_burst=2,replicas=4
/// bytes=1e6,bytes_burst=250000,key_bytes=1e5,key_bytes_burst=25000
/// new_traces=2.5,new_burst=64
/// ```
///
/// Each part is optional. A burst defaults to a quarter of its rate, and to at least 1.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Cap {
    /// Kept traces of this process. Traces that a parent's decision keeps are not decided here, and
    /// do not count: every client that sends a sampled `traceparent` header adds to them.
    /// `ParentDecision::RespectWithinCap` of astracer-sdk bounds them too.
    pub traces: Option<Allowance>,
    /// Kept traces of each key; keys without a record of their own share one allowance.
    pub key_traces: Option<Allowance>,
    /// Kept first calls of keys that have no record and no parameters of their own. bump keeps such
    /// a call whatever its parameters, so names that are all different would be kept whole. Above
    /// this allowance a first call is kept with a probability of about the allowance's rate divided
    /// by the rate of new keys.
    pub new_traces: Option<Allowance>,
    /// Exported bytes of this process.
    pub bytes: Option<Allowance>,
    /// Exported bytes of each key. Traces that a parent's decision keeps belong to no key, and
    /// count only toward `bytes`.
    pub key_bytes: Option<Allowance>,
    /// The number of processes that share these allowances equally.
    pub replicas: NonZeroU32,
}

impl Default for Cap {
    /// No bounds.
    fn default() -> Self {
        Cap {
            traces: None,
            key_traces: None,
            new_traces: None,
            bytes: None,
            key_bytes: None,
            replicas: NonZeroU32::MIN,
        }
    }
}

impl Cap {
    /// No bounds.
    pub fn none() -> Self {
        Self::default()
    }

    /// Bounds the kept traces of the process.
    #[must_use]
    pub fn with_traces(self, traces: Allowance) -> Self {
        Cap { traces: Some(traces), ..self }
    }

    /// Bounds the kept traces of each key.
    #[must_use]
    pub fn with_key_traces(self, traces: Allowance) -> Self {
        Cap { key_traces: Some(traces), ..self }
    }

    /// Bounds the kept first calls of new keys.
    #[must_use]
    pub fn with_new_traces(self, traces: Allowance) -> Self {
        Cap { new_traces: Some(traces), ..self }
    }

    /// Bounds the exported bytes of the process.
    #[must_use]
    pub fn with_bytes(self, bytes: Allowance) -> Self {
        Cap { bytes: Some(bytes), ..self }
    }

    /// Bounds the exported bytes of each key.
    #[must_use]
    pub fn with_key_bytes(self, bytes: Allowance) -> Self {
        Cap { key_bytes: Some(bytes), ..self }
    }

    /// Sets the number of processes that share the allowances; each gets an equal part.
    #[must_use]
    pub fn with_replicas(self, replicas: NonZeroU32) -> Self {
        Cap { replicas, ..self }
    }

    /// Returns true if nothing is bounded.
    pub fn is_none(&self) -> bool {
        let Cap { traces, key_traces, new_traces, bytes, key_bytes, replicas: _ } = self;
        [traces, key_traces, new_traces, bytes, key_bytes].into_iter().all(Option::is_none)
    }

    /// The allowances of this process: those of all processes, divided by the number of replicas.
    #[must_use]
    pub fn own_share(&self) -> Self {
        let share = |allowance: Option<Allowance>| allowance.map(|all| all.shared_by(self.replicas));
        Cap {
            traces: share(self.traces),
            key_traces: share(self.key_traces),
            new_traces: share(self.new_traces),
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
