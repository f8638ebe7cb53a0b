//! Slots where the ended spans of open traces gather, until the trace leaves whole or in parts.
//!
//! A slot is only a place to gather. Entries of open spans know everything about their trace, and
//! refer to the slot by its number and *turn*, which changes when the slot is given to another
//! trace. A span that ends and finds another turn leaves by itself, with the right ids: so a slot
//! can be taken from a trace at any time, and no span is lost by it or lands in another trace.
//!
//! | field | written by |
//! |---|---|
//! | `turn` | who holds the slot's lock |
//! | `opened` | who takes the slot from the free list, once its marks are written; 0 by who ends the turn, under the lock |
//! | `gathered` | who holds the lock, and has compared the turn |
//! | `marks` | who takes the slot for a provisional trace; then any, by compare-exchange with the turn |
//! | `key` | who takes the slot for a provisional trace |

mod provisional;

use std::sync::{Arc, OnceLock};

pub(crate) use self::provisional::{EndedSpan, Provisional, RingRoom};

use crate::budget::{Budget, Room, Use};
use crate::clock::Ticks;
use crate::export::{Patience, Queue};
use crate::record::{Body, Buffer, Header, Record};
use crate::settings::Bounds;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock};
use crate::thread;

/// The slot of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceRef {
    slot: u32,
    turn: u32,
}

impl TraceRef {
    /// No slot: spans leave one by one.
    pub(crate) const NONE: TraceRef = TraceRef { slot: u32::MAX, turn: 0 };

    #[inline]
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.slot) << 32 | u64::from(self.turn)
    }

    #[inline]
    pub(crate) fn unpack(word: u64) -> Self {
        TraceRef { slot: (word >> 32) as u32, turn: word as u32 }
    }
}

#[derive(Debug, Default)]
struct Slot {
    turn: AtomicU32,
    /// When the trace began; 0 if the slot is free.
    opened: AtomicU64,
    /// See [`provisional`].
    marks: AtomicU64,
    /// The root's key, of a provisional trace.
    key: AtomicU32,
    gathered: Mutex<Gathered>,
}

/// Ended spans of a trace.
#[derive(Debug, Default)]
struct Gathered {
    /// Set with the first span.
    header: Option<Header>,
    buffer: Buffer,
    /// The bytes that `buffer` may grow to before more are asked for.
    room: Room,
    /// Of a provisional trace: it takes no more spans, or it was given up while it was open.
    is_full: bool,
    is_given_up: bool,
}

impl Gathered {
    /// Passes the spans on; returns whether the queue took them. The lock is held, so that parts of
    /// a trace stay in order.
    fn leave(&mut self, queue: &Queue) -> bool {
        let Some(header) = self.header.take() else { return true };
        let is_taken = queue.push(header, &mut self.buffer);
        // A large buffer leaves with its spans.
        if self.buffer.records.capacity() == 0 {
            self.room.shrink_to(0);
        }
        is_taken
    }

    #[inline]
    fn outgrows(&self) -> bool {
        self.buffer.bytes_used() > self.room.bytes()
    }

    /// Whether the buffer has room for what is in it. If it has not, it keeps no memory when its
    /// spans have left.
    #[cold]
    fn has_room(&mut self, budget: &Arc<Budget>) -> bool {
        if !self.room.is_of(budget) {
            self.room = Room::of(budget);
        }
        let bytes = self.buffer.bytes_held();
        bytes <= self.room.bytes() || self.room.grow_to(bytes, Use::Ended)
    }

    fn leave_for_want_of_room(&mut self, queue: &Queue) {
        self.leave(queue);
        self.buffer = Buffer::default();
        self.room.shrink_to(0);
    }
}

/// The slots. Free ones lie in lists, one for each group of threads, so that threads do not meet.
#[derive(Debug)]
pub(crate) struct Traces {
    /// Made when they are first needed.
    chunks: Box<[OnceLock<Box<[Slot; CHUNK]>>]>,
    slots_max: u32,
    /// The number of slots that were ever used.
    used: AtomicU32,
    free: [FreeList; LISTS],
    budget: Arc<Budget>,
    /// Slots of provisional traces.
    provisional: AtomicU32,
    /// The slots that were looked at for one to be given up.
    looked_at: AtomicU32,
}

const CHUNK: usize = if cfg!(loom) { 1 } else { 64 };
const LISTS: usize = if cfg!(loom) { 1 } else { 16 };
/// More slots than this are of no use: spans of further traces leave one by one.
const SLOTS_MAX: u32 = 1 << 20;

#[derive(Debug, Default)]
#[repr(align(64))]
struct FreeList(Mutex<Vec<u32>>);

impl Traces {
    pub(crate) fn new(slots: u32, budget: Arc<Budget>) -> Self {
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
    pub(crate) fn take(&self, now: Ticks) -> TraceRef {
        self.take_marked(now, |_, _| ())
    }

    /// As [`Traces::take`]; `mark` writes to the slot, of this turn, before others may take it for
    /// one of an old trace.
    #[inline]
    fn take_marked(&self, now: Ticks, mark: impl FnOnce(&Slot, u32)) -> TraceRef {
        let own = thread::number() as usize % LISTS;
        let popped = lock(&self.free[own].0).pop();
        let Some((number, slot)) = popped.or_else(|| self.take_elsewhere(own)).and_then(|number| {
            let slot = self.slot(number)?;
            Some((number, slot))
        }) else {
            return TraceRef::NONE;
        };
        let turn = slot.turn.load(Ordering::Relaxed);
        mark(slot, turn);
        // A root that is decided late has a start that is old already.
        slot.opened.store(now.max(1), Ordering::Release);
        TraceRef { slot: number, turn }
    }

    #[cold]
    fn take_elsewhere(&self, own: usize) -> Option<u32> {
        // A free slot of another list first: its buffer has memory already.
        for list in (own + 1..own + LISTS).map(|list| list % LISTS) {
            let popped = lock(&self.free[list].0).pop();
            if popped.is_some() {
                return popped;
            }
        }
        let next = |used: u32| (used < self.slots_max).then_some(used + 1);
        let number = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let chunk = self.chunks.get(number as usize / CHUNK)?;
        if chunk.get().is_none() {
            // Made where it stays: a service's thread may have no room for all of a chunk on its
            // stack.
            let slots: Box<[Slot]> = (0..CHUNK).map(|_| Slot::default()).collect();
            let _ = chunk.set(slots.try_into().ok()?);
        }
        Some(number)
    }

    /// Adds an ended span to its trace. With the local root the trace leaves; a trace that has
    /// gathered much sends a part ahead. Returns whether the queue took the part that left, if one
    /// did.
    #[inline]
    pub(crate) fn end_span(
        &self,
        trace: TraceRef,
        header: impl FnOnce() -> Header,
        record: Record,
        body: Option<&mut Body>,
        (queue, bounds): (&Queue, &Bounds),
    ) -> bool {
        // Before any lock is taken: see there.
        queue.wait_for_space();
        let is_root = record.is_local_root();
        let Some(slot) = self.slot(trace.slot) else { return queue.push_span(header(), record, body) };
        let mut gathered = lock(&slot.gathered);
        // After the shutdown nothing gathers: it was set before all slots were emptied, under this
        // lock.
        if slot.turn.load(Ordering::Relaxed) != trace.turn || queue.is_closed() {
            drop(gathered);
            return queue.push_span(header(), record, body);
        }
        if gathered.header.is_none() {
            gathered.header = Some(header());
        }
        // Records alone stay within the bound of their number.
        let has_body = body.is_some();
        let may_grow = has_body || gathered.buffer.records.len() == gathered.buffer.records.capacity();
        gathered.buffer.append(record, body);
        if is_root {
            let is_taken = gathered.leave(queue);
            end_turn(slot);
            drop(gathered);
            self.release(trace.slot);
            return is_taken;
        }
        if gathered.buffer.records.len() >= bounds.spans_per_trace as usize
            || has_body && gathered.buffer.bytes_used() >= bounds.bytes_per_part()
        {
            gathered.leave(queue);
        } else if may_grow && gathered.outgrows() && !gathered.has_room(&self.budget) {
            gathered.leave_for_want_of_room(queue);
        }
        true
    }

    fn release(&self, number: u32) {
        let own = thread::number() as usize % LISTS;
        lock(&self.free[own].0).push(number);
    }

    fn in_use(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..self.used.load(Ordering::Relaxed)).filter_map(|number| Some((number, self.slot(number)?)))
    }

    /// Passes on the ended spans of all open traces, but those of provisional ones.
    pub(crate) fn flush(&self, queue: &Queue, patience: Patience) {
        for (_, slot) in self.in_use() {
            queue.wait_patiently(patience);
            let mut gathered = lock(&slot.gathered);
            if !slot.is_provisional() {
                gathered.leave(queue);
            }
        }
    }

    /// Passes on the ended spans of traces that began before `before`, and frees their slots: their
    /// later spans leave one by one. Runs on a thread of ours, which makes the space in the queue:
    /// where others would wait for space, the rest stays for the next time.
    pub(crate) fn expire(&self, before: Ticks, queue: &Queue) {
        let is_old = |slot: &Slot| (1..before).contains(&slot.opened.load(Ordering::Acquire));
        for (number, slot) in self.in_use().filter(|(_, slot)| is_old(slot)) {
            if queue.makes_wait() {
                return;
            }
            let mut gathered = lock(&slot.gathered);
            // The trace may have left meanwhile, and another have taken its slot.
            if !is_old(slot) || slot.is_provisional() {
                continue;
            }
            gathered.leave(queue);
            end_turn(slot);
            drop(gathered);
            self.release(number);
        }
    }
}

/// Under the slot's lock.
fn end_turn(slot: &Slot) {
    slot.opened.store(0, Ordering::Relaxed);
    slot.turn.store(slot.turn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

#[cfg(all(test, loom))]
mod loom_models;
