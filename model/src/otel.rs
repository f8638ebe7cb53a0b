//! Conversions from OpenTelemetry's types, which borrow their text.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry as otel;
use opentelemetry::trace as otel_trace;

use crate::ids::{SpanId, TraceId};
use crate::span::{Link, Resource, Scope, SpanKind};
use crate::time::UnixNanos;
use crate::value::{Attribute, Value};

impl From<otel::TraceId> for TraceId {
    fn from(id: otel::TraceId) -> Self {
        TraceId(u128::from_be_bytes(id.to_bytes()))
    }
}

impl From<otel::SpanId> for SpanId {
    fn from(id: otel::SpanId) -> Self {
        SpanId(u64::from_be_bytes(id.to_bytes()))
    }
}

impl From<SystemTime> for UnixNanos {
    /// A time before 1970 comes from a clock that was never set, and becomes 1970.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixNanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<&otel_trace::SpanKind> for SpanKind {
    fn from(kind: &otel_trace::SpanKind) -> Self {
        match kind {
            otel_trace::SpanKind::Internal => SpanKind::Internal,
            otel_trace::SpanKind::Server => SpanKind::Server,
            otel_trace::SpanKind::Client => SpanKind::Client,
            otel_trace::SpanKind::Producer => SpanKind::Producer,
            otel_trace::SpanKind::Consumer => SpanKind::Consumer,
        }
    }
}

impl<'a> From<&'a otel::KeyValue> for Attribute<'a> {
    fn from(attribute: &'a otel::KeyValue) -> Self {
        Attribute { key: Cow::Borrowed(attribute.key.as_str()), value: (&attribute.value).into() }
    }
}

impl<'a> From<&'a otel::Value> for Value<'a> {
    fn from(value: &'a otel::Value) -> Self {
        match value {
            otel::Value::Bool(value) => Value::Bool(*value),
            otel::Value::I64(value) => Value::Int(*value),
            otel::Value::F64(value) => Value::Double(*value),
            otel::Value::String(text) => text.as_str().into(),
            otel::Value::Array(items) => array(items),
            // Any type that OpenTelemetry adds later can be printed.
            other => Value::String(Cow::Owned(other.to_string())),
        }
    }
}

fn array(items: &otel::Array) -> Value<'_> {
    Value::Array(match items {
        otel::Array::Bool(items) => items.iter().copied().map(Value::Bool).collect(),
        otel::Array::I64(items) => items.iter().copied().map(Value::Int).collect(),
        otel::Array::F64(items) => items.iter().copied().map(Value::Double).collect(),
        otel::Array::String(items) => items.iter().map(|text| text.as_str().into()).collect(),
        other => return Value::String(Cow::Owned(other.to_string())),
    })
}

impl<'a> Link<'a> {
    /// Returns a link to the span of `to`. `cut` is the number of attributes that were discarded.
    pub fn to_context(to: &otel_trace::SpanContext, attributes: &'a [otel::KeyValue], cut: u32) -> Self {
        Link {
            trace_id: to.trace_id().into(),
            span_id: to.span_id().into(),
            trace_state: Cow::Owned(to.trace_state().header()),
            attributes: attributes.iter().map(Attribute::from).collect(),
            dropped_attributes: cut,
            flags: otlp_flags(to.trace_flags(), to.is_remote()),
        }
    }
}

impl From<&otel::InstrumentationScope> for Scope {
    fn from(scope: &otel::InstrumentationScope) -> Self {
        Scope {
            name: scope.name().to_owned(),
            version: scope.version().unwrap_or_default().to_owned(),
            attributes: scope.attributes().map(|own| Attribute::from(own).into_owned()).collect(),
            dropped_attributes: 0,
            schema_url: scope.schema_url().unwrap_or_default().to_owned(),
        }
    }
}

impl Resource {
    /// Returns a resource with these attributes. They are sorted by key, because OpenTelemetry
    /// keeps them in arbitrary order.
    pub fn of_opentelemetry<'a>(
        attributes: impl IntoIterator<Item = (&'a otel::Key, &'a otel::Value)>,
        schema_url: Option<&str>,
    ) -> Self {
        let owned = |(key, value): (&'a otel::Key, &'a otel::Value)| {
            Attribute { key: Cow::Borrowed(key.as_str()), value: value.into() }.into_owned()
        };
        let mut attributes: Vec<_> = attributes.into_iter().map(owned).collect();
        attributes.sort_by(|a, b| a.key.cmp(&b.key));
        Resource { attributes, dropped_attributes: 0, schema_url: schema_url.unwrap_or_default().to_owned() }
    }
}

/// OTLP's flag "it is known whether the other span was remote".
const HAS_IS_REMOTE: u32 = 0x100;
/// OTLP's flag "the other span was remote".
const IS_REMOTE: u32 = 0x200;

/// Returns OTLP's flags of a span or a link: the W3C flags, and whether the other span, a span's
/// parent or the one that is linked to, is known to be remote.
pub fn otlp_flags(flags: otel::TraceFlags, is_remote: bool) -> u32 {
    u32::from(flags.to_u8()) | HAS_IS_REMOTE | if is_remote { IS_REMOTE } else { 0 }
}

/// Returns what [`otlp_flags`] was made of.
pub fn w3c_flags(flags: u32) -> (otel::TraceFlags, bool) {
    (otel::TraceFlags::new(flags as u8), flags & IS_REMOTE != 0)
}
