#![doc = include_str!("../README.md")]
//!
//! # Contents of this crate
//!
//! The root re-exports `astracer-sdk`: the layer, the sampler for OpenTelemetry, their builder and
//! their handle; `astracer-tower`: layers for requests; and `astracer-operate`: the live page,
//! metrics, totals over OTLP, and parameters from a URL. `baggage` is `astracer-baggage`.
//! `exporters` holds the exporters whose features are enabled, and [`samplers`] the types that
//! configure a sampler. This crate itself adds `init` and `configure`, the shortest way to a traced
//! service. [`opentelemetry`] and [`opentelemetry_sdk`] are re-exported, so that a service has the
//! versions that fit.
//!
//! # From a span to the backend
//!
//! | a span | by | source |
//! |---|---|---|
//! | is decided, with its local root | [`AstracerLayer`], [`AstracerSubscriber`] | `sdk/src/core/root.rs` asks `sdk/src/decider.rs`, which asks `samplers/src/sampler.rs` |
//! | waits, for its trace and for the exporter | threads of the SDK, within [`Builder::with_queue_bytes_max`] and other bounds | `spans/src/traces.rs`, `spans/src/export/queue.rs` |
//! | is sent | a [`Destination`](destination::Destination), or any `SpanExporter` | `spans/src/export/worker.rs` calls a file of `exporters/src`, or `sdk/src/foreign.rs` |
//!
//! A *local root* is the first span of a trace in this process. In tracing-opentelemetry's terms,
//! the layer takes the place of `OpenTelemetryLayer` with its tracer and sampler, and the queue
//! that of the `BatchSpanProcessor`. [`AstracerSampler`] decides for a provider that you keep, with
//! its processors: such spans never enter this queue.

#[cfg(feature = "setup")]
mod setup;

#[cfg(feature = "_operate")]
#[doc(inline)]
pub use astracer_operate::*;
#[doc(inline)]
pub use astracer_sdk::*;
#[cfg(feature = "http")]
#[doc(inline)]
pub use astracer_tower::*;

#[cfg(feature = "setup")]
pub use setup::{Guard, Setup, SetupError, configure, init};

pub use {astracer_samplers as samplers, opentelemetry, opentelemetry_sdk};

#[cfg(feature = "baggage")]
#[doc(inline)]
pub use astracer_baggage as baggage;

/// Exporters for kept spans, each behind its own feature.
#[cfg(feature = "_exporters")]
pub mod exporters {
    #[cfg(feature = "console")]
    pub use astracer_exporters::Console;
    pub use astracer_exporters::{
        Attempt, Counter, Counts, Delivery, DeliveryReport, Destination, ErrorKind, ExportError, Exporter,
        LostSpans, Span,
    };
    #[cfg(any(feature = "otlp-http", feature = "otlp-grpc", feature = "zipkin"))]
    pub use astracer_exporters::{Compression, ConfigError, Retry};
    #[cfg(feature = "spool")]
    pub use astracer_exporters::{DrainOrder, SpoolMode, Spooled, SpooledBuilder, spool};
    #[cfg(feature = "file")]
    pub use astracer_exporters::{FileCompression, Files, FilesBuilder, Fsync, WhenFilesFull};
    #[cfg(any(feature = "otlp-http", feature = "otlp-grpc"))]
    pub use astracer_exporters::{Otlp, OtlpBuilder, OtlpMetrics, OtlpMetricsBuilder, Protocol};
    #[cfg(feature = "zipkin")]
    pub use astracer_exporters::{Zipkin, ZipkinBuilder};
}
