//! The ring: holds provisional traces after their root has ended and no policy has kept them, in
//! case a request for them comes late.
//!
//! Traces are distributed over shards by their ids, in the order in which they ended. A thread
//! locks one shard at a time, and takes out the traces that have been held for long enough. All
//! bytes, including those of open provisional traces, are charged to one [`MemoryBudget`].

mod row;

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use astracer_samplers::tail::{KeyNumber, Severity};
use opentelemetry::{SpanId, TraceId};

use self::row::{Row, short};
use super::status::{GivenUpTrace, Refusal, TraceStatus};
use crate::clock::Ticks;
use crate::memory_budget::{MemoryBudget, Reservation, Use};
use crate::record::{Body, Header, KeepReason, Record};
use crate::stats::{Counted, GivenUp};
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use crate::traces::{ProvisionalTrace, TraceRef};

/// The overhead of a trace in the ring, in bytes, besides its spans.
pub(super) const HELD_BYTES: usize = size_of::<HeldTrace>() + size_of::<ProvisionalTrace>() + 16;

/// A trace in the ring.
#[derive(Debug)]
pub(super) struct HeldTrace {
    pub trace: Box<ProvisionalTrace>,
    /// The trace's spans, and the local roots among them.
    pub counted: Counted,
    pub duration: u64,
    /// When the root was released, or when the trace became too old to wait for that.
    pub ended: Ticks,
    /// The first policy that wanted the trace, if every policy that did had no budget left.
    pub(super) refused_by: Refusal,
    /// The trace's arrival number in its shard, assigned by the ring.
    pub came: u64,
}

impl HeldTrace {
    /// The reason for giving the trace up when its time is over.
    pub(super) fn reason(&self) -> GivenUp {
        if self.refused_by.is_some() { GivenUp::Refused } else { GivenUp::Unwanted }
    }

    /// The local root, if it has ended: an old trace may be here while its root is still open.
    pub(super) fn root(&self) -> Option<SpanId> {
        let root = self.buffer.records.iter().rev().find(|record| record.is_local_root());
        root.map(|root| root.span_id)
    }

    /// Whether the trace takes no more spans under these limits. A local root is always accepted.
    pub(super) fn is_full(&self, (spans_max, bytes_max): (usize, usize), record: &Record) -> bool {
        let is_full = self.buffer.records.len() >= spans_max || self.buffer.bytes_used() >= bytes_max;
        is_full && !record.is_local_root()
    }

    /// The bytes that the trace needs with one more span.
    pub(super) fn bytes_with(&self, body: Option<&Body>) -> usize {
        HELD_BYTES + self.buffer.bytes_held() + 2 * size_of::<Record>() + body.map_or(0, Body::bytes)
    }

    /// Adds a span for which capacity was reserved.
    pub(super) fn add(&mut self, record: Record, body: Option<&mut Body>) {
        let counted = record.counted();
        self.buffer.append(record, body);
        self.counted.spans += counted.spans;
        self.counted.roots += counted.roots;
        // Vectors double as they grow, which may exceed the reservation. If it cannot grow here,
        // the next span's reservation includes the difference.
        let bytes = HELD_BYTES + self.buffer.bytes_held();
        self.reservation.grow_to(bytes, Use::Entries);
    }

    /// Counts a span that was cut; the root reports the number.
    pub(super) fn cut(&mut self) {
        self.header.cut = self.header.cut.saturating_add(1);
    }
}

impl Deref for HeldTrace {
    type Target = ProvisionalTrace;

    fn deref(&self) -> &ProvisionalTrace {
        &self.trace
    }
}

impl DerefMut for HeldTrace {
    fn deref_mut(&mut self) -> &mut ProvisionalTrace {
        &mut self.trace
    }
}

/// A request for a trace that has not arrived. One by hand (`Handle::keep`)
/// covers all parts of the trace; one from a caller covers a single part.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceRequest {
    trace_id: TraceId,
    pub by: KeepReason,
    requested_at: Ticks,
    /// The number of requests that did not find the trace.
    pub misses: u64,
}

/// A trace that was kept late. Its spans that are still open follow it, within its limits.
#[derive(Debug)]
pub(super) struct KeptTrace {
    trace_id: TraceId,
    /// The slot that the trace had: several local roots may share the trace's id.
    part: TraceRef,
    by: KeepReason,
    key: KeyNumber,
    spans: usize,
    /// Spans that were cut, for the root to report if it has not ended yet.
    cut: u32,
}

impl KeptTrace {
    pub(super) fn new(held: &HeldTrace, by: KeepReason) -> Self {
        let cut = if held.root().is_some() { 0 } else { held.header.cut };
        let spans = held.buffer.records.len();
        KeptTrace { trace_id: held.header.trace_id, part: held.part, by, key: held.key, spans, cut }
    }
}

#[derive(Debug, Default)]
struct Shard {
    /// Traces of severity `Fine`, and traces of a higher severity.
    rows: [Row; 2],
    /// The number of traces that have arrived.
    came: u64,
    /// The last traces that were kept late.
    kept: VecDeque<KeptTrace>,
    requests: VecDeque<TraceRequest>,
    /// The last traces that were given up, if decisions are explained.
    given_up: VecDeque<GivenUpTrace>,
}

/// The capacity of each of a shard's lists of kept, requested and given-up traces.
const REMEMBERED: usize = 256;
const SHARDS: usize = if cfg!(loom) { 1 } else { 8 };
/// The number of expired traces that one call takes out of each row: more than one for each
/// arrival, so that expired traces do not pile up.
const EXPIRED_AT_ONCE: usize = 4;

/// A point in time: the number of traces that had arrived in each shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrivals([u64; SHARDS]);

impl Arrivals {
    pub(super) const ALL: Arrivals = Arrivals([u64::MAX; SHARDS]);
}

#[derive(Debug)]
pub(super) struct Ring {
    shards: [Mutex<Shard>; SHARDS],
    budget: Arc<MemoryBudget>,
    bytes_max: usize,
    /// The time for which traces are held.
    hold: Ticks,
    /// The time for which a request for a trace that has not arrived stays valid.
    request_age_max: Ticks,
    closed: AtomicBool,
}

/// The outcome of putting a trace into the ring.
#[derive(Debug)]
pub(super) enum Admission {
    Held,
    /// The trace was requested before it arrived.
    Requested(Box<HeldTrace>, TraceRequest),
    /// The ring holds no traces, or is closed: the trace is given up.
    Refused(Box<HeldTrace>, GivenUp),
}

/// The outcome of ending a span after its trace left the slot, with the trace's key.
#[derive(Debug)]
pub(super) enum LateSpan {
    /// The span joined its trace in the ring.
    Held(KeyNumber),
    /// The trace was taken out, and the caller has to add the span: it is the root, its severity is
    /// higher than the trace's, or other traces must be evicted for it.
    TakenOut(Box<(HeldTrace, Record)>),
    /// The trace has reached its maximum of spans or bytes.
    Cut(KeyNumber),
    /// The trace was kept.
    Kept(KeyNumber, Box<(Header, Record)>),
    /// The trace was kept, but its policy has no budget left for the span.
    Refused(KeyNumber),
    /// The trace was given up.
    GivenUp,
}

impl LateSpan {
    /// The trace's key, unless the trace is gone.
    pub(super) fn key(&self) -> Option<KeyNumber> {
        match self {
            LateSpan::Held(key) | LateSpan::Cut(key) | LateSpan::Refused(key) | LateSpan::Kept(key, _) => {
                Some(*key)
            }
            LateSpan::TakenOut(out) => Some(out.0.key),
            LateSpan::GivenUp => None,
        }
    }
}

impl Ring {
    pub(super) fn new(bytes: usize, hold: Ticks, request_age_max: Ticks) -> Self {
        Ring {
            shards: Default::default(),
            budget: MemoryBudget::new(bytes),
            bytes_max: bytes,
            hold,
            request_age_max,
            closed: AtomicBool::new(false),
        }
    }

    fn shard(&self, trace_id: TraceId) -> MutexGuard<'_, Shard> {
        lock(&self.shards[short(trace_id) as usize % SHARDS])
    }

    pub(super) fn bytes(&self) -> usize {
        self.budget.used()
    }

    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether the ring holds traces at present. Relaxed: only a hint that saves work; `hold`
    /// checks `closed` again under the shard's lock.
    pub(super) fn holds(&self) -> bool {
        self.hold > 0 && !self.closed.load(Ordering::Relaxed)
    }

    /// Grows a reservation to `bytes`, after binding it to the ring's budget if necessary. `false`
    /// if the bytes do not fit.
    pub(super) fn grow(&self, reservation: &mut Reservation, bytes: usize) -> bool {
        if !reservation.is_of(&self.budget) {
            *reservation = Reservation::of(&self.budget);
        }
        reservation.grow_to(bytes, Use::Entries)
    }

    /// The request for a trace that has just arrived. Removes the request, unless it is by hand.
    pub(super) fn take_request(&self, trace_id: TraceId, now: Ticks) -> Option<TraceRequest> {
        self.request_for(&mut self.shard(trace_id), trace_id, now)
    }

    fn request_for(&self, shard: &mut Shard, trace_id: TraceId, now: Ticks) -> Option<TraceRequest> {
        let misses = self.take_misses(shard, trace_id, now)?;
        let is_it = |request: &TraceRequest| request.trace_id == trace_id;
        let by_hand =
            shard.requests.iter().find(|request| is_it(request) && request.by == KeepReason::HAND).copied();
        let request = by_hand.or_else(|| shard.requests.remove(shard.requests.iter().position(is_it)?))?;
        Some(TraceRequest { misses, ..request })
    }

    /// Removes expired requests for this trace. Returns how often the remaining ones were made
    /// without finding it, and resets that count; `None` if there was no request.
    fn take_misses(&self, shard: &mut Shard, trace_id: TraceId, now: Ticks) -> Option<u64> {
        shard.requests.iter().find(|request| request.trace_id == trace_id)?;
        let is_in_time = |request: &TraceRequest| now.abs_diff(request.requested_at) <= self.request_age_max;
        shard.requests.retain(|request| request.trace_id != trace_id || is_in_time(request));
        let of_trace = shard.requests.iter_mut().filter(|request| request.trace_id == trace_id);
        Some(of_trace.map(|request| std::mem::take(&mut request.misses)).sum())
    }

    /// Puts a trace into the ring, unless it was requested meanwhile or the ring holds nothing.
    /// Takes expired traces out into `out`.
    pub(super) fn hold(&self, mut held: HeldTrace, now: Ticks, out: &mut Vec<HeldTrace>) -> Admission {
        let mut shard = self.shard(held.header.trace_id);
        if let Some(request) = self.request_for(&mut shard, held.header.trace_id, now) {
            return Admission::Requested(Box::new(held), request);
        }
        // Relaxed under the shard's lock: `close` comes before all shards are emptied, each under
        // its lock. A thread that locks the shard after it was emptied sees `closed`; one that
        // locked it before has its trace taken out.
        if self.closed.load(Ordering::Relaxed) {
            return Admission::Refused(Box::new(held), GivenUp::ShutDown);
        }
        if self.hold == 0 {
            let reason = held.reason();
            return Admission::Refused(Box::new(held), reason);
        }
        held.came = shard.came;
        shard.came += 1;
        let row = usize::from(held.severity > Severity::Fine);
        shard.rows[row].push(held);
        self.pop_expired(&mut shard, now, EXPIRED_AT_ONCE, out);
        Admission::Held
    }

    fn pop_expired(&self, shard: &mut Shard, now: Ticks, most: usize, out: &mut Vec<HeldTrace>) {
        // `abs_diff`: a trace whose end is far in the future ended before the clock was set back.
        let is_over = |held: &HeldTrace| now.abs_diff(held.ended) >= self.hold;
        for row in &mut shard.rows {
            for _ in 0..most {
                let Some(held) = row.pop_if(is_over) else { break };
                out.push(held);
            }
        }
    }

    /// Takes out all expired traces.
    pub(super) fn expire(&self, now: Ticks, out: &mut Vec<HeldTrace>) {
        for shard in &self.shards {
            self.pop_expired(&mut lock(shard), now, usize::MAX, out);
        }
    }

    /// Takes out the oldest of the lowest-ranked traces, which rank no higher than a trace of this
    /// severity.
    pub(super) fn pop_lowest(&self, severity: Severity) -> Option<HeldTrace> {
        let mut rows = 0..=usize::from(severity > Severity::Fine);
        rows.find_map(|row| self.pop_oldest(row))
    }

    /// Takes the oldest trace of this row out of all shards; `None` once no shard has one.
    fn pop_oldest(&self, row: usize) -> Option<HeldTrace> {
        let first = |shard: &Mutex<Shard>| {
            let shard = lock(shard);
            shard.rows[row].held.iter().flatten().next().map(|held| held.ended)
        };
        loop {
            let firsts = self.shards.iter().filter_map(|shard| Some((first(shard)?, shard)));
            let (_, shard) = firsts.min_by_key(|(ended, _)| *ended)?;
            // Another thread may have emptied the row since. The next iteration finds another
            // shard, or none.
            let popped = lock(shard).rows[row].pop_if(|_| true);
            if popped.is_some() {
                return popped;
            }
        }
    }

    /// Remembers that a trace was kept. Returns the number of requests that did not find the trace
    /// while it was out of the ring.
    pub(super) fn note_kept(&self, kept: KeptTrace, now: Ticks) -> u64 {
        let mut shard = self.shard(kept.trace_id);
        // The requests stay, for parts of the trace that may still arrive.
        let misses = self.take_misses(&mut shard, kept.trace_id, now).unwrap_or_default();
        if shard.kept.len() == REMEMBERED {
            shard.kept.pop_front();
        }
        shard.kept.push_back(kept);
        misses
    }

    /// Takes out a requested trace. If it is not there, the request is remembered, even if a part
    /// of the trace was kept: other parts may still be open. `misses` is 1 if this request counts
    /// when the trace is not found, else 0.
    pub(super) fn take(&self, trace_id: TraceId, by: KeepReason, now: Ticks, misses: u64) -> RequestResult {
        let mut shard = self.shard(trace_id);
        let [ordinary, marked] = &mut shard.rows;
        if let Some(held) = marked.take(trace_id).or_else(|| ordinary.take(trace_id)) {
            return RequestResult::Held(Box::new(held));
        }
        let was_kept = shard.kept.iter().any(|kept| kept.trace_id == trace_id);
        let (misses, taken) =
            if was_kept { (0, RequestResult::KeptBefore) } else { (misses, RequestResult::NotThere) };
        // One request by hand covers all parts. Each request of a caller is a separate one, because
        // callers have a budget of requests.
        let mut of_trace = shard.requests.iter_mut().filter(|request| request.trace_id == trace_id);
        if let Some(request) =
            of_trace.find(|request| request.by == KeepReason::HAND || by == KeepReason::HAND)
        {
            (request.by, request.requested_at) = (KeepReason::HAND, now);
            request.misses += misses;
            return taken;
        }
        if shard.requests.len() == REMEMBERED {
            // Callers in other processes may request any number of traces; they must not displace
            // requests made by hand.
            let oldest = shard.requests.iter().position(|request| request.by != KeepReason::HAND);
            if oldest.is_none() && by != KeepReason::HAND {
                return taken;
            }
            shard.requests.remove(oldest.unwrap_or_default());
        }
        shard.requests.push_back(TraceRequest { trace_id, by, requested_at: now, misses });
        taken
    }

    /// Puts back a trace that was taken out and that no policy keeps; outcomes as for
    /// [`Ring::hold`].
    pub(super) fn put_back(&self, held: HeldTrace, now: Ticks) -> Admission {
        let mut shard = self.shard(held.header.trace_id);
        if let Some(request) = self.request_for(&mut shard, held.header.trace_id, now) {
            return Admission::Requested(Box::new(held), request);
        }
        // Relaxed: see `hold`.
        if self.closed.load(Ordering::Relaxed) {
            return Admission::Refused(Box::new(held), GivenUp::ShutDown);
        }
        let row = usize::from(held.severity > Severity::Fine);
        shard.rows[row].insert(held);
        Admission::Held
    }

    /// The traces that have arrived so far.
    pub(super) fn so_far(&self) -> Arrivals {
        Arrivals(std::array::from_fn(|at| lock(&self.shards[at]).came))
    }

    /// Takes out the traces of these arrivals, one shard at a time. `f` keeps them or puts them
    /// back.
    pub(super) fn take_all(&self, Arrivals(came): Arrivals, mut f: impl FnMut(Vec<HeldTrace>)) {
        for (shard, came) in self.shards.iter().zip(came) {
            let all = lock(shard).rows.iter_mut().flat_map(|row| row.take_before(came)).collect();
            f(all);
        }
    }

    /// The status of a trace, if the trace is in the ring or its status is remembered.
    pub(super) fn status(&self, trace_id: TraceId) -> Option<TraceStatus> {
        let mut shard = self.shard(trace_id);
        if let Some(kept) = shard.kept.iter().rev().find(|kept| kept.trace_id == trace_id) {
            return Some(TraceStatus::Kept(kept.by));
        }
        let held = shard.rows.iter_mut().find_map(|row| row.get(trace_id));
        if let Some(held) = held {
            return Some(TraceStatus::Held(held.severity, held.refused_by));
        }
        shard
            .given_up
            .iter()
            .rev()
            .find(|given_up| given_up.trace_id == trace_id)
            .copied()
            .map(TraceStatus::GivenUp)
    }

    pub(super) fn note_given_up(&self, given_up: GivenUpTrace) {
        let mut shard = self.shard(given_up.trace_id);
        if shard.given_up.len() == REMEMBERED {
            shard.given_up.pop_front();
        }
        shard.given_up.push_back(given_up);
    }

    /// Closes the ring: from now on it refuses traces. Relaxed: the shards' locks order it, see
    /// `hold`.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Ends a span whose trace has left its slot. `limits` are those of [`HeldTrace::is_full`];
    /// `may_follow` says whether the span may follow a kept trace of this reason and key.
    pub(super) fn end_late(
        &self,
        ((header, record), part): ((Header, Record), TraceRef),
        severity: Severity,
        body: Option<&mut Body>,
        (limits, may_follow): ((usize, usize), &dyn Fn(KeepReason, KeyNumber) -> bool),
    ) -> LateSpan {
        let trace_id = header.trace_id;
        let mut shard = self.shard(trace_id);
        let Shard { rows, kept, .. } = &mut *shard;
        let row = rows.iter_mut().find(|row| row.find_part(trace_id, part).is_some());
        let latest_of = |test: &dyn Fn(&KeptTrace) -> bool| {
            kept.iter().rposition(|kept| kept.trace_id == trace_id && test(kept))
        };
        // If its own part is gone, a span follows the part that was kept last.
        let at = latest_of(&|kept| kept.part == part)
            .or_else(|| if row.is_none() { latest_of(&|_| true) } else { None });
        if let Some(kept) = at.and_then(|at| kept.get_mut(at)) {
            let (is_root, is_full) = (record.is_local_root(), kept.spans >= limits.0);
            // The root reports the number of missing spans, so it follows in any case.
            if (is_full || !may_follow(kept.by, kept.key)) && !is_root {
                kept.cut = kept.cut.saturating_add(1);
                return if is_full { LateSpan::Cut(kept.key) } else { LateSpan::Refused(kept.key) };
            }
            kept.spans += 1;
            let cut = if is_root { kept.cut } else { 0 };
            return LateSpan::Kept(kept.key, Box::new((Header { kept_by: kept.by, cut, ..header }, record)));
        }
        let Some(row) = row else { return LateSpan::GivenUp };
        let Some(held) = row.get_part(trace_id, part) else { return LateSpan::GivenUp };
        if severity <= held.severity && !record.is_local_root() {
            if held.is_full(limits, &record) {
                held.cut();
                return LateSpan::Cut(held.key);
            }
            let bytes = held.bytes_with(body.as_deref());
            if bytes <= held.reservation.bytes()
                || held.reservation.grow_to(bytes.next_power_of_two(), Use::Entries)
                || held.reservation.grow_to(bytes, Use::Entries)
            {
                held.add(record, body);
                return LateSpan::Held(held.key);
            }
        }
        row.take_part(trace_id, part)
            .map_or(LateSpan::GivenUp, |held| LateSpan::TakenOut(Box::new((held, record))))
    }
}

/// The result of requesting a trace.
#[derive(Debug)]
pub(super) enum RequestResult {
    Held(Box<HeldTrace>),
    /// The trace was kept before.
    KeptBefore,
    /// The trace is not there now.
    NotThere,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::record::Ending;
    use crate::test_callsite::METADATA;

    pub(super) fn held(number: u64) -> HeldTrace {
        let mut trace = Box::<ProvisionalTrace>::default();
        trace.header.trace_id = TraceId::from(u128::from(number));
        HeldTrace {
            trace,
            counted: Counted::default(),
            duration: 0,
            ended: number,
            refused_by: None,
            came: 0,
        }
    }

    /// Ids that all map to one shard.
    fn id(number: usize) -> TraceId {
        TraceId::from((number * SHARDS) as u128)
    }

    /// When all remembered requests are by hand, a caller's request is not remembered.
    #[test]
    fn a_callers_request_does_not_displace_the_services_own() {
        let ring = Ring::new(1 << 20, 10, 10);
        (1..=REMEMBERED).for_each(|number| drop(ring.take(id(number), KeepReason::HAND, 1, 1)));
        assert!(matches!(ring.take(id(1_000), KeepReason::CALLER, 1, 1), RequestResult::NotThere));
        assert!(ring.take_request(id(1), 2).is_some() && ring.take_request(id(1_000), 2).is_none());
        // One more request by hand displaces the oldest.
        ring.take(id(1_001), KeepReason::HAND, 1, 1);
        assert!(ring.take_request(id(1), 2).is_none() && ring.take_request(id(1_001), 2).is_some());
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
                let held = HeldTrace { ended: number as u64, ..held((number * SHARDS) as u64) };
                assert!(matches!(ring.hold(held, 5, &mut Vec::new()), Admission::Held));
            }
            let take = |number| match ring.take(id(number), KeepReason::HAND, 5, 1) {
                RequestResult::Held(held) => *held,
                other => panic!("{other:?}"),
            };
            let first = take(1);
            drop(take(taken));
            assert!(matches!(ring.put_back(first, 5), Admission::Held));
            assert_eq!(ring.pop_lowest(Severity::Fine).map(|held| held.ended), Some(1), "{taken}");
        }
    }

    /// A late span's reservation covers the memory by which its trace grows.
    #[test]
    fn a_trace_that_grows_in_the_ring_reserves_its_memory() {
        let ring = Ring::new(1 << 20, 10, 10);
        let mut held = held(1);
        assert!(ring.grow(&mut held.reservation, HELD_BYTES));
        assert!(matches!(ring.hold(held, 1, &mut Vec::new()), Admission::Held));
        let header = || Header { trace_id: TraceId::from(1_u128), ..ProvisionalTrace::default().header };
        for number in 1..1_000_u64 {
            let ending = Ending { time: 2, busy: None };
            let record = Record::new(&METADATA, (SpanId::from(number), SpanId::INVALID), 1, ending, 1);
            let limits = (1_000, 1 << 20);
            let late = ((header(), record), TraceRef::NONE);
            let late = ring.end_late(late, Severity::Fine, None, (limits, &|_, _| true));
            assert!(matches!(late, LateSpan::Held(_)));
            let mut shard = ring.shard(TraceId::from(1_u128));
            let held = shard.rows[0].get(TraceId::from(1_u128)).unwrap();
            assert!(HELD_BYTES + held.buffer.bytes_held() <= held.reservation.bytes(), "{number}");
        }
    }

    /// Threads that look at the same time all see the same oldest trace. One of them gets it, and
    /// the others get the next ones. As long as there is an unmarked trace, no thread gets a marked
    /// one or nothing.
    #[test]
    fn a_marked_trace_is_not_taken_out_while_others_are_there() {
        const THREADS: usize = 4;
        for _ in 0..500 {
            let ring = Ring::new(1 << 20, u64::MAX, 10);
            for number in 0..(THREADS * SHARDS) as u64 {
                // Each shard has as many marked as unmarked traces, all of the same age.
                let (mut ordinary, mut marked) = (held(number + 1), held(number + 1_001));
                (ordinary.ended, marked.ended) = (1, 1);
                marked.trace.severity = Severity::Error;
                for held in [ordinary, marked] {
                    assert!(matches!(ring.hold(held, 1, &mut Vec::new()), Admission::Held));
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
