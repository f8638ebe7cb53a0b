//! The integration tests of astracer-operate.

#[cfg(feature = "endpoint")]
#[cfg(all(feature = "baggage", feature = "endpoint", feature = "metrics"))]
mod critical_paths;
mod endpoint;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "polling")]
mod polling;
#[cfg(all(feature = "baggage", feature = "endpoint", feature = "metrics"))]
mod tenants;
