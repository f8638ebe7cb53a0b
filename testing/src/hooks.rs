//! User code as functions: exporters, destinations, id generators and layers.

use std::fmt;
use std::time::Duration;

use astracer_sdk::destination::{Counter, DeliveryReport, Destination, ExportError, Span};
use opentelemetry::{SpanId, TraceId};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{IdGenerator, SpanData, SpanExporter};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// A call that an exporter receives.
#[derive(Debug)]
pub enum Call {
    /// `export`, with its spans.
    Export(Vec<SpanData>),
    /// `force_flush`.
    Flush,
    /// `shutdown_with_timeout`, with its timeout.
    ShutDown(Duration),
}

/// An exporter that passes each of its calls to a function.
#[derive(Clone)]
pub struct Calls<F>(pub F);

/// A destination that passes each batch to a function.
pub struct Delivering<F>(pub F, pub fn() -> Counter);

/// A generator that takes ids from two functions.
pub struct Ids<T, S>(pub T, pub S);

/// A layer that passes each event to a function.
#[derive(Clone)]
pub struct OnEvent<F>(pub F);

impl<F> fmt::Debug for Calls<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Calls")
    }
}

impl<F> fmt::Debug for Delivering<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Delivering")
    }
}

impl<T, S> fmt::Debug for Ids<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ids")
    }
}

impl<F: Fn(Call) -> OTelSdkResult + Send + Sync + 'static> SpanExporter for Calls<F> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        (self.0)(Call::Export(batch))
    }

    fn force_flush(&self) -> OTelSdkResult {
        (self.0)(Call::Flush)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        (self.0)(Call::ShutDown(timeout))
    }
}

impl<F: Fn(&[Span<'_>]) -> DeliveryReport + Send + Sync + 'static> Destination for Delivering<F> {
    fn deliver(&self, batch: &[Span<'_>]) -> DeliveryReport {
        (self.0)(batch)
    }

    fn counter(&self) -> Counter {
        (self.1)()
    }

    fn shut_down(&self, _: Duration) -> Result<(), ExportError> {
        Ok(())
    }
}

impl<T: Fn() -> TraceId + Send + Sync, S: Fn() -> SpanId + Send + Sync> IdGenerator for Ids<T, S> {
    fn new_trace_id(&self) -> TraceId {
        (self.0)()
    }

    fn new_span_id(&self) -> SpanId {
        (self.1)()
    }
}

impl<C: Subscriber, F: Fn(&Event<'_>) + 'static> Layer<C> for OnEvent<F> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, C>) {
        (self.0)(event);
    }
}
