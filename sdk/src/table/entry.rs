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
//! | `outcome` | - | the claimer, and the thread that begins a root that is decided at once | the claimer | any holder sets [`RootOutcome::failed`] |
//! | `flow` | the thread that begins the span | - | the claimer | threads that enter the span, by compare-exchange, and the one that ends it |
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

mod claim;
mod extra;
mod flow;
mod inside;

use astracer_samplers::tail::KeyNumber;
use opentelemetry::{SpanId, TraceFlags, TraceId};
use tracing_core::Metadata;

pub(crate) use self::claim::{Claim, RecordedSpan};
pub(crate) use self::extra::{Extra, Pending};
use super::atomics::{AtomicMetadata, InAtomic, Relaxed, in_atomic};
use super::handles::Handles;
use astracer_spans::clock::Ticks;
use astracer_spans::sync::{AtomicU8, AtomicU32, AtomicU64, Mutex, Ordering, wait_a_moment};
use astracer_spans::traces::TraceRef;
use astracer_spans::weight::Weighing;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    Free,
    /// A local root that the sampler has not decided yet: its parent may still be set.
    Undecided,
    Claimed,
    /// A span below a recorded one that has not started: its parent may still be set.
    Waiting,
    /// A started span of a trace that is recorded; its [`Fate`] says whether it is kept.
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
    /// True if the span's trace is recorded: it is kept, or may be kept late.
    #[inline]
    pub(crate) fn is_recorded(self) -> bool {
        matches!(self, Phase::Waiting | Phase::Recorded)
    }

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
    began: Relaxed<Ticks>,
    span_id: Relaxed<SpanId>,
    /// The parent's span id. Unused for a span below a dropped root.
    parent: Relaxed<SpanId>,
    /// The slot that collects the trace's ended spans.
    trace: Relaxed<TraceRef>,
    /// When a thread last left the span; 0: never.
    last_exit: Relaxed<Ticks>,
    // --- Second cache line.
    /// The trace id; for a span below a dropped root, that root's.
    trace_id: Relaxed<TraceId>,
    trace_start: Relaxed<Ticks>,
    thread: Relaxed<u32>,
    flags: Relaxed<u8>,
    trace_flags: Relaxed<TraceFlags>,
    fate: Relaxed<Fate>,
    /// The number of enters; stops counting at 2.
    entered: Relaxed<u8>,
    /// The number of threads inside, and since when: see [`inside`].
    occupancy: AtomicU64,
    /// Ticks during which at least one thread was inside, up to the time in `occupancy`.
    busy: AtomicU64,
    extra: Mutex<Extra>,
    pub(crate) handles: Handles,
    /// Open entry with an id from our own table: the span that this one holds open, or 0. Free
    /// entry: the id of its last span.
    above: Relaxed<u64>,
    outcome: Relaxed<RootOutcome>,
    /// The number of the flow that an observer follows; 0: none, as in every free entry.
    flow: AtomicU32,
}

/// The outcome of a decided local root. Unused for other spans.
///
/// Three values in one word: an entry has no space for three. Setting `failed` needs no
/// read-modify-write, because nothing else in the word changes after the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RootOutcome {
    /// The key under which the outcome is counted.
    key: Option<KeyNumber>,
    /// Whether an error was seen below a dropped local root whose outcome is counted.
    failed: bool,
    weighing: Weighing,
}

in_atomic! {
    Fate: AtomicU8, |fate| fate as u8, |fate| if fate == Fate::Kept as u8 { Fate::Kept } else { Fate::Provisional };
    RootOutcome: AtomicU32, RootOutcome::pack, RootOutcome::unpack;
}

impl RootOutcome {
    const FAILED: u32 = 4;
    const KEY_SHIFT: u32 = 3;
    /// A larger number, of which there is none within memory, is not counted.
    const KEY_MAX: u32 = (u32::MAX >> Self::KEY_SHIFT) - 1;

    #[inline]
    fn pack(self) -> u32 {
        let key = self.key.filter(|key| key.get() <= Self::KEY_MAX).map_or(0, |key| key.get() + 1);
        key << Self::KEY_SHIFT | if self.failed { Self::FAILED } else { 0 } | self.weighing as u32
    }

    #[inline]
    fn unpack(word: u32) -> Self {
        RootOutcome {
            key: (word >> Self::KEY_SHIFT).checked_sub(1).map(KeyNumber::new),
            failed: word & Self::FAILED != 0,
            weighing: match word & 3 {
                0 => Weighing::Never,
                1 => Weighing::IfCertain,
                _ => Weighing::Always,
            },
        }
    }
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
        self.above.set(0);
        self.handles.start(id);
        self.id.store(id, Ordering::Relaxed);
    }

    /// Ends a span under an id from our own table, as [`Entry::free`] does; returns the id.
    #[inline]
    pub(super) fn free_own(&self) -> u64 {
        let id = self.id();
        self.free();
        self.above.set(id);
        id
    }

    /// Sets the span that this one holds open. Relaxed: no other thread knows this span's id yet.
    #[inline]
    pub(crate) fn set_above(&self, above: u64) {
        self.above.set(above);
    }

    /// Writes all fields of a span that begins. No other thread knows its id yet;
    /// [`Entry::publish`] makes the Relaxed stores visible to threads that read the phase.
    #[inline]
    pub(crate) fn begin(&self, beginning: &Beginning) {
        self.metadata.store(beginning.metadata);
        self.began.set(beginning.began);
        self.span_id.set(beginning.span_id);
        self.parent.set(beginning.parent);
        self.trace.set(beginning.trace);
        self.last_exit.set(0);
        self.trace_id.set(beginning.trace_id);
        self.trace_start.set(beginning.trace_start);
        self.thread.set(beginning.thread);
        self.flags.set(beginning.flags);
        self.trace_flags.set(beginning.trace_flags);
        self.fate.set(beginning.fate);
        self.entered.set(0);
        self.occupancy.store(0, Ordering::Relaxed);
        self.busy.store(0, Ordering::Relaxed);
        self.publish(beginning.phase);
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

    /// Relaxed: flags are written under the lock, or before the phase is published. The thread that
    /// ends the span is ordered after all holders by their handles, and takes the lock if the span
    /// is [`EXPOSED`].
    #[inline]
    pub(crate) fn flags(&self) -> u8 {
        self.flags.get()
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags() & flag != 0
    }

    #[inline]
    pub(crate) fn set_last_exit(&self, time: Ticks) {
        self.last_exit.set(time);
    }

    /// Counts an enter, up to 3; returns whether the span had been entered at least three times
    /// before.
    #[inline]
    pub(crate) fn mark_entered(&self) -> bool {
        // Two threads may enter at once and count one enter: that only delays caching the context.
        let before = self.entered.get();
        let is_often = before >= 3;
        if !is_often {
            self.entered.set(before + 1);
        }
        is_often
    }

    /// Sets the key under which the outcome of a decided local root is counted; `None`: it is not
    /// counted. This happens before the decided phase is published, or before the span's id is
    /// known.
    #[inline]
    pub(crate) fn set_root_key(&self, key: Option<KeyNumber>, weighing: Weighing) {
        self.outcome.set(RootOutcome { key, failed: false, weighing });
    }

    #[inline]
    pub(crate) fn root_key(&self) -> Option<KeyNumber> {
        self.outcome.get().key
    }

    pub(crate) fn failed(&self) -> bool {
        self.outcome.get().failed
    }

    pub(crate) fn weighing(&self) -> Weighing {
        self.outcome.get().weighing
    }

    /// Notes an error below a dropped local root. The flag is read at the root's end, which is
    /// ordered after all holders by their handles.
    pub(crate) fn set_failed(&self) {
        // Holders that set it at once store the same word.
        self.outcome.set(RootOutcome { failed: true, ..self.outcome.get() });
    }

    /// Changes flags. The caller begins or claims the span, or holds the lock, so no other thread
    /// writes the flags between the load and the store.
    fn set_flags(&self, set: u8, clear: u8) {
        self.flags.set(self.flags() & !clear | set);
    }
}

/// The values of fields; the module documentation says who may write them.
macro_rules! getters {
    ($($field:ident: $value:ty),* $(,)?) => {
        impl Entry {$(
            #[inline]
            pub(crate) fn $field(&self) -> $value {
                self.$field.get()
            }
        )*}
    };
}

getters! {
    began: Ticks,
    span_id: SpanId,
    parent: SpanId,
    trace: TraceRef,
    last_exit: Ticks,
    trace_id: TraceId,
    trace_start: Ticks,
    thread: u32,
    trace_flags: TraceFlags,
    fate: Fate,
    above: u64,
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
    fn an_outcome_survives_in_one_word() {
        let entry = Entry::default();
        for key in [None, Some(0), Some(1), Some(RootOutcome::KEY_MAX)].map(|key| key.map(KeyNumber::new)) {
            for weighing in [Weighing::Never, Weighing::IfCertain, Weighing::Always] {
                entry.set_root_key(key, weighing);
                assert_eq!((entry.root_key(), entry.failed(), entry.weighing()), (key, false, weighing));
                entry.set_failed();
                assert_eq!((entry.root_key(), entry.failed(), entry.weighing()), (key, true, weighing));
            }
        }
        entry.set_root_key(Some(KeyNumber::new(u32::MAX)), Weighing::Always);
        assert_eq!(entry.root_key(), None, "a number that does not fit is not counted");
    }

    #[test]
    fn an_entry_takes_three_cache_lines() {
        assert!(size_of::<Entry>() <= 192, "{}", size_of::<Entry>());
    }
}
