//! Records become OpenTelemetry's `SpanData`, on the exporter's thread.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use opentelemetry::trace::{
    Event as OtelEvent, Link as OtelLink, SpanContext, SpanKind, Status as OtelStatus,
};
use opentelemetry::{InstrumentationScope, KeyValue, TraceFlags};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tracing_core::Metadata;

use super::attribute::Attribute;
use super::buffer::{Buffer, Event, EventName, EventTime};
use super::memory::Memory;
use super::record::{Record, Status};
use crate::clock::{Anchor, Clock};
use crate::settings::{Extras, Settings};

/// What all spans of a layer share.
#[derive(Debug)]
pub(crate) struct Converter {
    pub(crate) clock: Clock,
    pub(crate) extras: Extras,
    pub(crate) attributes_max: usize,
    /// How many attributes are added to a span at most, so that memory for them is taken once, and no more.
    added_max: usize,
    pub(crate) scope: InstrumentationScope,
}

/// Lists that are made for each trace, in memory that is used again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The records that are exported, in the order of their spans.
    order: Vec<usize>,
    /// Where each record's span lies among all that were converted.
    places: Vec<Option<usize>>,
}

impl Converter {
    pub(crate) fn new(clock: Clock, settings: &Settings, scope: InstrumentationScope) -> Self {
        let attributes_max = settings.limits.attributes as usize;
        let extras = settings.extras;
        let Extras { location, threads, level, target, inactivity } = extras;
        let count = |on: bool, attributes: usize| if on { attributes } else { 0 };
        let added_max = count(location, 3)
            + count(threads, 2)
            + count(level, 1)
            + count(target, 1)
            + count(inactivity, 2);
        Converter { clock, extras, attributes_max, added_max, scope }
    }

    /// Appends the closed spans of a trace, in the order in which they began.
    pub(crate) fn convert(&self, buffer: &mut Buffer, out: &mut Vec<SpanData>, scratch: &mut Scratch) {
        let anchor = self.clock.anchor();
        let Scratch { order, places } = scratch;
        set_order(order, &buffer.records);
        places.clear();
        places.resize(buffer.records.len(), None);
        for at in order.iter() {
            places[*at] = Some(out.len());
            out.push(self.span(&buffer.records[*at], buffer, &anchor));
        }
        let memory = &mut buffer.memory;
        for attribute in &buffer.attributes {
            if let Some(span) = places[attribute.record as usize].map(|at| &mut out[at]) {
                set(&mut span.attributes, attribute.export(memory));
            }
        }
        let mut attributes = buffer.event_attributes.drain(..);
        for event in buffer.events.drain(..) {
            let own = attributes.by_ref().take(event.count as usize);
            let converted = self.event(&event, own, memory, &anchor);
            if let Some(span) = places[event.record as usize].map(|at| &mut out[at]) {
                span.events.events.push(converted);
            }
        }
        drop(attributes);
        for link in buffer.links.drain(..) {
            if let Some(span) = places[link.record as usize].map(|at| &mut out[at]) {
                span.links.links.push(OtelLink::new(link.to, link.attributes, link.cut));
            }
        }
        // What we add comes after what the user gave, so that it is what a limit cuts.
        for (index, place) in places.iter().enumerate() {
            if let Some(place) = place {
                self.add_extras(index, buffer, &mut out[*place]);
            }
        }
    }

    fn span(&self, record: &Record, buffer: &Buffer, anchor: &Anchor<'_>) -> SpanData {
        let memory = &buffer.memory;
        let state = buffer.trace_state.clone();
        let detail = buffer.detail_of(record);
        let name = match detail.name {
            Some(text) => Cow::Owned(memory.text(text).to_owned()),
            None => Cow::Borrowed(record.metadata.name()),
        };
        let mut events = SpanEvents::default();
        events.dropped_count = detail.events.cut;
        let mut links = SpanLinks::default();
        links.dropped_count = detail.links.cut;
        SpanData {
            span_context: SpanContext::new(
                buffer.trace_id,
                record.span_id,
                TraceFlags::SAMPLED,
                false,
                state,
            ),
            parent_span_id: record.parent,
            parent_span_is_remote: detail.parent_is_remote,
            span_kind: detail.kind.clone().unwrap_or(SpanKind::Internal),
            name,
            start_time: anchor.date(record.start),
            end_time: detail.ended_by_hand.unwrap_or_else(|| anchor.date(record.end)),
            attributes: Vec::with_capacity(record.attributes.held as usize + self.added_max),
            dropped_attributes_count: record.attributes.cut,
            events,
            links,
            status: match detail.status {
                Status::Unset => OtelStatus::Unset,
                Status::Ok => OtelStatus::Ok,
                Status::Error(text) => OtelStatus::error(memory.text(text).to_owned()),
            },
            instrumentation_scope: self.scope.clone(),
        }
    }

    fn add_extras(&self, index: usize, buffer: &Buffer, span: &mut SpanData) {
        let mut add = |attribute: KeyValue| {
            if span.attributes.len() < self.attributes_max {
                span.attributes.push(attribute);
            } else {
                span.dropped_attributes_count = span.dropped_attributes_count.saturating_add(1);
            }
        };
        let record = &buffer.records[index];
        let metadata = record.metadata;
        if self.extras.location {
            location(metadata).for_each(&mut add);
        }
        if let Some(thread) = buffer.threads.get(record.thread as usize).filter(|_| self.extras.threads) {
            add(KeyValue::new("thread.id", i64::try_from(thread.id).unwrap_or(i64::MAX)));
            if let Some(name) = &thread.name {
                add(KeyValue::new("thread.name", Arc::clone(name)));
            }
        }
        if self.extras.level {
            add(KeyValue::new("level", metadata.level().as_str()));
        }
        if self.extras.target {
            add(KeyValue::new("target", metadata.target()));
        }
        if self.extras.inactivity {
            let nanos = |ticks| i64::try_from(self.clock.nanos_between(0, ticks)).unwrap_or(i64::MAX);
            let (busy, idle) = record.busy_and_idle();
            add(KeyValue::new("busy_ns", nanos(busy)));
            add(KeyValue::new("idle_ns", nanos(idle)));
        }
    }

    fn event(
        &self,
        event: &Event,
        own: impl Iterator<Item = Attribute>,
        memory: &mut Memory,
        anchor: &Anchor<'_>,
    ) -> OtelEvent {
        let mut attributes = Vec::with_capacity(event.count as usize + ADDED_TO_EVENTS);
        let log = event.log;
        if let Some(metadata) = event.metadata {
            attributes.push(KeyValue::new("level", metadata.level().as_str()));
            attributes.push(match log.target {
                Some(target) => KeyValue::new("target", memory.text(target).to_owned()),
                None => KeyValue::new("target", metadata.target()),
            });
        }
        for attribute in own {
            set(&mut attributes, attribute.export(memory));
        }
        if let Some(metadata) = event.metadata.filter(|_| self.extras.location) {
            if log.target.is_some() {
                let texts = [("code.file.path", log.file), ("code.module.name", log.module)];
                let texts =
                    texts.into_iter().filter_map(|(name, text)| Some((name, memory.text(text?).to_owned())));
                attributes.extend(texts.map(|(name, text)| KeyValue::new(name, text)));
                attributes.extend(log.line.map(|line| KeyValue::new("code.line.number", line)));
            } else {
                attributes.extend(location(metadata));
            }
        }
        let name = match &event.name {
            EventName::Text(text) => Cow::Owned(memory.text(*text).to_owned()),
            EventName::Static(name) => Cow::Borrowed(*name),
            EventName::Owned(name) => Cow::Owned(name.to_string()),
        };
        let time = match event.time {
            EventTime::Ticks(ticks) => anchor.date(ticks),
            EventTime::Date(date) => date,
        };
        OtelEvent::new(name, time, attributes, event.cut)
    }
}

/// The records that are exported, in the order in which their spans began. Most records are written when a span ends, so
/// of those that began at the same tick the one that ended last is the one above.
fn set_order(order: &mut Vec<usize>, records: &[Record]) {
    order.clear();
    order.extend((0..records.len()).filter(|at| !records[*at].is_open() && !records[*at].left));
    order.sort_by_key(|at| (records[*at].start, Reverse(records[*at].end)));
}

/// The attributes that are added to an event at most.
const ADDED_TO_EVENTS: usize = 5;

fn location(metadata: &'static Metadata<'static>) -> impl Iterator<Item = KeyValue> {
    let file = metadata.file().map(|file| KeyValue::new("code.file.path", file));
    let module = metadata.module_path().map(|module| KeyValue::new("code.module.name", module));
    let line = metadata.line().map(|line| KeyValue::new("code.line.number", i64::from(line)));
    file.into_iter().chain(module).chain(line)
}

/// Sets an attribute: the last value of a name counts (OpenTelemetry specification, "Set Attributes").
fn set(attributes: &mut Vec<KeyValue>, attribute: KeyValue) {
    match attributes.iter_mut().find(|known| known.key == attribute.key) {
        Some(known) => *known = attribute,
        None => attributes.push(attribute),
    }
}
