//! User code that runs inside the layer: keys, id generators, policies, exporters. If it panics or
//! traces, the service and the layer continue.

use std::panic::panic_any;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use astracer_sdk::destination::{Counter, DeliveryReport, Destination, ErrorKind, ExportError, Span};
use astracer_sdk::{AstracerSampler, Builder, Handle, Key};
use astracer_testing::Exporting;
use opentelemetry::trace::{SpanKind, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue, SpanId, TraceId};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    IdGenerator, SamplingDecision, SdkTracerProvider, ShouldSample as _, SpanData, SpanExporter,
};
use tracing::{Dispatch, info_span};
use tracing_subscriber::layer::{self, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

use crate::late::{check_sums, dropping, tail};
use crate::support::{TIMEOUT, World, draw, world};

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

/// A key function that begins spans through the OpenTelemetry API, whose sampler calls the key
/// function again.
#[test]
fn a_key_that_traces_by_the_api_ends() {
    static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let key = Key::custom(|root, key| {
        // Fails the test before the stack overflows.
        assert!(CALLS.fetch_add(1, Ordering::Relaxed) < 100);
        if let Some(provider) = PROVIDER.get() {
            (0..3).for_each(|_| _ = provider.tracer("key").start("in the key"));
        }
        key.push_str(root.name());
    });
    let world = world(|builder| builder.with_key(key));
    let sampler: AstracerSampler = world.astracer.sampler.clone();
    PROVIDER.set(SdkTracerProvider::builder().with_sampler(sampler).build()).unwrap();
    let spans = world.run(|| info_span!("root", n = 1).in_scope(|| ()));
    assert_eq!(draw(&spans), "root n=1\n");
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
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

/// On a separate thread, so that the test notices one that never ends.
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
        ended.recv_timeout(TIMEOUT).expect("the panic blocked the thread or passed through the layer");
        let spans = world.exported();
        assert_eq!(spans.len(), 6, "{with_fields}");
        assert!(spans.iter().all(|span| span.span_context.is_valid()));
    }
}

/// An exporter that fails in every call.
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

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        no()
    }
}

#[test]
fn flush_and_shutdown_report_the_exporters_errors() {
    let world = world(|builder| builder.with_exporter(Fails));
    tracing::dispatcher::with_default(&world.dispatch, || info_span!("root").in_scope(|| ()));
    let error = world.handle.flush(TIMEOUT).unwrap_err();
    assert!(error.to_string().contains("not today"), "{error}");
    assert!(world.handle.shutdown(TIMEOUT).is_err());
    let stats = world.handle.stats();
    assert_eq!((stats.spans_exported, stats.spans_lost.export_failed), (0, 1));
}

/// Reports its drop, which happens when the exporter's thread ends.
#[derive(Debug)]
struct ReportsDrop(Mutex<std::sync::mpsc::Sender<()>>);

impl SpanExporter for ReportsDrop {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

impl Drop for ReportsDrop {
    fn drop(&mut self) {
        let _ = self.0.lock().unwrap().send(());
    }
}

#[test]
fn the_exporter_s_thread_ends_when_all_is_dropped() {
    let (sender, ended) = channel();
    let world = world(|builder| builder.with_exporter(ReportsDrop(Mutex::new(sender))));
    tracing::dispatcher::with_default(&world.dispatch, || info_span!("root").in_scope(|| ()));
    drop(world);
    ended.recv_timeout(TIMEOUT).expect("the exporter's thread did not end");
}

/// A stored context stays usable when the layer is gone.
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

/// Calls the handle at each event.
struct Asks(fn(&Handle), Handle);

impl<S: tracing::Subscriber> Layer<S> for Asks {
    fn on_event(&self, _: &tracing::Event<'_>, _: layer::Context<'_, S>) {
        self.0(&self.1);
    }
}

/// A layer may call the handle inside `on_event`, even during an export and on a scoped subscriber.
#[test]
fn a_layer_may_ask_the_handle_in_an_event() {
    let asks: [fn(&Handle); 3] = [
        |handle| assert_eq!(handle.stats().spans_waiting, 1),
        |handle| assert!(handle.flush(Duration::from_millis(1)).unwrap_err().is_timeout()),
        |handle| assert!(handle.shutdown(Duration::from_millis(1)).unwrap_err().is_timeout()),
    ];
    for ask in asks {
        let (end, ended) = channel::<()>();
        let ended = Mutex::new(ended);
        // An export lasts until the test ends.
        let hangs = Exporting(move |_: Vec<SpanData>| {
            let _ = ended.lock().unwrap().recv();
            Ok(())
        });
        let world = world(|builder| builder.with_exporter(hangs));
        let registry = Registry::default().with(world.astracer.layer.clone());
        let dispatch = Dispatch::new(registry.with(Asks(ask, world.handle.clone())));
        tracing::dispatcher::with_default(&dispatch, || {
            info_span!("root").in_scope(|| ());
            tracing::error!("the collector is away");
        });
        drop(end);
    }
}

/// Panics in its drop.
struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

fn panic_with_it() -> ! {
    panic_any(PanicsInDrop)
}

/// Two requests, each with a call below it, on a separate thread. The test notices a panic that
/// passes through the layer, and one that leaves a thread waiting.
fn requests(world: World) -> World {
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        tracing::dispatcher::with_default(&world.dispatch, || {
            for _ in 0..2 {
                info_span!("root", n = 1).in_scope(|| info_span!("child").in_scope(|| ()));
            }
        });
        sender.send(world).unwrap();
    });
    ended.recv_timeout(TIMEOUT).expect("a panic passed through the layer")
}

#[test]
fn a_key_may_panic_with_what_panics_when_it_is_dropped() {
    let world = requests(world(|builder| builder.with_key(Key::custom(|_, _| panic_with_it()))));
    assert_eq!((world.exported().len(), world.handle.stats().key_panics), (4, 2));
}

#[test]
fn a_policy_may_panic_with_what_panics_when_it_is_dropped() {
    let policy = |builder: Builder| builder.with_own_policy("own", |_| panic_with_it());
    let world = requests(world(|builder| {
        policy(builder).with_sampler("never".parse().unwrap()).with_tail(tail("own:own"))
    }));
    assert_eq!(world.handle.stats().tail.own_faults[0].panics, 2);
    assert_eq!(world.handle.stats().tail.traces_held, 2);
}

#[test]
fn a_function_that_chooses_may_panic_with_what_panics_when_it_is_dropped() {
    let world = requests(dropping(tail("error")));
    assert_eq!(world.handle.keep_where(|_| panic_with_it()), 0);
    check_sums(&world.handle);
    assert_eq!(world.handle.keep_where(|_| true), 2, "they are back in the ring");
}

#[derive(Debug)]
struct IdsPanic;

impl IdGenerator for IdsPanic {
    fn new_trace_id(&self) -> TraceId {
        panic_with_it()
    }

    fn new_span_id(&self) -> SpanId {
        panic_with_it()
    }
}

#[test]
fn a_generator_of_ids_may_panic_with_what_panics_when_it_is_dropped() {
    let world = requests(world(|builder| builder.with_id_generator(IdsPanic)));
    let spans = world.exported();
    assert_eq!(spans.len(), 4);
    assert!(spans.iter().all(|span| span.span_context.is_valid()));
}

/// The calls of an exporter.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Export,
    Flush,
    ShutDown,
}

/// Panics in the first call of this kind.
#[derive(Debug)]
struct PanicsIn(Call, AtomicUsize);

impl PanicsIn {
    fn called(&self, call: Call) -> OTelSdkResult {
        if call == self.0 && self.1.fetch_add(1, Ordering::Relaxed) == 0 {
            panic_with_it();
        }
        Ok(())
    }
}

impl SpanExporter for PanicsIn {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        self.called(Call::Export)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.called(Call::Flush)
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        self.called(Call::ShutDown)
    }
}

#[test]
fn an_exporter_may_panic_with_what_panics_when_it_is_dropped() {
    for call in [Call::Export, Call::Flush, Call::ShutDown] {
        let exporter = PanicsIn(call, AtomicUsize::new(0));
        // No batch leaves before the flush, which must report its outcome, however long this thread
        // is not scheduled.
        let world = world(|builder| builder.with_exporter(exporter).with_batch_delay(TIMEOUT));
        let world = requests(world);
        let flushed = world.handle.flush(TIMEOUT);
        assert_eq!(flushed.is_err(), call != Call::ShutDown, "{call:?}: {flushed:?}");
        // The exporter's thread continues.
        let world = requests(world);
        world.handle.flush(TIMEOUT).unwrap();
        let down = world.handle.shutdown(TIMEOUT);
        assert_eq!(down.is_err(), call == Call::ShutDown, "{call:?}: {down:?}");
        let stats = world.handle.stats();
        let lost = if call == Call::Export { 4 } else { 0 };
        assert_eq!((stats.spans_exported, stats.spans_lost.export_failed), (8 - lost, lost), "{call:?}");
        assert_eq!(stats.spans_waiting, 0);
    }
}

/// An id generator that traces in each call.
#[derive(Debug, Default)]
struct IdsTrace(AtomicU64);

impl IdsTrace {
    fn next(&self) -> u64 {
        info_span!("in the generator", n = 1).in_scope(|| tracing::info!("an id is drawn"));
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl IdGenerator for IdsTrace {
    fn new_trace_id(&self) -> TraceId {
        TraceId::from(u128::from(self.next()))
    }

    fn new_span_id(&self) -> SpanId {
        SpanId::from(self.next())
    }
}

#[test]
fn a_generator_of_ids_that_traces_ends() {
    let world = requests(world(|builder| builder.with_id_generator(IdsTrace::default())));
    let spans = world.exported();
    assert_eq!(spans.iter().filter(|span| ["root", "child"].contains(&&*span.name)).count(), 4);
    let stats = world.handle.stats();
    assert_eq!((stats.spans_open, stats.spans_made), (0, spans.len() as u64));
}

#[derive(Debug)]
struct Zeros;

impl IdGenerator for Zeros {
    fn new_trace_id(&self) -> TraceId {
        TraceId::INVALID
    }

    fn new_span_id(&self) -> SpanId {
        SpanId::INVALID
    }
}

/// A backend would merge two traces with the invalid id 0.
#[test]
fn invalid_ids_are_replaced() {
    let world = requests(world(|builder| builder.with_id_generator(Zeros)));
    let spans = world.exported();
    assert_eq!(draw(&spans), "root n=1\n  child\nroot n=1\n  child\n");
    assert!(spans.iter().all(|span| span.span_context.is_valid()));
}

/// Reports far more spans than there are: their sum overflows.
#[derive(Debug)]
struct CountsAnything;

impl Destination for CountsAnything {
    fn deliver(&self, _: &[Span<'_>]) -> DeliveryReport {
        let mut report = DeliveryReport::default();
        report.lost.add(ErrorKind::BadRequest, u64::MAX);
        report.lost.add(ErrorKind::TooLarge, 5);
        report
    }

    fn counter(&self) -> Counter {
        panic_with_it()
    }

    fn shut_down(&self, _: Duration) -> Result<(), ExportError> {
        Ok(())
    }
}

#[test]
fn an_exporter_s_counts_may_be_anything() {
    let world = requests(world(|builder| builder.with_destination(CountsAnything)));
    assert!(world.handle.flush(TIMEOUT).unwrap_err().is_export_failure());
    let stats = world.handle.stats();
    assert_eq!((stats.spans_lost.export_failed, stats.spans_lost.total(), stats.spans_waiting), (4, 4, 0));
}
