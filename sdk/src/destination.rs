//! Destinations of astracer-exporters: maps the outcome of each batch to the SDK's reasons for
//! losses.

use std::time::Duration;

use astracer_exporters::{DeliveryReport, Destination, ErrorKind, Exporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use crate::builder::Builder;
use crate::export::{CountingExporter, Exported};
use crate::stats::Losses;

impl Builder {
    /// Exports kept traces to a destination of astracer-exporters. Unlike
    /// [`with_exporter`](Self::with_exporter), this makes [`Stats`](crate::Stats) report each loss
    /// by its reason, and the reason why exports wait.
    pub fn with_destination(self, destination: impl Destination + 'static) -> Self {
        self.with_counting_exporter(Counted(Exporter::new(destination)))
    }
}

#[derive(Debug)]
struct Counted<D>(Exporter<D>);

impl<D: Destination> SpanExporter for Counted<D> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.export(batch).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

impl<D: Destination> CountingExporter for Counted<D> {
    fn export_and_count(&self, batch: Vec<SpanData>) -> Exported {
        exported(self.0.deliver(&batch))
    }

    fn waiting(&self) -> Option<String> {
        self.0.counter().read().waiting.map(|error| error.to_string())
    }

    fn unanswered(&self) -> Option<String> {
        self.0.counter().unanswered()
    }

    fn warnings(&self) -> Vec<String> {
        self.0.destination().warnings()
    }

    fn undelivered(&self) -> Option<String> {
        self.0.destination().undelivered()
    }

    fn exports_in_flight(&self) -> usize {
        self.0.destination().in_flight()
    }
}

fn exported(DeliveryReport { delivery, lost, error }: DeliveryReport) -> Exported {
    let mut losses = Losses { partially_rejected: delivery.rejected, ..Losses::default() };
    for (kind, spans) in lost.iter() {
        *reason(&mut losses, kind) += spans;
    }
    // A warning, or a page that is not an OTLP response, is the only sign of spans that reached the
    // wrong server.
    let message = match (&*delivery.message, delivery.rejected) {
        ("", 0) => None,
        (message, 0) => {
            Some(format!("the destination accepted {} spans, but replied: {message}", delivery.accepted))
        }
        ("", rejected) => Some(format!("the destination rejected {rejected} spans without giving a reason")),
        (message, rejected) => Some(format!("the destination rejected {rejected} spans: {message}")),
    };
    Exported::new(delivery.accepted, losses, error.map(|error| error.to_string()).or(message))
}

/// The SDK's reason for an exporter's failure.
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

#[cfg(all(test, feature = "enabled", not(loom)))]
mod tests {
    use std::sync::{Arc, Mutex};

    use astracer_exporters::{Counter, Delivery, ExportError};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::Astracer;

    /// Returns outcomes in turn.
    #[derive(Clone, Debug, Default)]
    struct Scripted(Arc<Mutex<Vec<DeliveryReport>>>);

    impl Destination for Scripted {
        fn deliver(&self, _: &[astracer_exporters::Span<'_>]) -> DeliveryReport {
            self.0.lock().unwrap().pop().unwrap()
        }

        fn counter(&self) -> Counter {
            Counter::default()
        }

        fn shut_down(&self, _: Duration) -> Result<(), ExportError> {
            Ok(())
        }
    }

    #[test]
    fn stats_have_each_loss_by_its_reason() {
        let script = Scripted::default();
        let lost = |kind| DeliveryReport::lost(ExportError::new(kind, "there", "so it is"), 1);
        let mut partly = Delivery::new(0, 1);
        partly.message = "too old".to_owned();
        let outcomes = [
            (
                DeliveryReport::delivered(partly),
                "partially_rejected",
                "the destination rejected 1 spans: too old",
            ),
            (lost(ErrorKind::Forbidden), "rejected", "the server denied access"),
            (lost(ErrorKind::Unavailable), "expired", "unavailable"),
            (lost(ErrorKind::TooLarge), "too_large", "exceeds the size limit"),
            (lost(ErrorKind::Full), "spool_full", "the limit on the total size"),
            (lost(ErrorKind::File), "export_failed", "could not be written"),
        ];
        let builder = Astracer::builder().with_sampler("always".parse().unwrap());
        let astracer = builder.with_destination(script.clone()).build().unwrap();
        for (outcome, reason, says) in outcomes {
            script.0.lock().unwrap().push(outcome);
            let dispatch = tracing_subscriber::registry().with(astracer.layer.clone());
            tracing::subscriber::with_default(dispatch, || tracing::info_span!("work").in_scope(|| ()));
            let error = astracer.handle.flush(Duration::from_secs(60)).unwrap_err();
            assert_eq!(error.spans_lost(), 1, "{reason}");
            assert!(error.to_string().contains(says), "{error}");
            let stats = astracer.handle.stats();
            let found = stats.spans_lost.iter().find(|(name, _)| *name == reason).unwrap();
            assert_eq!(found.1, 1, "{reason} {stats:?}");
        }
    }

    /// After a server's warning, or a page that is not an OTLP response, nothing is lost, but the
    /// message is reported.
    #[test]
    fn what_a_destination_says_of_a_success_is_the_last_error() {
        let mut taken = Delivery::new(1, 0);
        assert_eq!(exported(DeliveryReport::delivered(taken.clone())).error, None);
        taken.message = "<html>".to_owned();
        let exported = exported(DeliveryReport::delivered(taken));
        assert_eq!((exported.accepted, exported.lost.total()), (1, 0));
        assert_eq!(exported.error.as_deref(), Some("the destination accepted 1 spans, but replied: <html>"));
    }
}
