//! The exporter's thread: turns records into `SpanData` and hands them to the exporter.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing_core::dispatcher::{self, Dispatch};

use crate::layer::{Buffer, Converter, Parcel, Scratch};
use crate::queue::{Queue, Work};
use crate::stats::{Counters, Loss};

/// An exporter of whatever type.
pub(crate) trait Export: Send {
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

pub(crate) struct Worker {
    pub(crate) queue: Arc<Queue>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) converter: Converter,
    pub(crate) exporter: Box<dyn Export>,
}

/// How long the exporter may take to shut down, once the queue is empty.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

impl Worker {
    /// Works until the queue is closed and empty. What the exporter itself traces or logs on this thread goes nowhere:
    /// neither our layer nor another one may make spans of the export of spans.
    pub(crate) fn run(self) {
        let _silent = dispatcher::set_default(&Dispatch::none());
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let mut taken = VecDeque::new();
        let mut memory = (Buffer::default(), Scratch::default());
        loop {
            match self.queue.next(&mut taken) {
                Work::Export => {
                    while !taken.is_empty() {
                        self.export(self.queue.batch(&mut taken), &mut memory);
                    }
                }
                Work::Flush(number) => {
                    self.note(guarded(|| self.exporter.force_flush()));
                    self.queue.flushed(number);
                }
                Work::End => break,
            }
        }
        self.note(guarded(|| self.exporter.shut_down(SHUTDOWN_TIMEOUT)));
        self.queue.ended();
    }

    fn export(&self, mut bundles: Vec<Parcel>, (memory, scratch): &mut (Buffer, Scratch)) {
        let mut batch = Vec::with_capacity(bundles.iter().map(|bundle| bundle.spans()).sum());
        for bundle in &mut bundles {
            bundle.each(memory, |trace| self.converter.convert(trace, &mut batch, scratch));
        }
        self.queue.recycle(bundles);
        let spans = batch.len() as u64;
        if self.note(guarded(|| self.exporter.export(batch))) {
            self.counters.exported.fetch_add(spans, Ordering::Relaxed);
        } else {
            self.counters.lose(Loss::ExportFailed, spans);
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

/// A panic of the exporter's is an error of the exporter's: the next batch is tried again.
fn guarded(f: impl FnOnce() -> OTelSdkResult) -> OTelSdkResult {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(OTelSdkError::InternalFailure(format!("the exporter panicked: {text}")))
    })
}

#[cfg(all(test, feature = "enabled"))]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{Astracer, DroppedSpans};

    /// Says whether its thread has a scoped subscriber of its own, so that a global one does not hear it.
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
