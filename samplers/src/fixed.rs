//! A fixed threshold for every key: for samplers that know no keys, where a cap does.

use std::fmt;

use crate::decision::Reason;
use crate::nanos::Nanos;
use crate::policy::{Policy, Step, Write};
use crate::threshold::Threshold;

/// The word: when the key was last called, in units of 2^30 ns, about a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fixed {
    threshold: Threshold,
    slot: usize,
}

const UNIT_BITS: u32 = 30;

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
        now.get() >> UNIT_BITS
    }

    fn step(&self, word: u64, now: Nanos, _offset: Nanos) -> Step {
        let called = now.get() >> UNIT_BITS;
        let write = if called > word { Write::Word(called) } else { Write::Nothing };
        Step { threshold: self.threshold.get(), slot: self.slot, write }
    }

    fn batch(&self, word: u64, _calls: u64, _now: Nanos, _offset: Nanos) -> u64 {
        word
    }

    fn carried(&self, _old: &Self, word: u64, _now: Nanos, _offset: Nanos) -> u64 {
        word
    }

    fn idle(&self, word: u64, now: Nanos, _offset: Nanos) -> Nanos {
        now.saturating_sub(Nanos::new((word + 1) << UNIT_BITS))
    }
}
