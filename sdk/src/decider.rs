//! The one decider of a process: the layer and the [`ShouldSample`](opentelemetry_sdk::trace::ShouldSample) both ask it.
//!
//! A parent's decision is respected, whether it came over the wire or from code on the OpenTelemetry API: the flag and
//! the trace state are passed on as they are. Only a trace without a parent is put to the sampler, once.

use std::borrow::Cow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use astracer_samplers::tracestate::OtMember;
use astracer_samplers::{Decision, Nanos, Randomness, Reason, Request, Sampler, Stratified};
use opentelemetry::trace::{SpanContext, TraceState};
use opentelemetry::{Context, TraceId};
use tracing_core::Metadata;

use crate::clock::{Clock, Ticks};
use crate::key::{Key, Root};
use crate::propagation::is_undecided;
use crate::stats::Counters;

/// Decides whether a local root's trace is kept.
#[derive(Debug)]
pub(crate) struct Decider {
    sampler: Sampler,
    key: Key,
    parents: ParentDecision,
    clock: Clock,
    /// The randomness of traces that begin here; `None` if it is their ids'.
    stratified: Option<Stratified>,
}

/// Whether the decision of a parent in another process holds for a local root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParentDecision {
    /// The parent's decision holds: traces are kept whole.
    #[default]
    Respect,
    /// The sampler is asked about each local root, with the trace's randomness: for a service at the edge, which does
    /// not trust its callers. Where a caller did keep the trace, its part and ours may be parts of one.
    Ignore,
}

/// The decision about a local root.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) keep: bool,
    pub(crate) trace_state: TraceState,
}

impl Decider {
    pub(crate) fn new(
        sampler: Sampler,
        key: Key,
        parents: ParentDecision,
        clock: Clock,
        stratified: Option<Stratified>,
    ) -> Self {
        Decider { sampler, key, parents, clock, stratified }
    }

    /// Whether this parent's decision holds: that of a parent in this process was made here. `context` is the one that
    /// holds the parent; it may say that the parent left the decision to us.
    pub(crate) fn respects(&self, parent: &SpanContext, context: &Context) -> bool {
        let follows = self.parents == ParentDecision::Respect && !is_undecided(context);
        parent.is_valid() && (follows || !parent.is_remote())
    }

    pub(crate) fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A parent's decision, taken over for a local root, and counted.
    pub(crate) fn follow_counted(&self, parent: &SpanContext, counters: &Counters) -> Outcome {
        counters.followed_parent(parent.is_sampled());
        self.follow(parent)
    }

    /// A parent's decision, taken over.
    pub(crate) fn follow(&self, parent: &SpanContext) -> Outcome {
        Outcome { keep: parent.is_sampled(), trace_state: parent.trace_state().clone() }
    }

    /// Puts a local root to the sampler; `parent` is invalid if it has none.
    pub(crate) fn ask(
        &self,
        key: &str,
        trace_id: TraceId,
        parent: &SpanContext,
        began: Ticks,
        counters: &Counters,
    ) -> Outcome {
        // A member that is not of the specification's grammar says nothing.
        let state = parent.trace_state();
        let mut member = state.get("ot").and_then(|member| OtMember::parse(member).ok()).unwrap_or_default();
        // A trace that began elsewhere has its randomness already: its `rv`, or its id.
        if !parent.is_valid() && member.randomness.is_none() {
            member.randomness = self.stratified_for(key, trace_id);
        }
        let randomness = member.randomness.unwrap_or_else(|| randomness(trace_id));
        let decision = self.decide(key, randomness, began, counters);
        Outcome { keep: decision.keep, trace_state: trace_state(state, member, &decision) }
    }

    /// Puts a local root without a parent to the sampler, by the name of its callsite alone.
    pub(crate) fn ask_by_name(
        &self,
        metadata: &'static Metadata<'static>,
        trace_id: TraceId,
        began: Ticks,
        counters: &Counters,
    ) -> Outcome {
        let mut member = OtMember::default();
        let decide = |key: &str| {
            member.randomness = self.stratified_for(key, trace_id);
            let randomness = member.randomness.unwrap_or_else(|| randomness(trace_id));
            self.decide(key, randomness, began, counters)
        };
        let decision = self.key.with_static(metadata, decide);
        // The randomness of a dropped trace goes on as well: whoever decides about a part of it should compare the same.
        if decision.keep || member.randomness.is_some() {
            let trace_state = trace_state(&TraceState::NONE, member, &decision);
            Outcome { keep: decision.keep, trace_state }
        } else {
            Outcome { keep: false, trace_state: TraceState::NONE }
        }
    }

    /// The randomness of a trace that begins with a root of this key, unless it is its id's.
    #[inline]
    fn stratified_for(&self, key: &str, trace_id: TraceId) -> Option<Randomness> {
        let stratified = self.stratified.as_ref()?;
        Some(stratified.next(key, randomness(trace_id).get()))
    }

    #[inline]
    fn decide(&self, key: &str, randomness: Randomness, began: Ticks, counters: &Counters) -> Decision {
        let now: Nanos = self.clock.since_origin(began);
        let decision = self.sampler.decide(&Request::new(key, randomness, now));
        counters.decided(decision.keep);
        decision
    }

    /// The key of a root. A function of the user's makes it where no lock is held: a root that the function traces
    /// itself is counted by its name, since it would need a key again, and so is one for which it panics.
    pub(crate) fn key_of<'a>(
        &self,
        root: &Root<'a>,
        memory: &'a mut String,
        counters: &Counters,
    ) -> Cow<'a, str> {
        if !self.key.is_custom() {
            return Cow::Borrowed(self.key.of(root, memory));
        }
        let Some(_inside) = InKey::enter() else { return Cow::Borrowed(root.name()) };
        let made = catch_unwind(AssertUnwindSafe(|| {
            self.key.of(root, memory);
        }));
        match made {
            Ok(()) => Cow::Owned(std::mem::take(memory)),
            Err(_) => {
                counters.key_panicked();
                Cow::Borrowed(root.name())
            }
        }
    }
}

thread_local!(static IN_KEY: Cell<bool> = const { Cell::new(false) });

/// This thread runs a key function of the user's, until it is dropped.
struct InKey;

impl InKey {
    /// `None` if this thread runs one already.
    fn enter() -> Option<Self> {
        let inside = IN_KEY.try_with(|inside| inside.replace(true)).unwrap_or(true);
        (!inside).then_some(InKey)
    }
}

impl Drop for InKey {
    fn drop(&mut self) {
        let _ = IN_KEY.try_with(|inside| inside.set(false));
    }
}

fn randomness(trace_id: TraceId) -> Randomness {
    Randomness::from_trace_id(u128::from_be_bytes(trace_id.to_bytes()))
}

/// The weight of a kept trace, where there is a true one; a threshold of the parent's is not ours and goes. A dropped
/// trace has none: nobody will count it. Neither has one that is kept because everything is: without `th` it counts as
/// one, which it is.
fn trace_state(state: &TraceState, mut member: OtMember<'_>, decision: &Decision) -> TraceState {
    let weighed = decision.keep && decision.reason != Reason::Always;
    member.threshold = decision.threshold.filter(|_| weighed);
    let value = member.to_string();
    if value.is_empty() {
        return if state.get("ot").is_some() {
            state.delete("ot").unwrap_or_default()
        } else {
            state.clone()
        };
    }
    // A member that is too long, or of which the state has too many, is not worth the rest of it.
    state.insert("ot", value).unwrap_or_else(|_| state.clone())
}
