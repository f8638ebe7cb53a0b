//! Ours and tracing-opentelemetry side by side: the same code runs with each, and the exported
//! spans are compared.
//!
//! The comparison includes the tree, names, kinds, statuses, attributes (sorted), events with their
//! attributes, links, and the counts of cut parts. Ids are replaced by names, and times that differ
//! from run to run by 0. Each row has a line of the same name in docs/tracing-layer.md. Intended
//! differences have their own tests, in `differences`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::task::{self, Poll, Waker};

use astracer_sdk::{Astracer, Builder, ProvisionalMode, Start, Tail};
use astracer_testing::remote_parent;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue, SpanId, Value};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData};
use tracing::field::Empty;
use tracing::{Dispatch, Instrument as _, error, info, info_span, instrument, warn};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::support::{Collector, Row, TIMEOUT};

pub(crate) type Stock = OpenTelemetryLayer<Registry, opentelemetry_sdk::trace::SdkTracer>;

pub(crate) fn ours(change: impl FnOnce(Builder) -> Builder, body: fn()) -> Vec<SpanData> {
    let collector = Collector::default();
    let builder =
        Astracer::builder().with_sampler("always".parse().unwrap()).with_exporter(collector.clone());
    let astracer = change(builder).build().unwrap();
    tracing::dispatcher::with_default(&crate::support::dispatch(&astracer), body);
    astracer.handle.shutdown(TIMEOUT).unwrap();
    collector.spans()
}

pub(crate) fn stock(change: impl FnOnce(Stock) -> Stock, body: fn()) -> Vec<SpanData> {
    let collector = Collector::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(collector.clone()).build();
    let layer = change(OpenTelemetryLayer::new(provider.tracer("stock")));
    tracing::dispatcher::with_default(&Dispatch::new(Registry::default().with(layer)), body);
    provider.shutdown().unwrap();
    collector.spans()
}

/// One line per span, event and link, sorted so that the order of export does not matter.
pub(crate) fn lines(spans: &[SpanData]) -> Vec<String> {
    let name = |id: SpanId| {
        let known = spans.iter().find(|span| span.span_context.span_id() == id);
        known.map_or_else(|| format!("{id}"), |span| span.name.to_string())
    };
    let mut lines: Vec<String> = Vec::new();
    for span in spans {
        let SpanData { name: own, span_kind, status, .. } = span;
        let parent = name(span.parent_span_id);
        let cut = [span.dropped_attributes_count, span.events.dropped_count, span.links.dropped_count];
        lines.push(format!(
            "{own} in {parent} (remote: {}), {span_kind:?}, {status:?}, cut {cut:?}:{}",
            span.parent_span_is_remote,
            attributes(&span.attributes)
        ));
        for (at, event) in span.events.events.iter().enumerate() {
            lines.push(format!("{own} event {at}: {}{}", event.name, attributes(&event.attributes)));
        }
        for (at, link) in span.links.links.iter().enumerate() {
            let to = name(link.span_context.span_id());
            lines.push(format!("{own} link {at}: {to}{}", attributes(&link.attributes)));
        }
    }
    lines.sort();
    lines
}

/// Sorted attributes. If a name occurs twice the last value counts, as receivers must read it: the
/// stock layer exports both.
fn attributes(attributes: &[KeyValue]) -> String {
    let pairs: BTreeMap<&str, String> = attributes
        .iter()
        // The reason and the weight of a trace that is kept late, and a documented difference.
        .filter(|pair| !pair.key.as_str().starts_with("sampl") && pair.key.as_str() != "exception.type")
        .map(|KeyValue { key, value, .. }| match key.as_str() {
            key @ ("busy_ns" | "idle_ns") => (key, "0".to_owned()),
            key => (key, self::value(value)),
        })
        .collect();
    pairs.into_iter().map(|(key, value)| format!(" {key}={value}")).collect()
}

/// A value with its type.
fn value(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{:?}", text.as_str()),
        Value::Bool(value) => format!("bool {value}"),
        Value::I64(value) => format!("int {value}"),
        Value::F64(value) => format!("float {value}"),
        other => format!("array {other}"),
    }
}

/// Runs a future that never waits. (Inside an executor of `futures`, the stock exporter could not
/// run one of its own.)
fn run<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut task::Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

#[derive(Debug)]
struct Outer(Inner);

#[derive(Debug)]
struct Inner;

impl fmt::Display for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the outer \"error\"")
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the inner one")
    }
}

impl Error for Inner {}

impl Error for Outer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

fn failure() -> &'static (dyn Error + 'static) {
    &Outer(Inner)
}

#[instrument(err)]
fn fails() -> Result<(), Outer> {
    Err(Outer(Inner))
}

#[instrument(ret, fields(more = n + 1))]
fn doubles(n: i64) -> i64 {
    2 * n
}

struct Traces(u32);

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(below) = self.0.checked_sub(1) {
            info_span!("in Debug", below = ?Traces(below))
                .in_scope(|| info!(below = ?Traces(below), "event"));
            tracing::Span::current().record("late", self.0);
        }
        write!(f, "traces {}", self.0)
    }
}

pub(crate) const ROWS: &[Row] = &[
    ("nested spans", || {
        let _a = info_span!("a").entered();
        let _b = info_span!("b").entered();
        info_span!("c").in_scope(|| ());
    }),
    ("attributes of every type", || {
        let text = String::from("owned");
        let root = info_span!(
            "root", bool = true, int = -5i64, float = 0.5, text, literal = "x", debug = ?Some(1),
            display = %1.5, "quoted.name" = 1, none = Option::<i64>::None
        );
        root.in_scope(|| ());
    }),
    ("fields recorded later", || {
        let root = info_span!("root", before = Empty, inside = Empty, never = Empty);
        root.record("before", 1);
        root.in_scope(|| {
            root.record("inside", "x");
        });
    }),
    ("otel.name, otel.kind", || {
        let _server = info_span!("root", otel.name = "GET /", otel.kind = "server").entered();
        info_span!("child", otel.name = %"computed", otel.kind = ?opentelemetry::trace::SpanKind::Client)
            .in_scope(|| ());
        info_span!("odd", otel.kind = "nonsense", otel.other = 1).in_scope(|| ());
    }),
    ("otel.status_code, otel.status_description", || {
        info_span!("ok", otel.status_code = "OK").in_scope(|| ());
        info_span!("error", otel.status_code = "error").in_scope(|| ());
        info_span!("described", otel.status_description = "went wrong").in_scope(|| ());
        let late = info_span!("late", otel.status_code = Empty);
        late.in_scope(|| {
            late.record("otel.status_code", "ERROR");
        });
    }),
    ("events", || {
        let _root = info_span!("root").entered();
        info!(n = 1, flag = true, ratio = 0.5, text = "x", debug = ?[1], "a message of {}", 2);
        warn!("a warning");
        info!(name: "named", n = 1);
        info!(target: "elsewhere", "with a target");
    }),
    ("events without a message, or with an empty one", || {
        let _root = info_span!("root").entered();
        info!(n = 1);
        info!(n = 2, "");
        info!(message = "", error = "why");
        error!(message = 5);
    }),
    ("events with an explicit parent", || {
        let root = info_span!("root");
        info!(parent: &root, "not entered");
        let other = info_span!("other").entered();
        info!(parent: &root, "inside another");
        info!(parent: None, "nowhere");
        drop(other);
    }),
    ("events of the log crate", || {
        let _root = info_span!("root").entered();
        crate::logs::by_macros();
        info!("one of tracing's own");
        info!(log.target = "x", log.file = "y", log.line = 5, "one with such fields");
        crate::logs::from_nowhere();
    }),
    ("error events set the status", || {
        info_span!("a").in_scope(|| error!("failed"));
        info_span!("b").in_scope(|| error!(error = "why"));
        info_span!("c").in_scope(|| error!(error = %"displayed"));
        info_span!("d").in_scope(|| error!(code = 5, error = ?Some(1)));
        info_span!("e", otel.status_code = "OK").in_scope(|| error!("failed, and fine"));
    }),
    ("errors in fields", || {
        info_span!("span", cause = failure()).in_scope(|| ());
        info_span!("event").in_scope(|| info!(cause = failure(), "with an error"));
        info_span!("event without message").in_scope(|| error!(cause = failure()));
    }),
    ("#[instrument]", || {
        let _ = fails();
        doubles(4);
    }),
    ("explicit parents", || {
        let a = info_span!("a");
        let _b = info_span!("b").entered();
        let c = info_span!(parent: &a, "c");
        c.in_scope(|| info_span!("below c").in_scope(|| ()));
        info_span!(parent: a.id(), "by id").in_scope(|| ());
    }),
    ("parent: None", || {
        let _a = info_span!("a").entered();
        let alone = info_span!(parent: None, "alone").entered();
        info_span!("below").in_scope(|| ());
        drop(alone);
        info_span!("below a").in_scope(|| ());
    }),
    ("follows_from", || {
        let a = info_span!("a");
        let b = info_span!("b");
        b.follows_from(&a);
        b.in_scope(|| b.follows_from(a.id()));
    }),
    ("current context: children by the OpenTelemetry API's ids", || {
        let _root = info_span!("root").entered();
        let current = Context::current().span().span_context().clone();
        assert!(current.is_valid() && current.is_sampled());
    }),
    ("current context: writes", || {
        let _root = info_span!("root", kept = 1).entered();
        let current = Context::current();
        let span = current.span();
        assert!(span.is_recording());
        span.set_attribute(KeyValue::new("added", 2));
        span.set_attribute(KeyValue::new(
            "list",
            opentelemetry::Value::Array(opentelemetry::Array::I64(vec![1, 2])),
        ));
        span.add_event("event", vec![KeyValue::new("n", 1)]);
        span.set_status(opentelemetry::trace::Status::error("by hand"));
        span.add_link(opentelemetry::trace::SpanContext::NONE, vec![KeyValue::new("n", 1)]);
    }),
    ("current context: changes after its `end`", || {
        let root = info_span!("root", before = 1, after = Empty, otel.name = Empty).entered();
        info!("before");
        let span = Context::current();
        span.span().end();
        root.record("before", 2);
        root.record("after", 1);
        root.record("otel.name", "renamed");
        info!("after");
        error!("after");
        span.span().set_attribute(KeyValue::new("after", 1));
        let other = info_span!("child").entered();
        root.follows_from(other.id());
        info!(parent: &root, "after");
    }),
    ("remote parents", || {
        let attached = remote_parent(1, true).attach();
        let root = info_span!("root");
        drop(attached);
        root.in_scope(|| info_span!("child").in_scope(|| ()));
    }),
    ("a context attached inside a span", || {
        let _root = info_span!("root").entered();
        let parent = remote_parent(1, true).span().span_context().clone();
        let attached = Context::current().with_remote_span_context(parent).attach();
        info_span!("elsewhere").in_scope(|| info_span!("below").in_scope(|| ()));
        drop(attached);
        info_span!("here").in_scope(|| ());
    }),
    ("spans exited out of order", || {
        let a = info_span!("a");
        let b = info_span!("b");
        let enter_a = a.enter();
        let enter_b = b.enter();
        drop(enter_a);
        info_span!("in b").in_scope(|| ());
        drop(enter_b);
    }),
    ("spans entered again, and inside themselves", || {
        let a = info_span!("a");
        a.in_scope(|| a.in_scope(|| info_span!("b").in_scope(|| ())));
        a.in_scope(|| info_span!("c").in_scope(|| ()));
    }),
    ("spans that outlive their root", || {
        let root = info_span!("root").entered();
        let child = info_span!("child");
        drop(root);
        child.in_scope(|| info_span!("grandchild").in_scope(|| ()));
    }),
    ("values whose `Debug` makes spans, events and records", || {
        // Registers the callsites first. A callsite whose first use lies inside another call of
        // `tracing` is disabled until the next subscriber is created, whatever the subscriber.
        let _ = format!("{:?}", Traces(1));
        let root = info_span!("root", late = Empty, v = ?Traces(2)).entered();
        root.record("late", tracing::field::debug(Traces(2)));
        info!(v = ?Traces(2), "an event");
    }),
    ("spans that are never entered", || {
        let a = info_span!("a", n = 1);
        drop(info_span!(parent: &a, "b"));
    }),
    ("futures", || {
        let inner = async { info!("inside") }.instrument(info_span!("inner"));
        let outer = async {
            inner.await;
            info_span!("after").in_scope(|| ());
        };
        run(outer.instrument(info_span!("outer")));
    }),
    ("spans that move to another thread", || {
        let root = info_span!("root");
        let dispatch = tracing::dispatcher::get_default(Dispatch::clone);
        let child = root.in_scope(|| info_span!("child"));
        std::thread::scope(|scope| {
            let work = || {
                tracing::dispatcher::with_default(&dispatch, || {
                    child.in_scope(|| {
                        info_span!("on the thread", thread.id = 0, thread.name = "").in_scope(|| ())
                    });
                })
            };
            scope.spawn(work).join().unwrap();
        });
    }),
];

type Setting = (&'static str, fn(Builder) -> Builder);

/// The settings under which each row exports the same.
const SETTINGS: [Setting; 4] = [
    ("kept", |builder| builder),
    ("started at once", |builder| builder.with_start(Start::AtOnce)),
    ("waiting for no other", |builder| builder.with_open_traces_max(0)),
    (KEPT_LATE, |builder| {
        let all = "own:all()".parse::<Tail>().unwrap().with_provisional(ProvisionalMode::Always);
        let builder = builder.with_sampler("never".parse().unwrap()).with_tail(all);
        builder.with_own_policy("all", |_| true)
    }),
];
const KEPT_LATE: &str = "kept late";

#[test]
fn every_row_exports_the_same_as_the_stock_layer() {
    let mut different = Vec::new();
    for (name, body) in ROWS {
        // Thread ids and names differ between the runs.
        let stock = lines(&stock(|layer| layer.with_threads(false), *body));
        assert!(!stock.is_empty(), "{name}");
        // The current context of a trace that is kept late is not sampled.
        let is_about_now = name.starts_with("current context");
        for (setting, change) in SETTINGS.into_iter().filter(|one| one.0 != KEPT_LATE || !is_about_now) {
            let ours = lines(&ours(|builder| change(builder.with_threads(false)), *body));
            if ours != stock {
                let (ours, stock) = (ours.join("\n         "), stock.join("\n         "));
                different.push(format!("{name}, {setting}\n  ours:  {ours}\n  stock: {stock}"));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// Each switch of the stock layer exists in ours, with the same effect and the same default.
#[test]
fn every_switch_does_the_same() {
    type Switch = (&'static str, fn(Builder, bool) -> Builder, fn(Stock, bool) -> Stock);
    let switches: [Switch; 9] = [
        ("location", Builder::with_location, Stock::with_location),
        ("threads", Builder::with_threads, Stock::with_threads),
        ("level", Builder::with_level, Stock::with_level),
        ("target", Builder::with_target, Stock::with_target),
        ("inactivity", Builder::with_tracked_inactivity, Stock::with_tracked_inactivity),
        ("error fields", Builder::with_error_fields_to_exceptions, Stock::with_error_fields_to_exceptions),
        ("error records", Builder::with_error_records_to_exceptions, Stock::with_error_records_to_exceptions),
        ("error events", Builder::with_error_events_to_exceptions, Stock::with_error_events_to_exceptions),
        ("status", Builder::with_error_events_to_status, Stock::with_error_events_to_status),
    ];
    let body = || {
        let _root = info_span!("root", cause = failure()).entered();
        info!(cause = failure(), "an event");
        info_span!("child").in_scope(|| error!(error = "why"));
    };
    assert_eq!(lines(&ours(|builder| builder, body)), lines(&stock(|layer| layer, body)), "defaults");
    for (name, our_switch, stock_switch) in switches {
        for on in [false, true] {
            let ours = lines(&ours(|builder| our_switch(builder, on), body));
            assert_eq!(ours, lines(&stock(|layer| stock_switch(layer, on), body)), "{name}: {on}");
        }
    }
}
