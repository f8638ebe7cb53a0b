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

/// An exporter that tells what became of each batch, for [`Builder::with_counting_exporter`].
/// OpenTelemetry's own trait knows only success and failure of a batch as a whole.
///
/// [`Builder::with_counting_exporter`]: crate::Builder::with_counting_exporter
pub trait CountingExporter: SpanExporter {
    /// Exports a batch. Blocks until the outcome of each span is known, or unknown for good.
    fn export_and_count(&self, batch: Vec<SpanData>) -> Exported;

    /// Returns the reason why exports wait for their destination now, if they do. Called on threads
    /// of the service's, by [`Handle::stats`](crate::Handle::stats), whose subscriber hears what is
    /// traced here: best nothing.
    fn waiting(&self) -> Option<String>;

    /// Returns the number of exports that this exporter does best at the same time, unless
    /// [`Builder::with_exports_in_flight`](crate::Builder::with_exports_in_flight) says otherwise.
    fn exports_in_flight(&self) -> usize {
        1
    }
}

/// Outcome of a batch. Spans of the batch that are in neither count are taken for lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// Spans that were accepted.
    pub accepted: u64,
    /// Spans that were not, by reason.
    pub lost: Losses,
    /// The reason of the losses in words: what failed, where, and what to do. Without losses, a
    /// warning.
    pub error: Option<String>,
    /// Of the spans that the cap on bytes refused, which are whole traces.
    pub(crate) refused: Refused,
}

/// Local roots that the cap on bytes refused, and thousandths of the calls that they stood for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) roots: u64,
    pub(crate) milli_calls: u64,
}

impl Exported {
    /// Returns the outcome of a batch of which `accepted` spans were accepted and the others lost.
    pub fn new(accepted: u64, lost: Losses, error: Option<String>) -> Self {
        Exported { accepted, lost, error, refused: Refused::default() }
    }
}

/// An exporter of any type.
pub(crate) trait Export: Send + Sync + fmt::Debug {
    fn set_resource(&mut self, resource: &Resource);
    fn export(&self, batch: Vec<SpanData>) -> Exported;
    fn waiting(&self) -> Option<String>;
    /// Exports under way at the same time, if the builder does not say. OpenTelemetry allows
    /// exporters to rely on one.
    fn in_flight(&self) -> usize {
        1
    }
    fn force_flush(&self) -> OTelSdkResult;
    fn shut_down(&self, timeout: Duration) -> OTelSdkResult;
}

/// Any exporter of OpenTelemetry's.
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

/// An exporter that counts.
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

    /// Makes the counts those of a batch of `spans` spans, whatever the exporter says.
    fn of(mut self, spans: u64) -> Self {
        let known = self.accepted.saturating_add(self.lost.total());
        if known > spans {
            return Exported::failed(spans, format!("the exporter counts {known} of {spans} spans"));
        }
        self.lost.export_failed += spans - known;
        self
    }
}

/// The exporter, for the threads that export and for the one that shuts down.
#[derive(Debug)]
pub(crate) struct SharedExporter {
    exporter: Box<dyn Export>,
    is_shut_down: AtomicBool,
}

impl SharedExporter {
    pub(crate) fn new(exporter: Box<dyn Export>) -> Arc<Self> {
        Arc::new(SharedExporter { exporter, is_shut_down: AtomicBool::new(false) })
    }

    /// Exports a batch. A panic of the exporter costs the batch.
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

    /// Returns the reason why exports wait. For threads of the service's, which may be inside of a
    /// call of `tracing`: their subscriber hears what the exporter traces, since it must not be
    /// replaced there.
    pub(crate) fn waiting(&self) -> Option<String> {
        caught(|| self.exporter.waiting(), |_| None)
    }

    pub(super) fn force_flush(&self) -> OTelSdkResult {
        guarded(|| self.exporter.force_flush())
    }

    /// Shuts the exporter down unless that was done before. May be called while another thread
    /// exports: an exporter that waits for its destination then gives up, and so does every export
    /// after it.
    pub(crate) fn shut_down(&self, timeout: Duration) -> OTelSdkResult {
        if self.is_shut_down.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        guarded(|| self.exporter.shut_down(timeout))
    }
}

/// Calls the exporter. A panic becomes an error: the next batch is tried again. No subscriber hears
/// anything that the exporter itself traces or logs on this thread: neither our layer nor another
/// one may make spans of the export of spans.
///
/// Only for the time of the call: while any thread of a process has a subscriber of its own,
/// `tracing` finds the process's subscriber on all threads by way of a thread-local, which takes
/// about 40 instructions more for each span and event.
///
/// Where no subscriber hears the thread, none is replaced: it may be one that `tracing` is telling
/// its subscriber of something, and that panics if it replaces it.
pub(super) fn guarded<R>(f: impl FnOnce() -> Result<R, OTelSdkError>) -> Result<R, OTelSdkError> {
    let is_heard = !dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>());
    let _silent = is_heard.then(|| dispatcher::set_default(&Dispatch::none()));
    caught(f, |panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(OTelSdkError::InternalFailure(format!("the exporter panicked: {text}")))
    })
}
