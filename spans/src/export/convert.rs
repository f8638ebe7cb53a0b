//! Conversion of records to the model's spans, which borrow their text from the batch.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use astracer_model::otel::otlp_flags;
use astracer_model::span::{Event as ModelEvent, Link, Resource, Scope};
use astracer_model::value::Attribute;
use astracer_model::{Span, SpanId, SpanKind, Status as ModelStatus, Value};
use astracer_samplers::Threshold;
use tracing_core::Metadata;

use crate::clock::{Anchor, Anchors, Clock};
use crate::record::{
    Batch, Event, EventName, EventTime, Header, Record, SpanLimits, SpanView, Status, TraceView, split,
};
use crate::thread::ThreadNames;
use crate::trace_state::State;
use crate::weight::ADJUSTED_COUNT;

/// Attributes added to spans and events, with the names and defaults of tracing-opentelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extras {
    pub location: bool,
    pub threads: bool,
    pub level: bool,
    pub target: bool,
    pub inactivity: bool,
    /// The calls that the trace represents, where its weight is known.
    pub weights: bool,
}

impl Default for Extras {
    fn default() -> Self {
        Extras { location: true, threads: true, level: false, target: true, inactivity: true, weights: false }
    }
}

#[derive(Debug)]
pub struct Converter {
    /// Compare the clocks before converting traces whose spans have ended by now.
    pub(super) anchors: Anchors,
    extras: Extras,
    attributes_max: usize,
    pub(super) source: Source,
    /// By [`KeepReason::index`](crate::record::KeepReason::index).
    reasons: Arc<[Box<str>]>,
}

/// The process and the library that spans come from.
#[derive(Clone, Debug)]
pub struct Source {
    pub resource: Arc<Resource>,
    pub scope: Arc<Scope>,
}

/// The name and the version of the scope of spans if the service sets none.
pub const OWN_SCOPE: (&str, &str) = ("astracer", env!("CARGO_PKG_VERSION"));

pub fn own_scope() -> Scope {
    let (name, version) = OWN_SCOPE;
    Scope { name: name.to_owned(), version: version.to_owned(), ..Scope::default() }
}

/// The texts of a batch's spans that no record holds.
#[derive(Debug, Default)]
pub struct Texts {
    threads: ThreadNames,
    states: Vec<String>,
}

impl Texts {
    pub fn of(batches: &[Box<Batch>]) -> Self {
        let mut texts = Texts::default();
        for trace in batches.iter().flat_map(|batch| batch.each()) {
            texts.states.push(trace.header.state.header());
            for ended_there in trace.records.chunk_by(|one, next| one.thread == next.thread) {
                texts.threads.note(ended_there[0].thread);
            }
        }
        texts
    }

    /// The traces of the same batches, each with its trace state.
    pub fn traces<'a>(&'a self, batches: &'a [Box<Batch>]) -> impl Iterator<Item = (TraceView<'a>, &'a str)> {
        batches.iter().flat_map(|batch| batch.each()).zip(self.states.iter().map(String::as_str))
    }
}

#[derive(Clone, Copy)]
struct Trace<'a> {
    view: TraceView<'a>,
    state: &'a str,
    threads: &'a ThreadNames,
    anchor: Anchor,
}

impl Converter {
    pub fn new(
        clock: Clock,
        (extras, limits): (Extras, &SpanLimits),
        source: Source,
        reasons: Arc<[Box<str>]>,
    ) -> Self {
        let attributes_max = limits.attributes as usize;
        Converter { anchors: Anchors::new(clock), extras, attributes_max, source, reasons }
    }

    /// Appends the spans of a trace, ordered by their start. Among spans that started at the same
    /// tick, the one that ended later is the ancestor.
    pub fn convert<'a>(
        &'a self,
        (view, state): (TraceView<'a>, &'a str),
        texts: &'a Texts,
        out: &mut Vec<Span<'a>>,
    ) {
        let anchor = self.anchors.of(view.header.began);
        let trace = Trace { view, state, threads: &texts.threads, anchor };
        let spans: Vec<_> = view.spans().collect();
        let key = |(place, span): (_, &SpanView<'_>)| (span.record.start, Reverse(span.record.end), place);
        let mut order: Vec<_> = spans.iter().enumerate().map(key).collect();
        order.sort_unstable();
        out.extend(order.into_iter().map(|(.., place)| self.span(&spans[place], trace)));
    }

    /// Inlined, so that the span is written to its place in the list instead of copied there.
    #[inline(always)]
    fn span<'a>(&'a self, span: &SpanView<'a>, trace: Trace<'a>) -> Span<'a> {
        let TraceView { header, memory, .. } = trace.view;
        let SpanView { record, detail, .. } = *span;
        #[cfg(test)]
        assert_ne!(record.metadata.name(), "the converter panics");
        let (status, status_message) = match detail.status {
            Status::Unset => (ModelStatus::Unset, ""),
            Status::Ok => (ModelStatus::Ok, ""),
            Status::Error(text) => (ModelStatus::Error, memory.text(text)),
        };
        let mut attributes = Vec::with_capacity(span.attributes.len() + ADDED_TO_SPANS);
        for attribute in span.attributes {
            set(&mut attributes, attribute.view(memory));
        }
        let mut event_attributes = span.event_attributes;
        let events = span
            .events
            .iter()
            .map(|event| self.event(event, split(&mut event_attributes, event.count as usize), trace));
        let links = span.links.iter().map(|link| Link::to_context(&link.to, &link.attributes, link.cut));
        let cut = self.add_extras(span, trace, &mut attributes);
        if let Some(place) = header.kept_by.index() {
            self.add_reason(place, header, record, &mut attributes);
        }
        if header.is_reweighed && record.is_local_root {
            describe_again(&header.state, &mut attributes);
        }
        let parent = SpanId::from(record.parent);
        let clock = &self.anchors.clock;
        let date = |ticks| trace.anchor.date(clock, ticks);
        Span {
            trace_id: header.trace_id.into(),
            span_id: record.span_id.into(),
            parents: (parent != SpanId::ZERO).then_some(parent).into_iter().collect(),
            name: Cow::Borrowed(span.name(memory)),
            kind: detail.kind.as_ref().map_or(SpanKind::Internal, SpanKind::from),
            start: Some(date(record.start).into()),
            end: Some(detail.ended_by_hand.unwrap_or_else(|| date(record.end)).into()),
            status,
            status_message: Cow::Borrowed(status_message),
            attributes,
            dropped_attributes: record.attributes.cut.saturating_add(cut),
            events: events.collect(),
            dropped_events: detail.events.cut,
            links: links.collect(),
            dropped_links: detail.links.cut,
            trace_state: Cow::Borrowed(trace.state),
            flags: otlp_flags(header.flags, record.parent_is_remote),
            ..Span::of(self.source.resource.clone(), self.source.scope.clone())
        }
    }

    /// Marks each span of a trace that was kept late, because sums over spans have to leave out
    /// those of them that have no weight. These attributes ignore the limit, and replace the
    /// service's own attributes of these names.
    fn add_reason<'a>(
        &'a self,
        place: usize,
        header: &Header,
        record: &Record,
        attributes: &mut Vec<Attribute<'a>>,
    ) {
        let reason = self.reasons.get(place).map_or("", |reason| reason);
        set(attributes, Attribute::new(REASON, reason));
        let count = header.state.threshold().map_or(0.0, Threshold::adjusted_count);
        set(attributes, Attribute::new(ADJUSTED_COUNT, Value::Double(count)));
        let cut = header.cut;
        if cut > 0 && record.is_local_root {
            set(attributes, Attribute::new(SPANS_CUT, Value::Int(cut.into())));
        }
    }

    /// Adds astracer's own attributes. They come after the user's, so that a limit cuts ours first.
    /// If the user already set an attribute of that name, the user's value stays. Returns how many
    /// the limit cut.
    fn add_extras<'a>(
        &self,
        &SpanView { record, detail, .. }: &SpanView<'a>,
        Trace { view: TraceView { header, .. }, threads, .. }: Trace<'a>,
        attributes: &mut Vec<Attribute<'a>>,
    ) -> u32 {
        let (attributes_max, given) = (self.attributes_max, attributes.len());
        let mut cut = 0;
        let mut add = |key: &'static str, value: Value<'a>| {
            if has(&attributes[..given], key) {
                return;
            }
            if attributes.len() < attributes_max {
                attributes.push(Attribute::new(key, value));
            } else {
                cut += 1;
            }
        };
        if let Some(threshold) = header.state.threshold().filter(|_| self.extras.weights) {
            add(ADJUSTED_COUNT, Value::Double(threshold.adjusted_count()));
        }
        let metadata = record.metadata;
        if self.extras.location {
            add_location(location(metadata), &mut add);
        }
        if let Some(thread) = threads.of(record.thread).filter(|_| self.extras.threads) {
            add("thread.id", Value::Int(thread.id));
            if let Some(name) = &thread.name {
                add("thread.name", (&**name).into());
            }
        }
        if self.extras.level {
            add("level", metadata.level().as_str().into());
        }
        if self.extras.target {
            add("target", metadata.target().into());
        }
        // Busy and idle times continue after an end by hand, so they would not add up to the span's
        // duration.
        if self.extras.inactivity && detail.ended_by_hand.is_none() {
            let clock = &self.anchors.clock;
            let nanos = |ticks| Value::Int(i64::try_from(clock.nanos_between(0, ticks)).unwrap_or(i64::MAX));
            let (busy, idle) = record.busy_and_idle();
            add("busy_ns", nanos(busy));
            add("idle_ns", nanos(idle));
        }
        cut
    }

    fn event<'a>(
        &self,
        event: &'a Event,
        own: &'a [crate::record::Attribute],
        Trace { view: TraceView { memory, .. }, anchor, .. }: Trace<'a>,
    ) -> ModelEvent<'a> {
        let mut attributes = Vec::with_capacity(own.len() + ADDED_TO_EVENTS);
        let log = event.log;
        if let Some(metadata) = event.metadata {
            attributes.push(Attribute::new("level", metadata.level().as_str()));
            let target = log.target.map_or(metadata.target(), |target| memory.text(target));
            attributes.push(Attribute::new("target", target));
        }
        for attribute in own {
            set(&mut attributes, attribute.view(memory));
        }
        if let Some(metadata) = event.metadata.filter(|_| self.extras.location) {
            let text = |text: Option<_>| text.map(|text| memory.text(text));
            let location = match log.target {
                Some(_) => (text(log.file), text(log.module), log.line),
                None => location(metadata),
            };
            let given = attributes.len();
            add_location(location, |key, value| {
                if !has(&attributes[..given], key) {
                    attributes.push(Attribute::new(key, value));
                }
            });
        }
        let name = match &event.name {
            EventName::Text(text) => memory.text(*text),
            EventName::Static(name) => name,
            EventName::Owned(name) => name,
        };
        let time = match event.time {
            EventTime::Ticks(ticks) => anchor.date(&self.anchors.clock, ticks),
            EventTime::Date(date) => date,
        };
        ModelEvent { time: time.into(), name: Cow::Borrowed(name), attributes, dropped_attributes: event.cut }
    }
}

/// Corrects the attributes by which a root describes its decision, if it has them.
fn describe_again(state: &State, attributes: &mut [Attribute<'_>]) {
    let Some(threshold) = state.threshold() else { return };
    for attribute in attributes {
        match &*attribute.key {
            ADJUSTED_COUNT => attribute.value = Value::Double(threshold.adjusted_count()),
            PARAM => attribute.value = Value::Double(threshold.probability().get()),
            _ => {}
        }
    }
}

/// The probability with which a root was kept, as in Jaeger's clients.
const PARAM: &str = "sampler.param";
/// Attributes of a trace that the head sampler dropped and that was kept late: the reason, and the
/// calls that it stands for in estimates ([`ADJUSTED_COUNT`]); zero if it has no true threshold.
const REASON: &str = "sampling.reason";
const SPANS_CUT: &str = "sampling.spans_cut";

/// The most attributes that we add to a span of the head sampler, and to an event, so that the list
/// is allocated once.
const ADDED_TO_SPANS: usize = 9;
const ADDED_TO_EVENTS: usize = 5;

type Location<'a> = (Option<&'a str>, Option<&'a str>, Option<i64>);

#[inline]
fn location(metadata: &'static Metadata<'static>) -> Location<'static> {
    (metadata.file(), metadata.module_path(), metadata.line().map(i64::from))
}

#[inline]
fn add_location<'a>((file, module, line): Location<'a>, mut add: impl FnMut(&'static str, Value<'a>)) {
    if let Some(file) = file {
        add("code.file.path", file.into());
    }
    if let Some(module) = module {
        add("code.module.name", module.into());
    }
    if let Some(line) = line {
        add("code.line.number", Value::Int(line));
    }
}

/// A linear search, because few spans have many attributes.
#[inline]
fn has(given: &[Attribute<'_>], key: &str) -> bool {
    given.iter().any(|known| known.key == key)
}

/// Sets an attribute; a later value of the same name replaces the earlier one (OpenTelemetry
/// specification, "Set Attributes").
fn set<'a>(attributes: &mut Vec<Attribute<'a>>, attribute: Attribute<'a>) {
    match attributes.iter_mut().find(|known| known.key == attribute.key) {
        Some(known) => *known = attribute,
        None => attributes.push(attribute),
    }
}
