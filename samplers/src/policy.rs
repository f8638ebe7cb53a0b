//! The pure part of a sampler that decides by key: from a record's word and a call to a decision
//! and the next word.
//!
//! A record keeps the state of a key in 64 bits, so that one compare-exchange is all the
//! synchronisation it needs. A policy says what a call makes of that word. It sees no atomics, and
//! the record table sees no formulas.

use crate::decision::Reason;
use crate::nanos::Nanos;
use crate::pace::Pace;
use crate::threshold::Threshold;

/// One more than the largest threshold: no randomness reaches it.
pub(crate) const NEVER: u64 = Threshold::MAX.get() + 1;

/// The effect of one call on a record's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The call is kept if the randomness is at least this: a threshold, or [`NEVER`].
    pub(crate) threshold: u64,
    /// The index in [`Policy::REASONS`] of the decision's reason.
    pub(crate) slot: usize,
    /// The change of the word.
    pub(crate) write: Write,
}

/// The write of a call to a record's word, which other threads read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// Nothing: the word means the same after the call.
    Nothing,
    /// This word.
    Word(u64),
    /// One write for this number of calls, a power of two. It is due each time the tally of the
    /// calling thread's shard reaches a multiple of that number.
    Batch(u64),
}

/// A sampler that decides by key.
pub(crate) trait Policy {
    /// The reasons for decisions, in the order of [`Step::slot`].
    const REASONS: [Reason; 2];
    /// True if decisions are made by chance, so that the threshold gives a weight.
    const BY_CHANCE: bool;
    /// True if some policies of this type read the table's pace.
    const PACED: bool = false;

    /// The time and the shift that this policy's other functions get for a call at `now`. A policy
    /// that follows the table's pace replaces the time by the pace's.
    #[inline]
    fn reading(&self, now: Nanos, offset: Nanos, _pace: &Pace) -> (Nanos, Nanos) {
        (now, offset)
    }

    /// Whether [`Policy::reading`] depends on the pace, so that calls must be counted for it.
    fn is_paced(&self) -> bool {
        false
    }

    /// The recorded share of calls of a key with this policy, in units of 2^-40; 0 if it has none.
    fn share(&self) -> u64 {
        0
    }

    /// The shift of a key's windows, computed when the key gets its record or new parameters. It
    /// depends on the hash, because the record does not hold all of a long key.
    fn offset(&self, hash: u64) -> Nanos;

    /// The word of a record that has seen no call.
    fn fresh(&self, now: Nanos, offset: Nanos) -> u64;

    /// One call at `now`.
    fn step(&self, word: u64, now: Nanos, offset: Nanos) -> Step;

    /// The word after a batch of calls that [`Write::Batch`] asked for, at `now`.
    fn batch(&self, word: u64, calls: u64, now: Nanos, offset: Nanos) -> u64;

    /// The word with which a record continues when these parameters replace `old` ones.
    fn carried(&self, old: &Self, word: u64, now: Nanos, offset: Nanos) -> u64;

    /// The tokens in the record's bucket; `None` if the policy has no buckets.
    fn tokens(&self, _word: u64, _now: Nanos) -> Option<f64> {
        None
    }

    /// The time for which the word has meant the same as a fresh one; zero if it does not. Only
    /// then may a key lose its record: forgetting it earlier would let the key keep more than its
    /// policy allows. Where the word holds no count, this is the time since the key's last call. A
    /// key in use would otherwise lose its record, and be decided by the overflow record's
    /// parameters until it gets another.
    fn idle(&self, word: u64, now: Nanos, offset: Nanos) -> Nanos;

    /// The result of [`Policy::idle`] in ns.
    fn idle_nanos(&self, idle: Nanos, _pace: &Pace) -> Nanos {
        idle
    }
}
