//! Exporters of any type, as the exporter's threads call them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing_core::dispatcher::{self, Dispatch};
use tracing_core::subscriber::NoSubscriber;

use crate::panics::caught;
use crate::stats::Losses;
use crate::sync::{AtomicBool, Ordering};

/// An exporter that reports the outcome of each batch in counts, for
/// [`Builder::with_counting_exporter`]. OpenTelemetry's own trait reports only success or failure
/// of a whole batch.
///
/// [`Builder::with_counting_exporter`]: crate::Builder::with_counting_exporter
pub trait CountingExporter: SpanExporter {
    /// Exports a batch. Blocks until the outcome of each span is known, or cannot become known.
    fn export_and_count(&self, batch: Vec<SpanData>) -> Exported;

    /// Returns the reason why exports currently wait for their destination, if they do.
    ///
    /// [`Handle::stats`](crate::Handle::stats) calls this on the service's threads. Their
    /// subscriber receives what is traced here, so implementations should trace nothing.
    fn waiting(&self) -> Option<String>;

    /// Returns what a shutdown whose deadline has passed is waiting for: the destination, and how
    /// long a request has had no response. `None` if there is no request.
    fn unanswered(&self) -> Option<String> {
        None
    }

    /// Returns settings that the exporter ignored, for one warning each.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns, with counts, what the exporter accepted and did not pass on, such as the dead
    /// letters of a spool. A change of it is a warning, at most once a minute.
    fn undelivered(&self) -> Option<String> {
        None
    }

    /// Returns the best number of concurrent exports for this exporter.
    /// [`Builder::with_exports_in_flight`](crate::Builder::with_exports_in_flight) overrides it.
    fn exports_in_flight(&self) -> usize {
        1
    }
}

/// The outcome of a batch. Spans of the batch that are in neither count are counted as lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// The number of spans that were accepted.
    pub accepted: u64,
    /// The spans that were not accepted, by reason.
    pub lost: Losses,
    /// The reason for the losses in words: what failed, where, and what to do. If no span was lost,
    /// a warning.
    pub error: Option<String>,
    /// The traces that the cap on bytes refused; it refuses whole traces.
    pub(crate) refused: Refused,
}

/// Local roots that the cap on bytes refused, and the calls that they represented, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) roots: u64,
    pub(crate) milli_calls: u64,
}

impl Exported {
    /// Returns the outcome of a batch of which `accepted` spans were accepted and the others lost,
    /// for the reasons in `lost`.
    pub fn new(accepted: u64, lost: Losses, error: Option<String>) -> Self {
        Exported { accepted, lost, error, refused: Refused::default() }
    }
}

/// An exporter of any type.
pub(crate) trait Export: Send + Sync + fmt::Debug {
    fn set_resource(&mut self, resource: &Resource);
    fn export(&self, batch: Vec<SpanData>) -> Exported;
    fn waiting(&self) -> Option<String>;
    fn unanswered(&self) -> Option<String> {
        None
    }
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
    fn undelivered(&self) -> Option<String> {
        None
    }
    /// The number of concurrent exports unless the builder sets one. OpenTelemetry allows exporters
    /// to rely on 1.
    fn in_flight(&self) -> usize {
        1
    }
    fn force_flush(&self) -> OTelSdkResult;
    fn shut_down(&self, timeout: Duration) -> OTelSdkResult;
}

/// Any exporter for OpenTelemetry's trait.
#[derive(Debug)]
pub(crate) struct Plain<E>(pub(crate) E);

impl<E: SpanExporter> Export for Plain<E> {
    fn set_resource(&mut self, resource: &Resource) {
        SpanExporter::set_resource(&mut self.0, resource);
    }

    fn export(&self, batch: Vec<SpanData>) -> Exported {
        let spans = batch.len() as u64;
        match futures_executor::block_on(SpanExporter::export(&self.0, batch)) {
            Ok(()) => Exported { accepted: spans, ..Exported::default() },
            Err(error) => Exported::failed(spans, error.to_string()),
        }
    }

    fn waiting(&self) -> Option<String> {
        None
    }

    fn force_flush(&self) -> OTelSdkResult {
        SpanExporter::force_flush(&self.0)
    }

    fn shut_down(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }
}

/// An exporter that reports counts.
#[derive(Debug)]
pub(crate) struct Counting<E>(pub(crate) E);

impl<E: CountingExporter> Export for Counting<E> {
    fn set_resource(&mut self, resource: &Resource) {
        SpanExporter::set_resource(&mut self.0, resource);
    }

    fn export(&self, batch: Vec<SpanData>) -> Exported {
        self.0.export_and_count(batch)
    }

    fn waiting(&self) -> Option<String> {
        self.0.waiting()
    }

    fn unanswered(&self) -> Option<String> {
        self.0.unanswered()
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }

    fn undelivered(&self) -> Option<String> {
        self.0.undelivered()
    }

    fn in_flight(&self) -> usize {
        self.0.exports_in_flight()
    }

    fn force_flush(&self) -> OTelSdkResult {
        SpanExporter::force_flush(&self.0)
    }

    fn shut_down(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }
}

impl Exported {
    pub(super) fn failed(spans: u64, error: String) -> Self {
        let lost = Losses { export_failed: spans, ..Losses::default() };
        Exported { lost, error: Some(error), ..Exported::default() }
    }

    /// Makes the counts add up to `spans`, whatever the exporter reported.
    fn of(mut self, spans: u64) -> Self {
        let known = self.accepted.saturating_add(self.lost.total());
        if known > spans {
            let message = format!("the exporter reported {known} outcomes for {spans} spans");
            return Exported::failed(spans, message);
        }
        self.lost.export_failed += spans - known;
        self
    }
}

/// The exporter, shared by the threads that export and the one that shuts it down.
#[derive(Debug)]
pub(crate) struct SharedExporter {
    exporter: Box<dyn Export>,
    is_shut_down: AtomicBool,
}

impl SharedExporter {
    pub(crate) fn new(exporter: Box<dyn Export>) -> Arc<Self> {
        Arc::new(SharedExporter { exporter, is_shut_down: AtomicBool::new(false) })
    }

    /// Exports a batch. If the exporter panics, the batch is lost.
    pub(crate) fn export(&self, batch: Vec<SpanData>) -> Exported {
        let spans = batch.len() as u64;
        match guarded(|| Ok(self.exporter.export(batch))) {
            Ok(exported) => exported.of(spans),
            Err(error) => Exported::failed(spans, error.to_string()),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.exporter.in_flight()
    }

    /// Returns the reason why exports wait. This runs on the service's threads, possibly inside a
    /// call of `tracing`, where their subscriber must not be replaced. So it receives what the
    /// exporter traces.
    pub(crate) fn waiting(&self) -> Option<String> {
        caught(|| self.exporter.waiting(), |_| None)
    }

    /// Returns the request that has had no response for the longest time.
    pub(crate) fn unanswered(&self) -> Option<String> {
        caught(|| self.exporter.unanswered(), |_| None)
    }

    /// Returns settings that the exporter ignored.
    pub(crate) fn warnings(&self) -> Vec<String> {
        caught(|| self.exporter.warnings(), |_| Vec::new())
    }

    /// Returns what the exporter accepted and did not pass on.
    pub(crate) fn undelivered(&self) -> Option<String> {
        caught(|| self.exporter.undelivered(), |_| None)
    }

    pub(super) fn force_flush(&self) -> OTelSdkResult {
        guarded(|| self.exporter.force_flush())
    }

    /// Shuts the exporter down, unless that was done before. May be called while another thread
    /// exports: an exporter that is waiting for its destination then gives up, and so does every
    /// later export.
    pub(crate) fn shut_down(&self, timeout: Duration) -> OTelSdkResult {
        // The swap lets exactly one caller through.
        if self.is_shut_down.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        guarded(|| self.exporter.shut_down(timeout))
    }
}

/// Calls the exporter. A panic becomes an error, and the next batch is tried again. Whatever the
/// exporter traces or logs on this thread reaches no subscriber: exporting spans must not create
/// spans.
///
/// The subscriber is replaced only for the duration of the call. While any thread of a process has
/// a scoped subscriber, `tracing` looks up the subscriber through a thread-local on all threads,
/// which costs about 40 more instructions per span and event.
///
/// If the thread has no subscriber, none is replaced. The thread may then be inside a call of its
/// subscriber, where `tracing` reports none, and replacing the subscriber there panics.
pub(super) fn guarded<R>(f: impl FnOnce() -> Result<R, OTelSdkError>) -> Result<R, OTelSdkError> {
    let is_heard = !dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>());
    let _silent = is_heard.then(|| dispatcher::set_default(&Dispatch::none()));
    caught(f, |panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        // An HTTP client that needs a runtime, on the exporter's thread, which has none.
        let remedy = if text.contains("no reactor running") {
            "; use a blocking client, such as opentelemetry-otlp's feature reqwest-blocking-client"
        } else {
            ""
        };
        Err(OTelSdkError::InternalFailure(format!("the exporter panicked: {text}{remedy}")))
    })
}
