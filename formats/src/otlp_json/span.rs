//! Spans with their events, links and status.

use std::sync::Arc;

use super::value::attributes;
use crate::json::{Cursor, Fault};
use crate::otlp;
use astracer_model::ids::SpanId;
use astracer_model::span::{Event, Link, Resource, Scope, Span, SpanKind, Status};

/// Reads a span.
pub(super) fn span<'a>(
    cursor: &mut Cursor<'a>,
    resource: &Arc<Resource>,
    scope: &Arc<Scope>,
) -> Result<Span<'a>, Fault> {
    let start = cursor.at();
    let mut parent = SpanId::ZERO;
    let mut span = Span::of(Arc::clone(resource), Arc::clone(scope));
    cursor.object(|cursor, key| {
        match &*key {
            "traceId" | "trace_id" => span.trace_id = cursor.trace_id()?,
            "spanId" | "span_id" => span.span_id = cursor.span_id()?,
            "parentSpanId" | "parent_span_id" => parent = cursor.span_id()?,
            "name" => span.name = cursor.text_or_null()?,
            "kind" => span.kind = kind(cursor)?,
            "startTimeUnixNano" | "start_time_unix_nano" => span.start = cursor.nanos()?,
            "endTimeUnixNano" | "end_time_unix_nano" => span.end = cursor.nanos()?,
            "attributes" => span.attributes = attributes(cursor)?,
            "events" => cursor.list(|cursor| {
                span.events.push(event(cursor)?);
                Ok(())
            })?,
            "links" => cursor.list(|cursor| {
                span.links.push(link(cursor)?);
                Ok(())
            })?,
            "status" => cursor.object(|cursor, key| {
                match &*key {
                    "code" => span.status = status(cursor)?,
                    "message" => span.status_message = cursor.text_or_null()?,
                    _ => drop(cursor.skip()?),
                }
                Ok(())
            })?,
            "traceState" | "trace_state" => span.trace_state = cursor.text_or_null()?,
            "flags" => span.flags = cursor.count()?,
            "droppedAttributesCount" | "dropped_attributes_count" => {
                span.dropped_attributes = cursor.count()?
            }
            "droppedEventsCount" | "dropped_events_count" => span.dropped_events = cursor.count()?,
            "droppedLinksCount" | "dropped_links_count" => span.dropped_links = cursor.count()?,
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    if span.span_id == SpanId::ZERO {
        return cursor.fault_at(start, "span without an id");
    }
    if parent != SpanId::ZERO {
        span.parents.push(parent);
    }
    otlp::unmark(&mut span);
    Ok(span)
}

fn event<'a>(cursor: &mut Cursor<'a>) -> Result<Event<'a>, Fault> {
    let mut event = Event::default();
    cursor.object(|cursor, key| {
        match &*key {
            "timeUnixNano" | "time_unix_nano" => event.time = cursor.nanos()?.unwrap_or_default(),
            "name" => event.name = cursor.text_or_null()?,
            "attributes" => event.attributes = attributes(cursor)?,
            "droppedAttributesCount" | "dropped_attributes_count" => {
                event.dropped_attributes = cursor.count()?
            }
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    Ok(event)
}

fn link<'a>(cursor: &mut Cursor<'a>) -> Result<Link<'a>, Fault> {
    let mut link = Link::default();
    cursor.object(|cursor, key| {
        match &*key {
            "traceId" | "trace_id" => link.trace_id = cursor.trace_id()?,
            "spanId" | "span_id" => link.span_id = cursor.span_id()?,
            "traceState" | "trace_state" => link.trace_state = cursor.text_or_null()?,
            "attributes" => link.attributes = attributes(cursor)?,
            "droppedAttributesCount" | "dropped_attributes_count" => {
                link.dropped_attributes = cursor.count()?
            }
            "flags" => link.flags = cursor.count()?,
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    Ok(link)
}

fn kind(cursor: &mut Cursor<'_>) -> Result<SpanKind, Fault> {
    cursor.number_or_name(otlp::known_kind, |name| match name.strip_prefix("SPAN_KIND_").unwrap_or(name) {
        "UNSPECIFIED" => Some(SpanKind::Unspecified),
        word => SpanKind::from_word(word),
    })
}

fn status(cursor: &mut Cursor<'_>) -> Result<Status, Fault> {
    cursor.number_or_name(otlp::known_status, |name| {
        match name.strip_prefix("STATUS_CODE_").unwrap_or(name) {
            "UNSET" => Some(Status::Unset),
            "OK" => Some(Status::Ok),
            "ERROR" => Some(Status::Error),
            _ => None,
        }
    })
}
