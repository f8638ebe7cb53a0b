//! Bump, made ready for deciding.

use super::curve::{Curve, Curves};
use super::decaying::Decaying;
use super::tumbling::Tumbling;
use super::{Bump, Count};
use crate::decision::Reason;
use crate::nanos::Nanos;
use crate::policy::{Policy, Step};

/// One set of bump's parameters.
#[derive(Debug)]
pub(crate) struct BumpPolicy {
    bump: Bump,
    curve: Curve,
    counting: Counting,
}

#[derive(Debug)]
enum Counting {
    Tumbling(Tumbling),
    Decaying(Decaying),
}

impl BumpPolicy {
    /// `shards`: the number of parts in which calls are counted, a power of two.
    pub(crate) fn new(bump: &Bump, curves: &Curves, shards: u32) -> Self {
        // A batch is x / 1024 over 2 * shards.
        let batch_bits = 11 + shards.ilog2();
        let counting = match bump.count() {
            Count::Tumbling { window, .. } => Counting::Tumbling(Tumbling::new(window, batch_bits)),
            Count::Decaying { half_life } => Counting::Decaying(Decaying::new(half_life, batch_bits)),
        };
        BumpPolicy { bump: bump.clone(), curve: curves.of(bump), counting }
    }

    /// The only parameters of a sampler.
    #[cfg(test)]
    pub(crate) fn lone(bump: &Bump, shards: u32) -> Self {
        Self::new(bump, &Curves::new([bump].into_iter()), shards)
    }
}

impl Policy for BumpPolicy {
    const REASONS: [Reason; 2] = [Reason::Bump, Reason::BumpMinimum];
    const BY_CHANCE: bool = true;

    fn offset(&self, key: &str) -> Nanos {
        self.bump.shift(key)
    }

    fn fresh(&self, now: Nanos, offset: Nanos) -> u64 {
        match &self.counting {
            Counting::Tumbling(tumbling) => tumbling.fresh(now, offset),
            Counting::Decaying(decaying) => decaying.fresh(now),
        }
    }

    #[inline]
    fn step(&self, word: u64, now: Nanos, offset: Nanos) -> Step {
        match &self.counting {
            Counting::Tumbling(tumbling) => tumbling.step(&self.curve, word, now, offset),
            Counting::Decaying(decaying) => decaying.step(&self.curve, word, now),
        }
    }

    fn batch(&self, word: u64, calls: u64, now: Nanos, offset: Nanos) -> u64 {
        match &self.counting {
            Counting::Tumbling(tumbling) => tumbling.batch(word, calls, now, offset),
            Counting::Decaying(decaying) => decaying.batch(&self.curve, word, calls, now),
        }
    }

    fn idle(&self, word: u64, now: Nanos, offset: Nanos) -> Nanos {
        match &self.counting {
            Counting::Tumbling(tumbling) => tumbling.idle(word, now, offset),
            Counting::Decaying(decaying) => decaying.idle(word, now),
        }
    }
}
