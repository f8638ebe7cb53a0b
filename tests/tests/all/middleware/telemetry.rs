//! The telemetry of a process: our layer or the stock layer.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use astracer_sdk::{Astracer, DroppedSpans, Handle, Key};
use astracer_testing::Collector;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, SdkTracerProvider, SpanData};
use serde_json::{Value, json};
use tracing::Dispatch;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;

/// The layer of a process. Exclusive layers hide dropped spans from other layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Stock,
    Ours,
    OursExclusive,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Kind::Stock, Kind::Ours, Kind::OursExclusive]
            .into_iter()
            .find(|kind| kind.to_string() == text)
            .ok_or(())
    }
}

/// Ascending ids whose traces all have high or low randomness, so that a ratio keeps all or none.
/// Span ids contain the process id, so that two processes never use the same one. Traces are
/// numbered separately from spans: some middleware records the trace id, and layers request the two
/// ids in either order.
#[derive(Debug)]
struct Ids {
    next_trace: AtomicU64,
    next_span: AtomicU64,
    randomness: u64,
}

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        let number = u128::from(self.next_trace.fetch_add(1, Ordering::Relaxed));
        TraceId::from((number << 64) | u128::from(self.randomness))
    }

    fn new_span_id(&self) -> SpanId {
        let number = self.next_span.fetch_add(1, Ordering::Relaxed);
        SpanId::from(u64::from(std::process::id()) << 32 | number)
    }
}

pub(crate) struct Telemetry {
    pub(crate) dispatch: Dispatch,
    pub(crate) handle: Handle,
    collector: Collector,
    provider: Option<SdkTracerProvider>,
}

const TIMEOUT: Duration = Duration::from_secs(60);

impl Telemetry {
    /// `sampler` is a sampler's text, optionally followed by `high` or `low`: the randomness of the
    /// traces.
    pub(crate) fn new(kind: Kind, sampler: &str) -> Self {
        Telemetry::with_key(kind, sampler, Key::default())
    }

    pub(crate) fn with_key(kind: Kind, sampler: &str, key: Key) -> Self {
        opentelemetry::global::set_text_map_propagator(
            opentelemetry_sdk::propagation::TraceContextPropagator::new(),
        );
        let (sampler, randomness) = sampler.split_once(' ').unwrap_or((sampler, "high"));
        let randomness = if randomness == "high" { 0xff_ffff_ffff_ffff } else { 1 };
        let ids = || Ids { next_trace: AtomicU64::new(1), next_span: AtomicU64::new(1), randomness };
        let dropped_spans = match kind {
            Kind::OursExclusive => DroppedSpans::Disabled,
            _ => DroppedSpans::Visible,
        };
        let collector = Collector::default();
        let astracer = Astracer::builder()
            .with_sampler(sampler.parse().expect("a sampler"))
            .with_key(key)
            .with_dropped_spans(dropped_spans)
            .with_threads(false)
            .with_id_generator(ids())
            .with_exporter(collector.clone())
            .build()
            .expect("a layer");
        // Excludes the spans of hyper and h2.
        let ours = env!("CARGO_CRATE_NAME");
        let targets = Targets::new()
            .with_target("otel", LevelFilter::TRACE)
            .with_target("tower_otel", LevelFilter::TRACE)
            .with_target("axum_otel", LevelFilter::TRACE)
            .with_target("tracing_otel", LevelFilter::TRACE)
            .with_target(ours, LevelFilter::TRACE);
        let provider = || {
            SdkTracerProvider::builder()
                .with_sampler(astracer.sampler.clone())
                .with_id_generator(ids())
                .with_simple_exporter(collector.clone())
                .build()
        };
        let stock = |provider: &SdkTracerProvider| {
            tracing_opentelemetry::layer().with_tracer(provider.tracer("stock")).with_threads(false)
        };
        let registry = Registry::default();
        let (dispatch, provider) = match kind {
            Kind::Ours | Kind::OursExclusive => {
                (Dispatch::new(registry.with(astracer.layer.clone()).with(targets)), None)
            }
            Kind::Stock => {
                let provider = provider();
                (Dispatch::new(registry.with(stock(&provider)).with(targets)), Some(provider))
            }
        };
        Telemetry { dispatch, handle: astracer.handle, collector, provider }
    }

    /// Shuts down and returns all exported spans.
    pub(crate) fn finish(&self) -> Vec<Value> {
        if let Some(provider) = &self.provider {
            provider.shutdown().expect("a shutdown in time");
        }
        self.handle.shutdown(TIMEOUT).expect("a shutdown in time");
        self.collector.spans().iter().map(span).collect()
    }
}

/// A span as JSON, to pass between processes.
fn span(span: &SpanData) -> Value {
    let pairs = |attributes: &[opentelemetry::KeyValue]| -> BTreeMap<String, String> {
        attributes.iter().map(|pair| (pair.key.to_string(), pair.value.as_str().into_owned())).collect()
    };
    let events = span.events.events.iter().map(|event| json!([event.name, pairs(&event.attributes)]));
    json!({
        "trace": span.span_context.trace_id().to_string(),
        "id": span.span_context.span_id().to_string(),
        "state": span.span_context.trace_state().header(),
        "parent": span.parent_span_id.to_string(),
        "remote": span.parent_span_is_remote,
        "name": span.name,
        "kind": format!("{:?}", span.span_kind),
        "status": format!("{:?}", span.status),
        "attributes": pairs(&span.attributes),
        "events": events.collect::<Vec<_>>(),
    })
}

/// Replaces the service's port by 0, so that runs can be compared.
pub(crate) fn without_port(spans: Vec<Value>, port: u16) -> Vec<Value> {
    let text = Value::Array(spans).to_string();
    let text = text.replace(&format!(":{port}"), ":0").replace(&format!("\"{port}\""), "\"0\"");
    match serde_json::from_str(&text) {
        Ok(Value::Array(spans)) => spans,
        other => panic!("it was an array: {other:?}"),
    }
}

/// Attributes whose values differ from run to run.
const VARIES: [&str; 6] = [
    "busy_ns",
    "idle_ns",
    "http.request.header.traceparent",
    "http.response.header.date",
    "rpc.grpc.request.metadata.traceparent",
    "rpc.grpc.response.metadata.date",
];

/// One line per span, without ids and times, sorted so that the order of export does not matter.
pub(crate) fn lines(spans: &[Value]) -> Vec<String> {
    let mut lines: Vec<String> = spans
        .iter()
        .map(|span| {
            let parent = spans.iter().find(|known| known["id"] == span["parent"]).map(|span| &span["name"]);
            let mut attributes = span["attributes"].clone();
            for key in VARIES {
                attributes.as_object_mut().and_then(|attributes| attributes.get_mut(key)).map(Value::take);
            }
            // axum-otel's event has the response's latency in milliseconds: 0, except on a busy
            // machine.
            let mut events = span["events"].clone();
            for event in events.as_array_mut().into_iter().flatten() {
                event.get_mut(1).and_then(|fields| fields.get_mut("latency")).map(Value::take);
            }
            let fields = [&span["name"], &span["kind"], &span["status"], &attributes, &events];
            format!("{fields:?} in {parent:?}")
        })
        .collect();
    lines.sort();
    lines
}
