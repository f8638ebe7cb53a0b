//! From the queue to the exporter: policies for a full queue, exports in flight, and exporters that
//! count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use astracer_sdk::WhenQueueFull;
use astracer_sdk::destination::{self, Counter, Delivery, DeliveryReport, ErrorKind, ExportError};
use astracer_testing::{Call, Calls, Delivering, Exporting};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing::{Span, info_span};

use crate::late::{fails, late, tail};
use crate::support::{TIMEOUT, World, world};

/// A world whose queue has room for this many traces, each a batch of its own.
fn small_queue(gate: &Gate, traces: usize, when_full: WhenQueueFull) -> World {
    world(|builder| {
        let builder = builder.with_batch_spans(1).with_queue_traces_max(traces);
        builder.with_when_full(when_full).with_exporter(gate.exporter())
    })
}

/// A destination that blocks exports until it is opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    is_open: bool,
    /// Blocked exports now, and at most so far.
    waiting: usize,
    waiting_max: usize,
    names: Vec<String>,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.0.0.lock().unwrap().is_open = true;
        self.0.1.notify_all();
    }

    fn wait_for(&self, waiting: usize) {
        let state = self.0.0.lock().unwrap();
        let result =
            self.0.1.wait_timeout_while(state, TIMEOUT, |state| state.waiting_max < waiting).unwrap();
        assert!(!result.1.timed_out(), "{waiting} exports should be in flight");
    }

    fn names(&self) -> Vec<String> {
        self.0.0.lock().unwrap().names.clone()
    }

    /// An exporter whose exports pass the gate. Its shutdown opens it.
    pub(crate) fn exporter(&self) -> impl SpanExporter + 'static + use<> {
        let own = self.clone();
        Calls(move |call| {
            match call {
                Call::Export(batch) => own.pass(batch.iter().map(|span| span.name.to_string())),
                Call::Flush => {}
                Call::ShutDown(_) => own.open(),
            }
            Ok(())
        })
    }

    fn pass(&self, names: impl Iterator<Item = String>) {
        self.pass_within(Duration::MAX, names);
    }

    /// Passes although the gate is closed when this time is over.
    fn pass_within(&self, time: Duration, names: impl Iterator<Item = String>) {
        let mut state = self.0.0.lock().unwrap();
        state.waiting += 1;
        state.waiting_max = state.waiting_max.max(state.waiting);
        self.0.1.notify_all();
        let mut state = self.0.1.wait_timeout_while(state, time, |state| !state.is_open).unwrap().0;
        state.waiting -= 1;
        state.names.extend(names);
    }
}

#[test]
fn exports_in_flight_are_as_many_as_asked_for() {
    for exports in [1, 3] {
        let gate = Gate::default();
        let world = world(|builder| {
            builder.with_batch_spans(1).with_exports_in_flight(exports).with_exporter(gate.exporter())
        });
        world.roots("request", 10);
        gate.wait_for(exports);
        let error = world.handle.flush(Duration::from_millis(20)).unwrap_err();
        assert_eq!((error.is_timeout(), error.spans_left(), error.spans_lost()), (true, 10, 0), "{error}");
        gate.open();
        world.handle.flush(TIMEOUT).unwrap();
        world.handle.shutdown(TIMEOUT).unwrap();
        assert_eq!(
            (world.handle.stats().spans_exported, gate.0.0.lock().unwrap().waiting_max),
            (10, exports)
        );
    }
}

/// While one batch is in flight, the queue keeps what came first.
#[test]
fn a_full_queue_sheds_the_newest_traces() {
    let gate = Gate::default();
    let world = small_queue(&gate, 2, WhenQueueFull::default());
    world.inside(|| {
        for number in 0..10 {
            info_span!("request", otel.name = number.to_string()).in_scope(|| ());
            // The first trace is in flight, and no longer in the queue.
            gate.wait_for(1);
        }
    });
    gate.open();
    // The flush succeeds: what was shed was never queued.
    world.handle.flush(TIMEOUT).unwrap();
    assert_eq!(gate.names(), ["0", "1", "2"]);
    let stats = world.handle.stats();
    assert_eq!((stats.spans_lost.queue_full, stats.calls_lost, stats.traces_lost.queue_full), (7, 7, 7));
}

const HOUR: Duration = Duration::from_secs(3_600);
const HEARTBEAT: &str = "astracer.heartbeat";

/// "This function will never be called concurrently for the same exporter instance"
/// (opentelemetry_sdk, `SpanExporter::export`).
#[test]
fn a_heartbeat_waits_for_the_export_that_is_under_way() {
    let gate = Gate::default();
    let own = gate.clone();
    let exporter = Exporting(move |batch: Vec<SpanData>| {
        // A second call has this time to begin.
        own.pass_within(Duration::from_millis(300), batch.iter().map(|span| span.name.to_string()));
        Ok(())
    });
    let world = world(|builder| builder.with_batch_spans(1).with_heartbeat(HOUR).with_exporter(exporter));
    world.roots("request", 1);
    gate.wait_for(1);
    // The shutdown sends the last heartbeat.
    world.handle.shutdown(TIMEOUT).unwrap();
    let state = gate.0.0.lock().unwrap();
    assert_eq!((state.waiting_max, &*state.names), (1, &["request", HEARTBEAT].map(str::to_owned)[..]));
    assert_eq!(world.handle.heartbeat_spans(), (1, 0));
}

/// If several exports may be in flight, a heartbeat does not wait for any of them.
#[test]
fn a_heartbeat_is_one_of_several_exports() {
    let gate = Gate::default();
    let own = gate.clone();
    let exporter = Exporting(move |batch: Vec<SpanData>| {
        if batch[0].name == HEARTBEAT {
            own.open();
        }
        own.pass(batch.iter().map(|span| span.name.to_string()));
        Ok(())
    });
    let world = world(|builder| {
        let builder = builder.with_batch_spans(1).with_exports_in_flight(2).with_heartbeat(HOUR);
        builder.with_exporter(exporter)
    });
    world.roots("request", 1);
    gate.wait_for(1);
    world.handle.shutdown(TIMEOUT).unwrap();
    assert_eq!(world.handle.heartbeat_spans(), (1, 0));
    assert_eq!(world.handle.stats().spans_exported, 1);
}

#[test]
fn a_blocking_queue_loses_nothing() {
    let gate = Gate::default();
    let world = small_queue(&gate, 2, WhenQueueFull::Block(TIMEOUT));
    thread::scope(|scope| {
        let opens = scope.spawn(|| {
            gate.wait_for(1);
            thread::sleep(Duration::from_millis(20));
            assert!(world.handle.stats().spans_made <= 4, "{:?}", world.handle.stats());
            gate.open();
        });
        world.roots("request", 100);
        opens.join().unwrap();
    });
    world.handle.flush(TIMEOUT).unwrap();
    let stats = world.handle.stats();
    assert_eq!((stats.spans_exported, stats.spans_lost.total()), (100, 0));
}

#[test]
fn a_blocking_queue_waits_until_its_deadline() {
    let gate = Gate::default();
    let world = small_queue(&gate, 1, WhenQueueFull::Block(Duration::from_millis(5)));
    let start = Instant::now();
    world.roots("request", 20);
    // The destination never comes back: each trace beyond the bound waits for its 5 ms.
    assert!(start.elapsed() < TIMEOUT);
    let lost = world.handle.stats().spans_lost.queue_full;
    assert!((15..20).contains(&lost), "{lost}");
    let error = world.handle.shutdown(Duration::from_millis(5)).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    let _ = world.handle.shutdown(TIMEOUT);
    let stats = world.handle.stats();
    assert_eq!(stats.spans_made, stats.spans_exported + stats.spans_lost.total(), "{stats:?}");
    assert!(stats.spans_lost.deadline > 0, "{stats:?}");
}

/// The counter of a destination whose requests wait.
fn away() -> Counter {
    let counter = Counter::default();
    counter.set_waiting(Some(ExportError::new(ErrorKind::Unavailable, "there", "the server is away")));
    counter
}

#[test]
pub(crate) fn an_exporter_that_counts_gives_every_loss_its_reason() {
    let calls = AtomicU64::new(0);
    let picky = move |batch: &[destination::Span<'_>]| {
        let call = calls.fetch_add(1, Ordering::Relaxed) + 1;
        let spans = batch.len() as u64;
        let mut report = DeliveryReport::default();
        let mut lose =
            |kind, spans| report.lose(ExportError::new(kind, "there", format!("call {call}")), spans);
        match call {
            1 => lose(ErrorKind::BadRequest, 0),
            2 => [ErrorKind::BadRequest, ErrorKind::TooLarge].into_iter().for_each(|kind| lose(kind, 1)),
            3 => lose(ErrorKind::Unavailable, spans),
            4 => lose(ErrorKind::Full, spans),
            // Counts more spans than the batch has.
            5 => lose(ErrorKind::BadRequest, spans + 1),
            _ => {}
        }
        let rejected = u64::from(call == 1);
        // Counts fewer.
        let accepted = if call == 6 { 1 } else { spans.saturating_sub(report.lost.total() + rejected) };
        report.delivery = Delivery::new(accepted, rejected);
        report
    };
    let world = world(|builder| builder.with_batch_spans(1_000).with_destination(Delivering(picky, away)));
    for call in 1..=7 {
        world.roots("request", 10);
        let flushed = world.handle.flush(TIMEOUT);
        assert_eq!(flushed.as_ref().is_err_and(|error| error.is_export_failure()), call < 7, "{flushed:?}");
        if call == 2 {
            let error = flushed.unwrap_err();
            assert_eq!(error.spans_lost(), 2);
            assert!(error.to_string().starts_with("2 spans were lost; there: "), "{error}");
            assert!(error.to_string().contains("(call 2)"), "{error}");
        }
    }
    let stats = world.handle.stats();
    let reasons: Vec<_> = stats.spans_lost.iter().filter(|(_, spans)| *spans > 0).collect();
    let expected = [
        ("rejected", 1),
        ("partially_rejected", 1),
        ("too_large", 1),
        ("expired", 10),
        ("spool_full", 10),
        ("export_failed", 19),
    ];
    assert_eq!((reasons, stats.spans_exported, stats.spans_made), (expected.to_vec(), 9 + 8 + 1 + 10, 70));
    assert_eq!((stats.spans_waiting, stats.traces_open, stats.calls_lost), (0, 0, 30));
    assert!(stats.waiting.as_ref().is_some_and(|why| why.contains("(the server is away)")), "{stats}");
    assert!(stats.to_string().contains("42 lost (rejected 1, partially_rejected 1"), "{stats}");
    assert!(stats.to_string().contains("exports wait: there: "), "{stats}");
}

#[test]
fn a_late_flush_reports_the_exporters_reason() {
    let gate = Gate::default();
    let own = gate.clone();
    // Waits for a server, as an exporter with retries does.
    let waits = move |batch: &[destination::Span<'_>]| {
        own.pass(batch.iter().map(|span| span.name.to_string()));
        DeliveryReport::delivered(Delivery::all(batch))
    };
    let world = world(|builder| builder.with_destination(Delivering(waits, away)));
    world.roots("request", 10);
    let error = world.handle.flush(Duration::from_millis(1)).unwrap_err();
    assert!(error.is_timeout());
    assert!(error.to_string().contains("; there: ") && error.to_string().contains("away"), "{error}");
    gate.open();
    world.handle.flush(TIMEOUT).unwrap();
}

/// A flush hands over many parts at once. If the service blocks for space in the queue, the flush
/// does too.
#[test]
fn a_flush_waits_for_space_where_the_service_does() {
    let gate = Gate::default();
    let world = small_queue(&gate, 2, WhenQueueFull::Block(TIMEOUT));
    let open: Vec<_> = world.inside(|| {
        let roots: Vec<_> = (0..20).map(|_| info_span!("root")).collect();
        roots.iter().for_each(|root| root.in_scope(|| info_span!("child").in_scope(|| ())));
        roots
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            gate.wait_for(1);
            thread::sleep(Duration::from_millis(20));
            gate.open();
        });
        world.handle.flush(TIMEOUT).unwrap();
    });
    let stats = world.handle.stats();
    assert_eq!((stats.spans_exported, stats.spans_lost.total(), stats.spans_open), (20, 0, 20));
    drop(open);
}

/// Failed recorded traces that reach the maximum age, and so the policies, while their roots are
/// open.
fn old_failed_traces(
    change: impl FnOnce(astracer_sdk::Builder) -> astracer_sdk::Builder,
) -> (World, Vec<Span>) {
    let world = late(tail("error()"), |builder| change(builder.with_batch_spans(1).with_queue_traces_max(2)));
    let open = world.inside(|| {
        let roots: Vec<_> = (0..10).map(|_| info_span!("root")).collect();
        roots.iter().for_each(fails);
        roots
    });
    (world, open)
}

/// Hand-over by age runs on the exporter's thread, which is also the one that frees space in the
/// queue.
#[test]
fn the_exporter_s_thread_does_not_wait_for_its_own_queue() {
    let (world, open) =
        old_failed_traces(|builder| builder.with_when_full(WhenQueueFull::Block(Duration::from_secs(3_600))));
    world.clock.advance(Duration::from_secs(1_000_000));
    for _ in 0..100 {
        world.handle.flush(TIMEOUT).unwrap();
        if world.handle.stats().spans_exported == 10 {
            break;
        }
    }
    let stats = world.handle.stats();
    assert_eq!((stats.spans_exported, stats.spans_lost.total()), (10, 0));
    drop(open);
}

#[test]
fn a_shutdown_ends_in_time_where_the_service_waits() {
    let gate = Gate::default();
    let (world, open) = old_failed_traces(|builder| {
        builder.with_when_full(WhenQueueFull::Block(Duration::from_secs(5))).with_exporter(gate.exporter())
    });
    let began = Instant::now();
    let error = world.handle.shutdown(Duration::from_millis(100)).unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(error.is_timeout());
    drop(open);
}
