//! OpenTelemetry's fields as tags, for formats that cannot represent them otherwise.
//!
//! The names follow OpenTelemetry's "transformation to non-OTLP formats" and the Jaeger and Zipkin
//! translations of its Collector. Writers put the fields into tags; readers restore them.

use std::borrow::Cow;
use std::sync::Arc;

use super::reuse::Reuse;
use astracer_model::span::{Scope, ScopeTags, Span, SpanKind, Status};
use astracer_model::value::{Attribute, Value};

pub(super) const SCOPE_NAME: &str = "otel.scope.name";
pub(super) const SCOPE_VERSION: &str = "otel.scope.version";
/// The name of [`SCOPE_NAME`] before 2022.
pub(super) const LIBRARY_NAME: &str = "otel.library.name";
/// The name of [`SCOPE_VERSION`] before 2022.
pub(super) const LIBRARY_VERSION: &str = "otel.library.version";
pub(super) const STATUS_CODE: &str = "otel.status_code";
pub(super) const STATUS_DESCRIPTION: &str = "otel.status_description";
pub(super) const DROPPED_ATTRIBUTES: &str = "otel.dropped_attributes_count";
pub(super) const DROPPED_EVENTS: &str = "otel.dropped_events_count";
pub(super) const DROPPED_LINKS: &str = "otel.dropped_links_count";
pub(super) const TRACE_STATE: &str = "w3c.tracestate";
pub(super) const KIND: &str = "span.kind";
pub(super) const ERROR: &str = "error";

/// Returns true for the names of tags that [`lift`] turns into fields.
pub(super) fn is_reserved(key: &str) -> bool {
    let names = [
        SCOPE_NAME,
        SCOPE_VERSION,
        LIBRARY_NAME,
        LIBRARY_VERSION,
        STATUS_CODE,
        STATUS_DESCRIPTION,
        DROPPED_ATTRIBUTES,
        DROPPED_EVENTS,
        DROPPED_LINKS,
        TRACE_STATE,
        KIND,
    ];
    matches!(key.as_bytes().first(), Some(b'o' | b'w' | b's')) && names.contains(&key)
}

/// The word for a status in the tag [`STATUS_CODE`].
pub(super) fn status_word(status: Status) -> Option<&'static str> {
    match status {
        Status::Unset => None,
        Status::Ok => Some("OK"),
        Status::Error => Some("ERROR"),
    }
}

/// Parses a status: `OK`, or `STATUS_CODE_OK` as old Collectors write it.
fn status_from_word(word: &str) -> Option<Status> {
    let word = word.strip_prefix("STATUS_CODE_").unwrap_or(word);
    [("UNSET", Status::Unset), ("OK", Status::Ok), ("ERROR", Status::Error)]
        .into_iter()
        .find(|(own, _)| own.eq_ignore_ascii_case(word))
        .map(|(_, status)| status)
}

/// Moves tags into the fields they describe: scope, status, tracestate, counts of discarded items,
/// and the kind if it is otherwise unknown. Each format handles the tag `error` itself. Tags with
/// invalid values stay tags. So does the older name or version of a scope if it differs from the
/// newer one.
///
/// Returns which tags contained the scope's name, and which its version.
pub(super) fn lift(span: &mut Span<'_>, scopes: &mut Reuse<Scope>) -> [ScopeTags; 2] {
    let mut scope = [const { Cow::Borrowed("") }; 4];
    let mut attributes = std::mem::take(&mut span.attributes);
    attributes.retain_mut(|attribute| {
        if !matches!(attribute.key.as_bytes().first(), Some(b'o' | b'w' | b's')) {
            return true;
        }
        match &*attribute.key {
            SCOPE_NAME => !take_text(&mut attribute.value, &mut scope[0]),
            SCOPE_VERSION => !take_text(&mut attribute.value, &mut scope[1]),
            LIBRARY_NAME => !take_text(&mut attribute.value, &mut scope[2]),
            LIBRARY_VERSION => !take_text(&mut attribute.value, &mut scope[3]),
            STATUS_DESCRIPTION => !take_text(&mut attribute.value, &mut span.status_message),
            TRACE_STATE => !take_text(&mut attribute.value, &mut span.trace_state),
            STATUS_CODE => !take(attribute.value.as_str().and_then(status_from_word), &mut span.status),
            DROPPED_ATTRIBUTES => !take(count(&attribute.value), &mut span.dropped_attributes),
            DROPPED_EVENTS => !take(count(&attribute.value), &mut span.dropped_events),
            DROPPED_LINKS => !take(count(&attribute.value), &mut span.dropped_links),
            KIND if span.kind == SpanKind::Unspecified => {
                !take(attribute.value.as_str().and_then(SpanKind::from_word), &mut span.kind)
            }
            _ => true,
        }
    });
    let [name, version, old_name, old_version] = scope;
    let (name, name_tags) = one_of(name, old_name, LIBRARY_NAME, &mut attributes);
    let (version, version_tags) = one_of(version, old_version, LIBRARY_VERSION, &mut attributes);
    span.attributes = attributes;
    span.scope = scope_of(&name, &version, scopes);
    [name_tags, version_tags]
}

/// The newer text if there is one, else the older. If both exist and differ, the older becomes an
/// attribute again.
fn one_of<'a>(
    newer: Cow<'a, str>,
    older: Cow<'a, str>,
    older_key: &'static str,
    attributes: &mut Vec<Attribute<'a>>,
) -> (Cow<'a, str>, ScopeTags) {
    match (newer.is_empty(), older.is_empty()) {
        (true, true) => (newer, ScopeTags::Both),
        (true, false) => (older, ScopeTags::Older),
        (false, true) => (newer, ScopeTags::Newer),
        (false, false) if newer == older => (newer, ScopeTags::Both),
        (false, false) => {
            attributes.push(Attribute { key: older_key.into(), value: Value::String(older) });
            (newer, ScopeTags::Newer)
        }
    }
}

fn scope_of(name: &str, version: &str, scopes: &mut Reuse<Scope>) -> Arc<Scope> {
    scopes.get_or_make(&[name, version], || Scope {
        name: name.to_owned(),
        version: version.to_owned(),
        ..Scope::default()
    })
}

/// Removes the count of discarded attributes of an event or link from its attributes and returns
/// it.
pub(super) fn lift_dropped(attributes: &mut Vec<Attribute<'_>>) -> u32 {
    let mut dropped = 0;
    attributes.retain(|attribute| {
        attribute.key != DROPPED_ATTRIBUTES || !take(count(&attribute.value), &mut dropped)
    });
    dropped
}

fn take<T>(found: Option<T>, field: &mut T) -> bool {
    found.map(|found| *field = found).is_some()
}

fn take_text<'a>(value: &mut Value<'a>, field: &mut Cow<'a, str>) -> bool {
    match value {
        Value::String(text) => {
            *field = std::mem::take(text);
            true
        }
        _ => false,
    }
}

fn count(value: &Value<'_>) -> Option<u32> {
    match value {
        Value::Int(value) => u32::try_from(*value).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}
