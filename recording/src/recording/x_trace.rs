//! Events of spans that were written by `astracer-baggage`'s X-Trace, as the events of X-Trace's
//! own files: instants with edges from all the events that they followed.

use std::borrow::Cow;

use astracer_model::ids::SpanId;
use astracer_model::span::{Event, Parents, Span, Status};
use astracer_model::value::{Attribute, Value};

/// The attribute of an event with its id.
const EVENT: &str = "xtrace.event";
/// The attribute of an event with the ids of the events before it.
const PARENTS: &str = "xtrace.parents";

/// Whether a span has such events.
pub(super) fn has_events(span: &Span<'_>) -> bool {
    span.events.iter().any(|event| id(event).is_some())
}

/// A span's events as spans of their own. Each is named by its span and itself.
pub(super) fn events<'s>(span: &'s Span<'_>) -> impl Iterator<Item = Span<'s>> {
    span.events.iter().filter_map(|event| {
        let own = id(event)?;
        let parents = value(event, PARENTS).into_iter().flat_map(|parents| match parents {
            Value::Array(parents) => &parents[..],
            one => std::slice::from_ref(one),
        });
        let mut made = Span::of(span.resource.clone(), span.scope.clone());
        (made.trace_id, made.span_id) = (span.trace_id, own);
        made.parents = parents.filter_map(|parent| SpanId::from_hex(parent.as_str()?)).collect::<Parents>();
        made.name = Cow::Owned(format!("{} {}", span.name, event.name));
        (made.start, made.end) = (Some(event.time), Some(event.time));
        made.status = Status::default();
        // An event's own attributes come last, so they replace those of its span.
        made.attributes = span.attributes.iter().chain(&event.attributes).map(borrowed).collect();
        made.trace_state = Cow::Borrowed(&span.trace_state);
        let process = span.resource.attributes.iter().rfind(|attribute| attribute.key == "service.name");
        if let Some(process) = process {
            // Threads are drawn by process.
            made.attributes
                .insert(0, Attribute { key: Cow::Borrowed("xtrace.process"), value: process.value.clone() });
        }
        Some(made)
    })
}

fn borrowed<'s>(attribute: &'s Attribute<'_>) -> Attribute<'s> {
    Attribute { key: Cow::Borrowed(&attribute.key), value: attribute.value.clone() }
}

fn id(event: &Event<'_>) -> Option<SpanId> {
    SpanId::from_hex(value(event, EVENT)?.as_str()?).filter(|id| *id != SpanId::ZERO)
}

fn value<'s, 'a>(event: &'s Event<'a>, key: &str) -> Option<&'s Value<'a>> {
    event.attributes.iter().rfind(|attribute| attribute.key == key).map(|attribute| &attribute.value)
}
