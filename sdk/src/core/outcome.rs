//! Outcomes of local roots. An outcome is counted whichever sampler decided the root, and submitted
//! to the policies if the trace is recorded.
//!
//! Below a dropped root that is not recorded, an error is noticed only on a thread that is inside
//! that root: in an event of level ERROR, in a field that sets the status or is an `error`, or as a
//! panic.

use astracer_samplers::tail::{Ended, KeyNumber, ProvisionalMode, Recording, Severity};
use astracer_samplers::{Nanos, Randomness, Threshold};
use opentelemetry::TraceId;
use tracing_core::field::{Field, Visit};
use tracing_core::span::Id;
use tracing_core::{Event, Level};

use super::Core;
use super::wanted::Wanted;
use crate::decider::RootDecision;
use crate::stack;
use crate::table::{BODY, Entry, Fate, Phase, ROOT};
use astracer_spans::clock::Ticks;
use astracer_spans::export::Patience;
use astracer_spans::late::{LateTraces, Outcome};
use astracer_spans::record::{
    Attribute, Body, Buffer, ERROR, Fields, Header, Record, STATUS_CODE, STATUS_DESCRIPTION, Status,
};
use astracer_spans::reentry::Busy;
use astracer_spans::thread;
use astracer_spans::traces::{EndedSpan, TraceRef};
use astracer_spans::weight::{self, Weighing};

impl Core {
    /// The slot of a trace that is dropped but recorded; `None` if it is not recorded. Also notes
    /// in the decision if late keeping cannot weigh the trace.
    #[inline]
    pub(super) fn slot_if_recorded(
        &self,
        decision: &mut RootDecision,
        trace_id: TraceId,
        began: Ticks,
    ) -> Option<TraceRef> {
        let late = self.shared.late.as_ref()?;
        let key = decision.key?;
        let _busy = Busy::mark();
        if decision.keep {
            self.weigh_kept(late, decision, key, began);
            return None;
        }
        let recording = match late.sampler().provisional(key) {
            ProvisionalMode::Never => Recording::No,
            ProvisionalMode::Always => Recording::ByKey,
            _ => {
                let randomness: Randomness = weight::of_trace_id(trace_id);
                late.sampler().recording(key, randomness, self.shared.decider.decision_time(began))
            }
        };
        let by_stratum = decision.recorded.filter(|(_, is_recorded)| *is_recorded);
        let recorded = match (recording, by_stratum) {
            // All traces of the key are recorded at present, so the stratum decides about all.
            (Recording::ByKey, _) => decision.recorded.map(|_| Threshold::ALWAYS),
            (_, Some((threshold, _))) => Some(threshold),
            // The process with the root decides.
            _ if decision.is_recorded_by_root => None,
            (Recording::No, None) => return None,
            (Recording::ByShare, None) => {
                decision.weighing = Weighing::Never;
                None
            }
        };
        late.slot(&self.shared.traces, began, key, recorded)
    }

    /// A kept trace is weighed by its outcome only if it would have been recorded otherwise.
    #[inline(never)]
    fn weigh_kept(&self, late: &LateTraces, decision: &mut RootDecision, key: KeyNumber, began: Ticks) {
        let now = self.shared.decider.decision_time(began);
        if !late.weighs || !late.sampler().would_record(key, now) {
            decision.weighing = Weighing::Never;
        }
    }

    #[inline]
    pub(super) fn note_root(&self, entry: &Entry, decision: &RootDecision) {
        if self.notes_failures() {
            entry.set_root_key(decision.key, decision.weighing);
        }
    }

    #[inline]
    pub(super) fn count_dropped_root(&self, entry: &Entry) {
        if let Some(late) = &self.shared.late
            && let Some(key) = entry.root_key()
        {
            self.count_by_key(late, entry, key);
        }
    }

    fn count_by_key(&self, late: &LateTraces, entry: &Entry, key: KeyNumber) {
        let is_error = entry.failed() || std::thread::panicking();
        let at = match entry.last_exit() {
            0 => self.ticks(),
            last_exit => last_exit,
        };
        let nanos = self.shared.decider.clock.nanos_between(entry.began(), at);
        self.count(late, (key, entry.trace_id()), nanos, (is_error, false));
    }

    /// Counts a root that ended, with whether it failed and whether it was recorded.
    fn count(
        &self,
        late: &LateTraces,
        (key, trace_id): (KeyNumber, TraceId),
        nanos: u64,
        (is_error, is_recorded): (bool, bool),
    ) {
        let ended = Ended { now: Nanos::ZERO, duration: Nanos::new(nanos), is_error, is_recorded };
        // The present time, not the time at which the root was exited, which may be long ago:
        // budgets and thresholds are shared by all traces.
        let now = || self.shared.decider.now();
        let busy = Busy::mark();
        let is_troubled = late.sampler().count_when(key, thread::number() as usize, &ended, now);
        drop(busy);
        if is_troubled {
            late.troubled.note(trace_id);
        }
    }

    /// Ends a span of a kept or recorded trace when late keeping is on. Not inlined, to keep it off
    /// the path of spans without late keeping.
    #[inline(never)]
    pub(super) fn end_with_late(
        &self,
        late: &LateTraces,
        entry: &Entry,
        (header, record): (impl FnOnce() -> Header, &Record),
        body: Option<&mut Body>,
    ) {
        let is_plain = body.is_none() && !record.is_local_root && !std::thread::panicking();
        let shared = &*self.shared;
        if is_plain
            && entry.fate() == Fate::Provisional
            && shared.traces.gather(entry.trace(), record, &shared.queue)
        {
            return;
        }
        self.end_at_length(late, entry, (header, record.clone()), body);
    }

    #[inline(never)]
    fn end_at_length(
        &self,
        late: &LateTraces,
        entry: &Entry,
        (header, record): (impl FnOnce() -> Header, Record),
        mut body: Option<&mut Body>,
    ) {
        let shared = &*self.shared;
        let (trace, is_root, at) = (entry.trace(), record.is_local_root, record.end);
        let severity = late.rank(severity_of(body.as_deref()));
        if severity > Severity::Fine {
            shared.traces.mark(trace, severity);
        }
        // Read before the trace leaves with its root.
        let worst = if is_root { severity.max(shared.traces.severity(trace)) } else { severity };
        let by_hand = body.as_deref().and_then(|body| body.detail.ended_by_hand);
        let nanos = || shared.decider.clock.duration(entry.began(), at, by_hand);
        let root = is_root.then(|| (entry.trace_id(), record.span_id));
        if entry.fate() == Fate::Kept {
            let Some((root, key)) = root.zip(entry.root_key()) else {
                shared.traces.end_span(trace, header, record, body, &shared.queue, |_, _| ());
                return;
            };
            self.count(late, (key, root.0), nanos(), (worst == Severity::Error, true));
            let outcome = Outcome { key, nanos: nanos(), severity: worst, weighing: entry.weighing() };
            let weigh = |header: &mut Header, buffer: &Buffer| {
                late.weigh_kept(header, buffer, &outcome, || shared.decider.now());
            };
            if shared.traces.end_span(trace, header, record, body, &shared.queue, weigh) {
                late.note_kept(key, root, (entry.began(), nanos()));
            }
            return;
        }
        let grow = |memory: &mut _, bytes, severity| late.grow(memory, bytes, severity, &shared.traces);
        let room = (late.bytes_max(), &grow as _);
        let ended =
            shared.traces.end_provisional(trace, header, record, body.as_deref_mut(), &shared.queue, room);
        let count = |is_recorded| {
            if let Some(key) = entry.root_key().filter(|_| is_root) {
                self.count(late, (key, entry.trace_id()), nanos(), (worst == Severity::Error, is_recorded));
            }
        };
        match ended {
            EndedSpan::Gathered => {}
            EndedSpan::Whole(whole) => {
                count(true);
                let root = shared.root_end(nanos(), entry.weighing());
                late.end_trace(whole, root, &shared.traces, Patience::Full);
            }
            EndedSpan::Late(span) => {
                let seen = (severity, shared.decider.now(), nanos());
                let follows = late.end_late((*span, trace), seen, body, &shared.traces, count);
                if let (true, Some(root), Some(key)) = (follows, root, entry.root_key()) {
                    late.note_kept(key, root, (entry.began(), nanos()));
                }
            }
            // A trace that was given up while it was open is never submitted to a policy.
            EndedSpan::GivenUp(counted, reason) => {
                count(false);
                shared.counters.give_up(reason, counted);
                if is_root {
                    late.note_open_given_up(entry.trace_id(), reason);
                }
            }
        }
    }

    /// A called process reports that this trace went wrong there. Begins a boost of the key of the
    /// local root that this thread is inside, and reports it to this process's caller in turn.
    pub(crate) fn note_callee_trouble(&self, trace_id: TraceId) {
        let Some(late) = self.shared.late.as_ref().filter(|late| late.sampler().boosts_keys()) else {
            return;
        };
        late.troubled.note(trace_id);
        let key = stack::find_entry(self.number(), |inside| {
            let entry = self.find_id(inside.entry)?;
            entry.root_key().filter(|_| entry.trace_id() == trace_id)
        });
        if let Some(key) = key {
            let _busy = Busy::mark();
            late.sampler().boost(key, self.shared.decider.now());
        }
    }

    /// Marks the trace of an open span on which an error was recorded. Marking it at once, before
    /// the span ends, protects the trace from eviction.
    pub(super) fn mark_if_failed(&self, entry: &Entry, body: &Body) {
        self.mark_if(entry, || body.severity() == Severity::Error);
    }

    pub(super) fn mark_if(&self, entry: &Entry, has_failed: impl FnOnce() -> bool) {
        if self.counts_outcomes() && entry.phase() == Phase::Recorded && has_failed() {
            self.shared.traces.mark(entry.trace(), Severity::Error);
        }
    }

    /// As [`Core::mark_if_failed`], for a span whose trace is known only now. Looks at everything
    /// recorded on the span so far.
    #[inline]
    pub(super) fn mark_if_begun_failed(&self, entry: &Entry) {
        if self.counts_outcomes() && entry.has(BODY) {
            self.mark_if_body_failed(entry);
        }
    }

    #[inline(never)]
    fn mark_if_body_failed(&self, entry: &Entry) {
        if let Some(body) = entry.extra().body.as_deref() {
            self.mark_if_failed(entry, body);
        }
    }

    #[inline]
    pub(super) fn counts_outcomes(&self) -> bool {
        self.shared.late.is_some()
    }

    /// True if errors of dropped roots are noted: for late keeping, or for the observer.
    #[inline]
    pub(super) fn notes_failures(&self) -> bool {
        self.counts_outcomes() || self.is_observed()
    }

    /// Exits a dropped span. Like a kept root, a dropped root ends when it is last exited.
    pub(super) fn leave_dropped(&self, entry: Option<&Entry>) {
        let Some(entry) = entry else { return };
        if is_counted_root(entry) {
            entry.set_last_exit(self.ticks());
        }
        if std::thread::panicking() {
            self.note_panic(entry);
        }
    }

    #[cold]
    pub(super) fn note_panic(&self, entry: &Entry) {
        match entry {
            entry if entry.phase() == Phase::Recorded => {
                let mut extra = entry.extra();
                let body = extra.body.get_or_insert_with(|| self.new_body());
                body.panicked();
                drop(extra);
                if self.counts_outcomes() {
                    self.shared.traces.mark(entry.trace(), Severity::Error);
                }
            }
            entry if is_counted_root(entry) => entry.set_failed(),
            entry => self.fail_dropped_root(entry.trace_id()),
        }
    }

    pub(super) fn note_dropped_event(&self, event: &Event<'_>, inside: u64) {
        if *event.metadata().level() == Level::ERROR
            && self.shared.late.is_some()
            && let Some(entry) = self.find_id(inside)
        {
            self.fail_dropped_root(entry.trace_id());
        }
    }

    #[cold]
    pub(super) fn note_dropped_fields(&self, id: &Id, record: impl FnOnce(&mut dyn Visit)) {
        if !self.notes_failures() || self.find(id).is_none() {
            return;
        }
        let failed = Fields::borrow(|fields| {
            let settings = self.settings();
            let visitor = fields.of_span(settings.conventions, settings.limits.text_length);
            // Other values may be the service's, and expensive to format.
            let wants = |field: &Field, _| matches!(field.name(), ERROR | STATUS_CODE | STATUS_DESCRIPTION);
            record(&mut Wanted { wants, visitor });
            let says_so = |attribute: &Attribute| attribute.says_error(fields.memory.view());
            matches!(fields.status, Status::Error(_)) || fields.attributes.iter().any(says_so)
        });
        // Looked up again: the service's code, which formats fields, may have ended the span.
        let Some(entry) = self.find(id).filter(|_| failed) else { return };
        match entry {
            root if is_counted_root(root) || root.flags() & ROOT != 0 && self.is_observed() => {
                root.set_failed();
            }
            below => self.fail_dropped_root(below.trace_id()),
        }
    }

    /// Notes an error on the dropped root of this trace, if this thread is inside it. The thread
    /// may be inside other roots too, such as when a request is polled inside another request's
    /// spans.
    pub(super) fn fail_dropped_root(&self, trace_id: TraceId) {
        let root = stack::find_entry(self.number(), |inside| {
            let entry = self.find_id(inside.entry)?;
            (is_counted_root(entry) && entry.trace_id() == trace_id).then_some(inside.entry)
        });
        if let Some(entry) = root.and_then(|id| self.find_id(id)) {
            entry.set_failed();
        }
    }
}

/// Whether this is a dropped local root whose outcome is counted, rather than an outward-facing
/// span below one.
#[inline]
fn is_counted_root(entry: &Entry) -> bool {
    entry.flags() & ROOT != 0 && entry.phase() == Phase::Dropped && entry.root_key().is_some()
}

#[inline]
fn severity_of(body: Option<&Body>) -> Severity {
    match body {
        _ if std::thread::panicking() => Severity::Error,
        Some(body) => body.severity(),
        None => Severity::Fine,
    }
}
