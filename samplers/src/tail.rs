//! Tail policies: keep errors, slow requests and odd call trees once a trace's local root has
//! ended.
//!
//! The head sampler decides when a trace begins. The policies here decide when it ends, about
//! traces that the sampler dropped but that were recorded provisionally, and so they know the
//! outcome. As everywhere in this crate, time is an argument and nothing is recorded here: the
//! holder of the spans (a service, or the replay of a recording) calls these methods.
//!
//! ```text
//! root begins -> key(), is_recorded(): record this dropped trace provisionally?
//! root ends   -> count(): calls, errors and durations by key, of every root; arms the key if it went wrong
//!             -> decide_by_chance(): the first policy that wants the trace and has budget left keeps it
//!             -> threshold(): with which a trace of the head sampler would have been kept here
//! ```
//!
//! # The worst case
//!
//! Each policy has a budget, a [`Cap`](crate::Cap) of its own, of which a process gets its share.
//! In any interval of W seconds a policy keeps at most
//!
//! > min(burst + rate * W, keys * (key_burst + key_rate * W)) traces, and the same of bytes,
//!
//! where `keys` is the number of keys with a record, plus one for all others. All policies together
//! keep at most the sum of these bounds. Spans that end after their trace was kept
//! ([`TailSampler::may_follow`]) count toward the same bytes. With the default budget
//! ([`Rule::BUDGET_DEFAULT`]), each policy keeps at most 100 + 100 W traces and 8 MB + 1 MB/s * W.

mod arming;
mod boost;
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
pub use boost::{Boost, Boosting};
pub use exemplars::Exemplar;
pub use histogram::Histogram;
pub use keys::{KeyNumber, KeyOutcomes};
pub use policy::{Comparison, Condition, Policy, Quantile, Rule, Severity, Slow, Value};
pub use sampler::{Decided, Ended, Limits, PolicyCounts, Recording, TailSampler, Trace, View};

use crate::nanos::Nanos;

/// The settings for keeping traces late: the policies in order, and which dropped traces are
/// recorded for them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tail {
    /// The policies, in the order in which they decide. Without any, nothing is kept late.
    pub rules: Vec<Rule>,
    /// The dropped traces that are recorded provisionally.
    pub provisional: ProvisionalMode,
    /// The same for single keys.
    pub provisional_by_key: Vec<(String, ProvisionalMode)>,
    /// The ring's size: the bytes of recorded traces that no policy has kept, both open ones and
    /// ended ones within [`Tail::held_for`].
    pub ring_bytes: usize,
    /// The time for which an ended trace that no policy kept stays in the ring, for late triggers.
    /// With zero it is dropped at once. By default two seconds, and [beside
    /// strata](Tail::beside_strata) 30.
    pub hold: Option<Nanos>,
    /// The boost of a key's head probability after an error or a slow root; none by default.
    pub boost: Option<Boost>,
    /// For policies such as `slow:p99`, the durations from which roots of a key are slow while the
    /// key has too few recent calls; learnt from a recording.
    pub slow_from: Vec<SlowFrom>,
}

/// The duration from which roots of a key are slow, while the key has too few recent calls for the
/// quantile.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowFrom {
    /// The key.
    pub key: String,
    /// The quantile.
    pub quantile: Quantile,
    /// The duration.
    pub from: Nanos,
}

impl Default for Tail {
    /// No policies; armed keys are recorded; a ring of 32 MiB; held for two seconds.
    fn default() -> Self {
        Tail {
            rules: Vec::new(),
            provisional: ProvisionalMode::default(),
            provisional_by_key: Vec::new(),
            ring_bytes: 32 << 20,
            hold: None,
            boost: None,
            slow_from: Vec::new(),
        }
    }
}

impl Tail {
    /// The greatest number of policies: the index of the one that kept a trace is stored in a byte.
    pub const RULES_MAX: usize = 64;
    /// The greatest number of spans recorded per trace.
    pub const TRACE_SPANS_MAX: usize = 10_000;
    /// A trace takes at most the ring's bytes divided by this.
    pub const TRACE_PART: usize = 4;
    /// The age at which the policies decide about a trace although its root is open, unless the
    /// service sets another one.
    pub const TRACE_AGE_MAX: Nanos = Nanos::from_secs(30);

    /// Settings with these policies, in this order; at most [`Tail::RULES_MAX`].
    pub fn new(rules: impl Into<Vec<Rule>>) -> Self {
        Tail { rules: rules.into(), ..Tail::default() }
    }

    /// Returns true if there are no policies, so that nothing is kept late.
    pub fn is_none(&self) -> bool {
        self.rules.is_empty()
    }

    /// Sets which dropped traces are recorded provisionally; by default those of armed keys.
    #[must_use]
    pub fn with_provisional(self, provisional: ProvisionalMode) -> Self {
        Tail { provisional, ..self }
    }

    /// Sets the same for one key.
    #[must_use]
    pub fn with_provisional_of(mut self, key: impl Into<String>, provisional: ProvisionalMode) -> Self {
        let key = key.into();
        self.provisional_by_key.retain(|(known, _)| *known != key);
        self.provisional_by_key.push((key, provisional));
        self
    }

    /// Sets the ring's size in bytes; 32 MiB by default.
    #[must_use]
    pub fn with_ring_bytes(self, ring_bytes: usize) -> Self {
        Tail { ring_bytes, ..self }
    }

    /// Raises a key's head probability for a while after an error or a slow root.
    #[must_use]
    pub fn with_boost(self, boost: Boost) -> Self {
        Tail { boost: Some(boost), ..self }
    }

    /// Sets how long an ended trace that no policy kept stays in the ring; two seconds by default.
    #[must_use]
    pub fn with_hold(self, hold: Nanos) -> Self {
        Tail { hold: Some(hold), ..self }
    }

    /// These policies beside strata, with which ended traces are held for 30 seconds by default:
    /// their parts in called processes wait for the end of the slowest roots.
    #[must_use]
    pub fn beside_strata(self) -> Self {
        let hold = self.hold.unwrap_or(Nanos::from_secs(30));
        self.with_hold(hold)
    }

    /// The time for which an ended trace that no policy kept stays in the ring.
    pub fn held_for(&self) -> Nanos {
        self.hold.unwrap_or(Nanos::from_secs(2))
    }
}
