//! Two OpenTelemetry layers on one registry: each exports what it exports alone, in either order.

use std::sync::atomic::{AtomicU64, Ordering};

use astracer_sdk::{Astracer, ContextMode};
use astracer_testing::SplitMix as Random;
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData};
use tracing::subscriber::with_default;
use tracing::{Dispatch, Instrument as _, Level, info_span};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry};

use crate::support::{Collector, TIMEOUT};

const MODES: [ContextMode; 3] = [ContextMode::Off, ContextMode::Ids, ContextMode::Recording];

fn ours(sampler: &str, mode: ContextMode) -> (Astracer, Collector) {
    let collector = Collector::default();
    let builder = Astracer::builder().with_sampler(sampler.parse().unwrap()).with_context_mode(mode);
    (builder.with_exporter(collector.clone()).build().unwrap(), collector)
}

/// The names from the root to each span, sorted; `?` stands for a parent that was not exported.
fn paths(spans: &[SpanData]) -> Vec<String> {
    let path = |span: &SpanData| {
        let (mut path, mut at) = (span.name.to_string(), span);
        while at.parent_span_id != SpanId::INVALID {
            match spans.iter().find(|above| above.span_context.span_id() == at.parent_span_id) {
                Some(above) => at = above,
                None if at.parent_span_is_remote => return format!("remote/{path}"),
                None => return format!("?/{path}"),
            }
            assert_eq!(at.span_context.trace_id(), span.span_context.trace_id());
            path = format!("{}/{path}", at.name);
        }
        path
    };
    let mut paths: Vec<String> = spans.iter().map(path).collect();
    paths.sort();
    paths
}

fn exported((astracer, collector): &(Astracer, Collector)) -> Vec<String> {
    astracer.handle.shutdown(TIMEOUT).unwrap();
    paths(&collector.spans())
}

fn alone(sampler: &str, mode: ContextMode, work: &dyn Fn()) -> Vec<String> {
    let one = ours(sampler, mode);
    with_default(Registry::default().with(one.0.layer.clone()), work);
    exported(&one)
}

/// A span in another process. Its id is unique, as random ids are.
fn remote() -> Context {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let (trace, span) = (TraceId::from(u128::from(n) << 64 | u128::from(n)), SpanId::from(n));
    let ids = SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::NONE);
    Context::current().with_remote_span_context(ids)
}

/// Ten traces of three spans, as the first report of this fault had them.
fn ten_traces() {
    for _ in 0..10 {
        info_span!("root")
            .in_scope(|| info_span!("child").in_scope(|| info_span!("grandchild").in_scope(|| ())));
    }
}

/// Random nesting of spans, of contexts from other processes, baggage and other threads.
fn program(random: &mut Random, depth: u32) {
    for _ in 0..random.below(3) + 1 {
        let span = match random.below(6) {
            0 => info_span!(parent: None, "root"),
            1 => info_span!("client", otel.kind = "client"),
            2 => info_span!("detail"),
            _ => info_span!("plain"),
        };
        let inside = |random: &mut Random| {
            if depth > 0 {
                program(random, depth - 1);
            }
        };
        match random.below(6) {
            0 => {
                let _remote = remote().attach();
                info_span!("server").in_scope(|| inside(random));
            }
            1 => {
                let _baggage = Context::current_with_baggage([KeyValue::new("tenant", "a")]).attach();
                span.in_scope(|| inside(random));
            }
            2 => {
                let dispatch = tracing::dispatcher::get_default(Clone::clone);
                let work =
                    || tracing::dispatcher::with_default(&dispatch, || span.in_scope(|| inside(random)));
                std::thread::scope(|scope| scope.spawn(work).join().unwrap());
            }
            3 => {
                let mut future = std::pin::pin!(std::future::ready(()).instrument(span.clone()));
                let _ = future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
                span.in_scope(|| inside(random));
            }
            _ => span.in_scope(|| inside(random)),
        }
    }
}

#[test]
fn random_programs_export_the_same_as_alone() {
    for seed in 0..astracer_testing::size(60, 2_000) as usize {
        let work = || program(&mut Random::new(seed as u64), 4);
        let mode = |at: usize| MODES[at % 3];
        let (first, second) = [("always", "never"), ("never", "always"), ("always", "always")][seed % 3];
        let (one, other) = (ours(first, mode(seed / 3)), ours(second, mode(seed / 9)));
        let registry = Registry::default().with(one.0.layer.clone()).with(other.0.layer.clone());
        with_default(registry, work);
        assert_eq!(exported(&one), alone(first, mode(seed / 3), &work), "seed {seed}, inner layer");
        assert_eq!(exported(&other), alone(second, mode(seed / 9), &work), "seed {seed}, outer layer");
    }
}

/// A filter hides some spans from one of the layers, so the other's contexts are inside spans that
/// it does not know.
#[test]
fn a_filter_on_one_layer_changes_nothing_for_the_other() {
    fn work() {
        info_span!("hidden").in_scope(|| {
            info_span!("seen").in_scope(|| {
                tracing::debug_span!("hidden").in_scope(|| info_span!("below").in_scope(|| ()));
            });
        });
    }
    let filter = || filter_fn(|metadata| metadata.name() != "hidden" && *metadata.level() <= Level::DEBUG);
    for is_first in [true, false] {
        let (filtered, whole) =
            (ours("always", ContextMode::default()), ours("always", ContextMode::default()));
        let (registry, all) = (Registry::default(), whole.0.layer.clone());
        if is_first {
            with_default(registry.with(filtered.0.layer.clone().with_filter(filter())).with(all), work);
        } else {
            with_default(registry.with(all).with(filtered.0.layer.clone().with_filter(filter())), work);
        }
        assert_eq!(exported(&filtered), ["seen", "seen/below"], "{is_first}");
        assert_eq!(exported(&whole).last().unwrap(), "hidden/seen/hidden/below", "{is_first}");
    }
}

/// tracing-opentelemetry's layer on a registry, below ours or above.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stock {
    Below,
    BelowBoxed,
    Above,
    AboveBoxed,
    /// Between two of ours.
    Between,
}

const STOCK: [Stock; 5] = [Stock::Below, Stock::BelowBoxed, Stock::Above, Stock::AboveBoxed, Stock::Between];

/// Runs the work, and returns the paths that the stock layer exports beside ours.
fn beside_stock(
    own: &Astracer,
    other: &Astracer,
    place: Option<Stock>,
    sampler: Sampler,
    work: &dyn Fn(),
) -> Vec<String> {
    let collector = Collector::default();
    let builder = SdkTracerProvider::builder().with_simple_exporter(collector.clone());
    let provider = builder.with_sampler(sampler).build();
    macro_rules! stock {
        () => {
            tracing_opentelemetry::layer().with_tracer(provider.tracer("stock"))
        };
    }
    let (registry, layer) = (Registry::default(), own.layer.clone());
    let stack: Dispatch = match place {
        None => registry.with(stock!()).into(),
        Some(Stock::Below) => registry.with(stock!()).with(layer).into(),
        Some(Stock::BelowBoxed) => registry.with(stock!().boxed()).with(layer).into(),
        Some(Stock::Above) => registry.with(layer).with(stock!()).into(),
        Some(Stock::AboveBoxed) => registry.with(layer).with(stock!().boxed()).into(),
        Some(Stock::Between) => registry.with(layer).with(stock!()).with(other.layer.clone()).into(),
    };
    tracing::dispatcher::with_default(&stack, work);
    provider.force_flush().unwrap();
    paths(&collector.spans())
}

#[test]
fn the_stock_layer_beside_ours() {
    let samplers = ["never", "every:2", "always"];
    for (sampler, mode) in samplers.into_iter().flat_map(|sampler| MODES.map(|mode| (sampler, mode))) {
        for place in STOCK {
            let (own, other) = (ours(sampler, mode), ours("always", mode));
            let stock = beside_stock(&own.0, &other.0, Some(place), Sampler::AlwaysOn, &ten_traces);
            let case = format!("{sampler} {mode:?} {place:?}");
            assert_eq!(exported(&own), alone(sampler, mode, &ten_traces), "{case}");
            let whole = stock.iter().filter(|path| *path == "root/child/grandchild").count();
            assert_eq!((stock.len(), whole), (30, 10), "{case}");
            if place == Stock::Between {
                assert_eq!(exported(&other), alone("always", mode, &ten_traces), "{case}");
            }
        }
    }
}

/// Also with remote parents, baggage and other threads, and where the stock layer drops all.
#[test]
fn random_programs_beside_the_stock_layer_export_the_same_as_alone() {
    for seed in 0..astracer_testing::size(90, 3_000) as usize {
        let work = || program(&mut Random::new(seed as u64), 4);
        let (sampler, mode) = (["always", "never"][seed % 2], MODES[1 + seed / 2 % 2]);
        let (own, other) = (ours(sampler, mode), ours("always", mode));
        let place = STOCK[seed % 5];
        let of_stock = if seed % 3 == 2 { Sampler::AlwaysOff } else { Sampler::AlwaysOn };
        let run = |place| beside_stock(&own.0, &other.0, place, of_stock.clone(), &work);
        assert_eq!(run(Some(place)), run(None), "seed {seed}, stock layer, {place:?}");
        assert_eq!(exported(&own), alone(sampler, mode, &work), "seed {seed}, our layer, {place:?}");
    }
}
