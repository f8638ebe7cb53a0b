//! Destinations of kept spans: OTLP, Zipkin, files and the console.
//!
//! This crate has no queue: a batch processor, or astracer-spans, decides what to send
//! and when. It does not sample, and it prints nothing: the console writes to a writer that the
//! caller gives.
//!
//! ```text
//! SpanData -> Exporter -- model::Span --> Destination -> wire, file, terminal
//!             (of any OpenTelemetry SDK)  (Otlp, Zipkin, Files, Console: takes the model's spans, so also those of a
//!                                          recording; sends, counts, and says what to do about an error)
//! ```
//!
//! Calls to a [`Destination`], and thus to [`Exporter`], block until they are done. They are meant
//! for the thread of a batch processor, and would block the executor of an asynchronous one. A call
//! holds one request in memory, in addition to the caller's batch.
//!
//! Spans are counted by outcome and reason: see [`Counts`]. An [`ExportError`] names the failure,
//! its target and a remedy.
//!
//! ```
//! # #[cfg(feature = "file")]
//! # fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use astracer_exporters::{Exporter, Files};
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let files = Files::builder(folder).with_rotate_bytes(64 << 20).with_total_bytes_max(1 << 30).open()?;
//! let exporter = Exporter::new(files);
//! let counts = exporter.counter();
//! // An exporter like any other: `SdkTracerProvider::builder().with_batch_exporter(exporter)`.
//! # drop(exporter);
//! assert_eq!(counts.read().lost.total(), 0);
//! # Ok(())
//! # }
//! # #[cfg(feature = "file")]
//! # run().unwrap();
//! ```
//!
//! # Features
//!
//! None is on by default:
//!
//! - `otlp-http`: OTLP over HTTP/1.1, in protobuf or JSON, without an asynchronous runtime.
//! - `otlp-grpc`: OTLP over gRPC; uses tonic, with tokio on a thread of its own.
//! - `zipkin`: Zipkin v2 JSON.
//! - `file`: rotating files of OTLP JSON lines.
//! - `console`: traces as trees, on a terminal.
//! - `gzip`, `zstd`: compression of requests and files.
//! - `tls`: https for all of these, with rustls and ring, and the system's or given root
//!   certificates.
//! - `spool`: [`Spooled`], a spool on disk before any destination.
//! - `full`: all of them.

#[cfg(feature = "_send")]
mod availability;
#[cfg(any(feature = "file", feature = "spool"))]
mod clock;
#[cfg(feature = "_send")]
mod compression;
#[cfg(feature = "_send")]
mod config;
#[cfg(feature = "console")]
mod console;
mod convert;
#[cfg(feature = "_send")]
mod endpoint;
mod exporter;
#[cfg(feature = "file")]
mod file;
#[cfg(feature = "_http")]
mod http;
#[cfg(feature = "_send")]
mod learned;
#[cfg(feature = "_otlp")]
mod otlp;
#[cfg(feature = "_send")]
mod probe;
#[cfg(feature = "_send")]
mod refusal;
#[cfg(feature = "_send")]
mod requests;
#[cfg(feature = "_send")]
mod retry;
#[cfg(feature = "_send")]
mod sending;
#[cfg(feature = "spool")]
mod spooled;
#[cfg(all(feature = "_send", feature = "tls"))]
mod tls;
#[cfg(feature = "zipkin")]
mod zipkin;

/// The model's spans, for implementations of [`Destination`].
pub use astracer_model::Span;
pub use astracer_model::destination::{
    Attempt, Counter, Counts, Delivery, DeliveryReport, Destination, ErrorKind, ExportError, LostSpans,
};
/// The spool, for its settings.
#[cfg(feature = "spool")]
pub use astracer_spool as spool;
#[cfg(any(feature = "file", feature = "spool"))]
pub use clock::{Clock, SystemClock};
#[cfg(feature = "_send")]
pub use compression::Compression;
#[cfg(feature = "_send")]
pub use config::ConfigError;
#[cfg(feature = "console")]
pub use console::Console;
pub use convert::{resource, spans};
pub use exporter::Exporter;
#[cfg(feature = "file")]
pub use file::{Compression as FileCompression, Files, FilesBuilder, Fsync, WhenFilesFull};
#[cfg(feature = "_otlp")]
pub use otlp::{Otlp, OtlpBuilder, OtlpMetrics, OtlpMetricsBuilder, Protocol, UnknownProtocol, wire};
/// Metrics, for [`OtlpMetrics`].
#[cfg(feature = "_otlp")]
pub mod metrics {
    pub use astracer_formats::otlp_proto::{HistogramPoint, Metric, MetricData, MetricExemplar, SumPoint};
    pub use astracer_model::span::{Resource, Scope};
    pub use astracer_model::value::Attribute;
    pub use astracer_model::{SpanId, TraceId, UnixNanos, Value};
}
#[cfg(feature = "_send")]
pub use retry::Retry;
#[cfg(feature = "spool")]
pub use spooled::{DrainOrder, SpoolMode, Spooled, SpooledBuilder};
#[cfg(feature = "zipkin")]
pub use zipkin::{Zipkin, ZipkinBuilder};

/// The error text if TLS is needed but not compiled in.
#[cfg(all(feature = "_send", not(feature = "tls")))]
const NO_TLS: &str = "this program was built without the feature `tls` of astracer";
#[cfg(all(feature = "_send", feature = "tls"))]
const NO_TLS: &str = "";
