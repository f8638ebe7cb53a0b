//! A thread enters a span, and leaves it.

use std::mem::ManuallyDrop;

use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceState};
use opentelemetry::{Context, SpanId};
use tracing_core::span::Id;

use super::context::of_dropped;
use super::{Ancestors, Core};
use crate::settings::ContextMode;
use crate::stack::{self, Entered, Inside};
use crate::table::{Entry, Phase};

impl Core {
    /// A thread enters a span. A local root is decided. `ancestors` is asked only if the span has no entry.
    #[inline]
    pub(crate) fn enter<A: Ancestors>(&self, id: &Id, ancestors: impl FnOnce() -> Option<A>) {
        let Some(entry) = self.find(id) else {
            return self.enter_without_entry(id, ancestors());
        };
        match entry.phase() {
            Phase::Kept => self.enter_kept(id, entry),
            _ if self.started(entry) == Phase::Kept => self.enter_kept(id, entry),
            _ => self.enter_dropped(id, entry),
        }
    }

    #[inline]
    fn enter_kept(&self, id: &Id, entry: &Entry) {
        let guard = self.context_to_enter(entry).map(Context::attach);
        if self.settings().extras.inactivity {
            entry.occupy(self.ticks());
        }
        let context = if guard.is_some() { entry.span_id() } else { SpanId::INVALID };
        self.push(id, Inside { entry: id.into_u64(), is_dropped: false, context }, guard);
    }

    /// The span's trace is dropped. Its local root's context becomes current, if it is not: another one is if the thread is
    /// inside another trace, or came from elsewhere.
    #[inline]
    fn enter_dropped(&self, id: &Id, entry: &Entry) {
        if self.settings().context == ContextMode::Off {
            return self.push(id, Inside::dropped(entry.id(), SpanId::INVALID), None);
        }
        let context = entry.span_id();
        // Only an item of ours keeps the context for as long as this one needs it: see `stack::pop`. It has to be the
        // innermost of all: below another layer's item it might be someone else's that is current now.
        let is_ours = || stack::innermost_of_all(self.number).is_some_and(|inside| inside.context == context);
        let guard = if current_span() == context && is_ours() {
            None
        } else {
            self.context_to_enter(entry).map(Context::attach)
        };
        self.push(id, Inside::dropped(entry.id(), context), guard);
    }

    /// A span for which there was no room, or one that began where telemetry is suppressed. The nearest span above it
    /// answers for it.
    #[cold]
    fn enter_without_entry<A: Ancestors>(&self, id: &Id, ancestors: Option<A>) {
        if self.is_closed() || !self.table.has_refused() || Context::is_current_telemetry_suppressed() {
            return;
        }
        let off = self.settings().context == ContextMode::Off;
        let Some(above) = ancestors.and_then(|ancestors| self.entry_above(&ancestors)) else {
            // A local root without an entry is dropped, whatever the sampler said.
            let ids = SpanContext::new(
                self.shared.ids.new_trace_id(),
                self.shared.ids.new_span_id(),
                self.shared.ids.flags(),
                false,
                TraceState::NONE,
            );
            let context = if off { SpanId::INVALID } else { ids.span_id() };
            let guard = (!off).then(|| of_dropped(&Context::new(), ids).attach());
            return self.push(id, Inside::dropped(0, context), guard);
        };
        let is_dropped = self.started(above) != Phase::Kept;
        let guard = self.context(above).map(Context::attach);
        let context = if guard.is_some() { above.span_id() } else { SpanId::INVALID };
        self.push(id, Inside { entry: above.id(), is_dropped, context }, guard);
    }

    #[inline]
    fn push(&self, id: &Id, inside: Inside, guard: Option<opentelemetry::ContextGuard>) {
        let guard = ManuallyDrop::new(guard);
        stack::push(Entered { owner: self.number, id: id.into_u64(), inside, guard });
    }

    /// A thread leaves a span.
    #[inline]
    pub(crate) fn exit(&self, id: &Id) {
        let Some(entered) = stack::pop(self.number, id.into_u64()) else { return };
        if entered.inside.is_dropped {
            self.shared.counters.refused(stack::take_refused());
        } else if let Some(entry) = self.find(id) {
            let now = self.ticks();
            entry.set_last_exit(now);
            if self.settings().extras.inactivity {
                entry.vacate(now);
            }
        }
        // The guard goes last: the values in its context may be the user's, and trace when they are dropped.
        drop(ManuallyDrop::into_inner(entered.guard));
    }
}

impl Inside {
    fn dropped(entry: u64, context: SpanId) -> Self {
        Inside { entry, is_dropped: true, context }
    }
}

/// The id of the span in the current context.
#[inline]
fn current_span() -> SpanId {
    Context::map_current(|context| context.span().span_context().span_id())
}
