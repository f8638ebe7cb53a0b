//! Reports spans to the [`Observer`], and keeps the numbers of their flows.
//!
//! Without an observer each call is one predicted branch, and the numbers are neither read nor
//! written. A free entry has none. What an observer needs is cold: otherwise every span would save
//! registers for it.

use opentelemetry::{Context, TraceId};
use tracing_core::Event;
use tracing_core::span::Id;

use super::Core;
use crate::observer::{ObservedSpan, Observer};
use crate::stack;
use crate::table::Entry;
use astracer_spans::clock::Ticks;
use astracer_spans::panics::caught;
use astracer_spans::sync::statics::Ordering;

impl Core {
    /// Calls the observer. `panicked` is the result if that panics.
    #[inline]
    pub(super) fn call<T>(&self, panicked: T, call: impl FnOnce(&dyn Observer) -> T) -> T
    where
        T: Copy,
    {
        let Some(observer) = self.observer.as_deref() else { return panicked };
        let count = |_: &_| {
            self.shared.observer_panics.fetch_add(1, Ordering::Relaxed);
            panicked
        };
        caught(|| call(observer), count)
    }

    #[inline]
    pub(super) fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    #[inline]
    fn seen<'a>(&'a self, entry: &'a Entry, flow: u32, time: Ticks) -> ObservedSpan<'a> {
        ObservedSpan {
            layer: self.number(),
            clock: &self.shared.decider.clock,
            entry,
            flow,
            trace_id: entry.trace_id(),
            time,
        }
    }

    /// Gives a claimed root its number. Returns the number that it has left, to be released without
    /// the claim: a child that gets another parent is in the flow in which it began.
    pub(super) fn observe_root(&self, entry: &Entry, trace_id: TraceId, base: Option<&Context>) -> u32 {
        let span = ObservedSpan { trace_id, ..self.seen(entry, 0, entry.began()) };
        entry.replace_flow(self.call(0, |observer| observer.root(&span, base)))
    }

    #[inline]
    pub(super) fn release(&self, flow: u32) {
        if flow != 0 {
            self.call((), |observer| observer.release(flow));
        }
    }

    /// Gives a span that begins the number of the span above it. No other thread knows its id yet.
    #[cold]
    #[inline(never)]
    pub(super) fn observe_begin(&self, entry: &Entry, above: &Entry) {
        if !self.is_observed() {
            return;
        }
        let flow = if above.refusal().is_some() { self.flow_here() } else { above.flow() };
        if flow != 0 {
            // 0 below a dropped root, where the clock is not read.
            let span = self.seen(entry, flow, entry.began());
            entry.begin_flow(self.call(0, |observer| observer.begin(&span)));
        }
    }

    /// The number of the innermost span with a number on this thread.
    #[cold]
    fn flow_here(&self) -> u32 {
        let flow = |inside: stack::CurrentSpan| {
            self.find_id(inside.entry).map(Entry::flow).filter(|flow| *flow != 0)
        };
        stack::find_entry(self.number(), flow).unwrap_or(0)
    }

    pub(super) fn observe_enter(&self, entry: &Entry, time: Ticks) {
        let mut flow = entry.flow();
        while flow != 0 {
            let span = self.seen(entry, flow, time);
            let own = self.call(flow, |observer| observer.enter(&span));
            if own == flow {
                return;
            }
            match entry.change_flow(flow, own) {
                Ok(()) => return self.release(flow),
                Err(first) => {
                    self.release(own);
                    flow = first;
                }
            }
        }
    }

    pub(super) fn observe_exit(&self, id: &Id, time: Ticks) {
        let Some(entry) = self.find(id) else { return };
        let flow = entry.flow();
        if flow != 0 {
            let span = self.seen(entry, flow, time);
            self.call((), |observer| observer.exit(&span));
        }
    }

    #[inline]
    pub(super) fn note_ended(&self, entry: &Entry) {
        if self.is_observed() {
            self.observe_end(entry);
        }
    }

    #[cold]
    #[inline(never)]
    fn observe_end(&self, entry: &Entry) {
        let flow = entry.take_flow();
        if flow != 0 {
            let span = self.seen(entry, flow, 0);
            self.call((), |observer| observer.end(&span));
        }
    }

    #[inline]
    pub(super) fn note_event(&self, entry: &Entry, event: &Event<'_>, time: Ticks) {
        if self.is_observed() {
            self.observe_event(entry, event, time);
        }
    }

    #[inline]
    pub(super) fn note_event_below_dropped(&self, id: u64, event: &Event<'_>) {
        if self.is_observed()
            && let Some(entry) = self.find_id(id)
        {
            self.observe_event(entry, event, 0);
        }
    }

    #[cold]
    #[inline(never)]
    fn observe_event(&self, entry: &Entry, event: &Event<'_>, time: Ticks) {
        let flow = entry.flow();
        if flow != 0 {
            let span = self.seen(entry, flow, time);
            self.call((), |observer| observer.event(&span, event));
        }
    }
}
