//! Adaptive head sampling for Rust services: a layer for `tracing` and a sampler for OpenTelemetry
//! that share one decision.
//!
//! [`AstracerLayer`] decides once per local root, the first span of a trace in this process. It
//! keeps the traces that the sampler chooses, whole, and exports them through any OpenTelemetry
//! [`SpanExporter`](opentelemetry_sdk::trace::SpanExporter). tracing-opentelemetry builds every
//! span before it asks the sampler; here nothing is recorded below a dropped root, unless you ask
//! for late keeping (below). Code on the OpenTelemetry API joins in with [`AstracerSampler`], which
//! asks the same decider.
//!
//! # Data flow
//!
//! ```text
//! tracing spans -> AstracerLayer -- kept --> records -> queue -> exporter threads -> destination
//!                       |                 of a trace   (bounded, losses counted)
//!                       |
//!                       +-- local root --> decider: key, randomness, time -> keep or drop, weight
//!                                             ^
//! OpenTelemetry API -> AstracerSampler -------+
//! ```
//!
//! 1. A new span belongs below an open span, below a remote parent, or at the root of a new trace.
//! 2. A local root is decided when it is first entered, asked for its context, given a child, or
//!    ended, whichever comes first. With [`Start::AtOnce`] it is decided when it is created. The
//!    sampler gets the root's [`Key`], the randomness of the trace id and the time. If the root has
//!    a remote parent, that parent's decision holds unless [`ParentDecision::Ignore`] is set.
//! 3. Spans of a kept trace are recorded and gathered until the local root ends, then queued
//!    together. A large or old trace is queued in parts.
//! 4. The exporter's threads hand queued spans to the [`destination`], or to any exporter as
//!    `SpanData`.
//!
//! Late keeping, set with [`Builder::with_tail`], also records some of the dropped traces and
//! exports those whose outcome matters: errors, slow roots and other policies. It decides when the
//! local root ends, on the part of the trace that this process saw.
//!
//! # Example
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
//! struct Nowhere; // in a service: an exporter of `astracer` or `opentelemetry-otlp`
//!
//! impl SpanExporter for Nowhere {
//!     async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
//!         Ok(())
//!     }
//! }
//!
//! let astracer = Astracer::builder()
//!     .with_sampler("bump:lambda=10,min=0.01,window=1s".parse()?)
//!     .with_environment() // OTEL_* variables override the calls above
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
//! Shut down before `main` returns, with [`Handle::shutdown`] or [`Handle::shutdown_on_drop`]. A
//! global subscriber is never dropped, so spans that are still queued would be lost.
//!
//! # What to use
//!
//! | type | purpose |
//! |---|---|
//! | [`Builder`] | all settings, from code, the environment or a parameters file |
//! | [`AstracerLayer`] | the layer, for a `tracing_subscriber::Registry` |
//! | [`AstracerSubscriber`] | replaces registry and layer if no other layer looks up spans |
//! | [`AstracerSampler`] | `ShouldSample`, for an `SdkTracerProvider` |
//! | [`OpenTelemetrySpanExt`] | remote parents, links, attributes and status on a `tracing::Span` |
//! | [`Handle`] | counts, flush, shutdown, and changes while the service runs |
//!
//! This crate has no exporters of its own, needs no asynchronous runtime and sets no global state:
//! a service installs the subscriber and the propagator itself. The `astracer` crate adds
//! exporters.
//!
//! # Concurrency and limits
//!
//! - **Any thread.** The layer, the sampler and the handle are `Send + Sync` and cheap to share. A
//!   clone of the layer belongs to another subscriber and allocates its own span table of about 64
//!   KiB; clone the handle instead where only the handle is needed.
//! - **One decision per root.** If several threads race to use a new root, one of them decides and
//!   the others wait for its decision.
//! - **Cheap drops.** A thread inside a dropped root recognises this by one thread-local read. With
//!   [`DroppedSpans::Disabled`] that read is the whole cost of a span.
//! - **No lock around your code.** Looking up an open span and asking the sampler take no lock on
//!   the common path. Key functions, policies and `Debug` impls run without a lock of this crate
//!   held. A panic in a key function or a policy is caught and counted.
//! - **No waiting for the exporter.** Exports run on their own threads. When the queue is full,
//!   new traces are shed; only [`WhenQueueFull::Block`] makes the
//!   thread that ends a span wait, for a bounded time.
//! - **Bounded memory.** Open spans take at most 128 MiB and the queue 32 MiB by default
//!   ([`Builder::with_open_bytes_max`], [`Builder::with_queue_bytes_max`]).
//! - **Every loss counted.** [`Stats`] accounts for each recorded span as exported, open, waiting
//!   or lost, or with late keeping as held or given up. [`Losses`] gives the reasons.
//!
//! # Features
//!
//! - `enabled` (default): without it the whole API is present and does nothing.
//! - `bridge`: tracing-opentelemetry's own `OpenTelemetrySpanExt` works on spans of the layer, so
//!   existing middleware runs unchanged. Adds the dependency on tracing-opentelemetry; one call
//!   costs about as much as creating a stock span.
//! - `parameters` (default): reads the parameters files that the tuner writes.
//!
//! Two more crates build on this one: astracer-operate has a live page, metrics and parameters from
//! a URL, and astracer-tower traces requests to axum, tonic and hyper, and those of reqwest.

mod baggage_attributes;
#[cfg(feature = "bridge")]
mod bridge;
mod builder;
mod byte_cap;
mod core;
mod decider;
mod decision_time;
mod fault;
mod fit;
mod foreign;
mod handle;
mod heartbeat;
mod housekeeping;
mod ids;
mod kept_keys;
mod key;
mod layer;
mod live;
mod logs;
mod observer;
#[cfg(feature = "parameters")]
mod polling;
mod propagation;
mod reports;
mod rules;
mod sampler;
mod secret;
mod settings;
mod span_ext;
mod stack;
mod steering;
mod subscriber;
mod table;
#[cfg(all(test, loom))]
mod test_callsite;
mod totals;
mod why;

pub use astracer_model::destination;
pub use astracer_samplers::strata;
pub use astracer_samplers::tail::{Boost, Histogram, KeyOutcomes, PolicyCounts, ProvisionalMode, Tail};
pub use astracer_samplers::{
    Allowance, Budget, Cap, Config as SamplerConfig, KeyRule, Limits as SamplerLimits, Override, Probability,
    RandomSource, Reason, Snapshot, Template,
};

pub use astracer_spans::bounds::WhenQueueFull;
pub use astracer_spans::clock::{Clock, ManualClock};
pub use astracer_spans::late::{Announced, Announcement, TailSpan, TailTrace};
pub use astracer_spans::record::SpanLimits;
pub use astracer_spans::stats::{GivenUpTraces, Losses, OwnPolicyFaults, Stats, TailStats};
pub use astracer_spans::thread::id as thread_id;
pub use builder::{Astracer, BuildError, Builder};
pub use decider::ParentDecision;
pub use fault::{Fault, OnFault, SteerError};
pub use fit::FileFit;
pub use handle::{FlushError, Handle, ShutdownGuard, WeakHandle};
pub use key::{Key, Root};
pub use layer::AstracerLayer;
pub use logs::{LogCounts, LogLayer};
pub use observer::{ObservedSpan, Observer};
#[cfg(feature = "parameters")]
pub use polling::{FetchParameters, ParametersSource};
pub use propagation::{Propagator, baggage_member, inject_baggage, received_flow};
pub use rules::DryRunStats;
pub use sampler::AstracerSampler;
pub use settings::{ContextMode, DroppedSpans, Start};
pub use span_ext::{OpenTelemetrySpanExt, SetParentError, add_event_in, get_otel_context, outgoing_context};
pub use steering::KeyStats;
pub use subscriber::AstracerSubscriber;
pub use totals::KeyTotals;
pub use why::Explanation;

/// Compiles the code blocks of the guides, so that they stay correct.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tracing-layer.md")]
struct Guide;

#[cfg(doctest)]
#[doc = include_str!("../../docs/kept-late.md")]
struct KeptLate;
