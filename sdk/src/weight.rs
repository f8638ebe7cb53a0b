//! Weights of traces on their way: what is read from a parent's trace state, and what is written to
//! a trace's own.
//!
//! Source: OpenTelemetry specification, "TraceState: Probability Sampling", "General requirements":
//! a threshold is written only where it is the true one, one that contradicts the sampled flag is
//! erased, and an explicit randomness is passed on as it came. Foreign members and sub-keys stay.

use astracer_samplers::tracestate::OtMember;
use astracer_samplers::{Decision, Randomness, Reason};
use opentelemetry::trace::{SpanContext, TraceState};
use opentelemetry::{KeyValue, TraceId};

use crate::trace_state::{State, member};

/// The randomness that a trace id holds.
#[inline]
pub(crate) fn of_trace_id(trace_id: TraceId) -> Randomness {
    Randomness::from_trace_id(u128::from_be_bytes(trace_id.to_bytes()))
}

/// The trace state of a trace that goes on as its parent was decided.
pub(crate) fn honoured(parent: &SpanContext) -> State {
    with_flag(parent, parent.is_sampled())
}

/// The parent's trace state, for a trace that goes on with this flag. A threshold that contradicts
/// the flag is erased: some process on the way decided otherwise, so that the trace's weight is
/// unknown.
pub(crate) fn with_flag(parent: &SpanContext, is_sampled: bool) -> State {
    let state = parent.trace_state();
    let mut member = member(state);
    let Some(threshold) = member.threshold else { return State::of(state) };
    let randomness = member.randomness.unwrap_or_else(|| of_trace_id(parent.trace_id()));
    if threshold.keeps(randomness) == is_sampled {
        return State::of(state);
    }
    member.threshold = None;
    State::with_member(state, member)
}

/// The trace state with the weight of a trace that was decided here, where there is a true one; a
/// threshold of the parent's is not ours and goes. A dropped trace has none: nobody will count it.
/// Neither has one that is kept because everything is: without `th` it counts as one, which it is.
pub(crate) fn decided(state: &TraceState, mut member: OtMember<'_>, decision: &Decision) -> State {
    let weighed = decision.keep && decision.reason != Reason::Always;
    member.threshold = decision.threshold.filter(|_| weighed);
    State::with_member(state, member)
}

/// The decision as attributes of the root, which backends can read that do not know trace states.
/// The names are those of OTEP 170 (`sampler.adjusted_count`) and of Jaeger's clients
/// (`sampler.type`, `sampler.param`); `sampler.key` is ours.
pub(crate) fn attributes(key: &str, decision: &Decision) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("sampler.type", decision.reason.name()),
        KeyValue::new("sampler.key", key.to_owned()),
    ];
    if let Some(threshold) = decision.threshold {
        attributes.push(KeyValue::new("sampler.param", threshold.probability().get()));
        attributes.push(KeyValue::new("sampler.adjusted_count", threshold.adjusted_count()));
    }
    attributes
}
