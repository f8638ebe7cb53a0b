//! Slots of provisional traces: traces that are recorded although the head sampler dropped them.
//!
//! Their spans are collected like those of kept traces, but no part leaves early. The thread that
//! ends the local root takes all of them and submits the trace to the policies. Their bytes are
//! charged to the ring's budget ([`crate::late`]), not to that of open spans.
//!
//! A slot's *marks* are one word that also holds the turn they belong to, so that a late mark never
//! applies to the slot's next trace. They say that the trace is provisional, and the highest
//! severity seen in it. The severity is tracked for kept traces too.
//!
//! A turn ends under the slot's lock, so a Relaxed load under the lock gives the current turn. A
//! load without the lock may be stale and is only a hint: the turn in the marks, or a second look
//! under the lock, decides.

use astracer_samplers::Threshold;
use astracer_samplers::tail::{KeyNumber, Severity, Tail};

use super::provisional_trace::ProvisionalTrace;
use super::{Gathered, Slot, TraceRef, Traces};
use crate::clock::Ticks;
use crate::export::Queue;
use crate::memory_budget::{Reservation, Use};
use crate::record::{Body, Buffer, Header, Record};
use crate::stats::{Counted, GivenUp};
use crate::sync::{MutexGuard, Ordering, lock};

const PROVISIONAL: u64 = 4;
const SEVERITY: u64 = 3;

/// The outcome of ending a span of a provisional trace.
#[derive(Debug)]
pub enum EndedSpan {
    Gathered,
    /// These spans were given up: the span alone, because its trace is full or was given up while
    /// it was open, or all spans of its trace.
    GivenUp(Counted, GivenUp),
    /// The trace left its slot before this span ended. Boxed, because few spans are late.
    Late(Box<(Header, Record)>),
    Whole(Box<ProvisionalTrace>),
}

/// Grows a reservation to this number of bytes for a trace of this severity, evicting traces of
/// lower value if necessary. `false` if that is not possible. The caller holds the lock of a slot.
pub type Grow<'a> = &'a dyn Fn(&mut Reservation, usize, Severity) -> bool;

fn severity_of(mark: u64) -> Severity {
    match mark & SEVERITY {
        0 => Severity::Fine,
        1 => Severity::Warning,
        _ => Severity::Error,
    }
}

impl Slot {
    /// The marks of the given turn; 0 if the word holds those of another turn. Relaxed: the turn in
    /// the same word identifies them.
    fn marks_of(&self, turn: u32) -> u64 {
        let marks = self.marks.load(Ordering::Relaxed);
        if (marks >> 32) as u32 == turn { marks & u64::from(u32::MAX) } else { 0 }
    }

    /// Whether the slot's current trace is provisional. The caller holds the slot's lock.
    pub(super) fn is_provisional(&self) -> bool {
        self.marks_of(self.turn.load(Ordering::Relaxed)) & PROVISIONAL != 0
    }
}

impl Traces {
    /// Takes a slot for a provisional trace; [`TraceRef::NONE`] if no slot is free, or provisional
    /// traces already have three quarters of them.
    ///
    /// `recorded` is the threshold with which the trace is recorded, if its stratum decides about it.
    pub fn take_provisional(&self, now: Ticks, key: KeyNumber, recorded: Option<Threshold>) -> TraceRef {
        let max = self.slots_max - self.slots_max / 4;
        let more = |open: u32| (open < max).then_some(open + 1);
        // Relaxed: the number only bounds the slots, and guards no other data.
        if self.provisional.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return TraceRef::NONE;
        }
        let trace = self.take_marked(now, |slot, turn| {
            // A swap, not a store, so that it has a place in the order of exchanges: a late mark of
            // the slot's previous trace either comes first and is overwritten, or fails. loom does
            // not order a plain store in this way. Relaxed: `take_marked` publishes the marks with
            // `opened`.
            slot.marks.swap(u64::from(turn) << 32 | PROVISIONAL, Ordering::Relaxed);
            // Published like the marks. The thread that ends the root has also seen the root's
            // phase, which is published later.
            slot.key.store(key.get(), Ordering::Relaxed);
            slot.recorded.store(recorded.map_or(u64::MAX, Threshold::get), Ordering::Relaxed);
        });
        if trace == TraceRef::NONE {
            self.provisional.fetch_sub(1, Ordering::Relaxed);
        }
        trace
    }

    /// Frees the slot of a provisional trace in which no span has ended, when its root was not
    /// created after all or will never end. Returns whether it freed the slot.
    pub fn free_if_empty(&self, trace: TraceRef) -> bool {
        let Some(slot) = self.slot(trace.slot) else { return false };
        let gathered = lock(&slot.gathered);
        let is_empty = slot.turn.load(Ordering::Relaxed) == trace.turn && gathered.header.is_none();
        if is_empty {
            self.free((trace.slot, slot), gathered, true);
        }
        is_empty
    }

    pub fn provisional(&self) -> u32 {
        self.provisional.load(Ordering::Relaxed)
    }

    /// Raises the severity of an open trace to at least `severity`.
    ///
    /// All accesses are Relaxed: the marks guard no other data, and the word holds the turn, so an
    /// exchange for a turn that is over fails.
    pub fn mark(&self, trace: TraceRef, severity: Severity) {
        let Some(slot) = self.slot(trace.slot) else { return };
        if slot.turn.load(Ordering::Relaxed) != trace.turn {
            return;
        }
        let raised = |marks: u64| {
            let turns_since = trace.turn.wrapping_sub((marks >> 32) as u32);
            let own = if turns_since == 0 { marks & u64::from(u32::MAX) } else { 0 };
            // Beyond half of all turns another trace has the slot by now, and the marks are its
            // own.
            (turns_since <= u32::MAX / 2 && severity as u64 > own & SEVERITY)
                .then_some(u64::from(trace.turn) << 32 | own & !SEVERITY | severity as u64)
        };
        let _ = slot.marks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised);
    }

    /// The highest severity seen in an open trace; [`Severity::Fine`] once the trace has left its
    /// slot. The old marks stay there until another trace takes the slot, so reading them then
    /// would give results that depend on timing.
    pub fn severity(&self, trace: TraceRef) -> Severity {
        let is_open = |slot: &&Slot| slot.turn.load(Ordering::Relaxed) == trace.turn;
        let slot = self.slot(trace.slot).filter(is_open);
        slot.map_or(Severity::Fine, |slot| severity_of(slot.marks_of(trace.turn)))
    }

    /// The fast path of [`Traces::end_provisional`], for a child of severity `Fine` that fits into
    /// memory already charged to the budget. A full or given-up trace has no such memory. Returns
    /// whether the span was added.
    #[inline]
    pub fn gather(&self, trace: TraceRef, record: &Record, queue: &Queue) -> bool {
        let Some(slot) = self.slot(trace.slot) else { return false };
        let mut gathered = lock(&slot.gathered);
        let buffer = &gathered.buffer;
        // Without a header this is the trace's first span, and the buffer and reservation are those
        // that a kept trace left in the slot.
        let is_short = slot.turn.load(Ordering::Relaxed) == trace.turn
            && buffer.records.len() < buffer.records.capacity().min(Tail::TRACE_SPANS_MAX)
            && gathered.header.is_some()
            && !queue.is_closed();
        if is_short {
            gathered.buffer.records.push(record.clone());
        }
        is_short
    }

    /// Adds an ended span to its provisional trace. The local root completes the trace.
    pub fn end_provisional(
        &self,
        trace: TraceRef,
        header: impl FnOnce() -> Header,
        record: Record,
        body: Option<&mut Body>,
        queue: &Queue,
        (bytes_max, grow): (usize, Grow<'_>),
    ) -> EndedSpan {
        let Some(slot) = self.slot(trace.slot) else { return EndedSpan::Late(Box::new((header(), record))) };
        let mut gathered = lock(&slot.gathered);
        // After the shutdown no span is collected: see `end_span`.
        let is_root = record.is_local_root;
        let is_own = slot.turn.load(Ordering::Relaxed) == trace.turn;
        if !is_own || queue.is_closed() {
            // A root that was decided during the shutdown may have taken its slot after the other
            // slots were emptied.
            drop(gathered);
            if is_own && is_root {
                self.free_if_empty(trace);
            }
            return EndedSpan::Late(Box::new((header(), record)));
        }
        let (severity, counted) = (severity_of(slot.marks_of(trace.turn)), record.counted());
        let buffer = &gathered.buffer;
        let may_grow = body.is_some()
            || buffer.records.len() == buffer.records.capacity()
            || gathered.reservation.bytes() == 0;
        let used = may_grow.then(|| buffer.bytes_used());
        let is_full = gathered.is_full
            || buffer.records.len() >= Tail::TRACE_SPANS_MAX
            || used.is_some_and(|used| used >= bytes_max);
        let given_up = if gathered.is_given_up {
            Some((counted, GivenUp::RingFull))
        } else if is_full && !is_root {
            Some((counted, GivenUp::Cut))
        } else {
            gathered.header.get_or_insert_with(header);
            gathered.add((record, body), used, grow, severity).map(|counted| (counted, GivenUp::RingFull))
        };
        if let (Some((counted, _)), Some(header)) = (given_up, &mut gathered.header) {
            header.cut_some(counted.spans);
        }
        let whole = if is_root { self.take_out((trace.slot, slot), gathered) } else { None };
        match (whole, given_up) {
            (Some(whole), _) => EndedSpan::Whole(whole),
            (None, Some((counted, reason))) => EndedSpan::GivenUp(counted, reason),
            (None, None) => EndedSpan::Gathered,
        }
    }

    /// Takes a provisional trace out of its slot, and frees the slot. `None` if no span of it is
    /// left.
    pub(super) fn take_out(
        &self,
        (number, slot): (u32, &Slot),
        mut gathered: MutexGuard<'_, Gathered>,
    ) -> Option<Box<ProvisionalTrace>> {
        let turn = slot.turn.load(Ordering::Relaxed);
        let header = gathered.header.take().filter(|_| !gathered.buffer.records.is_empty());
        let whole = header.map(|header| {
            let mut whole = ProvisionalTrace::spare();
            whole.header = header;
            // The slot gets the spare buffer for its next trace.
            std::mem::swap(&mut whole.buffer, &mut gathered.buffer);
            std::mem::swap(&mut whole.reservation, &mut gathered.reservation);
            if gathered.buffer.records.capacity() == 0 {
                gathered.buffer = Buffer::like(&whole.buffer);
            }
            whole.key = KeyNumber::new(slot.key.load(Ordering::Relaxed));
            whole.recorded = Threshold::new(slot.recorded.load(Ordering::Relaxed));
            whole.severity = severity_of(slot.marks_of(turn));
            whole.opened = slot.opened.load(Ordering::Relaxed);
            whole.part = TraceRef { slot: number, turn };
            whole
        });
        gathered.reservation.shrink_to(0);
        (gathered.is_given_up, gathered.is_full) = (false, false);
        self.free((number, slot), gathered, true);
        whole
    }

    /// Gives up one open trace of severity `Fine`, and returns what was in it. Looks at a limited
    /// number of slots, starting where the last call stopped; `None` if none of them has such a
    /// trace. The caller may hold a slot's lock, so this only tries to lock.
    pub fn give_up_open(&self) -> Option<Counted> {
        let used = self.used.load(Ordering::Relaxed).max(1);
        for _ in 0..LOOKED_AT.min(used) {
            // Relaxed: the counter only spreads the calls over the slots.
            let number = self.looked_at.fetch_add(1, Ordering::Relaxed) % used;
            let Some(slot) = self.slot(number) else { continue };
            let turn = slot.turn.load(Ordering::Relaxed);
            // A filter without the lock; the turn is compared again under it.
            let marks = slot.marks_of(turn);
            if marks & PROVISIONAL == 0 || severity_of(marks) > Severity::Fine {
                continue;
            }
            let Ok(mut gathered) = slot.gathered.try_lock() else { continue };
            if slot.turn.load(Ordering::Relaxed) == turn && !gathered.buffer.records.is_empty() {
                return Some(gathered.give_up().counted());
            }
        }
        None
    }
}

/// The number of slots that one call of [`Traces::give_up_open`] looks at.
const LOOKED_AT: u32 = 64;

impl Gathered {
    /// Adds a span of a provisional trace. Memory for it is reserved first, if the trace has `used`
    /// so much that it needs more. If that fails, gives the trace up with this span if its severity
    /// is `Fine`. Otherwise the trace becomes full, and only this span is given up, unless it is
    /// the root: the trace leaves with it at once.
    fn add(
        &mut self,
        (record, body): (Record, Option<&mut Body>),
        used: Option<usize>,
        grow: Grow<'_>,
        severity: Severity,
    ) -> Option<Counted> {
        let more = size_of::<Record>() + body.as_deref().map_or(0, Body::bytes);
        let outgrows = used.is_some_and(|used| used + more > self.reservation.bytes());
        let counted = record.counted();
        if !outgrows {
            self.buffer.append(record, body);
        } else if grow(&mut self.reservation, self.buffer.bytes_held() + more, severity)
            || severity > Severity::Fine && counted.roots > 0
        {
            self.buffer.append(record, body);
            self.reservation.grow_to(self.buffer.bytes_held(), Use::Entries);
        } else if severity == Severity::Fine {
            return Some(self.give_up().counted() + counted);
        } else {
            self.is_full = true;
            self.buffer.shrink();
            return Some(counted);
        }
        None
    }

    fn give_up(&mut self) -> Buffer {
        self.is_given_up = true;
        self.reservation.shrink_to(0);
        std::mem::take(&mut self.buffer)
    }
}
