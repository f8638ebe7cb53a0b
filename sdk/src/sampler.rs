//! The judge as OpenTelemetry's `ShouldSample`, for spans made through the OpenTelemetry API.

use std::sync::Arc;

use opentelemetry::trace::{Link, SpanContext, SpanKind, TraceContextExt};
use opentelemetry::{Context, KeyValue, TraceId};
use opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, ShouldSample};

use crate::decider::{Decider, Verdict};
use crate::key::{Lookup, Root};
use crate::stats::Counters;

/// The sampler for `SdkTracerProvider::builder().with_sampler(..)`.
///
/// Give it to the provider as it is, without `Sampler::ParentBased` around it: it honours the parent's decision itself,
/// and passes the trace state on, which the stock wrapper loses. It never panics. In a process that uses the layer too,
/// both ask the same judge: a trace that the layer decided about is not decided about again.
#[derive(Clone, Debug)]
pub struct AstracerSampler {
    judge: Option<Judge>,
}

#[derive(Clone, Debug)]
pub(crate) struct Judge {
    pub(crate) decider: Arc<Decider>,
    pub(crate) counters: Arc<Counters>,
}

impl AstracerSampler {
    pub(crate) fn new(judge: Option<Judge>) -> Self {
        AstracerSampler { judge }
    }
}

struct Pairs<'a>(&'a [KeyValue]);

impl Lookup for Pairs<'_> {
    fn attribute(&self, name: &str) -> Option<std::borrow::Cow<'_, str>> {
        self.0.attribute(name)
    }
}

impl ShouldSample for AstracerSampler {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        _: &SpanKind,
        attributes: &[KeyValue],
        _: &[Link],
    ) -> SamplingResult {
        let parent = parent.filter(|cx| cx.span().span_context().is_valid());
        let parent = parent.map(|cx| (cx.span().span_context().clone(), cx));
        let judge = self.judge.as_ref().filter(|_| cfg!(feature = "enabled"));
        let Verdict { keep, trace_state } = match (judge, parent) {
            (Some(Judge { decider, .. }), Some((parent, context))) if decider.honours(&parent, context) => {
                decider.follow(&parent)
            }
            (Some(Judge { decider, counters }), parent) => {
                let parent = parent.map_or(SpanContext::NONE, |(parent, _)| parent);
                let mut memory = String::new();
                let pairs = Pairs(attributes);
                let key = decider.key_of(&Root::new(name, &pairs), &mut memory);
                decider.ask(key, trace_id, parent.trace_state(), decider.clock().ticks(), counters)
            }
            (None, _) => {
                return SamplingResult {
                    decision: SamplingDecision::Drop,
                    attributes: Vec::new(),
                    trace_state: Default::default(),
                };
            }
        };
        let decision = if keep { SamplingDecision::RecordAndSample } else { SamplingDecision::Drop };
        SamplingResult { decision, attributes: Vec::new(), trace_state }
    }
}
