//! Converts OTLP messages to spans, resources and scopes.

use std::borrow::Cow;
use std::sync::Arc;

use super::wire::{Bytes, Fault, Field, Fields, Why};
use crate::json::Notes;
use crate::otlp;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::LogRecord;
use astracer_model::span::{Event, Link, Resource, Scope, Span};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

/// Values nested deeper than this are rejected whatever the configured limit, because the reader
/// recurses.
const NESTING_HARD_MAX: usize = 256;

/// The levels of messages above a span's attributes: request, resource's spans, scope's spans,
/// span. A resource's attributes are one level higher.
const SPAN_LEVELS: usize = 4;
const RESOURCE_LEVELS: usize = 3;

/// The fields of a group of spans other than the spans. They have the same numbers for a resource
/// and for a scope.
pub(super) struct Head<'a> {
    pub(super) subject: Bytes<'a>,
    pub(super) schema_url: Cow<'a, str>,
}

impl<'a> Head<'a> {
    /// Reads as much as possible; a fault in the rest is found again when the spans are read.
    pub(super) fn of(message: Bytes<'a>) -> Self {
        let subject = Bytes { bytes: &[], cut: false, ..message };
        let mut head = Self { subject, schema_url: Cow::Borrowed("") };
        let mut fields = Fields::of(message);
        while let Ok(Some(field)) = fields.next() {
            match field.number {
                1 => head.subject = field.whole().unwrap_or(head.subject),
                3 => head.schema_url = field.text().unwrap_or_default(),
                _ => {}
            }
        }
        head
    }
}

pub(super) fn resource(head: &Head<'_>, nesting_max: usize) -> Result<Resource, Fault> {
    let mut resource = Resource { schema_url: head.schema_url.clone().into_owned(), ..Resource::default() };
    let mut fields = Fields::of(head.subject);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => resource
                .attributes
                .push(attribute(&field, Depth::of(RESOURCE_LEVELS, nesting_max))?.into_owned()),
            2 => resource.dropped_attributes = field.varint()? as u32,
            _ => {}
        }
    }
    Ok(resource)
}

pub(super) fn scope(head: &Head<'_>, nesting_max: usize) -> Result<Scope, Fault> {
    let mut scope = Scope { schema_url: head.schema_url.clone().into_owned(), ..Scope::default() };
    let mut fields = Fields::of(head.subject);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => scope.name = field.text()?.into_owned(),
            2 => scope.version = field.text()?.into_owned(),
            3 => scope.attributes.push(attribute(&field, Depth::of(SPAN_LEVELS, nesting_max))?.into_owned()),
            4 => scope.dropped_attributes = field.varint()? as u32,
            _ => {}
        }
    }
    Ok(scope)
}

pub(super) fn span<'a>(
    message: Bytes<'a>,
    resource: &Arc<Resource>,
    scope: &Arc<Scope>,
    nesting_max: usize,
) -> Result<Span<'a>, Fault> {
    let depth = Depth::of(SPAN_LEVELS, nesting_max);
    let mut parent = SpanId::ZERO;
    let mut span = Span::of(Arc::clone(resource), Arc::clone(scope));
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => span.trace_id = trace_id(&field)?,
            2 => span.span_id = span_id(&field)?,
            3 => span.trace_state = field.text()?,
            4 => parent = span_id(&field)?,
            5 => span.name = field.text()?,
            6 => span.kind = known(&field, message, otlp::known_kind)?,
            7 => span.start = time(&field)?,
            8 => span.end = time(&field)?,
            9 => span.attributes.push(attribute(&field, depth)?),
            10 => span.dropped_attributes = field.varint()? as u32,
            11 => span.events.push(event(&field, depth)?),
            12 => span.dropped_events = field.varint()? as u32,
            13 => span.links.push(link(&field, depth)?),
            14 => span.dropped_links = field.varint()? as u32,
            15 => status(&field, &mut span)?,
            16 => span.flags = field.fixed32()?,
            _ => {}
        }
    }
    if span.span_id == SpanId::ZERO {
        return Err(Fault { at: message.at, why: Why::Bad("span without an id") });
    }
    if parent != SpanId::ZERO {
        span.parents.push(parent);
    }
    otlp::unmark(&mut span);
    Ok(span)
}

pub(super) fn log<'a>(
    message: Bytes<'a>,
    resource: &Arc<Resource>,
    scope: &Arc<Scope>,
    nesting_max: usize,
) -> Result<LogRecord<'a>, Fault> {
    let depth = Depth::of(SPAN_LEVELS, nesting_max);
    let mut log = LogRecord::of(Arc::clone(resource), Arc::clone(scope));
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => log.time = time(&field)?,
            2 => log.severity = known(&field, message, otlp::known_severity)?,
            3 => log.severity_text = field.text()?,
            5 => log.body = any_value(&field, depth)?,
            6 => log.attributes.push(attribute(&field, depth)?),
            7 => log.dropped_attributes = field.varint()? as u32,
            8 => log.flags = field.fixed32()?,
            9 => log.trace_id = trace_id(&field)?,
            10 => log.span_id = span_id(&field)?,
            11 => log.observed = time(&field)?,
            12 => log.event_name = field.text()?,
            _ => {}
        }
    }
    log.logger = Cow::Owned(scope.name.clone());
    otlp::describe(&mut log);
    Ok(log)
}

fn event<'a>(field: &Field<'a>, depth: Depth) -> Result<Event<'a>, Fault> {
    let mut event = Event::default();
    let message = field.whole()?;
    let depth = depth.below(message)?;
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => event.time = UnixNanos(field.fixed64()?),
            2 => event.name = field.text()?,
            3 => event.attributes.push(attribute(&field, depth)?),
            4 => event.dropped_attributes = field.varint()? as u32,
            _ => {}
        }
    }
    Ok(event)
}

fn link<'a>(field: &Field<'a>, depth: Depth) -> Result<Link<'a>, Fault> {
    let mut link = Link::default();
    let message = field.whole()?;
    let depth = depth.below(message)?;
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => link.trace_id = trace_id(&field)?,
            2 => link.span_id = span_id(&field)?,
            3 => link.trace_state = field.text()?,
            4 => link.attributes.push(attribute(&field, depth)?),
            5 => link.dropped_attributes = field.varint()? as u32,
            6 => link.flags = field.fixed32()?,
            _ => {}
        }
    }
    Ok(link)
}

/// Reads an enum value. A number without meaning is noted, and stands for unset.
fn known<T: Default>(
    field: &Field<'_>,
    message: Bytes<'_>,
    meaning: impl Fn(i64) -> Option<T>,
) -> Result<T, Fault> {
    let known = meaning(field.varint()? as i64);
    if known.is_none() {
        message.note(Notes::WORD);
    }
    Ok(known.unwrap_or_default())
}

fn status<'a>(field: &Field<'a>, span: &mut Span<'a>) -> Result<(), Fault> {
    let message = field.whole()?;
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        match field.number {
            2 => span.status_message = field.text()?,
            3 => span.status = known(&field, message, otlp::known_status)?,
            _ => {}
        }
    }
    Ok(())
}

fn attribute<'a>(field: &Field<'a>, depth: Depth) -> Result<Attribute<'a>, Fault> {
    let mut attribute = Attribute { key: Cow::Borrowed(""), value: Value::Empty };
    let message = field.whole()?;
    let depth = depth.below(message)?;
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => attribute.key = field.text()?,
            2 => attribute.value = any_value(&field, depth)?,
            _ => {}
        }
    }
    Ok(attribute)
}

fn any_value<'a>(field: &Field<'a>, depth: Depth) -> Result<Value<'a>, Fault> {
    let mut value = Value::Empty;
    let message = field.whole()?;
    let depth = depth.below(message)?;
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => value = Value::String(field.text()?),
            2 => value = Value::Bool(field.varint()? != 0),
            3 => value = Value::Int(field.varint()? as i64),
            4 => value = Value::Double(f64::from_bits(field.fixed64()?)),
            5 => {
                let mut items = Vec::new();
                values(&field, depth, |field, depth| {
                    items.push(any_value(field, depth)?);
                    Ok(())
                })?;
                value = Value::Array(items);
            }
            6 => {
                let mut items = Vec::new();
                values(&field, depth, |field, depth| {
                    items.push(attribute(field, depth)?);
                    Ok(())
                })?;
                value = Value::Map(items);
            }
            7 => value = Value::Bytes(field.whole()?.bytes.into()),
            _ => {}
        }
    }
    Ok(value)
}

/// Reads the `values` of a list or map.
fn values<'a>(
    field: &Field<'a>,
    depth: Depth,
    mut read: impl FnMut(&Field<'a>, Depth) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let message = field.whole()?;
    let depth = depth.below(message)?;
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        if field.number == 1 {
            read(&field, depth)?;
        }
    }
    Ok(())
}

/// The number of levels that may still be opened.
#[derive(Clone, Copy)]
struct Depth(usize);

impl Depth {
    fn of(levels: usize, nesting_max: usize) -> Self {
        Self(nesting_max.min(NESTING_HARD_MAX).saturating_sub(levels))
    }

    fn below(self, message: Bytes<'_>) -> Result<Self, Fault> {
        self.0.checked_sub(1).map(Self).ok_or(Fault { at: message.at, why: Why::TooDeep })
    }
}

fn trace_id(field: &Field<'_>) -> Result<TraceId, Fault> {
    id(field, "invalid trace id: OTLP requires 16 bytes")
        .map(|bytes| TraceId(bytes.map_or(0, u128::from_be_bytes)))
}

fn span_id(field: &Field<'_>) -> Result<SpanId, Fault> {
    id(field, "invalid span id: OTLP requires 8 bytes")
        .map(|bytes| SpanId(bytes.map_or(0, u64::from_be_bytes)))
}

/// The bytes of an id; an empty field is no id.
fn id<const N: usize>(field: &Field<'_>, wrong: &'static str) -> Result<Option<[u8; N]>, Fault> {
    let Bytes { bytes, at, .. } = field.whole()?;
    match bytes.try_into() {
        Ok(id) => Ok(Some(id)),
        Err(_) if bytes.is_empty() => Ok(None),
        Err(_) => Err(Fault { at, why: Why::Bad(wrong) }),
    }
}

/// Zero means unset in protobuf.
fn time(field: &Field<'_>) -> Result<Option<UnixNanos>, Fault> {
    Ok(Some(UnixNanos(field.fixed64()?)).filter(|time| time.0 != 0))
}
