//! A span exporter that keeps what it receives.

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
