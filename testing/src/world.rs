//! A service that is traced: the layer or the subscriber, a collector and a manual clock.

use std::time::{Duration, SystemTime};

use astracer_sdk::{Astracer, Builder, Clock, Handle, ManualClock};
use opentelemetry_sdk::trace::SpanData;
use tracing::{Dispatch, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::spans::Collector;

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
        World { dispatch, collector, handle: astracer.handle.clone(), astracer, clock: hand }
    }

    /// Runs `f` with the subscriber. Returns the exported spans.
    pub fn run(&self, f: impl FnOnce()) -> Vec<SpanData> {
        tracing::dispatcher::with_default(&self.dispatch, f);
        self.exported()
    }

    /// Makes local roots of this name.
    pub fn roots(&self, name: &str, count: usize) {
        tracing::dispatcher::with_default(&self.dispatch, || {
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

/// The only span with this name.
///
/// # Panics
///
/// If none or several have it.
#[track_caller]
pub fn one<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    let found: Vec<&SpanData> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "spans named {name}");
    found[0]
}

/// The reason for which a trace was kept late.
pub fn reason(span: &SpanData) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == "sampling.reason");
    found.map(|attribute| attribute.value.to_string())
}

/// Checks that every recorded span and trace is accounted for.
///
/// # Panics
///
/// If the sums differ.
#[track_caller]
pub fn check_sums(handle: &Handle) {
    let stats = handle.stats();
    let tail = &stats.tail;
    assert_eq!(
        stats.spans_made,
        stats.spans_exported
            + stats.spans_lost.total()
            + stats.spans_open
            + stats.spans_waiting
            + tail.spans_held
            + tail.spans_given_up.total(),
        "{stats:?}"
    );
    assert_eq!(
        stats.traces_made,
        stats.traces_exported
            + stats.traces_lost.total()
            + stats.traces_open
            + tail.traces_held
            + tail.traces_given_up.total(),
        "{stats:?}"
    );
}
