//! Replays late keeping: which traces policies would keep among those that the sampler drops, how
//! many bytes that takes, and how full the ring gets.
//!
//! The sampler decides when a trace begins. The policies (`astracer_samplers::tail`, as in a
//! service) decide when its root ends, about dropped traces that are recorded provisionally. Time
//! is that of the draw. Simplifications:
//!
//! - A trace is treated as if it belonged to one process: its root is the local root, and all of
//!   its spans have been seen when the root ends.
//! - A recorded trace takes all of its bytes, as OTLP protobuf, from its beginning, so the ring is
//!   fuller than in a service. A trace that exceeds a quarter of the ring or 10,000 spans is cut to
//!   that size, but never below the size of its root; policies still see all of its spans. If the
//!   ring is smaller than the root, policies evaluate the trace only if it fails, and only its root
//!   is kept.
//! - A trace whose root is open for more than 30 s, a service's default, is evaluated at that age,
//!   as in a service (which may wait longer, see `with_trace_age_max`). All spans are taken to have
//!   ended when the root does.
//! - An error is a span status. Events of level ERROR are not read from recordings.
//! - Attributes are those of any span of the trace, as text; lists are not supported. Resource
//!   attributes do not count, as in a service. Attributes that a service adds only on export, after
//!   its policies have run, are visible here (see [`Outcomes::added`]). A policy that is a custom
//!   function keeps nothing.

mod added;
mod aged;
mod shape;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use astracer_model::{Status, TraceId};
use astracer_recording::recording::{Recording, SpanView, TraceView};
use astracer_samplers::strata::Record;
use astracer_samplers::tail::{
    Decided, Ended, Limits, Policy, PolicyCounts, ProvisionalMode, Quantile, Rule, Severity, Slow, SlowFrom,
    Tail, TailSampler, Trace, Value, View,
};
use astracer_samplers::{Nanos, Randomness};
use serde::Serialize;

use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::replay::Numbers;
use crate::statistics::{MeanSd, quantile_of};
use crate::stop::Stop;
use crate::workload::{Arrival, Workload};
use aged::{Aged, Old};
use shape::Shaper;

/// The outcome of each trace of a recording, as far as policies depend on it.
#[derive(Clone, Debug)]
pub struct Outcomes {
    tail: Tail,
    outcomes: Vec<TraceOutcome>,
    /// The attributes that policies use; `sets` has the different sets of their values on spans.
    attributes: Vec<String>,
    sets: Vec<Vec<Option<String>>>,
    /// The sets of the spans of arrival `n` are `sets_of[first_set of n..first_set of n + 1]`.
    sets_of: Vec<u32>,
    /// Traces whose root is open for too long, by arrival.
    aged: HashMap<u32, Aged>,
}

/// The outcome of one trace.
#[derive(Clone, Copy, Debug)]
struct TraceOutcome {
    /// The duration of the root.
    duration_ns: u64,
    /// The time from the root's start to the end of the first span that failed.
    failed_after_ns: Option<u64>,
    /// A hash of the call tree's shape; 0 if no policy uses it.
    shape: u64,
    first_set: u32,
}

impl Outcomes {
    /// Reads the outcomes from a recording, which must have been made with [`attributes`] among its
    /// own labels. `None` if asked to stop.
    pub fn new(recording: &Recording, tail: &Tail, stop: Stop<'_>) -> Option<Self> {
        let attributes = attributes(tail);
        let (others, own) = (recording.label_keys().len(), recording.own_label_keys());
        let place = |name| own.iter().position(|label| label == name).map(|place| others + place);
        let places: Vec<_> = attributes.iter().map(place).collect();
        let (mut sets, mut sets_of, mut known) = (Vec::new(), Vec::new(), HashMap::new());
        // The last trace that added each set, so that a trace adds it only once.
        let mut last_of: Vec<usize> = Vec::new();
        let mut shaper = tail.rules.iter().any(|rule| rule.policy == Policy::Odd).then(Shaper::default);
        let mut outcomes = Vec::with_capacity(recording.trace_count());
        let mut aged = HashMap::new();
        let mut pulse = stop.pulse();
        for (at, trace) in recording.traces().enumerate() {
            let first_set = sets_of.len();
            let shape =
                shaper.as_mut().map_or(Some(0), |shaper| shaper.shape(trace, |_| true, &mut pulse))?;
            outcomes.push(outcome(trace, shape, first_set as u32));
            let labelled = trace.spans().filter(|_| !attributes.is_empty());
            for set in labelled.filter_map(SpanView::label_symbol) {
                let number = *known.entry(set).or_insert_with(|| {
                    let value = |place: &Option<usize>| recording.label_values(set).nth((*place)?).flatten();
                    sets.push(places.iter().map(|place| value(place).map(str::to_owned)).collect());
                    last_of.push(usize::MAX);
                    sets.len() as u32 - 1
                });
                if std::mem::replace(&mut last_of[number as usize], at) != at {
                    sets_of.push(number);
                }
            }
            let set_of = |span: SpanView<'_>| known.get(&span.label_symbol()?).copied();
            let old = Aged::new(trace, tail, shaper.as_mut(), set_of, &mut pulse)?;
            aged.extend(old.map(|old| (at as u32, old)));
            if pulse.stopped_after(trace.span_count()) {
                return None;
            }
        }
        Some(Self { tail: tail.clone(), outcomes, attributes, sets, sets_of, aged })
    }

    /// Learns from which durations on roots are slow, for policies such as `slow:p99`: the quantile
    /// of each key that has enough calls in the whole recording, for times in which it has too few.
    pub fn learn_slow(&mut self, workload: &Workload) {
        let quantiles = self.tail.rules.iter().filter_map(|rule| match rule.policy {
            Policy::Slow(Slow::Quantile(quantile)) => Some(quantile),
            _ => None,
        });
        let quantiles: Vec<Quantile> = quantiles.collect();
        if quantiles.is_empty() {
            return;
        }
        let mut durations: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (arrival, outcome) in workload.arrivals().iter().zip(&self.outcomes) {
            durations.entry(workload.key(arrival)).or_default().push(outcome.duration_ns as f64);
        }
        let mut learnt = Vec::new();
        for (key, mut durations) in durations {
            durations.sort_unstable_by(f64::total_cmp);
            let known = quantiles.iter().filter(|quantile| durations.len() as u64 >= quantile.calls_min());
            learnt.extend(known.map(|&quantile| {
                let from = Nanos::new(quantile_of(&durations, quantile.get()) as u64);
                SlowFrom { key: key.to_owned(), quantile, from }
            }));
        }
        self.tail.slow_from = learnt;
    }

    /// Sets which dropped traces are recorded. Recorded outcomes do not depend on it.
    pub fn set_provisional(&mut self, mode: ProvisionalMode) {
        self.tail.provisional = mode;
    }

    /// The policies.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Attributes that policies name but no span carries; probably misspelt.
    pub fn absent(&self) -> Vec<&str> {
        let mut present = vec![false; self.attributes.len()];
        for set in &self.sets {
            present.iter_mut().zip(set).for_each(|(present, value)| *present |= value.is_some());
        }
        let absent = self.attributes.iter().zip(present).filter(|(_, present)| !present);
        absent.map(|(name, _)| name.as_str()).collect()
    }

    /// Replays the policies behind a sampler on each of some draws. Draws that were not finished
    /// before a stop are left out; `None` if there are no others.
    pub fn replay(
        &self,
        workload: &Workload,
        sampler: &Candidate,
        draws: &[Draw],
        stop: Stop<'_>,
    ) -> Option<TailSummary> {
        let runs: Vec<Run> =
            draws.iter().filter_map(|draw| self.run(workload, sampler, draw, stop)).collect();
        (!runs.is_empty()).then(|| self.summary(workload, sampler, &runs))
    }

    /// The ids of the traces that the policies keep behind a sampler on one draw, in the order in
    /// which they are kept.
    pub fn kept(&self, workload: &Workload, sampler: &Candidate, draw: &Draw) -> Vec<TraceId> {
        let run = self.run(workload, sampler, draw, Stop::never());
        run.iter().flat_map(Run::kept).map(|arrival| workload.trace_id(arrival)).collect()
    }

    fn run(&self, workload: &Workload, sampler: &Candidate, draw: &Draw, stop: Stop<'_>) -> Option<Run> {
        let mut states = vec![State::Dropped; workload.arrivals().len()];
        if !sampler.replay(workload, draw, stop, |arrival, _| states[arrival] = State::ByHead) {
            return None;
        }
        // Policies see all traces that strata record.
        let records_all = matches!(sampler, Candidate::Late(late, _) if late.strata.record() == Record::All);
        self.run_behind(workload, (states, records_all), draw, stop)
    }

    /// Replays the policies behind a sampler that keeps these traces on a draw: places in
    /// [`Workload::arrivals`]. `None` if asked to stop.
    pub fn replay_behind(
        &self,
        workload: &Workload,
        head: &[usize],
        draw: &Draw,
        stop: Stop<'_>,
    ) -> Option<Run> {
        let mut states = vec![State::Dropped; workload.arrivals().len()];
        head.iter().for_each(|&arrival| states[arrival] = State::ByHead);
        self.run_behind(workload, (states, false), draw, stop)
    }

    fn run_behind(
        &self,
        workload: &Workload,
        (states, records_all): (Vec<State>, bool),
        draw: &Draw,
        stop: Stop<'_>,
    ) -> Option<Run> {
        let mut replay = Replay::new(self, workload, (states, records_all));
        let mut numbers = Numbers::new(workload, draw);
        for (place, (at_ns, arrival)) in draw.arrivals(workload, stop)?.into_iter().enumerate() {
            if stop.is_asked_at(place) {
                return None;
            }
            let randomness = numbers.of((workload, arrival as usize), draw);
            replay.until(at_ns);
            replay.begin(at_ns, arrival, randomness);
        }
        replay.until(u64::MAX);
        Some(replay.finish())
    }

    /// The sets of attributes of an arrival's spans.
    fn sets_of(&self, arrival: usize) -> &[u32] {
        let end = self.outcomes.get(arrival + 1).map_or(self.sets_of.len(), |next| next.first_set as usize);
        &self.sets_of[self.outcomes[arrival].first_set as usize..end]
    }

    /// The means over runs behind one sampler.
    pub fn summary(&self, workload: &Workload, sampler: &Candidate, runs: &[Run]) -> TailSummary {
        let of = |number: &dyn Fn(&Run) -> f64| MeanSd::of(runs.iter().map(number));
        let all_bytes = workload.arrivals().iter().map(|arrival| arrival.bytes).sum::<u64>().max(1) as f64;
        let policies = self.tail.rules.iter().enumerate().map(|(at, rule)| PolicySummary {
            policy: rule.to_string(),
            kept: of(&|run| run.policies[at].kept as f64),
            kept_otlp_bytes: of(&|run| run.policies[at].kept_bytes as f64),
            refused: of(&|run| run.policies[at].refused as f64),
        });
        let is_slow_asked = self.tail.rules.iter().any(|rule| matches!(rule.policy, Policy::Slow(_)));
        TailSummary {
            sampler: sampler.to_string(),
            policies: policies.collect(),
            head: of(&|run| run.head_bytes as f64 / all_bytes),
            head_traces: of(&|run| run.head_traces as f64),
            tail: of(&|run| run.tail_bytes as f64 / all_bytes),
            traces: of(&|run| run.kept.len() as f64),
            recorded: of(&|run| run.recorded as f64),
            errors: self.outcomes.iter().filter(|outcome| outcome.failed_after_ns.is_some()).count() as u64,
            errors_kept: of(&|run| run.errors_kept as f64),
            errors_not_recorded: of(&|run| run.errors_not_recorded as f64),
            ring_peak_bytes: of(&|run| run.ring_peak_bytes as f64),
            given_up: of(&|run| run.given_up as f64),
            errors_given_up: of(&|run| run.errors_given_up as f64),
            errors_refused: of(&|run| run.errors_refused as f64),
            errors_late: of(&|run| run.errors_late as f64),
            slow_not_recorded: is_slow_asked.then(|| of(&|run| run.slow_not_recorded as f64)),
            slow_unknown: is_slow_asked.then(|| of(&|run| run.slow_unknown as f64)),
        }
    }
}

/// The attributes that policies use.
pub fn attributes(tail: &Tail) -> Vec<String> {
    let of_rule = |rule: &Rule| match &rule.policy {
        Policy::Attribute(condition) => Some(condition.name().to_owned()),
        _ => None,
    };
    let names: BTreeSet<String> = tail.rules.iter().filter_map(of_rule).collect();
    names.into_iter().collect()
}

/// The bytes recorded of a trace, which a service limits by spans and by bytes.
fn taken_of(arrival: &Arrival, tail: &Tail) -> u64 {
    taken_by(arrival, tail, arrival.spans.into())
}

/// The bytes recorded of a trace while it has this number of spans; at least those of one span.
fn taken_by(arrival: &Arrival, tail: &Tail, spans: u64) -> u64 {
    let within = (Tail::TRACE_SPANS_MAX as u64).min(spans);
    let [bytes, root] = [within, 1].map(|part| part_of(arrival.otlp_bytes, part, arrival.spans.into()));
    bytes.min((tail.ring_bytes / Tail::TRACE_PART) as u64).max(root)
}

/// `whole * part / all`, but at most `whole`.
fn part_of(whole: u64, part: u64, all: u64) -> u64 {
    if part >= all { whole } else { (u128::from(whole) * u128::from(part) / u128::from(all.max(1))) as u64 }
}

fn outcome(trace: TraceView<'_>, shape: u64, first_set: u32) -> TraceOutcome {
    let root = trace.root();
    let failed = trace.spans().filter(|span| span.status() == Status::Error);
    let ended = |span: SpanView<'_>| span.start().since(root.start()).saturating_add(span.duration_ns());
    TraceOutcome {
        duration_ns: root.duration_ns(),
        failed_after_ns: failed.map(ended).min(),
        shape,
        first_set,
    }
}

/// The results of policies behind one sampler, over some draws.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TailSummary {
    /// The sampler in front of the policies.
    pub sampler: String,
    /// The results of each policy.
    pub policies: Vec<PolicySummary>,
    /// The share of the bytes that the sampler keeps.
    pub head: MeanSd,
    /// Traces that the sampler keeps.
    pub head_traces: MeanSd,
    /// The share of the bytes that the policies keep in addition.
    pub tail: MeanSd,
    /// Traces that the policies keep.
    pub traces: MeanSd,
    /// Traces that the sampler dropped but that were recorded provisionally.
    pub recorded: MeanSd,
    /// Traces of the recording with a failed span.
    pub errors: u64,
    /// Failed traces that the sampler or a policy kept.
    pub errors_kept: MeanSd,
    /// Failed traces that were not recorded, because their key was not armed.
    pub errors_not_recorded: MeanSd,
    /// The most bytes in the ring at any time.
    pub ring_peak_bytes: MeanSd,
    /// Recorded traces that were evicted from the full ring before a policy evaluated them.
    pub given_up: MeanSd,
    /// Failed traces among these.
    pub errors_given_up: MeanSd,
    /// Recorded failed traces that no policy kept, because none keeps errors or its budget was used
    /// up.
    pub errors_refused: MeanSd,
    /// Recorded traces that failed only after policies had evaluated them at their maximum age and
    /// the ring had released them.
    pub errors_late: MeanSd,
    /// Traces slower than a `slow` policy's duration that were not recorded, because their key was
    /// not armed. `None` without such a policy.
    pub slow_not_recorded: Option<MeanSd>,
    /// Traces that ended while their key had too few calls for the quantile of a `slow` policy.
    /// They may have been slow. `None` without such a policy.
    pub slow_unknown: Option<MeanSd>,
}

/// The results of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PolicySummary {
    /// The policy as text, with its budget unless that is the default.
    pub policy: String,
    /// Traces that it kept.
    pub kept: MeanSd,
    /// The size of these traces as OTLP protobuf messages, which is what budgets count.
    pub kept_otlp_bytes: MeanSd,
    /// Traces that it would have kept if its budget had not been used up.
    pub refused: MeanSd,
}

/// The counts of one replay.
#[derive(Debug, Default)]
pub struct Run {
    policies: Vec<PolicyCounts>,
    head_bytes: u64,
    head_traces: u64,
    tail_bytes: u64,
    /// The arrivals that the policies kept.
    kept: Vec<u32>,
    recorded: u64,
    errors_kept: u64,
    errors_not_recorded: u64,
    ring_peak_bytes: u64,
    given_up: u64,
    errors_given_up: u64,
    errors_refused: u64,
    errors_late: u64,
    slow_not_recorded: u64,
    slow_unknown: u64,
}

impl Run {
    /// The traces that the policies kept, as places in [`Workload::arrivals`], in order of keeping.
    pub fn kept(&self) -> impl Iterator<Item = usize> {
        self.kept.iter().map(|&arrival| arrival as usize)
    }
}

/// An event in the life of a trace after its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    // The order of variants is the order of events at the same time.
    /// A span failed: the trace is marked, so that ordinary traces are evicted before it.
    Failed,
    /// A span other than the root ended after the trace was evaluated at its maximum age.
    Late,
    Ended,
    /// The trace reached its maximum age.
    Aged,
    /// The time for which the ring holds it has passed.
    Released,
}

/// A replay in progress.
struct Replay<'a> {
    outcomes: &'a Outcomes,
    workload: &'a Workload,
    sampler: TailSampler,
    records_all: bool,
    /// The state of each arrival.
    states: Vec<State>,
    old: HashMap<u32, Old>,
    pending: BinaryHeap<Reverse<(u64, Happening, u32)>>,
    ring: Ring,
    run: Run,
}

/// The state of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The sampler dropped it and it was not recorded.
    Dropped,
    /// The sampler kept it.
    ByHead,
    /// It is recorded, and in the ring.
    Recorded,
    /// It was recorded, but evicted from the ring before its end.
    GivenUp,
    /// Policies evaluated it at its maximum age, and its root is still open.
    Old,
    /// Its root has ended, and policies evaluated it then.
    Decided,
}

impl<'a> Replay<'a> {
    fn new(
        outcomes: &'a Outcomes,
        workload: &'a Workload,
        (states, records_all): (Vec<State>, bool),
    ) -> Self {
        Self {
            records_all,
            outcomes,
            workload,
            sampler: TailSampler::new(&outcomes.tail, Limits::single_threaded()),
            states,
            old: HashMap::new(),
            pending: BinaryHeap::new(),
            ring: Ring::default(),
            run: Run::default(),
        }
    }

    fn begin(&mut self, at_ns: u64, number: u32, randomness: Randomness) {
        let (arrival, outcome) =
            (&self.workload.arrivals()[number as usize], &self.outcomes.outcomes[number as usize]);
        let ended_ns = at_ns.saturating_add(outcome.duration_ns);
        self.pending.push(Reverse((ended_ns, Happening::Ended, number)));
        if self.states[number as usize] == State::ByHead {
            self.run.head_bytes += arrival.bytes;
            self.run.head_traces += 1;
            return;
        }
        let key = self.sampler.key(self.workload.key(arrival));
        if !self.sampler.is_recorded(key, randomness, Nanos::new(at_ns)) && !self.records_all {
            return;
        }
        self.run.recorded += 1;
        self.states[number as usize] = State::Recorded;
        if let Some(after_ns) = outcome.failed_after_ns {
            let failed_ns = at_ns.saturating_add(after_ns).min(ended_ns);
            self.pending.push(Reverse((failed_ns, Happening::Failed, number)));
        }
        if let Some(aged) = self.outcomes.aged.get(&number) {
            self.pending.push(Reverse((at_ns.saturating_add(aged.put_ns), Happening::Aged, number)));
        }
        let taken = taken_of(arrival, &self.outcomes.tail);
        if taken > self.outcomes.tail.ring_bytes as u64 {
            // Evicting others cannot make enough space for this root. A service still keeps the
            // root if something failed before its end.
            if outcome.failed_after_ns.is_none() {
                self.states[number as usize] = State::GivenUp;
                self.run.given_up += 1;
            }
            return;
        }
        self.ring.add(at_ns, number, taken);
        // As in a service, only ordinary traces that have ended are evicted. Open traces are not
        // evicted for a trace about which nothing is known yet.
        while self.ring.bytes > self.outcomes.tail.ring_bytes as u64 {
            let lowest = self.ring.ended_ordinary().unwrap_or(number);
            self.release(lowest);
            if lowest == number {
                break;
            }
        }
        self.run.ring_peak_bytes = self.run.ring_peak_bytes.max(self.ring.bytes);
    }

    /// Processes all events up to this time.
    fn until(&mut self, at_ns: u64) {
        while let Some(&Reverse((next_ns, happening, number))) = self.pending.peek() {
            if next_ns > at_ns {
                return;
            }
            self.pending.pop();
            match happening {
                Happening::Failed => self.ring.mark(number),
                Happening::Late => self.end_late(next_ns, number),
                Happening::Ended => self.end(next_ns, number),
                Happening::Aged => self.age(next_ns, number),
                Happening::Released => self.release(number),
            }
        }
    }

    fn release(&mut self, number: u32) {
        let bytes = taken_of(&self.workload.arrivals()[number as usize], &self.outcomes.tail);
        let state = &mut self.states[number as usize];
        if self.ring.remove(number, bytes) && *state == State::Recorded {
            *state = State::GivenUp;
            self.run.given_up += 1;
        }
        if let Some(old) = self.old.get_mut(&number) {
            old.release();
        }
    }

    fn end(&mut self, at_ns: u64, number: u32) {
        let (outcomes, workload) = (self.outcomes, self.workload);
        let (arrival, outcome) = (&workload.arrivals()[number as usize], &outcomes.outcomes[number as usize]);
        let (now, duration) = (Nanos::new(at_ns), Nanos::new(outcome.duration_ns));
        let taken = taken_of(arrival, &outcomes.tail);
        let (key, state) = (self.sampler.key(workload.key(arrival)), self.states[number as usize]);
        let is_error = outcome.failed_after_ns.is_some();
        // An evicted trace was recorded, so it does not count as missed by arming.
        let is_recorded = state != State::Dropped;
        // If it was evaluated at its maximum age, its end counts as an error only if the root
        // failed.
        let aged = outcomes.aged.get(&number).filter(|_| is_recorded);
        let counts_error = aged.map_or(is_error, |aged| aged.root_failed);
        self.run.slow_unknown += u64::from(self.sampler.lacks_quantile(key));
        self.sampler.count(key, 0, &Ended { now, duration, is_error: counts_error, is_recorded });
        if state == State::Old {
            self.end_old(at_ns, number);
        }
        let old = self.old.remove(&number);
        let is_kept = match state {
            State::ByHead => true,
            State::Old => old.as_ref().is_some_and(Old::is_kept),
            State::Recorded => {
                self.states[number as usize] = State::Decided;
                let trace = Trace {
                    key,
                    now,
                    duration,
                    severity: if is_error { Severity::Error } else { Severity::Fine },
                    shape: outcome.shape,
                    bytes: taken,
                    view: &Attributes { outcomes, sets: outcomes.sets_of(number as usize) },
                };
                // A service's budget that is less than half full chooses by chance; here it admits
                // traces in their order, at the same rate.
                matches!(self.sampler.decide(&trace), Decided::Kept(_))
            }
            _ => false,
        };
        if is_error {
            let count = match state {
                _ if is_kept => &mut self.run.errors_kept,
                State::Dropped => &mut self.run.errors_not_recorded,
                State::GivenUp => &mut self.run.errors_given_up,
                State::Old if !old.is_some_and(|old| old.is_failed()) => &mut self.run.errors_late,
                _ => &mut self.run.errors_refused,
            };
            *count += 1;
        }
        if state != State::Recorded {
            return;
        }
        if is_kept {
            self.run.kept.push(number);
            self.run.tail_bytes += part_of(arrival.bytes, taken, arrival.otlp_bytes);
            self.release(number);
        } else {
            self.ring.end(number, at_ns);
            let released_ns = at_ns.saturating_add(outcomes.tail.held_for().get());
            self.pending.push(Reverse((released_ns, Happening::Released, number)));
        }
    }

    fn finish(self) -> Run {
        let slow_not_recorded = self.sampler.outcomes().iter().map(|key| key.missed_slow).sum();
        Run { policies: self.sampler.counts(), slow_not_recorded, ..self.run }
    }
}

/// The attributes of one trace's spans.
struct Attributes<'a> {
    outcomes: &'a Outcomes,
    sets: &'a [u32],
}

impl View for Attributes<'_> {
    fn any_attribute(&self, name: &str, test: &mut dyn FnMut(Value<'_>) -> bool) -> bool {
        let Some(place) = self.outcomes.attributes.iter().position(|known| known == name) else {
            return false;
        };
        let values = self.sets.iter().filter_map(|&set| self.outcomes.sets[set as usize][place].as_deref());
        values.into_iter().any(|value| test(Value::Text(value)))
    }
}

/// The recorded traces, by value and age, in four sets: ordinary ended traces (by end), ordinary
/// open traces, and the same for failed traces.
#[derive(Debug, Default)]
struct Ring {
    bytes: u64,
    traces: [BTreeSet<(u64, u32)>; 4],
    /// For each arrival, its start or end, and its set in `traces`.
    places: HashMap<u32, (u64, usize)>,
}

/// Bits of an index into [`Ring::traces`].
const OPEN: usize = 1;
const FAILED: usize = 2;

impl Ring {
    fn add(&mut self, at_ns: u64, number: u32, bytes: u64) {
        self.bytes += bytes;
        self.traces[OPEN].insert((at_ns, number));
        self.places.insert(number, (at_ns, OPEN));
    }

    /// Whether the trace is in the ring.
    fn holds(&self, number: u32) -> bool {
        self.places.contains_key(&number)
    }

    /// Marks a trace with a failed span.
    fn mark(&mut self, number: u32) {
        self.change(number, |at_ns, place| (at_ns, place | FAILED));
    }

    /// Marks a trace that has ended without being kept.
    fn end(&mut self, number: u32, ended_ns: u64) {
        self.change(number, |_, place| (ended_ns, place & !OPEN));
    }

    fn change(&mut self, number: u32, to: impl Fn(u64, usize) -> (u64, usize)) {
        if let Some((at_ns, place)) = self.places.get_mut(&number) {
            self.traces[*place].remove(&(*at_ns, number));
            (*at_ns, *place) = to(*at_ns, *place);
            self.traces[*place].insert((*at_ns, number));
        }
    }

    /// Returns false if the trace is not in the ring.
    fn remove(&mut self, number: u32, bytes: u64) -> bool {
        let Some((at_ns, place)) = self.places.remove(&number) else { return false };
        self.traces[place].remove(&(at_ns, number));
        self.bytes -= bytes;
        true
    }

    /// The ordinary trace that ended first.
    fn ended_ordinary(&self) -> Option<u32> {
        self.traces[0].first().map(|&(_, number)| number)
    }
}

#[cfg(test)]
mod tests;
