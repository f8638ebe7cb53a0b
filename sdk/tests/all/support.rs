//! Test subscribers with a collector, and text drawings of exported spans.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use astracer_sdk::{Astracer, Builder};
pub(crate) use astracer_testing::{Collector, TIMEOUT, World, named, one, start};
use opentelemetry::trace::{SpanContext, Status, TraceContextExt as _};
use opentelemetry::{Context, SpanId, Value};
use opentelemetry_sdk::trace::SpanData;
use tracing::span::{Attributes, Id};
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::layer::{Context as LayerContext, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// The base of all subscribers in a test binary.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "each binary has one")]
pub(crate) enum Base {
    /// Our layer on a registry.
    Registry,
    /// Our subscriber.
    Subscriber,
}

impl Base {
    /// The path of the modules that both binaries have.
    fn modules(self) -> &'static str {
        match self {
            Base::Registry => "all::",
            Base::Subscriber => "subscriber::shared::",
        }
    }

    /// Whether the id of an ended span is reused.
    pub(crate) fn uses_ids_again(self) -> bool {
        matches!(self, Base::Registry)
    }
}

/// A subscriber on the binary's base.
pub(crate) fn dispatch(astracer: &Astracer) -> Dispatch {
    match crate::BASE {
        Base::Registry => Dispatch::new(Registry::default().with(astracer.layer.clone())),
        Base::Subscriber => Dispatch::new(astracer.subscriber()),
    }
}

/// A world on the binary's base.
pub(crate) fn world(change: impl FnOnce(Builder) -> Builder) -> World {
    World::on(dispatch, change)
}

/// A world on the binary's base whose sampler is this one.
pub(crate) fn sampling(sampler: &str, change: impl FnOnce(Builder) -> Builder) -> World {
    world(|builder| change(builder.with_sampler(sampler.parse().unwrap())))
}

/// Draws spans as a tree. Each has its name, its kind if it is not internal, attributes, status,
/// events and links.
pub(crate) fn draw(spans: &[SpanData]) -> String {
    let ids: Vec<SpanId> = spans.iter().map(|span| span.span_context.span_id()).collect();
    let mut children: BTreeMap<usize, Vec<&SpanData>> = BTreeMap::new();
    let mut roots = Vec::new();
    for span in spans {
        match ids.iter().position(|id| *id == span.parent_span_id) {
            Some(parent) => children.entry(parent).or_default().push(span),
            None => roots.push(span),
        }
    }
    let mut out = String::new();
    fn draw(
        span: &SpanData,
        depth: usize,
        ids: &[SpanId],
        children: &BTreeMap<usize, Vec<&SpanData>>,
        out: &mut String,
    ) {
        let indent = "  ".repeat(depth);
        out.push_str(&format!("{indent}{}{}{}\n", span.name, pairs(&span.attributes), status(&span.status)));
        for event in &span.events.events {
            out.push_str(&format!("{indent}  * {}{}\n", event.name, pairs(&event.attributes)));
        }
        let own = ids.iter().position(|id| *id == span.span_context.span_id()).unwrap();
        for child in children.get(&own).into_iter().flatten() {
            draw(child, depth + 1, ids, children, out);
        }
    }
    for root in roots {
        draw(root, 0, &ids, &children, &mut out);
    }
    // Targets of events begin with the name of the test binary.
    let own = crate::BASE.modules();
    out.replace(&format!("\"{own}"), "\"tests::")
}

fn pairs(attributes: &[opentelemetry::KeyValue]) -> String {
    attributes.iter().map(|attribute| format!(" {}={}", attribute.key, value(&attribute.value))).collect()
}

fn value(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{:?}", text.as_str()),
        other => other.to_string(),
    }
}

fn status(status: &Status) -> String {
    match status {
        Status::Unset => String::new(),
        Status::Ok => " [ok]".to_owned(),
        Status::Error { description } => format!(" [error {description:?}]"),
    }
}

/// The ids of the span in the current context.
pub(crate) fn current() -> SpanContext {
    Context::current().span().span_context().clone()
}

/// A row of a table in docs/tracing-layer.md: its first cell, and the test that proves the row.
pub(crate) type Row = (&'static str, fn());

type Name = &'static str;

/// Another layer. It collects its spans, and the current span at each event.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Sights>>);

type Sights = (Vec<Name>, Vec<Option<Name>>);

impl Seen {
    pub(crate) fn spans(&self) -> Vec<Name> {
        self.0.lock().unwrap().0.clone()
    }

    pub(crate) fn events(&self) -> Vec<Option<Name>> {
        self.0.lock().unwrap().1.clone()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: LayerContext<'_, S>) {
        self.0.lock().unwrap().0.push(attributes.metadata().name());
    }

    fn on_event(&self, event: &Event<'_>, cx: LayerContext<'_, S>) {
        let span = cx.event_span(event).map(|span| span.name());
        self.0.lock().unwrap().1.push(span);
    }
}
