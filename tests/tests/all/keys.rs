//! Keys from a recording to a service. A service is recorded, its keys are derived from the
//! recording and written to a parameters file, and the service, run again with this file, applies
//! the parameters of each key.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use astracer_exporters::{Exporter, Files};
use astracer_recording::recording::{Intake, Keep};
use astracer_recording::source::{self, Options};
use astracer_samplers::parameters::Parameters;
use astracer_samplers::{Bump, Config, KeyRule, Nanos, PerKey, Probability};
use astracer_sdk::{Astracer, Builder, OpenTelemetrySpanExt};
use astracer_tuner::names::NameFolding;
use astracer_tuner::{Grouping, Workload};
use opentelemetry::trace::{Span as _, Tracer as _, TracerProvider as _};
use opentelemetry::{Array, KeyValue, TraceId, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator, SdkTracerProvider};
use tracing_subscriber::layer::SubscriberExt as _;

/// Ascending ids with the lowest randomness, so that a trace is kept only if its probability is 1.
#[derive(Debug, Default)]
struct Unlucky(Arc<AtomicU64>);

impl IdGenerator for Unlucky {
    fn new_trace_id(&self) -> TraceId {
        TraceId::from(u128::from(self.0.fetch_add(1, Ordering::Relaxed) + 1) << 64)
    }

    fn new_span_id(&self) -> opentelemetry::SpanId {
        opentelemetry::SpanId::from(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

fn resource() -> Resource {
    let attributes = [
        KeyValue::new("service.name", "shop 4711"),
        KeyValue::new("http.route", "of the resource"),
        KeyValue::new("host.cpus", 8),
    ];
    Resource::builder_empty().with_attributes(attributes).build()
}

fn service(builder: Builder, folder: &Path) -> Astracer {
    let files = Files::builder(folder).open().expect("an empty folder");
    builder
        .with_resource(resource())
        .with_id_generator(Unlucky::default())
        .with_exporter(Exporter::new(files))
        .build()
        .expect("good settings")
}

/// Creates roots with fields of each type, on the span and on the resource, set once and twice,
/// with ids to fold, and with text that resembles a part of a key. Each root occurs twice.
fn serve(astracer: &Astracer) {
    let subscriber = tracing_subscriber::registry().with(astracer.layer.clone());
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..2 {
            tracing::info_span!("plain").in_scope(|| {});
            tracing::info_span!("read(10042)").in_scope(|| {});
            tracing::info_span!("request", http.route = "/orders/10042", tenant = "a").in_scope(|| {});
            tracing::info_span!("request", http.route = "/a tenant=b", tenant = "-").in_scope(|| {});
            tracing::info_span!("request", http.route = ";tenant=b;x").in_scope(|| {});
            tracing::info_span!("request", tenant = "").in_scope(|| {});
            tracing::info_span!("typed", tenant = 7_i64, size = 2.0, yes = true).in_scope(|| {});
            tracing::info_span!("typed", tenant = -7_i64, size = 1e21, yes = false).in_scope(|| {});
            tracing::info_span!("typed", size = 0.1, otel.name = "renamed").in_scope(|| {});
            let twice = tracing::info_span!("twice", tenant = "first");
            twice.record("tenant", "second");
            twice.in_scope(|| {});
            let again = tracing::info_span!("again", tenant = "first");
            again.set_attribute("tenant", "second");
            again.in_scope(|| {});
            let arrays = tracing::info_span!("arrays");
            arrays.set_attribute("tenant", Value::Array(Array::I64(vec![1, 2])));
            arrays.set_attribute("size", Value::Array(Array::String(vec!["a".into(), "b c".into()])));
            arrays.in_scope(|| {});
        }
    });
    astracer.handle.shutdown(Duration::from_secs(60)).expect("everything is written");
}

const ROOTS: usize = 2 * 12;

fn workload(folder: &Path, rule: &KeyRule) -> Workload {
    let mut folding = NameFolding::new(*rule.template());
    let labels = rule.attributes().map(str::to_owned).collect();
    let mut intake =
        Intake::new(Keep { labels, ..Keep::default() }).rename_with(|raw, out| folding.fold(raw, out));
    source::read(folder, &Options::default(), &mut intake).expect("what was just written");
    let workload = Workload::new(&intake.finish(), &Grouping::Key(rule.clone()));
    assert_eq!(workload.arrivals().len(), ROOTS, "{rule}");
    workload
}

const KEYS: [&str; 9] = [
    "name",
    "name:raw",
    "name:digits=5",
    "name+tenant",
    "name+http.route+tenant",
    "name+service.name",
    "name:raw+service.name+http.route",
    "name+size+yes+host.cpus+nothing",
    "name+tenant+size+service.name",
];

/// Parameters that keep all calls of these keys, and the first call of every other key.
fn file(keys: &[String], rule: &KeyRule) -> String {
    let bump = |minimum| Bump::new(0.0, minimum, Nanos::from_secs(3600)).expect("in range");
    let all = |config: PerKey<Bump>, key: &String| config.with_override(key, bump(Probability::ONE));
    let config = keys.iter().fold(PerKey::new(bump(Probability::ZERO)), all);
    Parameters { key: rule.clone(), ..Parameters::new(Config::Bump(config)) }.to_string()
}

/// Runs the service with a parameters file. Returns (key, seen, kept) for each key.
fn run(file: &str) -> Vec<(String, u64, u64)> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("astracer.toml");
    std::fs::write(&path, file).expect("a file");
    let astracer = service(Astracer::builder().with_parameters_file(&path), &folder.path().join("spans"));
    serve(&astracer);
    let snapshot = astracer.handle.snapshot().expect("bump counts by key");
    snapshot.keys.into_iter().map(|key| (key.key, key.counts.seen(), key.counts.kept())).collect()
}

#[test]
fn every_override_of_a_file_made_from_a_recording_matches_in_the_service() {
    let recorded = tempfile::tempdir().expect("a folder");
    serve(&service(Astracer::builder().with_sampler(Config::Always), recorded.path()));
    for text in KEYS {
        let rule: KeyRule = text.parse().expect(text);
        let workload = workload(recorded.path(), &rule);
        let mut counts = BTreeMap::<String, u64>::new();
        for arrival in workload.arrivals() {
            *counts.entry(workload.key(arrival).to_owned()).or_default() += 1;
        }
        let keys: Vec<String> = counts.keys().cloned().collect();
        let all: Vec<_> = counts.iter().map(|(key, &calls)| (key.clone(), calls, calls)).collect();
        assert_eq!(run(&file(&keys, &rule)), all, "{text}");
        let first: Vec<_> = counts.into_iter().map(|(key, calls)| (key, calls, 1)).collect();
        assert_eq!(run(&file(&[], &rule)), first, "{text}, without overrides");
    }
}

/// Spans created through OpenTelemetry's API reach the sampler by another path.
#[test]
fn spans_of_the_open_telemetry_api_have_the_same_keys() {
    let attributes = || {
        let texts = Array::String(vec!["a".into(), "b c".into()]);
        vec![
            KeyValue::new("tenant", "first"),
            KeyValue::new("size", 2.0),
            KeyValue::new("yes", Value::Array(texts)),
            KeyValue::new("tenant", "second"),
        ]
    };
    let rule: KeyRule = "name+tenant+size+yes+service.name".parse().expect("a rule");
    let astracer = Astracer::builder()
        .with_sampler("bump:lambda=1".parse().expect("a sampler"))
        .with_key(rule.clone())
        .with_resource(resource())
        .build()
        .expect("good settings");
    let provider = SdkTracerProvider::builder().with_sampler(astracer.sampler.clone()).build();
    let builder = provider.tracer("t").span_builder("read(10042)").with_attributes(attributes());
    builder.start(&provider.tracer("t")).end();
    let snapshot = astracer.handle.snapshot().expect("bump counts by key");
    assert_eq!(snapshot.keys[0].key, "read(*);tenant=second;size=2;yes=[\"a\",\"b c\"];service.name=shop *");
}
