//! User code that runs inside the layer: keys, id generators, policies, exporters. If it panics or
//! traces, the service and the layer continue.

use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use astracer_sdk::destination::{DeliveryReport, ErrorKind, Span};
use astracer_sdk::{AstracerSampler, Builder, Handle, Key};
use astracer_testing::{Call, Calls, Delivering, Exporting, Ids, OnEvent};
use opentelemetry::trace::{SpanKind, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue, SpanId, TraceId};
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::{SamplingDecision, SdkTracerProvider, ShouldSample as _, SpanData};
use tracing::{Dispatch, Event, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::late::{dropping, tail};
use crate::support::{TIMEOUT, World, draw, named, sampling, world};

#[test]
fn a_key_that_panics_is_replaced_by_the_name() {
    let key = || Key::custom(|_, _| panic_with_it());
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
        assert_eq!(world.handle.stats().key_panics, 2);
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

/// The exporter fails in every call.
#[test]
fn flush_and_shutdown_report_the_exporters_errors() {
    let fails = Calls(|_| Err(OTelSdkError::InternalFailure("not today".to_owned())));
    let world = world(|builder| builder.with_exporter(fails));
    world.roots("root", 1);
    let error = world.handle.flush(TIMEOUT).unwrap_err();
    assert!(error.to_string().contains("not today"), "{error}");
    assert!(world.handle.shutdown(TIMEOUT).is_err());
    let stats = world.handle.stats();
    assert_eq!((stats.spans_exported, stats.spans_lost.export_failed), (0, 1));
}

/// The exporter is dropped when its thread ends.
#[test]
fn the_exporter_s_thread_ends_when_all_is_dropped() {
    let (held, ended) = channel::<()>();
    let world = world(|builder| {
        builder.with_exporter(Exporting(move |_: Vec<SpanData>| {
            let _ = &held;
            Ok(())
        }))
    });
    world.roots("root", 1);
    drop(world);
    assert_eq!(ended.recv_timeout(TIMEOUT), Err(RecvTimeoutError::Disconnected), "the thread did not end");
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
        let handle = world.handle.clone();
        let dispatch = Dispatch::new(registry.with(OnEvent(move |_: &Event<'_>| ask(&handle))));
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
        world.inside(|| {
            for _ in 0..2 {
                info_span!("root", n = 1).in_scope(|| info_span!("child").in_scope(|| ()));
            }
        });
        sender.send(world).unwrap();
    });
    ended.recv_timeout(TIMEOUT).expect("a panic passed through the layer")
}

#[test]
fn a_policy_may_panic_with_what_panics_when_it_is_dropped() {
    let policy = |builder: Builder| builder.with_own_policy("own", |_| panic_with_it());
    let world = requests(sampling("never", |builder| policy(builder).with_tail(tail("own:own"))));
    assert_eq!(world.handle.stats().tail.own_faults[0].panics, 2);
    assert_eq!(world.handle.stats().tail.traces_held, 2);
}

#[test]
fn a_function_that_chooses_may_panic_with_what_panics_when_it_is_dropped() {
    let world = requests(dropping(tail("error")));
    assert_eq!(world.handle.keep_where(|_| panic_with_it()), 0);
    assert_eq!(world.handle.keep_where(|_| true), 2, "they are back in the ring");
}

/// Ids that panic, and ids that a backend would merge two traces for, are replaced.
#[test]
fn a_generator_of_ids_may_panic_or_draw_zeros() {
    type Fixed = Ids<fn() -> TraceId, fn() -> SpanId>;
    let panics: Fixed = Ids(|| panic_with_it(), || panic_with_it());
    let zeros: Fixed = Ids(|| TraceId::INVALID, || SpanId::INVALID);
    for ids in [panics, zeros] {
        let spans = requests(world(|builder| builder.with_id_generator(ids))).exported();
        assert_eq!(draw(&spans), "root n=1\n  child\nroot n=1\n  child\n");
        assert!(spans.iter().all(|span| span.span_context.is_valid()));
    }
}

#[test]
fn an_exporter_may_panic_with_what_panics_when_it_is_dropped() {
    type Is = fn(&Call) -> bool;
    let calls: [(Is, [bool; 2], u64); 3] = [
        (|call| matches!(call, Call::Export(_)), [true, false], 4),
        (|call| matches!(call, Call::Flush), [true, false], 0),
        (|call| matches!(call, Call::ShutDown(_)), [false, true], 0),
    ];
    for (is_it, fails, lost) in calls {
        let has_panicked = AtomicBool::new(false);
        let exporter = Calls(move |call| {
            if is_it(&call) && !has_panicked.swap(true, Ordering::Relaxed) {
                panic_with_it();
            }
            Ok(())
        });
        // No batch leaves before the flush, which must report its outcome, however long this thread
        // is not scheduled.
        let world = world(|builder| builder.with_exporter(exporter).with_batch_delay(TIMEOUT));
        let world = requests(world);
        let flushed = world.handle.flush(TIMEOUT);
        // The exporter's thread continues.
        let world = requests(world);
        world.handle.flush(TIMEOUT).unwrap();
        let down = world.handle.shutdown(TIMEOUT);
        assert_eq!([flushed.is_err(), down.is_err()], fails, "{flushed:?} {down:?}");
        let stats = world.handle.stats();
        assert_eq!((stats.spans_exported, stats.spans_lost.export_failed), (8 - lost, lost));
        assert_eq!(stats.spans_waiting, 0);
    }
}

#[test]
fn a_generator_of_ids_that_traces_ends() {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let next = || {
        info_span!("in the generator", n = 1).in_scope(|| tracing::info!("an id is drawn"));
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    let ids = Ids(move || TraceId::from(u128::from(next())), move || SpanId::from(next()));
    let world = requests(world(|builder| builder.with_id_generator(ids)));
    let spans = world.exported();
    assert_eq!([named(&spans, "root").len(), named(&spans, "child").len()], [2; 2]);
    let stats = world.handle.stats();
    assert_eq!((stats.spans_open, stats.spans_made), (0, spans.len() as u64));
}

/// The destination reports far more spans than there are: their sum overflows.
#[test]
fn an_exporter_s_counts_may_be_anything() {
    let report = |_: &[Span<'_>]| {
        let mut report = DeliveryReport::default();
        report.lost.add(ErrorKind::BadRequest, u64::MAX);
        report.lost.add(ErrorKind::TooLarge, 5);
        report
    };
    let destination = Delivering(report, || panic_with_it());
    let world = requests(world(|builder| builder.with_destination(destination)));
    assert!(world.handle.flush(TIMEOUT).unwrap_err().is_export_failure());
    let stats = world.handle.stats();
    assert_eq!((stats.spans_lost.export_failed, stats.spans_lost.total(), stats.spans_waiting), (4, 4, 0));
}
