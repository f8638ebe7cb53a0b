//! Reports spans to the [`Observer`], and keeps the numbers of their flows.
//!
//! Without an observer each call is one predicted branch, and the numbers are neither read nor
//! written. A free entry has none. The functions that begin, enter and exit a span test it first
//! and have a twin for it: otherwise every span would save registers for calls that are not made.

use std::any::Any;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use astracer_samplers::tail::Severity;
use opentelemetry::{Context, KeyValue, TraceId};
use tracing_core::Event;
use tracing_core::span::{Attributes, Id};

use super::Core;
use super::wanted::{NAME, Wanted};
use crate::observer::{ObservedSpan, Observer, Observing, Recorded};
use crate::stack;
use crate::table::{BODY, Entry};
use astracer_spans::clock::Ticks;
use astracer_spans::panics::caught;
use astracer_spans::record::{Body, Fields, SpanLimits};
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
    pub(crate) fn is_observed(&self) -> bool {
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
        let span = ObservedSpan {
            spans: self,
            by,
            entry,
            flow,
            time,
            name: None,
            key: None,
            is_below_dropped: false,
        };
        self.call(panicked, |observer| call(observer, &span))
    }

    /// Gives a claimed root its number. Returns the number that it has left, to be released without
    /// the claim: a child that gets another parent is in the flow in which it began.
    pub(super) fn observe_root(
        &self,
        entry: &Entry,
        trace_id: TraceId,
        base: Option<&Context>,
        (attributes, is_below_dropped): (Option<&Attributes<'_>>, bool),
        key: Option<&str>,
    ) -> u32 {
        entry.set_trace_id(trace_id);
        let Some(by) = &self.observing else { return 0 };
        let report = |name: Option<&str>| {
            let time = entry.began();
            let span = ObservedSpan { spans: self, by, entry, flow: 0, time, name, key, is_below_dropped };
            self.call(0, |observer| observer.root(&span, base))
        };
        let is_named = entry
            .metadata()
            .is_some_and(|metadata| metadata.fields().iter().any(|field| field.name() == NAME));
        entry.replace_flow(match attributes {
            Some(attributes) if is_named => Fields::borrow(|fields| {
                let settings = self.settings();
                let visitor = fields.of_span(settings.conventions, settings.limits.text_length);
                let wants = |field: &tracing_core::Field, is_error: bool| !is_error && field.name() == NAME;
                attributes.record(&mut Wanted { wants, visitor });
                report(fields.name.map(|name| fields.memory.text(name)))
            }),
            None if entry.has(BODY) => {
                let name = entry
                    .extra()
                    .body
                    .as_deref()
                    .and_then(|body| body.detail.name.map(|name| body.memory.text(name).to_owned()));
                report(name.as_deref())
            }
            _ => report(None),
        })
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

    /// Returns the time, or 0 if the clock was not read.
    #[inline]
    pub(super) fn note_ended(&self, entry: &Entry) -> Ticks {
        if self.is_observed() { self.observe_end(entry) } else { 0 }
    }

    #[inline(never)]
    fn observe_end(&self, entry: &Entry) -> Ticks {
        let flow = entry.take_flow();
        if flow == 0 {
            return 0;
        }
        // A recorded span that was never entered ends now, by the same reading for the observer.
        let time = if entry.phase().is_recorded() && entry.last_exit() == 0 { self.ticks() } else { 0 };
        self.report((entry, flow, time), (), |observer, span| observer.end(span));
        time
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

    /// Attributes that the observer adds to an event that is recorded.
    #[inline]
    pub(super) fn observed_attributes(&self, entry: &Entry, event: &Event<'_>, time: Ticks) -> Vec<KeyValue> {
        let flow = if self.is_observed() { entry.flow() } else { 0 };
        if flow == 0 {
            return Vec::new();
        }
        let mut attributes = Vec::new();
        self.report((entry, flow, time), (), |observer, span| {
            attributes = observer.event_attributes(span, event);
        });
        attributes
    }

    /// The entry of a span whose trace is kept, or may be kept late.
    pub(crate) fn find_recorded(&self, id: &Id) -> Option<&Entry> {
        self.find(id).filter(|entry| entry.phase().is_recorded())
    }

    #[inline(never)]
    fn observe_event(&self, entry: &Entry, event: &Event<'_>, time: Ticks) {
        let flow = entry.flow();
        if flow != 0 {
            self.report((entry, flow, time), (), |observer, span| observer.event(span, event));
        }
    }

    /// Changes a recorded span that was not ended through the OpenTelemetry API.
    fn change_recorded<T>(&self, entry: &Entry, f: impl FnOnce(&mut Body, &SpanLimits) -> T) -> Option<T> {
        let mut extra = entry.extra();
        if !extra.is_recordable() || !entry.phase().is_recorded() {
            return None;
        }
        let body = extra.body.get_or_insert_with(|| self.new_body());
        (!body.is_ended_by_hand()).then(|| f(body, &self.settings().limits))
    }
}

impl Recorded for Core {
    fn has_failed(&self, entry: &Entry) -> bool {
        let is_recorded = entry.phase().is_recorded();
        let by_body = || {
            entry.has(BODY)
                && entry.extra().body.as_deref().is_some_and(|body| body.severity() == Severity::Error)
        };
        std::thread::panicking() || if is_recorded { by_body() } else { entry.failed() }
    }

    fn has_room_for_event(&self, entry: &Entry) -> bool {
        let limit = self.settings().limits.events;
        let has_room = |body: &Body| body.detail.events.held < limit && !body.is_ended_by_hand();
        !entry.has(BODY) || entry.extra().body.as_deref().is_none_or(has_room)
    }

    fn add_event(&self, entry: &Entry, name: Cow<'static, str>, attributes: Vec<KeyValue>) -> bool {
        let now = self.event_time();
        self.change_recorded(entry, |body, limits| body.add_event(name, now, attributes, limits))
            .unwrap_or(false)
    }

    fn set_attributes(&self, entry: &Entry, attributes: Vec<KeyValue>) {
        self.change_recorded(entry, |body, limits| {
            attributes.into_iter().for_each(|attribute| body.set_attribute(attribute, limits));
            self.mark_if_failed(entry, body);
        });
    }
}
