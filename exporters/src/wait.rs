//! Waiting and trying again.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::counts::Counter;
use crate::error::{ErrorKind, ExportError};

/// When a request that failed is sent again: after [`first`](Retry::first), then after twice that, and so on, each wait
/// between half of that and all of it, by chance. What the server asks for (`Retry-After`, gRPC's `RetryInfo`) is
/// waited for in any case. All of it happens within the destination's timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Times that a request is sent at most; 1 is never again.
    pub attempts_max: u32,
    /// The first wait.
    pub first: Duration,
    /// The longest wait that is our own choice.
    pub longest: Duration,
}

impl Default for Retry {
    /// 5 attempts; 100 ms to 5 s.
    fn default() -> Self {
        Retry { attempts_max: 5, first: Duration::from_millis(100), longest: Duration::from_secs(5) }
    }
}

impl Retry {
    /// Never again.
    pub const NEVER: Retry = Retry { attempts_max: 1, first: Duration::ZERO, longest: Duration::ZERO };

    /// How long to wait behind attempt `attempt`, counted from 1. `chance` is a random number.
    fn delay(&self, attempt: u32, asked: Option<Duration>, chance: u32) -> Duration {
        let doubled = self.first.saturating_mul(1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX));
        let own = doubled.min(self.longest);
        let half = own / 2;
        let own = half + half.mul_f64(f64::from(chance) / f64::from(u32::MAX));
        own.max(asked.unwrap_or_default())
    }
}

/// A wait that the shutdown ends.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: Mutex<bool>,
    change: Condvar,
}

impl Gate {
    /// Ends every wait.
    pub(crate) fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.change.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits; false if the gate was closed meanwhile.
    fn wait(&self, time: Duration) -> bool {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.change.wait_timeout_while(closed, time, |closed| !*closed);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Does something until it succeeds, fails for good, or may not be tried again. `attempt` is told the time that is left.
pub(crate) fn with_retries<T>(
    retry: &Retry,
    timeout: Duration,
    gate: &Gate,
    counter: &Counter,
    mut attempt: impl FnMut(Duration) -> Result<T, ExportError>,
) -> Result<T, ExportError> {
    let start = Instant::now();
    let mut number = 1;
    loop {
        let error = match attempt(timeout.saturating_sub(start.elapsed())) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if !error.may_retry() || number >= retry.attempts_max {
            return Err(error);
        }
        let delay = retry.delay(number, error.retry_after(), chance());
        if delay >= timeout.saturating_sub(start.elapsed()) {
            return Err(error);
        }
        if !gate.wait(delay) {
            let detail = format!("while waiting to send again: {error}");
            return Err(ExportError::new(ErrorKind::ShutDown, error.target(), detail));
        }
        counter.retry();
        number += 1;
    }
}

/// A random number: each of std's hashers starts with keys of its own.
fn chance() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn failed(retry_after: Option<Duration>) -> ExportError {
        ExportError::new(ErrorKind::Unavailable, "t", "").retryable(retry_after)
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let retry = Retry { attempts_max: 9, first: MS(100), longest: MS(1_000) };
        let all = |chance| (1..7).map(|attempt| retry.delay(attempt, None, chance)).collect::<Vec<_>>();
        assert_eq!(all(u32::MAX), [100, 200, 400, 800, 1_000, 1_000].map(MS));
        assert_eq!(all(0), [50, 100, 200, 400, 500, 500].map(MS));
        assert_eq!(retry.delay(400, None, u32::MAX), MS(1_000));
    }

    #[test]
    fn the_server_is_waited_for_however_long_it_asks() {
        let retry = Retry { attempts_max: 9, first: MS(100), longest: MS(1_000) };
        assert_eq!(retry.delay(1, Some(MS(7_000)), 0), MS(7_000));
        // It can't make us faster.
        assert_eq!(retry.delay(1, Some(MS(1)), u32::MAX), MS(100));
    }

    fn run(retry: Retry, timeout: Duration, errors: Vec<ExportError>) -> (Result<usize, ErrorKind>, u64) {
        let (counter, mut errors, mut tries) = (Counter::default(), errors.into_iter(), 0);
        let done = with_retries(&retry, timeout, &Gate::default(), &counter, |left| {
            assert!(left <= timeout);
            tries += 1;
            errors.next().map_or(Ok(tries), Err)
        });
        (done.map_err(|error| error.kind()), counter.read().retries)
    }

    #[test]
    fn what_may_be_retried_is_until_it_succeeds_or_too_often() {
        let now = Retry { attempts_max: 3, first: MS(0), longest: MS(0) };
        let hour = Duration::from_secs(3600);
        assert_eq!(run(now, hour, vec![]), (Ok(1), 0));
        assert_eq!(run(now, hour, vec![failed(None); 2]), (Ok(3), 2));
        assert_eq!(run(now, hour, vec![failed(None); 3]), (Err(ErrorKind::Unavailable), 2));
        assert_eq!(run(Retry::NEVER, hour, vec![failed(None)]), (Err(ErrorKind::Unavailable), 0));
        let final_one = ExportError::new(ErrorKind::Forbidden, "t", "");
        assert_eq!(run(now, hour, vec![final_one]), (Err(ErrorKind::Forbidden), 0));
    }

    #[test]
    fn nobody_waits_beyond_the_timeout() {
        let now = Retry { attempts_max: 3, first: MS(0), longest: MS(0) };
        let asks = failed(Some(Duration::from_secs(60)));
        assert_eq!(run(now, Duration::from_secs(59), vec![asks]), (Err(ErrorKind::Unavailable), 0));
    }

    #[test]
    fn the_shutdown_ends_a_wait() {
        let gate = Gate::default();
        gate.close();
        let retry = Retry {
            first: Duration::from_secs(3600),
            longest: Duration::from_secs(3600),
            ..Retry::default()
        };
        let counter = Counter::default();
        let done = with_retries(&retry, Duration::MAX, &gate, &counter, |_| Err::<(), _>(failed(None)));
        assert_eq!(done.unwrap_err().kind(), ErrorKind::ShutDown);
    }
}
