//! The subscribers that run the traces: an idle layer, ours with several settings, and others at
//! their best settings.

use std::cell::Cell;

use astracer_samplers::Nanos;
use astracer_sdk::{Astracer, Builder, ContextMode, DroppedSpans, Handle, ProvisionalMode, Start, Tail};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData, SpanExporter};
use tracing::span::Id;
use tracing::subscriber::Interest;
use tracing::{Dispatch, Metadata};
use tracing_subscriber::layer::Context;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::bodies::{self, SPANS};

/// A subscriber with its traces. It exists only while it is measured, because `tracing` asks every
/// live subscriber about every callsite.
pub(crate) struct World {
    dispatch: Option<Dispatch>,
    body: Box<dyn Fn(u64) + Send + Sync>,
    handle: Option<Handle>,
    provider: Option<SdkTracerProvider>,
    is_fastrace: bool,
    /// Spans per trace.
    pub(crate) spans: u64,
}

impl World {
    fn of(dispatch: Dispatch, body: fn()) -> Self {
        World {
            dispatch: Some(dispatch),
            body: Box::new(move |_| body()),
            handle: None,
            provider: None,
            is_fastrace: false,
            spans: SPANS,
        }
    }

    /// Sets a hundred spans per trace.
    fn of_hundred(mut self) -> Self {
        self.spans = 100;
        self
    }

    /// Runs this many traces.
    pub(crate) fn run(&self, traces: u64) {
        let all = || (0..traces).for_each(|trace| (self.body)(trace));
        match &self.dispatch {
            Some(dispatch) => tracing::dispatcher::with_default(dispatch, all),
            None => all(),
        }
    }

    /// Installs the world's subscriber as the global one.
    pub(crate) fn install(&mut self) {
        if let Some(dispatch) = self.dispatch.take() {
            tracing::dispatcher::set_global_default(dispatch).expect("the first subscriber of the process");
        }
    }

    /// Waits until all ended spans are exported.
    pub(crate) fn flush(&self) {
        if let Some(handle) = &self.handle {
            let _ = handle.flush(std::time::Duration::from_secs(60));
        }
        if let Some(provider) = &self.provider {
            let _ = provider.force_flush();
        }
        if self.is_fastrace {
            fastrace::flush();
        }
    }

    /// The statistics of our layer, if this world has it.
    pub(crate) fn stats(&self) -> Option<String> {
        self.handle.as_ref().map(|handle| handle.stats().to_string())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            let _ = handle.shutdown(std::time::Duration::from_secs(60));
        }
        if let Some(provider) = &self.provider {
            let _ = provider.shutdown();
        }
    }
}

/// An exporter that discards spans.
#[derive(Debug)]
struct Sink;

impl SpanExporter for Sink {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        std::hint::black_box(&batch);
        Ok(())
    }
}

struct Idle;

impl<S: tracing::Subscriber> Layer<S> for Idle {}

thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });

/// Refuses everything below a root and does nothing else: the lower bound for a layer that drops
/// every trace and hides its spans from other layers.
struct Floor;

impl<S: tracing::Subscriber> Layer<S> for Floor {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>, _: Context<'_, S>) -> bool {
        !INSIDE.get()
    }

    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        INSIDE.set(true);
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        INSIDE.set(false);
    }
}

/// Adds to spans all that the SDK adds by default.
fn as_it_comes(builder: Builder) -> Builder {
    builder.with_location(true).with_threads(true).with_tracked_inactivity(true)
}

/// The layer, adding as little to spans as the stock layer's settings below.
fn ours(sampler: &str, body: fn(), change: impl FnOnce(Builder) -> Builder) -> World {
    let builder = Astracer::builder()
        .with_sampler(sampler.parse().expect("a sampler"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_exporter(Sink);
    let astracer = change(builder).build().expect("a layer");
    let dispatch = Dispatch::new(Registry::default().with(astracer.layer));
    let mut world = World::of(dispatch, body);
    world.handle = Some(astracer.handle);
    world
}

/// A world whose layer sends spans to this provider. The provider is shut down with the world.
fn provided(provider: SdkTracerProvider, layer: impl Layer<Registry> + Send + Sync, body: fn()) -> World {
    let mut world = World::of(Dispatch::new(Registry::default().with(layer)), body);
    world.provider = Some(provider);
    world
}

/// A provider that exports in batches to a [`Sink`].
fn exporting(sampler: Sampler) -> SdkTracerProvider {
    let processor = BatchSpanProcessor::builder(Sink).build();
    SdkTracerProvider::builder().with_sampler(sampler).with_span_processor(processor).build()
}

fn stock(sampler: Sampler, body: fn()) -> World {
    let provider = exporting(sampler);
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("bench"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_context_activation(false);
    provided(provider, layer, body)
}

/// The stock layer with its default additions to spans, and with contexts.
fn stock_as_it_comes() -> World {
    let provider = exporting(Sampler::AlwaysOn);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("bench"));
    provided(provider, layer, bodies::plain)
}

struct Nobody;

impl fastrace::collector::Reporter for Nobody {
    fn report(&mut self, spans: Vec<fastrace::collector::SpanRecord>) {
        std::hint::black_box(spans);
    }
}

fn fastrace(body: fn(u64, bool), sampled: bool) -> World {
    fastrace::set_reporter(Nobody, fastrace::collector::Config::default());
    World {
        dispatch: None,
        body: Box::new(move |trace| body(trace, sampled)),
        handle: None,
        provider: None,
        is_fastrace: true,
        spans: SPANS,
    }
}

fn own_builder(sampler: &str) -> Builder {
    Astracer::builder()
        .with_sampler(sampler.parse().expect("a sampler"))
        .with_dropped_spans(DroppedSpans::Disabled)
        .with_start(Start::AtOnce)
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_exporter(Sink)
}

/// Our subscriber without other layers.
fn own(sampler: &str, body: fn(), change: impl FnOnce(Builder) -> Builder) -> World {
    let astracer = change(own_builder(sampler)).build().expect("a subscriber");
    let mut world = World::of(Dispatch::new(astracer.subscriber()), body);
    world.handle = Some(astracer.handle);
    world
}

/// A log layer that discards its output. The traces have no events.
fn logs<S>() -> impl Layer<S> + Send + Sync
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    tracing_subscriber::fmt::layer().with_writer(std::io::sink)
}

/// Our subscriber with the same log layers as `registry with logs`.
fn own_with_logs(sampler: &str) -> World {
    let astracer = own_builder(sampler).build().expect("a subscriber");
    let subscriber = astracer.subscriber().with(logs()).with(EnvFilter::new("info"));
    let mut world = World::of(Dispatch::new(subscriber), bodies::plain);
    world.handle = Some(astracer.handle);
    world
}

/// Adds a policy that no trace matches, so recorded traces are held and then discarded.
fn late(builder: Builder, provisional: ProvisionalMode) -> Builder {
    let tail: Tail = "error".parse().expect("a policy");
    builder.with_context_mode(ContextMode::Off).with_tail(tail.with_provisional(provisional))
}

/// The same without a hold: a trace is discarded as soon as its root has ended.
fn late_at_once(builder: Builder) -> Builder {
    let tail: Tail = "error".parse().expect("a policy");
    let tail = tail.with_provisional(ProvisionalMode::Always).with_hold(Nanos::ZERO);
    builder.with_context_mode(ContextMode::Off).with_tail(tail)
}

const ONE_PERCENT: &str = "bump:lambda=10,min=0.01,window=1s";

pub(crate) type Make = fn() -> World;

/// All worlds. The first is the reference for ratios.
pub(crate) const WORLDS: &[(&str, Make)] = &[
    ("registry + idle layer", || World::of(Dispatch::new(Registry::default().with(Idle)), bodies::plain)),
    ("a layer that only refuses", || {
        World::of(Dispatch::new(Registry::default().with(Floor)), bodies::plain)
    }),
    ("ours, exclusive, 1 %", || {
        ours(ONE_PERCENT, bodies::plain, |b| b.with_dropped_spans(DroppedSpans::Disabled))
    }),
    ("ours, exclusive, 1 %, ids", || {
        ours(ONE_PERCENT, bodies::plain, |b| {
            b.with_dropped_spans(DroppedSpans::Disabled).with_context_mode(ContextMode::Ids)
        })
    }),
    ("ours, exclusive, 1 %, no context", || {
        ours(ONE_PERCENT, bodies::plain, |b| {
            b.with_dropped_spans(DroppedSpans::Disabled).with_context_mode(ContextMode::Off)
        })
    }),
    ("ours, shared, never", || ours("never", bodies::plain, |b| b)),
    ("ours, shared, never, no context", || {
        ours("never", bodies::plain, |b| b.with_context_mode(ContextMode::Off))
    }),
    ("ours, everything", || ours("always", bodies::plain, |b| b)),
    ("ours, everything, ids", || ours("always", bodies::plain, |b| b.with_context_mode(ContextMode::Ids))),
    ("ours, everything, no context", || {
        ours("always", bodies::plain, |b| b.with_context_mode(ContextMode::Off))
    }),
    ("ours, everything, all extras", || ours("always", bodies::plain, as_it_comes)),
    ("ours, late: counted, no context", || {
        let exclusive = |b: Builder| b.with_dropped_spans(DroppedSpans::Disabled);
        ours(ONE_PERCENT, bodies::plain, |b| late(exclusive(b), ProvisionalMode::Never))
    }),
    ("ours, late: armed, no context", || {
        let exclusive = |b: Builder| b.with_dropped_spans(DroppedSpans::Disabled);
        ours(ONE_PERCENT, bodies::plain, |b| late(exclusive(b), ProvisionalMode::Armed))
    }),
    ("ours, late: all, no context", || ours("never", bodies::plain, |b| late(b, ProvisionalMode::Always))),
    ("ours, late: all, hold 0, no context", || ours("never", bodies::plain, late_at_once)),
    ("idle, attributes", || World::of(Dispatch::new(Registry::default().with(Idle)), bodies::attributes)),
    ("ours, everything, attributes", || ours("always", bodies::attributes, |b| b)),
    ("ours, everything, attributes, ids", || {
        ours("always", bodies::attributes, |b| b.with_context_mode(ContextMode::Ids))
    }),
    ("ours, everything, attributes, no context", || {
        ours("always", bodies::attributes, |b| b.with_context_mode(ContextMode::Off))
    }),
    ("tracing-opentelemetry, dropping", || stock(Sampler::AlwaysOff, bodies::plain)),
    ("tracing-opentelemetry, keeping", || stock(Sampler::AlwaysOn, bodies::plain)),
    ("tracing-opentelemetry, keeping, all extras", stock_as_it_comes),
    ("tracing-opentelemetry, keeping, attributes", || stock(Sampler::AlwaysOn, bodies::attributes)),
    ("fastrace, unsampled", || fastrace(bodies::fastrace, false)),
    ("fastrace, unsampled, attributes", || fastrace(bodies::fastrace_attributes, false)),
    ("fastrace, unsampled, of 100", || fastrace(bodies::fastrace_hundred, false).of_hundred()),
    ("fastrace, sampled", || fastrace(bodies::fastrace, true)),
    ("fastrace, sampled, attributes", || fastrace(bodies::fastrace_attributes, true)),
    ("subscriber, 1 %", || own(ONE_PERCENT, bodies::plain, |b| b)),
    ("subscriber, 1 %, ids", || own(ONE_PERCENT, bodies::plain, |b| b.with_context_mode(ContextMode::Ids))),
    ("subscriber, 1 %, no context", || {
        own(ONE_PERCENT, bodies::plain, |b| b.with_context_mode(ContextMode::Off))
    }),
    ("subscriber, 1 %, attributes", || own(ONE_PERCENT, bodies::attributes, |b| b)),
    ("subscriber, 1 %, of 100", || own(ONE_PERCENT, bodies::hundred, |b| b).of_hundred()),
    ("subscriber, late: counted, no context", || {
        own(ONE_PERCENT, bodies::plain, |b| late(b, ProvisionalMode::Never))
    }),
    ("subscriber, late: all, no context", || {
        own("never", bodies::plain, |b| late(b, ProvisionalMode::Always))
    }),
    ("subscriber, late: all, hold 0, no context", || own("never", bodies::plain, late_at_once)),
    ("subscriber, everything", || own("always", bodies::plain, |b| b)),
    ("subscriber, everything, ids", || {
        own("always", bodies::plain, |b| b.with_context_mode(ContextMode::Ids))
    }),
    ("subscriber, everything, no context", || {
        own("always", bodies::plain, |b| b.with_context_mode(ContextMode::Off))
    }),
    ("subscriber, everything, all extras", || own("always", bodies::plain, as_it_comes)),
    ("subscriber, everything, attributes", || own("always", bodies::attributes, |b| b)),
    ("subscriber, everything, attributes, no context", || {
        own("always", bodies::attributes, |b| b.with_context_mode(ContextMode::Off))
    }),
    ("registry with logs", || {
        World::of(Dispatch::new(Registry::default().with(logs()).with(EnvFilter::new("info"))), bodies::plain)
    }),
    ("subscriber with logs, 1 %", || own_with_logs(ONE_PERCENT)),
    ("subscriber with logs, everything", || own_with_logs("always")),
];
