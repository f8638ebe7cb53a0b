//! Bump's parameters, compiled into a policy.

use super::common::REASONS;
use super::curve::{Curves, TABLES};
use super::decaying::Decaying;
use super::knee::Knee;
use super::tumbling::Tumbling;
use super::{Bump, Count};
use crate::decision::Reason;
use crate::fixed::LastCall;
use crate::nanos::Nanos;
use crate::pace::{CALL, Pace};
use crate::policy::{Policy, Step};
use crate::threshold::Threshold;

/// One set of bump's parameters, with any count. A sampler whose counts are all tumbling uses
/// [`Tumbling`] directly: matching on this enum costs 16 of a decision's 283 instructions.
#[derive(Debug)]
pub(crate) enum BumpPolicy {
    Tumbling(Tumbling),
    Decaying(Decaying),
    /// A decaying count whose time is the table's pace.
    Paced(Decaying),
    Knee(Knee),
    /// Every call has this threshold; the record's word is that of [`LastCall`].
    Uncounted(u64),
}

impl BumpPolicy {
    /// `shards` is the number of parts in which calls are counted, a power of two.
    pub(crate) fn new(bump: &Bump, curves: &Curves, shards: u32) -> Self {
        match (bump.count(), bump.share()) {
            (Count::Tumbling { window, .. }, _) => {
                BumpPolicy::Tumbling(Tumbling::new(bump, window, curves, shards))
            }
            (Count::Decaying { half_life }, _) => {
                BumpPolicy::Decaying(Decaying::new(bump, half_life, curves, shards))
            }
            (Count::Paced { half_life }, _) => {
                BumpPolicy::Paced(Decaying::new(bump, Nanos::new(half_life * CALL), curves, shards))
            }
            (Count::Uncounted, Some(share)) => BumpPolicy::Knee(Knee::new(bump.minimum(), share, &TABLES)),
            (Count::Uncounted, None) => {
                BumpPolicy::Uncounted(Threshold::from_probability(bump.minimum()).get())
            }
        }
    }

    /// As [`Policy::carried`], from a table in which all counts were tumbling.
    pub(crate) fn carried_from_tumbling(&self, old: &Tumbling, word: u64, now: Nanos, offset: Nanos) -> u64 {
        match self {
            BumpPolicy::Tumbling(tumbling) => tumbling.carried(old, word, now, offset),
            // The word of another count has another meaning.
            _ => self.fresh(now, offset),
        }
    }

    /// The policy of a sampler with one set of parameters.
    #[cfg(test)]
    pub(crate) fn lone(bump: &Bump, shards: u32) -> Self {
        Self::new(bump, &Curves::new([bump].into_iter()), shards)
    }
}

impl Policy for BumpPolicy {
    const REASONS: [Reason; 2] = REASONS;
    const BY_CHANCE: bool = true;
    const PACED: bool = true;

    #[inline]
    fn reading(&self, now: Nanos, offset: Nanos, pace: &Pace) -> (Nanos, Nanos) {
        match self {
            BumpPolicy::Knee(_) | BumpPolicy::Paced(_) => (pace.time(now), Nanos::new(pace.absent_log2())),
            _ => (now, offset),
        }
    }

    fn is_paced(&self) -> bool {
        matches!(self, BumpPolicy::Knee(_) | BumpPolicy::Paced(_))
    }

    fn share(&self) -> u64 {
        let share = match self {
            BumpPolicy::Knee(knee) => Some(knee.share()),
            BumpPolicy::Paced(decaying) => decaying.share(),
            _ => None,
        };
        share.map_or(0, |share| (share.get() * (1u64 << 40) as f64) as u64)
    }

    fn offset(&self, hash: u64) -> Nanos {
        match self {
            BumpPolicy::Tumbling(tumbling) => tumbling.offset(hash),
            BumpPolicy::Decaying(decaying) | BumpPolicy::Paced(decaying) => decaying.offset(hash),
            BumpPolicy::Knee(_) | BumpPolicy::Uncounted(_) => Nanos::ZERO,
        }
    }

    fn fresh(&self, now: Nanos, offset: Nanos) -> u64 {
        match self {
            BumpPolicy::Tumbling(tumbling) => tumbling.fresh(now, offset),
            BumpPolicy::Decaying(decaying) | BumpPolicy::Paced(decaying) => decaying.fresh(now, offset),
            BumpPolicy::Knee(_) => Knee::fresh(now),
            BumpPolicy::Uncounted(_) => LastCall::fresh(now),
        }
    }

    #[inline]
    fn step(&self, word: u64, now: Nanos, offset: Nanos) -> Step {
        match self {
            BumpPolicy::Tumbling(tumbling) => tumbling.step(word, now, offset),
            BumpPolicy::Decaying(decaying) | BumpPolicy::Paced(decaying) => decaying.step(word, now, offset),
            BumpPolicy::Knee(knee) => knee.step(word, now, offset.get()),
            BumpPolicy::Uncounted(threshold) => {
                Step { threshold: *threshold, slot: 1, write: LastCall::write(word, now) }
            }
        }
    }

    fn batch(&self, word: u64, calls: u64, now: Nanos, offset: Nanos) -> u64 {
        match self {
            BumpPolicy::Tumbling(tumbling) => tumbling.batch(word, calls, now, offset),
            BumpPolicy::Decaying(decaying) | BumpPolicy::Paced(decaying) => {
                decaying.batch(word, calls, now, offset)
            }
            BumpPolicy::Knee(_) | BumpPolicy::Uncounted(_) => word,
        }
    }

    fn carried(&self, old: &Self, word: u64, now: Nanos, offset: Nanos) -> u64 {
        match (self, old) {
            (_, BumpPolicy::Tumbling(old)) => self.carried_from_tumbling(old, word, now, offset),
            (BumpPolicy::Decaying(decaying), BumpPolicy::Decaying(old))
            | (BumpPolicy::Paced(decaying), BumpPolicy::Paced(old)) => {
                decaying.carried(old, word, now, offset)
            }
            // A knee's word does not depend on its parameters.
            (BumpPolicy::Knee(_), BumpPolicy::Knee(_))
            | (BumpPolicy::Uncounted(_), BumpPolicy::Uncounted(_)) => word,
            // The word of another count has another meaning.
            _ => self.fresh(now, offset),
        }
    }

    fn idle(&self, word: u64, now: Nanos, offset: Nanos) -> Nanos {
        match self {
            BumpPolicy::Tumbling(tumbling) => tumbling.idle(word, now, offset),
            BumpPolicy::Decaying(decaying) | BumpPolicy::Paced(decaying) => decaying.idle(word, now, offset),
            BumpPolicy::Knee(_) => Knee::idle(word, now),
            BumpPolicy::Uncounted(_) => LastCall::idle(word, now),
        }
    }

    fn idle_nanos(&self, idle: Nanos, pace: &Pace) -> Nanos {
        if self.is_paced() { pace.nanos(idle) } else { idle }
    }
}
