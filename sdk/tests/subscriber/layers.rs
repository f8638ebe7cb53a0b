//! Our subscriber under levels and filters of its own, and below the stock layer.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use opentelemetry::TraceId;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::with_default;
use tracing::{Subscriber, debug, debug_span, info, info_span, trace_span};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::support::{Collector, draw, world};

/// Collects the text written to it.
#[derive(Clone, Default)]
pub(crate) struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Page {
    type Writer = Page;

    fn make_writer(&self) -> Page {
        self.clone()
    }
}

fn logs<S>(page: &Page) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fmt::layer().with_writer(page.clone()).with_ansi(false).without_time().with_target(false)
}

/// Nested spans, late records, another thread, and an explicit parent.
fn work() {
    let _root = info_span!("root", n = 1, late = tracing::field::Empty).entered();
    info!("in the root");
    let child = debug_span!("child", user = "a");
    child.in_scope(|| debug!("in the child"));
    tracing::Span::current().record("late", "now");
    info!("recorded late");
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    std::thread::scope(|scope| {
        let child = &child;
        scope.spawn(move || {
            tracing::dispatcher::with_default(&dispatch, || {
                child.in_scope(|| info!("on another thread"));
                info_span!(parent: child, "below").in_scope(|| info!("with an explicit parent"));
            });
        });
    });
    trace_span!("quiet").in_scope(|| info!("in a span that filters may hide"));
}

/// The exported trees, sorted as texts: traces of different threads are exported in any order.
pub(crate) fn trees(spans: &[SpanData]) -> String {
    let mut traces: HashMap<TraceId, Vec<SpanData>> = HashMap::new();
    for span in spans {
        traces.entry(span.span_context.trace_id()).or_default().push(span.clone());
    }
    let mut drawn: Vec<String> = traces.values().map(|spans| draw(spans)).collect();
    drawn.sort();
    drawn.concat()
}

/// Spans outside of traces have ids of their own too, so that a filter can tell them apart.
#[test]
fn an_env_filter_forgets_spans_of_suppressed_telemetry_one_by_one() {
    let world = world(|builder| builder);
    let filter = EnvFilter::new("info,[sending]=trace");
    with_default(world.astracer.subscriber().with_filter(filter), || {
        let suppressed = opentelemetry::Context::enter_telemetry_suppressed_scope();
        let outer = info_span!("sending").entered();
        assert!(tracing::enabled!(tracing::Level::TRACE));
        drop(info_span!("sending"));
        drop(outer);
        drop(suppressed);
        assert!(!tracing::enabled!(tracing::Level::TRACE));
    });
}

/// The service's log has the same lines with the SDK switched off.
#[test]
fn a_level_holds_for_layers_when_the_sdk_is_off() {
    let spans = || [tracing::debug_span!("detail"), info_span!("work")].map(|span| span.metadata().unwrap());
    let [detail, work] = with_default(tracing_subscriber::registry(), spans);
    let world = world(|builder| builder.with_enabled(false));
    let subscriber = world.astracer.subscriber().with_max_level(LevelFilter::INFO);
    // Asked directly: `tracing` combines the answers of all dispatchers of the process, and other
    // tests have some.
    let dispatch = tracing::Dispatch::new(subscriber.with(logs(&Page::default())));
    assert!(dispatch.register_callsite(detail).is_never());
    assert!(dispatch.register_callsite(work).is_always());
}

#[test]
fn a_level_holds_alone_and_with_layers() {
    let page = Page::default();
    let drawn = [false, true].map(|with_layer| {
        let world = world(|builder| builder);
        let subscriber = world.astracer.subscriber().with_max_level(LevelFilter::INFO);
        let dispatch = if with_layer {
            tracing::Dispatch::new(subscriber.with(logs(&page)))
        } else {
            tracing::Dispatch::new(subscriber)
        };
        tracing::dispatcher::with_default(&dispatch, || {
            assert!(!tracing::enabled!(tracing::Level::DEBUG));
            work();
        });
        trees(&world.exported())
    });
    assert_eq!(drawn[0], drawn[1]);
    assert!(!drawn[0].contains("child") && !page.text().contains("child"));
}

#[test]
fn the_stock_layer_records_over_the_subscriber() {
    let world = world(|builder| builder);
    let collector = Collector::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(collector.clone()).build();
    let stock =
        tracing_opentelemetry::layer().with_tracer(provider.tracer("stock")).with_context_activation(false);
    with_default(world.astracer.subscriber().with(stock), work);
    let names = |spans: Vec<SpanData>| {
        let mut names: Vec<_> = spans.into_iter().map(|span| span.name).collect();
        names.sort();
        names
    };
    let stock = names(collector.spans());
    assert_eq!(stock, names(world.exported()));
    assert_eq!(stock.len(), 4);
}
