//! Adapts any destination to an exporter of OpenTelemetry's SDK.

use std::sync::Arc;
use std::time::Duration;

use astracer_model::span::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use crate::convert;
use astracer_model::destination::{Counter, DeliveryReport, Destination, ErrorKind, ExportError};

/// Passes finished spans to a [`Destination`].
///
/// Spans have the resource of the tracer provider. Until that is known, they have a resource with
/// the service name `unknown_service`. An export blocks the thread that polls it until the
/// destination is done.
#[derive(Debug)]
pub struct Exporter<D> {
    destination: D,
    resource: Arc<Resource>,
}

impl<D: Destination> Exporter<D> {
    /// Creates an exporter to this destination.
    pub fn new(destination: D) -> Self {
        Exporter { destination, resource: Arc::new(Resource::service("unknown_service")) }
    }

    /// Returns the destination of the spans.
    pub fn destination(&self) -> &D {
        &self.destination
    }

    /// Exports a batch, and accounts for each span.
    pub fn deliver(&self, batch: &[SpanData]) -> DeliveryReport {
        self.destination.deliver(&convert::spans(batch, &self.resource))
    }

    /// Returns a handle to the counts of spans by outcome. Keep it if the exporter is moved away.
    pub fn counter(&self) -> Counter {
        self.destination.counter()
    }
}

impl<D: Destination> SpanExporter for Exporter<D> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.deliver(&batch).into_result().map(drop).map_err(to_otel)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.destination.shut_down(timeout).map_err(to_otel)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.destination.flush().map_err(to_otel)
    }

    fn set_resource(&mut self, resource: &opentelemetry_sdk::Resource) {
        self.resource = Arc::new(convert::resource(resource));
    }
}

fn to_otel(error: ExportError) -> OTelSdkError {
    match error.kind() {
        ErrorKind::ShutDown => OTelSdkError::AlreadyShutdown,
        _ => OTelSdkError::InternalFailure(error.to_string()),
    }
}
