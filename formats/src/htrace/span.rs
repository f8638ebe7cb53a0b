//! Reading one span.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::super::json::{Cursor, Fault, Out, Scalar};
use super::super::reuse::Reuse;
use super::super::{otel_tags, plain_json};
use super::ROOT_PARENT;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::span::{Event, Link, Parents, Resource, Scope, Span};
use astracer_model::time::UnixNanos;

/// State shared by the spans of a file.
#[derive(Default)]
pub(super) struct Shared {
    resources: Reuse<Resource>,
    scopes: Reuse<Scope>,
    no_scope: Arc<Scope>,
}

/// Reads the span at the cursor and passes it to `out`.
pub(super) fn read<'a>(cursor: &mut Cursor<'a>, out: &mut Out<'_>, shared: &mut Shared) -> Result<(), Fault> {
    let begin = cursor.at();
    let (mut wide, mut trace, mut narrow) = (None, None, None);
    let mut causes = SmallVec::<[Id; 2]>::new();
    let (mut start, mut end) = (None, None);
    let (mut name, mut tracer) = (Cow::Borrowed(""), Cow::Borrowed(""));
    let (mut attributes, mut events) = (Vec::new(), Vec::new());
    cursor.object(|cursor, key| {
        match &*key {
            "a" => wide = id(cursor)?,
            "i" | "TraceID" => trace = id(cursor)?,
            "s" | "SpanID" => narrow = id(cursor)?,
            "b" | "Start" => start = time(cursor)?,
            "e" | "Stop" => end = time(cursor)?,
            "d" | "Description" => name = cursor.text_or_null()?,
            "r" => tracer = cursor.text_or_null()?,
            "p" => cursor.list(|cursor| {
                causes.extend(id(cursor)?);
                Ok(())
            })?,
            "ParentID" => causes.extend(id(cursor)?.filter(|&id| id != Id::Narrow(ROOT_PARENT))),
            "n" | "Annotations" => attributes = plain_json::read_members(cursor)?,
            "t" => cursor.list(|cursor| {
                events.push(event(cursor)?);
                Ok(())
            })?,
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    let (trace, span_id) = match (wide, trace, narrow) {
        (Some(Id::Wide { high, low }), ..) => (high, low),
        (None, Some(Id::Narrow(trace)), Some(Id::Narrow(span_id))) => (trace, span_id),
        (None, None, Some(Id::Narrow(span_id))) => (0, span_id),
        (None, _, None) => return cursor.fault_at(begin, "span without an id: expected a member 'a' or 's'"),
        _ => {
            return cursor
                .fault_at(begin, "invalid id: 'a' must have 32 hexadecimal digits, 'i' and 's' at most 16");
        }
    };
    if span_id == 0 {
        return cursor.fault_at(begin, "the span id is zero");
    }
    let (mut parents, mut links) = (Parents::new(), Vec::new());
    for cause in causes {
        match cause {
            // Zero ids refer to no span, whatever the trace.
            Id::Narrow(0) | Id::Wide { high: 0, low: 0 } => {}
            Id::Wide { high, low: 0 } if high == trace => {}
            Id::Wide { high, low } if high != trace => {
                let trace_id = TraceId(high.into());
                links.push(Link { trace_id, span_id: SpanId(low), ..Link::default() });
            }
            Id::Wide { low, .. } | Id::Narrow(low) => parents.push(SpanId(low)),
        }
    }
    let resource = shared.resources.get_or_make(&[&*tracer], || match &*tracer {
        "" => Resource::default(),
        tracer => Resource::service(tracer),
    });
    let mut span = Span {
        trace_id: TraceId(trace.into()),
        span_id: SpanId(span_id),
        parents,
        name,
        start,
        end,
        attributes,
        events,
        links,
        ..Span::of(resource, Arc::clone(&shared.no_scope))
    };
    if !span.attributes.is_empty() {
        otel_tags::lift(&mut span, &mut shared.scopes);
    }
    out.span(cursor, begin, span);
    Ok(())
}

/// An id of 64 bits, or HTrace 4's id of 128 bits, whose high half is the trace's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Id {
    Narrow(u64),
    Wide { high: u64, low: u64 },
}

/// Reads an id; `null` means no id.
fn id(cursor: &mut Cursor<'_>) -> Result<Option<Id>, Fault> {
    cursor.peek();
    let at = cursor.at();
    let id = match cursor.scalar()? {
        Scalar::Null => return Ok(None),
        Scalar::String(text) => parse_hex(&text),
        // Java's `long` is signed, but only its bits matter.
        Scalar::Number(digits) => digits.parse().map(|number: i64| Id::Narrow(number as u64)).ok(),
        Scalar::Bool(_) => None,
    };
    id.map_or_else(|| cursor.fault_at(at, "invalid id"), |id| Ok(Some(id)))
}

fn parse_hex(text: &str) -> Option<Id> {
    if text.len() == 32 {
        let TraceId(id) = TraceId::from_hex(text)?;
        return Some(Id::Wide { high: (id >> 64) as u64, low: id as u64 });
    }
    SpanId::from_hex(text).map(|SpanId(id)| Id::Narrow(id))
}

/// Reads a time in milliseconds; `null` and 0 mean no time.
fn time(cursor: &mut Cursor<'_>) -> Result<Option<UnixNanos>, Fault> {
    cursor.peek();
    let at = cursor.at();
    match cursor.u64()? {
        0 => Ok(None),
        millis => match UnixNanos::from_millis(millis) {
            None => cursor.fault_at(at, "the time is outside the years 1970 to 2554"),
            time => Ok(time),
        },
    }
}

fn event<'a>(cursor: &mut Cursor<'a>) -> Result<Event<'a>, Fault> {
    let mut event = Event::default();
    cursor.object(|cursor, key| {
        match &*key {
            "t" => event.time = time(cursor)?.unwrap_or_default(),
            "m" => event.name = cursor.text_or_null()?,
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    Ok(event)
}
