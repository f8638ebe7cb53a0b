//! The exclusive right to decide a span, or to change its parent.

use opentelemetry::{Context, SpanId, TraceFlags, TraceId};

use super::{BASE_CURRENT, Beginning, Entry, Fate, Pending, Phase, REMOTE_PARENT, ROOT};
use astracer_spans::trace_state::State;
use astracer_spans::traces::TraceRef;
use astracer_spans::weight::Weighing;

/// The exclusive right to change an entry's state. If a panic drops it before a new state is
/// published, it drops the span, so that no thread spins forever.
#[must_use]
pub(crate) struct Claim<'a> {
    entry: &'a Entry,
    done: bool,
}

impl Entry {
    #[inline]
    pub(crate) fn begin_claimed(&self, beginning: &Beginning) -> Claim<'_> {
        self.begin(beginning);
        Claim { entry: self, done: false }
    }

    /// Claims an entry in the phase `from`, which is `Undecided` or `Waiting`. `None` if another
    /// thread changed the phase first.
    pub(crate) fn claim(&self, from: Phase) -> Option<Claim<'_>> {
        // Not `then_some`: that would build a `Claim` even if the exchange failed, and dropping it
        // would drop the span.
        self.exchange(from, Phase::Claimed).then(|| Claim { entry: self, done: false })
    }
}

/// The fields of a span in a recorded trace that are published with its state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedSpan {
    pub(crate) trace: TraceRef,
    pub(crate) trace_id: TraceId,
    pub(crate) trace_flags: TraceFlags,
    pub(crate) fate: Fate,
    pub(crate) span_id: SpanId,
    pub(crate) parent: SpanId,
    pub(crate) remote_parent: bool,
}

impl<'a> Claim<'a> {
    pub(crate) fn entry(&self) -> &'a Entry {
        self.entry
    }

    pub(crate) fn set(&self, span: &RecordedSpan) {
        let entry = self.entry;
        entry.span_id.set(span.span_id);
        entry.parent.set(span.parent);
        entry.trace_id.set(span.trace_id);
        entry.trace.set(span.trace);
        entry.trace_start.set(entry.began());
        entry.trace_flags.set(span.trace_flags);
        entry.fate.set(span.fate);
        if span.remote_parent {
            let _locked = entry.extra();
            entry.set_flags(REMOTE_PARENT, 0);
        }
    }

    pub(crate) fn record(mut self) {
        self.done = true;
        self.entry.publish(Phase::Recorded);
    }

    /// Drops the local root. Its ids are kept for the context that propagates the decision.
    pub(crate) fn drop_trace(mut self, trace_id: TraceId, span_id: SpanId, flags: TraceFlags) {
        self.entry.span_id.set(span_id);
        self.entry.trace_id.set(trace_id);
        self.entry.trace_flags.set(flags);
        self.done = true;
        self.entry.publish(Phase::Dropped);
    }

    /// Makes the span an undecided local root with the given parent. Returns the replaced parts,
    /// which the caller must drop while it holds no lock and no claim.
    pub(crate) fn undecide(mut self, pending: Box<Pending>) -> (Option<Box<Pending>>, Option<Context>) {
        let entry = self.entry;
        let mut extra = entry.extra();
        let old = (extra.pending.replace(pending), extra.context.take());
        extra.state = State::EMPTY;
        entry.set_flags(ROOT, BASE_CURRENT);
        drop(extra);
        entry.trace.set(TraceRef::NONE);
        entry.parent.set(SpanId::INVALID);
        self.done = true;
        entry.publish(Phase::Undecided);
        old
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.done {
            // The key may still be that of the entry's previous span.
            self.entry.set_root_key(None, Weighing::Never);
            self.entry.publish(Phase::Dropped);
        }
    }
}
