//! The integration tests of astracer-operate.

#[cfg(feature = "endpoint")]
mod endpoint;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "polling")]
mod polling;
#[cfg(any(feature = "endpoint", feature = "metrics", feature = "polling"))]
mod support;
