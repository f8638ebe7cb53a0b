//! The decider of a process, which both the layer and the
//! [`ShouldSample`](opentelemetry_sdk::trace::ShouldSample) ask.
//!
//! A parent's decision is respected, whether it arrived over the wire or comes from code on the
//! OpenTelemetry API. The flag and the trace state are passed on, without a threshold that
//! contradicts the flag. The sampler is asked only about traces without such a parent, once each.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};

#[cfg(feature = "parameters")]
use astracer_samplers::tail::Tail;
use astracer_samplers::tail::{Boosting, KeyNumber, TailSampler};
use astracer_samplers::tracestate::OtMember;
use astracer_samplers::{
    Decision, Meter, Nanos, Randomness, Reason, Request, Sampler, Stratified, Threshold,
};
use opentelemetry::trace::{SpanContext, TraceState};
use opentelemetry::{Context, KeyValue, TraceId};
use tracing_core::Metadata;

use crate::decision_time::DecisionTime;
use crate::kept_keys::{KeptKeys, KeyOf};
use crate::key::{Key, Root};
use crate::live::{Copied, Live};
use crate::propagation::is_undecided;
use crate::rules::Rules;
use crate::why::Why;
use astracer_spans::clock::{Clock, Ticks};
use astracer_spans::late::CurrentStrata;
use astracer_spans::panics::caught;
use astracer_spans::reentry::{Busy, ReentryGuard};
use astracer_spans::stats::{Counters, Tally};
use astracer_spans::sync::statics::{AtomicBool, AtomicU64, Ordering};
use astracer_spans::trace_state::{self, State};
use astracer_spans::weight::{self, Weighing};

#[derive(Debug)]
pub(crate) struct Decider {
    number: u64,
    pub(crate) rules: Live<Rules>,
    pub(crate) key: Key,
    pub(crate) parents: ParentDecision,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    /// The samplers' time at the clock's origin. Not zero if they continue from a snapshot of an
    /// earlier process.
    pub(crate) base: Nanos,
    time: DecisionTime,
    /// The randomness of traces that begin here; `None` if it comes from their ids.
    pub(crate) stratified: Option<Stratified>,
    pub(crate) describes: bool,
    /// Whether the text of a root's key is passed on to the observer.
    pub(crate) passes_keys: bool,
    pub(crate) why: Option<Why>,
    /// The keys of kept traces. Created before the first cap on a key's bytes takes effect.
    kept_keys: OnceLock<KeptKeys>,
    /// Whether decisions are noted, for `why` or `kept_keys`.
    notes: AtomicBool,
    /// The traces that parents in other processes keep, if the cap bounds them.
    followed: Meter,
    /// The strata of the rules, for the ends of traces.
    pub(crate) strata: Arc<CurrentStrata>,
    /// Policies at the end of traces, which count roots by key, even those that a parent decided.
    pub(crate) tail: Option<Arc<TailSampler>>,
    /// The policies that the service was started with, and those of its parameters file, which code
    /// may have overridden.
    #[cfg(feature = "parameters")]
    pub(crate) policies: [Tail; 2],
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// The number of deciders whose rules a thread caches: those that it asked last.
const COPIES: usize = 2;

/// A thread's copy of a decider's rules, and the decider's number; 0: none.
type ThreadCopy = RefCell<(u64, Option<Copied<Rules>>)>;

const NUMBERS_MAX: usize = 64;

/// A callsite (the address of its metadata), a decider's number, and the number of the name's key.
type KnownNumber = Cell<(usize, u64, KeyNumber)>;

thread_local! {
    static NUMBERS: [KnownNumber; NUMBERS_MAX] =
        const { [const { Cell::new((0, 0, KeyNumber::OTHERS)) }; NUMBERS_MAX] };
    static RULES: [ThreadCopy; COPIES] = const { [const { RefCell::new((0, None)) }; COPIES] };
}

/// Whether the decision of a parent in another process holds for a local root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParentDecision {
    /// The parent's decision holds, so traces are kept whole. Callers decide how many: the cap on
    /// traces does not count theirs.
    #[default]
    Respect,
    /// A parent's decision holds for as many traces as the cap on traces allows. They have an
    /// allowance of their own, of the same size, so callers cannot use up that of traces that begin
    /// here. For a service at the edge that wants whole traces from callers that behave.
    ///
    /// Above the allowance, this process drops its part of a trace and passes the sampled flag on
    /// as 0, so the services that it calls drop theirs, and the caller's part remains. Kept ones
    /// get the true threshold, which the cap may have raised, if the parent's is known.
    RespectWithinCap,
    /// The sampler decides each local root, with the trace's randomness. For a service at the edge
    /// that does not trust its callers. If the caller kept the trace too, both parts belong to one
    /// trace.
    Ignore,
}

#[derive(Debug)]
pub(crate) struct RootDecision {
    pub(crate) keep: bool,
    /// The root's key, if its end is to be counted.
    pub(crate) key: Option<KeyNumber>,
    /// The key's text, if the observer reads it.
    pub(crate) text: Option<Box<str>>,
    pub(crate) trace_state: State,
    pub(crate) attributes: Option<Vec<KeyValue>>,
    pub(crate) weighing: Weighing,
    /// With strata: the threshold with which the trace is recorded, and whether it is.
    pub(crate) recorded: Option<(Threshold, bool)>,
    /// Whether the process with the root records the trace and may keep it by its stratum.
    pub(crate) is_recorded_by_root: bool,
}

/// With which threshold a trace is recorded for its stratum, and whether its randomness reaches it.
fn recorded_by(decision: &Decision, randomness: Randomness) -> Option<(Threshold, bool)> {
    let threshold = decision.threshold.filter(|_| decision.reason == Reason::Strata)?;
    Some((threshold, threshold.keeps(randomness)))
}

fn weighing_of(decision: &Decision) -> Weighing {
    let is_known = decision.threshold.is_some() || decision.reason == Reason::Never;
    if is_known { Weighing::Always } else { Weighing::IfCertain }
}

impl RootDecision {
    pub(crate) const DROP: RootDecision = RootDecision {
        keep: false,
        key: None,
        text: None,
        trace_state: State::EMPTY,
        attributes: None,
        weighing: Weighing::Never,
        recorded: None,
        is_recorded_by_root: false,
    };
}

impl Decider {
    /// A decider with the defaults for all other settings. Call [`Decider::ready`] when they are
    /// set.
    pub(crate) fn new(sampler: Sampler, clock: Clock, counters: Arc<Counters>) -> Self {
        Decider {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            rules: Live::new(Rules::new(Arc::new(sampler))),
            key: Key::default(),
            parents: ParentDecision::default(),
            clock,
            counters,
            base: Nanos::ZERO,
            time: DecisionTime::new(),
            stratified: None,
            describes: false,
            passes_keys: false,
            notes: AtomicBool::new(false),
            why: None,
            kept_keys: OnceLock::new(),
            followed: Meter::default(),
            strata: Arc::default(),
            tail: None,
            #[cfg(feature = "parameters")]
            policies: Default::default(),
        }
    }

    pub(crate) fn ready(self) -> Arc<Self> {
        self.prepare(&self.rules.load());
        Arc::new(self)
    }

    /// Prepares for rules that are about to take effect. Callers must not run it concurrently.
    pub(crate) fn prepare(&self, rules: &Rules) {
        self.strata.set(rules.strata.clone());
        let caps_keys = rules.sampler.cap().key_bytes.is_some();
        if caps_keys {
            self.kept_keys.get_or_init(KeptKeys::default);
        }
        // Relaxed: decisions already under way may miss the change. `kept_keys` is published by its
        // `OnceLock`.
        self.notes.store(caps_keys || self.why.is_some(), Ordering::Relaxed);
    }

    /// Whether this parent's decision holds. A decision made in this process always does. `context`
    /// holds the parent, and may say that the parent left the decision to us.
    pub(crate) fn respects(&self, parent: &SpanContext, context: &Context) -> bool {
        let follows = self.parents != ParentDecision::Ignore && !is_undecided(context);
        parent.is_valid() && (follows || !parent.is_remote())
    }

    pub(crate) fn sampler(&self) -> Arc<Sampler> {
        Arc::clone(&self.rules.load().sampler)
    }

    pub(crate) fn kept_key(&self, trace_id: TraceId) -> KeyOf {
        self.kept_keys.get().map_or(KeyOf::NoKey, |keys| keys.find(trace_id))
    }

    /// Excludes a trace that will be exported from the allowances of keys.
    pub(crate) fn note_keyless(&self, trace_id: TraceId) {
        if let Some(keys) = self.kept_keys.get() {
            keys.note(trace_id, None);
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.time_of(self.clock.ticks())
    }

    #[inline]
    pub(crate) fn time_of(&self, ticks: Ticks) -> Nanos {
        self.base.saturating_add(self.clock.since_origin(ticks))
    }

    #[inline]
    pub(crate) fn decision_time(&self, began: Ticks) -> Nanos {
        self.time.of(self.time_of(began), || self.now())
    }

    #[inline]
    pub(crate) fn key_number(&self, key: &str) -> Option<KeyNumber> {
        let tail = self.tail.as_ref()?;
        let _busy = Busy::mark();
        Some(tail.key(key))
    }

    /// Like [`Decider::key_number`], for the key of a callsite's name, which each thread looks up
    /// once.
    #[inline]
    fn key_number_of(&self, metadata: &'static Metadata<'static>, key: &str) -> Option<KeyNumber> {
        self.tail.as_ref()?;
        let address = std::ptr::from_ref(metadata).addr();
        let place = address / align_of::<Metadata<'static>>() % NUMBERS_MAX;
        let known = NUMBERS.try_with(|places| places[place].get());
        if let Ok((known, decider, number)) = known
            && (known, decider) == (address, self.number)
        {
            return Some(number);
        }
        let number = self.key_number(key)?;
        // An assigned number never changes. A key without one shares [`KeyNumber::OTHERS`] and may
        // get a number later, so that is not remembered.
        if number != KeyNumber::OTHERS {
            let _ = NUMBERS.try_with(|places| places[place].set((address, self.number, number)));
        }
        Some(number)
    }

    #[inline]
    fn text(&self, key: &str) -> Option<Box<str>> {
        self.passes_keys.then(|| key.into())
    }

    /// As [`Decider::follow_counted`], for a root whose end is counted, or whose key is passed on.
    pub(crate) fn follow_with_key(&self, key: &str, parent: &SpanContext) -> RootDecision {
        let (key, text) = (self.key_number(key), self.text(key));
        let decision = self.follow_counted(parent);
        let is_recorded_by_root = !decision.keep && self.strata.is_some() && self.believes_recorded(parent);
        RootDecision { key, text, is_recorded_by_root, ..decision }
    }

    /// Whether the caller says that the trace is recorded. A process whose callers may be anyone
    /// does not record what they say.
    fn believes_recorded(&self, parent: &SpanContext) -> bool {
        self.parents == ParentDecision::Respect
            && parent.is_remote()
            && trace_state::is_recorded(parent.trace_state())
    }

    pub(crate) fn follow_counted(&self, parent: &SpanContext) -> RootDecision {
        let decision = self.follow_remote(parent);
        self.counters.tally(if decision.keep { Tally::ParentsKept } else { Tally::ParentsDropped }, 1);
        if self.notes.load(Ordering::Relaxed) {
            self.note(parent.trace_id(), decision.keep, None);
        }
        decision
    }

    /// Applies the decision of a parent that may be in another process, within the cap if that
    /// bounds such traces.
    pub(crate) fn follow_remote(&self, parent: &SpanContext) -> RootDecision {
        let is_bounded = self.parents == ParentDecision::RespectWithinCap;
        match is_bounded && parent.is_remote() && parent.is_sampled() {
            true => self.follow_within_cap(parent),
            false => self.follow(parent),
        }
    }

    #[cold]
    fn follow_within_cap(&self, parent: &SpanContext) -> RootDecision {
        let state = parent.trace_state();
        let member = trace_state::member(state);
        let randomness = member.randomness.unwrap_or_else(|| weight::of_trace_id(parent.trace_id()));
        // A threshold that contradicts the flag is unknown.
        let threshold = member.threshold.filter(|threshold| threshold.keeps(randomness));
        let followed = Decision { keep: true, threshold, reason: Reason::Parent };
        let now = self.now();
        let decision =
            self.with_rules(|rules| rules.sampler.admit_followed(&self.followed, followed, randomness, now));
        let trace_state = weight::decided(state, member, &decision);
        RootDecision { keep: decision.keep, trace_state, weighing: Weighing::IfCertain, ..RootDecision::DROP }
    }

    pub(crate) fn follow(&self, parent: &SpanContext) -> RootDecision {
        let trace_state = weight::with_flag(parent, parent.is_sampled());
        let keep = parent.is_sampled();
        RootDecision { keep, trace_state, weighing: Weighing::IfCertain, ..RootDecision::DROP }
    }

    /// Asks the sampler about a local root. `parent` is invalid if the root has none; `records`
    /// says whether the caller can record a trace that is decided later.
    pub(crate) fn ask(
        &self,
        key: &str,
        trace_id: TraceId,
        parent: &SpanContext,
        (began, records): (Ticks, bool),
    ) -> RootDecision {
        let state = parent.trace_state();
        let mut member = trace_state::member(state);
        // A trace that began elsewhere already has its randomness: its `rv`, or its id.
        if !parent.is_valid() && member.randomness.is_none() {
            member.randomness = self.stratified_for(key, trace_id);
        }
        let randomness = member.randomness.unwrap_or_else(|| weight::of_trace_id(trace_id));
        let number = self.key_number(key);
        let decision = self.decide((key, number), trace_id, randomness, (began, records));
        let recorded = recorded_by(&decision, randomness);
        RootDecision { recorded, ..self.decided((key, number), &decision, (state, member)) }
    }

    /// Asks the sampler about a local root without a parent, whose key is made of the callsite's
    /// name only.
    pub(crate) fn ask_by_name(
        &self,
        metadata: &'static Metadata<'static>,
        trace_id: TraceId,
        began: Ticks,
    ) -> RootDecision {
        self.key.with_static(metadata, |key| {
            let drawn = self.stratified_for(key, trace_id);
            let randomness = drawn.unwrap_or_else(|| weight::of_trace_id(trace_id));
            let number = self.key_number_of(metadata, key);
            let decision = self.decide((key, number), trace_id, randomness, (began, true));
            let recorded = recorded_by(&decision, randomness);
            // The randomness of a dropped trace is propagated too, so that other processes that
            // decide parts of it compare the same value.
            if !decision.keep && drawn.is_none() {
                let (text, weighing) = (self.text(key), weighing_of(&decision));
                return RootDecision { key: number, text, weighing, recorded, ..RootDecision::DROP };
            }
            let member = OtMember::of_numbers(None, drawn);
            RootDecision { recorded, ..self.decided((key, number), &decision, (&TraceState::NONE, member)) }
        })
    }

    #[inline]
    fn decided(
        &self,
        (key, number): (&str, Option<KeyNumber>),
        decision: &Decision,
        (state, member): (&TraceState, OtMember<'_>),
    ) -> RootDecision {
        RootDecision {
            keep: decision.keep,
            key: number,
            text: self.text(key),
            trace_state: weight::decided(state, member, decision),
            attributes: (self.describes && decision.keep).then(|| weight::attributes(key, decision)),
            weighing: weighing_of(decision),
            ..RootDecision::DROP
        }
    }

    /// The stratified randomness of a trace that begins with a root of this key; `None` if the
    /// trace id is used.
    #[inline(always)]
    fn stratified_for(&self, key: &str, trace_id: TraceId) -> Option<Randomness> {
        let stratified = self.stratified.as_ref()?;
        let _busy = Busy::mark();
        Some(stratified.next(key, weight::of_trace_id(trace_id).get()))
    }

    #[inline]
    fn decide(
        &self,
        (key, number): (&str, Option<KeyNumber>),
        trace_id: TraceId,
        randomness: Randomness,
        (began, records): (Ticks, bool),
    ) -> Decision {
        let decision = self.with_rules(|rules| {
            let now = if rules.is_capped { self.now() } else { self.decision_time(began) };
            let request = Request::new(key, randomness, now);
            match records {
                true => rules.decide_recording(&request, self.boosting(number, now)),
                false => rules.decide(&request, self.boosting(number, now)),
            }
        });
        self.counters.tally(if decision.keep { Tally::RootsKept } else { Tally::RootsDropped }, 1);
        if self.notes.load(Ordering::Relaxed) {
            self.note(trace_id, decision.keep, Some((key, randomness, decision)));
        }
        decision
    }

    #[inline]
    fn boosting(&self, number: Option<KeyNumber>, now: Nanos) -> Option<Boosting<'_>> {
        self.tail.as_ref()?.boosting(number?, now)
    }

    #[cold]
    fn note(&self, trace_id: TraceId, keep: bool, asked: Option<(&str, Randomness, Decision)>) {
        if let Some(why) = &self.why {
            why.note(trace_id, keep, asked);
        }
        if let Some(keys) = self.kept_keys.get().filter(|_| keep) {
            keys.note(trace_id, asked.map(|(key, ..)| key));
        }
    }

    /// Lends the current rules. `f` runs none of the user's code.
    #[inline]
    fn with_rules<T>(&self, f: impl Fn(&Rules) -> T) -> T {
        let _busy = Busy::mark();
        let with_copy = |places: &[ThreadCopy; COPIES]| {
            let mut place = places[self.number as usize % COPIES].try_borrow_mut().ok()?;
            let (number, copy) = &mut *place;
            // Another decider may have used this place since.
            if *number != self.number {
                (*number, *copy) = (self.number, None);
            }
            Some(f(self.rules.read(copy)))
        };
        match RULES.try_with(with_copy) {
            Ok(Some(result)) => result,
            // The thread is exiting, or the place is borrowed.
            _ => f(&self.rules.load()),
        }
    }

    /// The key of a root. A custom key function runs without a lock held. A root that the function
    /// itself creates is counted by its name, because its key would call the function again. So is
    /// a root for which the function panics.
    pub(crate) fn key_of<'a>(&self, root: &Root<'a>, memory: &'a mut String) -> Cow<'a, str> {
        if !self.key.is_custom() {
            return Cow::Borrowed(self.key.of(root, memory));
        }
        let Some(_guard) = ReentryGuard::enter(&IN_KEY) else { return Cow::Borrowed(root.name()) };
        let of_root = || {
            self.key.of(root, memory);
            true
        };
        if caught(of_root, |_| false) {
            return Cow::Owned(std::mem::take(memory));
        }
        self.counters.tally(Tally::KeyPanics, 1);
        Cow::Borrowed(root.name())
    }
}

// Whether this thread is running a custom key function.
thread_local!(static IN_KEY: Cell<bool> = const { Cell::new(false) });
