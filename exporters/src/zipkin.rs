//! Zipkin v2 JSON, following OpenTelemetry's "OpenTelemetry to Zipkin" transformation.
//! [`write_span`] lists the parts of a span that Zipkin cannot represent.

use std::time::Duration;

use astracer_formats::zipkin_json::write_span;
use astracer_model::Span;
use astracer_model::text::without_secrets;
use http::uri::Uri;

use crate::compression::Compression;
use crate::config::ConfigError;
use crate::http::{Body, Client};
use crate::requests::{Requests, Wire};
use crate::sending::{BATCH_TIMEOUT, IN_FLIGHT, Sending, setters};
use astracer_model::destination::ExportError;
use astracer_model::destination::{Attempt, DeliveryReport, Destination};
use astracer_model::destination::{Counter, Delivery};

const ENDPOINT: &str = "OTEL_EXPORTER_ZIPKIN_ENDPOINT";
const TIMEOUT: &str = "OTEL_EXPORTER_ZIPKIN_TIMEOUT";

/// Settings of [`Zipkin`], from [`Zipkin::builder`]. Zipkin's server supports gzip.
#[derive(Clone, Debug)]
#[must_use]
pub struct ZipkinBuilder {
    endpoint: String,
    /// Where the endpoint was set, for errors.
    endpoint_setting: &'static str,
    sending: Sending,
    /// Variables with unusable values.
    ignored: Vec<ConfigError>,
    is_strict: bool,
}

impl ZipkinBuilder {
    /// Sets the URL that accepts spans; `http://localhost:9411/api/v2/spans` by default.
    pub fn with_endpoint(mut self, url: impl Into<String>) -> Self {
        (self.endpoint, self.endpoint_setting) = (url.into(), "endpoint");
        self
    }

    setters!("5 MiB by default.");

    /// Reads the environment: see [`with_variables`](ZipkinBuilder::with_variables).
    pub fn with_environment(self) -> Self {
        self.with_variables(|name| std::env::var(name).ok())
    }

    /// Reads `OTEL_EXPORTER_ZIPKIN_ENDPOINT`, `OTEL_EXPORTER_ZIPKIN_TIMEOUT` (milliseconds, for one
    /// attempt) and `OTEL_BSP_EXPORT_TIMEOUT` (milliseconds, for all attempts). A timeout of 0
    /// means no limit. They override earlier settings.
    pub fn with_variables(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| {
            variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        if let Some(url) = get(ENDPOINT) {
            (self.endpoint, self.endpoint_setting) = (url, ENDPOINT);
        }
        if let Some(value) = get(TIMEOUT) {
            self.ignored.extend(self.sending.read_timeout(TIMEOUT, &value).err());
        }
        if let Some(value) = get(BATCH_TIMEOUT) {
            self.ignored.extend(self.sending.read_batch_timeout(BATCH_TIMEOUT, &value).err());
        }
        self
    }

    /// Makes [`build`](ZipkinBuilder::build) refuse variables with unusable values. By default
    /// timeouts that are not numbers are ignored with a warning, as OpenTelemetry specifies.
    pub fn with_strict_variables(self) -> Self {
        ZipkinBuilder { is_strict: true, ..self }
    }

    /// Builds the destination. Nothing is sent, and the server need not be running yet.
    ///
    /// # Errors
    ///
    /// If a setting or variable is invalid, or needs a feature that the program was built without.
    pub fn build(self) -> Result<Zipkin, ConfigError> {
        if self.is_strict
            && let Some(fault) = self.ignored.first()
        {
            return Err(fault.clone());
        }
        let wrong = |reason: String| ConfigError::new(self.endpoint_setting, reason);
        let uri: Uri = self
            .endpoint
            .parse()
            .map_err(|error| wrong(format!("invalid URL `{}`: {error}", without_secrets(&self.endpoint))))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") if cfg!(feature = "tls") => {}
            Some("https") => return Err(wrong(crate::NO_TLS.to_owned())),
            _ => {
                let reason = format!(
                    "`{0}` has no scheme: use http://{0} or https://{0}",
                    without_secrets(&self.endpoint)
                );
                return Err(wrong(reason));
            }
        }
        let client = Client::new(uri, Vec::new(), &self.sending);
        let client = client.map_err(|reason| ConfigError::new("certificates", reason))?;
        let requests = Requests::new(&self.sending);
        let warnings = self.ignored.iter().map(ConfigError::ignored).collect();
        Ok(Zipkin { wire: Json(client), requests, warnings })
    }
}

/// Sends spans to a server that accepts Zipkin's JSON.
#[derive(Debug)]
pub struct Zipkin {
    wire: Json,
    requests: Requests,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct Json(Client);

impl Zipkin {
    /// Returns a builder with default settings.
    pub fn builder() -> ZipkinBuilder {
        ZipkinBuilder {
            endpoint: "http://localhost:9411/api/v2/spans".to_owned(),
            endpoint_setting: "endpoint",
            sending: Sending::new(5 << 20),
            ignored: Vec::new(),
            is_strict: false,
        }
    }
}

impl Wire for Json {
    type Packed = Body;

    fn target(&self) -> String {
        self.0.target()
    }

    fn encode(&self, spans: &[Span<'_>], out: &mut Vec<u8>) {
        for (index, span) in spans.iter().enumerate() {
            out.push(if index == 0 { b'[' } else { b',' });
            write_span(out, span);
        }
        out.push(b']');
    }

    fn pack(&self, body: Vec<u8>, compression: Compression) -> Body {
        Body::new(body, compression)
    }

    fn diagnose(&self, error: ExportError) -> ExportError {
        self.0.diagnose(error)
    }

    fn post(&self, body: &Body, spans: usize, timeout: Duration) -> Result<Delivery, ExportError> {
        let message = self.0.post(body, "application/json", timeout)?.text();
        Ok(Delivery::new(spans as u64, 0).with_message(message))
    }
}

impl Destination for Zipkin {
    fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
        self.requests.deliver(&self.wire, spans)
    }

    fn try_send(&self, spans: &[Span<'_>], timeout: Duration) -> Attempt {
        self.requests.try_send(&self.wire, spans, timeout)
    }

    fn try_whole(&self, spans: &[Span<'_>], timeout: Duration) -> Attempt {
        self.requests.try_whole(&self.wire, spans, timeout)
    }

    fn join_bytes(&self) -> usize {
        self.requests.join_bytes()
    }

    fn counter(&self) -> Counter {
        self.requests.counter.clone()
    }

    fn in_flight(&self) -> usize {
        IN_FLIGHT
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    /// Probes which protocol the server's port speaks, and performs a TLS handshake.
    fn diagnose(&self, error: ExportError) -> ExportError {
        self.wire.0.diagnose(error)
    }

    fn end_soon(&self, within: Duration) {
        self.requests.availability.end_soon(within);
    }

    /// Ends the waits between attempts. A request in progress ends within its own timeout.
    fn shut_down(&self, _timeout: Duration) -> Result<(), ExportError> {
        self.requests.availability.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_named_the_endpoint_is_reported() {
        let read = |url: &str| {
            let url = url.to_owned();
            Zipkin::builder().with_variables(move |name| (name == ENDPOINT).then(|| url.clone()))
        };
        for (builder, setting) in [
            (read("zipkin:9411"), ENDPOINT),
            (Zipkin::builder().with_endpoint("zipkin:9411"), "endpoint"),
            (read("http://zipkin:9411").with_endpoint("http://b\u{fc}cher:9411"), "endpoint"),
        ] {
            assert_eq!(builder.build().unwrap_err().setting(), setting);
        }
    }
}
