//! The entry of one open span: its state machine, and the rules for concurrent access to its
//! fields.
//!
//! ```text
//!              begin                    decide: record
//!   Free --------------> Undecided --+---------------> Recorded --+
//!    ^ |                   ^         | decide: drop               |
//!    | | begin below a     |         +---------------> Dropped ---+
//!    | | recorded span     | set_parent                           |
//!    | +-------> Waiting --+                                      |
//!    |              | start (enter, context, ...)                 |
//!    |              +--------------------------------> Recorded --+
//!    +--------------------------- end ----------------------------+
//! ```
//!
//! Changes from `Undecided`, and `set_parent` on a `Waiting` span, pass through `Claimed`. The
//! thread that claims an entry is the only one that may change its state until it publishes the
//! next one; other threads spin until then. No user code runs while an entry is claimed.
//!
//! # Which thread may write which field in which state
//!
//! *Holders* are threads that may use the span: they have a handle, and `tracing` keeps the span
//! open. Moving a handle to another thread synchronises the two threads, so the new holder sees
//! everything written before the move. *Others* are threads whose context of the span outlives the
//! span. They may only call [`Entry::with_extra`], which checks under the entry's lock that the
//! entry still belongs to the span they knew.
//!
//! | field | Free | Undecided, Waiting | Claimed | Recorded, Dropped |
//! |---|---|---|---|---|
//! | `id` | the table, when a span begins (before its handle exists) or ends | - | - | - |
//! | `sequence` | the thread that ends the span, once | - | - | - |
//! | phase | the thread that begins the span | any holder, by compare-exchange to Claimed, or from Waiting to Recorded | the claimer | the thread that ends the span |
//! | `metadata`, `began`, `thread`, `trace_start` of a child | the thread that begins the span | - | - | - |
//! | `span_id`, `trace_id`, `parent`, `trace`, `trace_start`, `trace_flags`, `fate` | the thread that begins the span | - | the claimer | - |
//! | `flags`, [`Extra`] | the thread that begins the span | holders and others, under the lock | the same | the same, and the thread that ends the span |
//! | `handles` | the table | holders, by compare-exchange with the generation | the same | the same |
//! | `above` | the table, and the thread that begins the span | - | - | the thread that ends the span |
//! | `root_key` | - | the claimer, and the thread that begins a root that is decided at once | the claimer | - |
//! | `failed` | - | - | the claimer | any holder sets it |
//! | `entered`, `last_exit`, `occupancy`, `busy` | the thread that begins the span | - | - | threads that enter and leave it |
//!
//! # Memory ordering
//!
//! Publishing a phase is a Release store, and reading it is an Acquire load. Fields written before
//! a phase is published and read after the phase was read can therefore be `Relaxed`.
//!
//! The thread that ends a span is ordered after all holders by their handles, so only others can
//! still race with it. They exist only if a context that can write to the span was handed out
//! ([`EXPOSED`]); without that flag, the end takes no lock.

mod inside;
mod root;

use opentelemetry::{Context, SpanId, TraceFlags, TraceId};
use tracing_core::Metadata;

use super::atomics::{AtomicMetadata, AtomicSpanId, AtomicTraceId};
use super::handles::Handles;
use astracer_spans::clock::Ticks;
use astracer_spans::record::Body;
use astracer_spans::sync::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, lock, wait_a_moment,
};
use astracer_spans::trace_state::State;
use astracer_spans::traces::TraceRef;
use astracer_spans::weight::Weighing;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    Free,
    /// A local root that the sampler has not decided yet: its parent may still be set.
    Undecided,
    /// A thread is about to publish another state.
    Claimed,
    /// A span below a recorded one that has not started: its parent may still be set.
    Waiting,
    /// A started span of a trace that is recorded; its [`Fate`] tells whether it is kept.
    Recorded,
    /// A dropped local root, or a span below one.
    Dropped,
}

/// The decision on a recorded trace. It never changes: late keeping works on ended spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fate {
    Kept,
    /// The sampler dropped the trace. It is recorded until the policies have seen its outcome, and
    /// processes called from there drop it.
    Provisional,
}

impl Phase {
    #[inline]
    fn of(word: u64) -> Phase {
        match word as u8 {
            1 => Phase::Undecided,
            2 => Phase::Claimed,
            3 => Phase::Waiting,
            4 => Phase::Recorded,
            5 => Phase::Dropped,
            _ => Phase::Free,
        }
    }
}

/// Bits of a state word below the sequence number.
const PHASE_BITS: u32 = 8;

pub(crate) const BODY: u8 = 1;
pub(crate) const CONTEXT: u8 = 2;
pub(crate) const STATE: u8 = 4;
/// The root is decided with a remote parent, or with a context that carries values.
pub(crate) const PENDING: u8 = 8;
/// A context that can write to the span was handed out.
pub(crate) const EXPOSED: u8 = 16;
pub(crate) const ROOT: u8 = 32;
/// The span's context is derived from the current one, provided that is its parent's.
pub(crate) const BASE_CURRENT: u8 = 64;
pub(crate) const REMOTE_PARENT: u8 = 128;
/// The flags that say what [`Extra`] holds, and whether other threads may use it.
pub(crate) const HELD: u8 = BODY | CONTEXT | STATE | PENDING | EXPOSED;

#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Entry {
    /// The span's id in the subscriber; 0 while the entry is free.
    id: AtomicU64,
    /// The sequence number, which changes when a span ends, with the phase in the low 8 bits.
    state: AtomicU64,
    metadata: AtomicMetadata,
    began: AtomicU64,
    span_id: AtomicSpanId,
    /// The parent's span id. Unused for a span below a dropped root.
    parent: AtomicSpanId,
    /// The slot that collects the trace's ended spans, as a packed [`TraceRef`].
    trace: AtomicU64,
    /// When a thread last left the span; 0: never.
    last_exit: AtomicU64,
    // --- Second cache line.
    /// The trace id; for a span below a dropped root, that root's.
    trace_id: AtomicTraceId,
    trace_start: AtomicU64,
    thread: AtomicU32,
    flags: AtomicU8,
    trace_flags: AtomicU8,
    /// The [`Fate`] of a recorded trace.
    fate: AtomicU8,
    /// The number of enters; stops counting at 2.
    entered: AtomicU8,
    /// The number of threads inside, and since when: see [`inside`].
    occupancy: AtomicU64,
    /// Ticks during which at least one thread was inside, up to the time in `occupancy`.
    busy: AtomicU64,
    extra: Mutex<Extra>,
    handles: Handles,
    /// Open entry with an id from our own table: the span that this one holds open, or 0. Free
    /// entry: the id of its last span.
    above: AtomicU64,
    /// Decided local root whose outcome is counted: the number of its key plus 1. Other decided
    /// roots: 0. Unused for other spans.
    root_key: AtomicU32,
    /// Whether an error was seen below a dropped local root whose outcome is counted.
    failed: AtomicBool,
    /// The [`Weighing`](astracer_spans::weight::Weighing) of a decided local root.
    weighing: AtomicU8,
}

/// The parts of an entry that most spans do not need; the [`HELD`] flags say which are present.
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

/// The inputs of a local root's decision besides its name and fields.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The context from which the root's context is derived: it has the parent, if there is one,
    /// and values such as baggage.
    pub(crate) base: Context,
    /// The parent is one of our dropped spans, and `set_parent` was not called.
    pub(crate) below_dropped: bool,
}

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
    pub(crate) fate: Fate,
    pub(crate) thread: u32,
    pub(crate) flags: u8,
}

impl Entry {
    /// The open span's id; 0 while the entry is free. Relaxed: a thread gets a live id with a
    /// handle, and so after the id was stored.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Takes the entry for a span, if it is free.
    ///
    /// With a registry, only the thread that owns the id's slab slot begins a span here, so a store
    /// would do. The compare-exchange guards against ids that come from another subscriber. Its
    /// Acquire pairs with the Release store of 0 in [`Entry::free`], so that [`Entry::begin`]
    /// continues the last span's sequence number.
    #[inline]
    pub(crate) fn take(&self, id: u64) -> bool {
        self.id.load(Ordering::Relaxed) == 0
            && self.id.compare_exchange(0, id, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes the entry for a span under an id from our own table, with one handle. The calling
    /// thread already owns the free place: it came from the thread's own list or from under a lock,
    /// so Relaxed stores are enough.
    #[inline]
    pub(super) fn take_own(&self, id: u64) {
        self.above.store(0, Ordering::Relaxed);
        self.handles.start(id);
        self.id.store(id, Ordering::Relaxed);
    }

    /// The id from our own table that the entry had last.
    #[inline]
    pub(super) fn last_id(&self) -> u64 {
        self.above.load(Ordering::Relaxed)
    }

    /// Ends a span under an id from our own table, as [`Entry::free`] does; returns the id.
    #[inline]
    pub(super) fn free_own(&self) -> u64 {
        let id = self.id();
        self.free();
        self.above.store(id, Ordering::Relaxed);
        id
    }

    /// The span that this one holds open; 0: no span.
    #[inline]
    pub(crate) fn above(&self) -> u64 {
        self.above.load(Ordering::Relaxed)
    }

    /// Sets the span that this one holds open. Relaxed: no other thread knows this span's id yet.
    #[inline]
    pub(crate) fn set_above(&self, above: u64) {
        self.above.store(above, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn handles(&self) -> &Handles {
        &self.handles
    }

    /// Writes all fields of a span that begins. No other thread knows its id yet;
    /// [`Entry::publish`] makes the Relaxed stores visible to threads that read the phase.
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
        self.fate.store(beginning.fate as u8, Ordering::Relaxed);
        self.entered.store(0, Ordering::Relaxed);
        self.occupancy.store(0, Ordering::Relaxed);
        self.busy.store(0, Ordering::Relaxed);
        self.publish(beginning.phase);
    }

    /// Begins a span in the phase `Claimed`, which the caller decides next.
    #[inline]
    pub(crate) fn begin_claimed(&self, beginning: &Beginning) -> Claim<'_> {
        self.begin(beginning);
        Claim { entry: self, done: false }
    }

    /// The Acquire pairs with the Release in `publish` and `exchange`.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        Phase::of(self.state.load(Ordering::Acquire))
    }

    /// Distinguishes the spans that use this entry one after the other. Relaxed: it changes only
    /// when the span ends, and the caller keeps the span open.
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
        // The Acquire pairs with the Release that published `from`, so a claimer sees the fields
        // published with it. Relaxed on failure: callers load the phase again.
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Claims an entry in the phase `from`, which is `Undecided` or `Waiting`. `None` if another
    /// thread changed the phase first.
    pub(crate) fn claim(&self, from: Phase) -> Option<Claim<'_>> {
        // Not `then_some`: that would build a `Claim` even if the exchange failed, and dropping it
        // would drop the span.
        self.exchange(from, Phase::Claimed).then(|| Claim { entry: self, done: false })
    }

    /// Starts a waiting span, which fixes its parent. `false` if it was not waiting.
    #[inline]
    pub(crate) fn start(&self) -> bool {
        self.exchange(Phase::Waiting, Phase::Recorded)
    }

    /// The phase; spins while another thread is changing it.
    #[inline]
    pub(crate) fn settled_phase(&self) -> Phase {
        loop {
            match self.phase() {
                Phase::Claimed => wait_a_moment(),
                phase => return phase,
            }
        }
    }

    /// Ends the span and frees its entry. Only the thread that ends the span calls this, after it
    /// has taken everything out.
    #[inline]
    pub(crate) fn free(&self) {
        // The sequence number pairs with the Acquire in `with_extra`, the id with the one in
        // `take`.
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

    /// The fate of a recorded trace.
    #[inline]
    pub(crate) fn fate(&self) -> Fate {
        if self.fate.load(Ordering::Relaxed) == Fate::Kept as u8 { Fate::Kept } else { Fate::Provisional }
    }

    #[inline]
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Relaxed: flags are written under the lock, or before the phase is published. The thread that
    /// ends the span is ordered after all holders by their handles, and takes the lock if the span
    /// is [`EXPOSED`].
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

    /// Counts an enter, up to 2; returns whether the span had been entered at least twice before.
    #[inline]
    pub(crate) fn mark_entered(&self) -> bool {
        // Two threads may enter at once and count one enter: that only delays caching the context.
        let before = self.entered.load(Ordering::Relaxed);
        let is_often = before >= 2;
        if !is_often {
            self.entered.store(before + 1, Ordering::Relaxed);
        }
        is_often
    }

    /// Marks the span as usable by other threads, through a context.
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

    /// Runs `f` on the extra parts of the span with this sequence number, if it is still open.
    /// Unlike [`Entry::extra`], the caller need not be a holder.
    pub(crate) fn with_extra<T>(&self, sequence: u64, f: impl FnOnce(&mut Extra) -> T) -> Option<T> {
        let extra = lock(&self.extra);
        let state = self.state.load(Ordering::Acquire);
        let is_open = !matches!(Phase::of(state), Phase::Free | Phase::Dropped);
        // If the entry now belongs to another span, `f` and the guard's write to the flags must not
        // run: that span may be about to begin, which takes no lock. If the sequence number
        // matches, the span cannot end before the lock is released, because an exposed span ends in
        // `take_extra`.
        (is_open && state >> PHASE_BITS == sequence).then(|| f(&mut ExtraGuard { entry: self, extra }))
    }

    /// Takes the extra parts out of a span that ends, so that no other thread changes them
    /// afterwards.
    pub(crate) fn take_extra(&self) -> Extra {
        let mut extra = lock(&self.extra);
        // Published under the lock so that `with_extra` sees it; see the module documentation. The
        // flags stay: the next span begins with its own.
        self.publish(Phase::Free);
        std::mem::take(&mut *extra)
    }

    /// Changes flags. The caller begins or claims the span, or holds the lock, so no other thread
    /// writes the flags between the load and the store.
    fn set_flags(&self, set: u8, clear: u8) {
        self.flags.store(self.flags() & !clear | set, Ordering::Relaxed);
    }
}

/// The extra parts of an entry, locked. Dropping the guard updates the flags that say what is held.
pub(crate) struct ExtraGuard<'a> {
    entry: &'a Entry,
    extra: MutexGuard<'a, Extra>,
}

impl ExtraGuard<'_> {
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

/// The exclusive right to change an entry's state. If a panic drops it before a new state is
/// published, it drops the span, so that no thread spins forever.
#[must_use]
pub(crate) struct Claim<'a> {
    entry: &'a Entry,
    done: bool,
}

/// The fields of a span in a recorded trace that are published with its state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedSpan {
    pub(crate) trace: TraceRef,
    pub(crate) trace_id: TraceId,
    pub(crate) trace_flags: TraceFlags,
    pub(crate) fate: Fate,
    pub(crate) span_id: SpanId,
    pub(crate) parent: SpanId,
    pub(crate) remote_parent: bool,
}

impl<'a> Claim<'a> {
    pub(crate) fn entry(&self) -> &'a Entry {
        self.entry
    }

    pub(crate) fn set(&self, span: &RecordedSpan) {
        let entry = self.entry;
        entry.span_id.store(span.span_id);
        entry.parent.store(span.parent);
        entry.trace_id.store(span.trace_id);
        entry.trace.store(span.trace.pack(), Ordering::Relaxed);
        entry.trace_start.store(entry.began(), Ordering::Relaxed);
        entry.trace_flags.store(span.trace_flags.to_u8(), Ordering::Relaxed);
        entry.fate.store(span.fate as u8, Ordering::Relaxed);
        if span.remote_parent {
            let _locked = entry.extra();
            entry.set_flags(REMOTE_PARENT, 0);
        }
    }

    pub(crate) fn record(mut self) {
        self.done = true;
        self.entry.publish(Phase::Recorded);
    }

    /// Drops the local root. Its ids are kept for the context that propagates the decision.
    pub(crate) fn drop_trace(mut self, trace_id: TraceId, span_id: SpanId, flags: TraceFlags) {
        self.entry.span_id.store(span_id);
        self.entry.trace_id.store(trace_id);
        self.entry.trace_flags.store(flags.to_u8(), Ordering::Relaxed);
        self.done = true;
        self.entry.publish(Phase::Dropped);
    }

    /// Makes the span an undecided local root with the given parent. Returns the replaced parts,
    /// which the caller must drop while it holds no lock and no claim.
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
            // The key may still be that of the entry's previous span.
            self.entry.set_root_key(None, Weighing::Never);
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
        assert_eq!(entry.busy(), 0, "another thread is still inside");
        entry.vacate(30);
        entry.occupy(100);
        entry.vacate(101);
        assert_eq!(entry.busy(), 21);
        entry.vacate(500);
        assert_eq!(entry.busy(), 21, "an exit without an enter counts nothing");
    }

    #[test]
    fn an_entry_takes_three_cache_lines() {
        assert!(size_of::<Entry>() <= 192, "{}", size_of::<Entry>());
    }
}
