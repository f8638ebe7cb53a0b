//! A service that is traced: the layer or the subscriber, a collector and a manual clock.

use std::time::{Duration, SystemTime};

use astracer_sdk::{Astracer, Builder, Clock, Handle, ManualClock, Stats};
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceState};
use opentelemetry::{Context, SpanId, TraceFlags, TraceId, Value};
use opentelemetry_sdk::trace::SpanData;
use tracing::{Dispatch, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::spans::Collector;
use crate::wait::wait_until;

/// Enough for any flush. A test that needs it has failed.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A separate subscriber with a manual clock.
#[derive(Debug)]
pub struct World {
    /// The subscriber.
    pub dispatch: Dispatch,
    /// The exported spans.
    pub collector: Collector,
    /// The handle of `astracer`.
    pub handle: Handle,
    /// The parts.
    pub astracer: Astracer,
    /// Moves the clock, which begins at [`start`].
    pub clock: ManualClock,
    /// Checks the sums when the world is dropped.
    pub at_end: SumsAtEnd,
}

/// When it is dropped, every recorded span and trace must be counted in exactly one state.
#[derive(Debug)]
pub struct SumsAtEnd(Handle);

impl Drop for SumsAtEnd {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // The exporter's thread may be between two counts.
            wait_until("the sums of spans and traces", || {
                sums(&self.0.stats()).iter().all(|(made, counted)| made == counted)
            });
        }
    }
}

/// The time at which a world begins.
pub fn start() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

/// A world with the layer on a registry. It keeps everything and adds nothing to spans, unless
/// `change` sets something else.
pub fn world(change: impl FnOnce(Builder) -> Builder) -> World {
    let on_registry = |astracer: &Astracer| Dispatch::new(Registry::default().with(astracer.layer.clone()));
    World::on(on_registry, change)
}

/// A world whose sampler is this one.
pub fn sampling(sampler: &str, change: impl FnOnce(Builder) -> Builder) -> World {
    world(|builder| change(builder.with_sampler(sampler.parse().unwrap())))
}

impl World {
    /// A world with the subscriber that `base` makes.
    ///
    /// # Panics
    ///
    /// If the settings cannot be used.
    pub fn on(base: impl FnOnce(&Astracer) -> Dispatch, change: impl FnOnce(Builder) -> Builder) -> Self {
        let (clock, hand) = Clock::manual(start());
        let collector = Collector::default();
        let builder = Astracer::builder()
            .with_sampler("always".parse().unwrap())
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_clock(clock)
            .with_exporter(collector.clone());
        let astracer = change(builder).build().unwrap();
        let dispatch = base(&astracer);
        let (handle, at_end) = (astracer.handle.clone(), SumsAtEnd(astracer.handle.clone()));
        World { dispatch, collector, handle, astracer, clock: hand, at_end }
    }

    /// Runs `f` with the subscriber.
    pub fn inside<T>(&self, f: impl FnOnce() -> T) -> T {
        tracing::dispatcher::with_default(&self.dispatch, f)
    }

    /// Runs `f` with the subscriber. Returns the exported spans.
    pub fn run(&self, f: impl FnOnce()) -> Vec<SpanData> {
        self.inside(f);
        self.exported()
    }

    /// Makes local roots of this name.
    pub fn roots(&self, name: &str, count: usize) {
        self.inside(|| {
            for _ in 0..count {
                info_span!("root", otel.name = name).in_scope(|| ());
            }
        });
    }

    /// Flushes, and returns the exported spans.
    ///
    /// # Panics
    ///
    /// If a span was lost.
    pub fn exported(&self) -> Vec<SpanData> {
        self.handle.flush(TIMEOUT).unwrap();
        self.collector.spans()
    }
}

/// The spans with this name.
pub fn named<'a>(spans: &'a [SpanData], name: &str) -> Vec<&'a SpanData> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// The only span with this name.
///
/// # Panics
///
/// If none or several have it.
#[track_caller]
pub fn one<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    let found = named(spans, name);
    assert_eq!(found.len(), 1, "spans named {name}");
    found[0]
}

/// The first attribute of this name.
pub fn attribute<'a>(span: &'a SpanData, name: &str) -> Option<&'a Value> {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
    found.map(|attribute| &attribute.value)
}

/// The reason for which a trace was kept late.
pub fn reason(span: &SpanData) -> Option<String> {
    attribute(span, "sampling.reason").map(Value::to_string)
}

/// A context whose span, number 5 of this trace, is in another process.
pub fn remote_parent(trace_id: u128, is_sampled: bool) -> Context {
    let flags = if is_sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    let ids = SpanContext::new(TraceId::from(trace_id), SpanId::from(5), flags, true, TraceState::NONE);
    Context::new().with_remote_span_context(ids)
}

/// The spans made, and those in all states together; the same for traces.
pub fn sums(stats: &Stats) -> [(u64, u64); 2] {
    let late = &stats.tail;
    let spans = stats.spans_exported + stats.spans_lost.total() + stats.spans_open + stats.spans_waiting;
    let traces = stats.traces_exported + stats.traces_lost.total() + stats.traces_open;
    [
        (stats.spans_made, spans + late.spans_held + late.spans_given_up.total()),
        (stats.traces_made, traces + late.traces_held + late.traces_given_up.total()),
    ]
}
