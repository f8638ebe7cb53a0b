//! The losses of a span in Zipkin's JSON.

use super::super::keys::Keys;
use super::super::loss::{Found, Loss, any_changes_in_json};
use super::super::otel_tags;
use super::super::plain_json::text_of;
use super::endpoint::{Endpoint, is_local, peer_port};
use super::span::is_resource_attribute;
use super::{DEBUG, MORE_PARENTS, link};
use astracer_model::span::{ErrorTag, ScopeTags, Span};
use astracer_model::value::{Attribute, Value};

const MICRO_NS: u64 = 1_000;

pub(crate) fn losses(span: &Span<'_>, found: &mut Found) {
    found.outside_of_otlp(span);
    found.add_if(Loss::Follows, span.follows);
    found.precision(span, MICRO_NS);
    match span.start.filter(|start| start.0 >= MICRO_NS) {
        Some(start) => found.add_if(Loss::End, span.end.is_some_and(|end| end.0 < start.0 + MICRO_NS)),
        None => {
            found.add_if(Loss::Start, span.start.is_some());
            found.add_if(Loss::End, span.end.is_some());
            found.add_if(Loss::Duration, span.lone_duration.is_some_and(|duration| duration < MICRO_NS));
        }
    }
    found.add_if(Loss::Flags, span.flags != 0);
    found.add_if(Loss::ServiceName, span.resource.service_name().is_empty());

    let mut keys = Keys::default();
    for attribute in &span.attributes {
        let keeps_error = attribute.key == otel_tags::ERROR && keeps_error(span);
        if is_untrue_error(attribute) && !keeps_error {
            found.add(Loss::AttributeLeftOut);
        } else if !(attribute.key == DEBUG && matches!(attribute.value, Value::Bool(_))) {
            let typed = attribute.value.as_str().is_none() && !is_remote_port(attribute, span);
            found.add_if(Loss::AttributeType, typed);
            found.add_if(Loss::AttributeMoved, is_resource_attribute(&attribute.key));
            if keeps_error || keeps_older(attribute, span) {
                found.add_if(Loss::AttributeRepeated, !keys.insert(&attribute.key));
            } else {
                tag(attribute, &mut keys, found);
            }
        }
    }
    for attribute in &span.scope.attributes {
        found.as_text(std::slice::from_ref(attribute));
        found.add(Loss::AttributeMoved);
        tag(attribute, &mut keys, found);
    }
    let mut local = Keys::default();
    for attribute in &span.resource.attributes {
        if is_local(attribute) {
            found.add_if(Loss::AttributeRepeated, !local.insert(&attribute.key));
        } else {
            found.as_text(std::slice::from_ref(attribute));
            found.add_if(Loss::AttributeMoved, !is_resource_attribute(&attribute.key));
            tag(attribute, &mut keys, found);
        }
    }

    found.add_if(Loss::AttributeType, span.events.iter().any(|event| any_changes_in_json(&event.attributes)));
    let reserved = |attribute: &Attribute<'_>| attribute.key == otel_tags::DROPPED_ATTRIBUTES;
    found.add_if(Loss::ReservedName, span.events.iter().any(|event| event.attributes.iter().any(reserved)));
    found.add_if(Loss::AttributeType, span.links.iter().any(|link| any_changes_in_json(&link.attributes)));
    found.add_if(Loss::LinkDetails, span.links.iter().any(|link| link.flags != 0));
}

/// Losses common to all attributes that become tags.
fn tag<'k>(attribute: &'k Attribute<'_>, keys: &mut Keys<'k>, found: &mut Found) {
    found.add_if(Loss::AttributeRepeated, !keys.insert(&attribute.key));
    let key = &*attribute.key;
    let reserved = otel_tags::is_reserved(key) || link::is_key(key);
    found.add_if(Loss::ReservedName, reserved || matches!(key, otel_tags::ERROR | MORE_PARENTS));
}

/// Returns true for the remote endpoint's port as a number, which the reader restores.
fn is_remote_port(attribute: &Attribute<'_>, span: &Span<'_>) -> bool {
    peer_port(attribute).is_some_and(|port| Endpoint::of_peer(span).is_some_and(|remote| remote.port == port))
}

/// Returns true if the tag `error` of Zipkin's own record is an attribute, which is written
/// unchanged.
pub(super) fn keeps_error(span: &Span<'_>) -> bool {
    span.wording.status.is_some_and(|form| form.error == ErrorTag::Other)
}

/// Returns true for the older tag of a scope that differs from the newer one. It is written
/// unchanged.
fn keeps_older(attribute: &Attribute<'_>, span: &Span<'_>) -> bool {
    let (form, newer) = match &*attribute.key {
        otel_tags::LIBRARY_NAME => (span.wording.scope_name, &span.scope.name),
        otel_tags::LIBRARY_VERSION => (span.wording.scope_version, &span.scope.version),
        _ => return false,
    };
    let older = text_of(&attribute.value);
    form == ScopeTags::Newer && !newer.is_empty() && !older.is_empty() && older != *newer
}

/// Zipkin treats any tag `error` as an error.
pub(super) fn is_untrue_error(attribute: &Attribute<'_>) -> bool {
    attribute.key == otel_tags::ERROR && text_of(&attribute.value) == "false"
}
