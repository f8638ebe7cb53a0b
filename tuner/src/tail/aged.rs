//! Traces whose root is open longer than a service waits for it. They are evaluated at that age, as
//! far as they have ended by then.
//!
//! As in a service, a trace in which nothing has ended by then waits for its first span to end. If
//! a trace is kept, its later spans follow, within the bytes of its policy. If not, it is held for
//! a while and evaluated again when a span fails or the root ends. Whatever ends after that is
//! late.

use std::cmp::Reverse;

use astracer_model::Status;
use astracer_recording::recording::{SpanView, TraceView};
use astracer_recording::stop::Pulse;
use astracer_samplers::Nanos;
use astracer_samplers::tail::{Decided, Severity, Tail, Trace};

use super::shape::Shaper;
use super::{Attributes, Happening, Replay, State, part_of, taken_by};

/// A trace that is evaluated while its root is open. Times are from the root's start, in ns.
#[derive(Clone, Debug)]
pub(super) struct Aged {
    /// The time of the first evaluation.
    pub(super) put_ns: u64,
    pub(super) root_failed: bool,
    /// The ends of other spans after that, and whether they fail. The root is not included.
    later: Vec<(u64, bool)>,
    /// The trace at each evaluation: at its maximum age, when the first span fails after that, and
    /// when the root ends. Evaluations after the holding time are left out.
    looks: Vec<Look>,
}

/// A trace as it is from a given time on.
#[derive(Clone, Debug)]
struct Look {
    after_ns: u64,
    spans: u64,
    is_failed: bool,
    shape: u64,
    sets: Vec<u32>,
}

/// The time from the root's start to a span's end. Spans end at the latest when the root does.
fn ended_ns(root: SpanView<'_>, span: SpanView<'_>) -> u64 {
    span.start().since(root.start()).saturating_add(span.duration_ns()).min(root.duration_ns())
}

impl Aged {
    /// `Some(None)` if the root ends in time, or before any other span does; `None` if asked to
    /// stop. `set_of` returns the set of a span's attributes.
    pub(super) fn new(
        trace: TraceView<'_>,
        tail: &Tail,
        mut shaper: Option<&mut Shaper>,
        set_of: impl Fn(SpanView<'_>) -> Option<u32>,
        pulse: &mut Pulse<'_>,
    ) -> Option<Option<Self>> {
        let root = trace.root();
        let age_ns = Tail::TRACE_AGE_MAX.get();
        if root.duration_ns() <= age_ns {
            return Some(None);
        }
        let others = || trace.spans().filter(|span| span.index() != root.index());
        let first_ns = others().map(|span| ended_ns(root, span)).min();
        let Some(put_ns) = first_ns.map(|ns| ns.max(age_ns)).filter(|ns| *ns < root.duration_ns()) else {
            return Some(None);
        };
        let ending = |span| (ended_ns(root, span), span.status() == Status::Error);
        let mut later: Vec<_> = others().map(ending).filter(|(ns, _)| *ns > put_ns).collect();
        later.sort_unstable();
        let root_failed = root.status() == Status::Error;
        let failed_before = others().map(ending).any(|(ns, is_failed)| is_failed && ns <= put_ns);
        let first_failed = later.iter().find(|(_, is_failed)| *is_failed && !failed_before);
        let held_until = put_ns.saturating_add(tail.held_for().get());
        let again = first_failed.map(|(ns, _)| *ns).into_iter().chain([root.duration_ns()]);
        let mut looks = Vec::new();
        for after_ns in [put_ns].into_iter().chain(again.filter(|ns| *ns <= held_until)) {
            // The root counts as the last span to end.
            let is_whole = after_ns >= root.duration_ns();
            let has_ended = |span: SpanView<'_>| {
                is_whole || span.index() != root.index() && ended_ns(root, span) <= after_ns
            };
            let seen = || trace.spans().filter(|span| has_ended(*span));
            let shape = match &mut shaper {
                Some(shaper) => shaper.shape(trace, has_ended, pulse)?,
                None => 0,
            };
            let mut sets: Vec<u32> = seen().filter_map(&set_of).collect();
            sets.sort_unstable();
            sets.dedup();
            let is_failed = seen().any(|span| span.status() == Status::Error);
            looks.push(Look { after_ns, spans: seen().count() as u64, is_failed, shape, sets });
        }
        Some(Some(Aged { put_ns, root_failed, later, looks }))
    }
}

/// The state of a trace that was evaluated at its maximum age.
#[derive(Debug)]
pub(super) struct Old {
    began_ns: u64,
    state: AgedState,
    is_failed: bool,
    /// The index in [`Aged::later`] of the next span to end.
    next: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgedState {
    Held,
    /// Kept by this policy, with this number of spans so far.
    Kept(usize, u64),
    GivenUp,
}

impl Old {
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.state, AgedState::Kept(..))
    }

    /// Whether policies saw that the trace failed.
    pub(super) fn is_failed(&self) -> bool {
        self.is_failed
    }

    /// The trace leaves the ring.
    pub(super) fn release(&mut self) {
        if self.state == AgedState::Held {
            self.state = AgedState::GivenUp;
        }
    }
}

impl Replay<'_> {
    /// A trace has reached its maximum age, and at least one of its spans has ended.
    pub(super) fn age(&mut self, at_ns: u64, number: u32) {
        if self.states[number as usize] != State::Recorded {
            return;
        }
        let Some(aged) = self.outcomes.aged.get(&number) else { return };
        if !self.ring.holds(number) {
            // The ring has no copy of it, and its root ends too late.
            self.states[number as usize] = State::GivenUp;
            self.run.given_up += 1;
            return;
        }
        self.states[number as usize] = State::Old;
        let is_failed = aged.looks.first().is_some_and(|look| look.is_failed);
        let old = Old { began_ns: at_ns - aged.put_ns, state: AgedState::Held, is_failed, next: 0 };
        if is_failed {
            self.note_error(at_ns, number);
        }
        self.old.insert(number, old);
        self.await_next(number);
        self.look(at_ns, number, aged.put_ns);
        self.ring.end(number, at_ns);
        let released_ns = at_ns.saturating_add(self.outcomes.tail.held_for().get());
        self.pending.push(Reverse((released_ns, Happening::Released, number)));
    }

    /// A span ends in a trace that was evaluated before.
    pub(super) fn end_late(&mut self, at_ns: u64, number: u32) {
        let (Some(aged), Some(old)) = (self.outcomes.aged.get(&number), self.old.get_mut(&number)) else {
            return;
        };
        if old.state == AgedState::GivenUp {
            return;
        }
        let Some(&(_, is_failed)) = aged.later.get(old.next) else { return };
        old.next += 1;
        let is_worse = is_failed && !old.is_failed;
        old.is_failed |= is_failed;
        match old.state {
            AgedState::GivenUp => {}
            AgedState::Held if is_worse => self.look(at_ns, number, aged.put_ns),
            AgedState::Held => {}
            AgedState::Kept(policy, spans) => self.follow(at_ns, number, (policy, spans), false),
        }
        if is_failed {
            self.note_error(at_ns, number);
        }
        self.await_next(number);
    }

    /// The root of such a trace ends.
    pub(super) fn end_old(&mut self, at_ns: u64, number: u32) {
        let (Some(aged), Some(old)) = (self.outcomes.aged.get(&number), self.old.get_mut(&number)) else {
            return;
        };
        let was_gone = old.state == AgedState::GivenUp;
        old.is_failed |= aged.root_failed && !was_gone;
        match old.state {
            AgedState::GivenUp => {}
            AgedState::Held => self.look(at_ns, number, self.outcomes.outcomes[number as usize].duration_ns),
            AgedState::Kept(policy, spans) => self.follow(at_ns, number, (policy, spans), true),
        }
        if aged.root_failed && !was_gone {
            self.note_error(at_ns, number);
        }
        if let Some(Old { state: AgedState::Kept(_, spans), .. }) = self.old.get(&number) {
            let arrival = &self.workload.arrivals()[number as usize];
            let taken = taken_by(arrival, &self.outcomes.tail, *spans);
            self.run.tail_bytes += part_of(arrival.bytes, taken, arrival.otlp_bytes);
        }
    }

    fn note_error(&self, at_ns: u64, number: u32) {
        let key = self.sampler.key(self.workload.key(&self.workload.arrivals()[number as usize]));
        self.sampler.note_error(key, Nanos::new(at_ns));
    }

    fn await_next(&mut self, number: u32) {
        let (Some(aged), Some(old)) = (self.outcomes.aged.get(&number), self.old.get(&number)) else {
            return;
        };
        if let Some((after_ns, _)) = aged.later.get(old.next) {
            let at_ns = old.began_ns.saturating_add(*after_ns);
            self.pending.push(Reverse((at_ns, Happening::Late, number)));
        }
    }

    /// Lets the policies evaluate a trace in the ring. Its root has lasted for `duration_ns` so
    /// far.
    fn look(&mut self, at_ns: u64, number: u32, duration_ns: u64) {
        let (outcomes, workload) = (self.outcomes, self.workload);
        let (Some(aged), Some(old)) = (outcomes.aged.get(&number), self.old.get_mut(&number)) else { return };
        let after_ns = at_ns - old.began_ns;
        let Some(look) = aged.looks.iter().rfind(|look| look.after_ns <= after_ns) else { return };
        let arrival = &workload.arrivals()[number as usize];
        let trace = Trace {
            key: self.sampler.key(workload.key(arrival)),
            now: Nanos::new(at_ns),
            duration: Nanos::new(duration_ns),
            severity: if old.is_failed { Severity::Error } else { Severity::Fine },
            shape: look.shape,
            bytes: taken_by(arrival, &outcomes.tail, look.spans),
            view: &Attributes { outcomes, sets: &look.sets },
        };
        if let Decided::Kept(policy) = self.sampler.decide(&trace) {
            old.state = AgedState::Kept(policy, look.spans.min(Tail::TRACE_SPANS_MAX as u64));
            self.run.kept.push(number);
            self.release(number);
        }
    }

    /// A span ends in a trace that was kept. It follows if its policy has bytes left; the root
    /// always follows.
    fn follow(&mut self, at_ns: u64, number: u32, (policy, spans): (usize, u64), is_root: bool) {
        let arrival = &self.workload.arrivals()[number as usize];
        let key = self.sampler.key(self.workload.key(arrival));
        let bytes = part_of(arrival.otlp_bytes, 1, arrival.spans.into());
        let follows = spans < Tail::TRACE_SPANS_MAX as u64
            && self.sampler.may_follow(policy, key, bytes, Nanos::new(at_ns));
        if let Some(old) = self.old.get_mut(&number).filter(|_| follows || is_root) {
            old.state = AgedState::Kept(policy, spans + 1);
        }
    }
}
