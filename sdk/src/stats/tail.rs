//! Counts of traces that are kept late.

use std::fmt;

use astracer_samplers::tail::PolicyCounts;

/// The reason why a recorded trace that the head sampler dropped is given up: see
/// [`GivenUpTraces`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    Unwanted,
    Refused,
    RingFull,
    Cut,
    Late,
    ShutDown,
}

impl GivenUp {
    /// Every reason, in the order of the discriminants, with the name of its field.
    pub(crate) const ALL: [(GivenUp, &'static str); 6] = [
        (GivenUp::Unwanted, "unwanted"),
        (GivenUp::Refused, "refused"),
        (GivenUp::RingFull, "ring_full"),
        (GivenUp::Cut, "cut"),
        (GivenUp::Late, "late"),
        (GivenUp::ShutDown, "shut_down"),
    ];
}

/// The faults of a policy that is a function of the service's: see [`TailStats::own_faults`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnPolicyFaults {
    /// The policy's name.
    pub name: String,
    /// Its panics: it did not want those traces.
    pub panics: u64,
    /// Calls that took more than 10 ms.
    pub slow: u64,
    /// Whether it is switched off: after 16 of these.
    pub switched_off: bool,
}

/// Counts of traces that the head sampler dropped and that were recorded all the same: part of
/// [`Stats`](crate::Stats).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TailStats {
    /// The policies in their order, with what each kept and what its budget refused.
    pub policies: Vec<PolicyCounts>,
    /// Traces kept by [`Handle::keep`](crate::Handle::keep) and
    /// [`Handle::keep_where`](crate::Handle::keep_where).
    pub kept_by_hand: u64,
    /// Traces kept because a caller kept its part.
    pub kept_by_caller: u64,
    /// Traces that somebody asked for and that have not come: they had left, are still open, or
    /// were never recorded late here, as those that the head sampler keeps.
    pub not_there: u64,
    /// Traces that callers asked for above 100 a second, or beyond the 16 of one list, or by what
    /// is no id.
    pub refused_callers: u64,
    /// Traces that were kept late and that a peer of `KeepCallsLayer` was not told of, for each
    /// such peer: those beyond the last 16 since the request before, and those of a request without
    /// an answer when a later one has told more. Those that wait for the next request are not among
    /// them yet.
    pub untold: u64,
    /// Recorded traces whose local root is open.
    pub traces_open: u64,
    /// Traces in the ring: ended, and kept by nobody so far.
    pub traces_held: u64,
    /// Their spans.
    pub spans_held: u64,
    /// Bytes of open and of held traces, of those of the ring.
    pub ring_bytes: u64,
    /// The most that they may take.
    pub ring_bytes_max: u64,
    /// Recorded spans that were given up, by reason.
    pub spans_given_up: GivenUpTraces,
    /// Recorded traces that were given up, by reason.
    pub traces_given_up: GivenUpTraces,
    /// Roots that were to be recorded when there was no slot for one more open trace: see
    /// [`Builder::with_open_traces_max`](crate::Builder::with_open_traces_max).
    pub without_slot: u64,
    /// Roots that the [`ShouldSample`](crate::AstracerSampler) decided about, with or without the
    /// gate: their spans are recorded by another SDK, so that no policy sees how they end and no
    /// outcome is counted.
    pub roots_elsewhere: u64,
    /// Faults of policies that are functions of the service's.
    pub own_faults: Vec<OwnPolicyFaults>,
    /// Shapes that made room for others within an hour: they count as odd when they come again.
    pub shapes_forgotten: u64,
}

/// Recorded traces or spans that were given up, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GivenUpTraces {
    /// No policy wanted the trace, and nobody asked for it while it was held.
    pub unwanted: u64,
    /// A policy wanted the trace, or had kept it before the span ended, and its budget was used up.
    pub refused: u64,
    /// The ring was full.
    pub ring_full: u64,
    /// The span came when its trace had as many as it may have.
    pub cut: u64,
    /// The span ended when its trace had been given up.
    pub late: u64,
    /// The service was shut down.
    pub shut_down: u64,
}

impl GivenUpTraces {
    /// The sum of all reasons.
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }

    /// Iterates over the reasons, by the names of the fields.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        GivenUp::ALL.into_iter().map(|(reason, name)| (name, *self.clone().of(reason)))
    }

    pub(crate) fn of(&mut self, reason: GivenUp) -> &mut u64 {
        match reason {
            GivenUp::Unwanted => &mut self.unwanted,
            GivenUp::Refused => &mut self.refused,
            GivenUp::RingFull => &mut self.ring_full,
            GivenUp::Cut => &mut self.cut,
            GivenUp::Late => &mut self.late,
            GivenUp::ShutDown => &mut self.shut_down,
        }
    }
}

impl fmt::Display for TailStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_policy = self.policies.iter().map(|policy| policy.kept).sum::<u64>();
        write!(f, "{} traces kept late (", by_policy + self.kept_by_hand + self.kept_by_caller)?;
        for (at, PolicyCounts { policy, budget, kept, refused, .. }) in self.policies.iter().enumerate() {
            write!(f, "{}{policy}: {kept} kept", if at == 0 { "" } else { "; " })?;
            if *refused > 0 {
                write!(f, ", {refused} refused by its budget {budget}")?;
            }
        }
        for (by, kept) in [("by hand", self.kept_by_hand), ("for callers", self.kept_by_caller)] {
            if kept > 0 {
                write!(f, "; {by}: {kept} kept")?;
            }
        }
        write!(f, "), {} held, {} given up", self.traces_held, self.traces_given_up.total())?;
        let mut sign = " (";
        for (name, traces) in self.traces_given_up.iter().filter(|(_, traces)| *traces > 0) {
            write!(f, "{sign}{name} {traces}")?;
            sign = ", ";
        }
        let end = if sign == ", " { ")" } else { "" };
        write!(f, "{end}; ring {} of {} bytes", self.ring_bytes, self.ring_bytes_max)
    }
}
