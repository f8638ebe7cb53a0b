//! Adapts any destination to an exporter of OpenTelemetry's SDK.

use std::sync::Arc;
use std::time::Duration;

use astracer_model::span::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use crate::convert;
use crate::counts::Counter;
use crate::destination::{DeliveryReport, Destination};

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
        self.deliver(&batch).into_result()?;
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        Ok(self.destination.shut_down(timeout)?)
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(self.destination.flush()?)
    }

    fn set_resource(&mut self, resource: &opentelemetry_sdk::Resource) {
        self.resource = Arc::new(convert::resource(resource));
    }
}
