//! Writes traces in the form of Jaeger's query API.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use rapidhash::fast::RandomState;
use smallvec::SmallVec;

use super::super::TraceWriter;
use super::super::json::write::hex;
use super::super::otel_tags::{self, status_word};
use super::super::plain_json::{text_of, write_base64, write_double, write_integer, write_string};
use super::{
    EVENT, FLAGS, FOLLOWS_FROM, NO_END, NO_SERVICE_NAME, NO_START, REF_TYPE, REF_TYPE_CHILD_OF, SAMPLED,
    WARNINGS,
};
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::otlp::SHARED_KEY;
use astracer_model::span::{Event, Link, Resource, Span, Status, lookup};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

/// Larger integers are written as strings, as Jaeger does, because browsers would round them.
const SAFE_INTEGER_MAX: u64 = (1 << 53) - 1;

/// Writes `{"data": [...]}`, which the query API returns and the UI accepts.
///
/// # Losses
///
/// - Times and durations are truncated to microseconds. A span that ends before it starts gets
///   duration 0. A missing start or end is made up and marked with a warning, by which our reader
///   removes it again.
/// - Lists, maps and empty values become text.
/// - Links lose their attributes, tracestate and flags. A link to a span of the same trace becomes
///   the parent if the span has none. A link without a trace id or a span id is omitted.
/// - Attributes of the scope become the span's. `service.name` comes first in the resource.
/// - Flags other than sampled, schema URLs, and the counts of attributes discarded from links,
///   scope or resource are not written.
pub struct Writer<'w> {
    out: Box<dyn Write + 'w>,
    buffer: Vec<u8>,
    traces: u64,
}

/// The buffer is written to the output when it reaches this size.
const BUFFER_BYTES: usize = 64 << 10;

impl<'w> Writer<'w> {
    /// Makes a writer to `out`. Output is buffered and complete only after [`TraceWriter::finish`].
    pub fn new(out: Box<dyn Write + 'w>) -> Self {
        Self { out, buffer: b"{\"data\":[".to_vec(), traces: 0 }
    }

    fn write_out(&mut self) -> io::Result<()> {
        let written = self.out.write_all(&self.buffer);
        self.buffer.clear();
        written
    }
}

impl TraceWriter for Writer<'_> {
    /// Spans without a trace id get the first trace id among the trace's spans.
    fn trace(&mut self, spans: &[Span<'_>]) -> io::Result<()> {
        let id = spans.iter().map(|span| span.trace_id).find(|&id| id != TraceId::ZERO).unwrap_or_default();
        let mut processes = Processes::default();
        self.begin_trace(id);
        for (index, span) in spans.iter().enumerate() {
            write_span_line(&mut self.buffer, index, span, id, &mut processes);
        }
        self.end_trace(&processes)
    }

    fn finish(&mut self) -> io::Result<()> {
        put(&mut self.buffer, "\n],\"total\":0,\"limit\":0,\"offset\":0,\"errors\":null}\n");
        self.write_out()?;
        self.out.flush()
    }
}

impl Writer<'_> {
    /// Writes a trace from pieces of text made by [`write_span_line`].
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    pub fn written<'s>(
        &mut self,
        id: TraceId,
        spans: impl Iterator<Item = &'s [u8]>,
        processes: &Processes,
    ) -> io::Result<()> {
        self.begin_trace(id);
        spans.for_each(|piece| self.buffer.extend_from_slice(piece));
        self.end_trace(processes)
    }

    fn begin_trace(&mut self, id: TraceId) {
        comma(&mut self.buffer, self.traces as usize);
        self.traces += 1;
        put(&mut self.buffer, "\n{\"traceID\":");
        write_trace_id(&mut self.buffer, id);
        put(&mut self.buffer, ",\"spans\":[");
    }

    fn end_trace(&mut self, processes: &Processes) -> io::Result<()> {
        let out = &mut self.buffer;
        put(out, "],\n\"processes\":{");
        for (index, process) in processes.resources.iter().enumerate() {
            comma(out, index);
            put(out, "\"p");
            write_integer(out, index as u64 + 1);
            put(out, "\":");
            write_process(out, process);
        }
        put(out, "},\"warnings\":null}");
        if out.len() < BUFFER_BYTES { Ok(()) } else { self.write_out() }
    }
}

/// Appends the span with this index in its trace, on its own line.
pub fn write_span_line(
    out: &mut Vec<u8>,
    index: usize,
    span: &Span<'_>,
    trace_id: TraceId,
    processes: &mut Processes,
) {
    comma(out, index);
    put(out, "\n");
    write_span(out, span, trace_id, processes.number(&span.resource));
}

/// The processes of a trace, numbered from 1 in order of first use.
#[derive(Debug, Default)]
pub struct Processes {
    resources: SmallVec<[Arc<Resource>; 2]>,
    /// An index of the resources after the first few.
    others: Option<Box<Others>>,
}

/// Finds the number of a resource in one step, because a trace may have as many processes as spans.
#[derive(Debug, Default)]
struct Others {
    /// Numbers by address. The map owns each resource, so no address is reused.
    by_address: HashMap<*const Resource, (Arc<Resource>, usize), RandomState>,
    /// Numbers by the written text of the resource.
    by_text: HashMap<Box<[u8]>, usize, RandomState>,
}

/// The number of resources that are compared one by one. Spans of one process usually share one
/// resource.
const FEW_RESOURCES: usize = 8;

impl Processes {
    fn number(&mut self, resource: &Arc<Resource>) -> usize {
        let same = |known: &Arc<Resource>| Arc::ptr_eq(known, resource);
        match self.resources.iter().take(FEW_RESOURCES).position(same) {
            Some(index) => index + 1,
            None => self.number_of_other(resource),
        }
    }

    #[inline(never)]
    fn number_of_other(&mut self, resource: &Arc<Resource>) -> usize {
        let address = Arc::as_ptr(resource);
        if let Some((_, number)) = self.others.as_ref().and_then(|others| others.by_address.get(&address)) {
            return *number;
        }
        let few = self.resources.iter().take(FEW_RESOURCES);
        let next = self.resources.len() + 1;
        let number = match few.map(Arc::as_ref).position(|known| known == resource.as_ref()) {
            Some(index) => index + 1,
            None if next <= FEW_RESOURCES => next,
            None => {
                let mut text = Vec::new();
                write_process(&mut text, resource);
                *self.others.get_or_insert_default().by_text.entry(text.into()).or_insert(next)
            }
        };
        if number == next {
            self.resources.push(Arc::clone(resource));
        }
        // The first few are found by address without the map.
        if number != next || number > FEW_RESOURCES {
            let others = self.others.get_or_insert_default();
            others.by_address.insert(address, (Arc::clone(resource), number));
        }
        number
    }
}

fn write_process(out: &mut Vec<u8>, resource: &Resource) {
    let name = resource.service_name();
    put(out, "{\"serviceName\":");
    write_string(out, if name.is_empty() { NO_SERVICE_NAME } else { name });
    put(out, ",\"tags\":[");
    let mut tags = Tags { out, count: 0 };
    for attribute in resource.attributes.iter().filter(|attribute| attribute.key != "service.name") {
        tags.value(&attribute.key, &attribute.value);
    }
    put(out, "]}");
}

fn write_span(out: &mut Vec<u8>, span: &Span<'_>, trace_id: TraceId, process: usize) {
    let own_trace_id = if span.trace_id == TraceId::ZERO { trace_id } else { span.trace_id };
    put(out, "{\"traceID\":");
    write_trace_id(out, own_trace_id);
    put(out, ",\"spanID\":");
    write_span_id(out, span.span_id);
    let (flags, warnings) = (kept_flags(span), kept_warnings(span));
    let flags = flags.map_or(span.flags & SAMPLED, |(_, flags)| flags);
    if flags != 0 {
        put(out, ",\"flags\":");
        write_integer(out, flags);
    }
    put(out, ",\"operationName\":");
    write_string(out, &span.name);
    put(out, ",\"references\":[");
    write_references(out, span, own_trace_id);
    write_times(out, span);
    put(out, ",\"tags\":[");
    write_tags(out, span);
    put(out, "],\"logs\":[");
    for (index, event) in span.events.iter().enumerate() {
        comma(out, index);
        write_log(out, event);
    }
    put(out, "],\"processID\":\"p");
    write_integer(out, process as u64);
    put(out, "\",\"warnings\":");
    write_warnings(out, span, warnings.map_or(&[], |(_, warnings)| warnings));
    put(out, "}");
}

fn write_references(out: &mut Vec<u8>, span: &Span<'_>, trace_id: TraceId) {
    for (index, &parent) in span.parents.iter().enumerate() {
        comma(out, index);
        write_reference(out, if only_follows(span) { FOLLOWS_FROM } else { "CHILD_OF" }, trace_id, parent);
    }
    for (index, link) in span.links.iter().filter(|link| !names_nothing(link)).enumerate() {
        comma(out, span.parents.len() + index);
        write_reference(
            out,
            if is_child_of(link) { "CHILD_OF" } else { FOLLOWS_FROM },
            link.trace_id,
            link.span_id,
        );
    }
    put(out, "]");
}

/// Returns true if a link lacks an id, which a reference needs. A reference without a trace id
/// would point into the span's own trace.
pub(super) fn names_nothing(link: &Link<'_>) -> bool {
    link.trace_id == TraceId::ZERO || link.span_id == SpanId::ZERO
}

/// Returns true if the parent is written as FOLLOWS_FROM. Next to other parents, a reader would
/// take it for a link.
pub(super) fn only_follows(span: &Span<'_>) -> bool {
    span.follows && span.parents.len() == 1
}

pub(super) fn is_child_of(link: &Link<'_>) -> bool {
    lookup(&link.attributes, REF_TYPE).and_then(Value::as_str) == Some(REF_TYPE_CHILD_OF)
}

fn write_reference(out: &mut Vec<u8>, kind: &str, trace_id: TraceId, span_id: SpanId) {
    put(out, "{\"refType\":\"");
    put(out, kind);
    put(out, "\",\"traceID\":");
    write_trace_id(out, trace_id);
    put(out, ",\"spanID\":");
    write_span_id(out, span_id);
    put(out, "}");
}

/// Jaeger requires start and end: a missing one is made up here, and a warning marks it.
fn write_times(out: &mut Vec<u8>, span: &Span<'_>) {
    let start = span.start.or(span.end).unwrap_or_default();
    put(out, ",\"startTime\":");
    write_integer(out, micros(start));
    put(out, ",\"duration\":");
    let duration = span.lone_duration.unwrap_or_else(|| span.end.unwrap_or(start).since(start));
    write_integer(out, duration / 1_000);
}

/// Returns true for a duration without a start that is long enough to be written.
pub(super) fn has_duration(span: &Span<'_>) -> bool {
    span.lone_duration.is_some_and(|duration| duration >= 1_000)
}

fn write_warnings(out: &mut Vec<u8>, span: &Span<'_>, kept: &[Value<'_>]) {
    let made_up = [(span.start.is_none(), NO_START), (span.end.is_none() && !has_duration(span), NO_END)];
    let made_up = made_up.into_iter().filter(|(missing, _)| *missing).map(|(_, warning)| warning);
    let mut count = 0;
    for warning in made_up.chain(kept.iter().filter_map(Value::as_str)) {
        put(out, if count == 0 { "[" } else { "," });
        write_string(out, warning);
        count += 1;
    }
    put(out, if count == 0 { "null" } else { "]" });
}

fn write_log(out: &mut Vec<u8>, event: &Event<'_>) {
    put(out, "{\"timestamp\":");
    write_integer(out, micros(event.time));
    put(out, ",\"fields\":[");
    let mut fields = Tags { out, count: 0 };
    if !event.name.is_empty() {
        fields.text(EVENT, &event.name);
    }
    fields.all(&event.attributes);
    fields.count(otel_tags::DROPPED_ATTRIBUTES, event.dropped_attributes);
    put(out, "]}");
}

fn write_tags(out: &mut Vec<u8>, span: &Span<'_>) {
    let elsewhere = [kept_flags(span).map(|(index, _)| index), kept_warnings(span).map(|(index, _)| index)];
    let mut tags = Tags { out, count: 0 };
    tags.text_if_any(otel_tags::SCOPE_NAME, &span.scope.name);
    tags.text_if_any(otel_tags::SCOPE_VERSION, &span.scope.version);
    for (index, attribute) in span.attributes.iter().enumerate() {
        if !elsewhere.contains(&Some(index)) {
            tags.value(&attribute.key, &attribute.value);
        }
    }
    tags.all(&span.scope.attributes);
    tags.text_if_any(otel_tags::KIND, span.kind.word().unwrap_or_default());
    tags.text_if_any(otel_tags::STATUS_CODE, status_word(span.status).unwrap_or_default());
    if span.status == Status::Error {
        tags.value(otel_tags::ERROR, &Value::Bool(true));
    }
    tags.text_if_any(otel_tags::STATUS_DESCRIPTION, &span.status_message);
    tags.text_if_any(otel_tags::TRACE_STATE, &span.trace_state);
    tags.count(otel_tags::DROPPED_ATTRIBUTES, span.dropped_attributes);
    tags.count(otel_tags::DROPPED_EVENTS, span.dropped_events);
    tags.count(otel_tags::DROPPED_LINKS, span.dropped_links);
    if span.shared {
        tags.value(SHARED_KEY, &Value::Bool(true));
    }
}

/// The attribute that holds Jaeger's own flags: its index and the flags.
pub(super) fn kept_flags(span: &Span<'_>) -> Option<(usize, u32)> {
    let index = span.attributes.iter().position(|attribute| attribute.key == FLAGS)?;
    match span.attributes[index].value {
        Value::Int(flags) => u32::try_from(flags).ok().map(|flags| (index, flags)),
        _ => None,
    }
}

/// The attribute that holds Jaeger's own warnings: its index and the warnings.
pub(super) fn kept_warnings<'s>(span: &'s Span<'_>) -> Option<(usize, &'s [Value<'s>])> {
    let index = span.attributes.iter().position(|attribute| attribute.key == WARNINGS)?;
    match &span.attributes[index].value {
        Value::Array(items) if items.iter().all(|item| item.as_str().is_some()) => Some((index, items)),
        _ => None,
    }
}

/// The elements of a list of tags.
struct Tags<'o> {
    out: &'o mut Vec<u8>,
    count: usize,
}

impl Tags<'_> {
    fn begin(&mut self, key: &str, kind: &str) {
        comma(self.out, self.count);
        self.count += 1;
        put(self.out, "{\"key\":");
        write_string(self.out, key);
        put(self.out, ",\"type\":\"");
        put(self.out, kind);
        put(self.out, "\",\"value\":");
    }

    fn text(&mut self, key: &str, text: &str) {
        self.begin(key, "string");
        write_string(self.out, text);
        put(self.out, "}");
    }

    fn text_if_any(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.text(key, text);
        }
    }

    fn count(&mut self, key: &str, count: u32) {
        if count > 0 {
            self.value(key, &Value::Int(i64::from(count)));
        }
    }

    fn all(&mut self, attributes: &[Attribute<'_>]) {
        for attribute in attributes {
            self.value(&attribute.key, &attribute.value);
        }
    }

    fn value(&mut self, key: &str, value: &Value<'_>) {
        match value {
            Value::Bool(value) => {
                self.begin(key, "bool");
                put(self.out, if *value { "true" } else { "false" });
            }
            Value::Int(value) => {
                self.begin(key, "int64");
                if value.unsigned_abs() <= SAFE_INTEGER_MAX {
                    write_integer(self.out, *value);
                } else {
                    write_string(self.out, &value.to_string());
                }
            }
            Value::Double(value) => {
                self.begin(key, "float64");
                write_double(self.out, *value);
            }
            Value::Bytes(bytes) => {
                self.begin(key, "binary");
                write_base64(self.out, bytes);
            }
            Value::Empty | Value::String(_) | Value::Array(_) | Value::Map(_) => {
                return self.text(key, &text_of(value));
            }
        }
        put(self.out, "}");
    }
}

fn micros(time: UnixNanos) -> u64 {
    time.0 / 1_000
}

/// Jaeger writes 64-bit ids with 16 digits.
fn write_trace_id(out: &mut Vec<u8>, id: TraceId) {
    put(out, "\"");
    let high = (id.0 >> 64) as u64;
    if high != 0 {
        hex(out, high);
    }
    hex(out, id.0 as u64);
    put(out, "\"");
}

fn write_span_id(out: &mut Vec<u8>, id: SpanId) {
    put(out, "\"");
    hex(out, id.0);
    put(out, "\"");
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn comma(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.push(b',');
    }
}
