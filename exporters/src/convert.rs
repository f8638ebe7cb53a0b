//! Converts OpenTelemetry's `SpanData` to the model's spans, which borrow its text.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use astracer_model::span::{Event, Link, Resource, Scope};
use astracer_model::value::Attribute;
use astracer_model::{Span, SpanId, SpanKind, Status, TraceId, UnixNanos, Value};
use opentelemetry::trace::{SpanContext, SpanKind as OtelKind, Status as OtelStatus};
use opentelemetry::{Array, InstrumentationScope, KeyValue, Value as OtelValue};
use opentelemetry_sdk::trace::SpanData;

/// OTLP's flag "it is known whether the other span was remote".
const HAS_IS_REMOTE: u32 = 0x100;
/// OTLP's flag "the other span was remote".
const IS_REMOTE: u32 = 0x200;

/// Converts the spans of a batch, all from the same resource.
pub fn spans<'a>(batch: &'a [SpanData], resource: &Arc<Resource>) -> Vec<Span<'a>> {
    let mut scopes = Scopes::default();
    batch.iter().map(|data| span(data, resource, scopes.get(&data.instrumentation_scope))).collect()
}

/// Converts a resource. Its attributes are sorted by key, because OpenTelemetry keeps them in
/// arbitrary order.
pub fn resource(resource: &opentelemetry_sdk::Resource) -> Resource {
    let attribute = |(key, of): (&opentelemetry::Key, &OtelValue)| {
        Attribute { key: Cow::Borrowed(key.as_str()), value: value(of) }.into_owned()
    };
    let mut attributes: Vec<_> = resource.iter().map(attribute).collect();
    attributes.sort_by(|a, b| a.key.cmp(&b.key));
    Resource {
        attributes,
        dropped_attributes: 0,
        schema_url: resource.schema_url().unwrap_or_default().to_owned(),
    }
}

/// The scopes converted so far in a batch. Most batches have one, so the last is checked first.
#[derive(Default)]
struct Scopes<'a> {
    known: Vec<(&'a InstrumentationScope, Arc<Scope>)>,
    last: usize,
}

/// The number of scopes that are remembered. Beyond it, a scope is converted for each span.
const SCOPES_MAX: usize = 256;

impl<'a> Scopes<'a> {
    fn get(&mut self, of: &'a InstrumentationScope) -> Arc<Scope> {
        if let Some((known, scope)) = self.known.get(self.last)
            && *known == of
        {
            return Arc::clone(scope);
        }
        if let Some(found) = self.known.iter().position(|(known, _)| *known == of) {
            self.last = found;
            return Arc::clone(&self.known[found].1);
        }
        let made = Arc::new(scope(of));
        if self.known.len() < SCOPES_MAX {
            self.last = self.known.len();
            self.known.push((of, Arc::clone(&made)));
        }
        made
    }
}

fn scope(scope: &InstrumentationScope) -> Scope {
    Scope {
        name: scope.name().to_owned(),
        version: scope.version().unwrap_or_default().to_owned(),
        attributes: scope.attributes().map(|own| attribute(own).into_owned()).collect(),
        dropped_attributes: 0,
        schema_url: scope.schema_url().unwrap_or_default().to_owned(),
    }
}

fn span<'a>(data: &'a SpanData, resource: &Arc<Resource>, scope: Arc<Scope>) -> Span<'a> {
    let context = &data.span_context;
    let parent = SpanId(u64::from_be_bytes(data.parent_span_id.to_bytes()));
    let (status, status_message) = match &data.status {
        OtelStatus::Unset => (Status::Unset, ""),
        OtelStatus::Ok => (Status::Ok, ""),
        OtelStatus::Error { description } => (Status::Error, &**description),
    };
    Span {
        trace_id: trace_id(context),
        span_id: span_id(context),
        parents: (parent != SpanId::ZERO).then_some(parent).into_iter().collect(),
        name: Cow::Borrowed(&data.name),
        kind: match data.span_kind {
            OtelKind::Internal => SpanKind::Internal,
            OtelKind::Server => SpanKind::Server,
            OtelKind::Client => SpanKind::Client,
            OtelKind::Producer => SpanKind::Producer,
            OtelKind::Consumer => SpanKind::Consumer,
        },
        start: Some(nanos(data.start_time)),
        end: Some(nanos(data.end_time)),
        status,
        status_message: Cow::Borrowed(status_message),
        attributes: attributes(&data.attributes),
        dropped_attributes: data.dropped_attributes_count,
        events: data
            .events
            .iter()
            .map(|event| Event {
                time: nanos(event.timestamp),
                name: Cow::Borrowed(&event.name),
                attributes: attributes(&event.attributes),
                dropped_attributes: event.dropped_attributes_count,
            })
            .collect(),
        dropped_events: data.events.dropped_count,
        links: data
            .links
            .iter()
            .map(|link| Link {
                trace_id: trace_id(&link.span_context),
                span_id: span_id(&link.span_context),
                trace_state: trace_state(&link.span_context),
                attributes: attributes(&link.attributes),
                dropped_attributes: link.dropped_attributes_count,
                flags: flags(&link.span_context, link.span_context.is_remote()),
            })
            .collect(),
        dropped_links: data.links.dropped_count,
        trace_state: trace_state(context),
        flags: flags(context, data.parent_span_is_remote),
        shared: false,
        follows: false,
        lone_duration: None,
        wording: Default::default(),
        resource: Arc::clone(resource),
        scope,
    }
}

fn trace_id(context: &SpanContext) -> TraceId {
    TraceId(u128::from_be_bytes(context.trace_id().to_bytes()))
}

fn span_id(context: &SpanContext) -> SpanId {
    SpanId(u64::from_be_bytes(context.span_id().to_bytes()))
}

fn trace_state(context: &SpanContext) -> Cow<'static, str> {
    Cow::Owned(context.trace_state().header())
}

fn flags(context: &SpanContext, is_remote: bool) -> u32 {
    u32::from(context.trace_flags().to_u8()) | HAS_IS_REMOTE | if is_remote { IS_REMOTE } else { 0 }
}

/// A time before 1970 comes from a clock that was never set, and becomes 1970.
fn nanos(time: SystemTime) -> UnixNanos {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn attributes(attributes: &[KeyValue]) -> Vec<Attribute<'_>> {
    attributes.iter().map(attribute).collect()
}

fn attribute(attribute: &KeyValue) -> Attribute<'_> {
    Attribute { key: Cow::Borrowed(attribute.key.as_str()), value: value(&attribute.value) }
}

fn value(of: &OtelValue) -> Value<'_> {
    match of {
        OtelValue::Bool(value) => Value::Bool(*value),
        OtelValue::I64(value) => Value::Int(*value),
        OtelValue::F64(value) => Value::Double(*value),
        OtelValue::String(text) => text.as_str().into(),
        OtelValue::Array(items) => array(items),
        // Any type that OpenTelemetry adds later can be printed.
        other => Value::String(Cow::Owned(other.to_string())),
    }
}

fn array(items: &Array) -> Value<'_> {
    Value::Array(match items {
        Array::Bool(items) => items.iter().copied().map(Value::Bool).collect(),
        Array::I64(items) => items.iter().copied().map(Value::Int).collect(),
        Array::F64(items) => items.iter().copied().map(Value::Double).collect(),
        Array::String(items) => items.iter().map(|text| text.as_str().into()).collect(),
        other => return Value::String(Cow::Owned(other.to_string())),
    })
}
