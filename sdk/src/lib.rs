//! Adaptive sampling for services: a layer for `tracing` and a sampler for OpenTelemetry, with one
//! decider.
//!
//! The layer keeps the traces that the sampler chooses, whole, and hands them to any OpenTelemetry
//! exporter on a thread of its own. Where tracing-opentelemetry builds each span before it asks a
//! sampler, here nothing is recorded below a dropped root.
//!
//! Not part of this crate: exporters, an asynchronous runtime, global state (a service installs the
//! subscriber and the propagator itself), and decisions about the whole trace: each local root is
//! decided when it is first entered.
//!
//! ```text
//! tracing spans -> AstracerLayer -- kept --> records of the trace -> queue -> exporter's thread -> SpanExporter
//!                       |                                              (bounded; losses counted)
//!                       +-- local root: Decider (key, randomness, now) -> keep or drop, weight
//!                                          |
//! OpenTelemetry API -> AstracerSampler ----+
//! ```
//!
//! ```
//! use std::time::Duration;
//!
//! use astracer_sdk::Astracer;
//! use opentelemetry_sdk::error::OTelSdkResult;
//! use opentelemetry_sdk::trace::{SpanData, SpanExporter};
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! #[derive(Debug)]
//! struct Nowhere; // or that of opentelemetry-otlp
//!
//! impl SpanExporter for Nowhere {
//!     async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
//!         Ok(())
//!     }
//! }
//!
//! let astracer = Astracer::builder()
//!     .with_sampler("bump:lambda=10,min=0.01,window=1s".parse()?)
//!     .with_environment() // what OTEL_* variables say overrides it
//!     .with_exporter(Nowhere)
//!     .build()?;
//! let subscriber = tracing_subscriber::registry().with(astracer.layer.clone());
//! tracing::subscriber::with_default(subscriber, || {
//!     tracing::info_span!("GET /orders/{id}").in_scope(|| tracing::info!("the first call of a window is kept"));
//! });
//! astracer.handle.shutdown(Duration::from_secs(5))?;
//! # #[cfg(feature = "enabled")]
//! assert_eq!(astracer.handle.stats().spans_exported, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! - `enabled` (default): without it, all of the API is there and does nothing.
//! - `bridge`: spans of the layer answer tracing-opentelemetry's own `OpenTelemetrySpanExt` too, so
//!   that middleware that calls it works as it is. Pulls in tracing-opentelemetry; one call costs
//!   about as much as making a stock span.
//! - `http`: `RemoteParentLayer` and `remote_parent`, which attach the caller's context around
//!   requests of axum, tonic and hyper.
//! - `endpoint`: `Handle::serve`, a local page with live counts.
//! - `metrics`: `Handle::register_metrics` makes counts known as OpenTelemetry metrics.
//! - `parameters` (default): reads the tuner's parameters files.
//! - `polling`: `Builder::with_polled_parameters` asks a URL for such a file; `polling-tls` over
//!   https too.

mod above;
#[cfg(feature = "bridge")]
mod bridge;
mod budget;
mod builder;
mod byte_cap;
mod clock;
mod config;
mod core;
mod decider;
mod decision_time;
#[cfg(feature = "endpoint")]
mod endpoint;
mod export;
mod fault;
mod gate;
mod handle;
mod heartbeat;
mod housekeeping;
mod ids;
mod inside;
#[cfg(feature = "http")]
mod keep_header;
mod kept_keys;
mod key;
mod layer;
mod live;
#[cfg(feature = "metrics")]
mod metrics;
mod otlp_size;
mod panics;
#[cfg(feature = "polling")]
mod polling;
mod propagation;
mod record;
#[cfg(feature = "http")]
mod remote_parent;
mod rules;
mod sampler;
mod settings;
mod span_ext;
mod stack;
mod stats;
mod steering;
mod subscriber;
mod sync;
mod table;
mod tail;
#[cfg(test)]
mod test_callsite;
mod thread;
mod trace_state;
mod traces;
mod weight;
mod why;

pub use astracer_samplers::tail::{Histogram, KeyOutcomes, PolicyCounts, Provisional, Tail};
pub use astracer_samplers::{
    Allowance, Budget, Cap, Config as SamplerConfig, KeyRule, Limits as SamplerLimits, Override,
    RandomSource, Reason, Snapshot,
};

pub use builder::{Astracer, BuildError, Builder};
pub use clock::{Clock, ManualClock};
pub use decider::ParentDecision;
#[cfg(feature = "endpoint")]
pub use endpoint::Endpoint;
pub use export::{CountingExporter, Exported};
pub use fault::{Fault, OnFault};
pub use gate::{Gate, gate};
pub use handle::{ExportError, Handle, ShutdownGuard};
#[cfg(feature = "http")]
pub use keep_header::{KEEP_HEADER, Keep, KeepCalls, KeepCallsLayer, KeepFuture, KeepLayer};
pub use key::{Key, Root};
pub use layer::AstracerLayer;
#[cfg(feature = "polling")]
pub use polling::Polling;
pub use propagation::Propagator;
#[cfg(feature = "http")]
pub use remote_parent::{RemoteParent, RemoteParentFuture, RemoteParentLayer, remote_parent};
pub use rules::DryRunStats;
pub use sampler::AstracerSampler;
pub use settings::{ContextMode, DroppedSpans, SpanLimits, Start, WhenFull};
pub use span_ext::{OpenTelemetrySpanExt, SetParentError, get_otel_context};
pub use stats::{GivenUpTraces, Losses, OwnPolicyFaults, Stats, TailStats};
pub use steering::{KeyStats, SteerError};
pub use subscriber::AstracerSubscriber;
pub use tail::{TailSpan, TailTrace};
pub use why::Explanation;

/// The guide's code, so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tracing-layer.md")]
struct Guide;

#[cfg(doctest)]
#[doc = include_str!("../../docs/kept-late.md")]
struct KeptLate;
