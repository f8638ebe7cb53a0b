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

mod index;
mod key;
mod limits;
mod record;
mod rooms;
mod snapshot;
mod tally;
mod thread;

use std::collections::HashMap;
use std::sync::Arc;

pub use limits::Limits;
pub use snapshot::{Counts, KeyCounts, Snapshot};

use crate::config::PerKey;
use crate::decision::{Decision, Reason};
use crate::law::{Law, Write};
use crate::nanos::Nanos;
use crate::request::Request;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::threshold::Threshold;
use index::Index;
use record::Record;
use rooms::Rooms;
use tally::Tallies;

/// The hash of a key: the same in every version and on every machine, so that what depends on it can be reproduced.
/// Keys made to collide only lead to the overflow record, as any flood of keys does.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    use rapidhash::v3::{DEFAULT_RAPID_SECRETS, rapidhash_v3_nano_inline};
    // "Nano" is the fastest for keys of up to 48 bytes.
    rapidhash_v3_nano_inline::<true, false>(bytes, &DEFAULT_RAPID_SECRETS)
}

/// The laws of a config: one for all keys, others for some.
#[derive(Debug)]
struct Laws<L> {
    laws: Box<[L]>,
    /// Where in `laws` an overridden key's is; all others have the first.
    overrides: HashMap<String, u32>,
}

/// The table of a sampler that decides by key.
#[derive(Debug)]
pub(crate) struct Table<L> {
    limits: Limits,
    laws: Arc<Laws<L>>,
    index: Index,
    /// One for each key, and the overflow record behind them.
    records: Box<[Record]>,
    tallies: Tallies,
    /// The time before which a new key need not look for room; 0 while there is some.
    room_at: AtomicU64,
    rooms: Mutex<Rooms>,
}

impl<L: Law> Table<L> {
    pub(crate) fn new<P>(per_key: &PerKey<P>, law: impl Fn(&P) -> L, limits: Limits) -> Self {
        let mut laws = vec![law(per_key.default())];
        let mut overrides = HashMap::new();
        for (key, parameters) in per_key.overrides() {
            overrides.insert(key.to_owned(), laws.len() as u32);
            laws.push(law(parameters));
        }
        Self::with_laws(Arc::new(Laws { laws: laws.into(), overrides }), limits)
    }

    fn with_laws(laws: Arc<Laws<L>>, limits: Limits) -> Self {
        let keys = limits.keys();
        Table {
            limits,
            laws,
            index: Index::new(keys),
            records: (0..=keys).map(|_| Record::new()).collect(),
            tallies: Tallies::new(limits.shards(), keys as usize + 1),
            room_at: AtomicU64::new(0),
            rooms: Mutex::new(Rooms::new(keys)),
        }
    }

    /// A table of the same laws that has seen no call.
    pub(crate) fn fresh(&self) -> Self {
        Self::with_laws(Arc::clone(&self.laws), self.limits)
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
        let law = &self.laws.laws[record.law() as usize];
        let step = record.step(law, now);
        let keep = randomness.get() >= step.threshold;
        let counted = self.tallies.add(id, step.slot, keep);
        if let Write::Batch(calls) = step.write
            && counted.is_multiple_of(calls)
        {
            record.batch(law, calls, now);
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
        let room_at = self.room_at.load(Ordering::Relaxed);
        // A time further ahead than any wait was set by a clock that has been set back since.
        if now.get() < room_at && room_at - now.get() <= self.limits.sweep_interval().get() {
            return self.overflow();
        }
        self.admit(hash, key, now)
    }

    #[cold]
    #[inline(never)]
    fn admit(&self, hash: u64, key: &str, now: Nanos) -> u32 {
        let mut rooms = self.rooms();
        // Another thread may have brought the same key in meanwhile.
        if let Some(id) = self.find(hash, key) {
            return id;
        }
        if !rooms.has_free() {
            self.sweep(&mut rooms, now);
        }
        let id = rooms.take_free();
        // From here on new keys know without the lock whether to come.
        let room_at = if rooms.has_free() { Nanos::ZERO } else { rooms.next_sweep() };
        self.room_at.store(room_at.get(), Ordering::Relaxed);
        let Some(id) = id else { return self.overflow() };
        let record = &self.records[id as usize];
        let number = self.laws.overrides.get(key).copied().unwrap_or(0);
        let law = &self.laws.laws[number as usize];
        let offset = law.offset(key);
        // Calls that were still on their way to the key that had this record before.
        rooms.evict_counts(id, self.tallies.read(id));
        record.open(hash, key, number, offset, law.fresh(now, offset));
        if self.index.insert(hash, id) {
            id
        } else {
            // Both places where the key's hash may stand are taken: one key in a million, or keys made for it.
            rooms.give_back(id);
            self.overflow()
        }
    }

    /// Takes the records of the longest idle keys away. They rest until the next sweep, for calls that have found the
    /// record and not yet made their step.
    #[cold]
    fn sweep(&self, rooms: &mut Rooms, now: Nanos) {
        if !rooms.begin_sweep(now, self.limits.sweep_interval()) {
            return;
        }
        let mut idle: Vec<(Nanos, u32)> = (0..self.limits.keys())
            .filter(|&id| rooms.is_taken(id))
            .map(|id| {
                let record = &self.records[id as usize];
                (record.idle(&self.laws.laws[record.law() as usize], now), id)
            })
            .filter(|(idle, _)| *idle >= self.limits.idle())
            .collect();
        let leaving = self.limits.leaving_max().min(idle.len());
        // The longest idle first; of equals the first to have come.
        idle.sort_unstable_by_key(|&(idle, id)| (std::cmp::Reverse(idle), id));
        for &(_, id) in &idle[..leaving] {
            self.index.remove(self.records[id as usize].hash(), id);
            rooms.evict_counts(id, self.tallies.read(id));
            rooms.rest(id);
        }
    }

    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        // Nothing in the locked sections can be left half done in a way that matters: no poison.
        self.rooms.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What was seen, kept and dropped: by key in the order of their names, by the overflow record, and by keys that
    /// have left.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let rooms = self.rooms();
        let mut keys: Vec<KeyCounts> = self
            .index
            .ids()
            .map(|id| KeyCounts {
                key: self.records[id as usize].key(),
                counts: Counts::new(L::REASONS, rooms.since_base(id, self.tallies.read(id))),
            })
            .collect();
        keys.sort_by(|a, b| a.key.cmp(&b.key));
        let evicted = rooms
            .resting()
            .fold(rooms.evicted(), |sum, id| sum.plus(rooms.since_base(id, self.tallies.read(id))));
        Snapshot {
            keys,
            overflow: Counts::new(L::REASONS, self.tallies.read(self.overflow())),
            evicted: Counts::new(L::REASONS, evicted),
            keys_evicted: rooms.keys_evicted(),
            keys_max: self.limits.keys(),
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
