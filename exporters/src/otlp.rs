//! OTLP: gRPC with tonic, HTTP with ureq, and requests encoded directly from spans.
//!
//! opentelemetry-otlp builds a tree of messages from each batch for each attempt, and only logs the
//! spans that a server rejects. Here a request is encoded once, without intermediate messages, and
//! rejected spans are counted.

use std::time::Duration;

#[cfg(feature = "otlp-http")]
use astracer_formats::otlp_json;
use astracer_formats::otlp_proto;
use astracer_model::Span;
use http::uri::Uri;
use http::{HeaderName, HeaderValue};

use crate::compression::Compression;
use crate::config::ConfigError;
#[cfg(feature = "otlp-http")]
use crate::http::{Body, Client};
use crate::requests::Requests;
use crate::sending::IN_FLIGHT;
use astracer_model::destination::ExportError;
use astracer_model::destination::{Attempt, DeliveryReport, Destination};
use astracer_model::destination::{Counter, Delivery};

#[cfg(feature = "otlp-grpc")]
mod codec;
mod config;
#[cfg(feature = "otlp-grpc")]
mod grpc;
mod metrics;
mod response;

/// Parts of the protocol that servers need too.
pub mod wire {
    #[cfg(feature = "otlp-grpc")]
    pub use super::codec::Encoded;
    pub use super::response::{ExportResponse, PartialSuccess};
}

pub use config::{OtlpBuilder, Protocol, UnknownProtocol};
pub use metrics::{OtlpMetrics, OtlpMetricsBuilder};

/// Sends spans to a server that speaks OTLP.
///
/// A call sends one request, or several if the spans do not fit into one. It returns when all
/// requests have been answered, given up, or timed out.
#[derive(Debug)]
pub struct Otlp {
    wire: Wire,
    requests: Requests,
    warnings: Vec<String>,
}

#[derive(Debug)]
enum Wire {
    #[cfg(feature = "otlp-http")]
    Http { client: Client, json: bool },
    #[cfg(feature = "otlp-grpc")]
    Grpc(grpc::Client),
}

/// An encoded request, compressed or with the compression that tonic applies.
enum Packed {
    #[cfg(feature = "otlp-http")]
    Body(Body),
    #[cfg(feature = "otlp-grpc")]
    Message(bytes::Bytes, Compression),
}

impl Otlp {
    /// Returns a builder with default settings. [`OtlpBuilder::with_environment`] reads
    /// `OTEL_EXPORTER_OTLP_*`.
    pub fn builder() -> OtlpBuilder {
        OtlpBuilder::default()
    }

    fn new(
        builder: OtlpBuilder,
        uri: Uri,
        headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<Self, ConfigError> {
        let requests = Requests::new(&builder.sending);
        let warnings = builder.ignored();
        Ok(Otlp { wire: Wire::new(&builder, uri, headers)?, requests, warnings })
    }
}

impl Wire {
    fn new(
        builder: &OtlpBuilder,
        uri: Uri,
        headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<Self, ConfigError> {
        match builder.protocol {
            #[cfg(feature = "otlp-http")]
            Protocol::HttpProtobuf | Protocol::HttpJson => {
                let json = builder.protocol == Protocol::HttpJson;
                let client = Client::new(uri, headers, &builder.sending);
                let client = client.map_err(|reason| ConfigError::new("certificates", reason))?;
                Ok(Wire::Http { client, json })
            }
            #[cfg(feature = "otlp-grpc")]
            Protocol::Grpc => Ok(Wire::Grpc(grpc::Client::new(uri, headers, builder)?)),
            #[cfg(not(all(feature = "otlp-http", feature = "otlp-grpc")))]
            _ => {
                let reason = "this program was built without this protocol: enable the feature `otlp-http` or \
                              `otlp-grpc` of astracer";
                Err(ConfigError::new("protocol", reason))
            }
        }
    }
}

impl crate::requests::Wire for Wire {
    type Packed = Packed;

    fn target(&self) -> String {
        match self {
            #[cfg(feature = "otlp-http")]
            Wire::Http { client, .. } => client.target(),
            #[cfg(feature = "otlp-grpc")]
            Wire::Grpc(client) => client.target(),
        }
    }

    fn encode(&self, spans: &[Span<'_>], out: &mut Vec<u8>) {
        match self {
            #[cfg(feature = "otlp-http")]
            Wire::Http { json: true, .. } => {
                // Writing to a vector cannot fail.
                let _: std::io::Result<()> = otlp_json::write_request(out, spans);
            }
            _ => otlp_proto::write_request(out, spans),
        }
    }

    fn pack(&self, body: Vec<u8>, compression: Compression) -> Packed {
        match self {
            #[cfg(feature = "otlp-http")]
            Wire::Http { .. } => Packed::Body(Body::new(body, compression)),
            #[cfg(feature = "otlp-grpc")]
            Wire::Grpc(_) => Packed::Message(bytes::Bytes::from(body), compression),
        }
    }

    fn diagnose(&self, error: ExportError) -> ExportError {
        match self {
            #[cfg(feature = "otlp-http")]
            Wire::Http { client, .. } => client.diagnose(error),
            #[cfg(feature = "otlp-grpc")]
            Wire::Grpc(client) => client.diagnose(error),
        }
    }

    fn post(&self, body: &Packed, spans: usize, timeout: Duration) -> Result<Delivery, ExportError> {
        match (self, body) {
            #[cfg(feature = "otlp-http")]
            (Wire::Http { client, json }, Packed::Body(body)) => {
                let media = if *json { "application/json" } else { "application/x-protobuf" };
                let answer = client.post(body, media, timeout)?;
                response::of_http(&answer, spans).ok_or_else(|| client.not_otlp(&answer))
            }
            #[cfg(feature = "otlp-grpc")]
            (Wire::Grpc(client), Packed::Message(message, compression)) => {
                let answer = client.call(message.clone(), *compression, timeout)?;
                response::of_proto(&answer, spans).ok_or_else(|| client.not_otlp())
            }
            // Each wire receives only what it packed itself.
            #[cfg(all(feature = "otlp-http", feature = "otlp-grpc"))]
            _ => Ok(Delivery::default()),
        }
    }
}

impl Destination for Otlp {
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
        crate::requests::Wire::diagnose(&self.wire, error)
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
