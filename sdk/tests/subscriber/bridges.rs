//! OpenTelemetry metrics and logs from events, by tracing-opentelemetry's `MetricsLayer` and
//! opentelemetry-appender-tracing's bridge, on our subscriber.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io::Write as _;

use astracer_sdk::{ContextMode, DroppedSpans};
use opentelemetry::{KeyValue, SpanId, TraceId};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::{InMemoryLogExporter, SdkLoggerProvider};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use tracing::field::Empty;
use tracing::subscriber::with_default;
use tracing::{Subscriber, debug, debug_span, error, info, info_span, warn};
use tracing_opentelemetry::MetricsLayer;
use tracing_subscriber::registry::LookupSpan;

use crate::layers::Page;
use crate::support::{draw, one, sampling};

thread_local! {
    /// Writes what the running stack has collected.
    static WRITE: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Requests with events, some of which are metrics.
fn requests() {
    for (route, rows) in [("/a", 3_u64), ("/b", 5), ("/a", 8)] {
        let request = info_span!("request", route, late = Empty).entered();
        info!(monotonic_counter.requests = 1, route);
        debug_span!("query", table = "t").in_scope(|| {
            debug!(histogram.rows = rows);
            warn!("slow");
        });
        info!(counter.active = -1);
        info!(gauge.load = 0.5, route);
        request.record("late", "now");
        error!(rows, failed = true, "an error");
    }
    info!(monotonic_counter.requests = 7, route = "/outside");
}

fn write_requests() {
    requests();
    WRITE.take().unwrap()();
}

fn point(name: &str, value: &dyn Debug, attributes: Vec<&KeyValue>) -> String {
    let mut attributes: Vec<String> =
        attributes.iter().map(|pair| format!("{}={}", pair.key, pair.value)).collect();
    attributes.sort();
    format!("{name} {value:?} {attributes:?}")
}

fn points(metric: &Metric) -> Vec<String> {
    macro_rules! points {
        ($data:expr) => {
            match $data {
                MetricData::Sum(sum) => sum
                    .data_points()
                    .map(|at| point(metric.name(), &at.value(), at.attributes().collect()))
                    .collect(),
                MetricData::Gauge(gauge) => gauge
                    .data_points()
                    .map(|at| point(metric.name(), &at.value(), at.attributes().collect()))
                    .collect(),
                MetricData::Histogram(histogram) => histogram
                    .data_points()
                    .map(|at| point(metric.name(), &(at.count(), at.sum()), at.attributes().collect()))
                    .collect(),
                MetricData::ExponentialHistogram(_) => Vec::new(),
            }
        };
    }
    match metric.data() {
        AggregatedMetrics::F64(data) => points!(data),
        AggregatedMetrics::U64(data) => points!(data),
        AggregatedMetrics::I64(data) => points!(data),
    }
}

fn metrics<S>(page: &Page) -> MetricsLayer<S, SdkMeterProvider>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let exporter = InMemoryMetricExporter::default();
    let provider =
        SdkMeterProvider::builder().with_reader(PeriodicReader::builder(exporter.clone()).build()).build();
    let (page, collected) = (page.clone(), provider.clone());
    WRITE.set(Some(Box::new(move || {
        collected.force_flush().unwrap();
        let finished = exporter.get_finished_metrics().unwrap();
        let scopes = finished.iter().flat_map(|all| all.scope_metrics());
        let mut lines: Vec<String> = scopes.flat_map(|scope| scope.metrics()).flat_map(points).collect();
        lines.sort();
        writeln!(page.clone(), "{}", lines.join("\n")).unwrap();
    })));
    MetricsLayer::new(provider)
}

/// The metrics layer's own filter refuses all spans, for itself only. Events below a dropped root
/// are counted too.
#[test]
fn metrics_are_exact_and_traces_whole_whatever_is_dropped() {
    for (sampler, dropped_spans, kept) in [
        ("always", DroppedSpans::Disabled, 3),
        ("every:2", DroppedSpans::Disabled, 2),
        ("never", DroppedSpans::Disabled, 0),
        ("never", DroppedSpans::Visible, 0),
    ] {
        let world = sampling(sampler, |builder| builder.with_dropped_spans(dropped_spans));
        let page = Page::default();
        with_default(world.astracer.subscriber().with(metrics(&page)), write_requests);
        let expected = [
            "active -3 []",
            r#"load 0.5 ["route=/a"]"#,
            r#"load 0.5 ["route=/b"]"#,
            r#"requests 1 ["route=/b"]"#,
            r#"requests 2 ["route=/a"]"#,
            r#"requests 7 ["route=/outside"]"#,
            "rows (3, 16) []",
        ];
        assert_eq!(
            page.text().trim_end().lines().collect::<Vec<_>>(),
            expected,
            "{sampler}, {dropped_spans:?}"
        );
        let drawn = draw(&world.exported());
        let count = |name: &str| drawn.lines().filter(|line| line.trim_start().starts_with(name)).count();
        assert_eq!((count("request "), count("query "), count("* slow")), (kept, kept, kept), "{drawn}");
    }
}

fn logs_provider() -> (SdkLoggerProvider, InMemoryLogExporter) {
    let exporter = InMemoryLogExporter::default();
    (SdkLoggerProvider::builder().with_simple_exporter(exporter.clone()).build(), exporter)
}

/// A log record has the ids of its span, and the sampled flag of its trace.
#[test]
fn logs_have_the_ids_of_their_spans() {
    for context in [ContextMode::Off, ContextMode::Ids, ContextMode::Recording] {
        let world = sampling("every:2", |builder| builder.with_context_mode(context));
        let (provider, exporter) = logs_provider();
        let bridge = OpenTelemetryTracingBridge::new(&provider);
        with_default(world.astracer.subscriber().with(bridge), || {
            info!("outside");
            for _ in ["kept", "dropped"] {
                let _root = info_span!("root").entered();
                info!("in the root");
                info_span!("child").in_scope(|| info!("in the child"));
            }
        });
        let spans = world.exported();
        let ids = |name| {
            let span = one(&spans, name);
            (span.span_context.trace_id(), span.span_context.span_id(), true)
        };
        let logs = exporter.get_emitted_logs().unwrap();
        let contexts: Vec<Option<(TraceId, SpanId, bool)>> = logs
            .iter()
            .map(|log| log.record.trace_context())
            .map(|ids| {
                ids.map(|ids| (ids.trace_id, ids.span_id, ids.trace_flags.is_some_and(|f| f.is_sampled())))
            })
            .collect();
        if context == ContextMode::Off {
            assert_eq!(contexts, [None; 5]);
            continue;
        }
        assert_eq!(contexts[..3], [None, Some(ids("root")), Some(ids("child"))], "{context:?}");
        let [Some(root), Some(child)] = contexts[3..] else { panic!("{contexts:?}") };
        // Below a dropped root all records have the root's ids.
        assert_eq!(root, child);
        assert!(root.0 != ids("root").0 && root.0 != TraceId::INVALID && !root.2, "{root:?}");
    }
}
