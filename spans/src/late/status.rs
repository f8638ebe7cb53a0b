//! Which of the recorded traces were kept, held or given up, and an explanation in words.

use astracer_samplers::tail::{Rule, Severity};
use opentelemetry::TraceId;

use super::LateTraces;
use crate::record::KeepReason;
use crate::stats::GivenUp;

#[derive(Clone, Copy, Debug)]
pub(super) struct GivenUpTrace {
    pub(super) trace_id: TraceId,
    pub(super) reason: GivenUp,
    /// The first policy that wanted the trace and had no budget left, if there was one; `None` if
    /// the trace was given up while it was open, before it was submitted to the policies.
    pub(super) answer: Option<Option<KeepReason>>,
}

/// The status of a recorded trace whose root has ended.
#[derive(Debug)]
pub(super) enum TraceStatus {
    Kept(KeepReason),
    Held(Severity, Option<KeepReason>),
    GivenUp(GivenUpTrace),
}

impl LateTraces {
    pub(super) fn note_given_up(
        &self,
        trace_id: TraceId,
        reason: GivenUp,
        answer: Option<Option<KeepReason>>,
    ) {
        if self.explains {
            self.ring.note_given_up(GivenUpTrace { trace_id, reason, answer });
        }
    }

    /// Remembers a trace that was given up while it was open, or had no span left when its root
    /// ended, unless more is known about it: another part may already have been submitted to the
    /// policies.
    pub fn note_open_given_up(&self, trace_id: TraceId, reason: GivenUp) {
        if self.explains && self.ring.status(trace_id).is_none() {
            self.note_given_up(trace_id, reason, None);
        }
    }

    pub fn status(&self, trace_id: TraceId) -> Option<String> {
        Some(match self.ring.status(trace_id)? {
            TraceStatus::Kept(by) => match by.index() {
                Some(0) => "kept late by hand".to_owned(),
                Some(1) => "kept late because a caller kept its part".to_owned(),
                Some(2) => "kept late by its stratum".to_owned(),
                _ => format!("kept late by {}", self.policy(by)),
            },
            TraceStatus::Held(severity, refusal) => {
                let seen = if severity > Severity::Fine { ", marked for an error or warning" } else { "" };
                let (bytes, bytes_max) = (self.ring.budget.used(), self.ring.budget.max);
                let answer = self.answer(refusal);
                format!("{answer}; held in the ring ({bytes} of {bytes_max} bytes used){seen}")
            }
            TraceStatus::GivenUp(GivenUpTrace { reason, answer, .. }) => {
                let answer = answer.map(|refusal| self.answer(refusal) + "; ").unwrap_or_default();
                format!("{answer}given up: {}", self.reason(reason))
            }
        })
    }

    fn policy(&self, by: KeepReason) -> String {
        let rule = by.policy_index().and_then(|index| self.sampler().rules().nth(index));
        let named = |Rule { policy, budget, .. }: &Rule| match budget.to_string() {
            budget if budget.is_empty() => format!("the policy {policy}"),
            budget => format!("the policy {policy} ({budget})"),
        };
        rule.map(named).unwrap_or_default()
    }

    fn answer(&self, refusal: Option<KeepReason>) -> String {
        match refusal {
            Some(by) => format!("{} wanted it, but had no budget left", self.policy(by)),
            None => "no policy wanted it".to_owned(),
        }
    }

    fn reason(&self, reason: GivenUp) -> String {
        match reason {
            GivenUp::Unwanted | GivenUp::Refused => "not requested while it was held".to_owned(),
            GivenUp::RingFull => format!("the ring of {} bytes was full", self.ring.budget.max),
            GivenUp::ShutDown => "the service was shut down".to_owned(),
            // These reasons are for single spans.
            GivenUp::Cut | GivenUp::Late => "its spans were late or too many".to_owned(),
        }
    }
}
