//! Slots in which the ended spans of open traces gather, until the trace is queued, whole or in
//! parts.
//!
//! A slot only gathers. The entries of open spans know everything about their trace, and refer to
//! the slot by its number and *turn*, which changes when the slot is given to another trace. A span
//! that ends and finds a different turn is queued by itself, with the right ids. So a slot can be
//! taken from a trace at any time, without losing a span or putting it into another trace.
//!
//! The fields of a slot are written by:
//!
//! - `turn`: the holder of the slot's lock;
//! - `opened`, the start of the trace: the thread that takes the slot from the free list, after
//!   writing its marks; set to 0 by the thread that ends the turn, under the lock;
//! - `gathered`: the holder of the lock, after comparing the turn;
//! - `marks` (see `provisional.rs`): the thread that takes the slot for a provisional trace; then
//!   any thread, by compare-exchange with the turn;
//! - `key`, the root's: the thread that takes the slot for a provisional trace.

mod provisional;
mod provisional_trace;

use std::sync::{Arc, OnceLock};

pub use self::provisional::{EndedSpan, Grow};
pub use self::provisional_trace::{HELD_BYTES, ProvisionalTrace};

use crate::clock::Ticks;
use crate::export::{Patience, Queue};
use crate::memory_budget::{MemoryBudget, Reservation, Use};
use crate::record::{Body, Buffer, Header, Record};
use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::thread;

/// The slot of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRef {
    slot: u32,
    turn: u32,
}

impl TraceRef {
    /// No slot: spans are queued one by one.
    pub const NONE: TraceRef = TraceRef { slot: u32::MAX, turn: 0 };

    #[inline]
    pub fn pack(self) -> u64 {
        u64::from(self.slot) << 32 | u64::from(self.turn)
    }

    #[inline]
    pub fn unpack(word: u64) -> Self {
        TraceRef { slot: (word >> 32) as u32, turn: word as u32 }
    }
}

#[derive(Debug, Default)]
struct Slot {
    turn: AtomicU32,
    opened: AtomicU64,
    marks: AtomicU64,
    key: AtomicU32,
    /// The threshold with which the trace was recorded; `u64::MAX` if its stratum does not decide.
    recorded: AtomicU64,
    gathered: Mutex<Gathered>,
}

#[derive(Debug, Default)]
struct Gathered {
    header: Option<Header>,
    buffer: Buffer,
    /// The bytes that `buffer` may grow to before it must reserve more.
    reservation: Reservation,
    /// Whether a part of the trace was queued before its root ended.
    is_in_part: bool,
    /// For a provisional trace: it accepts no more spans, or it was given up while it was open.
    is_full: bool,
    is_given_up: bool,
}

impl Gathered {
    /// Queues the spans; returns false if the queue refused them. The caller holds the slot's lock,
    /// so that parts of a trace stay in order.
    fn leave(&mut self, queue: &Queue) -> bool {
        let Some(header) = self.header.take() else { return true };
        let is_taken = queue.push(header, &mut self.buffer);
        // A large buffer moves to the queue with its spans, so nothing is left to charge.
        if self.buffer.records.capacity() == 0 {
            self.reservation.shrink_to(0);
        }
        is_taken
    }

    /// Reserves the bytes that the buffer holds. If the budget refuses, the caller queues the spans
    /// and frees the memory.
    #[cold]
    fn reserve_all(&mut self, budget: &Arc<MemoryBudget>) -> bool {
        if !self.reservation.is_of(budget) {
            self.reservation = Reservation::of(budget);
        }
        let bytes = self.buffer.bytes_held();
        bytes <= self.reservation.bytes() || self.reservation.grow_to(bytes, Use::Ended)
    }

    fn leave_in_part(&mut self, queue: &Queue) {
        self.is_in_part |= self.header.is_some();
        self.leave(queue);
    }

    fn leave_early(&mut self, queue: &Queue) {
        self.leave_in_part(queue);
        self.buffer = Buffer::default();
        self.reservation.shrink_to(0);
    }
}

/// The slots. Free ones lie in several lists, one per group of threads, to keep threads from
/// contending.
#[derive(Debug)]
pub struct Traces {
    chunks: Box<[OnceLock<Box<[Slot; CHUNK]>>]>,
    slots_max: u32,
    used: AtomicU32,
    free: [FreeList; LISTS],
    budget: Arc<MemoryBudget>,
    provisional: AtomicU32,
    /// The position in the round-robin search for an open provisional trace to give up.
    looked_at: AtomicU32,
}

const CHUNK: usize = if cfg!(loom) { 1 } else { 64 };
const LISTS: usize = if cfg!(loom) { 1 } else { 16 };
/// More slots would not help: spans of further traces are queued one by one.
const SLOTS_MAX: u32 = 1 << 20;

#[derive(Debug, Default)]
#[repr(align(64))]
struct FreeList(Mutex<Vec<u32>>);

impl Traces {
    pub fn new(slots: u32, budget: Arc<MemoryBudget>) -> Self {
        let slots_max = slots.min(SLOTS_MAX);
        Traces {
            chunks: (0..(slots_max as usize).div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            slots_max,
            used: AtomicU32::new(0),
            free: Default::default(),
            budget,
            provisional: AtomicU32::new(0),
            looked_at: AtomicU32::new(0),
        }
    }

    #[inline]
    fn slot(&self, number: u32) -> Option<&Slot> {
        Some(&self.chunks.get(number as usize / CHUNK)?.get()?[number as usize % CHUNK])
    }

    /// A slot for a trace that begins at `now`; [`TraceRef::NONE`] if all are taken.
    pub fn take(&self, now: Ticks) -> TraceRef {
        self.take_marked(now, |_, _| ())
    }

    /// Like [`Traces::take`]. `mark` writes the slot's marks for this turn before other threads can
    /// see the slot as opened.
    #[inline]
    fn take_marked(&self, now: Ticks, mark: impl FnOnce(&Slot, u32)) -> TraceRef {
        let own = thread::number() as usize % LISTS;
        let popped = lock(&self.free[own].0).pop();
        let Some((number, slot)) =
            popped.or_else(|| self.take_elsewhere(own)).and_then(|number| Some((number, self.slot(number)?)))
        else {
            return TraceRef::NONE;
        };
        // Relaxed: the turn changed before the slot went to the free list, whose lock orders both.
        let turn = slot.turn.load(Ordering::Relaxed);
        mark(slot, turn);
        // Release, paired with the Acquire loads of `opened`: a thread that sees the slot as opened
        // also sees its marks. A root that is decided late may already be old, so that
        // [`Traces::expire`] looks at its slot at once.
        slot.opened.store(now.max(1), Ordering::Release);
        TraceRef { slot: number, turn }
    }

    #[cold]
    fn take_elsewhere(&self, own: usize) -> Option<u32> {
        // Prefer a slot from another free list: its buffer is already allocated.
        for list in (own + 1..own + LISTS).map(|list| list % LISTS) {
            let popped = lock(&self.free[list].0).pop();
            if popped.is_some() {
                return popped;
            }
        }
        // Relaxed: the update only makes the number unique; `OnceLock` publishes the chunk.
        let next = |used: u32| (used < self.slots_max).then_some(used + 1);
        let number = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let chunk = self.chunks.get(number as usize / CHUNK)?;
        if chunk.get().is_none() {
            // Built on the heap: the stack of a service's thread may be too small for a whole
            // chunk.
            let slots: Box<[Slot]> = (0..CHUNK).map(|_| Slot::default()).collect();
            let _ = chunk.set(slots.try_into().ok()?);
        }
        Some(number)
    }

    /// Adds an ended span to its trace. The local root's end queues the trace; a trace that has
    /// gathered much is queued in part. Returns false if the queue refused what was queued.
    ///
    /// If this span is the root, and no part of its trace was queued before, `at_end` may change
    /// the header of the whole trace. It runs under the slot's lock.
    #[inline]
    pub fn end_span(
        &self,
        trace: TraceRef,
        header: impl FnOnce() -> Header,
        record: Record,
        body: Option<&mut Body>,
        queue: &Queue,
        at_end: impl FnOnce(&mut Header, &Buffer),
    ) -> bool {
        // Wait before taking any lock, because a worker may need that lock to free space.
        queue.wait_for_space(Patience::Full);
        let is_root = record.is_local_root;
        let Some(slot) = self.slot(trace.slot) else { return queue.push_span(header(), record, body) };
        let mut gathered = lock(&slot.gathered);
        // Nothing gathers after the shutdown: `closed` was set before all slots were emptied under
        // this lock.
        if slot.turn.load(Ordering::Relaxed) != trace.turn || queue.is_closed() {
            drop(gathered);
            return queue.push_span(header(), record, body);
        }
        if gathered.header.is_none() {
            gathered.header = Some(header());
        }
        // Records without a body are bounded by their number, so their bytes need no check.
        let has_body = body.is_some();
        let may_grow = has_body || gathered.buffer.records.len() == gathered.buffer.records.capacity();
        gathered.buffer.append(record, body);
        if is_root {
            let Gathered { header, buffer, is_in_part, .. } = &mut *gathered;
            if let (false, Some(header)) = (std::mem::take(is_in_part), header) {
                at_end(header, buffer);
            }
            let is_taken = gathered.leave(queue);
            self.free((trace.slot, slot), gathered, false);
            return is_taken;
        }
        let used = if may_grow { gathered.buffer.bytes_used() } else { 0 };
        if gathered.buffer.records.len() >= queue.bounds.spans_per_trace as usize
            || has_body && used >= queue.bounds.bytes_per_part()
        {
            gathered.leave_in_part(queue);
        } else if used > gathered.reservation.bytes() && !gathered.reserve_all(&self.budget) {
            gathered.leave_early(queue);
        }
        true
    }

    /// Ends the slot's use by its trace, whose spans have left, and frees the slot.
    #[inline]
    fn free(&self, (number, slot): (u32, &Slot), gathered: MutexGuard<'_, Gathered>, is_provisional: bool) {
        if is_provisional {
            self.provisional.fetch_sub(1, Ordering::Relaxed);
        }
        // Relaxed: stored under the slot's lock.
        slot.opened.store(0, Ordering::Relaxed);
        slot.turn.store(slot.turn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        drop(gathered);
        let own = thread::number() as usize % LISTS;
        lock(&self.free[own].0).push(number);
    }

    fn in_use(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..self.used.load(Ordering::Relaxed)).filter_map(|number| Some((number, self.slot(number)?)))
    }

    /// Queues the ended spans of all open traces, except provisional ones.
    pub fn flush(&self, queue: &Queue, patience: Patience) {
        for (_, slot) in self.in_use() {
            queue.wait_for_space(patience);
            let mut gathered = lock(&slot.gathered);
            if !slot.is_provisional() {
                gathered.leave_in_part(queue);
            }
        }
    }

    /// Ends the gathering of traces that began before `before`, as long as `goes_on` returns true.
    /// The spans of kept traces are queued; provisional traces are passed to `f`. Spans that end
    /// later are queued one by one, or are late.
    ///
    /// A provisional trace in which no span has ended offers nothing to the policies, so it is
    /// skipped while provisional traces have at most half of the slots. With `before` at
    /// [`Ticks::MAX`], which means the shutdown, no trace is skipped, and kept ones stay in their
    /// slots.
    pub fn expire(
        &self,
        before: Ticks,
        queue: &Queue,
        goes_on: impl Fn() -> bool,
        mut f: impl FnMut(Box<ProvisionalTrace>),
    ) {
        // The Acquire pairs with the Release in `take_marked`: if the slot is old, its marks are
        // visible.
        let is_old = |slot: &Slot| (1..before).contains(&slot.opened.load(Ordering::Acquire));
        let is_shutdown = before == Ticks::MAX;
        for (number, slot) in self.in_use().filter(|(_, slot)| is_old(slot)) {
            if !goes_on() {
                return;
            }
            let mut gathered = lock(&slot.gathered);
            // The trace may have left since, and another may have taken its slot.
            if !is_old(slot) {
                continue;
            }
            if !slot.is_provisional() {
                if is_shutdown {
                    // The root may end later. It learns from the slot that errors were seen.
                    gathered.leave_in_part(queue);
                    continue;
                }
                gathered.leave(queue);
                gathered.is_in_part = false;
                self.free((number, slot), gathered, false);
            } else if is_shutdown || gathered.header.is_some() || self.provisional() > self.slots_max / 2 {
                self.take_out((number, slot), gathered).into_iter().for_each(&mut f);
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models;
