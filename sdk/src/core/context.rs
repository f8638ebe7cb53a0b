//! OpenTelemetry's context inside the layer's spans.

use std::borrow::Cow;
#[cfg(feature = "bridge")]
use std::cell::Cell;
use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{Span, SpanContext, Status, TraceContextExt, TraceState};
use opentelemetry::{Context, KeyValue, SpanId};
use tracing_core::span::Id;

use super::Core;
use crate::settings::ContextMode;
use crate::stack;
use crate::table::{BASE_CURRENT, CONTEXT, Entry, Fate, Phase, STATE};
use astracer_spans::record::{Body, EventTime, SpanLimits};
use astracer_spans::reentry::Busy;
use astracer_spans::thread;
use astracer_spans::trace_state;

impl Core {
    /// The context with which a span is entered; made now if none is cached.
    ///
    /// A context is cached only when its span is entered for the fourth time, so that few spans
    /// take the lock. The span of a future that is polled once is entered twice, since dropping the
    /// future enters it too. That of a request is entered for the call, the future and the body.
    #[inline]
    pub(super) fn context_to_enter(&self, entry: &Entry) -> Option<Context> {
        if self.context_mode() == ContextMode::Off {
            return None;
        }
        let is_often = entry.mark_entered();
        if let Some(kept) = self.kept_context(entry) {
            return if !is_often && self.gives_way_to_enter(entry) { None } else { Some(kept) };
        }
        let context = self.new_context(entry, true)?;
        // Code that suppresses telemetry and enters the span must not suppress it for later code
        // too.
        if is_often && !context.is_telemetry_suppressed() {
            keep(entry, &context);
        }
        Some(context)
    }

    /// The context of a started span, for code that keeps it. `None` if contexts are off.
    pub(crate) fn context(&self, entry: &Entry) -> Option<Context> {
        if self.context_mode() == ContextMode::Off {
            return None;
        }
        if let Some(kept) = self.kept_context(entry) {
            return Some(kept);
        }
        let context = self.new_context(entry, false)?;
        if context.is_telemetry_suppressed() {
            // The calling code suppresses its own telemetry, not the span's. The context is not
            // cached: where the span is entered, other context values may be current.
            return self.context_from(&Context::new(), entry);
        }
        keep(entry, &context);
        Some(context)
    }

    #[inline]
    pub(crate) fn kept_context(&self, entry: &Entry) -> Option<Context> {
        if entry.has(CONTEXT) { entry.extra().context.clone() } else { None }
    }

    /// `None` if another layer keeps the context where the span is entered, or the span has no id.
    fn new_context(&self, entry: &Entry, is_entered: bool) -> Option<Context> {
        if entry.span_id() == SpanId::INVALID {
            return None;
        }
        if !entry.has(BASE_CURRENT) || entry.thread() != thread::number() || !stack::has_contexts() {
            if is_entered && self.gives_way_to_enter(entry) {
                return None;
            }
            return self.context_from(&Context::new(), entry);
        }
        // The thread that enters the span may be inside another trace, whose values are not the
        // span's. Baggage is cleared, because the span would have captured any that was there when
        // it began.
        let _busy = Busy::mark();
        Context::map_current(|current| {
            let span = current.span().span_context().span_id();
            let is_other = span != entry.parent() && !self.is_beside(span, entry.parent());
            if is_other && is_entered && span != SpanId::INVALID && self.gives_way_to_enter(entry) {
                return None;
            }
            let own;
            let base = match is_other {
                false if current.baggage().is_empty() => current,
                _ => {
                    own = if is_other { Context::new() } else { current.with_cleared_baggage() };
                    &own
                }
            };
            self.context_from(base, entry)
        })
    }

    /// Whether another layer on this subscriber made the context of `span`, inside the same span
    /// as ours with the id `parent`.
    fn is_beside(&self, span: SpanId, parent: SpanId) -> bool {
        let own = stack::beside(self.number(), span);
        own.is_some_and(|own| own.map_or(SpanId::INVALID, |own| own.context) == parent)
    }

    #[inline]
    pub(super) fn context_from(&self, base: &Context, entry: &Entry) -> Option<Context> {
        let ids = self.span_context(entry);
        match self.context_mode() {
            ContextMode::Off => None,
            ContextMode::Recording if entry.phase() != Phase::Dropped => {
                Some(base.with_span(self.live(entry, ids)))
            }
            ContextMode::Ids | ContextMode::Recording => Some(base.with_remote_span_context(ids)),
        }
    }

    #[inline]
    fn span_context(&self, entry: &Entry) -> SpanContext {
        let mut state = if entry.has(STATE) { entry.extra().state.to_api() } else { TraceState::NONE };
        if entry.fate() == Fate::Provisional && self.shared.decider.strata.is_some() {
            state = trace_state::recorded(state);
        }
        SpanContext::new(entry.trace_id(), entry.span_id(), entry.trace_flags(), false, state)
    }

    /// The ids of a started span; for a span below a dropped root, that root's ids. `None` if it
    /// has none.
    pub(crate) fn ids(&self, entry: &Entry) -> Option<SpanContext> {
        if entry.span_id() == SpanId::INVALID {
            return None;
        }
        Some(self.span_context(entry))
    }

    /// The ids of a started span as they are propagated to other processes. If contexts are off, a
    /// dropped trace is not propagated, even if it is recorded.
    pub(crate) fn ids_to_call(&self, entry: &Entry) -> Option<SpanContext> {
        let is_told = self.context_mode() != ContextMode::Off || entry.trace_flags().is_sampled();
        if is_told { self.ids(entry) } else { None }
    }

    pub(crate) fn live(&self, entry: &Entry, context: SpanContext) -> LiveSpan {
        entry.expose();
        LiveSpan { core: self.number(), id: Id::from_u64(entry.id()), sequence: entry.sequence(), context }
    }
}

pub(super) fn keep(entry: &Entry, context: &Context) {
    // Dropped after the lock is released: its values are the user's.
    let old = entry.extra().context.replace(context.clone());
    drop(old);
}

/// One of our spans behind the OpenTelemetry API. It may outlive the span, and then does nothing.
#[derive(Debug)]
pub(crate) struct LiveSpan {
    /// The core's number, perhaps with [`IN_CALLS`]; 0: nothing is recorded.
    core: u64,
    id: Id,
    /// Another span may use the entry after this one has ended: see [`Entry::with_extra`].
    sequence: u64,
    context: SpanContext,
}

/// Marks a span that is written to only during calls of the bridge.
#[cfg(feature = "bridge")]
const IN_CALLS: u64 = 1 << 63;

#[cfg(feature = "bridge")]
thread_local! {
    pub(crate) static CALLS: Cell<u32> = const { Cell::new(0) };
}

#[cfg(feature = "bridge")]
impl LiveSpan {
    pub(crate) fn dropped(ids: SpanContext) -> Self {
        LiveSpan { core: 0, id: Id::from_u64(1), sequence: 0, context: ids }
    }

    pub(crate) fn only_in_calls(self) -> Self {
        LiveSpan { core: self.core | IN_CALLS, ..self }
    }
}

impl LiveSpan {
    fn core(&self) -> Option<Arc<Core>> {
        #[cfg(feature = "bridge")]
        if self.core & IN_CALLS != 0 {
            return if CALLS.get() > 0 { Core::known(self.core & !IN_CALLS) } else { None };
        }
        Core::known(self.core)
    }

    fn with<T>(&self, f: impl FnOnce(&mut Body, &SpanLimits) -> T) -> Option<T> {
        let core = self.core()?;
        let entry = core.find(&self.id)?;
        entry.with_extra(self.sequence, |extra| {
            let body = extra.body.get_or_insert_with(|| core.new_body());
            if body.is_ended_by_hand() {
                return None;
            }
            let result = f(body, &core.settings().limits);
            core.mark_if_failed(entry, body);
            Some(result)
        })?
    }
}

impl Span for LiveSpan {
    fn add_event_with_timestamp<T: Into<Cow<'static, str>>>(
        &mut self,
        name: T,
        timestamp: SystemTime,
        attributes: Vec<KeyValue>,
    ) {
        let name = name.into();
        self.with(|body, limits| _ = body.add_event(name, EventTime::Date(timestamp), attributes, limits));
    }

    #[inline]
    fn span_context(&self) -> &SpanContext {
        &self.context
    }

    fn is_recording(&self) -> bool {
        let Some(core) = self.core() else { return false };
        let is_open = |body: Option<&Body>| !body.is_some_and(Body::is_ended_by_hand);
        let entry = core.find(&self.id);
        entry
            .and_then(|entry| entry.with_extra(self.sequence, |extra| is_open(extra.body.as_deref())))
            .unwrap_or(false)
    }

    fn set_attribute(&mut self, attribute: KeyValue) {
        self.with(|body, limits| body.set_attribute(attribute, limits));
    }

    fn set_status(&mut self, status: Status) {
        self.with(|body, limits| body.set_status(status, limits));
    }

    fn update_name<T: Into<Cow<'static, str>>>(&mut self, name: T) {
        let name = name.into();
        self.with(|body, limits| body.update_name(&name, limits));
    }

    fn add_link(&mut self, to: SpanContext, attributes: Vec<KeyValue>) {
        self.with(|body, limits| body.add_link(to, attributes, limits));
    }

    fn end_with_timestamp(&mut self, timestamp: SystemTime) {
        self.with(|body, _| body.detail.ended_by_hand = Some(timestamp));
    }
}
