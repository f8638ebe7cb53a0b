//! A service with the layer, a collector and a manual clock.

use std::time::{Duration, SystemTime};

use astracer_sdk::{Astracer, Builder, Clock, Handle, ManualClock};
use astracer_testing::Collector;
use tracing::{Dispatch, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

#[allow(dead_code, reason = "not every feature's tests look at the clock")]
pub(crate) struct World {
    pub(crate) dispatch: Dispatch,
    pub(crate) handle: Handle,
    pub(crate) clock: ManualClock,
}

/// A world that keeps everything, unless `change` sets another sampler.
pub(crate) fn world(change: impl FnOnce(Builder) -> Builder) -> World {
    let (clock, hand) = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let builder = Astracer::builder().with_sampler("always".parse().unwrap()).with_clock(clock);
    let astracer = change(builder.with_exporter(Collector::default())).build().unwrap();
    let dispatch = Dispatch::new(Registry::default().with(astracer.layer.clone()));
    World { dispatch, handle: astracer.handle, clock: hand }
}

/// Makes local roots of this name.
#[allow(dead_code, reason = "only metrics count them")]
pub(crate) fn roots(world: &World, name: &str, count: usize) {
    tracing::dispatcher::with_default(&world.dispatch, || {
        for _ in 0..count {
            info_span!("root", otel.name = name).in_scope(|| ());
        }
    });
}
