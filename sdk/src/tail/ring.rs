//! Provisional traces whose root has ended, and which no policy has kept: for a while, for triggers
//! that come late.
//!
//! Traces lie in shards by their ids, in the order of their ends; a thread locks one shard at a
//! time, and takes out what has been there for long. All bytes, those of open traces too, are one
//! [`Budget`]'s.

mod row;

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use astracer_samplers::tail::{KeyNumber, Severity};
use opentelemetry::{SpanId, TraceId};

use self::row::{Row, short};
use super::fate::{Fate, Gone, Refusal};
use crate::budget::{Budget, Room, Use};
use crate::clock::Ticks;
use crate::record::{Body, Header, KeptBy, Record};
use crate::stats::{Counted, GivenUp};
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use crate::traces::{Provisional, TraceRef};

/// A trace in the ring takes this beside its spans.
pub(super) const HELD_BYTES: usize = size_of::<Held>() + size_of::<Provisional>() + 16;

/// A trace in the ring.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) trace: Box<Provisional>,
    /// Its spans, and local roots among them.
    pub(crate) counted: Counted,
    pub(crate) duration: u64,
    /// The time at which the root was let go of, or at which the trace was too old to wait for
    /// that.
    pub(crate) ended: Ticks,
    /// The first policy that wanted it, when none that did had budget left.
    pub(super) refused_by: Refusal,
    /// Its number among the traces that have come to its shard, which the ring gives it.
    pub(crate) came: u64,
}

impl Held {
    /// The reason for which it is given up when its time is over.
    pub(crate) fn reason(&self) -> GivenUp {
        if self.refused_by.is_some() { GivenUp::Refused } else { GivenUp::Unwanted }
    }

    /// Its local root, if it is there: of a trace that is old it is still open.
    pub(crate) fn root(&self) -> Option<SpanId> {
        let root = self.buffer.records.iter().rev().find(|record| record.is_local_root());
        root.map(|root| root.span_id)
    }

    /// Whether it takes no more spans: these are the most that it may have, and their bytes. Its
    /// root has a place all the same.
    pub(crate) fn is_full(&self, (spans_max, bytes_max): (usize, usize), record: &Record) -> bool {
        let is_full = self.buffer.records.len() >= spans_max || self.buffer.bytes_used() >= bytes_max;
        is_full && !record.is_local_root()
    }

    /// The bytes that it takes with one span more.
    pub(crate) fn bytes_with(&self, body: Option<&Body>) -> usize {
        HELD_BYTES + self.buffer.bytes_held() + 2 * size_of::<Record>() + body.map_or(0, Body::bytes)
    }

    /// Adds a span for which there is room.
    pub(crate) fn add(&mut self, record: Record, body: Option<&mut Body>) {
        let counted = record.counted();
        self.buffer.append(record, body);
        self.counted.spans += counted.spans;
        self.counted.roots += counted.roots;
        // Lists double as they grow. Where there is no room for that, the next span asks for it.
        let bytes = HELD_BYTES + self.buffer.bytes_held();
        self.room.grow_to(bytes, Use::Entries);
    }

    /// Counts a span that is cut, for the root to tell of.
    pub(crate) fn cut(&mut self) {
        self.header.cut = self.header.cut.saturating_add(1);
    }
}

impl Deref for Held {
    type Target = Provisional;

    fn deref(&self) -> &Provisional {
        &self.trace
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Provisional {
        &mut self.trace
    }
}

/// A trace that somebody wants before it has come: by hand all parts of it, and for a caller one
/// part for each ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    trace_id: TraceId,
    pub(crate) by: KeptBy,
    asked: Ticks,
    /// The times that it was asked for in vain.
    pub(crate) asks: u64,
}

/// A trace that was kept late: its spans that are still open follow it, within its limits.
#[derive(Debug)]
pub(crate) struct Kept {
    trace_id: TraceId,
    /// The slot that it had: several local roots may have the trace's id.
    part: TraceRef,
    by: KeptBy,
    key: KeyNumber,
    spans: usize,
    /// Spans that were cut, for the root to tell of if it is not there yet.
    cut: u32,
}

impl Kept {
    pub(crate) fn new(held: &Held, by: KeptBy) -> Self {
        let cut = if held.root().is_some() { 0 } else { held.header.cut };
        let spans = held.buffer.records.len();
        Kept { trace_id: held.header.trace_id, part: held.part, by, key: held.key, spans, cut }
    }
}

#[derive(Debug, Default)]
struct Shard {
    /// Traces in which nothing was seen, and those in which something was.
    rows: [Row; 2],
    /// The number of traces that have come.
    came: u64,
    /// The last traces that were kept late.
    kept: VecDeque<Kept>,
    wanted: VecDeque<Wanted>,
    /// The last traces that were given up, if decisions are explained.
    gone: VecDeque<Gone>,
}

/// Ids in each shard that are remembered of traces that were kept, of those that are wanted, and of
/// those that were given up.
const REMEMBERED: usize = 256;
const SHARDS: usize = if cfg!(loom) { 1 } else { 8 };
/// Traces whose time is over that one call takes out: two for each that comes, so that none stays
/// behind.
const EXPIRED_AT_ONCE: usize = 4;

/// Traces that came to the ring before a moment: their number in each shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals([u64; SHARDS]);

impl Arrivals {
    pub(crate) const ALL: Arrivals = Arrivals([u64::MAX; SHARDS]);
}

#[derive(Debug)]
pub(crate) struct Ring {
    shards: [Mutex<Shard>; SHARDS],
    budget: Arc<Budget>,
    bytes_max: usize,
    /// The time for which traces stay.
    hold: Ticks,
    /// The time for which a trace is wanted that has not come.
    wanted_for: Ticks,
    closed: AtomicBool,
}

/// The fate of a trace that was to be held.
#[derive(Debug)]
pub(crate) enum Holding {
    Held,
    /// Somebody asked for it when it was not there.
    Wanted(Box<Held>, Wanted),
    /// Nothing is held, or nothing any more: it is given up.
    Refused(Box<Held>, GivenUp),
}

/// The fate of a span whose trace has left before it, with the trace's key.
#[derive(Debug)]
pub(crate) enum LateSpan {
    /// It is with its trace in the ring.
    Held(KeyNumber),
    /// Its trace is taken out, and it is not in it yet: it is the root, or something worse was seen
    /// in it than in the trace, or others are to make room for it.
    Out(Box<(Held, Record)>),
    /// Its trace has as many spans or bytes as it may have.
    Cut(KeyNumber),
    /// Its trace was kept.
    Kept(KeyNumber, Box<(Header, Record)>),
    /// Its trace was kept, and its policy has no budget left for the span.
    Refused(KeyNumber),
    /// Its trace was given up.
    Gone,
}

impl LateSpan {
    /// The trace's key, unless the trace is gone.
    pub(crate) fn key(&self) -> Option<KeyNumber> {
        match self {
            LateSpan::Held(key) | LateSpan::Cut(key) | LateSpan::Refused(key) | LateSpan::Kept(key, _) => {
                Some(*key)
            }
            LateSpan::Out(out) => Some(out.0.key),
            LateSpan::Gone => None,
        }
    }
}

impl Ring {
    pub(crate) fn new(bytes: usize, hold: Ticks, wanted_for: Ticks) -> Self {
        Ring {
            shards: Default::default(),
            budget: Budget::new(bytes),
            bytes_max: bytes,
            hold,
            wanted_for,
            closed: AtomicBool::new(false),
        }
    }

    fn shard(&self, trace_id: TraceId) -> MutexGuard<'_, Shard> {
        lock(&self.shards[short(trace_id) as usize % SHARDS])
    }

    pub(crate) fn bytes(&self) -> usize {
        self.budget.used()
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether traces stay in it, now.
    pub(crate) fn holds(&self) -> bool {
        self.hold > 0 && !self.closed.load(Ordering::Relaxed)
    }

    /// Room for a trace that has none yet.
    pub(crate) fn grow(&self, room: &mut Room, bytes: usize) -> bool {
        if !room.is_of(&self.budget) {
            *room = Room::of(&self.budget);
        }
        room.grow_to(bytes, Use::Entries)
    }

    /// Whether somebody wants this trace, which has come; and forgets that, unless it is wanted by
    /// hand.
    pub(crate) fn take_wanted(&self, trace_id: TraceId, now: Ticks) -> Option<Wanted> {
        self.wish_for(&mut self.shard(trace_id), trace_id, now)
    }

    fn wish_for(&self, shard: &mut Shard, trace_id: TraceId, now: Ticks) -> Option<Wanted> {
        let asks = self.answer(shard, trace_id, now)?;
        let is_it = |wanted: &Wanted| wanted.trace_id == trace_id;
        let by_hand = shard.wanted.iter().find(|wanted| is_it(wanted) && wanted.by == KeptBy::HAND).copied();
        let wanted = by_hand.or_else(|| shard.wanted.remove(shard.wanted.iter().position(is_it)?))?;
        Some(Wanted { asks, ..wanted })
    }

    /// Forgets what was asked too long ago of this trace, and returns how often it was asked for in
    /// vain since; `None` if never.
    fn answer(&self, shard: &mut Shard, trace_id: TraceId, now: Ticks) -> Option<u64> {
        shard.wanted.iter().find(|wanted| wanted.trace_id == trace_id)?;
        let is_in_time = |wanted: &Wanted| now.abs_diff(wanted.asked) <= self.wanted_for;
        shard.wanted.retain(|wanted| wanted.trace_id != trace_id || is_in_time(wanted));
        let of_trace = shard.wanted.iter_mut().filter(|wanted| wanted.trace_id == trace_id);
        Some(of_trace.map(|wanted| std::mem::take(&mut wanted.asks)).sum())
    }

    /// Holds a trace, unless somebody has asked for it meanwhile, or nothing is held; and takes out
    /// those whose time is over.
    pub(crate) fn hold(&self, mut held: Held, now: Ticks, out: &mut Vec<Held>) -> Holding {
        let mut shard = self.shard(held.header.trace_id);
        if let Some(wanted) = self.wish_for(&mut shard, held.header.trace_id, now) {
            return Holding::Wanted(Box::new(held), wanted);
        }
        // Set before all shards are emptied, each under its lock.
        if self.closed.load(Ordering::Relaxed) {
            return Holding::Refused(Box::new(held), GivenUp::ShutDown);
        }
        if self.hold == 0 {
            let reason = held.reason();
            return Holding::Refused(Box::new(held), reason);
        }
        held.came = shard.came;
        shard.came += 1;
        let row = usize::from(held.severity > Severity::Fine);
        shard.rows[row].push(held);
        self.pop_expired(&mut shard, now, EXPIRED_AT_ONCE, out);
        Holding::Held
    }

    fn pop_expired(&self, shard: &mut Shard, now: Ticks, most: usize, out: &mut Vec<Held>) {
        // One that ended far ahead did so before the clock was set back.
        let is_over = |held: &Held| now.abs_diff(held.ended) >= self.hold;
        for row in &mut shard.rows {
            for _ in 0..most {
                let Some(held) = row.pop_if(is_over) else { break };
                out.push(held);
            }
        }
    }

    /// Takes out all traces whose time is over.
    pub(crate) fn expire(&self, now: Ticks, out: &mut Vec<Held>) {
        for shard in &self.shards {
            self.pop_expired(&mut lock(shard), now, usize::MAX, out);
        }
    }

    /// Takes out the oldest trace of the lowest value, of those that are worth no more than one of
    /// this severity.
    pub(crate) fn pop_lowest(&self, severity: Severity) -> Option<Held> {
        let mut rows = 0..=usize::from(severity > Severity::Fine);
        rows.find_map(|row| self.pop_oldest(row))
    }

    /// Takes out the oldest trace of this row of all shards; `None` once no shard has one.
    fn pop_oldest(&self, row: usize) -> Option<Held> {
        let first = |shard: &Mutex<Shard>| {
            let shard = lock(shard);
            shard.rows[row].held.iter().flatten().next().map(|held| held.ended)
        };
        loop {
            let firsts = self.shards.iter().filter_map(|shard| Some((first(shard)?, shard)));
            let (_, shard) = firsts.min_by_key(|(ended, _)| *ended)?;
            // Other threads may have emptied this shard meanwhile. The next look finds another one,
            // or none.
            let popped = lock(shard).rows[row].pop_if(|_| true);
            if popped.is_some() {
                return popped;
            }
        }
    }

    /// Notes that a trace was kept. Returns the number of times that it was asked for in vain,
    /// while it was out of the ring.
    pub(crate) fn note_kept(&self, kept: Kept, now: Ticks) -> u64 {
        let mut shard = self.shard(kept.trace_id);
        // Wishes stay, for parts that may come.
        let asks = self.answer(&mut shard, kept.trace_id, now).unwrap_or_default();
        if shard.kept.len() == REMEMBERED {
            shard.kept.pop_front();
        }
        shard.kept.push_back(kept);
        asks
    }

    /// Takes out a trace that somebody wants. If it is not there, it is wanted from now on, even if
    /// a part of it was kept: others may be open. `asks` is 1 if this asks in vain.
    pub(crate) fn take(&self, trace_id: TraceId, by: KeptBy, now: Ticks, asks: u64) -> Taken {
        let mut shard = self.shard(trace_id);
        let [ordinary, marked] = &mut shard.rows;
        if let Some(held) = marked.take(trace_id).or_else(|| ordinary.take(trace_id)) {
            return Taken::Held(Box::new(held));
        }
        let was_kept = shard.kept.iter().any(|kept| kept.trace_id == trace_id);
        let (asks, taken) = if was_kept { (0, Taken::Before) } else { (asks, Taken::Asked) };
        // By hand one wish is for all parts. Each ask of a caller is a wish of its own: callers
        // have a budget of asks.
        let mut of_trace = shard.wanted.iter_mut().filter(|wanted| wanted.trace_id == trace_id);
        if let Some(wanted) = of_trace.find(|wanted| wanted.by == KeptBy::HAND || by == KeptBy::HAND) {
            (wanted.by, wanted.asked) = (KeptBy::HAND, now);
            wanted.asks += asks;
            return taken;
        }
        if shard.wanted.len() == REMEMBERED {
            // Others may ask for anything: the service's own asks are not forgotten for theirs.
            let oldest = shard.wanted.iter().position(|wanted| wanted.by != KeptBy::HAND);
            if oldest.is_none() && by != KeptBy::HAND {
                return taken;
            }
            shard.wanted.remove(oldest.unwrap_or_default());
        }
        shard.wanted.push_back(Wanted { trace_id, by, asked: now, asks });
        taken
    }

    /// Puts back a trace that was taken out and that no policy keeps, as [`Ring::hold`] does.
    pub(crate) fn put_back(&self, held: Held, now: Ticks) -> Holding {
        let mut shard = self.shard(held.header.trace_id);
        if let Some(wanted) = self.wish_for(&mut shard, held.header.trace_id, now) {
            return Holding::Wanted(Box::new(held), wanted);
        }
        if self.closed.load(Ordering::Relaxed) {
            return Holding::Refused(Box::new(held), GivenUp::ShutDown);
        }
        let row = usize::from(held.severity > Severity::Fine);
        shard.rows[row].insert(held);
        Holding::Held
    }

    /// The traces that have come so far.
    pub(crate) fn so_far(&self) -> Arrivals {
        Arrivals(std::array::from_fn(|at| lock(&self.shards[at]).came))
    }

    /// Takes out the traces of these arrivals, a shard at a time, to be put back or kept.
    pub(crate) fn take_all(&self, Arrivals(came): Arrivals, mut f: impl FnMut(Vec<Held>)) {
        for (shard, came) in self.shards.iter().zip(came) {
            let all = lock(shard).rows.iter_mut().flat_map(|row| row.take_before(came)).collect();
            f(all);
        }
    }

    /// The fate of a trace, if it is there or was kept not long ago.
    pub(super) fn fate(&self, trace_id: TraceId) -> Option<Fate> {
        let mut shard = self.shard(trace_id);
        if let Some(kept) = shard.kept.iter().rev().find(|kept| kept.trace_id == trace_id) {
            return Some(Fate::Kept(kept.by));
        }
        let held = shard.rows.iter_mut().find_map(|row| row.get(trace_id));
        if let Some(held) = held {
            return Some(Fate::Held(held.severity, held.refused_by));
        }
        shard.gone.iter().rev().find(|gone| gone.trace_id == trace_id).copied().map(Fate::Gone)
    }

    pub(super) fn note_gone(&self, gone: Gone) {
        let mut shard = self.shard(gone.trace_id);
        if shard.gone.len() == REMEMBERED {
            shard.gone.pop_front();
        }
        shard.gone.push_back(gone);
    }

    /// From now on nothing is held.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// A span ends whose trace has left before it. The limits are those of [`Held::is_full`]; the
    /// function says whether it may follow a trace of this key that was kept.
    pub(crate) fn end_late(
        &self,
        ((header, record), part): ((Header, Record), TraceRef),
        severity: Severity,
        body: Option<&mut Body>,
        (limits, may_follow): ((usize, usize), &dyn Fn(KeptBy, KeyNumber) -> bool),
    ) -> LateSpan {
        let trace_id = header.trace_id;
        let mut shard = self.shard(trace_id);
        let Shard { rows, kept, .. } = &mut *shard;
        let row = rows.iter_mut().find(|row| row.find_part(trace_id, part).is_some());
        let latest_of = |test: &dyn Fn(&Kept) -> bool| {
            kept.iter().rposition(|kept| kept.trace_id == trace_id && test(kept))
        };
        // Of a part that is gone, what ends follows the latest that was kept.
        let at = latest_of(&|kept| kept.part == part)
            .or_else(|| if row.is_none() { latest_of(&|_| true) } else { None });
        if let Some(kept) = at.and_then(|at| kept.get_mut(at)) {
            let (is_root, is_full) = (record.is_local_root(), kept.spans >= limits.0);
            // The root says what is missing, so it follows in any case.
            if (is_full || !may_follow(kept.by, kept.key)) && !is_root {
                kept.cut = kept.cut.saturating_add(1);
                return if is_full { LateSpan::Cut(kept.key) } else { LateSpan::Refused(kept.key) };
            }
            kept.spans += 1;
            let cut = if is_root { kept.cut } else { 0 };
            return LateSpan::Kept(kept.key, Box::new((Header { kept_by: kept.by, cut, ..header }, record)));
        }
        let Some(row) = row else { return LateSpan::Gone };
        let Some(held) = row.get_part(trace_id, part) else { return LateSpan::Gone };
        if severity <= held.severity && !record.is_local_root() {
            if held.is_full(limits, &record) {
                held.cut();
                return LateSpan::Cut(held.key);
            }
            let bytes = held.bytes_with(body.as_deref());
            if bytes <= held.room.bytes()
                || held.room.grow_to(bytes.next_power_of_two(), Use::Entries)
                || held.room.grow_to(bytes, Use::Entries)
            {
                held.add(record, body);
                return LateSpan::Held(held.key);
            }
        }
        row.take_part(trace_id, part).map_or(LateSpan::Gone, |held| LateSpan::Out(Box::new((held, record))))
    }
}

/// A trace that somebody wants.
#[derive(Debug)]
pub(crate) enum Taken {
    Held(Box<Held>),
    /// It was kept before.
    Before,
    /// It is not there, now.
    Asked,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::record::Ending;
    use crate::test_callsite::METADATA;

    pub(super) fn held(number: u64) -> Held {
        let mut trace = Box::<Provisional>::default();
        trace.header.trace_id = TraceId::from(u128::from(number));
        Held { trace, counted: Counted::default(), duration: 0, ended: number, refused_by: None, came: 0 }
    }

    /// Ids of one shard.
    fn id(number: usize) -> TraceId {
        TraceId::from((number * SHARDS) as u128)
    }

    /// Where all asks are the service's own, a caller's is none.
    #[test]
    fn a_callers_ask_takes_no_place_of_the_services_own() {
        let ring = Ring::new(1 << 20, 10, 10);
        (1..=REMEMBERED).for_each(|number| drop(ring.take(id(number), KeptBy::HAND, 1, 1)));
        assert!(matches!(ring.take(id(1_000), KeptBy::CALLER, 1, 1), Taken::Asked));
        assert!(ring.take_wanted(id(1), 2).is_some() && ring.take_wanted(id(1_000), 2).is_none());
        // One more of its own does.
        ring.take(id(1_001), KeptBy::HAND, 1, 1);
        assert!(ring.take_wanted(id(1), 2).is_none() && ring.take_wanted(id(1_001), 2).is_some());
    }

    #[test]
    fn traces_that_were_given_up_are_remembered_within_a_bound() {
        let ring = Ring::new(1 << 20, 10, 10);
        for number in 1..=10_000 {
            ring.note_gone(Gone { trace_id: id(number), reason: GivenUp::RingFull, asked: None });
        }
        let known = (1..=10_000).filter(|number| matches!(ring.fate(id(*number)), Some(Fate::Gone(_))));
        assert!(known.eq(10_001 - REMEMBERED..=10_000));
    }

    /// The oldest goes first, whatever was taken out behind it while it was looked at.
    #[test]
    fn a_trace_that_is_put_back_has_its_place_among_empty_ones() {
        for taken in 2..=5 {
            let ring = Ring::new(1 << 20, 100, 10);
            for number in 1..=5 {
                let held = Held { ended: number as u64, ..held((number * SHARDS) as u64) };
                assert!(matches!(ring.hold(held, 5, &mut Vec::new()), Holding::Held));
            }
            let take = |number| match ring.take(id(number), KeptBy::HAND, 5, 1) {
                Taken::Held(held) => *held,
                other => panic!("{other:?}"),
            };
            let first = take(1);
            drop(take(taken));
            assert!(matches!(ring.put_back(first, 5), Holding::Held));
            assert_eq!(ring.pop_lowest(Severity::Fine).map(|held| held.ended), Some(1), "{taken}");
        }
    }

    /// Late spans are accounted for with the memory that their trace takes for them.
    #[test]
    fn a_trace_that_grows_in_the_ring_has_room_for_its_memory() {
        let ring = Ring::new(1 << 20, 10, 10);
        let mut held = held(1);
        assert!(ring.grow(&mut held.room, HELD_BYTES));
        assert!(matches!(ring.hold(held, 1, &mut Vec::new()), Holding::Held));
        let header = || Header { trace_id: TraceId::from(1_u128), ..Provisional::default().header };
        for number in 1..1_000_u64 {
            let ending = Ending { time: 2, busy: None };
            let record = Record::new(&METADATA, (SpanId::from(number), SpanId::INVALID), 1, ending, 1);
            let limits = (1_000, 1 << 20);
            let late = ((header(), record), TraceRef::NONE);
            let late = ring.end_late(late, Severity::Fine, None, (limits, &|_, _| true));
            assert!(matches!(late, LateSpan::Held(_)));
            let mut shard = ring.shard(TraceId::from(1_u128));
            let held = shard.rows[0].get(TraceId::from(1_u128)).unwrap();
            assert!(HELD_BYTES + held.buffer.bytes_held() <= held.room.bytes(), "{number}");
        }
    }

    /// Threads that look at once all see the same trace as the oldest. One gets it, and the others
    /// the next ones: while an ordinary trace is there, none gets a marked one, or nothing.
    #[test]
    fn a_marked_trace_is_not_taken_out_while_others_are_there() {
        const THREADS: usize = 4;
        for _ in 0..500 {
            let ring = Ring::new(1 << 20, u64::MAX, 10);
            for number in 0..(THREADS * SHARDS) as u64 {
                // In each shard as many of both, and all of one age.
                let (mut ordinary, mut marked) = (held(number + 1), held(number + 1_001));
                (ordinary.ended, marked.ended) = (1, 1);
                marked.trace.severity = Severity::Error;
                for held in [ordinary, marked] {
                    assert!(matches!(ring.hold(held, 1, &mut Vec::new()), Holding::Held));
                }
            }
            let pop = || {
                (0..SHARDS).all(|_| {
                    ring.pop_lowest(Severity::Error).is_some_and(|held| held.severity == Severity::Fine)
                })
            };
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(pop)).collect();
                assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
            });
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models;
