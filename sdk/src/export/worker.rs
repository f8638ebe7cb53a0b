//! The exporter's threads, which convert records to `SpanData` and pass them to the exporter.

use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;

use opentelemetry::Context;

use super::convert::Converter;
use super::exporter::{Exported, SharedExporter, guarded};
use super::queue::{Queue, Taken, Work};
use crate::panics::caught;
use crate::stats::{Counted, Counters, Loss};
use crate::sync::{AtomicUsize, Ordering};

/// Periodic work on open traces, which the exporter's threads do between batches.
pub(crate) trait Upkeep: Send + Sync + Debug {
    /// Does the work that is due. Our implementation does not block. The only service code it calls
    /// is guarded: policy functions, and the subscriber for warnings.
    fn run(&self);
}

/// The state that the exporter's threads share.
#[derive(Debug)]
pub(crate) struct Workers {
    pub(crate) queue: Arc<Queue>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) exporter: Arc<SharedExporter>,
    /// Weak, so that the threads end when the last layer and handle are dropped.
    pub(crate) upkeep: Weak<dyn Upkeep>,
    /// The time for which a worker waits for work before it does the upkeep anyway.
    pub(crate) idle: Duration,
    /// The number of threads that have not ended.
    pub(crate) running: AtomicUsize,
}

/// One of the exporter's threads.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) workers: Arc<Workers>,
    pub(crate) converter: Converter,
}

/// The time that the exporter may take to shut down after the queue is empty, if the shutdown has
/// no deadline.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// The share of the time until the deadline, and the maximum, that is reserved for an exporter that
/// has used up its own time: to sync a file, and to return.
const ANSWER_PART: u32 = 10;
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// The time that the exporter may take to shut down, given the time left until the deadline.
fn time_to_shut_down(left: Option<Duration>) -> Duration {
    left.map_or(SHUTDOWN_TIMEOUT, |left| left - (left / ANSWER_PART).min(ANSWER_MAX))
}

impl Worker {
    /// Works until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let workers = Arc::clone(&self.workers);
        loop {
            workers.send_heartbeat();
            let work = workers.queue.next(workers.idle);
            if let Some(upkeep) = workers.upkeep.upgrade() {
                // Without `caught`, a panic here would end the thread and leave the batch it took
                // waiting forever.
                caught(|| upkeep.run(), |_| ());
            }
            match work {
                Work::Idle => {}
                Work::Export(taken) => self.export(taken),
                Work::Flush(flush) => workers.flush(flush),
                Work::End => break,
            }
        }
        // A heartbeat may have been queued last.
        workers.send_heartbeat();
        // The last thread shuts the exporter down. As with `Arc`, the Release of the other threads
        // pairs with the Acquire of the last one, so their exports happen before the shutdown.
        if workers.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            let timeout = time_to_shut_down(workers.queue.time_left());
            if let Err(error) = workers.exporter.shut_down(timeout) {
                workers.queue.failed(error.to_string());
            }
            workers.queue.ended();
        }
    }

    fn export(&mut self, taken: Taken) {
        let workers = Arc::clone(&self.workers);
        let (number, counted, mut batches) = (taken.number, taken.counted, taken.batches);
        let mut spans = Vec::with_capacity(counted.spans as usize);
        // If our conversion panicked, the spans would be lost and counted, and the thread would
        // continue.
        let converted = guarded(|| {
            self.converter.compare_clocks();
            for batch in &mut batches {
                batch.each(|trace| self.converter.convert(trace, &mut spans));
            }
            Ok(())
        });
        workers.queue.recycle(batches);
        let exported = match converted {
            Ok(()) => workers.exporter.export(spans),
            Err(error) => Exported::failed(counted.spans, error.to_string()),
        };
        workers.count(counted, &exported);
        let lost = counted.spans - exported.accepted;
        if let Some(flush) = workers.queue.exported(number, lost, exported.error) {
            workers.flush(flush);
        }
    }
}

impl Workers {
    /// Sends the pending heartbeat, if there is one.
    fn send_heartbeat(&self) {
        let Some(spans) = self.queue.take_heartbeat() else { return };
        let all = spans.len() as u64;
        let accepted = self.exporter.export(spans).accepted;
        self.queue.heartbeat_sent(accepted, all.saturating_sub(accepted));
    }

    fn flush(&self, flush: u64) {
        if let Err(error) = self.exporter.force_flush() {
            self.queue.failed(error.to_string());
        }
        self.queue.flushed(flush);
    }

    /// Counts the outcome of a batch. If any span was exported, all local roots count as exported,
    /// because exporters do not report which spans were lost. Only the cap on bytes reports its
    /// roots.
    fn count(&self, counted: Counted, exported: &Exported) {
        let refused = Counted {
            spans: 0,
            roots: exported.refused.roots.min(counted.roots),
            calls: (exported.refused.milli_calls as f64 / 1e3).min(counted.calls),
        };
        let (mut roots, mut calls) = (counted.roots - refused.roots, counted.calls - refused.calls);
        if exported.accepted > 0 {
            self.counters.exported(Counted { spans: exported.accepted, roots, calls });
            (roots, calls) = (0, 0.0);
        }
        let is_abandoned = exported.lost.total() > 0 && self.queue.is_abandoned();
        for (loss, spans) in exported.lost.reasons() {
            let loss = if is_abandoned && loss == Loss::ExportFailed { Loss::Deadline } else { loss };
            let own = if loss == Loss::Capped { refused } else { Counted::default() };
            self.counters.lose(loss, Counted { spans, roots: roots + own.roots, calls: calls + own.calls });
            (roots, calls) = (0, 0.0);
        }
    }
}

#[cfg(all(test, feature = "enabled", not(loom)))]
mod tests {
    use std::sync::Mutex;

    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SpanData, SpanExporter};
    use tracing_core::dispatcher::{self, Dispatch};

    use super::*;
    use crate::{Astracer, DroppedSpans};

    /// Records whether its thread has a scoped subscriber, which keeps spans from the global one.
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

    /// Uses a global subscriber, as services do: no other test in this binary needs one.
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

    /// In tests, a span with this name makes the converter panic.
    #[test]
    fn a_panic_of_the_converter_costs_its_batch_and_not_the_thread() {
        use tracing_subscriber::layer::SubscriberExt as _;
        let exporter = Listens::default();
        let builder = Astracer::builder().with_sampler("always".parse().unwrap());
        let astracer = builder.with_exporter(exporter.clone()).build().unwrap();
        let subscriber = tracing_subscriber::registry().with(astracer.layer.clone());
        dispatcher::with_default(&Dispatch::new(subscriber), || {
            tracing::info_span!("the converter panics").in_scope(|| ());
            let flushed = astracer.handle.flush(Duration::from_secs(60));
            assert!(flushed.is_err_and(|error| error.is_export_failure()));
            tracing::info_span!("root").in_scope(|| ());
            astracer.handle.flush(Duration::from_secs(60)).unwrap();
        });
        let stats = astracer.handle.stats();
        assert_eq!((stats.spans_exported, stats.spans_lost.export_failed, stats.spans_waiting), (1, 1, 0));
        assert!(stats.last_error.unwrap().contains("panicked"));
    }
}
