//! Two processes that serve one request, each with its own SDK and exporter.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use astracer_exporters::{Counter, DeliveryReport, Destination, ExportError, Exporter};
use astracer_model::Span;
use astracer_sdk::{Astracer, OpenTelemetrySpanExt};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Status, TraceContextExt};
use opentelemetry::{Array, InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::Resource;
use tracing_subscriber::layer::SubscriberExt;

/// Exports spans, and keeps a copy for comparison.
#[derive(Debug)]
struct Tee {
    on: Box<dyn Destination>,
    kept: Arc<Mutex<Vec<Span<'static>>>>,
}

impl Destination for Tee {
    fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
        self.kept.lock().expect("no panic").extend(spans.iter().cloned().map(Span::into_owned));
        self.on.deliver(spans)
    }

    fn counter(&self) -> Counter {
        self.on.counter()
    }

    fn shut_down(&self, timeout: Duration) -> Result<(), ExportError> {
        self.on.shut_down(timeout)
    }
}

fn process(
    service: &'static str,
    on: Box<dyn Destination>,
    kept: &Arc<Mutex<Vec<Span<'static>>>>,
) -> Astracer {
    let attributes = [
        KeyValue::new("service.name", service),
        KeyValue::new("service.instance.id", "i-1"),
        KeyValue::new("host.name", "h"),
    ];
    Astracer::builder()
        .with_sampler("always".parse().expect("a sampler"))
        .with_exporter(Exporter::new(Tee { on, kept: Arc::clone(kept) }))
        .with_resource(Resource::builder_empty().with_attributes(attributes).build())
        .with_scope(InstrumentationScope::builder("shop").with_version("1.2").build())
        .build()
        .expect("good settings")
}

/// Serves one request in two processes. Returns the spans passed to the exporters, in order.
pub(super) fn serve(connect: impl Fn() -> Box<dyn Destination>) -> Vec<Span<'static>> {
    let kept = Arc::default();
    let (front, back) = (process("front", connect(), &kept), process("back", connect(), &kept));
    let mut carrier = HashMap::new();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(front.layer.clone()), || {
        let root = tracing::info_span!(
            "get /orders/{id}",
            otel.kind = "server",
            text = "a\nb \"c\" \u{1f980}",
            int = -7_i64,
            double = 0.25,
            yes = true,
        );
        root.set_attribute("bools", Value::Array(Array::Bool(vec![true, false])));
        root.set_attribute("ints", Value::Array(Array::I64(vec![1, i64::MAX])));
        root.set_attribute("doubles", Value::Array(Array::F64(vec![1.5, -0.0])));
        root.set_attribute("texts", Value::Array(Array::String(vec!["x".into(), "".into()])));
        root.in_scope(|| {
            root.add_event("retry", vec![KeyValue::new("attempt", 2), KeyValue::new("why", "timeout")]);
            root.add_event("bare", vec![]);
            let call = tracing::info_span!("call", otel.kind = "client", peer.service = "back");
            front.propagator().inject_context(&call.context(), &mut carrier);
            call.in_scope(|| {});
        });
        root.set_status(Status::error("no luck"));
    });
    tracing::subscriber::with_default(tracing_subscriber::registry().with(back.layer.clone()), || {
        let context = back.propagator().extract(&carrier);
        let work = tracing::info_span!("work", otel.kind = "server");
        work.set_parent(context.clone()).expect("it has not begun");
        work.add_link_with_attributes(
            context.span().span_context().clone(),
            vec![KeyValue::new("why", "batch")],
        );
        work.in_scope(|| tracing::info_span!("inside").in_scope(|| {}));
        work.set_status(Status::Ok);
    });
    for process in [front, back] {
        process.handle.shutdown(Duration::from_secs(30)).expect("everything is sent");
    }
    let kept: Vec<_> = std::mem::take(&mut *kept.lock().expect("no panic"));
    let kept = super::in_order(kept);
    assert_eq!(kept.len(), 4);
    assert!(kept.iter().all(|span| span.trace_id == kept[0].trace_id), "one trace");
    kept
}
