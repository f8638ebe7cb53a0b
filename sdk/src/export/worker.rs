//! The exporter's thread: converts records to `SpanData` and hands them to the exporter.

// Batches come from the queue in boxes.
#![allow(clippy::vec_box)]

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing_core::dispatcher::{self, Dispatch};

use super::convert::Converter;
use super::queue::{Queue, Work, counted};
use crate::core::Shared;
use crate::record::Batch;
use crate::stats::{Counted, Counters, Loss};
use crate::sync::{AtomicBool, Ordering};

/// An exporter of any type.
pub(crate) trait Export: Send + Sync + fmt::Debug {
    fn set_resource(&mut self, resource: &Resource);
    fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult;
    fn force_flush(&self) -> OTelSdkResult;
    fn shut_down(&self, timeout: Duration) -> OTelSdkResult;
}

impl<E: SpanExporter> Export for E {
    fn set_resource(&mut self, resource: &Resource) {
        SpanExporter::set_resource(self, resource);
    }

    fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        futures_executor::block_on(SpanExporter::export(self, batch))
    }

    fn force_flush(&self) -> OTelSdkResult {
        SpanExporter::force_flush(self)
    }

    fn shut_down(&self, timeout: Duration) -> OTelSdkResult {
        self.shutdown_with_timeout(timeout)
    }
}

/// The exporter, for the thread that exports and for the one that shuts down.
#[derive(Debug)]
pub(crate) struct SharedExporter {
    exporter: Box<dyn Export>,
    is_shut_down: AtomicBool,
}

impl SharedExporter {
    pub(crate) fn new(exporter: Box<dyn Export>) -> Arc<Self> {
        Arc::new(SharedExporter { exporter, is_shut_down: AtomicBool::new(false) })
    }

    /// Shuts the exporter down unless that was done before. May be called while another thread exports: an exporter that
    /// waits for its destination then gives up, and so does every export after it.
    pub(crate) fn shut_down(&self, timeout: Duration) -> OTelSdkResult {
        if self.is_shut_down.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        guarded(|| self.exporter.shut_down(timeout))
    }
}

pub(crate) struct Worker {
    pub(crate) queue: Arc<Queue>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) converter: Converter,
    pub(crate) exporter: Arc<SharedExporter>,
    /// For traces that have become old. Weak: when the last layer and handle are gone, this thread ends.
    pub(crate) shared: Weak<Shared>,
    /// The time after which the worker looks for old traces, if nothing else wakes it.
    pub(crate) idle: Duration,
}

/// The time that the exporter may take to shut down, once the queue is empty.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

impl Worker {
    /// Works until the queue is closed and empty. No subscriber hears anything that the exporter itself traces or logs on
    /// this thread: neither our layer nor another one may make spans of the export of spans.
    pub(crate) fn run(mut self) {
        let _silent = dispatcher::set_default(&Dispatch::none());
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let mut taken = VecDeque::new();
        loop {
            let work = self.queue.next(&mut taken, self.idle);
            if let Some(shared) = self.shared.upgrade() {
                shared.expire_traces();
            }
            match work {
                Work::Idle => {}
                Work::Export { flush } => {
                    self.converter.compare_clocks();
                    while !taken.is_empty() {
                        let batches = self.queue.split(&mut taken);
                        self.export(batches);
                    }
                    if let Some(flush) = flush {
                        self.note(guarded(|| self.exporter.exporter.force_flush()));
                        self.queue.flushed(flush);
                    }
                }
                Work::End => break,
            }
        }
        self.note(self.exporter.shut_down(SHUTDOWN_TIMEOUT));
        self.queue.ended();
    }

    fn export(&mut self, mut batches: Vec<Box<Batch>>) {
        let counts = batches.iter().map(|batch| counted(batch));
        let all = counts.fold(Counted::default(), |all, batch| Counted {
            spans: all.spans + batch.spans,
            roots: all.roots + batch.roots,
        });
        let mut spans = Vec::with_capacity(all.spans as usize);
        // Conversion is our code; were it to panic, the spans would be lost, and counted, and the thread go on.
        let converted = guarded(|| {
            for batch in &mut batches {
                batch.each(|trace| self.converter.convert(trace, &mut spans));
            }
            Ok(())
        });
        self.queue.recycle(batches);
        let exported = converted.and_then(|()| guarded(|| self.exporter.exporter.export(spans)));
        if self.note(exported) {
            self.counters.exported(all);
        } else {
            self.counters.lose(Loss::ExportFailed, all);
        }
    }

    fn note(&self, result: OTelSdkResult) -> bool {
        match result {
            Ok(()) => true,
            Err(error) => {
                self.queue.failed(error.to_string());
                false
            }
        }
    }
}

/// Turns a panic into an error: the next batch is tried again.
fn guarded(f: impl FnOnce() -> OTelSdkResult) -> OTelSdkResult {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(OTelSdkError::InternalFailure(format!("the exporter panicked: {text}")))
    })
}

#[cfg(all(test, feature = "enabled", not(loom)))]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{Astracer, DroppedSpans};

    /// Notes whether its thread has a scoped subscriber of its own, so that a global one does not hear it.
    #[derive(Clone, Debug, Default)]
    struct Listens(Arc<Mutex<Vec<bool>>>);

    impl SpanExporter for Listens {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            let none =
                dispatcher::get_default(|dispatch| dispatch.is::<tracing_core::subscriber::NoSubscriber>());
            self.0.lock().unwrap().push(none);
            Ok(())
        }
    }

    /// A global subscriber, as services have: this binary has no other test that needs one.
    #[test]
    fn what_the_exporter_traces_does_not_come_back() {
        use tracing_subscriber::layer::SubscriberExt as _;
        let exporter = Listens::default();
        let builder = Astracer::builder()
            .with_dropped_spans(DroppedSpans::Visible)
            .with_sampler("always".parse().unwrap());
        let astracer = builder.with_exporter(exporter.clone()).build().unwrap();
        let subscriber = tracing_subscriber::registry().with(astracer.layer);
        dispatcher::set_global_default(Dispatch::new(subscriber)).unwrap();
        tracing::info_span!("root").in_scope(|| ());
        astracer.handle.flush(Duration::from_secs(60)).unwrap();
        assert_eq!(*exporter.0.lock().unwrap(), [true]);
    }
}
