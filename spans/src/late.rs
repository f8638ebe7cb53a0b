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

mod announcement;
mod end_key;
mod kind;
mod late_spans;
mod own_policy;
mod ring;
mod shape;
mod status;
mod troubled;
mod view;
mod weight_of_kept;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use astracer_samplers::strata::{Draw, RecordedTrace, StrataSampler, Stratum};
use astracer_samplers::tail::{Decided, Exemplar, KeyNumber, Policy, Severity, Tail, TailSampler};
use astracer_samplers::{Allowance, Meter, Nanos, Randomness, Threshold};
use opentelemetry::{SpanId, TraceId};

pub use self::announcement::{Announced, Announcement, Announcements};
pub use self::end_key::EndKey;
use self::own_policy::PolicyView;
pub use self::own_policy::{Function, OwnPolicy};
use self::ring::{Ring, SHARDS, WayOut};
use self::status::TraceStatus;
pub use self::troubled::Troubled;
pub use self::view::{TailSpan, TailTrace};
pub use self::weight_of_kept::Weight;
use crate::clock::{Clock, Ticks};
use crate::export::{Patience, Queue};
use crate::held_logs::Watchers;
use crate::memory_budget::Reservation;
use crate::panics::warn;
use crate::record::{Buffer, Header, KeepReason};
use crate::reentry::Busy;
use crate::stats::{GivenUp, TailStats, Tally};
use crate::sync::statics::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock};
use crate::thread;
use crate::traces::{HELD_BYTES, ProvisionalTrace, TraceRef, Traces};
use crate::weight::{self, Weighing};

/// Submits provisional traces to the policies, and holds the unwanted ones in the ring.
#[derive(Debug)]
pub struct LateTraces {
    sampler: Arc<TailSampler>,
    /// Strata that decide about recorded traces, before the policies.
    strata: Arc<CurrentStrata>,
    end_key: EndKey,
    own: Vec<OwnPolicy>,
    ring: Ring,
    clock: Clock,
    queue: Arc<Queue>,
    explains: bool,
    is_shaped: bool,
    wants_warnings: bool,
    /// Whether a policy decides by outcome alone, so that traces may get weights.
    pub weighs: bool,
    pub announced: Announcements,
    /// The log layers that hold events of undecided traces.
    pub logs: Watchers,
    pub troubled: Troubled,
    callers: Meter,
    callers_rate: Option<Allowance>,
    warned_elsewhere: AtomicBool,
}

/// The strata in effect, which may be replaced at any time.
#[derive(Debug, Default)]
pub struct CurrentStrata {
    sampler: Mutex<Option<Arc<StrataSampler>>>,
    is_some: AtomicBool,
}

impl CurrentStrata {
    pub fn get(&self) -> Option<Arc<StrataSampler>> {
        lock(&self.sampler).clone()
    }

    /// Whether there are any. Without a lock, and without order to other changes.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.is_some.load(Ordering::Relaxed)
    }

    pub fn set(&self, strata: Option<Arc<StrataSampler>>) {
        self.is_some.store(strata.is_some(), Ordering::Relaxed);
        let old = std::mem::replace(&mut *lock(&self.sampler), strata);
        // Freed without the lock, since it may be large.
        drop(old);
    }
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
    pub weighing: Weighing,
}

/// The purposes of [`Randomness::hashed`].
const STRATUM: u64 = 1;
const POLICIES: u64 = 2;
const WEIGHT: u64 = 3;

/// Randomness that is independent of the trace id's own, by which the head decided.
fn hashed(trace_id: TraceId, purpose: u64) -> Randomness {
    Randomness::hashed(u128::from_be_bytes(trace_id.to_bytes()), purpose)
}

/// Traces per second that other processes may request.
const CALLERS_RATE: f64 = 100.0;

impl LateTraces {
    pub fn new(
        (tail, sampler): (&Tail, Arc<TailSampler>),
        (strata, end_key): (Arc<CurrentStrata>, EndKey),
        own: Vec<OwnPolicy>,
        explains: bool,
        clock: Clock,
        queue: Arc<Queue>,
    ) -> Self {
        let hold = clock.ticks_of(Duration::from_nanos(tail.held_for().get()));
        let is_shaped = sampler.rules().any(|rule| rule.policy == Policy::Odd);
        LateTraces {
            ring: Ring::new(tail.ring_bytes, hold, clock.ticks_of(queue.bounds.trace_age)),
            is_shaped,
            wants_warnings: sampler.wants(Severity::Warning),
            weighs: sampler.decides_by_outcome(),
            sampler,
            strata,
            end_key,
            own,
            clock,
            queue,
            explains,
            announced: Announcements::default(),
            logs: Watchers::default(),
            troubled: Troubled::default(),
            callers: Meter::default(),
            callers_rate: Allowance::new(CALLERS_RATE, CALLERS_RATE).ok(),
            warned_elsewhere: AtomicBool::new(false),
        }
    }

    /// The most bytes that a trace may have: its part of the ring, so that others fit beside it,
    /// and no more than the queue could accept.
    pub fn bytes_max(&self) -> usize {
        self.queue.bounds.bytes_per_trace().min(self.ring.budget.max / Tail::TRACE_PART)
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
        let policies = sampler.rules().map(|rule| rule.policy.reason());
        ["hand", "caller", "stratum"].into_iter().chain(policies).map(Box::from).collect()
    }

    /// Handles the end of a provisional trace's root. The caller holds no lock.
    pub fn end_trace(
        &self,
        mut trace: Box<ProvisionalTrace>,
        root: RootEnd,
        traces: &Traces,
        patience: Patience,
    ) {
        (trace.counted, trace.duration, trace.ended) = (trace.buffer.counted(), root.nanos, root.at);
        // If the root has ended, counting it has already armed its key.
        if trace.severity == Severity::Error && trace.root().is_none() {
            let _busy = Busy::mark();
            self.sampler().note_error(trace.key, root.now);
        }
        let kept = self.decide(&mut trace, root.now, root.weighing, !patience.is_over());
        let requested = self.ring.take_request(trace.header.trace_id, root.at);
        let way_out = match (kept, requested) {
            (Some((by, weight)), _) => WayOut::Kept(by, weight),
            (None, Some((by, weight))) => WayOut::Kept(by, weight),
            (None, None) if self.makes_room(&mut trace, traces) => {
                return self.hold(trace, root.at, patience);
            }
            (None, None) => WayOut::GivenUp(GivenUp::RingFull),
        };
        self.settle(trace, way_out, patience);
    }

    /// Reserves the memory of a trace in the ring. After the ring has closed, evicts no others for
    /// a trace that is given up at once.
    fn makes_room(&self, trace: &mut ProvisionalTrace, traces: &Traces) -> bool {
        let bytes = trace.buffer.bytes_held() + HELD_BYTES;
        !self.ring.holds() || self.grow(&mut trace.reservation, bytes, trace.severity, traces)
    }

    /// Puts a trace into the ring, for the first time or back, and gives up expired ones.
    fn hold(&self, mut trace: Box<ProvisionalTrace>, now: Ticks, patience: Patience) {
        let is_back = std::mem::replace(&mut trace.is_held, true);
        if !is_back {
            self.queue.counters.held.add(trace.counted);
        }
        match self.ring.hold(trace, is_back, now) {
            Ok(expired) => {
                expired.into_iter().flatten().flatten().for_each(|trace| self.give_up_expired(trace));
            }
            Err((trace, way_out)) => self.settle(trace, way_out, patience),
        }
    }

    fn settle(&self, mut trace: Box<ProvisionalTrace>, way_out: WayOut, patience: Patience) {
        if trace.is_held {
            self.queue.counters.not_held.add(trace.counted);
        }
        let trace_id = trace.header.trace_id;
        match way_out {
            WayOut::Kept(by, weight) => self.export(&mut trace, (by, weight), patience),
            WayOut::GivenUp(reason) => {
                let reason = if trace.is_decided { GivenUp::Unwanted } else { reason };
                self.logs.each(|holds| holds.note_given_up(trace_id));
                self.queue.counters.give_up(reason, trace.counted);
                self.note_given_up(trace_id, reason, Some(trace.refused_by));
            }
        }
        trace.recycle();
    }

    fn give_up_expired(&self, trace: Box<ProvisionalTrace>) {
        let reason = trace.reason();
        self.settle(trace, WayOut::GivenUp(reason), Patience::None);
    }

    /// Returns the reason for keeping the trace, and its weight if that is known. Its stratum
    /// decides once, then the policies, by a randomness of their own: their budgets must not depend
    /// on the stratum's numbers, which follow from each other. The service's own functions may take
    /// any time, so they run only if `has_time`.
    fn decide(
        &self,
        trace: &mut ProvisionalTrace,
        now: Nanos,
        weighing: Weighing,
        has_time: bool,
    ) -> Option<(KeepReason, Option<Weight>)> {
        let drawn = self.draw(trace, now);
        trace.is_decided |= drawn.is_some();
        let header = &trace.header;
        let id = weight::of_trace_id(header.trace_id);
        let randomness = match drawn {
            Some(_) => hashed(header.trace_id, POLICIES),
            None => header.state.randomness().unwrap_or(id),
        };
        let own: &[OwnPolicy] = if has_time { &self.own } else { &[] };
        let view = PolicyView { trace: self.view(trace), own };
        let shape = if self.is_shaped { shape::of(view.trace.spans) } else { 0 };
        let submitted = view.submitted(trace.key, now, (shape, trace.buffer.bytes_used()));
        let busy = Busy::mark();
        let by_policies = drawn.and_then(|_| self.sampler().threshold(&submitted));
        let (decided, threshold) = self.sampler().decide_by_chance(&submitted, randomness);
        drop(busy);
        let by_policy = match decided {
            Decided::Kept(place) => Some(KeepReason::policy(place)),
            Decided::Refused(place) => {
                trace.refused_by = Some(KeepReason::policy(place));
                None
            }
            _ => None,
        };
        let Some(draw) = drawn else {
            let is_true = |threshold: &Threshold| self.is_true(trace, weighing, *threshold);
            let weight = threshold.filter(is_true).map(|threshold| Weight { threshold, randomness: None });
            return by_policy.map(|by| (by, weight));
        };
        // A policy that decides by more than the outcome gives no weight.
        let is_by_chance = draw.keeps || threshold.is_some();
        let random = hashed(trace.header.trace_id, WEIGHT).get();
        let weight = draw.of_all(by_policies, random).filter(|_| is_by_chance);
        let weight = weight.map(|(threshold, value)| Weight { threshold, randomness: Some(value) });
        let by = by_policy.or(draw.keeps.then_some(KeepReason::STRATUM));
        by.map(|by| (by, weight))
    }

    /// The decision of the trace's stratum. `None` if strata do not decide about it, or have
    /// decided.
    fn draw(&self, trace: &mut ProvisionalTrace, now: Nanos) -> Option<Draw> {
        let recorded = trace.recorded.take()?;
        let strata = self.strata.get()?;
        let is_error = trace.severity == Severity::Error;
        let view = trace.buffer.view(&trace.header);
        let kind = strata.strata().is_by_kind().then(|| kind::of(view));
        let mut memory = String::new();
        let key = self.sampler().key_text(trace.key).unwrap_or_default();
        let key = self.end_key.of(key, (view, trace.root()), &self.clock, &mut memory);
        let _busy = Busy::mark();
        Some(strata.draw(&RecordedTrace {
            key,
            stratum: Stratum::new(Nanos::new(trace.duration), is_error).with_kind(kind),
            recorded,
            bytes: trace.buffer.bytes_used() as u64,
            now,
            random: hashed(trace.header.trace_id, STRATUM).get(),
        }))
    }

    /// Whether the policies' threshold is the true one of a trace that was dropped. It is not if a
    /// trace of the head sampler with the same outcome keeps its own threshold: see
    /// [`LateTraces::weigh_kept`].
    fn is_true(&self, trace: &ProvisionalTrace, weighing: Weighing, threshold: Threshold) -> bool {
        let bounds = &self.queue.bounds;
        let is_whole = trace.root().is_some()
            && trace.buffer.records.len() <= bounds.spans_per_trace as usize
            && trace.buffer.bytes_used() < bounds.bytes_per_part()
            && trace.header.cut == 0;
        is_whole && weighing.allows(threshold)
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
        if weighing == Weighing::Never || buffer.bytes_used() >= self.queue.bounds.bytes_per_part() {
            return;
        }
        let trace = TailTrace { spans: buffer.view(header), clock: &self.clock, key: "", severity, nanos };
        // The service's own functions are not asked, since no threshold follows from them.
        let view = PolicyView { trace, own: &[] };
        let threshold = self.sampler().threshold(&view.submitted(key, now(), (0, buffer.bytes_used())));
        let Some(threshold) = threshold.filter(|late| *late < own && weighing.allows(*late)) else { return };
        header.state = header.state.with_threshold(Some(threshold));
        header.is_reweighed = true;
    }

    fn view<'a>(&'a self, trace: &'a ProvisionalTrace) -> TailTrace<'a> {
        TailTrace {
            spans: trace.buffer.view(&trace.header),
            clock: &self.clock,
            key: self.sampler().key_text(trace.key).unwrap_or_default(),
            severity: trace.severity,
            nanos: trace.duration,
        }
    }

    /// Offers a trace, kept by the head sampler or late, as an exemplar of its root's duration.
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
        let _busy = Busy::mark();
        self.sampler().note_kept(key, thread::number() as usize, exemplar, now);
    }

    fn export(
        &self,
        trace: &mut ProvisionalTrace,
        (by, weight): (KeepReason, Option<Weight>),
        patience: Patience,
    ) {
        match by {
            KeepReason::HAND => self.queue.counters.tally(Tally::KeptByHand, 1),
            KeepReason::CALLER => self.queue.counters.tally(Tally::KeptByCaller, 1),
            _ => {}
        }
        self.sampler().note_kept_late(trace.key);
        // A trace whose root is still open has no duration yet.
        let root = trace.root().map(|root| (trace.header.trace_id, root));
        // Note this first, so that spans that end from now on follow the trace.
        self.ring.note_kept(trace, by, self.clock.ticks());
        // A policy decides about its own process's part. A stratum decides about the whole trace,
        // and has a randomness of its own.
        let of_all = weight.filter(|weight| weight.randomness.is_some());
        self.announced.add(Announced { trace_id: trace.header.trace_id, weight: of_all });
        self.logs.each(|holds| holds.note_kept(trace.header.trace_id));
        self.queue.wait_for_space(patience);
        let state = std::mem::take(&mut trace.header.state);
        let state = match weight {
            Some(Weight { threshold, randomness: Some(randomness) }) => {
                state.with_weight(threshold, randomness)
            }
            weight => state.with_threshold(weight.map(|weight| weight.threshold)),
        };
        let header = Header { state, kept_by: by, ..trace.header.clone() };
        let is_taken = self.queue.push(header, &mut trace.buffer);
        // An exemplar must name a trace that can be found.
        if let Some(root) = root.filter(|_| is_taken) {
            self.note_kept(trace.key, root, (trace.opened, trace.duration));
        }
    }

    pub fn grow(
        &self,
        reservation: &mut Reservation,
        bytes: usize,
        severity: Severity,
        traces: &Traces,
    ) -> bool {
        while !self.ring.grow(reservation, bytes) {
            if let Some(lowest) = self.ring.pop_lowest(severity) {
                self.settle(lowest, WayOut::GivenUp(GivenUp::RingFull), Patience::None);
            } else if severity > Severity::Fine
                && let Some(counted) = traces.give_up_open()
            {
                self.queue.counters.give_up(GivenUp::RingFull, counted);
            } else {
                return false;
            }
        }
        true
    }

    /// Gives up traces that have been held for their full time. Runs on an exporter's thread.
    pub fn expire(&self) {
        let expired = self.ring.expire(self.clock.ticks());
        expired.into_iter().for_each(|expired| self.give_up_expired(expired));
        self.own.iter().for_each(OwnPolicy::warn);
        if let Some(strata) = self.strata.get() {
            strata.solve(self.clock.since_origin(self.clock.ticks()));
        }
        if self.queue.counters.tallied(Tally::RootsElsewhere) > 0
            && !self.warned_elsewhere.swap(true, Ordering::Relaxed)
        {
            warn(|| {
                tracing::warn!(
                    target: "astracer",
                    parent: None,
                    "astracer samples roots that another SDK records, so late keeping \
                      does not cover their traces: record them with astracer's layer"
                );
            });
        }
    }

    pub fn close(&self) {
        self.ring.close();
    }

    /// Gives up all held traces; call after [`close`](Self::close).
    pub fn give_up_all(&self) {
        self.ring.take_all([u64::MAX; SHARDS], |all| {
            for trace in all {
                self.settle(trace, WayOut::GivenUp(GivenUp::ShutDown), Patience::None);
            }
        });
    }

    /// Exports the recorded parts of a trace (several local roots may share its id), including
    /// those that end later. Returns whether a part was recorded already.
    ///
    /// `weight` is that of the whole trace, if the process that decided about it said so.
    pub fn keep(&self, trace_id: TraceId, by: KeepReason, weight: Option<Weight>) -> bool {
        let mut found = false;
        while let Some(trace) = self.ring.take(trace_id, (by, weight), self.clock.ticks(), !found) {
            self.settle(trace, WayOut::Kept(by, weight), Patience::Full);
            found = true;
        }
        found
    }

    /// Whether a part of the trace is in the ring.
    pub fn holds(&self, trace_id: TraceId) -> bool {
        matches!(self.ring.status(trace_id), Some(TraceStatus::Held(..)))
    }

    pub fn was_kept(&self, trace_id: TraceId) -> bool {
        matches!(self.ring.status(trace_id), Some(TraceStatus::Kept(_)))
    }

    /// Whether a caller may request one more trace. A refusal is counted.
    pub fn admits_caller(&self, now: Nanos) -> bool {
        let admits = self.callers_rate.is_some_and(|rate| self.callers.admit(&rate, 1, now));
        self.queue.counters.tally(Tally::RefusedCallers, u64::from(!admits));
        admits
    }

    /// Exports the traces of the ring that the function wants; returns their number.
    pub fn keep_where(&self, wants: &Function) -> u64 {
        let mut kept = 0;
        // The user's code must run without a lock held, so traces are taken out and put back. It
        // may create traces itself; only those held at the start are submitted to it, or each call
        // could add more.
        self.ring.take_all(self.ring.so_far(), |all| {
            for trace in all {
                if own_policy::ask(wants, &self.view(&trace)).unwrap_or(false) {
                    kept += 1;
                    self.settle(trace, WayOut::Kept(KeepReason::HAND, None), Patience::Full);
                } else {
                    self.hold(trace, self.clock.ticks(), Patience::Full);
                }
            }
        });
        kept
    }

    /// Adds the counts kept here to those of the counters.
    pub fn stats(&self, counted: TailStats, traces: &Traces) -> TailStats {
        TailStats {
            policies: self.sampler().counts(),
            kept: self.sampler().kept_late().iter().map(|(_, kept)| kept).sum(),
            strata: self.strata.get().map(|strata| strata.counts()),
            not_there: self.ring.missed.load(Ordering::Relaxed),
            traces_open: traces.provisional().into(),
            ring_bytes: self.ring.budget.used() as u64,
            ring_bytes_max: self.ring.budget.max as u64,
            own_faults: self.own.iter().map(OwnPolicy::stats).collect(),
            shapes_forgotten: self.sampler().shapes_forgotten(),
            boosts: self.sampler().boosts_begun(),
            ..counted
        }
    }

    pub fn slot(
        &self,
        traces: &Traces,
        began: Ticks,
        key: KeyNumber,
        recorded: Option<Threshold>,
    ) -> Option<TraceRef> {
        let trace = traces.take_provisional(began, key, recorded);
        if trace == TraceRef::NONE {
            self.queue.counters.tally(Tally::WithoutSlot, 1);
            return None;
        }
        Some(trace)
    }
}
