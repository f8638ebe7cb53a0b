//! The decider as OpenTelemetry's `ShouldSample`, for spans made through the OpenTelemetry API.

use std::sync::Arc;

use opentelemetry::trace::{Link, SpanContext, SpanKind, TraceContextExt};
use opentelemetry::{Context, KeyValue, TraceId};
use opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, ShouldSample};

use crate::decider::{Decider, RootDecision};
use crate::key::{Pairs, Root};
use astracer_spans::stats::Tally;
use astracer_spans::weight;

/// The sampler for `SdkTracerProvider::builder().with_sampler(..)`.
///
/// Give it to the provider directly, without `Sampler::ParentBased` around it. It respects the
/// parent's decision itself and passes on the trace state, which the stock wrapper loses. It never
/// panics. In a process that also uses the layer, both ask the same decider: a trace that the layer
/// has decided is not decided again.
#[derive(Clone, Debug)]
pub struct AstracerSampler {
    /// `None`: switched off.
    pub(crate) decider: Option<Arc<Decider>>,
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
        let Some(decider) = self.decider.as_ref().filter(|_| cfg!(feature = "enabled")) else {
            let decision = SamplingDecision::Drop;
            let state = parent.map(|(parent, _)| weight::with_flag(&parent, false)).unwrap_or_default();
            return SamplingResult { decision, attributes: Vec::new(), trace_state: state.to_api() };
        };
        let is_root = parent.as_ref().is_none_or(|(parent, _)| parent.is_remote());
        if decider.tail.is_some() && is_root {
            decider.counters.tally(Tally::RootsElsewhere, 1);
        }
        let RootDecision { keep, trace_state, attributes: added, .. } = match &parent {
            Some((parent, context)) if decider.respects(parent, context) => {
                let decision = decider.follow_remote(parent);
                if parent.is_remote() && decision.keep {
                    decider.note_keyless(parent.trace_id());
                }
                decision
            }
            parent => {
                let parent = parent.as_ref().map_or(&SpanContext::NONE, |(parent, _)| parent);
                let (mut memory, pairs) = (String::new(), Pairs(attributes));
                let key = decider.key_of(&Root::new(name, &pairs), &mut memory);
                decider.ask(&key, trace_id, parent, (decider.clock.ticks(), false))
            }
        };
        let decision = if keep { SamplingDecision::RecordAndSample } else { SamplingDecision::Drop };
        let attributes = match (added, trace_state.threshold()) {
            (Some(added), _) => added,
            (None, Some(threshold)) if keep && decider.describes => vec![weight::adjusted_count(threshold)],
            (None, _) => Vec::new(),
        };
        SamplingResult { decision, attributes, trace_state: trace_state.to_api() }
    }
}
