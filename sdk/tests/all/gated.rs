//! The gate around tracing-opentelemetry's layer.

use std::sync::{Arc, Mutex};
use std::thread;

use astracer_sdk::{DroppedSpans, Gate, gate};
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceState, TracerProvider as _};
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, ShouldSample, SpanData};
use tracing::dispatcher::with_default;
use tracing::span::{Attributes, Id};
use tracing::{Dispatch, info, info_span};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt as _};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context as LayerContext, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use crate::parity::{ROWS, Stock, lines, stock};
use crate::support::{Collector, draw, one, world};

const BOTH: [DroppedSpans; 2] = [DroppedSpans::Visible, DroppedSpans::Disabled];

/// Collects the names of the spans that reach a layer.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<&'static str>>>);

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Names {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: LayerContext<'_, S>) {
        self.0.lock().unwrap().push(attributes.metadata().name());
    }
}

impl Names {
    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A gated stock layer, with one recording layer behind the gate and one beside it.
struct Gated {
    dispatch: Dispatch,
    collector: Collector,
    inner: Names,
    beside: Names,
}

impl Gated {
    fn new(dropped_spans: DroppedSpans, sampler: impl ShouldSample + 'static) -> Self {
        let collector = Collector::default();
        let provider = SdkTracerProvider::builder()
            .with_sampler(sampler)
            .with_simple_exporter(collector.clone())
            .build();
        let (inner, beside) = (Names::default(), Names::default());
        // The recording layer shares the gate with the stock layer, so it sees the same spans.
        let behind = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("stock"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .and_then(inner.clone());
        let subscriber = Registry::default().with(gate(behind, dropped_spans)).with(beside.clone());
        Gated { dispatch: Dispatch::new(subscriber), collector, inner, beside }
    }

    fn run(&self, f: impl FnOnce()) -> Vec<SpanData> {
        with_default(&self.dispatch, f);
        self.collector.spans()
    }
}

fn remote(sampled: bool) -> Context {
    let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    let parent = SpanContext::new(TraceId::from(77u128), SpanId::from(5u64), flags, true, TraceState::NONE);
    Context::new().with_remote_span_context(parent)
}

fn current() -> SpanContext {
    Context::current().span().span_context().clone()
}

fn tree() {
    let _root = info_span!("root", n = 1).entered();
    let _child = info_span!("child", n = 2).entered();
    info!("an event");
    info_span!("leaf").in_scope(|| ());
}

#[test]
fn what_is_kept_is_as_without_a_gate() {
    for dropped_spans in BOTH {
        for (name, body) in ROWS {
            let expected = lines(&stock(|layer| layer.with_threads(false), *body));
            let collector = Collector::default();
            let provider = SdkTracerProvider::builder().with_simple_exporter(collector.clone()).build();
            let layer: Stock = OpenTelemetryLayer::new(provider.tracer("stock")).with_threads(false);
            let layer: Gate<Stock> = gate(layer, dropped_spans);
            with_default(&Dispatch::new(Registry::default().with(layer)), body);
            assert_eq!(lines(&collector.spans()), expected, "{name}, {dropped_spans:?}");
        }
    }
}

#[test]
fn below_a_dropped_root_the_layer_gets_no_callbacks() {
    for (dropped_spans, beside) in
        [(DroppedSpans::Visible, vec!["root", "child", "leaf"]), (DroppedSpans::Disabled, vec!["root"])]
    {
        let gated = Gated::new(dropped_spans, Sampler::AlwaysOff);
        for _ in 0..3 {
            assert!(gated.run(tree).is_empty());
            assert_eq!(gated.inner.take(), ["root"], "{dropped_spans:?}");
            assert_eq!(gated.beside.take(), beside, "{dropped_spans:?}");
        }
    }
}

/// With our sampler: the second root is dropped, the third kept.
#[test]
fn each_root_is_for_the_sampler_to_keep_or_drop() {
    for dropped_spans in BOTH {
        let sampler =
            world(|builder| builder.with_sampler("every:2".parse().unwrap())).astracer.sampler.clone();
        let gated = Gated::new(dropped_spans, sampler);
        gated.run(|| (0..4).for_each(|_| tree()));
        let kept = ["root", "child", "leaf"];
        assert_eq!(
            gated.inner.take(),
            [&kept[..], &kept[..1], &kept, &kept[..1]].concat(),
            "{dropped_spans:?}"
        );
        assert_eq!(gated.collector.spans().len(), 6, "{dropped_spans:?}");
    }
}

/// A sampler that drops the span of one name. Spans below it are dropped too, but not its siblings.
#[derive(Clone, Debug)]
struct Not(&'static str);

impl ShouldSample for Not {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        id: TraceId,
        name: &str,
        kind: &opentelemetry::trace::SpanKind,
        attributes: &[opentelemetry::KeyValue],
        links: &[opentelemetry::trace::Link],
    ) -> opentelemetry_sdk::trace::SamplingResult {
        let sampler = if name == self.0 { Sampler::AlwaysOff } else { Sampler::AlwaysOn };
        sampler.should_sample(parent, id, name, kind, attributes, links)
    }
}

#[test]
fn a_sampler_may_drop_a_part_of_a_trace() {
    for dropped_spans in BOTH {
        let gated = Gated::new(dropped_spans, Not("child"));
        let spans = gated.run(|| {
            let _root = info_span!("root").entered();
            info_span!("child").in_scope(|| info_span!("grandchild").in_scope(|| info!("an event")));
            info_span!("brother").in_scope(|| ());
        });
        assert_eq!(draw(&spans), "root\n  brother\n", "{dropped_spans:?}");
    }
}

#[test]
fn the_extension_trait_works_through_the_gate() {
    for dropped_spans in BOTH {
        let gated = Gated::new(dropped_spans, Sampler::ParentBased(Box::new(Sampler::AlwaysOff)));
        let spans = gated.run(|| {
            let kept = info_span!("kept");
            kept.set_parent(remote(true)).unwrap();
            kept.in_scope(|| info_span!("child").set_attribute("n", 1));
            let dropped = info_span!("dropped");
            dropped.set_parent(remote(false)).unwrap();
            dropped.in_scope(|| info_span!("child").set_attribute("n", 1));
            assert_eq!(dropped.context().span().span_context().trace_id(), TraceId::from(77u128));
        });
        assert_eq!(draw(&spans), "kept\n  child n=1\n", "{dropped_spans:?}");
        assert_eq!(one(&spans, "kept").parent_span_id, SpanId::from(5u64));
    }
}

/// A task spawned below a dropped root is dropped too, and its outgoing calls carry an unsampled
/// context.
#[test]
fn a_dropped_trace_stays_dropped_on_another_thread() {
    let gated = Gated::new(DroppedSpans::Visible, Not("dropped"));
    let spans = gated.run(|| {
        let (child, outside) = info_span!("dropped").in_scope(|| (info_span!("child"), current()));
        assert!(outside.is_valid() && !outside.is_sampled());
        let work = || {
            with_default(&gated.dispatch, || {
                child.in_scope(|| {
                    assert_eq!(current(), outside);
                    info!("an event");
                    info_span!("grandchild").in_scope(|| assert_eq!(current(), outside));
                });
                assert!(!current().is_valid());
                info_span!("another").in_scope(|| ());
            });
        };
        thread::scope(|scope| scope.spawn(work).join().unwrap());
    });
    assert_eq!(draw(&spans), "another\n");
    assert_eq!(gated.inner.take(), ["dropped", "another"]);
}

/// When an astracer layer of another subscriber looks for removed layers on this thread's stack, it
/// finds a gate there.
#[test]
fn a_dropped_trace_stays_dropped_beside_another_subscriber() {
    let gated = Gated::new(DroppedSpans::Visible, Not("dropped"));
    let other = world(|builder| builder);
    gated.run(|| {
        let (child, outside) = info_span!("dropped").in_scope(|| (info_span!("child"), current()));
        child.in_scope(|| {
            with_default(&other.dispatch, || drop(info_span!("of another")));
            assert_eq!(current(), outside);
            info_span!("grandchild").in_scope(|| ());
        });
    });
    assert_eq!(gated.inner.take(), ["dropped"]);
}

#[test]
fn a_kept_span_that_is_entered_below_a_dropped_root_is_itself() {
    for dropped_spans in BOTH {
        let gated = Gated::new(dropped_spans, Not("dropped"));
        let spans = gated.run(|| {
            let kept = info_span!("kept");
            let _dropped = info_span!("dropped").entered();
            kept.in_scope(|| info_span!("its child").in_scope(|| ()));
            info_span!("below the dropped one").in_scope(|| ());
        });
        assert_eq!(draw(&spans), "kept\n  its child\n", "{dropped_spans:?}");
    }
}

#[test]
fn explicit_parents_and_attached_contexts_are_followed() {
    let gated = Gated::new(DroppedSpans::Visible, Not("dropped"));
    let spans = gated.run(|| {
        let dropped = info_span!("dropped");
        let child = dropped.in_scope(|| info_span!("child"));
        info_span!(parent: &dropped, "below it").in_scope(|| ());
        info_span!(parent: &child, "below its child").in_scope(|| ());
        let _dropped = dropped.entered();
        info_span!(parent: None, "alone").in_scope(|| ());
        let _remote = remote(true).attach();
        info_span!("of another trace").in_scope(|| ());
    });
    assert_eq!(draw(&spans), "alone\nof another trace\n");
    assert_eq!(gated.inner.take(), ["dropped", "alone", "of another trace"]);
}

/// Once the span is entered twice; once it is exited out of order.
#[test]
fn the_gate_is_open_again_when_the_dropped_root_is_left() {
    for dropped_spans in BOTH {
        let gated = Gated::new(dropped_spans, Not("dropped"));
        let spans = gated.run(|| {
            let (dropped, kept) = (info_span!("dropped"), info_span!("kept"));
            dropped.in_scope(|| dropped.in_scope(|| info_span!("inside of both").in_scope(|| ())));
            let (a, b) = (dropped.enter(), kept.enter());
            drop(a);
            info_span!("child").in_scope(|| ());
            drop(b);
            info_span!("after").in_scope(|| ());
        });
        assert_eq!(draw(&spans), "after\nkept\n  child\n", "{dropped_spans:?}");
    }
}

/// As documented: `tracing` asks a filter on the gate instead of the gate, so spans stay enabled.
/// They still do not reach the layer.
#[test]
fn a_filter_on_the_gate_makes_it_shared_and_one_beside_it_does_not() {
    let provider = SdkTracerProvider::builder().with_sampler(Sampler::AlwaysOff).build();
    let layer = || OpenTelemetryLayer::new(provider.tracer("stock"));
    let refused = |dispatch: Dispatch| {
        with_default(&dispatch, || info_span!("dropped").in_scope(|| info_span!("child").is_disabled()))
    };
    let on = gate(layer(), DroppedSpans::Disabled).with_filter(LevelFilter::INFO);
    assert!(!refused(Dispatch::new(Registry::default().with(on))));
    let beside = Registry::default().with(gate(layer(), DroppedSpans::Disabled)).with(LevelFilter::INFO);
    assert!(refused(Dispatch::new(beside)));
}

/// Without contexts the gate cannot see the decision, and stays open.
#[test]
fn without_contexts_the_gate_is_open() {
    let collector = Collector::default();
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
        .with_simple_exporter(collector.clone())
        .build();
    let layer = OpenTelemetryLayer::new(provider.tracer("stock")).with_context_activation(false);
    let layer = gate(layer, DroppedSpans::Disabled);
    with_default(&Dispatch::new(Registry::default().with(layer)), || {
        // The current context says "dropped", but it is not the span's.
        let _around = remote(false).attach();
        let root = info_span!(parent: None, "root").entered();
        info_span!(parent: &root, "child").in_scope(|| ());
    });
    assert_eq!(collector.spans().len(), 2);
}

/// A client span below a dropped root propagates the drop; a server span there accepts a remote
/// parent.
#[test]
fn spans_that_speak_with_other_processes_exist_below_a_dropped_root() {
    for dropped_spans in BOTH {
        let gated = Gated::new(dropped_spans, Sampler::ParentBased(Box::new(Sampler::AlwaysOff)));
        let spans = gated.run(|| {
            let _root = info_span!("root").entered();
            let client = info_span!("client", otel.kind = "client");
            let ids = client.context().span().span_context().clone();
            assert_eq!((ids.trace_id(), ids.is_sampled()), (current().trace_id(), false));
            client.in_scope(|| info_span!("below").in_scope(|| ()));
            let server = info_span!("server", otel.kind = "server");
            server.set_parent(remote(true)).unwrap();
            server.in_scope(|| info_span!("below").in_scope(|| ()));
        });
        assert_eq!(draw(&spans), "server\n  below\n", "{dropped_spans:?}");
        assert_eq!(gated.inner.take(), ["root", "client", "server", "below"], "{dropped_spans:?}");
    }
}

/// More spans than the gate's table holds: entries of ended spans are reused.
#[test]
fn spans_that_ended_are_forgotten() {
    let gated = Gated::new(DroppedSpans::Visible, Sampler::AlwaysOff);
    gated.run(|| {
        let _dropped = info_span!("dropped").entered();
        (0..10_000).for_each(|_| info_span!("child").in_scope(|| ()));
    });
    assert_eq!(gated.inner.take(), ["dropped"]);
}

/// A client's span whose explicit parent lies below a dropped root. The stock layer has never seen
/// that parent.
#[test]
fn a_client_s_span_with_an_explicit_dropped_parent_begins_no_trace() {
    for dropped_spans in BOTH {
        let gated = Gated::new(dropped_spans, Not("dropped"));
        let spans = gated.run(|| {
            let dropped = info_span!("dropped").entered();
            let child = info_span!("child");
            drop(dropped);
            if !child.is_disabled() {
                info_span!(parent: &child, "client", otel.kind = "client").in_scope(|| ());
            }
        });
        assert_eq!(draw(&spans), "", "{dropped_spans:?}");
    }
}

/// More open spans than the gate's table holds: they stay in the dropped trace, and begin no trace
/// of their own.
#[test]
fn spans_beyond_the_gate_s_table_stay_dropped() {
    let gated = Gated::new(DroppedSpans::Visible, Not("dropped"));
    let spans = gated.run(|| {
        let dropped = info_span!("dropped");
        let trace_id = dropped.in_scope(|| current().trace_id());
        let open: Vec<_> = (0..100_000).map(|_| info_span!(parent: &dropped, "child")).collect();
        for child in open.iter().rev().take(3) {
            child.in_scope(|| {
                assert_eq!((current().trace_id(), current().is_sampled()), (trace_id, false));
                info!("an event");
                info_span!("inside").in_scope(|| ());
            });
            info_span!(parent: child, "below").in_scope(|| ());
            info_span!(parent: child, "client", otel.kind = "client").in_scope(|| ());
        }
        assert!(!current().is_valid());
    });
    assert_eq!(draw(&spans), "");
    assert_eq!(gated.inner.take(), ["dropped"]);
}

/// No layer records the spans that the gate drops, so no policy sees them. Such roots are counted,
/// and a warning reports them.
#[test]
fn policies_at_the_end_see_nothing_behind_the_gate() {
    for dropped_spans in BOTH {
        let world = world(|builder| {
            let tail = "error".parse::<astracer_sdk::Tail>().unwrap();
            let tail = tail.with_provisional(astracer_sdk::ProvisionalMode::Always);
            builder.with_sampler("every:2".parse().unwrap()).with_tail(tail)
        });
        let gated = Gated::new(dropped_spans, world.astracer.sampler.clone());
        with_default(&gated.dispatch, || {
            for _ in 0..10 {
                info_span!("root").in_scope(|| info_span!("child").in_scope(|| tracing::error!("failed")));
            }
        });
        assert_eq!(gated.collector.spans().len(), 10, "the head sampler keeps half, two spans each");
        let stats = world.handle.stats();
        assert_eq!((stats.tail.roots_elsewhere, stats.traces_made), (10, 0), "{stats:?}");
        assert!(world.handle.outcomes().is_empty());
    }
}
