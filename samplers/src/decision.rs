//! A sampler's answer.

use std::fmt;

use crate::randomness::Randomness;
use crate::threshold::Threshold;

/// An answer: keep or drop, with what weight, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// True if the trace is kept.
    pub keep: bool,
    /// The threshold that the randomness was compared with, kept or not. `None` if the decision was
    /// not made by chance (token bucket, every n-th, never): then no weight is true, and no `th`
    /// may be written.
    pub threshold: Option<Threshold>,
    /// The cause of the decision.
    pub reason: Reason,
}

impl Decision {
    /// An override's: kept if the randomness is at least this.
    pub(crate) fn by_override(threshold: u64, randomness: Randomness) -> Self {
        let keep = randomness.get() >= threshold;
        Decision { keep, threshold: Threshold::new(threshold), reason: Reason::Override }
    }
}

/// The cause of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Everything is kept.
    Always,
    /// Nothing is kept.
    Never,
    /// A fixed ratio.
    Ratio,
    /// The position in the stream of calls: the first of each n.
    EveryNth,
    /// Bump's f(x), for the x calls of the key before this one in its window.
    Bump,
    /// Bump's minimum, which f(x) no longer reaches.
    BumpMinimum,
    /// The key's token bucket.
    TokenBucket,
    /// The record that keys share which have none of their own, whatever the sampler.
    Overflow,
    /// The cap: its bucket is less than half full, and raised the threshold above the randomness.
    Cap,
    /// The cap: its bucket is empty.
    CapEmpty,
    /// An override of the operator's.
    Override,
}

impl Reason {
    /// A short name, stable: for metrics and machine-readable output.
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
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
