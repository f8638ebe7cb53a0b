//! The record table: for each key a record, found without a lock.
//!
//! Three arrays, made once and never grown: an index of hashes, the records, and their tallies. A decision for a known
//! key reads the index (one cache line), compares the key, makes one step of the record's word and adds one to a
//! tally; it takes no lock and allocates nothing. A new key takes a lock once, to get its record. What finds no room
//! is decided by the overflow record, which all such keys share: a flood of unique names neither grows memory nor
//! defeats the limit, for they count as one key.
//!
//! Idle keys leave first. When no record is free, the longest idle ones give theirs up, and only those that have been
//! idle for [`Limits::idle`]: their word says what a fresh one says, so that forgetting it changes no decision.

mod free_list;
mod index;
mod key;
mod limits;
mod record;
mod snapshot;
mod tally;
pub(crate) mod thread;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

pub use limits::Limits;
pub use snapshot::{Counts, KeyCounts, Snapshot};

use crate::decision::{Decision, Reason};
use crate::nanos::Nanos;
use crate::per_key::PerKey;
use crate::policy::{Policy, Write};
use crate::request::Request;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::threshold::Threshold;
use free_list::FreeList;
use index::Index;
use record::Record;
use tally::Tallies;

/// The hash of a key: the same in every version and on every machine, so that what depends on it can be reproduced.
/// Keys made to collide only lead to the overflow record, as any flood of keys does.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    use rapidhash::v3::{DEFAULT_RAPID_SECRETS, rapidhash_v3_nano_inline};
    // "Nano" is the fastest for keys of up to 48 bytes.
    rapidhash_v3_nano_inline::<true, false>(bytes, &DEFAULT_RAPID_SECRETS)
}

/// The policies of a config: one for all keys, others for some.
#[derive(Debug)]
struct Policies<L> {
    policies: Box<[L]>,
    /// The position in `policies` of each overridden key's; all others have the first.
    overrides: HashMap<String, u32>,
}

/// The table of a sampler that decides by key.
#[derive(Debug)]
pub(crate) struct Table<L> {
    limits: Limits,
    policies: Arc<Policies<L>>,
    index: Index,
    /// One for each key, and the overflow record behind them.
    records: Box<[Record]>,
    tallies: Tallies,
    /// The time before which a new key need not look for room; 0 while there is some.
    next_try: AtomicU64,
    free_list: Mutex<FreeList>,
}

impl<L: Policy> Table<L> {
    pub(crate) fn new<P: fmt::Display>(
        per_key: &PerKey<P>,
        policy: impl Fn(&P) -> L,
        limits: Limits,
    ) -> Self {
        // Equal parameters, which print alike, share a policy.
        let mut policies = Vec::new();
        let mut known: HashMap<String, u32> = HashMap::new();
        let mut number = |parameters: &P| {
            *known.entry(format!("{parameters:#}")).or_insert_with(|| {
                policies.push(policy(parameters));
                policies.len() as u32 - 1
            })
        };
        number(per_key.default());
        let overrides: HashMap<String, u32> = per_key
            .overrides()
            .map(|(key, parameters)| (key.to_owned(), number(parameters)))
            .filter(|&(_, number)| number != 0)
            .collect();
        Self::with_policies(Arc::new(Policies { policies: policies.into(), overrides }), limits)
    }

    fn with_policies(policies: Arc<Policies<L>>, limits: Limits) -> Self {
        let keys = limits.keys();
        Table {
            limits,
            policies,
            index: Index::new(keys),
            records: (0..=keys).map(|_| Record::new()).collect(),
            tallies: Tallies::new(limits.shards(), keys as usize + 1),
            next_try: AtomicU64::new(0),
            free_list: Mutex::new(FreeList::new(keys)),
        }
    }

    /// A table of the same policies that has seen no call.
    pub(crate) fn fresh(&self) -> Self {
        Self::with_policies(Arc::clone(&self.policies), self.limits)
    }

    #[inline]
    pub(crate) fn decide(&self, request: &Request<'_>) -> Decision {
        let Request { key, randomness, now } = *request;
        let hash = hash(key.as_bytes());
        let id = match self.find(hash, key) {
            Some(id) => id,
            None => self.unknown(hash, key, now),
        };
        let record = &self.records[id as usize];
        let policy = &self.policies.policies[record.policy() as usize];
        let step = record.step(policy, now);
        let keep = randomness.get() >= step.threshold;
        let counted = self.tallies.add(id, step.slot, keep);
        if let Write::Batch(calls) = step.write
            && counted.is_multiple_of(calls)
        {
            record.batch(policy, calls, now);
        }
        Decision {
            keep,
            threshold: if L::BY_CHANCE { Threshold::new(step.threshold) } else { None },
            reason: if id == self.overflow() { Reason::Overflow } else { L::REASONS[step.slot] },
        }
    }

    /// The overflow record's id.
    fn overflow(&self) -> u32 {
        self.limits.keys()
    }

    #[inline]
    fn find(&self, hash: u64, key: &str) -> Option<u32> {
        self.index.find(hash, |id| self.records[id as usize].is(hash, key))
    }

    /// The record of a key that has none: a new one if there may be room, else the overflow record.
    #[inline]
    fn unknown(&self, hash: u64, key: &str, now: Nanos) -> u32 {
        let next_try = self.next_try.load(Ordering::Relaxed);
        // A time further ahead than any wait was set by a clock that has been set back since.
        if now.get() < next_try && next_try - now.get() <= self.limits.sweep_interval().get() {
            return self.overflow();
        }
        self.admit(hash, key, now)
    }

    #[cold]
    #[inline(never)]
    fn admit(&self, hash: u64, key: &str, now: Nanos) -> u32 {
        let mut free_list = self.free_list();
        // Another thread may have brought the same key in meanwhile.
        if let Some(id) = self.find(hash, key) {
            return id;
        }
        if !free_list.has_free() {
            self.sweep(&mut free_list, now);
        }
        let id = free_list.take_free();
        // From here on new keys know without the lock whether to come.
        let next_try = if free_list.has_free() { Nanos::ZERO } else { free_list.next_sweep() };
        self.next_try.store(next_try.get(), Ordering::Relaxed);
        let Some(id) = id else { return self.overflow() };
        let record = &self.records[id as usize];
        let number = self.policies.overrides.get(key).copied().unwrap_or(0);
        let policy = &self.policies.policies[number as usize];
        let offset = policy.offset(key);
        // Calls that were still on their way to the key that had this record before.
        free_list.evict_counts(id, self.tallies.read(id));
        record.open(hash, key, number, offset, policy.fresh(now, offset));
        if self.index.insert(hash, id) {
            id
        } else {
            // Both places where the key's hash may stand are taken: one key in a million, or keys made for it.
            free_list.give_back(id);
            self.overflow()
        }
    }

    /// Takes the records of the longest idle keys away. They rest until the next sweep, for calls that have found the
    /// record and not yet made their step.
    #[cold]
    fn sweep(&self, free_list: &mut FreeList, now: Nanos) {
        if !free_list.begin_sweep(now, self.limits.sweep_interval()) {
            return;
        }
        let mut idle: Vec<(Nanos, u32)> = (0..self.limits.keys())
            .filter(|&id| free_list.is_taken(id))
            .map(|id| {
                let record = &self.records[id as usize];
                (record.idle(&self.policies.policies[record.policy() as usize], now), id)
            })
            .filter(|(idle, _)| *idle >= self.limits.idle())
            .collect();
        let leaving = self.limits.leaving_max().min(idle.len());
        // The longest idle first; of equals the first to have come.
        idle.sort_unstable_by_key(|&(idle, id)| (std::cmp::Reverse(idle), id));
        for &(_, id) in &idle[..leaving] {
            self.index.remove(self.records[id as usize].hash(), id);
            free_list.evict_counts(id, self.tallies.read(id));
            free_list.retire(id);
        }
    }

    fn free_list(&self) -> MutexGuard<'_, FreeList> {
        // Nothing in the locked sections can be left half done in a way that matters: no poison.
        self.free_list.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The calls seen, kept and dropped: by key in the order of their names, by the overflow record, and by keys that
    /// have left.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let free_list = self.free_list();
        let mut keys: Vec<KeyCounts> = self
            .index
            .ids()
            .map(|id| KeyCounts {
                key: self.records[id as usize].key(),
                counts: Counts::new(L::REASONS, free_list.since_base(id, self.tallies.read(id))),
            })
            .collect();
        keys.sort_by(|a, b| a.key.cmp(&b.key));
        let evicted = free_list
            .retired()
            .fold(free_list.evicted(), |sum, id| sum.plus(free_list.since_base(id, self.tallies.read(id))));
        Snapshot {
            keys,
            overflow: Counts::new(L::REASONS, self.tallies.read(self.overflow())),
            evicted: Counts::new(L::REASONS, evicted),
            keys_evicted: free_list.keys_evicted(),
            keys_max: self.limits.keys(),
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
