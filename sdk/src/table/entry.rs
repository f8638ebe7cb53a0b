//! The entry of one open span, and its states.
//!
//! ```text
//!             begin                    decide: keep
//!   Free ------------> Undecided --+---------------> Kept --+
//!    ^ |                 ^         | decide: drop           |
//!    | | begin below     |         +---------------> Dropped |
//!    | | a kept span     | set_parent                |       |
//!    | +-----> Waiting --+                           |       |
//!    |            | start (enter, context, ...)      |       |
//!    |            +------------------------------> Kept      |
//!    +------------------------ end --------------------------+
//! ```
//!
//! `Undecided` and `Waiting` pass through `Claimed`: the thread that claims an entry is the only
//! one that changes its state until it publishes the next one; others wait for it. No user code
//! runs while an entry is claimed.
//!
//! # Which thread may write which field in which state
//!
//! *Holders* are threads with the right to use the span: they have a handle of the span, and
//! `tracing` keeps it open. Handles move between threads with an order of their own, so whatever
//! was written before a handle was passed on is seen after. *Others* are threads that kept a
//! context of the span for longer than the span: they may only use [`Entry::with_extra`], which
//! checks under the entry's lock that the span is still the one they knew.
//!
//! | field | Free | Undecided, Waiting | Claimed | Kept, Dropped |
//! |---|---|---|---|---|
//! | `id` | the table, when a span begins (before its handle exists) or ends | - | - | - |
//! | `sequence` | who ends the span, once | - | - | - |
//! | phase | who begins the span | any holder, by compare-exchange to Claimed, or Waiting to Kept | the claimer | who ends the span |
//! | `metadata`, `began`, `thread`, `trace_start` of a child | who begins the span | - | - | - |
//! | `span_id`, `trace_id`, `parent`, `trace`, `trace_start`, `trace_flags` | who begins the span | - | the claimer | - |
//! | `flags`, [`Extra`] | who begins the span | holders and others, under the lock | the same | the same, and who ends the span |
//! | `handles` | the table | holders, by compare-exchange with the generation | the same | the same |
//! | `above` | the table, and who begins the span | - | - | who ends the span |
//! | `root_key` | - | the claimer, and who begins a root that is decided at once | the claimer | - |
//! | `failed` | - | - | the claimer | any holder sets it |
//! | `entered`, `last_exit`, `occupancy`, `busy` | who begins the span | - | - | threads that enter and leave it |
//!
//! Ids are written before the phase is published with release, and read after the phase was read
//! with acquire.
//!
//! The thread that ends a span is alone with it, except for others. If no context that writes to
//! the span was ever handed out ([`EXPOSED`]), there are none, and the end takes no lock.

mod inside;
mod root;

use opentelemetry::trace::SpanContext;
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};
use tracing_core::Metadata;

use super::atomic_id::{AtomicSpanId, AtomicTraceId};
use super::atomic_metadata::AtomicMetadata;
use super::handles::Handles;
use crate::clock::Ticks;
use crate::record::Body;
use crate::sync::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, lock, wait_a_moment,
};
use crate::trace_state::State;
use crate::traces::TraceRef;

/// The state of an entry; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    Free,
    /// A local root that has not been put to the sampler: its parent may still be set.
    Undecided,
    /// A thread is about to publish another state.
    Claimed,
    /// A span below a kept one that has not started: its parent may still be set.
    Waiting,
    /// A started span of a kept trace.
    Kept,
    /// A dropped local root, or a span below one.
    Dropped,
}

impl Phase {
    #[inline]
    fn of(word: u64) -> Phase {
        match word as u8 {
            1 => Phase::Undecided,
            2 => Phase::Claimed,
            3 => Phase::Waiting,
            4 => Phase::Kept,
            5 => Phase::Dropped,
            _ => Phase::Free,
        }
    }
}

/// Bits of a state word below the sequence number.
const PHASE_BITS: u32 = 8;

/// There is a body.
pub(crate) const BODY: u8 = 1;
/// There is a context.
pub(crate) const CONTEXT: u8 = 2;
/// The trace has a trace state.
pub(crate) const STATE: u8 = 4;
/// There is a parent from elsewhere, or a context with values, to decide with.
pub(crate) const PENDING: u8 = 8;
/// A context was handed out that writes to the span.
pub(crate) const EXPOSED: u8 = 16;
/// The span is a local root.
pub(crate) const ROOT: u8 = 32;
/// The span's context is made from the current one, where that is its parent's.
pub(crate) const BASE_CURRENT: u8 = 64;
/// The local root's parent is in another process.
pub(crate) const REMOTE_PARENT: u8 = 128;
/// Flags of what [`Extra`] holds, and of others that may use it.
pub(crate) const HELD: u8 = BODY | CONTEXT | STATE | PENDING | EXPOSED;

/// See the module.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Entry {
    /// The span's id in the subscriber; 0 if the entry is free.
    id: AtomicU64,
    /// The sequence number, which changes when a span ends, and the phase.
    state: AtomicU64,
    metadata: AtomicMetadata,
    began: AtomicU64,
    span_id: AtomicSpanId,
    /// The parent's id in the trace. Of a span below a dropped root nothing.
    parent: AtomicSpanId,
    /// The slot where ended spans of the trace gather: [`TraceRef`].
    trace: AtomicU64,
    /// The time of the last exit; 0: none.
    last_exit: AtomicU64,
    // --- Second line.
    /// The trace's id; of a span below a dropped root that root's.
    trace_id: AtomicTraceId,
    trace_start: AtomicU64,
    /// The number of the thread that the span began on.
    thread: AtomicU32,
    flags: AtomicU8,
    trace_flags: AtomicU8,
    /// The number of times that the span was entered, up to 2.
    entered: AtomicU8,
    /// The number of threads inside, and the time since when there is one: see
    /// [`Occupancy`](super::occupancy::Occupancy).
    occupancy: AtomicU64,
    /// The time during which threads were inside, up to `occupancy`'s.
    busy: AtomicU64,
    extra: Mutex<Extra>,
    handles: Handles,
    /// Of a span with an id of ours: the span that it holds open; 0: none. Of a free entry: the
    /// last span's id.
    above: AtomicU64,
    /// Of a decided local root whose end is counted: the number of its key, plus 1; else 0. Of
    /// other spans nothing.
    root_key: AtomicU32,
    /// Of a dropped local root whose end is counted: whether an error was seen.
    failed: AtomicBool,
}

/// The parts of an entry that most spans do not need; [`HELD`] flags say which are there.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    pub(crate) body: Option<Box<Body>>,
    pub(crate) context: Option<Context>,
    pub(crate) state: State,
    pub(crate) pending: Option<Box<Pending>>,
}

impl Extra {
    fn held(&self) -> u8 {
        let flag = |there: bool, flag| if there { flag } else { 0 };
        flag(self.body.is_some(), BODY)
            | flag(self.context.is_some(), CONTEXT)
            | flag(!self.state.is_empty(), STATE)
            | flag(self.pending.is_some(), PENDING)
    }
}

/// The facts beside name and fields that a local root is decided with.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Not valid if there is none.
    pub(crate) parent: SpanContext,
    /// The context from which the root's is made: its values, baggage among them, stay.
    pub(crate) base: Context,
    /// The parent is a dropped span of ours, and was not set by anyone.
    pub(crate) below_dropped: bool,
}

/// The first facts of a span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    pub(crate) phase: Phase,
    pub(crate) metadata: &'static Metadata<'static>,
    pub(crate) began: Ticks,
    pub(crate) span_id: SpanId,
    pub(crate) parent: SpanId,
    pub(crate) trace: TraceRef,
    pub(crate) trace_id: TraceId,
    pub(crate) trace_start: Ticks,
    pub(crate) trace_flags: TraceFlags,
    pub(crate) thread: u32,
    pub(crate) flags: u8,
}

impl Entry {
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Takes the entry for a span, if it is free. Only the thread whose part of the subscriber the
    /// id is from begins spans here, so a plain store would do; the exchange keeps ids of other
    /// subscribers apart.
    #[inline]
    pub(crate) fn take(&self, id: u64) -> bool {
        self.id.load(Ordering::Relaxed) == 0
            && self.id.compare_exchange(0, id, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes the entry, which is this thread's, for a span under an id of ours, with one handle.
    #[inline]
    pub(super) fn take_own(&self, id: u64) {
        self.above.store(0, Ordering::Relaxed);
        self.handles.start(id);
        self.id.store(id, Ordering::Relaxed);
    }

    /// The id of ours that the entry had last.
    #[inline]
    pub(super) fn last_id(&self) -> u64 {
        self.above.load(Ordering::Relaxed)
    }

    /// Ends a span under an id of ours, as [`Entry::free`] does; returns the id.
    #[inline]
    pub(super) fn free_own(&self) -> u64 {
        let id = self.id();
        self.free();
        self.above.store(id, Ordering::Relaxed);
        id
    }

    /// The span that this one holds open; 0: none.
    #[inline]
    pub(crate) fn above(&self) -> u64 {
        self.above.load(Ordering::Relaxed)
    }

    /// Notes the span that this one holds open. Nobody else knows this one's id yet.
    #[inline]
    pub(crate) fn set_above(&self, above: u64) {
        self.above.store(above, Ordering::Relaxed);
    }

    /// The handles of a span with an id of ours.
    #[inline]
    pub(crate) fn handles(&self) -> &Handles {
        &self.handles
    }

    /// Writes everything about a span that begins. Nobody else knows its id yet.
    #[inline]
    pub(crate) fn begin(&self, beginning: &Beginning) {
        self.metadata.store(beginning.metadata);
        self.began.store(beginning.began, Ordering::Relaxed);
        self.span_id.store(beginning.span_id);
        self.parent.store(beginning.parent);
        self.trace.store(beginning.trace.pack(), Ordering::Relaxed);
        self.last_exit.store(0, Ordering::Relaxed);
        self.trace_id.store(beginning.trace_id);
        self.trace_start.store(beginning.trace_start, Ordering::Relaxed);
        self.thread.store(beginning.thread, Ordering::Relaxed);
        self.flags.store(beginning.flags, Ordering::Relaxed);
        self.trace_flags.store(beginning.trace_flags.to_u8(), Ordering::Relaxed);
        self.entered.store(0, Ordering::Relaxed);
        self.occupancy.store(0, Ordering::Relaxed);
        self.busy.store(0, Ordering::Relaxed);
        self.publish(beginning.phase);
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        Phase::of(self.state.load(Ordering::Acquire))
    }

    /// Tells the spans apart that have this entry one after the other.
    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        self.state.load(Ordering::Relaxed) >> PHASE_BITS
    }

    #[inline]
    fn publish(&self, phase: Phase) {
        let sequence = self.state.load(Ordering::Relaxed) >> PHASE_BITS << PHASE_BITS;
        self.state.store(sequence | phase as u64, Ordering::Release);
    }

    fn exchange(&self, from: Phase, to: Phase) -> bool {
        let sequence = self.state.load(Ordering::Relaxed) >> PHASE_BITS << PHASE_BITS;
        let (from, to) = (sequence | from as u64, sequence | to as u64);
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Claims an entry that is `Undecided` or `Waiting`, as `from` says. `None` if another thread
    /// was faster.
    pub(crate) fn claim(&self, from: Phase) -> Option<Claim<'_>> {
        // Not `then_some`: a claim that was made and dropped would drop the span.
        self.exchange(from, Phase::Claimed).then(|| Claim { entry: self, done: false })
    }

    /// Starts a span that was waiting: its parent stays. `false` if it was not waiting.
    #[inline]
    pub(crate) fn start(&self) -> bool {
        self.exchange(Phase::Waiting, Phase::Kept)
    }

    /// The phase, once no thread is about to change it.
    #[inline]
    pub(crate) fn settled_phase(&self) -> Phase {
        loop {
            match self.phase() {
                Phase::Claimed => wait_a_moment(),
                phase => return phase,
            }
        }
    }

    /// Ends the span: the entry can be taken again. Only who ends the span calls this, when
    /// everything was taken out.
    #[inline]
    pub(crate) fn free(&self) {
        let sequence = (self.state.load(Ordering::Relaxed) >> PHASE_BITS).wrapping_add(1);
        self.state.store(sequence << PHASE_BITS | Phase::Free as u64, Ordering::Release);
        self.id.store(0, Ordering::Release);
    }

    #[inline]
    pub(crate) fn metadata(&self) -> Option<&'static Metadata<'static>> {
        self.metadata.load()
    }

    #[inline]
    pub(crate) fn began(&self) -> Ticks {
        self.began.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn span_id(&self) -> SpanId {
        self.span_id.load()
    }

    #[inline]
    pub(crate) fn parent(&self) -> SpanId {
        self.parent.load()
    }

    #[inline]
    pub(crate) fn trace(&self) -> TraceRef {
        TraceRef::unpack(self.trace.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn trace_id(&self) -> TraceId {
        self.trace_id.load()
    }

    #[inline]
    pub(crate) fn trace_start(&self) -> Ticks {
        self.trace_start.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn trace_flags(&self) -> TraceFlags {
        TraceFlags::new(self.trace_flags.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn flags(&self) -> u8 {
        self.flags.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags() & flag != 0
    }

    #[inline]
    pub(crate) fn last_exit(&self) -> Ticks {
        self.last_exit.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_last_exit(&self, time: Ticks) {
        self.last_exit.store(time, Ordering::Relaxed);
    }

    /// Notes that the span is entered; returns whether it was entered twice before, or more often.
    #[inline]
    pub(crate) fn mark_entered(&self) -> bool {
        let before = self.entered.load(Ordering::Relaxed);
        let is_often = before >= 2;
        if !is_often {
            self.entered.store(before + 1, Ordering::Relaxed);
        }
        is_often
    }

    /// From now on, others may use the span.
    pub(crate) fn expose(&self) {
        if !self.has(EXPOSED) {
            let _locked = lock(&self.extra);
            self.set_flags(EXPOSED, 0);
        }
    }

    /// Locks the entry's extra parts for a holder of the span.
    pub(crate) fn extra(&self) -> ExtraGuard<'_> {
        ExtraGuard { entry: self, extra: lock(&self.extra) }
    }

    /// Runs `f` on the extra parts of the span that had this sequence number, if it is still open,
    /// for a thread that need not be a holder.
    pub(crate) fn with_extra<T>(&self, sequence: u64, f: impl FnOnce(&mut Extra) -> T) -> Option<T> {
        let extra = lock(&self.extra);
        let state = self.state.load(Ordering::Acquire);
        let is_open = !matches!(Phase::of(state), Phase::Free | Phase::Dropped);
        // The flags of another span are not written: it may be about to begin, which takes no lock.
        (is_open && state >> PHASE_BITS == sequence).then(|| f(&mut ExtraGuard { entry: self, extra }))
    }

    /// Takes the extra parts out of a span that ends, so that nobody changes them any more.
    pub(crate) fn take_extra(&self) -> Extra {
        let mut extra = lock(&self.extra);
        // Under the lock, so that others see it: see the module. The next span begins with flags of
        // its own.
        self.publish(Phase::Free);
        std::mem::take(&mut *extra)
    }

    /// Sets one of the flags that do not say what is held: only who begins or claims the span, or
    /// under the lock.
    fn set_flags(&self, set: u8, clear: u8) {
        self.flags.store(self.flags() & !clear | set, Ordering::Relaxed);
    }
}

/// The extra parts of an entry, locked. The flags follow what is held when this is dropped.
pub(crate) struct ExtraGuard<'a> {
    entry: &'a Entry,
    extra: MutexGuard<'a, Extra>,
}

impl ExtraGuard<'_> {
    /// Whether the span is open and may be recorded on.
    pub(crate) fn is_recordable(&self) -> bool {
        !matches!(self.entry.phase(), Phase::Free | Phase::Dropped)
    }
}

impl std::ops::Deref for ExtraGuard<'_> {
    type Target = Extra;

    fn deref(&self) -> &Extra {
        &self.extra
    }
}

impl std::ops::DerefMut for ExtraGuard<'_> {
    fn deref_mut(&mut self) -> &mut Extra {
        &mut self.extra
    }
}

impl Drop for ExtraGuard<'_> {
    fn drop(&mut self) {
        self.entry.set_flags(self.extra.held(), BODY | CONTEXT | STATE | PENDING);
    }
}

/// The right to change an entry's state. If it is dropped without a new state, because of a panic,
/// the span is dropped, so that no thread waits for ever.
#[must_use]
pub(crate) struct Claim<'a> {
    entry: &'a Entry,
    done: bool,
}

/// The facts of a span of a kept trace, published with its state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) trace: TraceRef,
    pub(crate) trace_id: TraceId,
    pub(crate) trace_flags: TraceFlags,
    pub(crate) span_id: SpanId,
    pub(crate) parent: SpanId,
    pub(crate) remote_parent: bool,
}

impl<'a> Claim<'a> {
    pub(crate) fn entry(&self) -> &'a Entry {
        self.entry
    }

    pub(crate) fn keep(mut self, kept: &Kept) {
        let entry = self.entry;
        entry.span_id.store(kept.span_id);
        entry.parent.store(kept.parent);
        entry.trace_id.store(kept.trace_id);
        entry.trace.store(kept.trace.pack(), Ordering::Relaxed);
        entry.trace_start.store(entry.began(), Ordering::Relaxed);
        entry.trace_flags.store(kept.trace_flags.to_u8(), Ordering::Relaxed);
        if kept.remote_parent {
            let _locked = entry.extra();
            entry.set_flags(REMOTE_PARENT, 0);
        }
        self.done = true;
        entry.publish(Phase::Kept);
    }

    /// The local root is dropped; its ids are for the context that says so.
    pub(crate) fn drop_trace(mut self, trace_id: TraceId, span_id: SpanId, flags: TraceFlags) {
        self.entry.span_id.store(span_id);
        self.entry.trace_id.store(trace_id);
        self.entry.trace_flags.store(flags.to_u8(), Ordering::Relaxed);
        self.done = true;
        self.entry.publish(Phase::Dropped);
    }

    /// The span is a local root that is undecided, with a parent that was set. Returns what was
    /// there before, to be dropped where nothing is locked or claimed.
    pub(crate) fn undecide(mut self, pending: Box<Pending>) -> (Option<Box<Pending>>, Option<Context>) {
        let entry = self.entry;
        let mut extra = entry.extra();
        let old = (extra.pending.replace(pending), extra.context.take());
        extra.state = State::EMPTY;
        entry.set_flags(ROOT, BASE_CURRENT);
        drop(extra);
        entry.trace.store(TraceRef::NONE.pack(), Ordering::Relaxed);
        entry.parent.store(SpanId::INVALID);
        self.done = true;
        entry.publish(Phase::Undecided);
        old
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.done {
            // It may still be that of the entry's last span.
            self.entry.set_root_key(None);
            self.entry.publish(Phase::Dropped);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_inside_at_once_count_once() {
        let entry = Entry::default();
        entry.occupy(10);
        entry.occupy(15);
        entry.vacate(20);
        assert_eq!(entry.busy(), 0, "one is still inside");
        entry.vacate(30);
        entry.occupy(100);
        entry.vacate(101);
        assert_eq!(entry.busy(), 21);
        entry.vacate(500);
        assert_eq!(entry.busy(), 21, "left more often than entered");
    }

    #[test]
    fn an_entry_takes_three_cache_lines() {
        assert!(size_of::<Entry>() <= 192, "{}", size_of::<Entry>());
    }
}
