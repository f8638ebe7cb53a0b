//! A fixed threshold for every key: gives the samplers `always` and `ratio` a record table when a
//! cap needs one.

use std::fmt;

use crate::decision::Reason;
use crate::nanos::LATE_MAX;
use crate::nanos::Nanos;
use crate::policy::{Policy, Step, Write};
use crate::threshold::Threshold;

/// The record's word is that of [`LastCall`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fixed {
    threshold: Threshold,
    slot: usize,
}

/// The word of a key whose calls are not counted: the time of its last call, in units of 2^30 ns
/// (about a second), so that threads write it at most once per unit. The word changes no decision;
/// it keeps a key in use from losing its record, and with it its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastCall;

const UNIT_BITS: u32 = 30;
/// [`LATE_MAX`] in these units, rounded up.
const LATE_UNITS: u64 = (LATE_MAX.get() >> UNIT_BITS) + 1;

impl LastCall {
    pub(crate) fn fresh(now: Nanos) -> u64 {
        now.get() >> UNIT_BITS
    }

    #[inline]
    pub(crate) fn write(word: u64, now: Nanos) -> Write {
        let called = now.get() >> UNIT_BITS;
        if called == word || (called < word && word - called <= LATE_UNITS) {
            Write::Nothing
        } else {
            Write::Word(called)
        }
    }

    /// The time since the key's last call.
    pub(crate) fn idle(word: u64, now: Nanos) -> Nanos {
        if word > (now.get() >> UNIT_BITS) + LATE_UNITS {
            // The clock was set back.
            return Nanos::new(u64::MAX);
        }
        now.saturating_sub(Nanos::new((word + 1) << UNIT_BITS))
    }
}

impl Fixed {
    pub(crate) const ALWAYS: Fixed = Fixed { threshold: Threshold::ALWAYS, slot: 1 };

    pub(crate) fn ratio(threshold: Threshold) -> Self {
        Fixed { threshold, slot: 0 }
    }
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.threshold, self.slot)
    }
}

impl Policy for Fixed {
    const REASONS: [Reason; 2] = [Reason::Ratio, Reason::Always];
    const BY_CHANCE: bool = true;

    fn offset(&self, _hash: u64) -> Nanos {
        Nanos::ZERO
    }

    fn fresh(&self, now: Nanos, _offset: Nanos) -> u64 {
        LastCall::fresh(now)
    }

    fn step(&self, word: u64, now: Nanos, _offset: Nanos) -> Step {
        Step { threshold: self.threshold.get(), slot: self.slot, write: LastCall::write(word, now) }
    }

    fn batch(&self, word: u64, _calls: u64, _now: Nanos, _offset: Nanos) -> u64 {
        word
    }

    fn carried(&self, _old: &Self, word: u64, _now: Nanos, _offset: Nanos) -> u64 {
        word
    }

    fn idle(&self, word: u64, now: Nanos, _offset: Nanos) -> Nanos {
        LastCall::idle(word, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_idle_from_its_last_call_on() {
        let secs = Nanos::from_secs;
        let word = LastCall::fresh(secs(100));
        // 100 s are 93.1 units of 2^30 ns; the unit in progress ends at 100.9 s.
        let end = 94 << UNIT_BITS;
        assert_eq!(LastCall::write(word, Nanos::new(end - 1)), Write::Nothing);
        assert_eq!(LastCall::write(word, Nanos::new(end)), Write::Word(94));
        assert_eq!(LastCall::write(word, secs(40)), Write::Nothing, "late");
        assert_eq!(LastCall::write(word, secs(30)), Write::Word(27), "the clock was set back");
        assert_eq!(LastCall::idle(word, secs(100)), Nanos::ZERO);
        assert_eq!(LastCall::idle(word, Nanos::new(end + 5)), Nanos::new(5));
        assert_eq!(LastCall::idle(word, secs(40)), Nanos::ZERO, "late");
        assert_eq!(LastCall::idle(word, secs(30)), Nanos::new(u64::MAX), "the clock was set back");
    }
}
