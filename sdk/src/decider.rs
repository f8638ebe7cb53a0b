//! The one judge of a process: the layer and the [`ShouldSample`](opentelemetry_sdk::trace::ShouldSample) both ask here.
//!
//! A parent's decision is honoured, whether it came over the wire or from code on the OpenTelemetry API: the flag and
//! the trace state are passed on as they are. Only a trace without a parent is put to the sampler, once.

use astracer_samplers::tracestate::OtMember;
use astracer_samplers::{Decision, Nanos, Randomness, Request, Sampler};
use opentelemetry::TraceId;
use opentelemetry::trace::{SpanContext, TraceState};

use crate::clock::{Clock, Ticks};
use crate::key::{Key, Root};
use crate::stats::Counters;

/// The judge.
#[derive(Debug)]
pub(crate) struct Decider {
    sampler: Sampler,
    key: Key,
    clock: Clock,
}

/// What was decided about a local root.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) keep: bool,
    pub(crate) trace_state: TraceState,
}

impl Decider {
    pub(crate) fn new(sampler: Sampler, key: Key, clock: Clock) -> Self {
        Decider { sampler, key, clock }
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

    /// A parent's decision, taken over for a local root.
    pub(crate) fn honour(&self, parent: &SpanContext, counters: &Counters) -> Verdict {
        counters.honoured(parent.is_sampled());
        self.follow(parent)
    }

    /// A parent's decision, taken over.
    pub(crate) fn follow(&self, parent: &SpanContext) -> Verdict {
        Verdict { keep: parent.is_sampled(), trace_state: parent.trace_state().clone() }
    }

    /// Puts a trace that begins here to the sampler.
    pub(crate) fn ask(&self, key: &str, trace_id: TraceId, began: Ticks, counters: &Counters) -> Verdict {
        let randomness = Randomness::from_trace_id(u128::from_be_bytes(trace_id.to_bytes()));
        let now: Nanos = self.clock.since_origin(began);
        let decision = self.sampler.decide(&Request::new(key, randomness, now));
        counters.decided(decision.keep);
        Verdict { keep: decision.keep, trace_state: trace_state(&decision) }
    }

    /// The key of a root.
    pub(crate) fn key_of<'a>(&self, root: &Root<'a>, memory: &'a mut String) -> &'a str {
        self.key.of(root, memory)
    }
}

/// The weight of a kept trace, where there is a true one. A dropped trace has none: nobody will count it. Neither has
/// one that is kept because everything is: no `th` says "not sampled", which is the case.
fn trace_state(decision: &Decision) -> TraceState {
    use astracer_samplers::Reason;
    let (true, Some(threshold)) = (decision.keep && decision.reason != Reason::Always, decision.threshold)
    else {
        return TraceState::NONE;
    };
    let mut member = OtMember::default();
    member.threshold = Some(threshold);
    TraceState::from_key_value([("ot", member.to_string())]).unwrap_or(TraceState::NONE)
}
