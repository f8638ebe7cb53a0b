//! Code of the service that runs inside the layer: keys, generators of ids, exporters. Where it panics or traces itself, the
//! service goes on and so does the layer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};

use astracer_sdk::{AstracerSampler, Key};
use opentelemetry::trace::{SpanKind, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue, SpanId, TraceId};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    IdGenerator, SamplingDecision, SdkTracerProvider, ShouldSample as _, SpanData, SpanExporter,
};
use tracing::info_span;

use crate::support::{TIMEOUT, draw, world};

#[test]
fn a_key_that_panics_is_replaced_by_the_name() {
    let key = || Key::custom(|root, _| panic!("the key of {} panics", root.name()));
    for with_fields in [false, true] {
        let world = world(|builder| builder.with_key(key()));
        let spans = world.run(|| {
            let root = if with_fields { info_span!("root", n = 1) } else { info_span!("root") };
            root.in_scope(|| info_span!("child").in_scope(|| ()));
        });
        assert_eq!(spans.len(), 2, "{with_fields}");
        let sampler = &world.astracer.sampler;
        let result = sampler.should_sample(None, 1u128.into(), "by the API", &SpanKind::Server, &[], &[]);
        assert_eq!(result.decision, SamplingDecision::RecordAndSample);
    }
}

/// A key that begins a span through the OpenTelemetry API, whose sampler asks for its key.
#[test]
fn a_key_that_traces_by_the_api_ends() {
    static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();
    let key = Key::custom(|root, key| {
        if let Some(provider) = PROVIDER.get() {
            provider.tracer("key").start("in the key");
        }
        key.push_str(root.name());
    });
    let world = world(|builder| builder.with_key(key));
    let sampler: AstracerSampler = world.astracer.sampler.clone();
    PROVIDER.set(SdkTracerProvider::builder().with_sampler(sampler).build()).unwrap();
    let spans = world.run(|| info_span!("root", n = 1).in_scope(|| ()));
    assert_eq!(draw(&spans), "root n=1\n");
}

#[derive(Debug, Default)]
struct PanicsOnce(AtomicU64);

impl IdGenerator for PanicsOnce {
    fn new_trace_id(&self) -> TraceId {
        let n = self.0.fetch_add(1, Ordering::Relaxed);
        assert_ne!(n, 0, "the first id");
        TraceId::from(u128::from(n))
    }

    fn new_span_id(&self) -> SpanId {
        let n = self.0.fetch_add(1, Ordering::Relaxed);
        assert_ne!(n, 2, "the third id");
        SpanId::from(n + 1)
    }
}

/// On a thread of its own, so that one that never ends is seen.
#[test]
fn a_generator_of_ids_that_panics_does_not_stop_the_service() {
    for with_fields in [false, true] {
        let world = Arc::new(world(|builder| builder.with_id_generator(PanicsOnce::default())));
        let (sender, ended) = channel();
        let own = world.clone();
        std::thread::spawn(move || {
            let make = || if with_fields { info_span!("root", n = 1) } else { info_span!("root") };
            tracing::dispatcher::with_default(&own.dispatch, || {
                for _ in 0..3 {
                    make().in_scope(|| info_span!("child").in_scope(|| ()));
                }
            });
            sender.send(()).unwrap();
        });
        ended.recv_timeout(TIMEOUT).expect("the panic left the thread waiting, or went through the layer");
        let spans = world.exported();
        assert_eq!(spans.len(), 6, "{with_fields}");
        assert!(spans.iter().all(|span| span.span_context.is_valid()));
    }
}

/// Fails at everything.
#[derive(Debug)]
struct Fails;

fn no() -> OTelSdkResult {
    Err(OTelSdkError::InternalFailure("not today".to_owned()))
}

impl SpanExporter for Fails {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        no()
    }

    fn force_flush(&self) -> OTelSdkResult {
        no()
    }

    fn shutdown_with_timeout(&self, _: std::time::Duration) -> OTelSdkResult {
        no()
    }
}

#[test]
fn flush_and_shutdown_tell_of_the_exporter_s_errors() {
    let world = world(|builder| builder.with_exporter(Fails));
    tracing::dispatcher::with_default(&world.dispatch, || info_span!("root").in_scope(|| ()));
    let error = world.handle.flush(TIMEOUT).unwrap_err();
    assert!(error.to_string().contains("not today"), "{error}");
    assert!(world.handle.shutdown(TIMEOUT).is_err());
    let stats = world.handle.stats();
    assert_eq!((stats.spans_exported, stats.spans_lost.export_failed), (0, 1));
}

/// Tells when it is dropped: when the thread that it lives on ends.
#[derive(Debug)]
struct TellsOfItsEnd(Mutex<std::sync::mpsc::Sender<()>>);

impl SpanExporter for TellsOfItsEnd {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

impl Drop for TellsOfItsEnd {
    fn drop(&mut self) {
        let _ = self.0.lock().unwrap().send(());
    }
}

#[test]
fn the_exporter_s_thread_ends_when_all_is_dropped() {
    let (sender, ended) = channel();
    let world = world(|builder| builder.with_exporter(TellsOfItsEnd(Mutex::new(sender))));
    tracing::dispatcher::with_default(&world.dispatch, || info_span!("root").in_scope(|| ()));
    drop(world);
    ended.recv_timeout(TIMEOUT).expect("the thread stays");
}

/// A context that someone kept is still a context when the layer is gone.
#[test]
fn a_context_outlives_the_layer() {
    let kept = {
        let world = world(|builder| builder);
        let mut kept = Context::new();
        world.run(|| info_span!("root").in_scope(|| kept = Context::current()));
        world.handle.shutdown(TIMEOUT).unwrap();
        kept
    };
    use opentelemetry::trace::TraceContextExt as _;
    kept.span().set_attribute(KeyValue::new("late", 1));
    assert!(kept.span().span_context().is_valid() && !kept.span().is_recording());
}
