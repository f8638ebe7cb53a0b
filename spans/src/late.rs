//! Late keeping: traces that the head sampler dropped are recorded all the same, and submitted to
//! policies when their root ends.
//!
//! ```text
//! root ends -> LateTraces::end_trace -- a policy keeps it ---> queue, with the reason
//!                                    -- no policy wants it --> ring, for a while --> given up,
//! counted Handle::keep, a caller's header ------------------------------^ takes it from the ring
//! ```
//!
//! Propagation does not change: the flag stays "not sampled", and other processes act as if the
//! trace were not recorded.

// The lists hold boxes so that a trace moves between lists and threads by its address, not its
// contents.
#![allow(clippy::vec_box)]

mod announcement;
mod late_spans;
mod own_policy;
mod policy_view;
mod ring;
mod shape;
mod status;
mod troubled;
mod view;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use astracer_samplers::tail::{
    Decided, Exemplar, KeyNumber, KeyOutcomes, Policy, Severity, Tail, TailSampler, Trace,
};
use astracer_samplers::{Allowance, Meter, Nanos, Threshold};
use opentelemetry::{SpanId, TraceId};

pub use self::announcement::Announcement;
use self::announcement::Announcements;
pub use self::own_policy::{Function, OwnPolicy};
use self::policy_view::PolicyView;
use self::ring::{Admission, Arrivals, HELD_BYTES, HeldTrace, KeptTrace, RequestResult, Ring};
use self::status::{GivenUpTrace, TraceStatus};
use self::troubled::Troubled;
pub use self::view::{TailSpan, TailTrace};
use crate::clock::{Clock, Ticks};
use crate::export::{Patience, Queue};
use crate::held_logs::{Holds, Watchers};
use crate::memory_budget::Reservation;
use crate::panics::warn;
use crate::record::{Buffer, Header, KeepReason};
use crate::stats::{Counters, GivenUp, TailStats};
use crate::sync::statics::{AtomicU64, Ordering};
use crate::thread;
use crate::trace_state::State;
use crate::traces::{ProvisionalTrace, RingCapacity, TraceRef, Traces};
use crate::weight::{self, Weighing};

/// Submits provisional traces to the policies, and holds the unwanted ones in the ring. One per
/// builder.
#[derive(Debug)]
pub struct LateTraces {
    sampler: Arc<TailSampler>,
    own: Box<[OwnPolicy]>,
    ring: Ring,
    clock: Clock,
    counters: Arc<Counters>,
    /// Whether a policy needs call-tree shapes.
    is_shaped: bool,
    /// Whether a policy keeps traces for a warning in them.
    wants_warnings: bool,
    /// Whether a policy decides by outcome alone, so that traces may get weights.
    weighs: bool,
    /// The bounds from which a trace of the head sampler is queued in parts.
    in_part: (usize, usize),
    /// Whether given-up traces are remembered for explanations.
    explains: bool,
    spans_max: usize,
    bytes_max: usize,
    announced: Announcements,
    /// The log layers that hold events of undecided traces.
    logs: Watchers,
    troubled: Troubled,
    callers: Meter,
    callers_rate: Option<Allowance>,
    kept_by_hand: AtomicU64,
    kept_by_caller: AtomicU64,
    not_there: AtomicU64,
    /// The part of `not_there` whose traces arrived later.
    came_later: AtomicU64,
    refused_callers: AtomicU64,
    unannounced: AtomicU64,
    pub without_slot: AtomicU64,
    /// Set once the service was warned that another SDK records some roots.
    warned_elsewhere: AtomicU64,
}

/// The parameters of a [`LateTraces`].
#[derive(Debug)]
pub struct Parts {
    pub sampler: Arc<TailSampler>,
    pub own: Vec<OwnPolicy>,
    pub ring_bytes: usize,
    pub hold: Ticks,
    pub request_age_max: Ticks,
    pub spans_max: usize,
    /// The most bytes of a trace that fit into the queue.
    pub bytes_max: usize,
    pub explains: bool,
    /// The spans and bytes from which a trace of the head sampler is queued in parts, before its
    /// outcome is known.
    pub in_part: (usize, usize),
}

/// The end of a root of a trace that the head sampler kept.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub key: KeyNumber,
    /// The root's duration in nanoseconds.
    pub nanos: u64,
    pub severity: Severity,
    pub weighing: Weighing,
}

/// The end of a trace's root, or the moment at which an open root is treated as ended. The root's
/// work may have ended long before, if its span was held open.
#[derive(Clone, Copy, Debug)]
pub struct RootEnd {
    pub at: Ticks,
    pub now: Nanos,
    /// The root's duration in nanoseconds.
    pub nanos: u64,
    /// The weight that the trace may get.
    pub weighing: Weighing,
}

/// The number of buffers that a thread caches for later traces, and the largest size of each.
const SPARE_MAX: usize = 8;
const SPARE_BYTES_MAX: usize = 16 * 1024;
/// Traces per second that other processes may request.
const CALLERS_RATE: f64 = 100.0;

thread_local! {
    static SPARE: RefCell<Vec<Box<ProvisionalTrace>>> = const { RefCell::new(Vec::new()) };
    /// Scratch memory for the traces that a new one evicts from the ring.
    static OUT: Cell<Vec<HeldTrace>> = const { Cell::new(Vec::new()) };
}

/// Whether a trace may get this threshold.
fn allows(weighing: Weighing, threshold: Threshold) -> bool {
    match weighing {
        Weighing::Never => false,
        Weighing::IfCertain => threshold == Threshold::ALWAYS,
        Weighing::Always => true,
    }
}

/// Caches a trace's memory for a later trace.
fn recycle(mut trace: Box<ProvisionalTrace>) {
    trace.reservation.shrink_to(0);
    if trace.buffer.bytes_held() <= SPARE_BYTES_MAX {
        trace.buffer.clear();
        trace.header.state = State::EMPTY;
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(trace);
            }
        });
    }
}

impl LateTraces {
    pub fn new(parts: Parts, clock: Clock, counters: Arc<Counters>) -> Self {
        let Parts {
            sampler,
            own,
            ring_bytes,
            hold,
            request_age_max,
            spans_max,
            bytes_max,
            explains,
            in_part,
        } = parts;
        let is_shaped = sampler.rules().any(|rule| rule.policy == Policy::Odd);
        LateTraces {
            is_shaped,
            wants_warnings: sampler.wants(Severity::Warning),
            weighs: sampler.decides_by_outcome(),
            in_part,
            explains,
            sampler,
            own: own.into(),
            ring: Ring::new(ring_bytes, hold, request_age_max),
            clock,
            counters,
            spans_max,
            bytes_max: bytes_max.min(ring_bytes / Tail::TRACE_PART),
            announced: Announcements::default(),
            logs: Watchers::default(),
            troubled: Troubled::default(),
            callers: Meter::default(),
            callers_rate: Allowance::new(CALLERS_RATE, CALLERS_RATE).ok(),
            kept_by_hand: AtomicU64::new(0),
            kept_by_caller: AtomicU64::new(0),
            not_there: AtomicU64::new(0),
            came_later: AtomicU64::new(0),
            refused_callers: AtomicU64::new(0),
            unannounced: AtomicU64::new(0),
            without_slot: AtomicU64::new(0),
            warned_elsewhere: AtomicU64::new(0),
        }
    }

    /// The most spans that a trace may have.
    #[inline]
    pub fn spans_max(&self) -> usize {
        self.spans_max
    }

    /// The most spans and bytes that a trace may have. A trace may take at most its part of the
    /// ring, so that others fit beside it, and no more than the queue could accept.
    fn limits(&self) -> (usize, usize) {
        (self.spans_max, self.bytes_max)
    }

    /// The severity by which traces are ranked for eviction. Warnings count only if a policy asks
    /// for them, because a service may warn in every trace.
    #[inline]
    pub fn rank(&self, seen: Severity) -> Severity {
        if seen == Severity::Warning && !self.wants_warnings { Severity::Fine } else { seen }
    }

    pub fn sampler(&self) -> &TailSampler {
        &self.sampler
    }

    /// The names of reasons, indexed by [`KeepReason::index`].
    pub fn reasons(sampler: &TailSampler) -> Arc<[Box<str>]> {
        let policies = sampler.rules().map(|rule| rule.policy.reason().to_owned());
        ["hand", "caller"]
            .into_iter()
            .map(str::to_owned)
            .chain(policies)
            .map(String::into_boxed_str)
            .collect()
    }

    /// Handles the end of a provisional trace's root. The caller holds no lock.
    pub fn end_trace(
        &self,
        trace: Box<ProvisionalTrace>,
        root: RootEnd,
        traces: &Traces,
        output: (&Queue, Patience),
    ) {
        let (trace_id, severity) = (trace.header.trace_id, trace.severity);
        let mut held = HeldTrace {
            counted: trace.buffer.counted(),
            trace,
            duration: root.nanos,
            ended: root.at,
            refused_by: None,
            came: 0,
        };
        // If the root has ended, counting it has already armed its key.
        if severity == Severity::Error && held.root().is_none() {
            self.sampler.note_error(held.key, root.now);
        }
        let (decided, threshold) = self.decide(&held, root.now, !output.1.is_over());
        let threshold = threshold.filter(|threshold| self.is_true(&held, root.weighing, *threshold));
        let request = self.ring.take_request(trace_id, root.at);
        self.came_later.fetch_add(request.map_or(0, |request| request.misses), Ordering::Relaxed);
        match (decided, request) {
            (Decided::Kept(place), _) => {
                return self.export(held, (KeepReason::policy(place), threshold), output);
            }
            (_, Some(request)) => return self.export_requested(held, request.by, output),
            (Decided::Refused(place), None) => held.refused_by = Some(KeepReason::policy(place)),
            _ => {}
        }
        let bytes = held.buffer.bytes_held() + HELD_BYTES;
        // After the ring has closed, do not evict others for a trace that is given up at once.
        if self.ring.holds() && !self.grow(&mut held.reservation, bytes, severity, traces) {
            return self.give_up(held, GivenUp::RingFull);
        }
        self.counters.held(held.counted);
        let mut out = OUT.try_with(Cell::take).unwrap_or_default();
        let admission = self.ring.hold(held, root.at, &mut out);
        self.settle(admission, output);
        for held in out.drain(..) {
            let reason = held.reason();
            self.give_up_held(held, reason);
        }
        let _ = OUT.try_with(|own| own.set(out));
    }

    /// Exports or gives up a trace that was counted as held but is not in the ring after all.
    fn settle(&self, admission: Admission, output: (&Queue, Patience)) {
        match admission {
            Admission::Held => {}
            Admission::Requested(held, request) => {
                self.came_later.fetch_add(request.misses, Ordering::Relaxed);
                self.counters.not_held(held.counted);
                self.export_requested(*held, request.by, output);
            }
            Admission::Refused(held, reason) => self.give_up_held(*held, reason),
        }
    }

    /// Returns a trace to the ring from which it was taken.
    fn put_back(&self, held: HeldTrace, queue: &Queue) {
        let admission = self.ring.put_back(held, self.clock.ticks());
        self.settle(admission, (queue, Patience::Full));
    }

    /// Submits a trace to the policies. The service's own functions may take any time, so they run
    /// only if `has_time`.
    ///
    /// Also returns the threshold with which policies that decide by outcome keep such traces, if
    /// this one's randomness reaches it.
    fn decide(&self, held: &HeldTrace, now: Nanos, has_time: bool) -> (Decided, Option<Threshold>) {
        let own = if has_time { &*self.own } else { &[] };
        let view = PolicyView { trace: self.view(held), own };
        let header = &held.header;
        let randomness = header.state.randomness().unwrap_or_else(|| weight::of_trace_id(header.trace_id));
        let trace = Trace {
            key: held.key,
            now,
            duration: Nanos::new(held.duration),
            severity: held.severity,
            shape: if self.is_shaped { shape::of(&held.buffer) } else { 0 },
            bytes: held.buffer.bytes_used() as u64,
            view: &view,
        };
        self.sampler.decide_by_chance(&trace, randomness)
    }

    /// Whether the policies' threshold is the true one of a trace that was dropped. It is not if a
    /// trace of the head sampler with the same outcome keeps its own threshold: see
    /// [`LateTraces::weigh_kept`].
    fn is_true(&self, held: &HeldTrace, weighing: Weighing, threshold: Threshold) -> bool {
        let (spans, bytes) = self.in_part;
        let is_whole = held.root().is_some()
            && held.buffer.records.len() <= spans
            && held.buffer.bytes_used() < bytes
            && held.header.cut == 0;
        is_whole && allows(weighing, threshold)
    }

    /// Lowers the threshold of a trace that the head sampler kept, to that with which the policies
    /// would have kept it otherwise. Called when its root ends, if all of its spans are in
    /// `buffer`.
    pub fn weigh_kept(
        &self,
        header: &mut Header,
        buffer: &Buffer,
        outcome: &Outcome,
        now: impl FnOnce() -> Nanos,
    ) {
        let Outcome { key, nanos, severity, weighing } = *outcome;
        let Some(own) = header.state.threshold().filter(|own| *own != Threshold::ALWAYS) else { return };
        if weighing == Weighing::Never || buffer.bytes_used() >= self.in_part.1 {
            return;
        }
        let trace = TailTrace { header, buffer, clock: &self.clock, key: "", severity, nanos };
        // The service's own functions are not asked, since no threshold follows from them.
        let view = PolicyView { trace, own: &[] };
        let threshold = self.sampler.threshold(&Trace {
            key,
            now: now(),
            duration: Nanos::new(nanos),
            severity,
            shape: 0,
            bytes: buffer.bytes_used() as u64,
            view: &view,
        });
        let Some(threshold) = threshold.filter(|late| *late < own && allows(weighing, *late)) else { return };
        header.state = header.state.with_threshold(threshold);
        header.is_reweighed = true;
    }

    /// Whether traces may get weights by their outcome.
    pub fn weighs(&self) -> bool {
        self.weighs
    }

    fn view<'a>(&'a self, held: &'a HeldTrace) -> TailTrace<'a> {
        TailTrace {
            header: &held.header,
            buffer: &held.buffer,
            clock: &self.clock,
            key: self.sampler.key_text(held.key).unwrap_or_default(),
            severity: held.severity,
            nanos: held.duration,
        }
    }

    /// Offers a kept trace, kept by the head sampler or late, as an exemplar of its root's
    /// duration.
    pub fn note_kept(&self, key: KeyNumber, root: (TraceId, SpanId), (began, nanos): (Ticks, u64)) {
        let since_1970 = self.clock.date(began).duration_since(UNIX_EPOCH).unwrap_or_default();
        let since_1970 = since_1970.saturating_add(Duration::from_nanos(nanos));
        let exemplar = Exemplar::new(
            u128::from_be_bytes(root.0.to_bytes()),
            u64::from_be_bytes(root.1.to_bytes()),
            Nanos::new(nanos),
            u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX),
        );
        let now = self.clock.since_origin(self.clock.ticks());
        self.sampler.note_kept(key, thread::number() as usize, exemplar, now);
    }

    /// Exports a trace, with its reason and its threshold if it has a true one.
    fn export(
        &self,
        mut held: HeldTrace,
        (by, threshold): (KeepReason, Option<Threshold>),
        (queue, patience): (&Queue, Patience),
    ) {
        // A trace whose root is still open has no duration yet.
        let root = held.root().map(|root| (held.header.trace_id, root));
        // Note this first, so that spans that end from now on follow the trace.
        let misses = self.ring.note_kept(KeptTrace::new(&held, by), self.clock.ticks());
        self.came_later.fetch_add(misses, Ordering::Relaxed);
        self.announced.add(held.header.trace_id);
        self.logs.each(|holds| holds.note_kept(held.header.trace_id));
        queue.wait_patiently(patience);
        let state = std::mem::take(&mut held.header.state);
        let state = match threshold {
            Some(threshold) => state.with_threshold(threshold),
            None => state.without_threshold(),
        };
        let is_taken = queue.push(Header { state, kept_by: by, ..held.header.clone() }, &mut held.buffer);
        // An exemplar must name a trace that can be found.
        if let Some(root) = root.filter(|_| is_taken) {
            self.note_kept(held.key, root, (held.opened, held.duration));
        }
        recycle(held.trace);
    }

    fn export_requested(&self, held: HeldTrace, by: KeepReason, output: (&Queue, Patience)) {
        let kept = if by == KeepReason::HAND { &self.kept_by_hand } else { &self.kept_by_caller };
        kept.fetch_add(1, Ordering::Relaxed);
        self.export(held, (by, None), output);
    }

    /// Notifies `holds` of the traces that are kept or given up from now on.
    pub fn watch(&self, holds: &Arc<Holds>) {
        self.logs.add(holds);
    }

    fn give_up(&self, held: HeldTrace, reason: GivenUp) {
        self.logs.each(|holds| holds.note_given_up(held.header.trace_id));
        self.counters.give_up(reason, held.counted);
        self.note_given_up(GivenUpTrace {
            trace_id: held.header.trace_id,
            reason,
            answer: Some(held.refused_by),
        });
        recycle(held.trace);
    }

    /// Gives up a trace that is counted as held.
    fn give_up_held(&self, held: HeldTrace, reason: GivenUp) {
        self.counters.not_held(held.counted);
        self.give_up(held, reason);
    }

    /// Grows `reservation`, evicting the oldest traces of the lowest value if necessary.
    fn grow(&self, reservation: &mut Reservation, bytes: usize, severity: Severity, traces: &Traces) -> bool {
        if self.ring.grow(reservation, bytes) {
            return true;
        }
        while let Some(lowest) = self.ring.pop_lowest(severity) {
            self.give_up_held(lowest, GivenUp::RingFull);
            if self.ring.grow(reservation, bytes) {
                return true;
            }
        }
        if severity == Severity::Fine {
            return false;
        }
        while let Some(counted) = traces.give_up_open() {
            self.counters.give_up(GivenUp::RingFull, counted);
            if self.ring.grow(reservation, bytes) {
                return true;
            }
        }
        false
    }

    /// Gives up traces that have been held for their full time. Runs on an exporter's thread.
    pub fn expire(&self) {
        let mut out = Vec::new();
        self.ring.expire(self.clock.ticks(), &mut out);
        for held in out {
            let reason = held.reason();
            self.give_up_held(held, reason);
        }
        self.own.iter().for_each(OwnPolicy::warn);
        if self.counters.roots_elsewhere() > 0 && self.warned_elsewhere.swap(1, Ordering::Relaxed) == 0 {
            warn(|| {
                tracing::warn!(
                    "astracer samples roots that another SDK records, so late keeping \
                      does not cover their traces: record them with astracer's layer"
                );
            });
        }
    }

    /// Closes the ring: it holds no further traces.
    pub fn close(&self) {
        self.ring.close();
    }

    /// Gives up all held traces; call after [`close`](Self::close).
    pub fn give_up_all(&self) {
        self.ring.take_all(Arrivals::ALL, |all| {
            for held in all {
                self.give_up_held(held, GivenUp::ShutDown);
            }
        });
    }

    /// Exports the recorded parts of a trace, including those that end later. Returns true if at
    /// least one part was recorded already.
    pub fn keep(&self, trace_id: TraceId, by: KeepReason, queue: &Queue) -> bool {
        let mut found = false;
        loop {
            match self.ring.take(trace_id, by, self.clock.ticks(), u64::from(!found)) {
                RequestResult::Held(held) => {
                    self.counters.not_held(held.counted);
                    self.export_requested(*held, by, (queue, Patience::Full));
                    // Several local roots may share the trace id.
                    found = true;
                }
                RequestResult::KeptBefore => return found,
                RequestResult::NotThere => {
                    self.not_there.fetch_add(u64::from(!found), Ordering::Relaxed);
                    return found;
                }
            }
        }
    }

    /// Notes that a trace went wrong here or in a called process, so that this process's caller
    /// hears of it.
    pub fn note_trouble(&self, trace_id: TraceId) {
        self.troubled.note(trace_id);
    }

    pub fn is_troubled(&self, trace_id: TraceId) -> bool {
        self.troubled.has(trace_id)
    }

    /// The traces that were kept late after the first `known` of them, `most` at most.
    pub fn announcement_after(&self, known: u64, most: usize) -> Announcement {
        self.announced.after(known, most)
    }

    /// Counts late-kept traces that were not announced to the calling process, and will not be.
    pub fn count_unannounced(&self, traces: u64) {
        self.unannounced.fetch_add(traces, Ordering::Relaxed);
    }

    pub fn was_kept(&self, trace_id: TraceId) -> bool {
        matches!(self.ring.status(trace_id), Some(TraceStatus::Kept(_)))
    }

    /// Whether a caller may request one more trace. A refusal is counted.
    pub fn admits_caller(&self, now: Nanos) -> bool {
        let admits = self.callers_rate.is_some_and(|rate| self.callers.admit(&rate, 1, now));
        self.refuse_callers(u64::from(!admits));
        admits
    }

    /// Counts traces that a caller requested but that were ignored, because its list was too long
    /// or held malformed ids.
    pub fn refuse_callers(&self, traces: u64) {
        self.refused_callers.fetch_add(traces, Ordering::Relaxed);
    }

    /// Exports the traces of the ring that the function wants; returns their number.
    pub fn keep_where(&self, wants: &Function, queue: &Queue) -> u64 {
        let mut kept = 0;
        // The user's code must run without a lock held, so traces are taken out and put back. It
        // may create traces itself; only those held at the start are submitted to it, or each call
        // could add more.
        self.ring.take_all(self.ring.so_far(), |all| {
            for held in all {
                if own_policy::ask(wants, &self.view(&held)).unwrap_or(false) {
                    kept += 1;
                    self.counters.not_held(held.counted);
                    self.export_requested(held, KeepReason::HAND, (queue, Patience::Full));
                } else {
                    self.put_back(held, queue);
                }
            }
        });
        kept
    }

    pub fn outcomes(&self) -> Vec<KeyOutcomes> {
        self.sampler.outcomes()
    }

    /// Adds the counts kept here to those of the counters.
    pub fn stats(&self, counted: TailStats, traces: &Traces) -> TailStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TailStats {
            policies: self.sampler.counts(),
            kept_by_hand: read(&self.kept_by_hand),
            kept_by_caller: read(&self.kept_by_caller),
            not_there: read(&self.not_there).saturating_sub(read(&self.came_later)),
            refused_callers: read(&self.refused_callers),
            unannounced: read(&self.unannounced),
            traces_open: traces.provisional().into(),
            ring_bytes: self.ring.bytes() as u64,
            ring_bytes_max: self.ring.bytes_max() as u64,
            without_slot: read(&self.without_slot),
            own_faults: self.own.iter().map(OwnPolicy::stats).collect(),
            shapes_forgotten: self.sampler.shapes_forgotten(),
            boosts: self.sampler.boosts_begun(),
            ..counted
        }
    }

    /// Takes a slot to record a dropped trace.
    pub fn slot(&self, traces: &Traces, began: Ticks, key: KeyNumber) -> Option<TraceRef> {
        let trace = traces.take_provisional(began, key);
        if trace == TraceRef::NONE {
            self.without_slot.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(trace)
    }
}

/// The ring together with the slots, so that the slots can evict traces from it.
pub struct OpenRing<'a> {
    pub late: &'a LateTraces,
    pub traces: &'a Traces,
}

impl RingCapacity for OpenRing<'_> {
    fn limits(&self) -> (usize, usize) {
        self.late.limits()
    }

    fn reserve(&self, reservation: &mut Reservation, bytes: usize, severity: Severity) -> bool {
        self.late.grow(reservation, bytes, severity, self.traces)
    }

    fn spare(&self) -> Box<ProvisionalTrace> {
        SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten().unwrap_or_default()
    }
}
