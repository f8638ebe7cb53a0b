use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn busy(retry_after: Option<Duration>) -> ExportError {
    ExportError::new(ErrorKind::Unavailable, "t", "busy").retryable(retry_after)
}

/// A clock that jumps to the end of each wait.
#[derive(Clone, Debug, Default)]
struct Jumping(Arc<AtomicU64>);

impl Jumping {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Time for Jumping {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn wait<'g, T>(&self, _: &Condvar, guard: MutexGuard<'g, T>, until: Duration) -> MutexGuard<'g, T> {
        self.0.fetch_max(until.as_millis() as u64, Ordering::SeqCst);
        guard
    }

    fn chance(&self) -> u32 {
        u32::MAX
    }
}

fn availability(retry: Retry) -> (Availability<Jumping>, Jumping) {
    let time = Jumping::default();
    (Availability::with_time(retry, Counter::default(), time.clone()), time)
}

/// Sends one batch to a server that fails with `error` until `up_at`; returns the times of the
/// attempts in ms.
fn outage(
    availability: &Availability<Jumping>,
    time: &Jumping,
    up_at: Duration,
    error: &ExportError,
) -> (Result<(), ErrorKind>, Vec<u64>) {
    let mut times = Vec::new();
    let sent = availability.send(availability.deadline(), || {
        times.push(time.now().as_millis() as u64);
        if time.now() < up_at { Err(error.clone()) } else { Ok(()) }
    });
    (sent.map_err(|error| error.kind()), times)
}

/// Issue: 503 for 4 s lost everything, because attempts ended after 1.1 s.
#[test]
fn a_batch_outlasts_an_outage_that_is_shorter_than_its_age() {
    let (availability, time) = availability(Retry::default());
    let (sent, times) = outage(&availability, &time, SECOND * 4, &busy(None));
    // Delays of 1, 2 and 4 s, without the jitter.
    assert_eq!((sent, times), (Ok(()), vec![0, 1_000, 3_000, 7_000]));
    time.advance(SECOND);
    let up_at = time.now() + SECOND * 250;
    assert_eq!(outage(&availability, &time, up_at, &busy(None)).0, Ok(()));
}

#[test]
fn a_batch_is_given_up_at_its_age() {
    let (availability, time) = availability(Retry::default());
    let (sent, times) = outage(&availability, &time, Duration::MAX, &busy(None));
    assert_eq!(sent, Err(ErrorKind::Unavailable));
    assert_eq!(time.now(), SECOND * 300);
    // At 0, 1, 3, 7, 15 and 31 s, then every 30 s up to 271 s.
    assert!(times.len() == 14 && times.iter().all(|&time| time < 300_000), "{times:?}");
}

/// Issue: if Retry-After was longer than the timeout, each batch was dropped at once, and the next
/// one was sent at once.
#[test]
fn the_time_that_a_server_asks_for_holds_for_every_batch() {
    let (availability, time) = availability(Retry::default());
    let up_at = SECOND * 700;
    let error = busy(Some(up_at));
    for _ in 0..2 {
        let begun = time.now();
        let (sent, times) = outage(&availability, &time, up_at, &error);
        assert_eq!(sent, Err(ErrorKind::Unavailable));
        // The first batch gets the response; the second is not sent. Both are held until their
        // deadline.
        assert_eq!(times.len(), usize::from(begun.is_zero()), "{times:?}");
        assert_eq!(time.now(), begun + SECOND * 300);
    }
    let (sent, times) = outage(&availability, &time, up_at, &error);
    assert_eq!((sent, times), (Ok(()), vec![700_000]));
}

#[test]
fn the_reason_of_waiting_is_visible() {
    let (availability, time) = availability(Retry::default());
    let counter = availability.counter.clone();
    let mut seen = Vec::new();
    let _ = availability.send(availability.deadline(), || {
        seen.push(counter.read().waiting.map(|error| error.kind()));
        if time.now() < SECOND { Err(busy(None)) } else { Ok(()) }
    });
    assert_eq!(seen, [None, Some(ErrorKind::Unavailable)]);
    assert_eq!((counter.read().waiting, counter.read().retries), (None, 1));
}

/// Without delays there is no wait in which the age would be checked.
#[test]
fn no_attempt_begins_after_the_age_though_there_is_no_delay() {
    let none = Retry::default().with_initial_delay(Duration::ZERO).with_max_age(SECOND);
    let (availability, time) = availability(none);
    let mut times = Vec::new();
    let sent = availability.send(availability.deadline(), || {
        times.push(time.now().as_millis());
        assert!(times.len() < 9, "{times:?}");
        time.advance(SECOND / 2);
        Err::<(), _>(busy(None))
    });
    assert_eq!((sent.map_err(|error| error.kind()), times), (Err(ErrorKind::Unavailable), vec![0, 500]));
}

#[test]
fn attempts_can_be_limited() {
    let (availability, time) = availability(Retry::default().with_max_attempts(3));
    let (sent, times) = outage(&availability, &time, Duration::MAX, &busy(None));
    assert_eq!((sent, times.len()), (Err(ErrorKind::Unavailable), 3));
    // A permanent error ends the attempts at once, and shows that the server is up.
    let (sent, _) =
        outage(&availability, &time, Duration::MAX, &ExportError::new(ErrorKind::Forbidden, "", ""));
    assert_eq!((sent, availability.retry_in()), (Err(ErrorKind::Forbidden), Duration::ZERO));
}

#[test]
fn one_attempt_is_not_followed_by_another() {
    let (availability, time) = availability(Retry::default());
    assert!(availability.send_once(|| Err::<(), _>(busy(None))).is_err());
    assert_eq!(availability.retry_in(), SECOND);
    let refused = availability.send_once(|| -> Result<(), _> { unreachable!("the delay is not over") });
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::Unavailable));
    time.advance(SECOND);
    assert!(availability.send_once(|| Ok(())).is_ok());
    assert_eq!(availability.retry_in(), Duration::ZERO);
}

#[test]
fn one_probe_is_under_way_while_the_server_is_down() {
    let retry = Retry::default();
    let mut backoff = Backoff::default();
    // While the server is up, any number of requests may be in progress.
    let Turn::Send(first) = backoff.turn(Duration::ZERO) else { panic!() };
    let Turn::Send(second) = backoff.turn(Duration::ZERO) else { panic!() };
    backoff.failed(&first, &busy(None), Duration::ZERO, &retry, u32::MAX);
    // The second failed at the same time as the first.
    backoff.failed(&second, &busy(None), Duration::ZERO, &retry, u32::MAX);
    assert_eq!((backoff.failures, backoff.turn(Duration::ZERO)), (1, Turn::At(SECOND)));
    let Turn::Send(probe) = backoff.turn(SECOND) else { panic!() };
    assert_eq!(backoff.turn(SECOND), Turn::AfterProbe);
    // A sender that panics does not leave the others waiting.
    backoff.abandoned(&probe);
    let Turn::Send(probe) = backoff.turn(SECOND) else { panic!() };
    backoff.failed(&probe, &busy(None), SECOND, &retry, u32::MAX);
    assert_eq!(backoff.turn(SECOND), Turn::At(SECOND * 3));
    // A late failure of an old request only extends the pause.
    backoff.failed(&first, &busy(Some(SECOND * 60)), SECOND, &retry, u32::MAX);
    assert_eq!((backoff.failures, backoff.turn(SECOND * 3)), (2, Turn::At(SECOND * 61)));
    let Turn::Send(probe) = backoff.turn(SECOND * 61) else { panic!() };
    backoff.answered(&probe);
    assert!(
        matches!(backoff.turn(SECOND * 61), Turn::Send(_))
            && matches!(backoff.turn(SECOND * 61), Turn::Send(_))
    );
}

/// Two requests were sent at the same time: one was asked to wait, the other was accepted. The
/// pause holds, and failures continue to be counted.
#[test]
fn a_success_that_left_before_the_failure_ends_no_pause() {
    let retry = Retry::default();
    let mut backoff = Backoff::default();
    let Turn::Send(first) = backoff.turn(Duration::ZERO) else { panic!() };
    let Turn::Send(second) = backoff.turn(Duration::ZERO) else { panic!() };
    backoff.failed(&first, &busy(Some(SECOND * 60)), Duration::ZERO, &retry, u32::MAX);
    backoff.answered(&second);
    assert_eq!((backoff.failures, backoff.turn(SECOND)), (1, Turn::At(SECOND * 60)));
    let Turn::Send(probe) = backoff.turn(SECOND * 60) else { panic!() };
    backoff.answered(&second);
    assert_eq!(backoff.turn(SECOND * 60), Turn::AfterProbe);
    backoff.answered(&probe);
    assert!(matches!(backoff.turn(SECOND * 60), Turn::Send(_)));
}

/// A probe that was sent before the server asked for a pause must not end it, like any other
/// request.
#[test]
fn a_probe_that_left_before_a_wish_ends_no_pause() {
    let retry = Retry::default();
    let mut backoff = Backoff::default();
    let Turn::Send(first) = backoff.turn(Duration::ZERO) else { panic!() };
    let Turn::Send(second) = backoff.turn(Duration::ZERO) else { panic!() };
    backoff.failed(&first, &busy(None), Duration::ZERO, &retry, u32::MAX);
    let Turn::Send(probe) = backoff.turn(SECOND) else { panic!() };
    backoff.failed(&second, &busy(Some(SECOND * 60)), SECOND, &retry, u32::MAX);
    backoff.answered(&probe);
    assert_eq!((backoff.failures, backoff.turn(SECOND * 2)), (1, Turn::At(SECOND * 61)));
    assert!(matches!(backoff.turn(SECOND * 61), Turn::Send(_)));
    assert_eq!(backoff.turn(SECOND * 61), Turn::AfterProbe);
}

/// The same with actual calls, and with the cause that the counter shows.
#[test]
fn a_late_success_leaves_the_reason_of_waiting_visible() {
    let (availability, _) = availability(Retry::default());
    let sent = availability.send_once(|| {
        let failed = availability.send_once(|| Err::<(), _>(busy(Some(SECOND * 60))));
        assert!(failed.is_err());
        Ok(())
    });
    assert!(sent.is_ok());
    assert_eq!(availability.retry_in(), SECOND * 60);
    let waiting = availability.counter.read().waiting;
    assert_eq!(waiting.map(|error| error.kind()), Some(ErrorKind::Unavailable));
}

/// Without retries, a call does not wait for another call's probe. Only during a pause that the
/// server asked for is nothing sent.
#[test]
fn without_retries_each_batch_is_tried_once() {
    let (availability, time) = availability(Retry::NEVER);
    let try_one = |answer: Result<(), ExportError>| {
        let mut attempts = 0;
        let sent = availability.send(availability.deadline(), || {
            attempts += 1;
            answer.clone()
        });
        (sent.map_err(|error| error.kind()), attempts)
    };
    assert_eq!(try_one(Err(busy(None))), (Err(ErrorKind::Unavailable), 1));
    let nested = availability.send(availability.deadline(), || {
        // The enclosing call is in progress, and came first.
        assert_eq!(try_one(Err(busy(None))), (Err(ErrorKind::Unavailable), 1));
        Ok(())
    });
    assert_eq!(nested, Ok(()));
    assert_eq!(try_one(Err(busy(None))), (Err(ErrorKind::Unavailable), 1));
    assert_eq!((try_one(Ok(())), time.now()), ((Ok(()), 1), Duration::ZERO));
    assert_eq!(availability.retry_in(), Duration::ZERO);
    assert_eq!(try_one(Err(busy(Some(SECOND * 60)))), (Err(ErrorKind::Unavailable), 1));
    assert_eq!(try_one(Ok(())), (Err(ErrorKind::Unavailable), 0));
    availability.close();
    assert_eq!(try_one(Ok(())), (Err(ErrorKind::ShutDown), 0));
}

#[test]
fn the_shutdown_ends_a_wait() {
    let availability = Arc::new(Availability::new(
        Retry::default().with_initial_delay(SECOND * 3600).with_max_delay(SECOND * 3600),
        Counter::default(),
    ));
    assert!(availability.send_once(|| Err::<(), _>(busy(None))).is_err());
    let waits = {
        let availability = Arc::clone(&availability);
        thread::spawn(move || availability.send(availability.deadline(), || Ok(())))
    };
    availability.close();
    let error = waits.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShutDown);
    assert!(error.detail().contains("busy"), "{error}");
    // The batch came before the shutdown, so the advice for late spans does not apply.
    assert!(!error.to_string().contains("after the last span"), "{error}");
}

/// A request that hangs must not count as the first waiting call. It did, and nobody else retried
/// until it ended.
#[test]
fn a_request_under_way_does_not_keep_others_from_being_tried_again() {
    let (availability, time) = availability(Retry::default().with_max_age(SECOND * 5));
    let mut times = Vec::new();
    let sent = availability.send(availability.deadline(), || {
        let other = availability.send(availability.deadline(), || {
            times.push(time.now().as_millis());
            if times.len() == 1 { Err(busy(None)) } else { Ok(()) }
        });
        assert_eq!(other, Ok(()));
        Ok(())
    });
    assert_eq!((sent, times), (Ok(()), vec![0, 1_000]));
}

/// Several batches are in flight when the destination fails: the oldest is sent again first.
#[test]
fn retries_are_in_the_order_of_the_batches() {
    let retry = Retry::default().with_initial_delay(Duration::from_millis(200));
    let availability = Availability::new(retry, Counter::default());
    let order = Mutex::new(Vec::new());
    let failing = std::sync::Barrier::new(3);
    thread::scope(|scope| {
        for number in 0..3 {
            let (availability, order, failing) = (&availability, &order, &failing);
            scope.spawn(move || {
                // Calls begin in the order of their numbers, and their first attempts fail at the
                // same time.
                while availability.lock().next_call < number {
                    thread::yield_now();
                }
                let mut attempts = 0;
                let sent = availability.send(availability.deadline(), || {
                    attempts += 1;
                    if attempts == 1 {
                        failing.wait();
                        return Err(busy(None));
                    }
                    order.lock().unwrap().push(number);
                    Ok(())
                });
                assert_eq!((sent, attempts), (Ok(()), 2));
            });
        }
    });
    assert_eq!(order.lock().unwrap()[0], 0);
}

/// On a developer's machine no server runs, and the end of each program should not wait for one.
#[test]
fn a_process_that_ends_without_a_server_tries_once_more() {
    let refused = ExportError::new(ErrorKind::NothingListens, "t", "").retryable(None);
    let given_up = Err(ErrorKind::NothingListens);
    let (availability, time) = availability(Retry::default());
    // Nothing was sent before the end.
    availability.end_soon(SECOND * 5);
    let down = Duration::MAX;
    assert_eq!(outage(&availability, &time, down, &refused), (given_up, vec![0, 100]));
    assert_eq!(outage(&availability, &time, down, &refused), (given_up, vec![]));
}

#[test]
fn an_outage_that_lasts_until_the_end_has_one_attempt_more() {
    let (availability, time) = availability(Retry::default());
    let mut times = Vec::new();
    let sent: Result<(), _> = availability.send(availability.deadline(), || {
        times.push(time.now().as_millis() as u64);
        if times.len() == 3 {
            availability.end_soon(SECOND * 5);
        }
        Err(ExportError::new(ErrorKind::NothingListens, "t", "").retryable(None))
    });
    // At 0, 1 and 3 s; the end comes during the third attempt.
    assert_eq!((sent.unwrap_err().kind(), times), (ErrorKind::NothingListens, vec![0, 1_000, 3_000]));
}

/// A server that is there, or was, may take the spans yet.
#[test]
fn the_end_waits_for_a_server_that_was_reached() {
    let refused = ExportError::new(ErrorKind::NothingListens, "t", "").retryable(None);
    for earlier in [Some(busy(None)), None] {
        let (availability, time) = availability(Retry::default());
        let _ = availability.send_once(|| earlier.map_or(Ok(()), Err));
        time.advance(SECOND);
        availability.end_soon(SECOND * 5);
        let up_at = time.now() + SECOND * 4;
        assert_eq!(outage(&availability, &time, up_at, &refused).0, Ok(()));
    }
}

/// A server asked for a pause of a minute, and the process has five seconds left. The spans would
/// be lost unsent, so they are sent once more, although the pause is not over.
#[test]
fn the_last_half_second_tries_once_whatever_the_server_asked_for() {
    for (within, last) in [(5_000, 4_500), (600, 300)] {
        let (availability, time) = availability(Retry::default().with_max_age(SECOND * 20));
        let mut times = Vec::new();
        let sent: Result<(), _> = availability.send(availability.deadline(), || {
            times.push(time.now().as_millis() as u64);
            if times.len() == 1 {
                availability.end_soon(Duration::from_millis(within));
            }
            Err(busy(Some(SECOND * 60)))
        });
        // Still refused, it is not asked a third time.
        assert_eq!((sent.unwrap_err().kind(), times), (ErrorKind::Unavailable, vec![0, last]));
    }
}

/// The same for a pause that began before the end was announced.
#[test]
fn a_pause_is_cut_short_when_the_end_is_announced() {
    let (availability, time) = availability(Retry::default());
    let _ = availability.send_once(|| Err::<(), _>(busy(Some(SECOND * 60))));
    time.advance(SECOND);
    availability.end_soon(SECOND * 5);
    assert_eq!(outage(&availability, &time, SECOND * 2, &busy(None)), (Ok(()), vec![5_500]));
}
