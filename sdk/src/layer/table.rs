//! From a span's id in the subscriber to what we know of it: an atomic read, no lock.
//!
//! Ids lie in rows of eight, one cache line; an id's row follows from the id, and any free place in it will do. The
//! few that find their row full lie in a map behind a lock.
//!
//! Why no lock is needed: an id is unique among the spans that are open, and whoever looks one up holds the span open.
//! So the place of an id that is looked for does not change under the reader, and what was written there before the
//! span was handed to the reader's thread is seen there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry::{Context, SpanId};

use crate::clock::Ticks;

/// What is known of a span: in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handle {
    /// A local root that was not yet entered, and of which there is nothing to know but its start. Its context is made
    /// from the current one, or from an empty one.
    Fresh { contextual: bool },
    /// As `Fresh`, and a thread is about to decide.
    Deciding,
    /// A dropped local root.
    Dropped,
    /// A local root that was not yet entered, and whose record waits for the decision.
    Pending { slot: u32 },
    /// A record.
    Record { slot: u32, index: u32 },
}

impl Handle {
    /// Where the span's record lies.
    pub(crate) fn place(self) -> Option<(u32, u32)> {
        match self {
            Handle::Record { slot, index } => Some((slot, index)),
            Handle::Pending { slot } => Some((slot, 0)),
            Handle::Fresh { .. } | Handle::Deciding | Handle::Dropped => None,
        }
    }

    fn pack(self) -> u64 {
        match self {
            Handle::Fresh { contextual: false } => 1,
            Handle::Fresh { contextual: true } => 2,
            Handle::Deciding => 3,
            Handle::Dropped => 4,
            Handle::Pending { slot } => (u64::from(slot) + 1) << 32 | u64::from(u32::MAX),
            Handle::Record { slot, index } => (u64::from(slot) + 1) << 32 | u64::from(index),
        }
    }

    fn unpack(word: u64) -> Self {
        match word {
            1 => Handle::Fresh { contextual: false },
            2 => Handle::Fresh { contextual: true },
            3 => Handle::Deciding,
            0..=4 => Handle::Dropped,
            _ => match ((word >> 32).saturating_sub(1) as u32, word as u32) {
                (slot, u32::MAX) => Handle::Pending { slot },
                (slot, index) => Handle::Record { slot, index },
            },
        }
    }
}

/// A span's place.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Lane {
    handle: AtomicU64,
    /// Of a fresh root its start, of a record its last exit (0: none).
    time: AtomicU64,
    /// The span's id in the trace, so that no lock is needed to know it.
    span_id: AtomicU64,
    context: Mutex<Option<Context>>,
}

impl Lane {
    pub(crate) fn handle(&self) -> Handle {
        Handle::unpack(self.handle.load(Ordering::Acquire))
    }

    pub(crate) fn set_handle(&self, handle: Handle) {
        self.handle.store(handle.pack(), Ordering::Release);
    }

    /// Whether this thread is the one that may decide about a fresh root.
    pub(crate) fn claim(&self, fresh: Handle) -> bool {
        let deciding = Handle::Deciding.pack();
        self.handle.compare_exchange(fresh.pack(), deciding, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn time(&self) -> Ticks {
        self.time.load(Ordering::Relaxed)
    }

    pub(crate) fn set_time(&self, time: Ticks) {
        self.time.store(time, Ordering::Relaxed);
    }

    pub(crate) fn span_id(&self) -> SpanId {
        SpanId::from(self.span_id.load(Ordering::Relaxed))
    }

    /// To be called before the handle says that there is a record.
    pub(crate) fn set_span_id(&self, span_id: SpanId) {
        self.span_id.store(u64::from_be_bytes(span_id.to_bytes()), Ordering::Relaxed);
    }

    pub(crate) fn context(&self) -> Option<Context> {
        self.lock_context().clone()
    }

    /// The context that was there before comes back, to be dropped where no lock is held.
    #[must_use]
    pub(crate) fn replace_context(&self, context: Option<Context>) -> Option<Context> {
        std::mem::replace(&mut *self.lock_context(), context)
    }

    fn lock_context(&self) -> MutexGuard<'_, Option<Context>> {
        self.context.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lane, wherever it lies.
pub(crate) enum LaneRef<'a> {
    Near(&'a Lane),
    Far(Arc<Lane>),
}

impl std::ops::Deref for LaneRef<'_> {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        match self {
            LaneRef::Near(lane) => lane,
            LaneRef::Far(lane) => lane,
        }
    }
}

const ROW: usize = 8;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Row([AtomicU64; ROW]);

/// The table.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Box<[Row]>,
    lanes: Box<[Lane]>,
    far: Mutex<HashMap<u64, Arc<Lane>>>,
    /// How many are in `far`, so that it need not be locked to see that it is empty.
    far_count: AtomicUsize,
    far_max: usize,
}

impl Table {
    /// A table of so many rows, a power of two; as many spans may lie outside of their rows as in them.
    pub(crate) fn new(rows: usize) -> Self {
        let rows = rows.next_power_of_two();
        Table {
            rows: (0..rows).map(|_| Row::default()).collect(),
            lanes: (0..rows * ROW).map(|_| Lane::default()).collect(),
            far: Mutex::default(),
            far_count: AtomicUsize::new(0),
            far_max: rows * ROW,
        }
    }

    /// The registry numbers the spans of a thread from 0 and uses the numbers again, so the low bits say the place in
    /// its thread's page, and bits from 38 on the thread: threads keep to rows of their own, and warm ones.
    fn row(&self, id: u64) -> usize {
        let spread = id.wrapping_add((id >> 38 & 0x1fff).wrapping_mul(0x9e37_79b9));
        spread as usize & (self.rows.len() - 1)
    }

    /// Adds an id; `None` if there is no room.
    #[inline]
    pub(crate) fn insert(&self, id: u64, handle: Handle, time: Ticks) -> Option<LaneRef<'_>> {
        let row = self.row(id);
        for place in 0..ROW {
            let word = &self.rows[row].0[place];
            if word.load(Ordering::Relaxed) == 0
                && word.compare_exchange(0, id, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                let lane = &self.lanes[row * ROW + place];
                lane.set_time(time);
                lane.set_handle(handle);
                return Some(LaneRef::Near(lane));
            }
        }
        self.insert_far(id, handle, time)
    }

    #[cold]
    fn insert_far(&self, id: u64, handle: Handle, time: Ticks) -> Option<LaneRef<'_>> {
        let lane = Arc::new(Lane::default());
        lane.set_time(time);
        lane.set_handle(handle);
        let mut far = self.lock_far();
        if far.len() >= self.far_max {
            return None;
        }
        far.insert(id, lane.clone());
        self.far_count.store(far.len(), Ordering::Release);
        Some(LaneRef::Far(lane))
    }

    #[inline]
    pub(crate) fn find(&self, id: u64) -> Option<LaneRef<'_>> {
        let row = self.row(id);
        match self.place(row, id) {
            Some(place) => Some(LaneRef::Near(&self.lanes[row * ROW + place])),
            None if self.far_count.load(Ordering::Acquire) == 0 => None,
            None => self.lock_far().get(&id).cloned().map(LaneRef::Far),
        }
    }

    #[inline]
    fn place(&self, row: usize, id: u64) -> Option<usize> {
        self.rows[row].0.iter().position(|word| word.load(Ordering::Relaxed) == id)
    }

    /// Removes an id, and its context.
    #[inline]
    pub(crate) fn remove(&self, id: u64) -> Option<Removed> {
        let row = self.row(id);
        let Some(place) = self.place(row, id) else {
            return if self.far_count.load(Ordering::Acquire) == 0 { None } else { self.remove_far(id) };
        };
        let lane = &self.lanes[row * ROW + place];
        let removed =
            Removed { handle: lane.handle(), time: lane.time(), _context: lane.replace_context(None) };
        self.rows[row].0[place].store(0, Ordering::Release);
        Some(removed)
    }

    #[cold]
    fn remove_far(&self, id: u64) -> Option<Removed> {
        let mut far = self.lock_far();
        let lane = far.remove(&id)?;
        self.far_count.store(far.len(), Ordering::Release);
        drop(far);
        Some(Removed { handle: lane.handle(), time: lane.time(), _context: lane.replace_context(None) })
    }

    fn lock_far(&self) -> MutexGuard<'_, HashMap<u64, Arc<Lane>>> {
        self.far.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was known of a span that is no longer in the table.
pub(crate) struct Removed {
    pub(crate) handle: Handle,
    pub(crate) time: Ticks,
    /// Dropped with this, which may run code of the user's: values in a context are theirs.
    _context: Option<Context>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(slot: u32, index: u32) -> Handle {
        Handle::Record { slot, index }
    }

    #[test]
    fn handles_survive_packing() {
        for handle in [
            Handle::Fresh { contextual: false },
            Handle::Fresh { contextual: true },
            Handle::Deciding,
            Handle::Dropped,
            record(0, 0),
            record(7, u32::MAX - 1),
            Handle::Pending { slot: 0 },
            Handle::Pending { slot: 7 },
            record(u32::MAX - 1, 1),
        ] {
            assert_eq!(Handle::unpack(handle.pack()), handle);
        }
    }

    #[test]
    fn full_rows_overflow_into_the_map_and_the_map_is_bounded() {
        let table = Table::new(1);
        for id in 1..=16 {
            assert!(table.insert(id, record(id as u32, 0), id).is_some(), "{id}");
        }
        assert!(table.insert(17, Handle::Dropped, 0).is_none());
        for id in 1..=16 {
            let lane = table.find(id).unwrap();
            assert_eq!((lane.handle(), lane.time()), (record(id as u32, 0), id));
        }
        assert!(table.find(17).is_none());
        for id in 1..=16 {
            assert_eq!(table.remove(id).unwrap().handle, record(id as u32, 0));
            assert!(table.find(id).is_none() && table.remove(id).is_none(), "{id}");
        }
        assert!(table.insert(17, Handle::Dropped, 0).is_some());
    }

    #[test]
    fn one_thread_decides() {
        let table = Table::new(1);
        let fresh = Handle::Fresh { contextual: false };
        let lane = table.insert(5, fresh, 9).unwrap();
        assert!(lane.claim(fresh));
        assert!(!lane.claim(fresh));
        assert_eq!(lane.handle(), Handle::Deciding);
    }
}
