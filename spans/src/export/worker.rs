//! The exporter's threads, which convert records to spans and pass them to the destination.

use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;

use astracer_model::Span;
use astracer_model::destination::DeliveryReport;
use astracer_model::otlp::otlp_size;
use opentelemetry::{Context, TraceId};

use super::convert::{Converter, Texts};
use super::queue::{Queue, Taken, Work};
use super::shared::{SharedDestination, losses, message, note};
use crate::panics::caught;
use crate::record::Batch;
use crate::stats::{Counted, Loss};
use crate::sync::{AtomicUsize, Ordering};

/// Periodic work on open traces, which the exporter's threads do between batches.
pub trait Upkeep: Send + Sync + Debug {
    /// Does the work that is due. Our implementation does not block. The only service code it calls
    /// is guarded: policy functions, and the subscriber for warnings.
    fn run(&self);
}

/// Decides which traces of a batch may be sent: the cap on bytes.
pub trait Admission: Send + Sync + Debug {
    /// Whether the spans of a trace in this batch may be sent, all or none. `is_late` is true for a
    /// trace that the head sampler dropped; `bytes` measures the spans, and is called only if
    /// anything depends on their bytes.
    fn admits(&self, trace_id: TraceId, is_late: bool, bytes: &dyn Fn() -> u64) -> bool;
}

#[derive(Debug)]
pub struct Workers {
    pub queue: Arc<Queue>,
    pub destination: Arc<SharedDestination>,
    pub admission: Box<dyn Admission>,
    /// Weak, so that the threads end when the last layer and handle are dropped.
    pub upkeep: Weak<dyn Upkeep>,
    /// The time for which a worker waits for work before it does the upkeep anyway.
    pub idle: Duration,
    pub running: AtomicUsize,
}

#[derive(Debug)]
pub struct Worker {
    pub workers: Arc<Workers>,
    pub converter: Converter,
}

/// The time that the exporter may take to shut down after the queue is empty, if the shutdown has
/// no deadline.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// The share of the time until the deadline, and the maximum, that is reserved for an exporter that
/// has used up its own time: to sync a file, and to return.
const ANSWER_PART: u32 = 10;
const ANSWER_MAX: Duration = Duration::from_millis(500);

impl Worker {
    /// Works until the queue is closed and empty.
    pub fn run(mut self) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let workers = Arc::clone(&self.workers);
        loop {
            self.send_heartbeat();
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
        self.send_heartbeat();
        // The last thread shuts the destination down. As with `Arc`, the Release of the other
        // threads pairs with the Acquire of the last one, so their exports happen before the
        // shutdown.
        if workers.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            let left = workers.queue.time_left();
            let timeout = left.map_or(SHUTDOWN_TIMEOUT, |left| left - (left / ANSWER_PART).min(ANSWER_MAX));
            if let Err(error) = workers.destination.shut_down(timeout) {
                workers.queue.failed(error.to_string());
            }
            workers.queue.ended();
        }
    }

    fn export(&mut self, Taken { batches, counted, number }: Taken) {
        self.converter.anchors.compare();
        let workers = &*self.workers;
        workers.queue.release(&batches);
        let texts = Texts::of(&batches);
        // A panic in our conversion would lose the batch, which is counted; the thread goes on.
        let converted = workers.destination.guarded(|_| Ok(self.convert(&batches, &texts)));
        let (report, capped) = match converted {
            Ok((spans, capped)) => (workers.destination.deliver(&spans), capped),
            Err(error) => (DeliveryReport::lost(error, counted.spans), Counted::default()),
        };
        workers.queue.recycle(batches);
        workers.count(counted, capped, &report);
        let lost = counted.spans - report.delivery.accepted;
        let says = message(&report).or_else(|| {
            let spans = capped.spans;
            (spans > 0).then(|| format!("the cap on exported bytes was used up: {spans} spans lost"))
        });
        if let Some(note) = note(&report) {
            workers.queue.noted(&note);
        }
        if let Some(flush) = workers.queue.exported(number, lost, says) {
            workers.flush(flush);
        }
    }

    /// The spans of the traces that the cap on bytes admits, and counts of the others.
    fn convert<'a>(&'a self, batches: &'a [Box<Batch>], texts: &'a Texts) -> (Vec<Span<'a>>, Counted) {
        let mut spans = Vec::with_capacity(batches.iter().map(|batch| batch.spans()).sum());
        let mut refused = Counted::default();
        // Parts of one trace that follow each other are admitted together.
        let (mut start, mut counted) = (0, Counted::default());
        let mut traces = texts.traces(batches).peekable();
        while let Some((trace, state)) = traces.next() {
            self.converter.convert((trace, state), texts, &mut spans);
            counted = counted + trace.counted();
            let header = trace.header;
            if traces.peek().is_some_and(|(next, _)| next.header.trace_id == header.trace_id) {
                continue;
            }
            if !self.workers.admits(header.trace_id, header.kept_by.is_late(), &spans[start..]) {
                spans.truncate(start);
                refused = refused + counted;
            }
            (start, counted) = (spans.len(), Counted::default());
        }
        (spans, refused)
    }

    fn send_heartbeat(&self) {
        let Some(mut spans) = self.workers.queue.take_heartbeat() else { return };
        let all = spans.len() as u64;
        let resource = &self.converter.source.resource;
        spans.iter_mut().for_each(|span| span.resource = resource.clone());
        let trace_id = spans.first().map_or(TraceId::INVALID, |span| TraceId::from(span.trace_id.0));
        let send = || match self.workers.admits(trace_id, false, &spans) {
            true => self.workers.destination.deliver(&spans).delivery.accepted,
            false => 0,
        };
        let accepted = caught(send, |_| 0);
        self.workers.queue.heartbeat_sent(accepted, all.saturating_sub(accepted));
    }
}

impl Workers {
    fn admits(&self, trace_id: TraceId, is_late: bool, spans: &[Span<'_>]) -> bool {
        self.admission.admits(trace_id, is_late, &|| spans.iter().map(otlp_size).sum::<usize>() as u64)
    }

    fn flush(&self, flush: u64) {
        if let Err(error) = self.destination.flush() {
            self.queue.failed(error.to_string());
        }
        self.queue.flushed(flush);
    }

    /// Counts the outcome of a batch, and the spans that the cap on bytes refused. If any span was
    /// exported, all local roots count as exported, because destinations do not report which spans
    /// were lost.
    fn count(&self, counted: Counted, capped: Counted, report: &DeliveryReport) {
        let (mut roots, mut calls) = (counted.roots - capped.roots, counted.calls - capped.calls);
        if capped.spans > 0 {
            self.queue.counters.lose(Loss::Capped, capped);
        }
        if report.delivery.accepted > 0 {
            self.queue.counters.exported.add(Counted { spans: report.delivery.accepted, roots, calls });
            (roots, calls) = (0, 0.0);
        }
        let lost = losses(report);
        let is_abandoned = lost.total() > 0 && self.queue.is_abandoned();
        for (loss, spans) in lost.reasons() {
            let loss = if is_abandoned && loss == Loss::ExportFailed { Loss::Deadline } else { loss };
            self.queue.counters.lose(loss, Counted { spans, roots, calls });
            (roots, calls) = (0, 0.0);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use astracer_model::destination::{Counter, Delivery, Destination, ExportError};
    use opentelemetry::{SpanId, TraceFlags};

    use super::*;
    use crate::bounds::Bounds;
    use crate::clock::Clock;
    use crate::export::{Extras, Source};
    use crate::record::{Header, Record, SpanLimits};
    use crate::stats::{Counters, Tally};
    use crate::test_callsite::{BAD, METADATA};

    #[derive(Debug)]
    struct Accepts;

    impl Destination for Accepts {
        fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
            DeliveryReport::delivered(Delivery::all(spans))
        }

        fn counter(&self) -> Counter {
            Counter::default()
        }

        fn shut_down(&self, _: Duration) -> Result<(), ExportError> {
            Ok(())
        }
    }

    #[derive(Debug)]
    struct Nothing;

    impl Upkeep for Nothing {
        fn run(&self) {}
    }

    impl Admission for Nothing {
        fn admits(&self, _: TraceId, _: bool, _: &dyn Fn() -> u64) -> bool {
            true
        }
    }

    /// In tests, a span of the callsite `BAD` makes the converter panic.
    #[test]
    fn a_panic_of_the_converter_costs_its_batch_and_not_the_thread() {
        let counters = Arc::new(Counters::default());
        let bounds = Bounds { batch_spans: 1, ..Bounds::default() };
        let queue = Arc::new(Queue::new(bounds, counters.clone()));
        let upkeep: Arc<dyn Upkeep> = Arc::new(Nothing);
        let workers = Arc::new(Workers {
            queue: queue.clone(),
            destination: SharedDestination::new(Box::new(Accepts), "there"),
            admission: Box::new(Nothing),
            upkeep: Arc::downgrade(&upkeep),
            idle: Duration::from_secs(1),
            running: AtomicUsize::new(1),
        });
        let source = Source { resource: Arc::default(), scope: Arc::default() };
        let looks = (Extras::default(), &SpanLimits::default());
        let converter = Converter::new(Clock::default(), looks, source, Arc::new([]));
        for metadata in [&BAD, &METADATA] {
            let mut record = Record::new(metadata, (SpanId::from(1), SpanId::INVALID), (1, 2), None, 1);
            record.is_local_root = true;
            let header = Header {
                trace_id: TraceId::from(1),
                flags: TraceFlags::SAMPLED,
                began: 1,
                ..Header::default()
            };
            counters.tally(Tally::SpansMade, 1);
            counters.tally(Tally::TracesMade, 1);
            counters.tally(Tally::SpansEnded, 1);
            assert!(queue.push_span(header, record, None));
        }
        queue.close();
        Worker { workers, converter }.run();
        let stats = counters.read();
        assert_eq!((stats.spans_exported, stats.spans_lost.export_failed, stats.spans_waiting), (1, 1, 0));
        assert!(queue.last_error().unwrap().contains("panicked"));
    }
}
