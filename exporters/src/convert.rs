//! Converts OpenTelemetry's `SpanData` to the model's spans, which borrow its text.

use std::borrow::Cow;
use std::sync::Arc;

use astracer_model::otel::otlp_flags;
use astracer_model::span::{Event, Link, Resource, Scope};
use astracer_model::value::Attribute;
use astracer_model::{Span, SpanId, Status};
use opentelemetry::trace::Status as OtelStatus;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::SpanData;

/// Converts the spans of a batch, all from the same resource.
pub fn spans<'a>(batch: &'a [SpanData], resource: &Arc<Resource>) -> Vec<Span<'a>> {
    let mut scopes = Scopes::default();
    batch.iter().map(|data| span(data, resource, scopes.get(&data.instrumentation_scope))).collect()
}

/// Converts a resource. Its attributes are sorted by key, because OpenTelemetry keeps them in
/// arbitrary order.
pub fn resource(resource: &opentelemetry_sdk::Resource) -> Resource {
    Resource::of_opentelemetry(resource.iter(), resource.schema_url())
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
        let made = Arc::new(Scope::from(of));
        if self.known.len() < SCOPES_MAX {
            self.last = self.known.len();
            self.known.push((of, Arc::clone(&made)));
        }
        made
    }
}

fn span<'a>(data: &'a SpanData, resource: &Arc<Resource>, scope: Arc<Scope>) -> Span<'a> {
    let context = &data.span_context;
    let parent = SpanId::from(data.parent_span_id);
    let (status, status_message) = match &data.status {
        OtelStatus::Unset => (Status::Unset, ""),
        OtelStatus::Ok => (Status::Ok, ""),
        OtelStatus::Error { description } => (Status::Error, &**description),
    };
    let event = |event: &'a opentelemetry::trace::Event| Event {
        time: event.timestamp.into(),
        name: Cow::Borrowed(&event.name),
        attributes: attributes(&event.attributes),
        dropped_attributes: event.dropped_attributes_count,
    };
    let link = |link: &'a opentelemetry::trace::Link| {
        Link::to_context(&link.span_context, &link.attributes, link.dropped_attributes_count)
    };
    Span {
        trace_id: context.trace_id().into(),
        span_id: context.span_id().into(),
        parents: (parent != SpanId::ZERO).then_some(parent).into_iter().collect(),
        name: Cow::Borrowed(&data.name),
        kind: (&data.span_kind).into(),
        start: Some(data.start_time.into()),
        end: Some(data.end_time.into()),
        status,
        status_message: Cow::Borrowed(status_message),
        attributes: attributes(&data.attributes),
        dropped_attributes: data.dropped_attributes_count,
        events: data.events.iter().map(event).collect(),
        dropped_events: data.events.dropped_count,
        links: data.links.iter().map(link).collect(),
        dropped_links: data.links.dropped_count,
        trace_state: Cow::Owned(context.trace_state().header()),
        flags: otlp_flags(context.trace_flags(), data.parent_span_is_remote),
        ..Span::of(Arc::clone(resource), scope)
    }
}

fn attributes(attributes: &[KeyValue]) -> Vec<Attribute<'_>> {
    attributes.iter().map(Attribute::from).collect()
}
