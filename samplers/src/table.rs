//! The record table: a record for each key, found without a lock.
//!
//! It consists of three arrays that never grow: an index of hashes, the records, and their tallies.
//! A decision for a known key reads the index (one cache line), compares the key, steps the
//! record's word and adds one to a tally. It takes no lock and allocates nothing. A new key takes a
//! lock once, to get its record. Keys that find no free record are decided by the overflow record,
//! which they all share: a flood of unique names neither grows memory nor evades the sampler,
//! because all of them count as one key.
//!
//! If no record is free, the longest idle keys are evicted, and only those idle for at least
//! [`Limits::idle`]. Their word means the same as a fresh one, so evicting them changes no
//! decision.

mod extras;
mod free_list;
mod image;
mod index;
mod key;
mod limits;
mod policies;
mod record;
mod snapshot;
mod tally;

use std::fmt;

pub use image::{ImageError, Restored};
pub use key::shown_key;
pub use limits::Limits;
pub use snapshot::{Counts, KeyCounts, KeyState, Snapshot};

use crate::cap::{Caps, Meter};
use crate::decision::{Decision, Reason};
use crate::nanos::Nanos;
use crate::pace::Pace;
use crate::per_key::PerKey;
use crate::policy::{Policy, Write};
use crate::request::Request;
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, OnceLock, Ordering};
use crate::tail::Boosting;
use crate::threshold::Threshold;
use extras::{Cause, Extra, Overruled};
use free_list::FreeList;
use index::Index;
use policies::{Names, Policies};
use record::Record;
use tally::Tallies;

/// The hash of a key: the same in every version and on every machine, so that whatever depends on
/// it is reproducible. Keys crafted to collide only end up in the overflow record, as in any flood
/// of keys.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    use rapidhash::v3::{DEFAULT_RAPID_SECRETS, rapidhash_v3_nano_inline};
    // The "nano" variant is the fastest for keys of up to 48 bytes.
    rapidhash_v3_nano_inline::<true, false>(bytes, &DEFAULT_RAPID_SECRETS)
}

/// The state of a sampler that decides by key. It survives changes of parameters.
#[derive(Debug)]
struct State {
    limits: Limits,
    index: Index,
    /// One for each key, and the overflow record at the end.
    records: Box<[Record]>,
    tallies: Tallies,
    /// One for each record; allocated once a cap or an override needs them.
    extras: OnceLock<Box<[Extra]>>,
    /// While the table is full: the time before which a new key need not try to get a record.
    /// Otherwise 0.
    next_try: AtomicU64,
    pace: Pace,
    locked: Mutex<Locked>,
}

/// The part of the state that only rare operations need.
#[derive(Debug)]
struct Locked {
    free_list: FreeList,
    names: Names,
    /// Decisions of caps and overrides about keys that have been evicted.
    overruled: Overruled,
    /// The sum of [`Policy::share`] over the keys with a record.
    present: u64,
}

/// A cap, and the meter for all traces.
#[derive(Clone, Debug)]
pub(crate) struct Capped {
    pub(crate) caps: Caps,
    /// The meter for all traces; the meters of keys are in the table.
    pub(crate) all: Arc<Meter>,
    /// The meter for first calls of new keys.
    pub(crate) new: Arc<Meter>,
}

/// The record of a call.
#[derive(Clone, Copy, Debug)]
struct Called {
    id: u32,
    /// Whether the key got its record by this call, and has no parameters of its own.
    is_new: bool,
}

/// The table of a sampler that decides by key: the shared state, and the parameters to decide by.
#[derive(Debug)]
pub(crate) struct Table<L> {
    state: Arc<State>,
    policies: Arc<Policies<L>>,
    capped: Option<Capped>,
}

impl<L: Policy> Table<L> {
    pub(crate) fn new<P: fmt::Display>(
        per_key: &PerKey<P>,
        policy: impl Fn(&P) -> L,
        limits: Limits,
    ) -> Self {
        let mut names = Names::default();
        let policies = Policies::new(per_key, policy, &mut names);
        Table { state: Arc::new(State::new(limits, names)), policies: Arc::new(policies), capped: None }
    }

    /// The same table with a cap.
    pub(crate) fn with_cap(self, capped: Option<Capped>) -> Self {
        if capped.as_ref().is_some_and(|capped| capped.caps.by_key()) {
            self.state.extras();
        }
        Table { capped, ..self }
    }

    /// A table with the same policies that has seen no call.
    pub(crate) fn fresh(&self, capped: Option<Capped>) -> Self {
        let names = self.locked().names.clone();
        let table = Table {
            state: Arc::new(State::new(self.state.limits, names)),
            policies: Arc::clone(&self.policies),
            capped: None,
        };
        table.with_cap(capped)
    }

    /// A table with other parameters and the same state. Keys whose count has another meaning under
    /// their new parameters start over, all others continue. Counts of calls stay. `None` if more
    /// keys have had their own parameters than a table remembers.
    pub(crate) fn reconfigured<P: fmt::Display>(
        &self,
        per_key: &PerKey<P>,
        policy: impl Fn(&P) -> L,
        capped: Option<Capped>,
        now: Nanos,
    ) -> Option<Self> {
        self.converted(per_key, policy, L::carried, capped, now)
    }

    /// As [`Table::reconfigured`], to policies of another type. `carried` is [`Policy::carried`]
    /// from the old type to the new one; a word must mean the same to both types if the parameters
    /// are equal.
    pub(crate) fn converted<M: Policy, P: fmt::Display>(
        &self,
        per_key: &PerKey<P>,
        policy: impl Fn(&P) -> M,
        carried: impl Fn(&M, &L, u64, Nanos, Nanos) -> u64,
        capped: Option<Capped>,
        now: Nanos,
    ) -> Option<Table<M>> {
        let mut locked = self.locked();
        let policies = Policies::new(per_key, policy, &mut locked.names);
        if !locked.names.fit() {
            return None;
        }
        let state = Arc::clone(&self.state);
        let renumbered: Vec<(u32, u32)> = locked
            .names
            .iter()
            .filter_map(|(key, slot)| Some((self.find(hash(key.as_bytes()), key)?, slot)))
            .collect();
        let mut slots: Vec<u32> = state.records.iter().map(Record::policy).collect();
        for (id, slot) in renumbered {
            slots[id as usize] = slot;
        }
        for (id, (record, slot)) in state.records.iter().zip(slots).enumerate() {
            let is_taken = id as u32 == self.overflow() || locked.free_list.is_taken(id as u32);
            if !is_taken || self.policies.same(record.policy(), &policies, slot) {
                continue;
            }
            let (old, policy) = (self.policies.of(record.policy()), policies.of(slot));
            // The overflow record belongs to no key, so its windows have no shift.
            let offset =
                if id as u32 == self.overflow() { Nanos::ZERO } else { policy.offset(record.hash()) };
            let (now, reading) = policy.reading(now, offset, &state.pace);
            record.reconfigure(slot, offset, |word| carried(policy, old, word, now, reading));
        }
        state.set_present(&mut locked, &policies);
        drop(locked);
        if let (Some(capped), Some(extras)) = (&capped, state.extras.get()) {
            let old = self.capped.as_ref().map(|capped| &capped.caps);
            capped.caps.take_over_keys(old, extras.iter().map(|extra| &extra.meter), now);
        }
        Some(Table { state, policies: Arc::new(policies), capped: None }.with_cap(capped))
    }

    /// Whether this is the only table left that counts in its state: none that it was reconfigured
    /// from or to still exists.
    pub(crate) fn is_alone(&mut self) -> bool {
        // Unlike reading the reference count alone, this makes the last counts of the other tables
        // visible.
        Arc::get_mut(&mut self.state).is_some()
    }

    /// The sampler's own decision, before caps and overrides, with the record's id.
    #[inline]
    fn decide_alone(&self, request: &Request<'_>) -> (Called, Decision) {
        self.call(request, |threshold| request.randomness.get() >= threshold)
    }

    /// One call that is kept or dropped by what the function says of the key's threshold.
    #[inline]
    fn call(&self, request: &Request<'_>, keeps: impl Fn(u64) -> bool) -> (Called, Decision) {
        let Request { key, now, .. } = *request;
        let hash = hash(key.as_bytes());
        let Called { id, is_new } = match self.find(hash, key) {
            Some(id) => Called { id, is_new: false },
            None => self.unknown(hash, key, now),
        };
        let record = &self.state.records[id as usize];
        let policy = self.policies.of(record.policy());
        let step = record.step(policy, now, &self.state.pace);
        let keep = keeps(step.threshold);
        let counted = self.state.tallies.add(id, step.slot, keep);
        if let Write::Batch(calls) = step.write
            && counted.is_multiple_of(calls)
        {
            record.batch(policy, calls, now, &self.state.pace);
        }
        if L::PACED && self.policies.are_paced() {
            self.state.pace.count(now);
        }
        let decision = Decision {
            keep,
            threshold: if L::BY_CHANCE { Threshold::new(step.threshold) } else { None },
            reason: if id == self.overflow() { Reason::Overflow } else { L::REASONS[step.slot] },
        };
        (Called { id, is_new }, decision)
    }

    #[inline]
    pub(crate) fn decide(&self, request: &Request<'_>) -> Decision {
        let (called, decision) = self.decide_alone(request);
        match &self.capped {
            Some(capped) if decision.keep => self.admit_by(capped, called, decision, request),
            _ => decision,
        }
    }

    /// Decides by this threshold in place of the sampler's. The call is counted as usual.
    /// Counts a call as dropped, and returns the threshold with which it would be kept.
    pub(crate) fn count(&self, request: &Request<'_>) -> Option<Threshold> {
        self.call(request, |_| false).1.threshold
    }

    pub(crate) fn decide_by(&self, threshold: u64, request: &Request<'_>) -> Decision {
        let (called, own) = self.decide_alone(request);
        self.replaced(called.id, own, Decision::by_override(threshold, request.randomness), request)
    }

    /// Decides with the raised probability of a boost. The call is counted as usual.
    pub(crate) fn decide_boosted(&self, boosting: &Boosting<'_>, request: &Request<'_>) -> Decision {
        let (called, own) = self.decide_alone(request);
        self.replaced(called.id, own, boosting.raise(own, request.randomness, request.now), request)
    }

    /// Counts a decision in place of the sampler's own, and applies the cap to it.
    fn replaced(&self, id: u32, own: Decision, decision: Decision, request: &Request<'_>) -> Decision {
        if own.keep != decision.keep {
            let cause = if decision.keep { Cause::ForcedKept } else { Cause::ForcedDropped };
            self.state.extras()[id as usize].count(cause);
        }
        // An operator's decision is no allowance's business but the cap's on all traces.
        let called = Called { id, is_new: false };
        match &self.capped {
            Some(capped) if decision.keep => self.admit_by(capped, called, decision, request),
            _ => decision,
        }
    }

    #[inline(never)]
    fn admit_by(
        &self,
        capped: &Capped,
        Called { id, is_new }: Called,
        decision: Decision,
        request: &Request<'_>,
    ) -> Decision {
        let Request { randomness, now, .. } = *request;
        let mut admitted = decision;
        if is_new {
            admitted = capped.caps.admit_new(&capped.new, admitted, randomness, now);
        }
        if admitted.keep {
            let extras = capped.caps.by_key().then(|| &self.state.extras()[id as usize].meter);
            admitted = capped.caps.admit(&capped.all, extras, admitted, randomness, now);
        }
        if !admitted.keep {
            let cause = if admitted.reason == Reason::Cap { Cause::Raised } else { Cause::Empty };
            self.state.extras()[id as usize].count(cause);
        }
        admitted
    }

    /// The overflow record's id.
    fn overflow(&self) -> u32 {
        self.state.limits.keys()
    }

    #[inline]
    fn find(&self, hash: u64, key: &str) -> Option<u32> {
        self.state.index.find(hash, |id| self.state.records[id as usize].is(hash, key))
    }

    /// The record of a key that has none yet: a new one if one may be free, otherwise the overflow
    /// record.
    #[inline]
    fn unknown(&self, hash: u64, key: &str, now: Nanos) -> Called {
        let next_try = self.state.next_try.load(Ordering::Relaxed);
        // A time further ahead than any wait was stored before the clock was set back. The load is
        // relaxed because a stale time only means that one more call takes the lock, or one more
        // uses the overflow record; `admit` decides under the lock.
        if now.get() < next_try && next_try - now.get() <= self.state.limits.sweep_interval().get() {
            return Called { id: self.overflow(), is_new: false };
        }
        self.admit(hash, key, now)
    }

    #[cold]
    #[inline(never)]
    fn admit(&self, hash: u64, key: &str, now: Nanos) -> Called {
        let mut locked = self.locked();
        let Locked { free_list, names, overruled, present } = &mut *locked;
        // Another thread may have added the same key in the meantime.
        if let Some(id) = self.find(hash, key) {
            return Called { id, is_new: false };
        }
        if !free_list.has_free() {
            self.sweep(free_list, present, now);
        }
        let id = free_list.take_free();
        // From here on, new keys know without the lock whether to try.
        let next_try = if free_list.has_free() { Nanos::ZERO } else { free_list.next_sweep() };
        // Relaxed: only a hint, see `unknown`.
        self.state.next_try.store(next_try.get(), Ordering::Relaxed);
        let Some(id) = id else { return Called { id: self.overflow(), is_new: false } };
        let record = &self.state.records[id as usize];
        let slot = names.slot(key);
        let policy = self.policies.of(slot);
        let offset = policy.offset(hash);
        // Calls of this record's previous key that were still in progress when it was evicted.
        free_list.evict_counts(id, self.state.tallies.read(id));
        if let Some(extras) = self.state.extras.get() {
            *overruled = overruled.plus(extras[id as usize].renew());
        }
        let (now, reading) = policy.reading(now, offset, &self.state.pace);
        record.open(hash, key, slot, offset, policy.fresh(now, reading));
        if self.state.index.insert(hash, id) {
            if L::PACED {
                *present += policy.share();
                self.state.pace.set_absent_log2(absent_log2(*present));
            }
            // A key with parameters of its own is known, if only from a recording.
            Called { id, is_new: slot == 0 }
        } else {
            // Both buckets for the key's hash are full: this happens to one key in a million, or to
            // keys crafted for it.
            free_list.give_back(id);
            Called { id: self.overflow(), is_new: false }
        }
    }

    /// Evicts the longest idle keys. Their records stay unused until the next sweep, for calls that
    /// have found a record and not yet stepped its word.
    #[cold]
    fn sweep(&self, free_list: &mut FreeList, present: &mut u64, now: Nanos) {
        let State { limits, index, records, tallies, extras, pace, .. } = &*self.state;
        if !free_list.begin_sweep(now, limits.sweep_interval()) {
            return;
        }
        // A key whose allowance is not full stays: if it were evicted and came back, it would get
        // more than its cap.
        let is_full = |id: u32| extras.get().is_none_or(|extras| extras[id as usize].meter.is_full(now));
        let mut idle: Vec<(Nanos, u32)> = (0..limits.keys())
            .filter(|&id| free_list.is_taken(id) && is_full(id))
            .map(|id| {
                let record = &records[id as usize];
                (record.idle(self.policies.of(record.policy()), now, pace), id)
            })
            .filter(|(idle, _)| *idle >= limits.idle())
            .collect();
        let leaving = limits.leaving_max().min(idle.len());
        // The longest idle first; among equals the lowest id.
        idle.sort_unstable_by_key(|&(idle, id)| (std::cmp::Reverse(idle), id));
        for &(_, id) in &idle[..leaving] {
            index.remove(records[id as usize].hash(), id);
            free_list.evict_counts(id, tallies.read(id));
            free_list.retire(id);
            // Another sampler of this state may have given the key its share.
            *present = present.saturating_sub(self.policies.of(records[id as usize].policy()).share());
        }
    }

    fn locked(&self) -> MutexGuard<'_, Locked> {
        // A panic in a locked section leaves nothing inconsistent that matters, so poison is
        // ignored.
        self.state.locked.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The calls seen, kept and dropped: by key in the order of their names, by the overflow
    /// record, and by evicted keys together.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let State { index, records, tallies, limits, .. } = &*self.state;
        let locked = self.locked();
        let free_list = &locked.free_list;
        let mut keys: Vec<KeyCounts> = index
            .ids()
            .map(|id| KeyCounts {
                key: records[id as usize].key(),
                counts: self.counts(free_list.since_base(id, tallies.read(id)), self.overruled(id)),
            })
            .collect();
        keys.sort_by(|a, b| a.key.cmp(&b.key));
        let evicted =
            free_list.retired().fold((free_list.evicted(), locked.overruled), |(tally, overruled), id| {
                let own = free_list.since_base(id, tallies.read(id));
                (tally.plus(own), overruled.plus(self.overruled(id)))
            });
        let overflow = self.overflow();
        Snapshot {
            keys,
            overflow: self.counts(tallies.read(overflow), self.overruled(overflow)),
            evicted: self.counts(evicted.0, evicted.1),
            keys_evicted: free_list.keys_evicted(),
            keys_max: limits.keys(),
        }
    }

    fn counts(&self, tally: tally::Tally, overruled: Overruled) -> Counts {
        Counts::new(L::REASONS, tally, overruled)
    }

    fn overruled(&self, id: u32) -> Overruled {
        self.state.extras.get().map(|extras| extras[id as usize].read()).unwrap_or_default()
    }

    /// The state of each key as a call at `now` would find it, in the order of the keys' names.
    pub(crate) fn states(&self, now: Nanos) -> Vec<KeyState> {
        let _locked = self.locked();
        let mut states: Vec<KeyState> = self
            .state
            .index
            .ids()
            .map(|id| {
                let record = &self.state.records[id as usize];
                let (policy, word) = (self.policies.of(record.policy()), record.word());
                let (now, offset) = policy.reading(now, record.offset(), &self.state.pace);
                let threshold = Threshold::new(policy.step(word, now, offset).threshold);
                KeyState {
                    key: record.key(),
                    probability: threshold.filter(|_| L::BY_CHANCE).map(Threshold::probability),
                    tokens: policy.tokens(word, now),
                }
            })
            .collect();
        states.sort_by(|a, b| a.key.cmp(&b.key));
        states
    }
}

impl State {
    fn new(limits: Limits, names: Names) -> Self {
        let keys = limits.keys();
        let locked =
            Locked { free_list: FreeList::new(keys), names, overruled: Overruled::default(), present: 0 };
        State {
            limits,
            index: Index::new(keys),
            records: (0..=keys).map(|_| Record::new()).collect(),
            tallies: Tallies::new(limits.shards(), keys as usize + 1),
            extras: OnceLock::new(),
            next_try: AtomicU64::new(0),
            pace: Pace::default(),
            locked: Mutex::new(locked),
        }
    }

    /// Sums the shares of the keys with a record anew.
    fn set_present<L: Policy>(&self, locked: &mut Locked, policies: &Policies<L>) {
        locked.present =
            self.index.ids().map(|id| policies.of(self.records[id as usize].policy()).share()).sum();
        self.pace.set_absent_log2(absent_log2(locked.present));
    }

    fn extras(&self) -> &[Extra] {
        self.extras.get_or_init(|| (0..self.records.len()).map(|_| Extra::default()).collect())
    }
}

/// log2 of 1 / present, as a fixed-point logarithm with 32 fraction bits. Without shares there is
/// nothing to raise: 0.
fn absent_log2(present: u64) -> u64 {
    if present == 0 { 0 } else { ((40.0 - (present as f64).log2()).max(0.0) * 2f64.powi(32)) as u64 }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
