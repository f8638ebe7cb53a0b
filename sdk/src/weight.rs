//! Weights of traces on their way: what is read from a parent's trace state, and what is written to a trace's own.
//!
//! Source: OpenTelemetry specification, "TraceState: Probability Sampling", "General requirements": a threshold is written
//! only where it is the true one, one that contradicts the sampled flag is erased, and an explicit randomness is passed
//! on as it came. Foreign members and sub-keys stay.

use astracer_samplers::tracestate::OtMember;
use astracer_samplers::{Decision, Randomness, Reason};
use opentelemetry::trace::{SpanContext, TraceState};
use opentelemetry::{KeyValue, TraceId};

/// The key of OpenTelemetry's member.
const OT: &str = "ot";

/// The randomness that a trace id holds.
#[inline]
pub(crate) fn of_trace_id(trace_id: TraceId) -> Randomness {
    Randomness::from_trace_id(u128::from_be_bytes(trace_id.to_bytes()))
}

/// OpenTelemetry's member of a parent's trace state. One that is not of the specification's grammar says nothing.
pub(crate) fn member(state: &TraceState) -> OtMember<'_> {
    state.get(OT).and_then(|member| OtMember::parse(member).ok()).unwrap_or_default()
}

/// The trace state of a trace that goes on as its parent was decided. A threshold that contradicts the parent's flag is
/// erased: some process on the way decided otherwise, so that the trace's weight is unknown.
pub(crate) fn honoured(parent: &SpanContext) -> TraceState {
    let state = parent.trace_state();
    let mut member = member(state);
    let Some(threshold) = member.threshold else { return state.clone() };
    let randomness = member.randomness.unwrap_or_else(|| of_trace_id(parent.trace_id()));
    if threshold.keeps(randomness) == parent.is_sampled() {
        return state.clone();
    }
    member.threshold = None;
    with_member(state, member)
}

/// The trace state with the weight of a trace that was decided here, where there is a true one; a threshold of the
/// parent's is not ours and goes. A dropped trace has none: nobody will count it. Neither has one that is kept because
/// everything is: without `th` it counts as one, which it is.
pub(crate) fn decided(state: &TraceState, mut member: OtMember<'_>, decision: &Decision) -> TraceState {
    let weighed = decision.keep && decision.reason != Reason::Always;
    member.threshold = decision.threshold.filter(|_| weighed);
    with_member(state, member)
}

/// The trace state without a weight: of a trace that was kept for its outcome, and not by chance.
pub(crate) fn without(state: &TraceState) -> TraceState {
    let mut member = member(state);
    member.threshold = None;
    with_member(state, member)
}

fn with_member(state: &TraceState, member: OtMember<'_>) -> TraceState {
    let value = member.value();
    if !value.is_empty() {
        // The value is of the grammar, so this does not fail.
        return state.insert(OT, value).unwrap_or_default();
    }
    match state.get(OT) {
        Some(_) => state.delete(OT).unwrap_or_default(),
        None => state.clone(),
    }
}

/// The decision as attributes of the root, which backends can read that do not know trace states. The names are those of
/// OTEP 170 (`sampler.adjusted_count`) and of Jaeger's clients (`sampler.type`, `sampler.param`); `sampler.key` is ours.
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
