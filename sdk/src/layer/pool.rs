//! Places for the kept traces that are open: as many as the constructor says, each with a buffer that is used again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use opentelemetry::TraceId;

use super::atomic_id::AtomicTraceId;
use super::buffer::Buffer;
use super::table::TURN_MAX;
use super::thread;

/// A place. Its lock is that of one trace, and is never held while code of the user's runs.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    turn: AtomicU32,
    /// What spans that begin below the trace's root need to know, so that they need not wait for the lock.
    thread: AtomicU32,
    has_state: AtomicBool,
    trace_id: AtomicTraceId,
    buffer: Mutex<Buffer>,
}

impl Slot {
    fn new(number: u32) -> Self {
        Slot {
            number,
            turn: AtomicU32::new(0),
            thread: AtomicU32::new(0),
            has_state: AtomicBool::new(false),
            trace_id: AtomicTraceId::default(),
            buffer: Mutex::default(),
        }
    }

    /// Tells the traces apart that have this place one after the other: a number that changes when one ends. What still
    /// holds on to one can see that it has ended.
    #[inline]
    pub(crate) fn turn(&self) -> u32 {
        self.turn.load(Ordering::Relaxed)
    }

    /// The trace has ended here. To be called under the lock.
    pub(crate) fn end_turn(&self) {
        self.turn.store(self.turn().wrapping_add(1) & TURN_MAX, Ordering::Relaxed);
    }

    /// The number of the thread that is the first in the buffer's list, 0 if that is not known.
    #[inline]
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// The trace is kept, and this is known of it. To be called under the lock.
    pub(crate) fn set_trace(&self, buffer: &Buffer) {
        self.trace_id.store(buffer.trace_id);
        self.has_state.store(buffer.has_state(), Ordering::Relaxed);
        self.thread.store(buffer.first_thread, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn trace_id(&self) -> TraceId {
        self.trace_id.load()
    }

    /// Whether the trace has a trace state.
    #[inline]
    pub(crate) fn has_state(&self) -> bool {
        self.has_state.load(Ordering::Relaxed)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Buffer> {
        // A panic cannot leave a buffer half written: nothing that can panic is called under the lock.
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All places. Free ones lie in lists, one for each group of threads, so that threads do not meet.
#[derive(Debug)]
pub(crate) struct Pool {
    slots: Box<[OnceLock<Arc<Slot>>]>,
    /// Places from here on were never used.
    fresh: AtomicU32,
    free: [FreeList; LISTS],
}

const LISTS: usize = 16;

#[derive(Debug, Default)]
#[repr(align(64))]
struct FreeList(Mutex<Vec<u32>>);

impl FreeList {
    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    pub(crate) fn new(slots: u32) -> Self {
        Pool {
            slots: (0..slots).map(|_| OnceLock::new()).collect(),
            fresh: AtomicU32::new(0),
            free: Default::default(),
        }
    }

    pub(crate) fn slot(&self, number: u32) -> Option<&Arc<Slot>> {
        self.slots.get(number as usize)?.get()
    }

    /// A free place, its buffer empty. `None` if all are taken.
    pub(crate) fn take(&self) -> Option<&Arc<Slot>> {
        let own = thread::number() as usize % LISTS;
        let popped = self.free[own].lock().pop();
        match popped {
            Some(number) => self.slot(number),
            None => self.take_elsewhere(own),
        }
    }

    #[cold]
    fn take_elsewhere(&self, own: usize) -> Option<&Arc<Slot>> {
        // A free place of another list first: the buffer there has its memory already.
        for list in (own + 1..own + LISTS).map(|list| list % LISTS) {
            let popped = self.free[list].lock().pop();
            if let Some(number) = popped {
                return self.slot(number);
            }
        }
        let next = |fresh: u32| ((fresh as usize) < self.slots.len()).then_some(fresh + 1);
        let number = self.fresh.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let slot = self.slots.get(number as usize)?;
        Some(slot.get_or_init(|| Arc::new(Slot::new(number))))
    }

    /// Gives a place back, its buffer empty again.
    pub(crate) fn release(&self, number: u32) {
        let own = thread::number() as usize % LISTS;
        self.free[own].lock().push(number);
    }

    /// All places that were ever used.
    pub(crate) fn used(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.slots.iter().map_while(OnceLock::get)
    }
}
