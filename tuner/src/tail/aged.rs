//! Traces whose root is open for longer than a service waits for it: they are put to the policies
//! at that age, as far as they are.
//!
//! As in a service: one in which nothing has ended by then waits for the first span that does. One
//! that is kept is followed by the rest of its spans, within its policy's bytes; another one is
//! held, and put to the policies again if a span fails meanwhile, or the root ends. What ends later
//! is late.

use std::cmp::Reverse;

use astracer_model::Status;
use astracer_recording::recording::{SpanView, TraceView};
use astracer_recording::stop::Pulse;
use astracer_samplers::Nanos;
use astracer_samplers::tail::{Decided, Severity, Tail, Trace};

use super::shape::Shaper;
use super::{Attributes, Happening, Replay, State, part_of, taken_by};

/// A trace that is put to the policies while its root is open. Times are from the root's start, in
/// ns.
#[derive(Clone, Debug)]
pub(super) struct Aged {
    /// When it is put to them.
    pub(super) put_ns: u64,
    pub(super) root_failed: bool,
    /// When spans end after that, and whether they fail; without the root.
    later: Vec<(u64, bool)>,
    /// The trace as it is when policies look: at its age, when the first span fails after that, and
    /// at the root's end; without those that come when it is held no more.
    looks: Vec<Look>,
}

/// A trace as it is at a time, or later.
#[derive(Clone, Debug)]
struct Look {
    after_ns: u64,
    spans: u64,
    is_failed: bool,
    shape: u64,
    sets: Vec<u32>,
}

/// The time from the root's start to a span's end; all have ended when the root does.
fn ended_ns(root: SpanView<'_>, span: SpanView<'_>) -> u64 {
    span.start().since(root.start()).saturating_add(span.duration_ns()).min(root.duration_ns())
}

impl Aged {
    /// `Some(None)` of a trace whose root ends in time, or before any other span does; `None` if
    /// asked to stop. `set_of` has the set of a span's attributes.
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
        let held_until = put_ns.saturating_add(tail.hold.get());
        let again = first_failed.map(|(ns, _)| *ns).into_iter().chain([root.duration_ns()]);
        let mut looks = Vec::new();
        for after_ns in [put_ns].into_iter().chain(again.filter(|ns| *ns <= held_until)) {
            // At its end the root is the last span.
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

/// The state of a trace that was put to the policies for its age.
#[derive(Debug)]
pub(super) struct Old {
    began_ns: u64,
    state: AgedState,
    is_failed: bool,
    /// The place of the next span in [`Aged::later`].
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

    /// Whether policies saw that it failed.
    pub(super) fn is_failed(&self) -> bool {
        self.is_failed
    }

    /// It leaves the ring.
    pub(super) fn release(&mut self) {
        if self.state == AgedState::Held {
            self.state = AgedState::GivenUp;
        }
    }
}

impl Replay<'_> {
    /// A trace is as old as it may be, and a span of it has ended.
    pub(super) fn age(&mut self, at_ns: u64, number: u32) {
        if self.states[number as usize] != State::Recorded {
            return;
        }
        let Some(aged) = self.outcomes.aged.get(&number) else { return };
        if !self.ring.holds(number) {
            // There was no room for any of it, and its root comes too late.
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
        let released_ns = at_ns.saturating_add(self.outcomes.tail.hold.get());
        self.pending.push(Reverse((released_ns, Happening::Released, number)));
    }

    /// A span of a trace ends that was put to the policies before.
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

    /// Its root ends.
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

    /// The policies look at a trace in the ring, whose root has this duration so far.
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

    /// A span ends whose trace was kept: it has the rest of the policy's bytes, and the root needs
    /// none.
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
