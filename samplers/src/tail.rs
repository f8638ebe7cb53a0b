//! Keep what went wrong: policies that look at a trace when its local root has ended.
//!
//! The sampler's decision falls when a trace begins. Policies here fall at its end, over what was
//! recorded of a trace that the sampler dropped: they know the outcome. As everywhere in this
//! crate, time is an argument and nothing is recorded here: who holds the spans (a service, or the
//! replay of a recording) asks.
//!
//! ```text
//! root begins -> key(), is_recorded(): record this dropped trace all the same?
//! root ends   -> count(): calls, errors and durations by key, of every root; arms the key if it went wrong
//!             -> decide(): the first policy that wants the trace and has budget left keeps it
//! ```
//!
//! # The worst case
//!
//! Each policy has a budget, a [`Cap`](crate::Cap) of its own, of which a process has its share. In
//! any interval of W seconds a policy keeps at most
//!
//! > min(burst + rate * W, keys * (key_burst + key_rate * W)) traces, and the same of bytes,
//!
//! where `keys` counts the keys with a record and one for all others; all policies together at most
//! the sum of that. Spans that end after their trace was kept ([`TailSampler::may_follow`]) are
//! within the same bytes. With the default budget ([`Rule::BUDGET_DEFAULT`]) these are 100 + 100 W
//! traces and 8 MB + 1 MB/s * W for each policy.

mod arming;
mod budget;
mod exemplars;
mod histogram;
mod keys;
#[cfg(all(test, loom))]
mod loom_models;
mod policy;
mod sampler;
mod shapes;
mod text;

pub use arming::ProvisionalMode;
pub use exemplars::Exemplar;
pub use histogram::Histogram;
pub use keys::{KeyNumber, KeyOutcomes};
pub use policy::{Comparison, Condition, Policy, Rule, Severity, Slow, Value};
pub use sampler::{Decided, Ended, Limits, PolicyCounts, TailSampler, Trace, View};

use crate::nanos::Nanos;

/// Everything about what is kept late: policies in order, and what is recorded to choose from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tail {
    /// The policies, in the order in which they are asked. Without one, nothing is kept late.
    pub rules: Vec<Rule>,
    /// The dropped traces that are recorded all the same.
    pub provisional: ProvisionalMode,
    /// The same for single keys.
    pub provisional_by_key: Vec<(String, ProvisionalMode)>,
    /// Bytes of recorded traces that no policy has kept: open ones, and ended ones for
    /// [`Tail::hold`].
    pub ring_bytes: usize,
    /// The time for which an ended trace that no policy kept stays, for triggers that come late;
    /// zero: it goes at once.
    pub hold: Nanos,
}

impl Default for Tail {
    /// No policies; armed keys; 32 MiB; two seconds.
    fn default() -> Self {
        Tail {
            rules: Vec::new(),
            provisional: ProvisionalMode::default(),
            provisional_by_key: Vec::new(),
            ring_bytes: 32 << 20,
            hold: Nanos::from_secs(2),
        }
    }
}

impl Tail {
    /// Policies, at most: the reason of a trace that was kept is a byte.
    pub const RULES_MAX: usize = 64;
    /// Spans that are recorded of a trace, at most.
    pub const TRACE_SPANS_MAX: usize = 10_000;
    /// A trace takes one part of this number of the ring's bytes, at most.
    pub const TRACE_PART: usize = 4;
    /// The age at which a trace is put to the policies though its root is open, unless the service
    /// has another one.
    pub const TRACE_AGE_MAX: Nanos = Nanos::from_secs(30);

    /// These policies, in this order; at most [`Tail::RULES_MAX`] of them.
    pub fn new(rules: impl Into<Vec<Rule>>) -> Self {
        Tail { rules: rules.into(), ..Tail::default() }
    }

    /// Returns true if nothing is kept late.
    pub fn is_none(&self) -> bool {
        self.rules.is_empty()
    }

    /// The dropped traces that are recorded all the same; those of armed keys by default.
    #[must_use]
    pub fn with_provisional(self, provisional: ProvisionalMode) -> Self {
        Tail { provisional, ..self }
    }

    /// The same for one key.
    #[must_use]
    pub fn with_provisional_of(mut self, key: impl Into<String>, provisional: ProvisionalMode) -> Self {
        let key = key.into();
        self.provisional_by_key.retain(|(known, _)| *known != key);
        self.provisional_by_key.push((key, provisional));
        self
    }

    /// The bytes of recorded traces that no policy has kept; 32 MiB by default.
    #[must_use]
    pub fn with_ring_bytes(self, ring_bytes: usize) -> Self {
        Tail { ring_bytes, ..self }
    }

    /// The time for which an ended trace that no policy kept stays; two seconds by default.
    #[must_use]
    pub fn with_hold(self, hold: Nanos) -> Self {
        Tail { hold, ..self }
    }
}
