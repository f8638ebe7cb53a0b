//! Reports spans to the [`Observer`], and keeps the numbers of their flows.
//!
//! Without an observer each call is one predicted branch, and the numbers are neither read nor
//! written. A free entry has none. The functions that begin, enter and exit a span test it first
//! and have a twin for it: otherwise every span would save registers for calls that are not made.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use opentelemetry::{Context, TraceId};
use tracing_core::Event;

use super::Core;
use crate::observer::{ObservedSpan, Observer, Observing};
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
        let Some(Observing { observer, .. }) = &self.observing else { return panicked };
        // Not by `caught` alone, whose handling of panics would be inlined into every call.
        match catch_unwind(AssertUnwindSafe(|| call(&**observer))) {
            Ok(result) => result,
            Err(payload) => {
                self.count_observer_panic(payload);
                panicked
            }
        }
    }

    #[cold]
    fn count_observer_panic(&self, payload: Box<dyn Any + Send>) {
        self.shared.observer_panics.fetch_add(1, Ordering::Relaxed);
        // Dropping the payload may panic too.
        caught(|| drop(payload), |_| ());
    }

    #[inline]
    pub(super) fn is_observed(&self) -> bool {
        self.observing.is_some()
    }

    /// Calls the observer about a span.
    #[inline]
    fn report<T: Copy>(
        &self,
        (entry, flow, time): (&Entry, u32, Ticks),
        panicked: T,
        call: impl FnOnce(&dyn Observer, &ObservedSpan<'_>) -> T,
    ) -> T {
        let Some(by) = &self.observing else { return panicked };
        let span = ObservedSpan { by, entry, flow, time };
        self.call(panicked, |observer| call(observer, &span))
    }

    /// Gives a claimed root its number. Returns the number that it has left, to be released without
    /// the claim: a child that gets another parent is in the flow in which it began.
    pub(super) fn observe_root(&self, entry: &Entry, trace_id: TraceId, base: Option<&Context>) -> u32 {
        entry.set_trace_id(trace_id);
        let span = (entry, 0, entry.began());
        entry.replace_flow(self.report(span, 0, |observer, span| observer.root(span, base)))
    }

    #[inline]
    pub(super) fn release(&self, flow: u32) {
        if flow != 0 {
            self.call((), |observer| observer.release(flow));
        }
    }

    /// Gives a span that begins the number of the span above it. No other thread knows its id yet.
    #[inline]
    pub(super) fn observe_begin(&self, entry: &Entry, above: &Entry) {
        if !self.is_observed() {
            return;
        }
        let flow = if above.refusal().is_some() { self.flow_here() } else { above.flow() };
        if flow != 0 {
            // 0 below a dropped root, where the clock is not read.
            let span = (entry, flow, entry.began());
            entry.begin_flow(self.report(span, 0, |observer, span| observer.begin(span)));
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

    #[inline]
    pub(super) fn observe_enter(&self, entry: &Entry, time: Ticks) {
        let mut flow = entry.flow();
        while flow != 0 {
            let own = self.report((entry, flow, time), flow, |observer, span| observer.enter(span));
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

    #[inline]
    pub(super) fn observe_exit(&self, entry: &Entry, time: Ticks) {
        let flow = entry.flow();
        if flow != 0 {
            self.report((entry, flow, time), (), |observer, span| observer.exit(span));
        }
    }

    #[inline]
    pub(super) fn note_ended(&self, entry: &Entry) {
        if self.is_observed() {
            self.observe_end(entry);
        }
    }

    #[inline(never)]
    fn observe_end(&self, entry: &Entry) {
        let flow = entry.take_flow();
        if flow != 0 {
            self.report((entry, flow, 0), (), |observer, span| observer.end(span));
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

    #[inline(never)]
    fn observe_event(&self, entry: &Entry, event: &Event<'_>, time: Ticks) {
        let flow = entry.flow();
        if flow != 0 {
            self.report((entry, flow, time), (), |observer, span| observer.event(span, event));
        }
    }
}
