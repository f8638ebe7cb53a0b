//! The losses of a span in Jaeger's JSON.

use super::super::loss::{Found, Loss, has_details};
use super::super::otel_tags;
use super::write::{has_duration, is_child_of, kept_flags, kept_warnings, names_nothing, only_follows};
use super::{EVENT, SAMPLED};
use astracer_model::otlp::SHARED_KEY;
use astracer_model::span::{Link, Span};
use astracer_model::value::{Attribute, Value};

const MICRO_NS: u64 = 1_000;

pub(crate) fn losses(span: &Span<'_>, found: &mut Found) {
    found.outside_of_otlp(span);
    found.add_if(Loss::Follows, span.follows && !only_follows(span));
    found.precision(span, MICRO_NS);
    found.add_if(Loss::End, matches!((span.start, span.end), (Some(start), Some(end)) if end < start));
    found.add_if(Loss::Duration, span.lone_duration.is_some() && !has_duration(span));
    let flags = kept_flags(span);
    found.add_if(
        Loss::Flags,
        flags.map_or(span.flags & !SAMPLED != 0, |(_, kept)| kept & SAMPLED != span.flags),
    );

    let elsewhere = [flags.map(|(index, _)| index), kept_warnings(span).map(|(index, _)| index)];
    for (index, attribute) in span.attributes.iter().enumerate() {
        if !elsewhere.contains(&Some(index)) {
            typed(attribute, found);
            found.add_if(Loss::ReservedName, is_reserved(attribute));
        }
    }
    for attribute in &span.scope.attributes {
        typed(attribute, found);
        found.add(Loss::AttributeMoved);
        found.add_if(Loss::ReservedName, is_reserved(attribute));
    }
    let mut named = false;
    for attribute in &span.resource.attributes {
        if !found.service_name(attribute, &mut named) {
            typed(attribute, found);
        }
    }
    for event in &span.events {
        event.attributes.iter().for_each(|attribute| typed(attribute, found));
        let reserved = |attribute: &Attribute<'_>| {
            attribute.key == otel_tags::DROPPED_ATTRIBUTES
                || (attribute.key == EVENT && event.name.is_empty())
        };
        found.add_if(Loss::ReservedName, event.attributes.iter().any(reserved));
    }
    links(span, found);
}

fn links(span: &Span<'_>, found: &mut Found) {
    let mut has_parent = !span.parents.is_empty();
    for link in &span.links {
        if names_nothing(link) {
            found.add(Loss::Link);
            continue;
        }
        let near = link.trace_id == span.trace_id;
        if near && (is_child_of(link) || !has_parent) {
            found.add(Loss::LinkAsParent);
            has_parent = true;
            continue;
        }
        // The attribute with the link's reference type is preserved.
        let bare = Link { attributes: Vec::new(), ..link.clone() };
        let attributes =
            if is_child_of(link) { link.attributes.len() > 1 } else { !link.attributes.is_empty() };
        found.add_if(Loss::LinkDetails, attributes || has_details(&bare));
    }
}

fn typed(attribute: &Attribute<'_>, found: &mut Found) {
    let untyped = matches!(attribute.value, Value::Empty | Value::Array(_) | Value::Map(_));
    found.add_if(Loss::AttributeType, untyped);
}

fn is_reserved(attribute: &Attribute<'_>) -> bool {
    match &*attribute.key {
        otel_tags::ERROR => {
            matches!(&attribute.value, Value::Bool(true)) || attribute.value.as_str() == Some("true")
        }
        SHARED_KEY => attribute.value == Value::Bool(true),
        key => otel_tags::is_reserved(key),
    }
}
