//! The header of a trace: the fields that all of its spans share.

use opentelemetry::{TraceFlags, TraceId};

use crate::clock::Ticks;
use crate::trace_state::State;

#[derive(Clone, Debug)]
pub struct Header {
    pub trace_id: TraceId,
    pub flags: TraceFlags,
    pub state: State,
    /// The start of the trace's local root. All spans of a trace are dated from one reading of the
    /// clock.
    pub began: Ticks,
    pub kept_by: KeepReason,
    /// The number of spans that were cut from a trace that was kept late.
    pub cut: u32,
    /// Whether the outcome of a trace of the head sampler changed its threshold.
    pub is_reweighed: bool,
}

impl Default for Header {
    /// An invalid trace id, without flags.
    fn default() -> Self {
        Header {
            trace_id: TraceId::INVALID,
            flags: TraceFlags::default(),
            state: State::EMPTY,
            began: 0,
            kept_by: KeepReason::HEAD,
            cut: 0,
            is_reweighed: false,
        }
    }
}

impl Header {
    /// Counts spans that were cut; the root reports the number.
    pub fn cut_some(&mut self, more: u64) {
        self.cut = self.cut.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
    }
}

/// The reason for keeping a trace: the head sampler, or one of the reasons for late keeping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepReason(u8);

impl KeepReason {
    pub const HEAD: KeepReason = KeepReason(0);
    /// `Handle::keep` and similar calls.
    pub const HAND: KeepReason = KeepReason(1);
    /// A caller that kept its part of the trace.
    pub const CALLER: KeepReason = KeepReason(2);
    /// The trace's stratum.
    pub const STRATUM: KeepReason = KeepReason(3);
    const POLICIES: u8 = 4;

    pub fn policy(index: usize) -> Self {
        KeepReason(u8::try_from(index).unwrap_or(u8::MAX - Self::POLICIES).saturating_add(Self::POLICIES))
    }

    pub fn is_late(self) -> bool {
        self != Self::HEAD
    }

    /// The index in the list of reason names: hand, caller, stratum, then the policies. `None` for
    /// the head sampler.
    pub fn index(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }

    pub fn policy_index(self) -> Option<usize> {
        usize::from(self.0).checked_sub(usize::from(Self::POLICIES))
    }
}
