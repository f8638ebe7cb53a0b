//! The answer to a [`Request`](crate::Request).

use std::fmt;

use crate::randomness::Randomness;
use crate::threshold::Threshold;

/// Keep or drop, with what weight, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// True if the trace is kept.
    pub keep: bool,
    /// The threshold that the randomness was compared with, whether or not the trace is kept.
    /// `None` if the decision was not made by chance (token bucket, every n-th, never), or if a
    /// cap's bucket is, or within the last second was, empty. Such a trace has no weight, and no
    /// `th` may be written for it.
    pub threshold: Option<Threshold>,
    /// The reason for the decision.
    pub reason: Reason,
}

impl Decision {
    /// The decision of an override: keep if the randomness is at least `threshold`.
    pub(crate) fn by_override(threshold: u64, randomness: Randomness) -> Self {
        let keep = randomness.get() >= threshold;
        Decision { keep, threshold: Threshold::new(threshold), reason: Reason::Override }
    }
}

/// The reason for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The sampler keeps everything.
    Always,
    /// The sampler keeps nothing.
    Never,
    /// A fixed ratio.
    Ratio,
    /// The call's position in the stream: the first of each n calls is kept.
    EveryNth,
    /// Bump's f(x), where x is the key's count before this call.
    Bump,
    /// Bump's minimum, because f(x) has fallen below it.
    BumpMinimum,
    /// The key's token bucket.
    TokenBucket,
    /// Any of the above, decided by the record that all keys without their own share.
    Overflow,
    /// The cap dropped the trace: its bucket is less than half full, and the threshold it raised is
    /// above the randomness.
    Cap,
    /// The cap dropped the trace: its bucket is empty.
    CapEmpty,
    /// An operator's override replaced the sampler's decision.
    Override,
    /// A boost raised the key's probability: see [`tail::Boost`](crate::tail::Boost).
    Boost,
    /// A parent in another process.
    Parent,
    /// Strata decide once the trace has ended: see [`strata`](crate::strata). The threshold is that
    /// with which the trace is recorded.
    Strata,
}

impl Reason {
    /// A short name for metrics and machine-readable output. Names do not change between versions.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Always => "always",
            Reason::Never => "never",
            Reason::Ratio => "ratio",
            Reason::EveryNth => "every_nth",
            Reason::Bump => "bump",
            Reason::BumpMinimum => "bump_minimum",
            Reason::TokenBucket => "token_bucket",
            Reason::Overflow => "overflow",
            Reason::Cap => "cap",
            Reason::CapEmpty => "cap_empty",
            Reason::Override => "override",
            Reason::Boost => "boost",
            Reason::Parent => "parent",
            Reason::Strata => "strata",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
