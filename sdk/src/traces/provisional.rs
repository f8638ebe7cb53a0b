//! Slots of provisional traces: recorded though the head sampler dropped them.
//!
//! Their spans gather like those of kept traces, but never leave by themselves: whoever ends the
//! local root gets all of them, and puts them to the policies. Their bytes are the ring's
//! ([`crate::tail`]), not those of open spans.
//!
//! A slot's *marks* are a word with the turn that they are of, so that a mark that comes late is no
//! other trace's. They say that the trace is provisional, and the worst that was seen in it: that
//! holds for kept traces too.

use astracer_samplers::tail::{KeyNumber, Severity};

use opentelemetry::{TraceFlags, TraceId};

use super::{Gathered, Slot, TraceRef, Traces, end_turn};
use crate::budget::Room;
use crate::clock::Ticks;
use crate::export::Queue;
use crate::record::{Body, Buffer, End, Header, KeptBy, Record};
use crate::stats::{Counted, GivenUp};
use crate::sync::{Ordering, lock};
use crate::trace_state::State;

const PROVISIONAL: u64 = 4;
const SEVERITY: u64 = 3;

/// The spans of a provisional trace, taken out of its slot. It has no room of its own until then:
/// an empty one is used again for another trace.
#[derive(Debug)]
pub(crate) struct Provisional {
    pub(crate) header: Header,
    pub(crate) buffer: Buffer,
    pub(crate) room: Room,
    pub(crate) key: KeyNumber,
    pub(crate) severity: Severity,
    /// The root's start.
    pub(crate) opened: Ticks,
    /// The slot that it had.
    pub(crate) part: TraceRef,
}

impl Default for Provisional {
    /// Nothing of no trace.
    fn default() -> Self {
        Provisional {
            header: Header {
                trace_id: TraceId::INVALID,
                flags: TraceFlags::default(),
                state: State::EMPTY,
                began: 0,
                kept_by: KeptBy::HEAD,
                cut: 0,
            },
            buffer: Buffer::default(),
            room: Room::default(),
            key: KeyNumber::OTHERS,
            severity: Severity::Fine,
            opened: 0,
            part: TraceRef::NONE,
        }
    }
}

/// The fate of a span of a provisional trace.
#[derive(Debug)]
pub(crate) enum EndedSpan {
    /// It waits for its trace.
    Gathered,
    /// These are given up: it alone, because its trace is cut or was given up while it was open, or
    /// all of its trace.
    GivenUp(Counted, GivenUp),
    /// Its trace has left before it. Boxed, because few spans are late.
    Late(Box<(Header, Record)>),
    /// It is the root: the trace is whole.
    Whole(Box<Provisional>),
}

/// Room for provisional traces.
pub(crate) trait RingRoom {
    /// Spans of one trace, and their bytes.
    fn limits(&self) -> (usize, usize);

    /// Makes the room as large as the buffer, at the expense of traces of lower value. The caller
    /// holds the lock of a slot.
    fn make_room(&self, room: &mut Room, bytes: usize, severity: Severity) -> bool;

    /// One without spans, for a trace that leaves its slot.
    fn spare(&self) -> Box<Provisional>;
}

fn severity_of(mark: u64) -> Severity {
    match mark & SEVERITY {
        0 => Severity::Fine,
        1 => Severity::Warning,
        _ => Severity::Error,
    }
}

fn mark_of(severity: Severity) -> u64 {
    match severity {
        Severity::Fine => 0,
        Severity::Warning => 1,
        Severity::Error => 2,
    }
}

impl Slot {
    /// The marks of this turn.
    fn marks_of(&self, turn: u32) -> u64 {
        let marks = self.marks.load(Ordering::Relaxed);
        if (marks >> 32) as u32 == turn { marks & u64::from(u32::MAX) } else { 0 }
    }

    /// Whether a provisional trace has the slot now. Under the slot's lock.
    pub(super) fn is_provisional(&self) -> bool {
        self.marks_of(self.turn.load(Ordering::Relaxed)) & PROVISIONAL != 0
    }
}

impl Traces {
    /// A slot for a provisional trace; [`TraceRef::NONE`] if all are taken, or provisional traces
    /// have three quarters of them.
    pub(crate) fn take_provisional(&self, now: Ticks, key: KeyNumber) -> TraceRef {
        let max = self.slots_max - self.slots_max / 4;
        let more = |open: u32| (open < max).then_some(open + 1);
        if self.provisional.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return TraceRef::NONE;
        }
        let trace = self.take_marked(now, |slot, turn| {
            // Exchanged, and not stored, so that a late mark of the trace before comes before or
            // fails, whoever looks.
            slot.marks.swap(u64::from(turn) << 32 | PROVISIONAL, Ordering::Relaxed);
            slot.key.store(key.get(), Ordering::Relaxed);
        });
        if trace == TraceRef::NONE {
            self.provisional.fetch_sub(1, Ordering::Relaxed);
        }
        trace
    }

    /// Gives back the slot of a provisional trace in which nothing has ended, if its root is none
    /// after all, or nobody will end it. Returns whether it had one.
    pub(crate) fn give_back(&self, trace: TraceRef) -> bool {
        let Some(slot) = self.slot(trace.slot) else { return false };
        let gathered = lock(&slot.gathered);
        let is_empty = slot.turn.load(Ordering::Relaxed) == trace.turn && gathered.header.is_none();
        if is_empty {
            self.provisional.fetch_sub(1, Ordering::Relaxed);
            end_turn(slot);
            drop(gathered);
            self.release(trace.slot);
        }
        is_empty
    }

    /// The number of open provisional traces.
    pub(crate) fn provisional(&self) -> u32 {
        self.provisional.load(Ordering::Relaxed)
    }

    /// Marks an open trace as one in which this was seen.
    pub(crate) fn mark(&self, trace: TraceRef, severity: Severity) {
        let Some(slot) = self.slot(trace.slot) else { return };
        if slot.turn.load(Ordering::Relaxed) != trace.turn {
            return;
        }
        let mut marks = slot.marks.load(Ordering::Relaxed);
        loop {
            let turns_since = trace.turn.wrapping_sub((marks >> 32) as u32);
            if turns_since > u32::MAX / 2 {
                // Another trace has the slot meanwhile, and its marks.
                return;
            }
            let own = if turns_since == 0 { marks & u64::from(u32::MAX) } else { 0 };
            if mark_of(severity) <= own & SEVERITY {
                return;
            }
            let marked = u64::from(trace.turn) << 32 | own & !SEVERITY | mark_of(severity);
            match slot.marks.compare_exchange_weak(marks, marked, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(seen) => marks = seen,
            }
        }
    }

    /// The worst that was seen in an open trace; nothing of one that has left. Its marks stay until
    /// another trace has the slot, so what they say depends on chance.
    pub(crate) fn severity(&self, trace: TraceRef) -> Severity {
        let is_open = |slot: &&Slot| slot.turn.load(Ordering::Relaxed) == trace.turn;
        let slot = self.slot(trace.slot).filter(is_open);
        slot.map_or(Severity::Fine, |slot| severity_of(slot.marks_of(trace.turn)))
    }

    /// The short way of [`Traces::end_provisional`] for a child in which nothing was seen: into
    /// memory that is accounted for. A trace that takes no more spans, or that was given up, has
    /// none. Returns whether it went this way.
    #[inline]
    pub(crate) fn gather(&self, trace: TraceRef, record: &Record, spans_max: usize, queue: &Queue) -> bool {
        let Some(slot) = self.slot(trace.slot) else { return false };
        let mut gathered = lock(&slot.gathered);
        let buffer = &gathered.buffer;
        // Without a header it is the first span, in memory and room that a kept trace left in the
        // slot.
        let is_short = slot.turn.load(Ordering::Relaxed) == trace.turn
            && buffer.records.len() < buffer.records.capacity().min(spans_max)
            && gathered.header.is_some()
            && !queue.is_closed();
        if is_short {
            gathered.buffer.records.push(record.clone());
        }
        is_short
    }

    /// Adds an ended span to its provisional trace; with the local root the trace is whole.
    pub(crate) fn end_provisional(
        &self,
        trace: TraceRef,
        header: impl FnOnce() -> Header,
        record: Record,
        body: Option<&mut Body>,
        (queue, ring): (&Queue, &dyn RingRoom),
    ) -> EndedSpan {
        let Some(slot) = self.slot(trace.slot) else { return EndedSpan::Late(Box::new((header(), record))) };
        let mut gathered = lock(&slot.gathered);
        // After the shutdown nothing gathers: see `end_span`.
        let is_root = record.is_local_root();
        let is_own = slot.turn.load(Ordering::Relaxed) == trace.turn;
        if !is_own || queue.is_closed() {
            // A root that was decided during the shutdown may have taken its slot after the others
            // were taken back.
            drop(gathered);
            if is_own && is_root {
                self.give_back(trace);
            }
            return EndedSpan::Late(Box::new((header(), record)));
        }
        let (spans_max, bytes_max) = ring.limits();
        let buffer = &gathered.buffer;
        // Bytes are added up where something may have grown.
        let may_grow =
            body.is_some() || buffer.records.len() == buffer.records.capacity() || gathered.room.bytes() == 0;
        let severity = severity_of(slot.marks_of(trace.turn));
        let is_full = gathered.is_full
            || buffer.records.len() >= spans_max
            || may_grow && buffer.bytes_used() >= bytes_max;
        let given_up = if gathered.is_given_up {
            Some((record.counted(), GivenUp::RingFull))
        } else if is_full && !is_root {
            Some((record.counted(), GivenUp::Cut))
        } else {
            gathered.header.get_or_insert_with(header);
            // The root leaves at once, so it stays.
            let end = (severity > Severity::Fine && !is_root).then(|| gathered.buffer.end());
            gathered.buffer.append(record, body);
            let outgrows = may_grow && gathered.outgrows();
            let outgrown = outgrows.then(|| gathered.make_room(ring, severity, end)).flatten();
            outgrown.map(|counted| (counted, GivenUp::RingFull))
        };
        if let (Some((counted, _)), Some(header)) = (given_up, &mut gathered.header) {
            header.cut = header.cut.saturating_add(u32::try_from(counted.spans).unwrap_or(u32::MAX));
        }
        let whole = if is_root { self.take_out((trace.slot, slot), &mut gathered, ring) } else { None };
        drop(gathered);
        if is_root {
            self.release(trace.slot);
        }
        match (whole, given_up) {
            (Some(whole), _) => EndedSpan::Whole(whole),
            (None, Some((counted, reason))) => EndedSpan::GivenUp(counted, reason),
            (None, None) => EndedSpan::Gathered,
        }
    }

    /// Takes a provisional trace out of its slot, and ends the turn. `None` if nothing of it is
    /// left.
    fn take_out(
        &self,
        (number, slot): (u32, &Slot),
        gathered: &mut Gathered,
        ring: &dyn RingRoom,
    ) -> Option<Box<Provisional>> {
        let turn = slot.turn.load(Ordering::Relaxed);
        let header = gathered.header.take().filter(|_| !gathered.buffer.records.is_empty());
        let whole = header.map(|header| {
            let mut whole = ring.spare();
            whole.header = header;
            // The slot has the spare one's memory for its next trace.
            std::mem::swap(&mut whole.buffer, &mut gathered.buffer);
            std::mem::swap(&mut whole.room, &mut gathered.room);
            if gathered.buffer.records.capacity() == 0 {
                gathered.buffer = Buffer::like(&whole.buffer);
            }
            whole.key = KeyNumber::new(slot.key.load(Ordering::Relaxed));
            whole.severity = severity_of(slot.marks_of(turn));
            whole.opened = slot.opened.load(Ordering::Relaxed);
            whole.part = TraceRef { slot: number, turn };
            whole
        });
        gathered.room.shrink_to(0);
        (gathered.is_given_up, gathered.is_full) = (false, false);
        self.provisional.fetch_sub(1, Ordering::Relaxed);
        end_turn(slot);
        whole
    }

    /// Takes out the provisional traces that began before `before`, as long as `goes_on` says so.
    /// Their later spans are late. One in which nothing has ended, that policies could look at,
    /// waits for that while half of the slots are for others; unless `before` is [`Ticks::MAX`]:
    /// then nothing comes.
    pub(crate) fn take_old(
        &self,
        before: Ticks,
        ring: &dyn RingRoom,
        goes_on: impl Fn() -> bool,
        mut f: impl FnMut(Box<Provisional>),
    ) {
        let is_old = |slot: &Slot| (1..before).contains(&slot.opened.load(Ordering::Acquire));
        for (number, slot) in self.in_use().filter(|(_, slot)| is_old(slot)) {
            if !goes_on() {
                return;
            }
            let mut gathered = lock(&slot.gathered);
            if !is_old(slot) || !slot.is_provisional() {
                continue;
            }
            let is_empty = gathered.header.is_none();
            if is_empty && before < Ticks::MAX && self.provisional() <= self.slots_max / 2 {
                continue;
            }
            let old = self.take_out((number, slot), &mut gathered, ring);
            drop(gathered);
            self.release(number);
            old.into_iter().for_each(&mut f);
        }
    }

    /// Gives up an open trace of no severity, some slots on from the last one that was looked at;
    /// returns the number of its spans, or `None` if none of those slots has one. The caller may
    /// hold a slot's lock, so locks are only tried.
    pub(crate) fn give_up_open(&self) -> Option<Counted> {
        let used = self.used.load(Ordering::Relaxed).max(1);
        for _ in 0..LOOKED_AT.min(used) {
            let number = self.looked_at.fetch_add(1, Ordering::Relaxed) % used;
            let Some(slot) = self.slot(number) else { continue };
            let turn = slot.turn.load(Ordering::Relaxed);
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

/// Slots that are looked at for one that can be given up.
const LOOKED_AT: u32 = 64;

impl Gathered {
    /// Finds room for what the buffer holds, or gives it up, unless something was seen in it: then
    /// it takes no more, and gives up the last span, before which it ended at `end`.
    #[cold]
    fn make_room(&mut self, ring: &dyn RingRoom, severity: Severity, end: Option<End>) -> Option<Counted> {
        if ring.make_room(&mut self.room, self.buffer.bytes_held(), severity) {
            return None;
        }
        if severity == Severity::Fine {
            return Some(self.give_up().counted());
        }
        self.is_full = true;
        end.inspect(|end| self.buffer.take_back(end));
        self.buffer.shrink();
        end.map(|_| Counted { spans: 1, ..Counted::default() })
    }

    /// Gives the spans up, and all that come.
    fn give_up(&mut self) -> Buffer {
        self.is_given_up = true;
        self.room.shrink_to(0);
        std::mem::take(&mut self.buffer)
    }
}
