//! The losses of a span in HTrace 4.

use super::super::keys::Keys;
use super::super::loss::{Found, Loss, has_details};
use super::super::otel_tags;
use astracer_model::ids::SpanId;
use astracer_model::span::Span;
use astracer_model::time::UnixNanos;
use astracer_model::value::Attribute;

const MILLI_NS: u64 = 1_000_000;

pub(crate) fn losses(span: &Span<'_>, found: &mut Found) {
    found.outside_of_otlp(span);
    found.add_if(Loss::Follows, span.follows);
    found.precision(span, MILLI_NS);
    found.add_if(Loss::TraceId, span.trace_id.0 >> 64 != 0);
    // The first millisecond of 1970 is written as an unset time.
    let is_none = |time: Option<UnixNanos>| time.is_some_and(|time| time.0 < MILLI_NS);
    found.add_if(Loss::Start, is_none(span.start));
    found.add_if(Loss::End, is_none(span.end));
    found.add_if(Loss::Duration, span.lone_duration.is_some());
    found.add_if(Loss::Flags, span.flags != 0);
    found.add_if(Loss::Shared, span.shared);

    found.add_if(Loss::AttributeMoved, !span.scope.attributes.is_empty());
    let mut keys = Keys::default();
    for attribute in span.attributes.iter().chain(&span.scope.attributes) {
        note(attribute, &mut keys, found);
    }
    let mut named = false;
    for attribute in &span.resource.attributes {
        if !found.service_name(attribute, &mut named) {
            found.add(Loss::AttributeMoved);
            note(attribute, &mut keys, found);
        }
    }

    let lost = |event: &astracer_model::span::Event<'_>| {
        !event.attributes.is_empty() || event.dropped_attributes != 0
    };
    found.add_if(Loss::EventDetails, span.events.iter().any(lost));
    for link in &span.links {
        let low = link.trace_id.0 as u64;
        if low == span.trace_id.0 as u64 || low == 0 && link.span_id == SpanId::ZERO {
            found.add(Loss::Link);
        } else {
            found.add_if(Loss::LinkDetails, has_details(link) || link.trace_id.0 >> 64 != 0);
        }
    }
}

/// Losses common to all attributes that become notes.
fn note<'k>(attribute: &'k Attribute<'_>, keys: &mut Keys<'k>, found: &mut Found) {
    found.add_if(Loss::AttributeType, attribute.value.as_str().is_none());
    found.add_if(Loss::AttributeRepeated, !keys.insert(&attribute.key));
    found.add_if(Loss::ReservedName, otel_tags::is_reserved(&attribute.key));
}
