//! Metrics over OTLP. OpenTelemetry's SDK for metrics has no interface for finished histograms with
//! exemplars.

use std::time::Duration;

use astracer_formats::otlp_proto::{Metric, write_metrics_request};
use astracer_model::UnixNanos;
use astracer_model::span::{Resource, Scope};

use super::Wire;
use super::config::{OtlpBuilder, Protocol, Signal};
use crate::compression::Compression;
use crate::config::ConfigError;
use crate::learned::{Learned, is_about_compression};
use crate::requests::Wire as _;
use astracer_model::destination::Delivery;
use astracer_model::destination::ExportError;

/// Sends cumulative metrics to a server that speaks OTLP.
///
/// A request is sent once, without retries: the next one contains everything that a lost one
/// contained.
#[derive(Debug)]
pub struct OtlpMetrics {
    wire: Wire,
    timeout: Duration,
    learned: Learned,
}

/// Settings of [`OtlpMetrics`], from [`OtlpMetrics::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct OtlpMetricsBuilder(OtlpBuilder);

impl OtlpMetrics {
    /// Returns a builder with default settings. [`OtlpMetricsBuilder::with_environment`] reads
    /// `OTEL_EXPORTER_OTLP_*`.
    pub fn builder() -> OtlpMetricsBuilder {
        OtlpMetricsBuilder(OtlpBuilder::default().with_signal(Signal::Metrics))
    }

    /// The endpoint, without its password.
    pub fn target(&self) -> String {
        self.wire.target()
    }

    /// Sends points that cover the time from `start` to `now`. The server may reject some.
    ///
    /// # Errors
    ///
    /// If the request is rejected, or not answered in time.
    pub fn send(
        &self,
        of: (&Resource, &Scope),
        times: (UnixNanos, UnixNanos),
        metrics: &[Metric],
    ) -> Result<Delivery, ExportError> {
        let mut body = Vec::new();
        write_metrics_request(&mut body, of, times, metrics);
        let points = metrics.iter().map(Metric::points).sum();
        let used = self.learned.compression();
        let post =
            |body, compression| self.wire.post(&self.wire.pack(body, compression), points, self.timeout);
        if used == Compression::None {
            return post(body, used);
        }
        match post(body.clone(), used) {
            Err(error) if is_about_compression(used, &error) => {
                let plain = post(body, Compression::None)?;
                self.learned.takes_only_plain();
                Ok(plain)
            }
            sent => sent,
        }
    }
}

impl OtlpMetricsBuilder {
    /// Sets the protocol, `grpc` or `http/protobuf`. Defaults to the latter if the feature
    /// `otlp-http` is enabled.
    pub fn with_protocol(self, protocol: Protocol) -> Self {
        Self(self.0.with_protocol(protocol))
    }

    /// Sets the server: `http://host:port` or `https://host:port`. Over HTTP, `/v1/metrics` is
    /// appended. Defaults to `http://localhost:4318`, or port 4317 for gRPC.
    pub fn with_endpoint(self, base: impl Into<String>) -> Self {
        Self(self.0.with_endpoint(base))
    }

    /// Sets the URL for metrics, which is used unchanged.
    pub fn with_metrics_endpoint(self, url: impl Into<String>) -> Self {
        Self(self.0.with_exact_endpoint("metrics_endpoint", url.into()))
    }

    /// Adds a header to each request (gRPC: metadata).
    pub fn with_header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        Self(self.0.with_header(name, value))
    }

    /// Sets the compression of requests; none by default.
    pub fn with_compression(self, compression: Compression) -> Self {
        Self(self.0.with_compression(compression))
    }

    /// Limits the time of a request. 10 s by default.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self(self.0.with_timeout(timeout))
    }

    /// Reads the environment: see [`with_variables`](OtlpMetricsBuilder::with_variables).
    pub fn with_environment(self) -> Self {
        Self(self.0.with_environment())
    }

    /// Reads variables as [`OtlpBuilder::with_variables`] does, with `METRICS_` instead of
    /// `TRACES_`.
    pub fn with_variables(self, variable: impl Fn(&str) -> Option<String>) -> Self {
        Self(self.0.with_variables(variable))
    }

    /// Builds the sender. Nothing is sent, and the server need not be running yet.
    ///
    /// # Errors
    ///
    /// If a setting or variable is invalid, or needs a feature that the program was built without.
    pub fn build(self) -> Result<OtlpMetrics, ConfigError> {
        if self.0.protocol == Protocol::HttpJson {
            let reason = "metrics cannot be sent as JSON: use http/protobuf or grpc";
            return Err(ConfigError::new(&self.0.protocol_setting, reason));
        }
        let timeout = self.0.sending.timeout;
        let learned = Learned::new(self.0.sending.compression);
        let (builder, uri, headers) = self.0.checked()?;
        Ok(OtlpMetrics { wire: Wire::new(&builder, uri, headers)?, timeout, learned })
    }
}
