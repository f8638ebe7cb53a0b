//! Conversion of records to OpenTelemetry's `SpanData`, on the exporter's thread.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use astracer_samplers::Threshold;
use opentelemetry::trace::{
    Event as OtelEvent, Link as OtelLink, SpanContext, SpanKind, Status as OtelStatus,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tracing_core::Metadata;

use crate::clock::{Anchor, Anchors, Clock, Ticks};
use crate::record::{
    Attribute, Event, EventName, EventTime, Header, MemoryView, Record, SpanLimits, Status, TraceView,
};
use crate::thread::ThreadName;
use crate::trace_state::State;

/// Attributes added to spans and events, with the names and defaults of tracing-opentelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) location: bool,
    pub(crate) threads: bool,
    pub(crate) level: bool,
    pub(crate) target: bool,
    pub(crate) inactivity: bool,
}

impl Default for Extras {
    fn default() -> Self {
        Extras { location: true, threads: true, level: false, target: true, inactivity: true }
    }
}

/// Converts traces. Each of the exporter's threads has its own.
#[derive(Debug)]
pub(crate) struct Converter {
    anchors: Anchors,
    extras: Extras,
    attributes_max: usize,
    /// The most attributes that we add to a span, so that the list is allocated once.
    added_max: usize,
    /// `None`: astracer's own scope.
    scope: Option<InstrumentationScope>,
    /// The names of the reasons for late keeping, by
    /// [`KeepReason::index`](crate::record::KeepReason::index).
    reasons: Arc<[Box<str>]>,
    /// The name of the last thread on which a span began.
    thread: Option<(u32, Option<ThreadName>)>,
    positions: Vec<Positions>,
    order: Vec<Begin>,
}

/// The scope of spans if the service sets none.
#[inline]
pub(crate) fn own_scope() -> InstrumentationScope {
    InstrumentationScope::builder("astracer").with_version(env!("CARGO_PKG_VERSION")).build()
}

/// A record's start, end and index. Spans are exported in this order: see [`set_order`].
type Begin = (Ticks, Reverse<Ticks>, usize);

/// The index of a record, and where its parts begin in their lists.
#[derive(Clone, Copy, Debug)]
struct Positions {
    record: usize,
    attributes: usize,
    detail: usize,
    events: usize,
    event_attributes: usize,
    links: usize,
}

impl Converter {
    pub(crate) fn new(
        clock: Clock,
        (extras, limits): (Extras, &SpanLimits),
        scope: Option<InstrumentationScope>,
        reasons: Arc<[Box<str>]>,
    ) -> Self {
        let attributes_max = limits.attributes as usize;
        let Extras { location, threads, level, target, inactivity } = extras;
        let count = |on: bool, attributes: usize| if on { attributes } else { 0 };
        let added_max = count(location, 3)
            + count(threads, 2)
            + count(level, 1)
            + count(target, 1)
            + count(inactivity, 2);
        let anchors = Anchors::new(clock);
        Converter {
            anchors,
            extras,
            attributes_max,
            added_max,
            scope,
            reasons,
            thread: None,
            positions: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Reads both clocks. Call this before converting traces whose spans have ended by now.
    pub(crate) fn compare_clocks(&mut self) {
        self.anchors.compare();
    }

    /// Appends the spans of a trace, ordered by their start.
    pub(crate) fn convert(&mut self, mut trace: TraceView<'_>, out: &mut Vec<SpanData>) {
        let anchor = self.anchors.of(trace.header.began);
        let (mut positions, mut order) =
            (std::mem::take(&mut self.positions), std::mem::take(&mut self.order));
        set_positions(&mut positions, &trace);
        set_order(&mut order, &trace);
        for (.., record) in &order {
            self.push_span(positions[*record], &mut trace, &anchor, out);
        }
        (self.positions, self.order) = (positions, order);
    }

    /// Appends a span. `SpanData` is large, so it is built in one expression and moved once.
    fn push_span(
        &mut self,
        at: Positions,
        trace: &mut TraceView<'_>,
        anchor: &Anchor,
        out: &mut Vec<SpanData>,
    ) {
        let record = &trace.records[at.record];
        #[cfg(test)]
        assert_ne!(record.metadata.name(), "the converter panics");
        let detail = if record.has_detail() { trace.details.get(at.detail) } else { None };
        let memory = &mut trace.memory;
        let name = match detail.and_then(|detail| detail.name) {
            Some(text) => Cow::Owned(memory.text(text).to_owned()),
            None => Cow::Borrowed(record.metadata.name()),
        };
        let status = match detail.map_or(Status::Unset, |detail| detail.status) {
            Status::Unset => OtelStatus::Unset,
            Status::Ok => OtelStatus::Ok,
            Status::Error(text) => OtelStatus::error(memory.text(text).to_owned()),
        };
        let mut events = SpanEvents::default();
        let mut links = SpanLinks::default();
        let mut attributes = Vec::with_capacity(record.attributes.held as usize + self.added_max);
        for attribute in part(trace.attributes, at.attributes, record.attributes.held) {
            set(&mut attributes, attribute.export(memory));
        }
        if let Some(detail) = detail {
            events.dropped_count = detail.events.cut;
            links.dropped_count = detail.links.cut;
            let mut own = at.event_attributes;
            for event in part(trace.events, at.events, detail.events.held) {
                let attributes = part(trace.event_attributes, own, event.count);
                own += event.count as usize;
                events.events.push(self.event(event, attributes.iter().copied(), memory, anchor));
            }
            let end = (at.links + detail.links.held as usize).min(trace.links.len());
            for link in &mut trace.links[at.links.min(end)..end] {
                let attributes = std::mem::take(&mut link.attributes);
                links.links.push(OtelLink::new(link.to.clone(), attributes, link.cut));
            }
        }
        let mut dropped_attributes_count = record.attributes.cut;
        let ended_by_hand = detail.and_then(|detail| detail.ended_by_hand);
        self.add_extras(record, ended_by_hand.is_some(), &mut attributes, &mut dropped_attributes_count);
        if let Some(place) = trace.header.kept_by.index() {
            self.add_reason(place, trace.header, record, &mut attributes);
        }
        let state = &trace.header.state;
        if trace.header.is_reweighed {
            describe_again(state, &mut attributes);
        }
        let (trace_id, flags) = (trace.header.trace_id, trace.header.flags);
        let clock = self.anchors.clock();
        out.push(SpanData {
            span_context: SpanContext::new(trace_id, record.span_id, flags, false, state.to_api()),
            parent_span_id: record.parent,
            parent_span_is_remote: record.parent_is_remote(),
            span_kind: detail.and_then(|detail| detail.kind.clone()).unwrap_or(SpanKind::Internal),
            name,
            start_time: anchor.date(clock, record.start),
            end_time: ended_by_hand.unwrap_or_else(|| anchor.date(clock, record.end)),
            attributes,
            dropped_attributes_count,
            events,
            links,
            status,
            // Building a new scope is cheaper than cloning it.
            instrumentation_scope: self.scope.clone().unwrap_or_else(own_scope),
        });
    }

    /// Marks each span of a trace that was kept late, because sums over spans have to leave out
    /// those of them that have no weight. These attributes ignore the limit, and replace the
    /// service's own attributes of these names.
    fn add_reason(&self, place: usize, header: &Header, record: &Record, attributes: &mut Vec<KeyValue>) {
        let reason = self.reasons.get(place).map_or("", |reason| reason);
        set(attributes, KeyValue::new(REASON, reason.to_owned()));
        let count = header.state.threshold().map_or(0.0, Threshold::adjusted_count);
        set(attributes, KeyValue::new(ADJUSTED_COUNT, count));
        let cut = header.cut;
        if cut > 0 && record.is_local_root() {
            set(attributes, KeyValue::new(SPANS_CUT, i64::from(cut)));
        }
    }

    /// Adds astracer's own attributes. They come after the user's, so that a limit cuts ours first.
    /// If the user already set an attribute of that name, the user's value stays.
    fn add_extras(
        &mut self,
        record: &Record,
        is_ended_by_hand: bool,
        attributes: &mut Vec<KeyValue>,
        cut: &mut u32,
    ) {
        let (attributes_max, given) = (self.attributes_max, attributes.len());
        let mut add = |attribute: KeyValue| {
            if has(&attributes[..given], &attribute) {
                return;
            }
            if attributes.len() < attributes_max {
                attributes.push(attribute);
            } else {
                *cut = cut.saturating_add(1);
            }
        };
        let metadata = record.metadata;
        if self.extras.location {
            add_location(metadata, &mut add);
        }
        if self.extras.threads {
            let (_, thread) = match &self.thread {
                Some(known) if known.0 == record.thread => known,
                _ => self.thread.insert((record.thread, ThreadName::of(record.thread))),
            };
            if let Some(thread) = thread {
                add(KeyValue::new("thread.id", thread.id));
                if let Some(name) = &thread.name {
                    add(KeyValue::new("thread.name", Arc::clone(name)));
                }
            }
        }
        if self.extras.level {
            add(KeyValue::new("level", metadata.level().as_str()));
        }
        if self.extras.target {
            add(KeyValue::new("target", metadata.target()));
        }
        // Busy and idle times continue after an end by hand, so they would not add up to the span's
        // duration.
        if self.extras.inactivity && !is_ended_by_hand {
            let clock = self.anchors.clock();
            let nanos = |ticks| i64::try_from(clock.nanos_between(0, ticks)).unwrap_or(i64::MAX);
            let (busy, idle) = record.busy_and_idle();
            add(KeyValue::new("busy_ns", nanos(busy)));
            add(KeyValue::new("idle_ns", nanos(idle)));
        }
    }

    fn event(
        &self,
        event: &Event,
        own: impl Iterator<Item = Attribute>,
        memory: &mut MemoryView<'_>,
        anchor: &Anchor,
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
            let given = attributes.len();
            let mut add = |attribute: KeyValue| {
                if !has(&attributes[..given], &attribute) {
                    attributes.push(attribute);
                }
            };
            if log.target.is_some() {
                let texts = [("code.file.path", log.file), ("code.module.name", log.module)];
                let texts =
                    texts.into_iter().filter_map(|(name, text)| Some((name, memory.text(text?).to_owned())));
                texts.for_each(|(name, text)| add(KeyValue::new(name, text)));
                if let Some(line) = log.line {
                    add(KeyValue::new("code.line.number", line));
                }
            } else {
                add_location(metadata, add);
            }
        }
        let name = match &event.name {
            EventName::Text(text) => Cow::Owned(memory.text(*text).to_owned()),
            EventName::Static(name) => Cow::Borrowed(*name),
            EventName::Owned(name) => Cow::Owned(name.to_string()),
        };
        let time = match event.time {
            EventTime::Ticks(ticks) => anchor.date(self.anchors.clock(), ticks),
            EventTime::Date(date) => date,
        };
        OtelEvent::new(name, time, attributes, event.cut)
    }
}

fn part<T>(list: &[T], start: usize, length: u32) -> &[T] {
    list.get(start..start + length as usize).unwrap_or_default()
}

/// Computes where each record's parts begin.
fn set_positions(positions: &mut Vec<Positions>, trace: &TraceView<'_>) {
    positions.clear();
    let mut at = Positions { record: 0, attributes: 0, detail: 0, events: 0, event_attributes: 0, links: 0 };
    for record in trace.records {
        positions.push(at);
        at.record += 1;
        at.attributes += record.attributes.held as usize;
        let Some(detail) = trace.details.get(at.detail).filter(|_| record.has_detail()) else { continue };
        let attributes = part(trace.events, at.events, detail.events.held).iter();
        at.event_attributes += attributes.map(|event| event.count as usize).sum::<usize>();
        at.events += detail.events.held as usize;
        at.links += detail.links.held as usize;
        at.detail += 1;
    }
}

/// Orders the spans by their start. Records are ordered by their end, so among spans that started
/// at the same tick, the one that ended last is the ancestor.
fn set_order(order: &mut Vec<Begin>, trace: &TraceView<'_>) {
    order.clear();
    let records = trace.records.iter().enumerate();
    order.extend(records.map(|(place, record)| (record.start, Reverse(record.end), place)));
    order.sort_unstable();
}

/// The attributes by which a root describes its decision, if it has them, now that the trace's
/// threshold is another.
fn describe_again(state: &State, attributes: &mut [KeyValue]) {
    let Some(threshold) = state.threshold() else { return };
    for attribute in attributes {
        match attribute.key.as_str() {
            ADJUSTED_COUNT => attribute.value = threshold.adjusted_count().into(),
            PARAM => attribute.value = threshold.probability().get().into(),
            _ => {}
        }
    }
}

/// The probability with which a root was kept, as in Jaeger's clients.
const PARAM: &str = "sampler.param";
/// Attributes of a trace that the head sampler dropped and that was kept late: the reason, and the
/// calls that it stands for in estimates; zero if it has no true threshold. The second name is from
/// OTEP 170.
const REASON: &str = "sampling.reason";
const ADJUSTED_COUNT: &str = "sampler.adjusted_count";
/// The number of spans that were cut from such a trace because it was too large.
const SPANS_CUT: &str = "sampling.spans_cut";

/// The most attributes that we add to an event.
const ADDED_TO_EVENTS: usize = 5;

#[inline]
fn add_location(metadata: &'static Metadata<'static>, mut add: impl FnMut(KeyValue)) {
    if let Some(file) = metadata.file() {
        add(KeyValue::new("code.file.path", file));
    }
    if let Some(module) = metadata.module_path() {
        add(KeyValue::new("code.module.name", module));
    }
    if let Some(line) = metadata.line() {
        add(KeyValue::new("code.line.number", i64::from(line)));
    }
}

/// Whether the user set an attribute of this name. A linear search, because few spans have many
/// attributes.
#[inline]
fn has(given: &[KeyValue], attribute: &KeyValue) -> bool {
    given.iter().any(|known| known.key == attribute.key)
}

/// Sets an attribute; a later value of the same name replaces the earlier one (OpenTelemetry
/// specification, "Set Attributes").
fn set(attributes: &mut Vec<KeyValue>, attribute: KeyValue) {
    match attributes.iter_mut().find(|known| known.key == attribute.key) {
        Some(known) => *known = attribute,
        None => attributes.push(attribute),
    }
}
