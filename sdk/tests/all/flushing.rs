//! A flush returns in time, and by then every span that had ended is exported.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing::info_span;

use crate::support::{TIMEOUT, draw, world};

/// An exporter in whose calls the service continues: each export waits until another trace has
/// ended.
#[derive(Clone, Debug)]
struct UnderLoad {
    ask: Arc<Mutex<Sender<()>>>,
    made: Arc<Mutex<Receiver<()>>>,
    calls: Arc<Mutex<usize>>,
}

/// Exports under load before the test gives up.
const EXPORTS_MAX: usize = 500;

impl SpanExporter for UnderLoad {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        let calls = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            *calls
        };
        if calls < EXPORTS_MAX && self.ask.lock().unwrap().send(()).is_ok() {
            let _ = self.made.lock().unwrap().recv();
        }
        Ok(())
    }
}

/// A flush waits for the spans that had ended when it was called, not for later ones, even if
/// others flush those.
#[test]
fn a_flush_returns_under_load() {
    [false, true].into_iter().for_each(flush_under_load);
}

fn flush_under_load(others_flush: bool) {
    let ((ask, asked), (make, made)) = (channel(), channel());
    let exporter =
        UnderLoad { ask: Arc::new(Mutex::new(ask)), made: Arc::new(Mutex::new(made)), calls: Arc::default() };
    let world = world(|builder| builder.with_batch_spans(1).with_exporter(exporter.clone()));
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
    tracing::dispatcher::with_default(&world.dispatch, || info_span!("first").in_scope(|| ()));
    world.handle.flush(TIMEOUT).unwrap();
    let calls = *exporter.calls.lock().unwrap();
    assert!(calls < EXPORTS_MAX / 2, "the flush waited for {calls} exports, {others_flush}");
    *exporter.calls.lock().unwrap() = EXPORTS_MAX;
    world.handle.shutdown(TIMEOUT).unwrap();
    *exporter.ask.lock().unwrap() = channel().0;
    service.join().unwrap();
}

/// A `main` span around the whole service never ends. Its children are exported anyway.
#[test]
fn a_flush_exports_what_has_ended_of_open_traces() {
    let world = world(|builder| builder);
    tracing::dispatcher::with_default(&world.dispatch, || {
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
#[derive(Clone, Debug, Default)]
struct Down {
    shut_down: Arc<(Mutex<bool>, Condvar)>,
}

impl SpanExporter for Down {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        let (is_shut_down, changed) = &*self.shut_down;
        let waiting = changed.wait_while(is_shut_down.lock().unwrap(), |is_shut_down| !*is_shut_down);
        drop(waiting.unwrap());
        Err(OTelSdkError::InternalFailure("the destination is down".to_owned()))
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        *self.shut_down.0.lock().unwrap() = true;
        self.shut_down.1.notify_all();
        Ok(())
    }
}

/// At the deadline of a shutdown, an exporter that waits for its destination is shut down, and
/// every remaining span is counted as lost.
#[test]
pub(crate) fn a_shutdown_during_an_outage_counts_what_is_left() {
    let world = world(|builder| builder.with_batch_spans(1).with_exporter(Down::default()));
    tracing::dispatcher::with_default(&world.dispatch, || {
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
    let world = world(|builder| builder.with_heartbeat(hour).with_exporter(Down::default()));
    tracing::dispatcher::with_default(&world.dispatch, || info_span!("request").in_scope(|| ()));
    let error = world.handle.shutdown(Duration::from_millis(50)).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    // A second shutdown waits for both threads, however slow the machine is.
    let _ = world.handle.shutdown(TIMEOUT);
    assert_eq!(world.handle.heartbeat_spans(), (0, 1));
    assert_eq!(world.handle.stats().spans_lost.deadline, 1);
}

/// Reports the timeout of its shutdown.
#[derive(Clone, Debug)]
struct ReportsTimeout(Sender<Duration>);

impl SpanExporter for ReportsTimeout {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        let _ = self.0.send(timeout);
        Ok(())
    }
}

/// The exporter gets the remaining time of a shutdown, minus a little for its return.
#[test]
fn an_exporter_is_shut_down_within_the_deadline() {
    for (timeout, exports) in [(TIMEOUT, 1), (TIMEOUT, 3), (Duration::from_secs(2), 3)] {
        let (sender, reported) = channel();
        let world = world(|builder| {
            let builder = builder.with_heartbeat(Duration::from_secs(3_600)).with_batch_spans(1);
            builder.with_exports_in_flight(exports).with_exporter(ReportsTimeout(sender))
        });
        tracing::dispatcher::with_default(&world.dispatch, || info_span!("request").in_scope(|| ()));
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
    drop(world(|builder| builder.with_exporter(ReportsTimeout(sender.clone()))));
    let world = world(|builder| builder.with_exporter(ReportsTimeout(sender)));
    world.handle.shutdown(Duration::MAX).unwrap();
    for _ in 0..2 {
        assert_eq!(reported.recv().unwrap(), Duration::from_secs(5));
    }
}
