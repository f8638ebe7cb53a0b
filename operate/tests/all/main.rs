//! The integration tests of astracer-operate.

#[cfg(feature = "endpoint")]
mod endpoint;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "polling")]
mod polling;
