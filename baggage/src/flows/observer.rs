//! The SDK's reports of spans.

use std::sync::atomic::Ordering;

use astracer_sdk::{Clock, ObservedSpan, Observer, ParentDecision};
use opentelemetry::{Context, KeyValue, TraceId};
use tracing::{Event, Level, Metadata};

use super::current::{self, Current};
use super::slots::{Slot, UNCONFIRMED};
use super::stats::Counts;
use super::{Flows, IN_WRAPPER, Inner};
use crate::application::Place;

impl Observer for Flows {
    fn start(&self, clock: &Clock, parents: ParentDecision) {
        // With several SDKs, the first one's.
        let _ = self.0.clock.set(clock.clone());
        if parents == ParentDecision::Ignore {
            self.0.refuses_callers.store(true, Ordering::Relaxed);
        }
    }

    #[cfg(feature = "critical_path")]
    fn reads_keys(&self) -> bool {
        self.0.applications.critical_path().is_some()
    }

    fn attributes(&self, flow: u32, trace: TraceId, each: &mut dyn FnMut(&str, &str)) {
        self.0.attributes(flow, trace, each);
    }

    fn root(&self, root: &ObservedSpan<'_>, base: Option<&Context>) -> u32 {
        self.0.root(root, base)
    }

    #[inline]
    fn begin(&self, span: &ObservedSpan<'_>) -> u32 {
        let current = current::of(self.0.owner);
        let mut number = span.flow();
        if current.owner != self.0.owner || current.number != number {
            number = self.0.flow_of_child(number, current);
        }
        if let Some(slot) = self.0.slot(number) {
            slot.add_use();
        }
        #[cfg(feature = "critical_path")]
        self.0.note_begun(span, number);
        number
    }

    #[inline]
    fn enter(&self, span: &ObservedSpan<'_>) -> u32 {
        let current = current::of(self.0.owner);
        let mut number = span.flow();
        if current.owner == self.0.owner && current.number == number {
            current::enter_again(span.key());
        } else {
            number = self.0.enter_elsewhere(span, current);
        }
        #[cfg(feature = "critical_path")]
        self.0.note_entered(span);
        self.0.begin_x_trace(number, span);
        if !self.0.applications.is_empty() {
            let place = place(span.metadata());
            self.0.note(span, number, |application, flow| application.enter(flow, place));
        }
        number
    }

    #[inline]
    fn exit(&self, span: &ObservedSpan<'_>) {
        if !self.0.applications.is_empty() {
            let place = place(span.metadata());
            self.0.note(span, span.flow(), |application, flow| application.exit(flow, place));
        }
        #[cfg(feature = "critical_path")]
        let now = super::paths::Now::of(span);
        #[cfg(feature = "critical_path")]
        self.0.note_exited(span, &now);
        if current::may_be_inside(span.key())
            && let Some(left) = self.0.leave(
                span.key(),
                #[cfg(feature = "critical_path")]
                Some(&now),
            )
        {
            self.0.confirm(left, span.metadata());
        }
    }

    #[inline]
    fn end(&self, span: &ObservedSpan<'_>) {
        if span.is_root() {
            self.0.close_account(span);
        }
        #[cfg(feature = "critical_path")]
        self.0.note_ended(span);
        self.0.release(span.flow());
    }

    fn release(&self, flow: u32) {
        self.0.release(flow);
    }

    fn event(&self, span: &ObservedSpan<'_>, event: &Event<'_>) {
        if *event.metadata().level() == Level::ERROR {
            self.0.note_error(span.flow());
        }
        if !self.0.applications.is_empty() {
            let place = place(event.metadata());
            self.0.note(span, span.flow(), |application, flow| application.event(flow, place));
        }
    }

    fn event_attributes(&self, span: &ObservedSpan<'_>, event: &Event<'_>) -> Vec<KeyValue> {
        self.0.x_trace_event(span, event.metadata())
    }
}

impl Inner {
    /// The current flow, if a root of a trace takes it.
    fn flow_to_join(&self, trace: TraceId) -> Option<(u32, &Slot)> {
        let number = self.hold_current(current::of(self.owner))?;
        let slot = self.slot(number)?;
        let is_free = slot.state().trace.is_none_or(|own| own == trace);
        if !is_free {
            self.release(number);
        }
        is_free.then_some((number, slot))
    }

    fn root(&self, root: &ObservedSpan<'_>, base: Option<&Context>) -> u32 {
        let (number, slot) = match self.flow_to_join(root.trace_id()) {
            Some((number, slot)) => {
                if slot.origin() == (0, 0) {
                    slot.set_origin(root.key());
                }
                (number, slot)
            }
            None => {
                let Some(taken) = self.take(root.key()) else { return 0 };
                Counts::add(&self.counts.requests);
                self.receive_from_context(taken.1, base);
                taken
            }
        };
        slot.state().trace = Some(root.trace_id());
        self.open_account(slot, root, base);
        #[cfg(feature = "critical_path")]
        self.open_path(slot, root);
        number
    }

    fn attributes(&self, flow: u32, trace: TraceId, each: &mut dyn FnMut(&str, &str)) {
        let baggage = match flow {
            0 => {
                let Some((number, _)) = self.flow_to_join(trace) else { return };
                let baggage = self.at_state(number, |state| state.baggage.share());
                self.release(number);
                baggage
            }
            // The number is the parent's.
            flow => {
                let own = self.flow_of_child(flow, current::of(self.owner));
                self.at_state(own, |state| state.baggage.share())
            }
        };
        let Some(baggage) = baggage.filter(|baggage| !baggage.is_empty()) else { return };
        for key in baggage.keys(&self.members) {
            let value = baggage.get(&self.members, key).next().map(String::from_utf8_lossy);
            each(&String::from_utf8_lossy(key), &value.unwrap_or_default());
        }
    }

    /// A child begins where its parent's flow is not current.
    #[inline(never)]
    fn flow_of_child(&self, flow: u32, current: Current) -> u32 {
        let own = self.resolve(flow);
        match self.current(current) {
            0 => own,
            // The parent is probably around the wrapper, such as that of a worker which handles a
            // message of another request.
            here if current.is_wrapped() || self.is_below(here, own) => here,
            _ => own,
        }
    }

    /// Enters a span whose number is not the current flow's. Returns the one that it has from now
    /// on.
    #[inline(never)]
    fn enter_elsewhere(&self, span: &ObservedSpan<'_>, before: Current) -> u32 {
        let (flow, key) = (span.flow(), span.key());
        let mut number = self.resolve(flow);
        let Some(slot) = self.slot(number) else { return flow };
        let here = self.current(before);
        if here == number || here != 0 && (IN_WRAPPER.get() || self.is_below(here, number)) {
            current::enter_again(key);
            return flow;
        }
        if slot.origin() == key {
            if number != flow {
                slot.add_use();
            }
        } else {
            let is_calling = slot.state().calling.contains(&key.1);
            let Some((copy, copied)) = self.copy(number, key) else { return flow };
            if is_calling {
                copied.clear(UNCONFIRMED);
            }
            number = copy;
        }
        if self.push(number, key) {
            self.note_switch(before);
        }
        number
    }

    /// A span that looked like an unmarked fork is exited, and nothing has marked it.
    fn confirm(&self, left: Current, metadata: &'static Metadata<'static>) {
        if let Some(slot) = self.slot(left.number)
            && slot.id() == left.id
            && slot.has(UNCONFIRMED)
            && slot.clear(UNCONFIRMED)
        {
            self.counts.note_unmarked(metadata);
        }
    }

    /// Calls a handler for the current flow, or else for that of a span.
    fn note(
        &self,
        span: &ObservedSpan<'_>,
        flow: u32,
        handler: impl Fn(&dyn crate::Application, &mut crate::View<'_>),
    ) {
        let nanos = || self.date(u64::try_from(span.now().as_nanos()).unwrap_or(u64::MAX));
        match self.hold_current(current::of(self.owner)) {
            Some(number) => {
                self.call(number, nanos, handler);
                self.release(number);
            }
            None => self.call(flow, nanos, handler),
        }
    }
}

fn place(metadata: &'static Metadata<'static>) -> Place<'static> {
    Place::new(metadata.name(), metadata.target())
}
