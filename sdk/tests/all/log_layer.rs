//! Logs follow the decision about their trace.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use astracer_sdk::{Astracer, ContextMode, LogCounts, LogLayer};
use astracer_testing::{Collector, SplitMix as Random};
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry::{Context, SpanId, TraceId};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::{InMemoryLogExporter, SdkLoggerProvider};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::field::{Field, Visit};
use tracing::subscriber::with_default;
use tracing::{Dispatch, Event, Subscriber, debug, dispatcher, error, info, info_span, warn};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context as LayerContext, Layer, SubscriberExt as _};
use tracing_subscriber::registry;

use crate::late::tail;
use crate::support::TIMEOUT;

/// One line for each event: its level and fields, and the trace of OpenTelemetry's context.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<(String, TraceId)>>>);

impl Log {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(line, _)| line.clone()).collect()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0 += &format!(" {field}=str:{value}");
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0 += &format!(" {field}=u64:{value}");
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0 += &format!(" {field}=f64:{value}");
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        self.0 += &format!(" {field}=bytes:{value:?}");
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.0 += &format!(" {field}=error:{value}");
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        let trace = Context::map_current(|context| context.span().span_context().trace_id());
        self.0.lock().unwrap().push((line.0, trace));
    }
}

fn work() {
    info!("before");
    info_span!("root").in_scope(|| {
        info_span!("child").in_scope(|| {
            debug!("detail");
            info!(step = 7_u64, of = 0.5, name = "a", "step");
            warn!("odd");
            error!("failed");
        });
    });
    info!("after");
}

/// Our layer, whose exporter collects, and a log.
fn service(sampler: &str, policies: &str, mode: ContextMode) -> (Astracer, Collector, Log) {
    let collector = Collector::default();
    let builder = Astracer::builder().with_sampler(sampler.parse().unwrap()).with_context_mode(mode);
    let builder = if policies.is_empty() { builder } else { builder.with_tail(tail(policies)) };
    (builder.with_exporter(collector.clone()).build().unwrap(), collector, Log::default())
}

/// Runs `work` and returns its log and the counts.
fn logged(sampler: &str, mode: ContextMode, policies: &str) -> (Vec<String>, LogCounts) {
    let (astracer, _, log) = service(sampler, policies, mode);
    let logs = LogLayer::new(log.clone());
    let counts = logs.counts();
    with_default(registry().with(astracer.layer.clone()).with(logs), work);
    (log.lines(), counts)
}

const MODES: [ContextMode; 3] = [ContextMode::Off, ContextMode::Ids, ContextMode::Recording];
const DETAILS: [&str; 2] = ["DEBUG message=detail", "INFO message=step step=u64:7 of=f64:0.5 name=str:a"];

#[test]
fn logs_of_kept_traces_pass_and_those_of_dropped_ones_from_warnings_on() {
    let outer = |inner: &[&'static str], last: &[&'static str]| -> Vec<&'static str> {
        let all = [&["INFO message=before"], inner, &["WARN message=odd", "ERROR message=failed"], last];
        [&all.concat()[..], &["INFO message=after"]].concat()
    };
    for mode in MODES {
        let (lines, counts) = logged("always", mode, "");
        assert_eq!(
            (lines, counts.dropped()),
            (outer(&DETAILS, &[]).into_iter().map(str::to_owned).collect(), 0)
        );
        for policies in ["", "slow:1h"] {
            let (lines, counts) = logged("never", mode, policies);
            assert_eq!(lines, outer(&[], &[]), "{mode:?} {policies}");
            assert_eq!((counts.dropped(), counts.held()), (2, 0), "{mode:?} {policies}");
        }
        // Kept late: the held events follow at the trace's end, with their values.
        let (lines, counts) = logged("never", mode, "error");
        assert_eq!(lines, outer(&[], &DETAILS), "{mode:?}");
        assert_eq!((counts.dropped(), counts.held(), counts.passed_late()), (0, 0, 2));
    }
}

/// By hand, after the root has ended. The events follow with the next one.
#[test]
fn the_events_of_a_trace_that_is_kept_by_hand_follow() {
    let (astracer, _, log) = service("never", "slow:1h", ContextMode::default());
    let logs = LogLayer::new(log.clone());
    let counts = logs.counts();
    // Around our layer or inside of it.
    with_default(registry().with(logs).with(astracer.layer.clone()), || {
        let of = |text: &'static str| {
            info_span!("root").in_scope(|| {
                info!("{text}");
                Context::current().span().span_context().trace_id()
            })
        };
        let (kept, _other) = (of("kept"), of("other"));
        assert_eq!((counts.held(), log.lines().len()), (2, 0));
        assert!(astracer.handle.keep(kept));
        info!("next");
        assert_eq!(log.lines(), ["INFO message=next", "INFO message=kept"]);
        let log = log.0.lock().unwrap();
        assert_eq!((log[0].1, log[1].1), (TraceId::INVALID, kept));
    });
    assert_eq!((counts.held(), counts.passed_late()), (1, 1));
    astracer.handle.shutdown(TIMEOUT).unwrap();
    assert_eq!((counts.held(), counts.dropped()), (0, 1), "given up at shutdown");
}

/// Random traces on several threads. An event passes exactly if it is a warning, if its trace is
/// exported, or if it is in no trace; and OpenTelemetry's bridge gives it the ids of its span.
#[test]
fn the_bridge_writes_the_logs_of_the_exported_traces() {
    for seed in 0..astracer_testing::size(12, 500) {
        let sampler = if seed % 2 == 0 { "every:3" } else { "never" };
        let (astracer, collector, _) = service(sampler, "error", MODES[1 + seed as usize % 2]);
        let exporter = InMemoryLogExporter::default();
        let provider = SdkLoggerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let logs = LogLayer::new(OpenTelemetryTracingBridge::new(&provider));
        let counts = logs.counts();
        // Filters go around the layer.
        let logs = logs.with_filter(LevelFilter::DEBUG);
        let subscriber = Dispatch::new(registry().with(astracer.layer.clone()).with(logs));
        let made = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (subscriber, made) = (subscriber.clone(), &made);
                scope
                    .spawn(move || dispatcher::with_default(&subscriber, || traces(seed * 2 + thread, made)));
            }
        });
        astracer.handle.shutdown(TIMEOUT).unwrap();
        let exported: HashSet<TraceId> =
            collector.spans().iter().map(|span| span.span_context.trace_id()).collect();
        let made = made.into_inner().unwrap();
        let mut expected: Vec<_> =
            made.iter().filter(|(trace, _, is_warning)| *is_warning || exported.contains(trace)).collect();
        let logs = exporter.get_emitted_logs().unwrap();
        let mut written: Vec<_> = logs
            .iter()
            .map(|log| {
                let ids = log.record.trace_context().unwrap();
                let is_warning = log.record.severity_number().unwrap() >= opentelemetry::logs::Severity::Warn;
                (ids.trace_id, ids.span_id, is_warning)
            })
            .collect();
        let ids = |(trace, span, is_warning): &(TraceId, SpanId, bool)| {
            (trace.to_bytes(), span.to_bytes(), *is_warning)
        };
        expected.sort_by_key(|made| ids(made));
        written.sort_by_key(ids);
        assert_eq!(written.iter().collect::<Vec<_>>(), expected, "seed {seed}");
        assert_eq!(counts.dropped(), (made.len() - written.len()) as u64, "seed {seed}");
        assert_eq!(counts.held(), 0, "seed {seed}");
    }
}

/// Random traces; notes the trace, the span and the level of each event.
fn traces(seed: u64, made: &Mutex<Vec<(TraceId, SpanId, bool)>>) {
    fn inside(random: &mut Random, depth: u64, made: &Mutex<Vec<(TraceId, SpanId, bool)>>) {
        let note = |is_warning| {
            let ids = Context::map_current(|context| context.span().span_context().clone());
            // Below a dropped root the context is the root's.
            made.lock().unwrap().push((ids.trace_id(), ids.span_id(), is_warning));
        };
        for _ in 0..random.below(3) {
            match random.below(8) {
                0 => {
                    warn!("odd");
                    note(true);
                }
                1 if depth > 1 => {
                    error!("failed");
                    note(true);
                }
                _ => {
                    info!(depth, "step");
                    note(false);
                }
            }
            if depth < 3 && random.below(2) == 0 {
                info_span!("child").in_scope(|| inside(random, depth + 1, made));
            }
        }
    }
    let random = &mut Random::new(seed);
    for _ in 0..20 {
        info_span!("root").in_scope(|| inside(random, 0, made));
    }
}

/// The bound holds for one large trace and for many small ones, and what it drops is counted.
#[test]
fn held_events_are_bounded() {
    let (astracer, _, log) = service("never", "error", ContextMode::default());
    let logs = LogLayer::new(log.clone()).with_held_bytes_max(64 << 10);
    let counts = logs.counts();
    let text = "x".repeat(1_000);
    with_default(registry().with(astracer.layer.clone()).with(logs), || {
        info_span!("large").in_scope(|| {
            (0..1_000).for_each(|_| info!(text));
            error!("failed");
        });
        let passed = counts.passed_late();
        assert!((30..64).contains(&passed), "{passed} of about 1.3 kB each");
        assert_eq!((counts.dropped(), counts.held()), (1_000 - passed, 0));
        assert_eq!(log.lines().len() as u64, passed + 1);
        for _ in 0..1_000 {
            info_span!("small").in_scope(|| info!(text));
        }
        assert_eq!(counts.dropped() + counts.held(), 2_000 - passed);
        assert!((30..64).contains(&counts.held()), "{}", counts.held());
    });
}

/// Behind OpenTelemetry's own SDK the decision is in the current context.
#[test]
fn the_stock_layer_decides_too() {
    for (sampler, lines) in [(Sampler::AlwaysOff, 4), (Sampler::AlwaysOn, 6)] {
        let provider = SdkTracerProvider::builder().with_sampler(sampler).build();
        let log = Log::default();
        let stock = tracing_opentelemetry::layer().with_tracer(provider.tracer("stock"));
        with_default(registry().with(stock).with(LogLayer::new(log.clone())), work);
        assert_eq!(log.lines().len(), lines);
    }
}

/// On our subscriber, with errors, bytes and texts as values; a span outlives its root.
#[test]
fn held_events_keep_their_values() {
    let (astracer, _, log) = service("never", "error", ContextMode::default());
    let subscriber =
        astracer.subscriber().with(LogLayer::new(log.clone()).with_always(tracing::Level::ERROR));
    with_default(subscriber, || {
        let fault = std::io::Error::other("disk");
        let root = info_span!("root").entered();
        let child = info_span!("child");
        info!(fault = &fault as &(dyn std::error::Error + 'static), bytes = &b"ab"[..], shown = %7, told = ?"t");
        warn!(parent: &child, "below");
        info!({});
        error!("failed");
        drop(root);
        child.in_scope(|| info!("later"));
        assert_eq!(log.lines(), ["ERROR message=failed"]);
        // The root ends with its last child.
        drop(child);
        let held =
            ["INFO fault=error:disk bytes=bytes:[97, 98] shown=7 told=\"t\"", "WARN message=below", "INFO"];
        assert_eq!(log.lines()[1..], [&held[..], &["INFO message=later"]].concat());
    });
}
