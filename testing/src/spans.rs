//! Span exporters: one that keeps what it receives, and one that passes it to a function.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

/// Keeps what is exported. Clones share the spans.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    spans: Arc<Mutex<Vec<SpanData>>>,
}

impl Collector {
    /// The spans so far.
    pub fn spans(&self) -> Vec<SpanData> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The spans since the last call.
    pub fn take(&self) -> Vec<SpanData> {
        std::mem::take(&mut self.spans.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SpanExporter for Collector {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).extend(batch);
        Ok(())
    }
}

/// Passes each batch to a function.
#[derive(Clone)]
pub struct Exporting<F>(pub F);

impl<F> fmt::Debug for Exporting<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exporting")
    }
}

impl<F: Fn(Vec<SpanData>) -> OTelSdkResult + Send + Sync + 'static> SpanExporter for Exporting<F> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        (self.0)(batch)
    }
}
