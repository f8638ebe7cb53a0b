//! The destination, as the exporter's threads call it, and its outcomes in the SDK's words.

use std::sync::Arc;
use std::time::Duration;

use astracer_model::Span;
use astracer_model::destination::{DeliveryReport, Destination, ErrorKind, ExportError};
use tracing_core::dispatcher::{self, Dispatch};
use tracing_core::subscriber::NoSubscriber;

use crate::panics::caught;
use crate::stats::Losses;
use crate::sync::{AtomicBool, Ordering};

/// The destination, shared by the threads that export and the one that shuts it down.
#[derive(Debug)]
pub struct SharedDestination {
    destination: Box<dyn Destination>,
    /// The destination's type, to name it in errors.
    name: &'static str,
    is_shut_down: AtomicBool,
}

impl SharedDestination {
    pub fn new(destination: Box<dyn Destination>, name: &'static str) -> Arc<Self> {
        Arc::new(SharedDestination { destination, name, is_shut_down: AtomicBool::new(false) })
    }

    /// Sends a batch. The outcome accounts for each span, whatever the destination reports. If it
    /// panics, the batch is lost.
    pub(super) fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
        if spans.is_empty() {
            return DeliveryReport::default();
        }
        let all = spans.len() as u64;
        match self.guarded(|destination| Ok(destination.deliver(spans))) {
            Ok(report) => self.reconciled(report, all),
            Err(error) => DeliveryReport::lost(error, all),
        }
    }

    fn reconciled(&self, mut report: DeliveryReport, spans: u64) -> DeliveryReport {
        let delivered = report.delivery.accepted.saturating_add(report.delivery.rejected);
        let known = delivered.saturating_add(report.lost.total());
        if known > spans {
            let error = self.failure(format!("it reported {known} outcomes for {spans} spans"));
            return DeliveryReport::lost(error, spans);
        }
        if known < spans {
            let error = self.failure(format!("it did not account for {} of {spans} spans", spans - known));
            report.lose(error, spans - known);
        }
        report
    }

    fn failure(&self, detail: String) -> ExportError {
        ExportError::new(ErrorKind::ExporterFailed, self.name, detail)
    }

    /// Asks the destination something. This runs on the service's threads, possibly inside a call
    /// of `tracing`, where their subscriber must not be replaced. So that subscriber sees what the
    /// destination traces.
    pub fn ask<T: Default>(&self, question: impl FnOnce(&dyn Destination) -> T) -> T {
        caught(|| question(&*self.destination), |_| T::default())
    }

    pub fn waiting(&self) -> Option<String> {
        self.ask(|destination| destination.counter().read().waiting.map(|error| error.to_string()))
    }

    /// Whether exports wait because no server listens, and none was ever reached.
    pub fn is_absent(&self) -> bool {
        self.ask(|destination| {
            let counts = destination.counter().read();
            let is_refused = |error: &ExportError| error.kind() == ErrorKind::NothingListens;
            counts.sent + counts.rejected == 0 && counts.waiting.as_ref().is_some_and(is_refused)
        })
    }

    pub(super) fn flush(&self) -> Result<(), ExportError> {
        self.guarded(|destination| destination.flush())
    }

    /// Shuts the destination down, unless that was done before. May be called while another thread
    /// exports: a destination that is waiting for its server then gives up, and so does every later
    /// export.
    pub fn shut_down(&self, timeout: Duration) -> Result<(), ExportError> {
        // The swap lets exactly one caller through.
        if self.is_shut_down.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.guarded(|destination| destination.shut_down(timeout))
    }

    /// Calls the destination. A panic becomes an error, and the next batch is tried again. Whatever
    /// the destination traces or logs on this thread reaches no subscriber: exporting spans must
    /// not create spans.
    ///
    /// The subscriber is replaced only for the duration of the call. While any thread of a process
    /// has a scoped subscriber, `tracing` looks up the subscriber through a thread-local on all
    /// threads, which costs about 40 more instructions per span and event.
    ///
    /// If the thread has no subscriber, none is replaced. The thread may then be inside a call of
    /// its subscriber, where `tracing` reports none, and replacing the subscriber there panics.
    pub(super) fn guarded<R>(
        &self,
        call: impl FnOnce(&dyn Destination) -> Result<R, ExportError>,
    ) -> Result<R, ExportError> {
        let is_heard = !dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>());
        let _silent = is_heard.then(|| dispatcher::set_default(&Dispatch::none()));
        caught(
            || call(&*self.destination),
            |panic| {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                let error = self.failure(format!("it panicked: {text}"));
                // An HTTP client that needs a runtime, on the exporter's thread, which has none.
                Err(match text.contains("no reactor running") {
                    true => error.with_remedy(
                        "use a blocking client, such as opentelemetry-otlp's feature reqwest-blocking-client",
                    ),
                    false => error,
                })
            },
        )
    }
}

/// The spans of a report that were not accepted, by the SDK's reasons.
pub(super) fn losses(report: &DeliveryReport) -> Losses {
    let mut losses = Losses { partially_rejected: report.delivery.rejected, ..Losses::default() };
    for (kind, spans) in report.lost.iter() {
        *reason(&mut losses, kind) += spans;
    }
    losses
}

/// The reason of a report's losses in words.
pub(super) fn message(report: &DeliveryReport) -> Option<String> {
    let delivery = &report.delivery;
    let of_server = match (&*delivery.message, delivery.rejected) {
        (_, 0) => None,
        ("", rejected) => Some(format!("the destination rejected {rejected} spans without giving a reason")),
        (message, rejected) => Some(format!("the destination rejected {rejected} spans: {message}")),
    };
    report.error.as_ref().map(|error| error.to_string()).or(of_server)
}

/// The server's text beside a success. A page that is not an OTLP response is the only sign of
/// spans that reached the wrong server.
pub(super) fn note(report: &DeliveryReport) -> Option<String> {
    let DeliveryReport { delivery, error, .. } = report;
    let is_note = error.is_none() && delivery.rejected == 0 && !delivery.message.is_empty();
    is_note.then(|| format!("the destination accepted the spans, but replied: {}", delivery.message))
}

fn reason(losses: &mut Losses, kind: ErrorKind) -> &mut u64 {
    match kind {
        ErrorKind::TooLarge => &mut losses.too_large,
        ErrorKind::Full => &mut losses.spool_full,
        ErrorKind::ShutDown => &mut losses.deadline,
        // Temporary failures: they were retried until the batch was too old.
        ErrorKind::NothingListens
        | ErrorKind::UnknownHost
        | ErrorKind::ConnectionLost
        | ErrorKind::TimedOut
        | ErrorKind::Throttled
        | ErrorKind::Unavailable
        | ErrorKind::Expired => &mut losses.expired,
        // Permanent failures: the server would give the same response to every retry. (An expired
        // certificate was retried.)
        ErrorKind::UntrustedCertificate
        | ErrorKind::ClientCertificate
        | ErrorKind::PlainServer
        | ErrorKind::TlsServer
        | ErrorKind::GrpcPort
        | ErrorKind::HttpPort
        | ErrorKind::WrongPath
        | ErrorKind::BadRequest
        | ErrorKind::Unauthenticated
        | ErrorKind::Forbidden
        | ErrorKind::UnsupportedMedia
        | ErrorKind::ServerFailed => &mut losses.rejected,
        _ => &mut losses.export_failed,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use astracer_model::destination::Delivery;

    use super::*;

    /// After a server's warning, or a page that is not an OTLP response, nothing is lost, but the
    /// message is reported.
    #[test]
    fn what_a_destination_says_of_a_success_is_a_note() {
        let of =
            |message: &str| DeliveryReport::delivered(Delivery::new(1, 0).with_message(message.to_owned()));
        assert_eq!((message(&of("")), note(&of(""))), (None, None));
        let replied = of("<html>");
        assert_eq!(losses(&replied).total(), 0);
        let expected = "the destination accepted the spans, but replied: <html>";
        assert_eq!((message(&replied), note(&replied).as_deref()), (None, Some(expected)));
    }
}
