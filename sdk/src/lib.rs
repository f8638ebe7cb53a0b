//! Adaptive sampling for services: a layer for `tracing` and a sampler for OpenTelemetry, with one judge.

mod builder;
mod clock;
mod config;
mod decider;
mod handle;
mod key;
mod layer;
mod propagation;
mod queue;
mod sampler;
mod settings;
mod stats;
mod worker;

pub use builder::{Astracer, BuildError, Builder};
pub use clock::{Clock, ManualClock};
pub use config::{Fault, OnFault};
pub use decider::Parents;
pub use handle::{Handle, TimedOut};
pub use key::{Key, Root};
pub use layer::AstracerLayer;
pub use propagation::Propagator;
pub use sampler::AstracerSampler;
pub use settings::{ContextMode, Presence, SpanLimits};
pub use stats::{Losses, Stats};
