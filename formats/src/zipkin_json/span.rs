//! Reading one span.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::super::json::{Cursor, Fault, Out};
use super::super::reuse::Reuse;
use super::super::{micros, otel_tags, plain_json};
use super::endpoint::Endpoint;
use super::{DEBUG, MORE_PARENTS, annotation, link};
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::span::{ErrorTag, Event, Resource, Scope, Span, SpanKind, Status, StatusTags};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

/// State shared by the spans of a file.
#[derive(Debug, Default)]
pub(super) struct Shared {
    resources: Reuse<Resource>,
    scopes: Reuse<Scope>,
    /// The resource of a span until its own is known.
    no_resource: Arc<Resource>,
    no_scope: Arc<Scope>,
}

/// The fault of a span with members of the v1 format.
const OLDER_FORMAT: &str = "span in Zipkin's v1 format, which is not supported; Zipkin converts it: post it to \
                            /api/v1/spans, and get it from /api/v2/trace";

/// Namespaces of attributes that describe a resource.
const RESOURCE_NAMESPACES: &[&str] =
    &["service", "telemetry", "host", "os", "process", "container", "k8s", "cloud", "deployment", "device"];

/// Reads the span at the cursor and passes it to `out`.
pub(super) fn read<'a>(cursor: &mut Cursor<'a>, out: &mut Out<'_>, shared: &mut Shared) -> Result<(), Fault> {
    let begin = cursor.at();
    let mut span = Span::of(Arc::clone(&shared.no_resource), Arc::clone(&shared.no_scope));
    let (mut duration_at, mut duration) = (begin, None);
    let (mut local, mut remote) = (Endpoint::default(), Endpoint::default());
    let (mut debug, mut is_older) = (None, false);
    cursor.object(|cursor, key| {
        match &*key {
            "traceId" => span.trace_id = id(cursor, TraceId::from_hex)?.unwrap_or_default(),
            "id" => span.span_id = id(cursor, SpanId::from_hex)?.unwrap_or_default(),
            "parentId" => {
                span.parents.extend(id(cursor, SpanId::from_hex)?.filter(|&id| id != SpanId::ZERO));
            }
            "name" => span.name = cursor.text_or_null()?,
            "kind" => span.kind = cursor.or_unset(kind)?,
            "timestamp" => span.start = micros::instant(cursor)?.filter(|&start| start != UnixNanos(0)),
            "duration" => (duration_at, duration) = (cursor.at(), micros::duration(cursor)?),
            "shared" => span.shared = cursor.or_unset(Cursor::bool)?,
            "debug" => {
                debug = cursor.or_unset(|cursor| (!cursor.null()?).then(|| cursor.bool()).transpose())?;
            }
            "localEndpoint" => local = Endpoint::read(cursor)?,
            "remoteEndpoint" => remote = Endpoint::read(cursor)?,
            "annotations" => cursor.list(|cursor| {
                span.events.push(event(cursor, &mut is_older)?);
                Ok(())
            })?,
            "tags" => tags(cursor, &mut span.attributes)?,
            "binaryAnnotations" => return cursor.fault_at(begin, OLDER_FORMAT),
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    // A span with tags or an endpoint of its own has the newer format, as for Zipkin itself.
    if is_older && local.is_empty() && remote.is_empty() && span.attributes.is_empty() {
        return cursor.fault_at(begin, OLDER_FORMAT);
    }
    if span.trace_id == TraceId::ZERO || span.span_id == SpanId::ZERO {
        return cursor.fault_at(begin, "span without a traceId or an id");
    }
    match (span.start, duration) {
        (Some(start), Some(duration)) => {
            let Some(end) = micros::end(start, duration) else {
                return cursor.fault_at(duration_at, "the span's end is outside the years 1970 to 2554");
            };
            span.end = Some(end);
        }
        (None, Some(duration)) => span.lone_duration = micros::lone(duration),
        (_, None) => {}
    }
    if let Some(debug) = debug {
        span.attributes.push(Attribute { key: DEBUG.into(), value: Value::Bool(debug) });
    }
    span.resource = resource(local, &mut span.attributes, &mut shared.resources);
    link::lift(&mut span);
    lift_parents(&mut span);
    [span.wording.scope_name, span.wording.scope_version] = otel_tags::lift(&mut span, &mut shared.scopes);
    lift_error(&mut span);
    remote.add_to(&mut span);
    out.span(cursor, begin, span);
    Ok(())
}

/// Reads a hexadecimal id; `null` and the empty string mean no id.
fn id<T>(cursor: &mut Cursor<'_>, hex: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Fault> {
    cursor.peek();
    let at = cursor.at();
    let text = cursor.text_or_null()?;
    if text.is_empty() {
        return Ok(None);
    }
    hex(&text).map_or_else(|| cursor.fault_at(at, "invalid id"), |id| Ok(Some(id)))
}

fn kind(cursor: &mut Cursor<'_>) -> Result<SpanKind, Fault> {
    cursor.peek();
    let at = cursor.at();
    let word = cursor.text_or_null()?;
    if word.is_empty() {
        return Ok(SpanKind::Unspecified);
    }
    SpanKind::from_word(&word).map_or_else(|| cursor.fault_at(at, "unknown kind"), Ok)
}

/// Reads an annotation. Those of the v1 format have an endpoint.
fn event<'a>(cursor: &mut Cursor<'a>, is_older: &mut bool) -> Result<Event<'a>, Fault> {
    let (mut time, mut value) = (UnixNanos(0), Cow::Borrowed(""));
    cursor.object(|cursor, key| {
        match &*key {
            "timestamp" => time = micros::instant(cursor)?.unwrap_or_default(),
            "value" => value = cursor.text_or_null()?,
            "endpoint" => {
                *is_older |= cursor.peek() == Some(b'{');
                cursor.skip()?;
            }
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    Ok(annotation::read(time, value))
}

/// Reads tags. Zipkin's tags are text, but numbers stay numbers.
fn tags<'a>(cursor: &mut Cursor<'a>, attributes: &mut Vec<Attribute<'a>>) -> Result<(), Fault> {
    attributes.extend(plain_json::read_members(cursor)?);
    Ok(())
}

/// Returns true for the name of an attribute that belongs to a resource.
pub(super) fn is_resource_attribute(key: &str) -> bool {
    // Cheap test first: most keys do not start with the first letter of a namespace.
    let is_first = |name: &str| key.as_bytes().get(name.len()) == Some(&b'.') && key.starts_with(name);
    matches!(key.as_bytes().first(), Some(b'c' | b'd' | b'h' | b'k' | b'o' | b'p' | b's' | b't'))
        && RESOURCE_NAMESPACES.iter().any(|name| is_first(name))
}

/// Builds the resource from the local endpoint and the tags that belong to a resource.
fn resource<'a>(
    local: Endpoint<'a>,
    attributes: &mut Vec<Attribute<'a>>,
    resources: &mut Reuse<Resource>,
) -> Arc<Resource> {
    let tells = |attribute: &Attribute<'_>| {
        attribute.value.as_str().is_some() && is_resource_attribute(&attribute.key)
    };
    let told: Vec<_> = attributes.extract_if(.., |attribute| tells(attribute)).collect();
    let port = local.port.to_le_bytes();
    let mut texts: SmallVec<[&[u8]; 16]> =
        smallvec![local.service.as_bytes(), local.ipv4.as_bytes(), local.ipv6.as_bytes(), &port[..]];
    for tag in &told {
        texts.extend([tag.key.as_bytes(), tag.value.as_str().unwrap_or_default().as_bytes()]);
    }
    resources.get_or_make(&texts, || {
        let all = local.clone().into_resource_attributes().into_iter().chain(told.iter().cloned());
        Resource { attributes: all.map(Attribute::into_owned).collect(), ..Resource::default() }
    })
}

/// Moves the parents for which Zipkin has no field out of the attributes.
fn lift_parents(span: &mut Span<'_>) {
    let parents = &mut span.parents;
    span.attributes.retain(|attribute| {
        if attribute.key != MORE_PARENTS {
            return true;
        }
        let ids = attribute.value.as_str().unwrap_or_default().split(',');
        let ids = ids.map(|id| SpanId::from_hex(id).filter(|&id| id != SpanId::ZERO));
        match ids.collect::<Option<Vec<_>>>() {
            Some(more) => {
                parents.extend(more);
                false
            }
            None => true,
        }
    });
}

/// Reads the tag `error`. It means an error, unless its text is "false" or another tag gives the
/// status. Its text is the description, unless the text is "true" or there is a description
/// already. A tag with any other meaning stays an attribute.
fn lift_error(span: &mut Span<'_>) {
    let mut tags = StatusTags::default();
    tags.code = span.status != Status::Unset;
    tags.description = !span.status_message.is_empty();
    if let Some(index) = span.attributes.iter().position(|attribute| attribute.key == otel_tags::ERROR) {
        let text = plain_json::text_of(&span.attributes[index].value);
        let is_error = match span.status {
            Status::Unset => text != "false",
            Status::Ok => false,
            Status::Error => true,
        };
        tags.error = match &*text {
            _ if !is_error => ErrorTag::Other,
            text if text == span.status_message => ErrorTag::Description,
            "" => ErrorTag::Empty,
            "true" => ErrorTag::True,
            _ if !tags.description => ErrorTag::Description,
            _ => ErrorTag::Other,
        };
        if is_error {
            span.status = Status::Error;
        }
        if tags.error != ErrorTag::Other {
            let value = span.attributes.remove(index).value;
            if tags.error == ErrorTag::Description {
                span.status_message = match value {
                    Value::String(text) => text,
                    other => plain_json::text_of(&other).into_owned().into(),
                };
            }
        }
    }
    let is_as_specified = match span.status {
        Status::Error => {
            tags.code
                && tags.error == ErrorTag::Description
                && tags.description != span.status_message.is_empty()
        }
        Status::Unset | Status::Ok => tags.error == ErrorTag::Absent,
    };
    span.wording.status = (!is_as_specified).then_some(tags);
}
