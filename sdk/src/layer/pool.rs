//! Places for the kept traces that are open: as many as the constructor says, each with a buffer that is used again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::buffer::Buffer;
use super::thread;
use crate::settings::SpanLimits;

/// A place. Its lock is that of one trace, and is never held while code of the user's runs.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    /// For those that have no more than the place.
    pub(crate) limits: SpanLimits,
    buffer: Mutex<Box<Buffer>>,
}

impl Slot {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Box<Buffer>> {
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
    limits: SpanLimits,
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
    pub(crate) fn new(slots: u32, limits: SpanLimits) -> Self {
        Pool {
            slots: (0..slots).map(|_| OnceLock::new()).collect(),
            fresh: AtomicU32::new(0),
            free: Default::default(),
            limits,
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
        Some(slot.get_or_init(|| Arc::new(Slot { number, limits: self.limits, buffer: Mutex::default() })))
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
