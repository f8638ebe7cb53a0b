//! The table of flows: slots by number, with the count of those who use each.
//!
//! A slot is used by the spans and the handles that have its number. The last one that releases it
//! ends the flow. Slots are made in chunks and reused, so that a flow allocates nothing.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use opentelemetry::TraceId;

use crate::baggage::Baggage;

/// Identifies a span: its layer, and its number there.
pub(super) type Key = (u64, u64);

/// Whether the handler `begin` has been called, or never will be.
pub(super) const BEGUN: u8 = 1;
/// An unmarked fork that is not counted yet: a wrapper may still turn out to be inside its span.
pub(super) const UNCONFIRMED: u8 = 2;

/// The applications have not seen yet what arrived.
pub(super) const RECEIVED: u8 = 4;
/// Something in the flow has failed.
pub(super) const FAILED: u8 = 8;
/// X-Trace follows the flow.
pub(super) const TRACED: u8 = 16;
/// X-Trace has noted that the flow's local root began.
pub(super) const ROOT_NOTED: u8 = 32;
/// The flow serves several tenants.
pub(super) const MIXED: u8 = 64;

/// Flows from which a flow was split off, the closest first. A deeper one is not recognised.
pub(super) const ANCESTORS: usize = 8;
/// Slots that are allocated at once, while a request waits: about 300 KB.
const CHUNK: u32 = 1024;
/// A larger bound would make the list of chunks large.
const SLOTS_MAX: u32 = 1 << 24;
const SHARDS: usize = 16;

#[derive(Debug)]
pub(super) struct Slots {
    chunks: Box<[OnceLock<Box<[Slot]>>]>,
    /// The number of slots that have been used at all.
    fresh: AtomicU32,
    free: [Mutex<Vec<u32>>; SHARDS],
    ids: AtomicU64,
    max: u32,
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    uses: AtomicU32,
    /// Differs between all flows of the process; 0: the slot is free.
    id: AtomicU64,
    /// The flow that this one was merged into, of which it is one use; 0: none.
    merged_into: AtomicU32,
    /// The span at which the flow began, which may enter it on any thread.
    origin: (AtomicU64, AtomicU64),
    flags: AtomicU8,
    /// Time on threads that is not in the sums of tenants yet, in nanoseconds.
    busy: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) baggage: Baggage,
    pub(super) ancestors: [u64; ANCESTORS],
    /// The trace of the flow's local root.
    pub(super) trace: Option<TraceId>,
    pub(super) account: Account,
    /// The spans in which the flow calls other processes now. Transports enter them elsewhere,
    /// which needs no mark.
    pub(super) calling: Vec<u64>,
    /// The note of the critical path. Its memory stays when the flow ends.
    #[cfg(feature = "critical_path")]
    pub(super) path: Option<Box<crate::paths::Note>>,
}

/// The facts about a flow on which sums by tenant depend.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    /// The tenant that the caller has named.
    pub(super) tenant: Option<Arc<str>>,
    /// The name of the last local root.
    pub(super) resource: Option<Arc<str>>,
    /// The local root that is open, and its start.
    pub(super) root: Option<(Key, u64)>,
}

impl State {
    /// Empties the state of a flow that ends. Returns its baggage, to be dropped without the lock.
    pub(super) fn clear(&mut self) -> Baggage {
        self.trace = None;
        self.account = Account::default();
        self.calling.clear();
        #[cfg(feature = "critical_path")]
        if let Some(path) = self.path.as_deref_mut().filter(|path| path.is_active()) {
            path.clear();
        }
        if self.ancestors[0] != 0 {
            self.ancestors = [0; ANCESTORS];
        }
        std::mem::take(&mut self.baggage)
    }
}

impl Slots {
    pub(super) fn new(max: u32) -> Self {
        let max = max.min(SLOTS_MAX);
        Slots {
            chunks: (0..max.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            fresh: AtomicU32::new(0),
            free: Default::default(),
            ids: AtomicU64::new(1),
            max,
        }
    }

    /// The slot of a number, which is in use.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Slot> {
        let (chunk, offset) = place(number.checked_sub(1)?);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// Takes a free slot, with one use; `None` if all are used.
    pub(super) fn take(&self) -> Option<(u32, &Slot)> {
        let own = shard();
        let index = pop(&self.free[own])
            .or_else(|| self.take_fresh())
            .or_else(|| (1..SHARDS).find_map(|step| pop(&self.free[(own + step) % SHARDS])))?;
        let (chunk, offset) = place(index);
        let chunk = self.chunks.get(chunk)?;
        let slot = chunk.get_or_init(|| (0..CHUNK).map(|_| Slot::default()).collect()).get(offset)?;
        slot.id.store(self.ids.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        slot.uses.store(1, Ordering::Release);
        Some((index + 1, slot))
    }

    fn take_fresh(&self) -> Option<u32> {
        let next = |fresh: u32| (fresh < self.max).then_some(fresh + 1);
        self.fresh.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
    }

    /// Returns a slot that nobody uses, and whose state is empty.
    pub(super) fn free(&self, number: u32) {
        if let Some(slot) = self.get(number) {
            slot.id.store(0, Ordering::Relaxed);
            slot.set_merged_into(0);
            slot.flags.store(0, Ordering::Relaxed);
            slot.busy.store(0, Ordering::Relaxed);
            slot.set_origin((0, 0));
            lock(&self.free[shard()]).push(number - 1);
        }
    }

    /// The number of flows.
    pub(super) fn used(&self) -> u64 {
        let free: usize = self.free.iter().map(|free| lock(free).len()).sum();
        u64::from(self.fresh.load(Ordering::Relaxed)).saturating_sub(free as u64)
    }
}

impl Slot {
    #[inline]
    pub(super) fn add_use(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a use, unless the flow has ended.
    pub(super) fn add_use_to(&self, id: u64) -> bool {
        let more = |uses: u32| (uses > 0).then(|| uses + 1);
        self.id() == id && self.uses.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    /// Removes a use. Returns whether it was the last one.
    #[inline]
    pub(super) fn remove_use(&self) -> bool {
        self.uses.fetch_sub(1, Ordering::AcqRel) == 1
    }

    #[inline]
    pub(super) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn merged_into(&self) -> u32 {
        self.merged_into.load(Ordering::Acquire)
    }

    pub(super) fn set_merged_into(&self, number: u32) {
        self.merged_into.store(number, Ordering::Release);
    }

    pub(super) fn origin(&self) -> Key {
        (self.origin.0.load(Ordering::Relaxed), self.origin.1.load(Ordering::Relaxed))
    }

    pub(super) fn set_origin(&self, key: Key) {
        self.origin.0.store(key.0, Ordering::Relaxed);
        self.origin.1.store(key.1, Ordering::Relaxed);
    }

    pub(super) fn add_busy(&self, nanos: u64) {
        self.busy.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(super) fn take_busy(&self) -> u64 {
        if self.busy.load(Ordering::Relaxed) == 0 { 0 } else { self.busy.swap(0, Ordering::Relaxed) }
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    /// Sets a flag. Returns whether it was not set.
    pub(super) fn set(&self, flag: u8) -> bool {
        self.flags.fetch_or(flag, Ordering::Relaxed) & flag == 0
    }

    /// Clears a flag. Returns whether it was set.
    pub(super) fn clear(&self, flag: u8) -> bool {
        self.flags.fetch_and(!flag, Ordering::Relaxed) & flag != 0
    }

    /// The state. No code of the service runs while it is locked.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pop(free: &Mutex<Vec<u32>>) -> Option<u32> {
    lock(free).pop()
}

/// A slot's chunk, and its place there.
#[inline]
fn place(index: u32) -> (usize, usize) {
    ((index / CHUNK) as usize, (index % CHUNK) as usize)
}

/// Threads have different lists of free slots if they are few.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    SHARD.try_with(|shard| *shard).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_slots_have_numbers_of_their_own() {
        let slots = Slots::new(3000);
        let numbers: Vec<u32> = std::iter::from_fn(|| slots.take()).map(|(number, _)| number).collect();
        assert!(numbers.into_iter().eq(1..=3000));
        let ids: std::collections::BTreeSet<u64> =
            (1..=3000).map(|number| slots.get(number).unwrap().id()).collect();
        assert_eq!((ids.len(), slots.used()), (3000, 3000));
        assert!(slots.get(3073).is_none());
    }

    #[test]
    fn slots_are_reused_up_to_the_bound() {
        let slots = Slots::new(2);
        let first = slots.take().unwrap().0;
        let second = slots.take().unwrap().0;
        assert_eq!((first, second, slots.used()), (1, 2, 2));
        assert!(slots.take().is_none());
        assert!(slots.get(first).unwrap().remove_use());
        slots.free(first);
        assert_eq!((slots.take().unwrap().0, slots.used()), (1, 2));
        assert!(slots.get(0).is_none() && slots.get(5000).is_none());
    }
}
