//! A policy: the pure function from a record's word and a call to a decision and the next word.
//!
//! A record keeps the state of a key in 64 bits, so that one compare-exchange is the whole of its
//! concurrency. A policy says what a call makes of that word; it sees no atomics, and the record
//! table sees no formulas.

use crate::decision::Reason;
use crate::nanos::Nanos;
use crate::threshold::Threshold;

/// The distance by which a caller's `now` may lie behind the latest one and still count as a
/// thread's that read its clock and was then suspended. Further back, the clock itself was set
/// back, and records begin anew; otherwise a clock that once jumped ahead would hold them in the
/// future until it got there again.
pub(crate) const LATE_MAX: Nanos = Nanos::from_secs(60);

/// One past the largest threshold: no randomness reaches it.
pub(crate) const NEVER: u64 = Threshold::MAX.get() + 1;

/// The effect of a call on a record's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Keep iff the randomness is at least this: a threshold, or [`NEVER`].
    pub(crate) threshold: u64,
    /// Which of the policy's reasons decided.
    pub(crate) slot: usize,
    /// The change of the word.
    pub(crate) write: Write,
}

/// The write of a call to a record's word, which other threads read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// Nothing: the word says the same after the call.
    Nothing,
    /// This word.
    Word(u64),
    /// This number of calls at once, a power of two, when the calling thread's shard has made as
    /// many since its last write.
    Batch(u64),
}

/// A sampler that decides by key.
pub(crate) trait Policy {
    /// The causes of decisions, in the order of [`Step::slot`].
    const REASONS: [Reason; 2];
    /// True if decisions are made by chance, so that the threshold is a true weight.
    const BY_CHANCE: bool;

    /// The shift of the windows of a key with this hash, computed when it gets its record or other
    /// parameters: the record does not hold all of a long key.
    fn offset(&self, hash: u64) -> Nanos;

    /// The word of a record that nobody has called yet.
    fn fresh(&self, now: Nanos, offset: Nanos) -> u64;

    /// One call at `now`.
    fn step(&self, word: u64, now: Nanos, offset: Nanos) -> Step;

    /// The word after a batch of calls that [`Write::Batch`] asked for, made at `now`.
    fn batch(&self, word: u64, calls: u64, now: Nanos, offset: Nanos) -> u64;

    /// The word that a record goes on with when its key is given these parameters instead of `old`
    /// ones.
    fn carried(&self, old: &Self, word: u64, now: Nanos, offset: Nanos) -> u64;

    /// The tokens in a record's bucket, if it is one.
    fn tokens(&self, _word: u64, _now: Nanos) -> Option<f64> {
        None
    }

    /// For how long the word has said the same as a fresh one: zero if it does not. A key may lose
    /// its record only then, or forgetting it would give it more than its policy allows. Where a
    /// word never says anything, for how long the key has not been called: one in use would be
    /// decided by the overflow record's parameters until it is back.
    fn idle(&self, word: u64, now: Nanos, offset: Nanos) -> Nanos;
}
