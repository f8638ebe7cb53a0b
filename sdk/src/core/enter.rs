//! Entering and exiting a span.

use std::mem::ManuallyDrop;

use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, ContextGuard, SpanId};
use tracing_core::span::Id;

use super::Core;
use super::place::forget_gone;
use crate::settings::ContextMode;
use crate::stack::{self, CurrentSpan, Entered};
use crate::table::{Entry, Phase};
use astracer_spans::clock::Ticks;
use astracer_spans::reentry::{Busy, is_busy};
use astracer_spans::stats::Tally;

impl Core {
    #[inline]
    pub(crate) fn enter(&self, id: &Id) {
        if is_busy() {
            return;
        }
        let Some(entry) = self.find(id) else { return self.enter_unrecorded(id) };
        let phase = match entry.phase() {
            Phase::Recorded => Phase::Recorded,
            _ => self.started(entry),
        };
        if self.is_observed() {
            return self.enter_observed(id, entry, phase);
        }
        match phase {
            Phase::Recorded => _ = self.enter_recorded(id, entry),
            _ => self.enter_dropped(id, entry),
        }
    }

    #[inline(never)]
    fn enter_observed(&self, id: &Id, entry: &Entry, phase: Phase) {
        let now = match phase {
            Phase::Recorded => self.enter_recorded(id, entry),
            _ => {
                self.enter_dropped(id, entry);
                0
            }
        };
        self.observe_enter(entry, now);
    }

    /// Returns the time, or 0 if the clock was not read.
    #[inline(always)]
    fn enter_recorded(&self, id: &Id, entry: &Entry) -> Ticks {
        let guard = match self.context_mode() {
            ContextMode::Off => None,
            ContextMode::Ids | ContextMode::Recording => self.attach(entry),
        };
        let mut now = 0;
        if self.settings().extras.inactivity {
            now = self.ticks();
            entry.occupy(now);
        }
        let context = if guard.is_some() { entry.span_id() } else { self.other_context() };
        self.push(id, CurrentSpan { entry: id.into_u64(), is_dropped: false, context }, guard);
        now
    }

    /// Enters a span of a dropped trace. Makes the local root's context current unless it already
    /// is. Another context is current if the thread is inside another trace, or if code attached
    /// one.
    #[inline(never)]
    fn enter_dropped(&self, id: &Id, entry: &Entry) {
        if self.context_mode() == ContextMode::Off {
            return self.push(id, CurrentSpan::dropped(entry.id(), self.other_context()), None);
        }
        let context = entry.span_id();
        // Attaching can be skipped only if an item of ours keeps the context current for long
        // enough: see `stack::pop`. That item has to be the innermost of all; below another layer's
        // item, the current context might belong to that layer.
        let is_ours =
            || stack::innermost_of_all(self.number()).is_some_and(|inside| inside.context == context);
        let is_current = is_ours() && current_span() == context;
        let guard = if is_current { None } else { self.attach(entry) };
        let context =
            if guard.is_none() && self.is_beside_contexts() { self.other_context() } else { context };
        self.push(id, CurrentSpan::dropped(entry.id(), context), guard);
    }

    /// Enters a span that has no place in traces: it began while telemetry was suppressed or before
    /// the layer was installed, or a filter hides it.
    #[cold]
    fn enter_unrecorded(&self, id: &Id) {
        // Below a dropped root nothing is recorded in any case, and spans that begin here stay
        // refused.
        if !self.is_closed() && stack::has_contexts() && !stack::is_dropped(self.number()) {
            self.push(id, CurrentSpan::NOWHERE, None);
        }
    }

    #[inline]
    fn attach(&self, entry: &Entry) -> Option<ContextGuard> {
        if !stack::has_contexts() {
            return None;
        }
        let context = self.context_to_enter(entry)?;
        // A cached context, or one made from the empty context, would end the suppression of the
        // code that enters the span.
        let ends = !context.is_telemetry_suppressed() && Context::is_current_telemetry_suppressed();
        let context = if ends { context.with_telemetry_suppressed() } else { context };
        let _busy = Busy::mark();
        Some(context.attach())
    }

    #[inline(always)]
    fn push(&self, id: &Id, inside: CurrentSpan, guard: Option<ContextGuard>) {
        let guard = ManuallyDrop::new(guard);
        stack::push(Entered { owner: self.number(), id: id.into_u64(), inside, stock: 0, guard });
    }

    /// Exits a span. `let_go` is called with the span whose handles the thread held for children,
    /// and with their number; see [`stack`](crate::stack).
    #[inline]
    pub(crate) fn exit(&self, id: &Id, let_go: impl FnOnce(u64, u32)) {
        match self.is_observed() {
            true => self.exit_observed(id, let_go),
            false => self.exit_as::<false>(id, let_go),
        }
    }

    #[inline(never)]
    fn exit_observed(&self, id: &Id, let_go: impl FnOnce(u64, u32)) {
        self.exit_as::<true>(id, let_go);
    }

    #[inline(always)]
    fn exit_as<const OBSERVED: bool>(&self, id: &Id, let_go: impl FnOnce(u64, u32)) {
        if is_busy() {
            return;
        }
        if self.is_unsure() {
            self.resolve(id.into_u64());
        }
        let Some(left) = stack::pop(self.number(), id.into_u64()) else { return forget_gone() };
        // The guard is dropped last: the values in its context may be the user's, and dropping them
        // may trace or panic. It is also dropped if a filter panics while it is notified of a
        // span's end.
        let _guard = ManuallyDrop::into_inner(left.guard);
        if left.inside.is_dropped {
            let refused = stack::take_refused();
            if refused != 0 {
                self.shared.counters.tally(Tally::Refusals, refused);
            }
            if self.counts_outcomes() {
                // The root may be the span itself, which is no longer on the stack.
                self.leave_dropped(self.find(id).or_else(|| self.find_id(left.inside.entry)));
            }
            if OBSERVED && let Some(entry) = self.find(id) {
                self.observe_exit(entry, 0);
            }
        } else if let Some(entry) = self.find(id) {
            if std::thread::panicking() {
                self.note_panic(entry);
            }
            let now = self.ticks();
            entry.set_last_exit(now);
            if self.settings().extras.inactivity {
                entry.vacate(now);
            }
            if OBSERVED {
                self.observe_exit(entry, now);
            }
        }
        if left.stock != 0 {
            let_go(left.inside.entry, left.stock);
        }
    }
}

impl CurrentSpan {
    fn dropped(entry: u64, context: SpanId) -> Self {
        CurrentSpan { entry, is_dropped: true, context }
    }
}

#[inline]
fn current_span() -> SpanId {
    Context::map_current(|context| context.span().span_context().span_id())
}
