//! Reading one span of a trace.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::json::{Cursor, Fault, Out};
use super::super::{micros, otel_tags, rfc3339};
use super::id::{self, Id};
use super::process::{Context, Shared, process};
use super::{
    EVENT, FLAGS, FOLLOWS_FROM, NO_END, NO_START, REF_TYPE, REF_TYPE_CHILD_OF, SAMPLED, WARNINGS, tag,
};
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::otlp::SHARED_KEY;
use astracer_model::problem::ProblemKind;
use astracer_model::span::{Event, Link, Parents, Span, Status};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

/// A reference as written.
struct Reference {
    follows_from: bool,
    /// `None` means the span's own trace.
    trace_id: Option<Id<TraceId>>,
    span_id: Option<Id<SpanId>>,
}

/// Reads the span at the cursor and passes it to `out`.
pub(super) fn read<'a>(
    cursor: &mut Cursor<'a>,
    out: &mut Out<'_>,
    context: &Context<'_>,
    shared: &mut Shared,
) -> Result<(), Fault> {
    let begin = cursor.at();
    let mut span = Span::of(Arc::clone(&shared.no_resource), Arc::clone(&shared.no_scope));
    let (mut trace_id, mut span_id, mut parent_id) = (context.trace_id, None, None);
    let (mut start, mut duration, mut flags) = (None, (begin, None), 0);
    let (mut references, mut warnings) = (Vec::new(), Vec::new());
    let (mut process_id, mut resource) = (Cow::Borrowed(""), None);
    cursor.object(|cursor, key| {
        match &*key {
            "traceID" | "traceId" => {
                let own = id::trace_id(cursor)?;
                trace_id = own.filter(|own| own.id != TraceId::ZERO).or(context.trace_id).or(own);
            }
            "spanID" | "spanId" => span_id = id::span_id(cursor)?,
            "parentSpanID" => parent_id = id::span_id(cursor)?,
            "operationName" => span.name = cursor.text_or_null()?,
            "references" => cursor.list(|cursor| {
                references.push(reference(cursor)?);
                Ok(())
            })?,
            "startTime" => start = instant(cursor)?,
            "duration" => duration = (cursor.at(), length(cursor)?),
            "flags" => flags = cursor.count()?,
            "tags" => tag::tags(cursor, &mut span.attributes)?,
            "logs" => cursor.list(|cursor| {
                span.events.push(log(cursor)?);
                Ok(())
            })?,
            "processID" | "processId" => process_id = cursor.text_or_null()?,
            "process" if cursor.peek() == Some(b'{') => {
                resource = Some(process(cursor, &mut shared.resources)?);
            }
            "warnings" => cursor.list(|cursor| {
                warnings.push(cursor.text_or_null()?);
                Ok(())
            })?,
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    let (Some(trace_id), Some(span_id)) = (trace_id, span_id) else {
        return cursor.fault_at(begin, "span without a traceID or a spanID");
    };
    (span.trace_id, span.span_id) = (trace_id.id, span_id.id);
    let foreign = trace_id.foreign | span_id.foreign | refer(&mut span, &references, parent_id);
    if let (None, (_, Some(duration))) = (start, duration) {
        span.lone_duration = micros::lone(duration);
    }
    (span.start, span.end) = times(cursor, start, duration)?;
    keep_flags(&mut span, flags);
    keep_warnings(&mut span, warnings);
    let failed = lift_error(&mut span);
    lift_shared(&mut span);
    otel_tags::lift(&mut span, &mut shared.scopes);
    // The tag `error` decides, as in the Collector, whatever the newer tag says.
    if failed {
        span.status = Status::Error;
    }
    for event in &mut span.events {
        event.dropped_attributes = otel_tags::lift_dropped(&mut event.attributes);
    }
    match resource.or_else(|| context.processes.get(&*process_id).cloned()) {
        Some(resource) => span.resource = resource,
        None if process_id.is_empty() || !context.whole => {}
        None => {
            let detail = format!("span {} refers to a process that its trace does not define", span.span_id);
            out.problem_at(ProblemKind::BadRecord, cursor.text(), begin, &detail);
        }
    }
    if foreign {
        let detail = format!("read as span {} of trace {}", span.span_id, span.trace_id);
        out.problem_at(ProblemKind::ForeignId, cursor.text(), begin, &detail);
    }
    out.span(cursor, begin, span);
    Ok(())
}

fn reference(cursor: &mut Cursor<'_>) -> Result<Reference, Fault> {
    let mut reference = Reference { follows_from: false, trace_id: None, span_id: None };
    cursor.object(|cursor, key| {
        match &*key {
            "refType" => reference.follows_from = cursor.text_or_null()?.eq_ignore_ascii_case(FOLLOWS_FROM),
            "traceID" | "traceId" => {
                reference.trace_id = id::trace_id(cursor)?.filter(|id| id.id != TraceId::ZERO);
            }
            "spanID" | "spanId" => reference.span_id = id::span_id(cursor)?,
            // Some recordings repeat the whole referenced span here, recursively with its own
            // references.
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    Ok(reference)
}

/// Turns references into parents and links; returns true if an id was foreign.
fn refer(span: &mut Span<'_>, references: &[Reference], parent_id: Option<Id<SpanId>>) -> bool {
    let mut foreign = parent_id.is_some_and(|id| id.foreign);
    // References without a span id carry no information.
    let references = references.iter().filter_map(|reference| Some((reference, reference.span_id?)));
    let near = |reference: &Reference| reference.trace_id.is_none_or(|id| id.id == span.trace_id);
    let mut parents: Parents = references
        .clone()
        .filter(|(reference, _)| near(reference) && !reference.follows_from)
        .map(|(_, id)| id.id)
        .collect();
    if parents.is_empty() {
        parents.extend(parent_id.map(|id| id.id));
    }
    let mut links = Vec::new();
    for (reference, span_id) in references {
        foreign |= span_id.foreign || reference.trace_id.is_some_and(|id| id.foreign);
        match (near(reference), reference.follows_from) {
            (true, false) => continue,
            (true, true) if parents.is_empty() => {
                parents.push(span_id.id);
                span.follows = true;
                continue;
            }
            _ => {}
        }
        let child_of = (!reference.follows_from).then(|| Attribute::new(REF_TYPE, REF_TYPE_CHILD_OF));
        links.push(Link {
            trace_id: reference.trace_id.map_or(span.trace_id, |id| id.id),
            span_id: span_id.id,
            attributes: child_of.into_iter().collect(),
            ..Link::default()
        });
    }
    (span.parents, span.links) = (parents, links);
    foreign
}

/// Reads an instant in microseconds, or as protobuf's JSON writes it.
fn instant(cursor: &mut Cursor<'_>) -> Result<Option<UnixNanos>, Fault> {
    match written(cursor, rfc3339::instant) {
        Some(instant) => Ok(Some(instant)),
        None => micros::instant(cursor),
    }
}

/// Reads a duration in microseconds, or as protobuf's JSON writes it. Returns nanoseconds.
fn length(cursor: &mut Cursor<'_>) -> Result<Option<i128>, Fault> {
    match written(cursor, rfc3339::duration) {
        Some(nanos) => Ok(Some(nanos)),
        None => micros::duration(cursor),
    }
}

/// Reads a text that `parse` understands. The cursor stays before any other value.
fn written<T>(cursor: &mut Cursor<'_>, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    if cursor.peek() != Some(b'"') {
        return None;
    }
    let mut ahead = cursor.clone();
    let found = parse(&ahead.string().ok()?)?;
    *cursor = ahead;
    Some(found)
}

/// Reads start and end.
fn times(
    cursor: &Cursor<'_>,
    start: Option<UnixNanos>,
    (duration_at, duration): (usize, Option<i128>),
) -> Result<(Option<UnixNanos>, Option<UnixNanos>), Fault> {
    let (Some(begin), Some(duration)) = (start, duration) else { return Ok((start, None)) };
    match micros::end(begin, duration) {
        Some(end) => Ok((start, Some(end))),
        None => cursor.fault_at(duration_at, "the span's end is outside the years 1970 to 2554"),
    }
}

fn log<'a>(cursor: &mut Cursor<'a>) -> Result<Event<'a>, Fault> {
    let mut event = Event::default();
    cursor.object(|cursor, key| {
        match &*key {
            "timestamp" => event.time = instant(cursor)?.unwrap_or_default(),
            "fields" => tag::tags(cursor, &mut event.attributes)?,
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    let name = event.attributes.iter().position(|field| field.key == EVENT && field.value.as_str().is_some());
    if let Some(Value::String(name)) = name.map(|index| event.attributes.remove(index).value) {
        event.name = name;
    }
    Ok(event)
}

/// Jaeger's bit 0 is W3C's sampled bit. The other bits have other meanings in W3C, so an attribute
/// keeps all of them.
fn keep_flags(span: &mut Span<'_>, flags: u32) {
    span.flags = flags & SAMPLED;
    if flags & !SAMPLED != 0 {
        span.attributes.push(Attribute { key: FLAGS.into(), value: Value::Int(i64::from(flags)) });
    }
}

/// Stores warnings in the attribute where Jaeger 2 keeps them. The warnings of our own writer mark
/// times that it made up, which are removed.
fn keep_warnings<'a>(span: &mut Span<'a>, mut warnings: Vec<Cow<'a, str>>) {
    warnings.retain(|warning| match &**warning {
        NO_START => {
            // The writer starts such a span at its end, or else at a time that means nothing.
            let (start, end) = (span.start.take(), span.end.unwrap_or_default());
            span.lone_duration = start.map(|start| end.since(start)).filter(|&duration| duration > 0);
            if span.lone_duration.is_some() {
                span.end = None;
            }
            false
        }
        NO_END => {
            span.end = None;
            span.lone_duration = None;
            false
        }
        _ => true,
    });
    if !warnings.is_empty() {
        let warnings = warnings.into_iter().map(Value::String).collect();
        span.attributes.push(Attribute { key: WARNINGS.into(), value: Value::Array(warnings) });
    }
}

/// Restores the field that our writer stores as an attribute, because only Zipkin has it.
fn lift_shared(span: &mut Span<'_>) {
    let before = span.attributes.len();
    span.attributes.retain(|tag| tag.key != SHARED_KEY || tag.value != Value::Bool(true));
    span.shared = span.attributes.len() < before;
}

/// Removes the tag `error` if it is true or "true", which is Jaeger's own criterion for an error.
/// [`otel_tags::lift`] handles the newer tags.
fn lift_error(span: &mut Span<'_>) -> bool {
    let is_error = |value: &Value<'_>| match value {
        Value::Bool(value) => *value,
        Value::String(text) => text == "true",
        _ => false,
    };
    let before = span.attributes.len();
    span.attributes.retain(|attribute| attribute.key != otel_tags::ERROR || !is_error(&attribute.value));
    span.attributes.len() < before
}
