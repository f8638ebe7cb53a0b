//! A flush returns in time, and by then every span that had ended is exported.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use astracer_testing::{Call, Calls, Exporting};
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing::info_span;

use crate::support::{TIMEOUT, draw, world};

/// Exports under load before the test gives up.
const EXPORTS_MAX: usize = 500;

/// A flush waits for the spans that had ended when it was called, not for later ones, even if
/// others flush those.
#[test]
fn a_flush_returns_under_load() {
    [false, true].into_iter().for_each(flush_under_load);
}

fn flush_under_load(others_flush: bool) {
    let ((ask, asked), (make, made)) = (channel(), channel());
    let (ask, made) = (Arc::new(Mutex::new(ask)), Mutex::new(made));
    let calls = Arc::new(AtomicUsize::new(0));
    let (asks, own) = (ask.clone(), calls.clone());
    // The service continues during an export: each waits until another trace has ended.
    let exporter = Exporting(move |_: Vec<SpanData>| {
        if own.fetch_add(1, Ordering::Relaxed) < EXPORTS_MAX && asks.lock().unwrap().send(()).is_ok() {
            let _ = made.lock().unwrap().recv();
        }
        Ok(())
    });
    let world = world(|builder| builder.with_batch_spans(1).with_exporter(exporter));
    let (dispatch, handle) = (world.dispatch.clone(), world.handle.clone());
    let service = std::thread::spawn(move || {
        tracing::dispatcher::with_default(&dispatch, || {
            for () in asked {
                (0..10).for_each(|_| info_span!("request").in_scope(|| ()));
                if others_flush {
                    let _ = handle.flush(Duration::ZERO);
                }
                let _ = make.send(());
            }
        });
    });
    world.inside(|| info_span!("first").in_scope(|| ()));
    world.handle.flush(TIMEOUT).unwrap();
    let calls = calls.swap(EXPORTS_MAX, Ordering::Relaxed);
    assert!(calls < EXPORTS_MAX / 2, "the flush waited for {calls} exports, {others_flush}");
    world.handle.shutdown(TIMEOUT).unwrap();
    *ask.lock().unwrap() = channel().0;
    service.join().unwrap();
}

/// A `main` span around the whole service never ends. Its children are exported anyway.
#[test]
fn a_flush_exports_what_has_ended_of_open_traces() {
    let world = world(|builder| builder);
    world.inside(|| {
        let main = info_span!("main").entered();
        info_span!("request", n = 1).in_scope(|| info_span!("query").in_scope(|| ()));
        assert_eq!(draw(&world.exported()), "request n=1\n  query\n");
        info_span!("request", n = 2).in_scope(|| ());
        assert_eq!(draw(&world.exported()), "request n=1\n  query\nrequest n=2\n");
        drop(main);
    });
    let spans = world.exported();
    assert_eq!(draw(&spans), "main\n  request n=1\n    query\n  request n=2\n");
}

/// An exporter whose destination is down: an export blocks until the exporter is shut down, and
/// then fails.
fn down() -> impl SpanExporter {
    let (is_shut_down, changed) = (Mutex::new(false), Condvar::new());
    Calls(move |call| {
        match call {
            Call::Export(_) => {
                drop(changed.wait_while(is_shut_down.lock().unwrap(), |is_it| !*is_it).unwrap());
                return Err(OTelSdkError::InternalFailure("the destination is down".to_owned()));
            }
            Call::Flush => {}
            Call::ShutDown(_) => {
                *is_shut_down.lock().unwrap() = true;
                changed.notify_all();
            }
        }
        Ok(())
    })
}

/// At the deadline of a shutdown, an exporter that waits for its destination is shut down, and
/// every remaining span is counted as lost.
#[test]
pub(crate) fn a_shutdown_during_an_outage_counts_what_is_left() {
    let world = world(|builder| builder.with_batch_spans(1).with_exporter(down()));
    world.inside(|| {
        (0..10).for_each(|_| info_span!("request").in_scope(|| ()));
    });
    let error = world.handle.shutdown(Duration::from_millis(1)).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(error.spans_left() + error.spans_lost(), 10, "{error}");
    // A second shutdown waits for the exporter's thread, however slow the machine is.
    let _ = world.handle.shutdown(TIMEOUT);
    let stats = world.handle.stats();
    assert_eq!((stats.spans_made, stats.spans_exported, stats.spans_lost.deadline), (10, 0, 10));
}

/// The last heartbeat waits for the destination as spans do. The deadline applies to it too, and
/// leaves a part of the time to the queue.
#[test]
fn a_shutdown_during_an_outage_does_not_wait_for_the_last_heartbeat() {
    let hour = Duration::from_secs(3_600);
    let world = world(|builder| builder.with_heartbeat(hour).with_exporter(down()));
    world.inside(|| info_span!("request").in_scope(|| ()));
    let error = world.handle.shutdown(Duration::from_millis(50)).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    // A second shutdown waits for both threads, however slow the machine is.
    let _ = world.handle.shutdown(TIMEOUT);
    assert_eq!(world.handle.heartbeat_spans(), (0, 1));
    assert_eq!(world.handle.stats().spans_lost.deadline, 1);
}

/// Reports the timeout of its shutdown.
fn reports_timeout(to: &Sender<Duration>) -> impl SpanExporter + use<> {
    let to = to.clone();
    Calls(move |call| {
        if let Call::ShutDown(timeout) = call {
            let _ = to.send(timeout);
        }
        Ok(())
    })
}

/// The exporter gets the remaining time of a shutdown, minus a little for its return.
#[test]
fn an_exporter_is_shut_down_within_the_deadline() {
    for (timeout, exports) in [(TIMEOUT, 1), (TIMEOUT, 3), (Duration::from_secs(2), 3)] {
        let (sender, reported) = channel();
        let world = world(|builder| {
            let builder = builder.with_heartbeat(Duration::from_secs(3_600)).with_batch_spans(1);
            builder.with_exports_in_flight(exports).with_exporter(reports_timeout(&sender))
        });
        world.inside(|| info_span!("request").in_scope(|| ()));
        let ended = world.handle.shutdown(timeout);
        let reported = reported.recv().unwrap();
        assert!(
            reported + (reported / 10).min(Duration::from_millis(400)) <= timeout,
            "{reported:?} of {timeout:?}"
        );
        // Only with the long timeout: on a slow machine two seconds may be over.
        if timeout == TIMEOUT {
            assert!(reported > timeout / 2 && ended.is_ok(), "{reported:?} of {timeout:?}: {ended:?}");
        }
    }
}

/// Five seconds apply when the last layer and handle are dropped, since no caller waits then, and
/// with an unlimited timeout.
#[test]
fn an_exporter_without_a_deadline_gets_five_seconds() {
    let (sender, reported) = channel();
    drop(world(|builder| builder.with_exporter(reports_timeout(&sender))));
    let world = world(|builder| builder.with_exporter(reports_timeout(&sender)));
    world.handle.shutdown(Duration::MAX).unwrap();
    for _ in 0..2 {
        assert_eq!(reported.recv().unwrap(), Duration::from_secs(5));
    }
}
