//! OpenTelemetry's context inside of our spans.

use std::borrow::Cow;
use std::sync::Weak;
use std::time::SystemTime;

use opentelemetry::trace::{Span, SpanContext, Status as OtelStatus, TraceContextExt, TraceState};
use opentelemetry::{Context, KeyValue, SpanId, TraceFlags, TraceId};
use tracing_core::span::Id;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use super::attribute::Attribute;
use super::buffer::{Buffer, Event, EventName, EventTime, Link};
use super::core::Core;
use super::record::{Detail, Record, Status, Text};
use super::table::Lane;
use super::thread;
use crate::settings::{ContextMode, SpanLimits};

impl Core {
    /// The context to enter a span with, made now if it is not there yet. Only the context of a span that is entered
    /// again is kept, so that one that is entered once has no lock to take and none to share.
    #[inline]
    pub(crate) fn context_to_enter(&self, id: &Id, lane: &Lane, slot: Option<u32>) -> Option<Context> {
        let again = lane.enter();
        if self.settings.context == ContextMode::Off {
            return None;
        }
        self.context_of_entered(id, lane, slot, again)
    }

    fn context_of_entered(&self, id: &Id, lane: &Lane, slot: Option<u32>, again: bool) -> Option<Context> {
        if let Some(kept) = lane.kept_context() {
            return Some(kept);
        }
        let context = self.make_context(id, lane, slot)?;
        if again {
            drop(lane.keep_context(context.clone()));
        }
        Some(context)
    }

    /// The context of a span that was decided about, for others to hold. `None` if it has none.
    pub(crate) fn context(&self, id: &Id, lane: &Lane, slot: Option<u32>) -> Option<Context> {
        if self.settings.context == ContextMode::Off {
            return None;
        }
        lane.kept_context().or_else(|| {
            let context = self.make_context(id, lane, slot)?;
            drop(lane.keep_context(context.clone()));
            Some(context)
        })
    }

    /// The context of a span, if it has one.
    pub(crate) fn context_of(&self, id: &Id) -> Option<Context> {
        let lane = self.table.find(id.into_u64())?;
        self.context(id, lane, lane.handle().slot())
    }

    /// The context of the nearest span above one that we know nothing of.
    pub(crate) fn context_above<'a, R: LookupSpan<'a>>(&self, span: &SpanRef<'a, R>) -> Option<Context> {
        span.scope().skip(1).find_map(|ancestor| self.context_of(&ancestor.id()))
    }

    /// Makes the context of a record now, from this one, and keeps it.
    pub(crate) fn keep_context(&self, id: &Id, lane: &Lane, slot: Option<u32>, base: &Context) {
        let context = self.make_context_from(id, lane, slot, base);
        drop(context.and_then(|context| lane.keep_context(context)));
    }

    fn make_context(&self, id: &Id, lane: &Lane, slot: Option<u32>) -> Option<Context> {
        if lane.origin() == thread::number() {
            Context::map_current(|base| self.make_context_from(id, lane, slot, base))
        } else {
            self.make_context_from(id, lane, slot, &Context::new())
        }
    }

    fn make_context_from(&self, id: &Id, lane: &Lane, slot: Option<u32>, base: &Context) -> Option<Context> {
        let span_id = lane.span_id();
        if span_id == SpanId::INVALID {
            return None;
        }
        let Some(slot) = slot else {
            return Some(of_dropped(base, lane.trace_id(), span_id, TraceState::NONE));
        };
        let slot = self.pool.slot(slot)?;
        let state = if slot.has_state() { slot.lock().trace_state.clone() } else { TraceState::NONE };
        let own = SpanContext::new(slot.trace_id(), span_id, TraceFlags::SAMPLED, false, state);
        self.context_of_kept(base, id, own)
    }

    pub(crate) fn context_of_kept(&self, base: &Context, id: &Id, own: SpanContext) -> Option<Context> {
        match self.settings.context {
            ContextMode::Off => None,
            ContextMode::Ids => Some(base.with_remote_span_context(own)),
            ContextMode::Recording => Some(base.with_span(self.live(id, own))),
        }
    }

    pub(crate) fn live(&self, id: &Id, context: SpanContext) -> LiveSpan {
        LiveSpan { core: self.own.clone(), id: id.clone(), context }
    }
}

/// The context of a dropped local root: what it calls shall know that the trace is dropped.
pub(crate) fn of_dropped(base: &Context, trace_id: TraceId, span_id: SpanId, state: TraceState) -> Context {
    base.with_remote_span_context(SpanContext::new(trace_id, span_id, TraceFlags::NOT_SAMPLED, false, state))
}

/// A span of ours, as the OpenTelemetry API sees it.
#[derive(Debug)]
pub(crate) struct LiveSpan {
    core: Weak<Core>,
    /// In the subscriber. Another span may have it when this one has ended.
    id: Id,
    context: SpanContext,
}

impl LiveSpan {
    /// Nothing happens if the span has ended: a context may outlive it.
    fn with<T>(&self, f: impl FnOnce(&mut Open<'_>) -> T) -> Option<T> {
        let core = self.core.upgrade()?;
        let lane = core.table.find(self.id.into_u64())?;
        let own = self.context.span_id();
        let with = |buffer: &mut Buffer, index| {
            Open::of(buffer, index, own, &core.settings.limits).map(|mut open| f(&mut open))
        };
        core.with_record(&self.id, lane, with)?
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
        self.with(|open| open.add_event(name, EventTime::Date(timestamp), attributes));
    }

    fn span_context(&self) -> &SpanContext {
        &self.context
    }

    fn is_recording(&self) -> bool {
        self.with(|_| ()).is_some()
    }

    fn set_attribute(&mut self, attribute: KeyValue) {
        self.with(|open| open.set_attribute(attribute));
    }

    fn set_status(&mut self, status: OtelStatus) {
        self.with(|open| open.set_status(status));
    }

    fn update_name<T: Into<Cow<'static, str>>>(&mut self, name: T) {
        let name = name.into();
        self.with(|open| open.update_name(&name));
    }

    fn add_link(&mut self, to: SpanContext, attributes: Vec<KeyValue>) {
        self.with(|open| open.add_link(to, attributes));
    }

    fn end_with_timestamp(&mut self, timestamp: SystemTime) {
        self.with(|open| open.detail().ended_by_hand = Some(timestamp));
    }
}

/// An open span, to be changed as the OpenTelemetry API asks.
pub(crate) struct Open<'a> {
    buffer: &'a mut Buffer,
    index: u32,
    limits: &'a SpanLimits,
}

impl<'a> Open<'a> {
    /// `None` if there is no such span any more, or it was ended.
    pub(crate) fn of(
        buffer: &'a mut Buffer,
        index: u32,
        span_id: SpanId,
        limits: &'a SpanLimits,
    ) -> Option<Self> {
        let record = buffer.records.get(index as usize)?;
        let open =
            record.is_open() && record.span_id == span_id && buffer.detail_of(record).ended_by_hand.is_none();
        open.then_some(Open { buffer, index, limits })
    }

    fn record(&mut self) -> &mut Record {
        &mut self.buffer.records[self.index as usize]
    }

    fn detail(&mut self) -> &mut Detail {
        self.buffer.detail(self.index)
    }

    pub(crate) fn set_attribute(&mut self, attribute: KeyValue) {
        let max = self.limits.attributes;
        if self.record().attributes.admit(max) {
            let attribute = self.keep(attribute);
            self.buffer.attributes.push(attribute.of(self.index));
        }
    }

    fn keep(&mut self, KeyValue { key, value, .. }: KeyValue) -> Attribute {
        let value = cut(value, self.limits.text_length);
        Attribute::new("", self.buffer.memory.keep(KeyValue::new(key, value)))
    }

    pub(crate) fn set_status(&mut self, status: OtelStatus) {
        let status = match status {
            OtelStatus::Unset => Status::Unset,
            OtelStatus::Ok => Status::Ok,
            OtelStatus::Error { description } => Status::Error(self.text(&description)),
        };
        self.detail().status.raise(status);
    }

    pub(crate) fn update_name(&mut self, name: &str) {
        let text = self.text(name);
        self.detail().name = Some(text);
    }

    fn text(&mut self, text: &str) -> Text {
        let memory = &mut self.buffer.memory.text;
        let start = memory.len() as u32;
        let cut = text.char_indices().nth(self.limits.text_length as usize).map_or(text.len(), |(at, _)| at);
        memory.push_str(&text[..cut]);
        Text { start, length: cut as u32 }
    }

    pub(crate) fn add_event(&mut self, name: Cow<'static, str>, time: EventTime, attributes: Vec<KeyValue>) {
        let max = self.limits.events;
        if !self.detail().events.admit(max) {
            return;
        }
        let given = attributes.len() as u32;
        let count = given.min(self.limits.attributes_per_event);
        for attribute in attributes.into_iter().take(count as usize) {
            let attribute = self.keep(attribute);
            self.buffer.event_attributes.push(attribute);
        }
        let name = match name {
            Cow::Borrowed(name) => EventName::Static(name),
            Cow::Owned(name) => EventName::Owned(name.into_boxed_str()),
        };
        self.buffer.events.push(Event {
            record: self.index,
            name,
            time,
            metadata: None,
            log: Default::default(),
            count,
            cut: given - count,
        });
    }

    pub(crate) fn add_link(&mut self, to: SpanContext, mut attributes: Vec<KeyValue>) {
        let max = self.limits.links;
        if self.detail().links.admit(max) {
            let given = attributes.len();
            attributes.truncate(self.limits.attributes_per_link as usize);
            let cut = (given - attributes.len()) as u32;
            self.buffer.links.push(Link { record: self.index, to, attributes, cut });
        }
    }
}

/// A text within its limit, given in characters.
fn cut(value: opentelemetry::Value, max: u32) -> opentelemetry::Value {
    let opentelemetry::Value::String(text) = &value else { return value };
    match text.as_str().char_indices().nth(max as usize) {
        Some((end, _)) => opentelemetry::Value::String(text.as_str()[..end].to_owned().into()),
        None => value,
    }
}
