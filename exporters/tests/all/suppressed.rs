//! The exporters' own threads must not make recorded spans. Otherwise each export would be traced,
//! and its spans exported by the next one.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use astracer_exporters::{Counter, DeliveryReport, Destination, ExportError, Otlp, SpoolMode, Spooled};
use astracer_model::Span;
use opentelemetry::Context;
use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::{Dispatch, Event, Metadata, Subscriber};

use super::faults::spans;
use super::otlp_grpc::{GrpcSink, otlp};
use super::otlp_http::send;

/// The name of each span that an exporter's thread made, and whether it would be recorded.
static MADE: Mutex<Vec<(&str, bool)>> = Mutex::new(Vec::new());

/// The process's subscriber, which sees all threads.
struct Watch;

impl Subscriber for Watch {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        if thread::current().name().is_some_and(|name| name.starts_with("astracer-")) {
            let is_recorded = !Context::is_current_telemetry_suppressed();
            MADE.lock().unwrap().push((attributes.metadata().name(), is_recorded));
        }
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn current_span(&self) -> Current {
        Current::none()
    }
}

/// A destination that notes each call as the subscriber notes each span.
#[derive(Debug)]
struct Traces(Otlp);

impl Destination for Traces {
    fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
        MADE.lock().unwrap().push(("deliver", !Context::is_current_telemetry_suppressed()));
        self.0.deliver(spans)
    }

    fn counter(&self) -> Counter {
        self.0.counter()
    }

    fn shut_down(&self, timeout: Duration) -> Result<(), ExportError> {
        self.0.shut_down(timeout)
    }
}

#[test]
fn threads_of_exporters_record_nothing() {
    tracing_core::dispatcher::set_global_default(Dispatch::new(Watch)).unwrap();
    let sink = GrpcSink::new([]);
    assert_eq!(send(&otlp(&sink).build().unwrap(), 1..=3).unwrap().accepted, 3);
    // A destination that makes a span in each call, behind a spool.
    let folder = tempfile::tempdir().unwrap();
    let spooled = Spooled::builder(folder.path()).with_mode(SpoolMode::Durable);
    let spooled = spooled.open(Traces(otlp(&sink).build().unwrap())).unwrap();
    assert_eq!(spooled.send(&spans(1..=1)).unwrap().accepted, 1);
    assert_eq!(spooled.drain(Duration::from_secs(60)), 0);
    drop(spooled);
    let made = MADE.lock().unwrap().clone();
    let names = made.iter().map(|(name, _)| *name);
    assert!(names.clone().count() > 1 && names.clone().any(|name| name == "deliver"), "{made:?}");
    assert!(made.iter().all(|(_, is_recorded)| !is_recorded), "{made:?}");
}
