//! A record: the state of one key, and the key.

use super::key::Key;
use crate::nanos::Nanos;
use crate::pace::Pace;
use crate::policy::{Policy, Step, Write};
use crate::sync::{AtomicU64, Ordering};

/// Two cache lines. While a key has the record, calls change only the word; parameters change under
/// the table's lock.
///
/// All fields are relaxed atomics. The index publishes a newly opened record: its Release store of
/// the entry comes after [`Record::open`], and readers find the entry with an Acquire load.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Record {
    word: AtomicU64,
    hash: AtomicU64,
    policy: AtomicU64,
    offset: AtomicU64,
    key: Key,
}

impl Record {
    pub(super) fn new() -> Self {
        Record {
            word: AtomicU64::new(0),
            hash: AtomicU64::new(0),
            policy: AtomicU64::new(0),
            offset: AtomicU64::new(0),
            key: Key::new(),
        }
    }

    /// Assigns the record to a key. Called under the table's lock, before the index publishes it.
    pub(super) fn open(&self, hash: u64, key: &str, policy: u32, offset: Nanos, word: u64) {
        self.hash.store(hash, Ordering::Relaxed);
        self.policy.store(u64::from(policy), Ordering::Relaxed);
        self.offset.store(offset.get(), Ordering::Relaxed);
        self.key.set(key);
        self.word.store(word, Ordering::Relaxed);
    }

    /// As [`Record::open`], with a key from [`Record::raw_key`] and the default parameters.
    pub(super) fn open_raw(&self, hash: u64, key: [u64; Key::NUMBERS], offset: Nanos, word: u64) {
        self.hash.store(hash, Ordering::Relaxed);
        self.policy.store(0, Ordering::Relaxed);
        self.offset.store(offset.get(), Ordering::Relaxed);
        self.key.set_raw(key);
        self.word.store(word, Ordering::Relaxed);
    }

    pub(super) fn raw_key(&self) -> [u64; Key::NUMBERS] {
        self.key.raw()
    }

    pub(super) fn set_policy(&self, policy: u32) {
        self.policy.store(u64::from(policy), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is(&self, hash: u64, key: &str) -> bool {
        self.hash.load(Ordering::Relaxed) == hash && self.key.is(key)
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash.load(Ordering::Relaxed)
    }

    /// The slot of this key's policy in the table.
    #[inline]
    pub(super) fn policy(&self) -> u32 {
        self.policy.load(Ordering::Relaxed) as u32
    }

    /// Gives the key other parameters. Called under the table's lock. If the word continues, no
    /// call is lost. Otherwise, calls in progress with the old parameters may still count in the
    /// old window.
    pub(super) fn reconfigure(&self, policy: u32, offset: Nanos, carried: impl Fn(u64) -> u64) {
        self.policy.store(u64::from(policy), Ordering::Relaxed);
        self.offset.store(offset.get(), Ordering::Relaxed);
        let change = |word| Some(carried(word)).filter(|next| *next != word);
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    pub(super) fn word(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    pub(super) fn key(&self) -> String {
        self.key.text()
    }

    pub(super) fn offset(&self) -> Nanos {
        Nanos::new(self.offset.load(Ordering::Relaxed))
    }

    /// One call: the policy's step as one atomic change of the word. Relaxed, because the word is
    /// the key's whole state: no other memory is published through it.
    #[inline]
    pub(super) fn step(&self, policy: &impl Policy, now: Nanos, pace: &Pace) -> Step {
        let (now, offset) = policy.reading(now, self.offset(), pace);
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let step = policy.step(word, now, offset);
            let Write::Word(next) = step.write else { return step };
            match self.word.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return step,
                Err(seen) => word = seen,
            }
        }
    }

    /// Counts a batch of calls, as one atomic change of the word. Relaxed, as in [`Record::step`].
    pub(super) fn batch(&self, policy: &impl Policy, calls: u64, now: Nanos, pace: &Pace) {
        let (now, offset) = policy.reading(now, self.offset(), pace);
        let mut word = self.word.load(Ordering::Relaxed);
        while let Err(seen) = self.word.compare_exchange_weak(
            word,
            policy.batch(word, calls, now, offset),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            word = seen;
        }
    }

    pub(super) fn idle(&self, policy: &impl Policy, now: Nanos, pace: &Pace) -> Nanos {
        let (now, offset) = policy.reading(now, self.offset(), pace);
        policy.idle_nanos(policy.idle(self.word.load(Ordering::Relaxed), now, offset), pace)
    }
}
