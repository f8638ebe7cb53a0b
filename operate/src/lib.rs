//! For the people who run a service that astracer samples: a local page with live counts, counts
//! as OpenTelemetry metrics, totals of all local roots over OTLP, and parameters from a URL.
//!
//! Everything works on the public [`Handle`](astracer_sdk::Handle) of the SDK, and each part is
//! behind a feature of its own:
//!
//! - `endpoint`: `Operate::serve`, a local page with live counts;
//! - `baggage`: `Operate::tenants`, what tenants use, and `Operate::critical_paths`, where requests
//!   spend their time, both also on that page and among the metrics;
//! - `metrics`: `Operate::register_metrics`, which reports counts as OpenTelemetry metrics;
//! - `otlp-http`, `otlp-grpc`: `OutcomeMetrics`, calls, errors and durations of all local roots;
//! - `polling`: `Polling`, a parameters file from an `http` URL; `polling-tls` adds `https`.

#[cfg(feature = "baggage")]
mod critical_paths;
#[cfg(feature = "endpoint")]
mod endpoint;
#[cfg(any(feature = "endpoint", feature = "metrics", feature = "baggage"))]
mod handle;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(any(feature = "otlp-http", feature = "otlp-grpc"))]
mod outcome_metrics;
#[cfg(feature = "polling")]
mod polling;
#[cfg(feature = "baggage")]
mod tenants;

#[cfg(feature = "endpoint")]
pub use endpoint::{Endpoint, Part};
#[cfg(any(feature = "endpoint", feature = "metrics", feature = "baggage"))]
pub use handle::Operate;
#[cfg(any(feature = "otlp-http", feature = "otlp-grpc"))]
pub use outcome_metrics::{OutcomeMetrics, RunningOutcomeMetrics};
#[cfg(feature = "polling")]
pub use polling::Polling;
