//! Whether the trace of an event is kept, for logs that follow the decision.

use opentelemetry::trace::SpanContext;
use tracing_core::Event;

use super::Core;
use crate::stack;
use crate::table::{Fate, Phase};
use astracer_spans::late::LateTraces;

#[derive(Debug)]
pub(crate) enum LogDecision {
    Kept,
    Dropped,
    /// The trace is recorded, and decided by its outcome. Holds the ids of the event's span as they
    /// are if the trace is kept.
    Undecided(SpanContext),
}

impl Core {
    /// `None` if the event is in none of our spans.
    pub(crate) fn log_decision(&self, event: &Event<'_>) -> Option<LogDecision> {
        let entry = if event.is_contextual() {
            match stack::innermost_place(self.number()) {
                Some(inside) if inside.is_dropped => return Some(LogDecision::Dropped),
                inside => self.find_id(inside?.entry),
            }
        } else {
            event.parent().and_then(|parent| self.find(parent))
        }?;
        match entry.settled_phase() {
            Phase::Dropped => Some(LogDecision::Dropped),
            Phase::Waiting | Phase::Recorded if entry.fate() == Fate::Provisional => {
                let ids = self.ids(entry)?;
                let flags = ids.trace_flags().with_sampled(true);
                let (trace_id, span_id, state) = (ids.trace_id(), ids.span_id(), ids.trace_state());
                let kept = SpanContext::new(trace_id, span_id, flags, false, state.clone());
                Some(LogDecision::Undecided(kept))
            }
            // An event must not decide a root whose parent may still be set.
            Phase::Waiting | Phase::Recorded | Phase::Undecided => Some(LogDecision::Kept),
            Phase::Free | Phase::Claimed => None,
        }
    }

    pub(crate) fn late(&self) -> Option<&LateTraces> {
        self.shared.late.as_ref()
    }
}
