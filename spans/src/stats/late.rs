//! Counts of late keeping.

use std::fmt;

use astracer_samplers::strata::StrataCounts;
use astracer_samplers::tail::PolicyCounts;

use super::reasons::{GivenUpTraces, write_reasons};

/// Faults of a policy function supplied by the service: see [`TailStats::own_faults`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnPolicyFaults {
    /// The policy's name.
    pub name: String,
    /// Panics; a panic counts as not wanting the trace.
    pub panics: u64,
    /// Calls that took more than 10 ms.
    pub slow: u64,
    /// Whether the policy is switched off, which happens after 16 faults.
    pub switched_off: bool,
}

/// Counts of traces that the head sampler dropped and that were recorded still: part of
/// [`Stats`](crate::stats::Stats).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TailStats {
    /// Traces kept late, for any reason.
    pub kept: u64,
    /// The policies in order, with what each kept and what its budget refused.
    pub policies: Vec<PolicyCounts>,
    /// The decisions of strata; `None` without strata.
    pub strata: Option<StrataCounts>,
    /// Traces kept by `Handle::keep` and
    /// `Handle::keep_where`.
    pub kept_by_hand: u64,
    /// Traces kept because a caller kept its part.
    pub kept_by_caller: u64,
    /// Requested traces that were not found and did not arrive later. They had left, are still
    /// open, or were never recorded for late keeping here, such as traces that the head sampler
    /// keeps.
    pub not_there: u64,
    /// Traces that callers requested beyond 100 per second, beyond the 16 of one list, or with a
    /// malformed id.
    pub refused_callers: u64,
    /// Traces that were kept late and not announced to a peer of `KeepCallsLayer`, counted for each
    /// such peer. They are those beyond the last 1,024 since the previous request, those in a
    /// request that got no response although a later request already announced more, and those
    /// that wait for the next request when the shutdown ends.
    pub unannounced: u64,
    /// Recorded traces whose local root is open.
    pub traces_open: u64,
    /// Traces in the ring: ended, and not kept so far.
    pub traces_held: u64,
    /// Spans of the traces in the ring.
    pub spans_held: u64,
    /// Bytes of the ring's budget that open and held traces use.
    pub ring_bytes: u64,
    /// The size of the ring's budget, in bytes.
    pub ring_bytes_max: u64,
    /// Recorded spans that were given up, by reason.
    pub spans_given_up: GivenUpTraces,
    /// Recorded traces that were given up, by reason.
    pub traces_given_up: GivenUpTraces,
    /// Roots that were to be recorded when no slot for another open trace was free: see
    /// `Builder::with_open_traces_max`.
    pub without_slot: u64,
    /// Roots decided by the `ShouldSample` implementation.
    /// Another SDK records their spans, so no policy sees them and no outcome is counted.
    pub roots_elsewhere: u64,
    /// Faults of policy functions supplied by the service.
    pub own_faults: Vec<OwnPolicyFaults>,
    /// Shapes that were evicted within an hour: if they occur again, they count as odd.
    pub shapes_forgotten: u64,
    /// Boosts that have begun: see [`Boost`](astracer_samplers::tail::Boost).
    pub boosts: u64,
}

impl fmt::Display for TailStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(StrataCounts { decided, kept, refused, strata, .. }) = self.strata {
            write!(f, "{kept} of {decided} recorded traces kept by {strata} strata")?;
            if refused > 0 {
                write!(f, ", {refused} refused by the cap")?;
            }
            f.write_str("; ")?;
        }
        write!(f, "{} traces kept late", self.kept)?;
        let mut before = " (";
        for PolicyCounts { policy, budget, kept, refused, .. } in &self.policies {
            write!(f, "{before}{policy}: {kept} kept")?;
            if *refused > 0 {
                write!(f, ", {refused} refused by its budget {budget}")?;
            }
            before = "; ";
        }
        for (by, kept) in [("by hand", self.kept_by_hand), ("for callers", self.kept_by_caller)] {
            if kept > 0 {
                write!(f, "{before}{by}: {kept} kept")?;
                before = "; ";
            }
        }
        f.write_str(if before == "; " { ")" } else { "" })?;
        write!(f, ", {} held, {} given up", self.traces_held, self.traces_given_up.total())?;
        write_reasons(f, self.traces_given_up.iter())?;
        write!(f, "; ring {} of {} bytes", self.ring_bytes, self.ring_bytes_max)?;
        if self.without_slot > 0 {
            write!(f, "; {} not recorded for want of a slot", self.without_slot)?;
        }
        if self.boosts > 0 { write!(f, "; {} boosts", self.boosts) } else { Ok(()) }
    }
}
