//! From a span's id in the subscriber to what we know of it: an atomic read, no lock.
//!
//! Ids lie in rows of four; an id's row follows from the id, and any free place in it will do. A registry numbers the
//! spans of a thread one after the other, so mostly a row has one of them, and short rows are soon searched in vain. The
//! few that find their row full lie in a map behind a lock.
//!
//! Why no lock is needed: an id is unique among the spans that are open, and whoever looks one up holds the span open.
//! So the place of an id that is looked for does not change under the reader, and what was written there before the
//! span was handed to the reader's thread is seen there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crossbeam_utils::atomic::AtomicCell;
use opentelemetry::{Context, SpanId, TraceId};
use tracing_core::Metadata;

use super::atomic_id::{AtomicSpanId, AtomicTraceId};
use crate::clock::Ticks;

/// What is known of a span: in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handle {
    /// A local root that was not yet entered, and of which there is nothing to know but its start and its metadata.
    Fresh,
    /// As `Fresh`, and a thread is about to decide.
    Deciding,
    /// A dropped local root.
    Dropped,
    /// A local root that was not yet entered, and whose record waits for the decision.
    Pending { slot: u32 },
    /// A span of a kept trace that has no record yet: all that is known of it lies in its lane. With the number that the
    /// trace has among those of its slot, see [`Slot::turn`](super::pool::Slot::turn).
    Unwritten { slot: u32, turn: u32 },
    /// A record.
    Record { slot: u32, index: u32 },
}

impl Handle {
    /// Where the span's trace is recorded.
    #[inline]
    pub(crate) fn slot(self) -> Option<u32> {
        match self {
            Handle::Record { slot, .. } | Handle::Unwritten { slot, .. } | Handle::Pending { slot } => {
                Some(slot)
            }
            Handle::Fresh | Handle::Deciding | Handle::Dropped => None,
        }
    }

    #[inline(always)]
    fn pack(self) -> u64 {
        match self {
            Handle::Fresh => OTHER | 1,
            Handle::Deciding => OTHER | 2,
            Handle::Dropped => OTHER,
            Handle::Pending { slot } => u64::from(slot) << 32 | u64::from(PENDING),
            Handle::Unwritten { slot, turn } => u64::from(slot) << 32 | u64::from(UNWRITTEN | turn),
            Handle::Record { slot, index } => u64::from(slot) << 32 | u64::from(index),
        }
    }

    #[inline]
    fn unpack(word: u64) -> Self {
        if word < OTHER {
            return match ((word >> 32) as u32, word as u32) {
                (slot, PENDING) => Handle::Pending { slot },
                (slot, index) if index <= INDEX_MAX => Handle::Record { slot, index },
                (slot, other) => Handle::Unwritten { slot, turn: other & TURN_MAX },
            };
        }
        match word - OTHER {
            1 => Handle::Fresh,
            2 => Handle::Deciding,
            _ => Handle::Dropped,
        }
    }
}

/// From here on words are not of a slot: there are not so many.
const OTHER: u64 = (u32::MAX as u64) << 32;
/// Records have no higher index.
pub(crate) const INDEX_MAX: u32 = u32::MAX >> 1;
/// Traces of a slot have no higher number.
pub(crate) const TURN_MAX: u32 = u32::MAX >> 2;
const UNWRITTEN: u32 = INDEX_MAX + 1;
const PENDING: u32 = u32::MAX;

/// A span's place.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Lane {
    handle: AtomicU64,
    /// Of what has no record yet: when it began, what it is, and its parent's id.
    began: AtomicU64,
    metadata: AtomicCell<Option<&'static Metadata<'static>>>,
    parent: AtomicSpanId,
    /// 0: none.
    last_exit: AtomicU64,
    /// The span's id in the trace, so that no lock is needed to know it; 0: it has none.
    span_id: AtomicSpanId,
    /// The number of the thread on which the span began, if its context is made from the one that is current there;
    /// 0: it is made from an empty one.
    origin: AtomicU32,
    entered: AtomicBool,
    /// Whether there is one in `context`, so that it need not be locked to see that there is none.
    has_context: AtomicBool,
    /// Of a dropped root. A kept trace's lies in its slot.
    trace_id: AtomicTraceId,
    // If it is asked for how long spans are entered:
    /// How many times it is entered now.
    inside: AtomicU32,
    /// When it was entered and nobody was inside.
    resumed: AtomicU64,
    /// For how long somebody was inside, before that.
    busy: AtomicU64,
    context: Mutex<Option<Context>>,
}

impl Lane {
    #[inline]
    fn begin(&self, handle: Handle, began: Ticks, origin: u32) {
        self.began.store(began, Ordering::Relaxed);
        self.last_exit.store(0, Ordering::Relaxed);
        self.span_id.store(SpanId::INVALID);
        self.origin.store(origin, Ordering::Relaxed);
        self.entered.store(false, Ordering::Relaxed);
        self.set_handle(handle);
    }

    #[inline]
    pub(crate) fn handle(&self) -> Handle {
        Handle::unpack(self.handle.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn is(&self, handle: Handle) -> bool {
        self.handle.load(Ordering::Acquire) == handle.pack()
    }

    /// The slot of a span whose trace is kept.
    #[inline]
    pub(crate) fn kept_slot(&self) -> Option<u32> {
        let word = self.handle.load(Ordering::Acquire);
        (word < OTHER && word as u32 != PENDING).then_some((word >> 32) as u32)
    }

    #[inline]
    pub(crate) fn set_handle(&self, handle: Handle) {
        self.handle.store(handle.pack(), Ordering::Release);
    }

    /// Whether this thread is the one that may decide about a fresh root.
    #[inline]
    pub(crate) fn claim(&self, fresh: Handle) -> bool {
        let deciding = Handle::Deciding.pack();
        self.handle.compare_exchange(fresh.pack(), deciding, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn began(&self) -> Ticks {
        self.began.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn last_exit(&self) -> Ticks {
        self.last_exit.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_last_exit(&self, time: Ticks) {
        self.last_exit.store(time, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn metadata(&self) -> Option<&'static Metadata<'static>> {
        self.metadata.load()
    }

    #[inline]
    pub(crate) fn set_metadata(&self, metadata: &'static Metadata<'static>) {
        self.metadata.store(Some(metadata));
    }

    #[inline]
    pub(crate) fn parent(&self) -> SpanId {
        self.parent.load()
    }

    #[inline]
    pub(crate) fn set_parent(&self, parent: SpanId) {
        self.parent.store(parent);
    }

    #[inline]
    pub(crate) fn span_id(&self) -> SpanId {
        self.span_id.load()
    }

    #[inline]
    pub(crate) fn trace_id(&self) -> TraceId {
        self.trace_id.load()
    }

    /// To be called before the handle says that the span was decided about.
    #[inline]
    pub(crate) fn set_span_id(&self, span_id: SpanId) {
        self.span_id.store(span_id);
    }

    /// As [`Lane::set_span_id`], of a dropped root.
    pub(crate) fn set_ids(&self, trace_id: TraceId, span_id: SpanId) {
        self.trace_id.store(trace_id);
        self.set_span_id(span_id);
    }

    #[inline]
    pub(crate) fn origin(&self) -> u32 {
        self.origin.load(Ordering::Relaxed)
    }

    pub(crate) fn set_origin(&self, origin: u32) {
        self.origin.store(origin, Ordering::Relaxed);
    }

    /// Notes that the span is entered; says whether it was before.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        let before = self.entered.load(Ordering::Relaxed);
        if !before {
            self.entered.store(true, Ordering::Relaxed);
        }
        before
    }

    /// Whether it was entered, or has become known to others: its parent is settled.
    #[inline]
    pub(crate) fn is_started(&self) -> bool {
        self.entered.load(Ordering::Relaxed)
    }

    /// Notes that it has become known to others.
    #[inline]
    pub(crate) fn start(&self) {
        self.entered.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn has_context(&self) -> bool {
        self.has_context.load(Ordering::Relaxed)
    }

    /// Nobody has been inside yet.
    #[inline]
    pub(crate) fn track(&self) {
        self.inside.store(0, Ordering::Relaxed);
        self.busy.store(0, Ordering::Relaxed);
    }

    /// A thread enters the span.
    #[inline]
    pub(crate) fn resume(&self, now: Ticks) {
        // Before it is counted: whoever leaves last looks at it.
        if self.inside.load(Ordering::Acquire) == 0 {
            self.resumed.store(now, Ordering::Relaxed);
        }
        self.inside.fetch_add(1, Ordering::AcqRel);
    }

    /// A thread leaves the span.
    #[inline]
    pub(crate) fn pause(&self, now: Ticks) {
        // While this thread is inside nobody changes it.
        let resumed = self.resumed.load(Ordering::Relaxed);
        if self.inside.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.busy.fetch_add(now.saturating_sub(resumed), Ordering::Relaxed);
        }
    }

    /// For how long somebody was inside. Those who were there at the same time count once.
    #[inline]
    pub(crate) fn busy(&self) -> Ticks {
        self.busy.load(Ordering::Relaxed)
    }

    /// The context that was made and kept, if one was.
    #[inline]
    pub(crate) fn kept_context(&self) -> Option<Context> {
        if self.has_context() { self.lock_context().clone() } else { None }
    }

    /// The context that was there before comes back, to be dropped where no lock is held.
    #[must_use]
    pub(crate) fn keep_context(&self, context: Context) -> Option<Context> {
        let before = self.lock_context().replace(context);
        self.has_context.store(true, Ordering::Relaxed);
        before
    }

    #[inline]
    pub(crate) fn take_context(&self) -> Option<Context> {
        if !self.has_context() {
            return None;
        }
        self.has_context.store(false, Ordering::Relaxed);
        self.lock_context().take()
    }

    fn lock_context(&self) -> MutexGuard<'_, Option<Context>> {
        self.context.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const ROW: usize = 4;

#[derive(Debug, Default)]
#[repr(align(32))]
struct Row([AtomicU64; ROW]);

/// The table.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Box<[Row]>,
    lanes: Box<[Lane]>,
    far: Mutex<Far>,
    /// How many are in `far`, so that it need not be locked to see that it is empty.
    far_count: AtomicUsize,
    /// Their lanes: made when they are first needed, and never moved.
    far_lanes: Box<[OnceLock<Box<Lane>>]>,
}

/// The spans that found their row full.
#[derive(Debug, Default)]
struct Far {
    places: HashMap<u64, usize>,
    free: Vec<usize>,
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
            far_lanes: (0..rows * ROW).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The registry numbers the spans of a thread from 0 and uses the numbers again, so the low bits say the place in
    /// its thread's page, and bits from 38 on the thread: threads keep to rows of their own, and warm ones.
    #[inline]
    fn row(&self, id: u64) -> usize {
        let spread = id.wrapping_add((id >> 38 & 0x1fff).wrapping_mul(0x9e37_79b9));
        spread as usize & (self.rows.len() - 1)
    }

    /// Adds an id; `None` if there is no room.
    #[inline(always)]
    pub(crate) fn insert(&self, id: u64, handle: Handle, began: Ticks, origin: u32) -> Option<&Lane> {
        let row = self.row(id);
        for (place, word) in self.rows[row].0.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0
                && word.compare_exchange(0, id, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                let lane = &self.lanes[row * ROW + place];
                lane.begin(handle, began, origin);
                return Some(lane);
            }
        }
        self.insert_far(id, handle, began, origin)
    }

    #[cold]
    fn insert_far(&self, id: u64, handle: Handle, began: Ticks, origin: u32) -> Option<&Lane> {
        let mut far = self.lock_far();
        let place = match far.free.pop() {
            Some(place) => place,
            // None was ever given back that is not taken again: so many are taken.
            None if far.places.len() < self.far_lanes.len() => far.places.len(),
            None => return None,
        };
        let lane = self.far_lanes[place].get_or_init(Box::default);
        lane.begin(handle, began, origin);
        far.places.insert(id, place);
        self.far_count.store(far.places.len(), Ordering::Release);
        Some(lane)
    }

    /// All places that were ever taken, and some that were not.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().chain(self.far_lanes.iter().filter_map(OnceLock::get).map(|lane| &**lane))
    }

    #[inline]
    pub(crate) fn find(&self, id: u64) -> Option<&Lane> {
        let row = self.row(id);
        match self.column(row, id) {
            Some(place) => Some(&self.lanes[row * ROW + place]),
            None if self.far_count.load(Ordering::Acquire) == 0 => None,
            None => self.find_far(id),
        }
    }

    /// The place of a lane, to be found again without a search.
    #[inline]
    pub(crate) fn place(&self, lane: &Lane) -> u32 {
        let bytes = std::ptr::from_ref(lane).addr().wrapping_sub(self.lanes.as_ptr().addr());
        // One that lies outside of the rows has a place that there is not.
        u32::try_from(bytes / size_of::<Lane>()).unwrap_or(u32::MAX)
    }

    /// As [`Table::find`], for an id that was at this place.
    #[inline]
    pub(crate) fn find_at(&self, place: u32, id: u64) -> Option<&Lane> {
        let place = place as usize;
        let there = self.rows.get(place / ROW).map(|row| row.0[place % ROW].load(Ordering::Relaxed));
        if there == Some(id) { self.lanes.get(place) } else { self.find(id) }
    }

    #[cold]
    fn find_far(&self, id: u64) -> Option<&Lane> {
        let place = *self.lock_far().places.get(&id)?;
        self.far_lanes[place].get().map(|lane| &**lane)
    }

    #[inline]
    fn column(&self, row: usize, id: u64) -> Option<usize> {
        self.rows[row].0.iter().position(|word| word.load(Ordering::Relaxed) == id)
    }

    /// Removes an id, whose lane this is. The lane must not be looked at any more.
    #[inline]
    pub(crate) fn remove(&self, id: u64, lane: &Lane) {
        let place = self.place(lane) as usize;
        match self.rows.get(place / ROW) {
            Some(row) => row.0[place % ROW].store(0, Ordering::Release),
            None => self.remove_far(id),
        }
    }

    /// Removes an id that may not be there; says whether it was.
    #[inline]
    pub(crate) fn take(&self, id: u64) -> bool {
        let found = self.find(id);
        if let Some(lane) = found {
            self.remove(id, lane);
        }
        found.is_some()
    }

    #[cold]
    fn remove_far(&self, id: u64) {
        let mut far = self.lock_far();
        let Some(place) = far.places.remove(&id) else { return };
        far.free.push(place);
        self.far_count.store(far.places.len(), Ordering::Release);
    }

    fn lock_far(&self) -> MutexGuard<'_, Far> {
        self.far.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
            Handle::Fresh,
            Handle::Deciding,
            Handle::Dropped,
            record(0, 0),
            record(7, INDEX_MAX),
            Handle::Pending { slot: 0 },
            Handle::Pending { slot: 7 },
            Handle::Unwritten { slot: 0, turn: 0 },
            Handle::Unwritten { slot: 7, turn: TURN_MAX },
            record(u32::MAX - 1, INDEX_MAX),
        ] {
            assert_eq!(Handle::unpack(handle.pack()), handle);
        }
    }

    #[test]
    fn full_rows_overflow_into_the_map_and_the_map_is_bounded() {
        let table = Table::new(1);
        let all = 2 * ROW as u64;
        for id in 1..=all {
            assert!(table.insert(id, record(id as u32, 0), id, 0).is_some(), "{id}");
        }
        assert!(table.insert(all + 1, Handle::Dropped, 0, 0).is_none());
        for id in 1..=all {
            let lane = table.find(id).unwrap();
            assert_eq!((lane.handle(), lane.began()), (record(id as u32, 0), id));
        }
        assert!(table.find(all + 1).is_none());
        for id in 1..=all {
            let lane = table.find(id).unwrap();
            assert!(std::ptr::eq(table.find_at(table.place(lane), id).unwrap(), lane), "{id}");
            assert!(table.find_at(table.place(lane), all + 1).is_none(), "another has the place");
        }
        for id in 1..=all {
            let lane = table.find(id).unwrap();
            assert_eq!(lane.handle(), record(id as u32, 0));
            table.remove(id, lane);
            assert!(table.find(id).is_none(), "{id}");
        }
        assert!(table.insert(all + 1, Handle::Dropped, 0, 0).is_some());
    }

    /// A place outside of the rows is taken by one span at a time.
    #[test]
    fn places_in_the_map_are_used_again() {
        let table = Table::new(1);
        let (near, all) = (ROW as u64, 2 * ROW as u64);
        for id in 1..near + 3 {
            assert!(table.insert(id, record(id as u32, 0), id, 0).is_some());
        }
        assert!(table.take(near + 1) && !table.take(near + 1));
        for id in near + 3..=all + 1 {
            assert!(table.insert(id, record(id as u32, 0), id, 0).is_some(), "{id}");
        }
        for id in (1..=near).chain(near + 2..=all + 1) {
            assert_eq!(table.find(id).map(Lane::handle), Some(record(id as u32, 0)));
        }
    }

    #[test]
    fn one_thread_decides() {
        let table = Table::new(1);
        let fresh = Handle::Fresh;
        let lane = table.insert(5, fresh, 9, 0).unwrap();
        assert!(lane.claim(fresh));
        assert!(!lane.claim(fresh));
        assert_eq!(lane.handle(), Handle::Deciding);
    }
}
