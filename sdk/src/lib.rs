//! Adaptive sampling for services: a layer for `tracing` and a sampler for OpenTelemetry, with one judge.

mod builder;
mod clock;
mod decider;
mod handle;
mod key;
mod layer;
mod queue;
mod sampler;
mod settings;
mod stats;
mod worker;

pub use builder::{Astracer, BuildError, Builder};
pub use clock::{Clock, ManualClock};
pub use handle::{Handle, TimedOut};
pub use key::{Key, Root};
pub use layer::AstracerLayer;
pub use sampler::AstracerSampler;
pub use settings::{ContextMode, Presence, SpanLimits};
pub use stats::{Losses, Stats};
