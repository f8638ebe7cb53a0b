//! The ring: holds provisional traces after their root has ended and no policy has kept them, in
//! case a request for them comes late.
//!
//! Traces are distributed over shards by their ids, in the order in which they ended. A thread
//! locks one shard at a time, and takes out the traces that have been held for long enough. All
//! bytes, including those of open provisional traces, are charged to one [`MemoryBudget`].

mod row;

use std::collections::VecDeque;
use std::sync::Arc;

use super::Weight;
use astracer_samplers::tail::{KeyNumber, Severity, Tail};
use opentelemetry::TraceId;

use self::row::{Row, short};
use super::status::{GivenUpTrace, TraceStatus};
use crate::clock::Ticks;
use crate::memory_budget::{MemoryBudget, Reservation, Use};
use crate::record::{Body, KeepReason, Record};
use crate::stats::GivenUp;
use crate::sync::statics::AtomicU64;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use crate::traces::{ProvisionalTrace, TraceRef};

/// The end of a provisional trace: the ring holds it no longer, or never did.
#[derive(Clone, Copy, Debug)]
pub(super) enum WayOut {
    Kept(KeepReason, Option<Weight>),
    GivenUp(GivenUp),
}

/// A request for a trace that has not arrived. One by hand (`Handle::keep`) covers all parts of the
/// trace; one from a caller covers a single part.
#[derive(Clone, Copy, Debug)]
struct TraceRequest {
    trace_id: TraceId,
    by: KeepReason,
    /// The weight that the trace has by the decision of the process that asks.
    weight: Option<Weight>,
    requested_at: Ticks,
    misses: u64,
}

/// A trace that was kept late. Its spans that are still open follow it, within its limits.
#[derive(Debug)]
struct KeptTrace {
    trace_id: TraceId,
    /// The slot that the trace had: several local roots may share the trace's id.
    part: TraceRef,
    by: KeepReason,
    key: KeyNumber,
    spans: usize,
    /// Spans that were cut, for the root to report if it has not ended yet.
    cut: u32,
}

#[derive(Debug, Default)]
struct Shard {
    /// Traces of severity `Fine`, and traces of a higher severity.
    rows: [Row; 2],
    came: u64,
    kept: VecDeque<KeptTrace>,
    requests: VecDeque<TraceRequest>,
    given_up: VecDeque<GivenUpTrace>,
}

/// The capacity of each of a shard's lists of kept, requested and given-up traces.
const REMEMBERED: usize = 256;
pub(super) const SHARDS: usize = if cfg!(loom) { 1 } else { 8 };
/// Taken out of each row at each arrival: more than one, so that expired traces do not pile up.
const EXPIRED_AT_ONCE: usize = 4;

/// A point in time: the number of traces that had arrived in each shard.
pub(super) type Arrivals = [u64; SHARDS];

pub(super) type Expired = [[Option<Box<ProvisionalTrace>>; EXPIRED_AT_ONCE]; 2];

#[derive(Debug)]
pub(super) struct Ring {
    shards: [Mutex<Shard>; SHARDS],
    pub(super) budget: Arc<MemoryBudget>,
    hold: Ticks,
    request_age_max: Ticks,
    closed: AtomicBool,
    /// The requests whose trace was not there and has not arrived since.
    pub(super) missed: AtomicU64,
}

#[derive(Debug)]
pub(super) enum LateSpan {
    Held,
    /// The trace was taken out, and the caller has to add the span: it is the root, its severity is
    /// higher than the trace's, or other traces must be evicted for it.
    TakenOut(Box<ProvisionalTrace>),
    /// The span follows its kept trace. The root reports the number of spans that were cut.
    Kept(KeepReason, u32),
    GivenUp(GivenUp),
}

impl Ring {
    pub(super) fn new(bytes: usize, hold: Ticks, request_age_max: Ticks) -> Self {
        Ring {
            shards: Default::default(),
            budget: MemoryBudget::new(bytes),
            hold,
            request_age_max,
            closed: AtomicBool::new(false),
            missed: AtomicU64::new(0),
        }
    }

    fn shard(&self, trace_id: TraceId) -> MutexGuard<'_, Shard> {
        lock(&self.shards[short(trace_id) as usize % SHARDS])
    }

    /// Whether the ring holds traces at present. Relaxed: only a hint that saves work; `hold`
    /// checks `closed` again under the shard's lock.
    pub(super) fn holds(&self) -> bool {
        self.hold > 0 && !self.closed.load(Ordering::Relaxed)
    }

    /// As [`Reservation::grow_to`], after binding the reservation to the ring's budget.
    pub(super) fn grow(&self, reservation: &mut Reservation, bytes: usize) -> bool {
        if !reservation.is_of(&self.budget) {
            *reservation = Reservation::of(&self.budget);
        }
        reservation.grow_to(bytes, Use::Entries)
    }

    /// Returns who requested a trace that has just arrived. Removes the request, unless it is by
    /// hand.
    pub(super) fn take_request(&self, trace_id: TraceId, now: Ticks) -> Option<(KeepReason, Option<Weight>)> {
        self.request_for(&mut self.shard(trace_id), trace_id, now)
    }

    fn request_for(
        &self,
        shard: &mut Shard,
        trace_id: TraceId,
        now: Ticks,
    ) -> Option<(KeepReason, Option<Weight>)> {
        if !self.note_arrival(shard, trace_id, now) {
            return None;
        }
        let mut of_trace =
            shard.requests.iter().enumerate().filter(|(_, request)| request.trace_id == trace_id);
        let (first, _) = of_trace.clone().next()?;
        if of_trace.any(|(_, request)| request.by == KeepReason::HAND) {
            return Some((KeepReason::HAND, None));
        }
        shard.requests.remove(first).map(|request| (request.by, request.weight))
    }

    /// Removes expired requests for a trace that has arrived; the others did not miss it after all.
    /// Returns whether there were any.
    fn note_arrival(&self, shard: &mut Shard, trace_id: TraceId, now: Ticks) -> bool {
        let is_it = |request: &TraceRequest| request.trace_id == trace_id;
        if !shard.requests.iter().any(is_it) {
            return false;
        }
        let is_in_time = |request: &TraceRequest| now.abs_diff(request.requested_at) <= self.request_age_max;
        shard.requests.retain(|request| !is_it(request) || is_in_time(request));
        for request in shard.requests.iter_mut().filter(|request| is_it(request)) {
            self.missed.fetch_sub(std::mem::take(&mut request.misses), Ordering::Relaxed);
        }
        true
    }

    /// Puts a trace into the ring: one that arrives, or one that was taken out and is put back in
    /// its order. Takes expired traces out when one arrives. Returns a trace that does not stay,
    /// because it was requested meanwhile or the ring holds nothing.
    pub(super) fn hold(
        &self,
        mut trace: Box<ProvisionalTrace>,
        is_back: bool,
        now: Ticks,
    ) -> Result<Expired, (Box<ProvisionalTrace>, WayOut)> {
        let mut shard = self.shard(trace.header.trace_id);
        if let Some((by, weight)) = self.request_for(&mut shard, trace.header.trace_id, now) {
            return Err((trace, WayOut::Kept(by, weight)));
        }
        // Relaxed under the shard's lock: `close` comes before all shards are emptied, each under
        // its lock. A thread that locks the shard after it was emptied sees `closed`; one that
        // locked it before has its trace taken out.
        if self.closed.load(Ordering::Relaxed) {
            return Err((trace, WayOut::GivenUp(GivenUp::ShutDown)));
        }
        if self.hold == 0 {
            let reason = trace.reason();
            return Err((trace, WayOut::GivenUp(reason)));
        }
        let row = usize::from(trace.severity > Severity::Fine);
        if is_back {
            shard.rows[row].insert(trace);
            return Ok(Expired::default());
        }
        trace.came = shard.came;
        shard.came += 1;
        shard.rows[row].push(trace);
        let mut expired = Expired::default();
        for (row, places) in shard.rows.iter_mut().zip(&mut expired) {
            let popped = std::iter::from_fn(|| self.pop_expired(row, now));
            places.iter_mut().zip(popped).for_each(|(place, trace)| *place = Some(trace));
        }
        Ok(expired)
    }

    fn pop_expired(&self, row: &mut Row, now: Ticks) -> Option<Box<ProvisionalTrace>> {
        // `abs_diff`: a trace whose end is far in the future ended before the clock was set back.
        row.pop_if(|trace| now.abs_diff(trace.ended) >= self.hold)
    }

    pub(super) fn expire(&self, now: Ticks) -> Vec<Box<ProvisionalTrace>> {
        let mut out = Vec::new();
        for shard in &self.shards {
            for row in &mut lock(shard).rows {
                out.extend(std::iter::from_fn(|| self.pop_expired(row, now)));
            }
        }
        out
    }

    /// Takes out the oldest of the lowest traces that rank no higher than this severity.
    pub(super) fn pop_lowest(&self, severity: Severity) -> Option<Box<ProvisionalTrace>> {
        let mut rows = 0..=usize::from(severity > Severity::Fine);
        rows.find_map(|row| self.pop_oldest(row))
    }

    fn pop_oldest(&self, row: usize) -> Option<Box<ProvisionalTrace>> {
        loop {
            let first = |shard: &Mutex<Shard>| lock(shard).rows[row].first().map(|trace| trace.ended);
            let firsts = self.shards.iter().filter_map(|shard| Some((first(shard)?, shard)));
            let (_, shard) = firsts.min_by_key(|(ended, _)| *ended)?;
            // Another thread may have emptied the row since.
            let popped = lock(shard).rows[row].pop_if(|_| true);
            if popped.is_some() {
                return popped;
            }
        }
    }

    /// Remembers that a trace is kept. The requests stay, for parts of the trace that may still
    /// arrive.
    pub(super) fn note_kept(&self, trace: &ProvisionalTrace, by: KeepReason, now: Ticks) {
        let trace_id = trace.header.trace_id;
        let kept = KeptTrace {
            trace_id,
            part: trace.part,
            by,
            key: trace.key,
            spans: trace.buffer.records.len(),
            cut: if trace.root().is_some() { 0 } else { trace.header.cut },
        };
        let mut shard = self.shard(trace_id);
        self.note_arrival(&mut shard, trace_id, now);
        remember(&mut shard.kept, kept);
    }

    /// Takes out a requested trace. If it is not there, the request is remembered, even if a part
    /// of the trace was kept: other parts may still be open. The request counts as missed if
    /// `counts` is true and no part was kept.
    pub(super) fn take(
        &self,
        trace_id: TraceId,
        (by, weight): (KeepReason, Option<Weight>),
        now: Ticks,
        counts: bool,
    ) -> Option<Box<ProvisionalTrace>> {
        let mut shard = self.shard(trace_id);
        let [ordinary, marked] = &mut shard.rows;
        if let Some(trace) = marked.take(trace_id).or_else(|| ordinary.take(trace_id)) {
            return Some(trace);
        }
        let was_kept = shard.kept.iter().any(|kept| kept.trace_id == trace_id);
        let misses = u64::from(counts && !was_kept);
        self.missed.fetch_add(misses, Ordering::Relaxed);
        // Each request of a caller is a separate one, because callers have a budget of requests.
        let mut of_trace = shard.requests.iter_mut().filter(|request| request.trace_id == trace_id);
        if let Some(request) =
            of_trace.find(|request| request.by == KeepReason::HAND || by == KeepReason::HAND)
        {
            (request.by, request.weight, request.requested_at) = (KeepReason::HAND, None, now);
            request.misses += misses;
            return None;
        }
        if shard.requests.len() == REMEMBERED {
            // Callers in other processes may request any number of traces; they must not displace
            // requests made by hand.
            let oldest = shard.requests.iter().position(|request| request.by != KeepReason::HAND);
            if oldest.is_none() && by != KeepReason::HAND {
                return None;
            }
            shard.requests.remove(oldest.unwrap_or_default());
        }
        shard.requests.push_back(TraceRequest { trace_id, by, weight, requested_at: now, misses });
        None
    }

    pub(super) fn so_far(&self) -> Arrivals {
        std::array::from_fn(|at| lock(&self.shards[at]).came)
    }

    /// Takes out the traces of these arrivals, one shard at a time; `f` may put them back.
    pub(super) fn take_all(&self, arrivals: Arrivals, mut f: impl FnMut(Vec<Box<ProvisionalTrace>>)) {
        for (shard, came) in self.shards.iter().zip(arrivals) {
            let all = lock(shard).rows.iter_mut().flat_map(|row| row.take_before(came)).collect();
            f(all);
        }
    }

    pub(super) fn status(&self, trace_id: TraceId) -> Option<TraceStatus> {
        let shard = self.shard(trace_id);
        if let Some(kept) = shard.kept.iter().rev().find(|kept| kept.trace_id == trace_id) {
            return Some(TraceStatus::Kept(kept.by));
        }
        if let Some(trace) = shard.rows.iter().find_map(|row| row.get(trace_id)) {
            return Some(TraceStatus::Held(trace.severity, trace.refused_by));
        }
        let given_up = shard.given_up.iter().rev().find(|given_up| given_up.trace_id == trace_id);
        given_up.copied().map(TraceStatus::GivenUp)
    }

    pub(super) fn note_given_up(&self, given_up: GivenUpTrace) {
        remember(&mut self.shard(given_up.trace_id).given_up, given_up);
    }

    /// Relaxed: the shards' locks order it, see `hold`.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Ends a span whose trace has left its slot. `may_follow` says whether the span may follow a
    /// kept trace of this reason and key. Also returns the trace's key, unless the trace is gone.
    pub(super) fn end_late(
        &self,
        (trace_id, part): (TraceId, TraceRef),
        (record, body): (&Record, Option<&mut Body>),
        severity: Severity,
        (bytes_max, may_follow): (usize, &dyn Fn(KeepReason, KeyNumber) -> bool),
    ) -> (Option<KeyNumber>, LateSpan) {
        let mut shard = self.shard(trace_id);
        let Shard { rows, kept, .. } = &mut *shard;
        let place = rows.iter_mut().find_map(|row| Some((row.place(trace_id, Some(part))?, row)));
        let latest_of = |test: &dyn Fn(&KeptTrace) -> bool| {
            kept.iter().rposition(|kept| kept.trace_id == trace_id && test(kept))
        };
        // If its own part is gone, a span follows the part that was kept last.
        let at = latest_of(&|kept| kept.part == part)
            .or_else(|| if place.is_none() { latest_of(&|_| true) } else { None });
        if let Some(kept) = at.and_then(|at| kept.get_mut(at)) {
            let (is_root, is_full) = (record.is_local_root, kept.spans >= Tail::TRACE_SPANS_MAX);
            // The root reports the number of missing spans, so it follows in any case.
            if (is_full || !may_follow(kept.by, kept.key)) && !is_root {
                kept.cut = kept.cut.saturating_add(1);
                let reason = if is_full { GivenUp::Cut } else { GivenUp::Refused };
                return (Some(kept.key), LateSpan::GivenUp(reason));
            }
            kept.spans += 1;
            return (Some(kept.key), LateSpan::Kept(kept.by, if is_root { kept.cut } else { 0 }));
        }
        const GONE: LateSpan = LateSpan::GivenUp(GivenUp::Late);
        let Some((at, row)) = place else { return (None, GONE) };
        let Some(trace) = row.held[at].as_deref_mut() else { return (None, GONE) };
        let key = Some(trace.key);
        if severity <= trace.severity && !record.is_local_root {
            if trace.is_full(bytes_max, record) {
                trace.header.cut_some(1);
                return (key, LateSpan::GivenUp(GivenUp::Cut));
            }
            let bytes = trace.bytes_with(body.as_deref());
            if bytes <= trace.reservation.bytes()
                || trace.reservation.grow_to(bytes.next_power_of_two(), Use::Entries)
                || trace.reservation.grow_to(bytes, Use::Entries)
            {
                trace.add(record.clone(), body);
                return (key, LateSpan::Held);
            }
        }
        (key, row.take_at(at).map_or(GONE, LateSpan::TakenOut))
    }
}

fn remember<T>(list: &mut VecDeque<T>, last: T) {
    if list.len() == REMEMBERED {
        list.pop_front();
    }
    list.push_back(last);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::record::Header;
    use crate::test_callsite::METADATA;
    use crate::traces::HELD_BYTES;
    use opentelemetry::SpanId;

    pub(super) fn held(number: u64) -> Box<ProvisionalTrace> {
        let header = Header { trace_id: TraceId::from(u128::from(number)), ..Header::default() };
        Box::new(ProvisionalTrace { header, ended: number, ..ProvisionalTrace::default() })
    }

    fn hold(ring: &Ring, trace: Box<ProvisionalTrace>, now: Ticks) {
        ring.hold(trace, false, now).unwrap();
    }

    fn id(number: usize) -> TraceId {
        TraceId::from((number * SHARDS) as u128)
    }

    #[test]
    fn a_callers_request_does_not_displace_the_services_own() {
        let ring = Ring::new(1 << 20, 10, 10);
        (1..=REMEMBERED).for_each(|number| drop(ring.take(id(number), (KeepReason::HAND, None), 1, true)));
        assert!(ring.take(id(1_000), (KeepReason::CALLER, None), 1, true).is_none());
        assert!(ring.take_request(id(1), 2).is_some() && ring.take_request(id(1_000), 2).is_none());
        assert!(ring.take(id(1_001), (KeepReason::HAND, None), 1, true).is_none());
        assert!(ring.take_request(id(1), 2).is_none() && ring.take_request(id(1_001), 2).is_some());
    }

    /// A request is missed if its trace is unknown here: neither held, nor kept, nor on its way.
    #[test]
    fn a_request_is_missed_unless_its_trace_was_here() {
        let ring = Ring::new(1 << 20, 10, 10);
        let missed = || ring.missed.load(Ordering::Relaxed);
        let request = |number, counts| ring.take(id(number), (KeepReason::CALLER, None), 1, counts).is_some();
        hold(&ring, held(SHARDS as u64), 1);
        assert_eq!((request(1, true), missed()), (true, 0), "held");
        ring.note_kept(&held(2 * SHARDS as u64), KeepReason::HAND, 1);
        assert_eq!((request(2, true), missed()), (false, 0), "kept");
        assert_eq!((request(3, false), missed()), (false, 0), "not to be counted");
        assert_eq!((request(4, true), missed()), (false, 1), "unknown");
        assert_eq!((request(4, true), missed()), (false, 2), "each request counts");
        // A part of it arrives within the age of a request: the requests did not miss it.
        assert_eq!((ring.take_request(id(4), 11), missed()), (Some((KeepReason::CALLER, None)), 0));
    }

    /// By hand, a trace is requested once, however often: the count returns to 0 with its arrival.
    #[test]
    fn requests_by_hand_are_one_request() {
        let ring = Ring::new(1 << 20, 10, 10);
        for now in 1..=3 {
            assert!(ring.take(id(1), (KeepReason::HAND, None), now, true).is_none());
            assert_eq!(ring.missed.load(Ordering::Relaxed), now);
        }
        // The age counts from the last one.
        assert_eq!(ring.take_request(id(1), 13), Some((KeepReason::HAND, None)));
        assert_eq!(ring.missed.load(Ordering::Relaxed), 0);
        assert_eq!(ring.take_request(id(1), 14), None, "too old");
    }

    #[test]
    fn a_trace_that_is_kept_was_not_missed() {
        let ring = Ring::new(1 << 20, 10, 10);
        assert!(ring.take(id(1), (KeepReason::CALLER, None), 1, true).is_none());
        ring.note_kept(&held(SHARDS as u64), KeepReason::CALLER, 2);
        assert_eq!(ring.missed.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_trace_leaves_exactly_after_the_hold() {
        let ring = Ring::new(1 << 20, 10, 10);
        // It ended at 100.
        hold(&ring, held(100), 100);
        assert_eq!((ring.expire(109).len(), ring.expire(110).len()), (0, 1));
    }

    #[test]
    fn a_ring_that_is_closed_or_holds_nothing_gives_traces_up() {
        let reason = |ring: &Ring| match ring.hold(held(1), false, 1) {
            Err((_, WayOut::GivenUp(reason))) => reason,
            other => panic!("{other:?}"),
        };
        let ring = Ring::new(1 << 20, 0, 10);
        assert!(!ring.holds() && matches!(reason(&ring), GivenUp::Unwanted));
        let ring = Ring::new(1 << 20, 10, 10);
        assert!(ring.holds());
        ring.close();
        assert!(!ring.holds() && matches!(reason(&ring), GivenUp::ShutDown));
    }

    /// The spans of a kept trace follow it up to its bound, and its root in any case: it has the
    /// number of those that are missing.
    #[test]
    fn spans_follow_their_kept_trace_within_its_bound() {
        let ring = Ring::new(1 << 20, 10, 10);
        ring.note_kept(&held(1), KeepReason::HAND, 1);
        let end = |number: usize, is_root: bool, may_follow: bool| {
            let ids = (SpanId::from(number as u64), SpanId::INVALID);
            let mut record = Record::new(&METADATA, ids, (1, 2), None, 1);
            record.is_local_root = is_root;
            let trace = (TraceId::from(1_u128), TraceRef::NONE);
            let (_, late) =
                ring.end_late(trace, (&record, None), Severity::Fine, (1 << 20, &|_, _| may_follow));
            match late {
                LateSpan::Kept(by, cut) => Ok((by, cut)),
                LateSpan::GivenUp(reason) => Err(format!("{reason:?}")),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(end(1, false, false), Err("Refused".to_owned()), "no budget is left");
        for number in 1..=Tail::TRACE_SPANS_MAX {
            assert_eq!(end(number, false, true), Ok((KeepReason::HAND, 0)), "{number}");
        }
        assert_eq!(end(1, false, true), Err("Cut".to_owned()));
        assert_eq!(end(1, true, false), Ok((KeepReason::HAND, 2)), "the root");
    }

    #[test]
    fn traces_that_were_given_up_are_remembered_within_a_bound() {
        let ring = Ring::new(1 << 20, 10, 10);
        for number in 1..=10_000 {
            ring.note_given_up(GivenUpTrace {
                trace_id: id(number),
                reason: GivenUp::RingFull,
                answer: None,
            });
        }
        let known =
            (1..=10_000).filter(|number| matches!(ring.status(id(*number)), Some(TraceStatus::GivenUp(_))));
        assert!(known.eq(10_001 - REMEMBERED..=10_000));
    }

    /// The oldest trace leaves first, whichever trace behind it was taken out meanwhile.
    #[test]
    fn a_trace_that_is_put_back_has_its_place_among_empty_ones() {
        for taken in 2..=5 {
            let ring = Ring::new(1 << 20, 100, 10);
            for number in 1..=5 {
                let mut held = held((number * SHARDS) as u64);
                held.ended = number as u64;
                hold(&ring, held, 5);
            }
            let take = |number| ring.take(id(number), (KeepReason::HAND, None), 5, true).unwrap();
            let first = take(1);
            drop(take(taken));
            ring.hold(first, true, 5).unwrap();
            assert_eq!(ring.pop_lowest(Severity::Fine).map(|held| held.ended), Some(1), "{taken}");
        }
    }

    #[test]
    fn a_trace_that_grows_in_the_ring_reserves_its_memory() {
        let ring = Ring::new(1 << 20, 10, 10);
        let mut held = held(1);
        assert!(ring.grow(&mut held.reservation, HELD_BYTES));
        hold(&ring, held, 1);
        for number in 1..1_000_u64 {
            let record = Record::new(&METADATA, (SpanId::from(number), SpanId::INVALID), (1, 2), None, 1);
            let (_, late) = ring.end_late(
                (TraceId::from(1_u128), TraceRef::NONE),
                (&record, None),
                Severity::Fine,
                (1 << 20, &|_, _| true),
            );
            assert!(matches!(late, LateSpan::Held));
            let shard = ring.shard(TraceId::from(1_u128));
            let held = shard.rows[0].get(TraceId::from(1_u128)).unwrap();
            assert!(HELD_BYTES + held.buffer.bytes_held() <= held.reservation.bytes(), "{number}");
        }
    }

    /// Threads that look at the same time all see the same oldest trace. As long as there is an
    /// unmarked trace, no thread gets a marked one or nothing.
    #[test]
    fn a_marked_trace_is_not_taken_out_while_others_are_there() {
        const THREADS: usize = 4;
        for _ in 0..500 {
            let ring = Ring::new(1 << 20, u64::MAX, 10);
            for number in 0..(THREADS * SHARDS) as u64 {
                // Each shard has as many marked as unmarked traces, all of the same age.
                let (mut ordinary, mut marked) = (held(number + 1), held(number + 1_001));
                (ordinary.ended, marked.ended) = (1, 1);
                marked.severity = Severity::Error;
                for held in [ordinary, marked] {
                    hold(&ring, held, 1);
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
