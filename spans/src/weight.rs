//! Weights of traces in transit: reads them from a parent's trace state and writes them to a
//! trace's own.
//!
//! Source: OpenTelemetry specification, "TraceState: Probability Sampling", "General requirements".
//! A threshold is written only if it is the true one, a threshold that contradicts the sampled flag
//! is erased, and an explicit randomness is passed on unchanged. Foreign members and sub-keys stay.

use astracer_samplers::tracestate::OtMember;
use astracer_samplers::{Decision, Randomness, Threshold};
use opentelemetry::trace::{SpanContext, TraceState};
use opentelemetry::{KeyValue, TraceId};

use crate::trace_state::{State, member};

pub(crate) const ADJUSTED_COUNT: &str = "sampler.adjusted_count";

#[inline]
pub fn of_trace_id(trace_id: TraceId) -> Randomness {
    Randomness::from_trace_id(u128::from_be_bytes(trace_id.to_bytes()))
}

/// The parent's trace state, for a trace that continues with this flag. A threshold that
/// contradicts the flag is erased: another process on the path decided differently, so the trace's
/// weight is unknown.
pub fn with_flag(parent: &SpanContext, is_sampled: bool) -> State {
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

/// The trace state of a trace that was decided here. It gets the decision's threshold if that is a
/// true weight, and loses the parent's. A dropped trace gets no threshold, because it will not be
/// counted. A kept one without a threshold has no known weight.
pub fn decided(state: &TraceState, mut member: OtMember<'_>, decision: &Decision) -> State {
    member.threshold = decision.threshold.filter(|_| decision.keep);
    State::with_member(state, member)
}

/// The decision as attributes of the root, for backends that do not read trace states. The names
/// are those of OTEP 170 (`sampler.adjusted_count`) and of Jaeger's clients (`sampler.type`,
/// `sampler.param`); `sampler.key` is ours.
pub fn attributes(key: &str, decision: &Decision) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("sampler.type", decision.reason.name()),
        KeyValue::new("sampler.key", key.to_owned()),
    ];
    if let Some(threshold) = decision.threshold {
        attributes.push(KeyValue::new("sampler.param", threshold.probability().get()));
        attributes.push(adjusted_count(threshold));
    }
    attributes
}

/// The weight as an attribute, of each span of a trace.
pub fn adjusted_count(threshold: Threshold) -> KeyValue {
    KeyValue::new(ADJUSTED_COUNT, threshold.adjusted_count())
}

/// The weight that late keeping may give a trace that one of its policies wants.
///
/// A trace is exported if its randomness reaches the head sampler's threshold or the policies'. The
/// lower of the two is its true threshold if both are known, and if it would be recorded whatever
/// its randomness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weighing {
    /// None: whether the trace was recorded depends on its randomness, or nothing is recorded.
    #[default]
    Never,
    /// One call, if the policies keep every such trace: the head sampler's threshold is unknown.
    IfCertain,
    /// The weight of the lower threshold.
    Always,
}

impl Weighing {
    pub(crate) fn allows(self, threshold: Threshold) -> bool {
        self == Weighing::Always || self == Weighing::IfCertain && threshold == Threshold::ALWAYS
    }
}
