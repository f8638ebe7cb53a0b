//! The availability of one destination, shared by every batch that is sent to it.
//!
//! A retryable failure pauses all traffic: requests wait until the delay of [`Retry`], or the time
//! that the server asked for, has passed. Then one request is sent as a probe, and the others wait
//! for its outcome. The probe is the request of the oldest waiting call. So a server that asks for
//! a pause gets it, and a server that recovers does not receive all waiting batches at once.
//!
//! [`Backoff`] is the state machine, without a clock and without a lock. [`Availability`] adds
//! both, and the waiting.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::fmt::Debug;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::retry::Retry;
use astracer_model::destination::Counter;
use astracer_model::destination::{ErrorKind, ExportError};

/// The state of a destination. Times count from any fixed origin.
#[derive(Debug, Default)]
struct Backoff {
    /// Consecutive failures.
    failures: u32,
    /// While `cause` is set, no request is sent before this time.
    resume_at: Duration,
    /// The last failure; `None` while the destination is believed to be up.
    cause: Option<ExportError>,
    /// A probe is in progress.
    is_probing: bool,
    /// Incremented on each change between up and down, and for each probe. A result is stale if its
    /// request was sent in an earlier generation.
    generation: u64,
}

/// Permission to send one request.
#[derive(Debug, PartialEq, Eq)]
struct Permit {
    generation: u64,
}

/// The answer to a call that asks for a permit.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Send(Permit),
    /// Ask again at this time.
    At(Duration),
    /// Ask again after the probe.
    AfterProbe,
}

impl Backoff {
    fn turn(&mut self, now: Duration) -> Turn {
        if self.cause.is_some() {
            if now < self.resume_at {
                return Turn::At(self.resume_at);
            }
            if self.is_probing {
                return Turn::AfterProbe;
            }
            self.is_probing = true;
            self.generation += 1;
        }
        Turn::Send(Permit { generation: self.generation })
    }

    /// The destination answered, possibly with a permanent rejection. If the request was sent
    /// before the last failure, its answer is stale: it does not end a pause that the server asked
    /// for.
    fn answered(&mut self, permit: &Permit) {
        if self.cause.is_some() && permit.generation == self.generation {
            *self = Backoff { generation: self.generation + 1, ..Backoff::default() };
        }
    }

    fn failed(&mut self, permit: &Permit, error: &ExportError, now: Duration, retry: &Retry, chance: u32) {
        // Requests that were in progress at the same time fail at the same time: that is one
        // failure, so only the first counts. But if the server asks for a longer pause, the pause
        // is extended, and a probe that was sent before that becomes stale.
        if permit.generation != self.generation {
            let asked = error.retry_after().map(|asked| asked.min(retry.max_server_delay()));
            let asked = asked.map_or(Duration::ZERO, |asked| now.saturating_add(asked));
            if self.cause.is_some() && self.resume_at < asked {
                self.resume_at = asked;
                self.cause = Some(error.clone());
                self.is_probing = false;
                self.generation += 1;
            }
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.resume_at = now.saturating_add(retry.delay(self.failures, error.retry_after(), chance));
        self.cause = Some(error.clone());
        self.is_probing = false;
        self.generation += 1;
    }

    /// Returns true during a pause that the server asked for.
    fn is_wished(&self, now: Duration) -> bool {
        now < self.resume_at && self.cause.as_ref().is_some_and(|cause| cause.retry_after().is_some())
    }

    /// The request ended without a result because its sender panicked.
    fn abandoned(&mut self, permit: &Permit) {
        if permit.generation == self.generation {
            self.is_probing = false;
        }
    }
}

/// A clock that callers can sleep on. Tests advance it by hand.
pub(crate) trait Time: Send + Sync + Debug {
    /// The time since any fixed origin.
    fn now(&self) -> Duration;

    /// Waits for a notification, at most until `until`.
    fn wait<'g, T>(&self, changed: &Condvar, guard: MutexGuard<'g, T>, until: Duration) -> MutexGuard<'g, T>
    where
        Self: Sized;

    /// A uniform random number.
    fn chance(&self) -> u32;
}

/// The machine's monotonic clock.
#[derive(Debug)]
pub(crate) struct Monotonic(Instant);

impl Default for Monotonic {
    fn default() -> Self {
        Monotonic(Instant::now())
    }
}

impl Time for Monotonic {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wait<'g, T>(&self, changed: &Condvar, guard: MutexGuard<'g, T>, until: Duration) -> MutexGuard<'g, T> {
        let left = until.saturating_sub(self.now());
        changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Each hasher of the standard library starts with random keys.
    fn chance(&self) -> u32 {
        RandomState::new().build_hasher().finish() as u32
    }
}

#[derive(Debug, Default)]
struct State {
    backoff: Backoff,
    is_closed: bool,
    /// The process is ending: see [`Availability::end_soon`].
    is_ending: bool,
    /// A request met something other than a refused connection.
    was_reached: bool,
    /// The time of the last attempt before the end of the process: a pause that would last longer
    /// ends then.
    last_at: Option<Duration>,
    /// No request will be sent any more, because the last attempt failed too.
    has_given_up: bool,
    /// The numbers of the calls that wait for a permit. A call whose request is in progress is not
    /// among them, so it cannot become the probe.
    waiting: BTreeSet<u64>,
    next_call: u64,
}

impl State {
    /// Ends the current pause at the time of the last attempt, if that is still to come.
    fn shorten_pause(&mut self, now: Duration) {
        if let Some(last) = self.last_at.filter(|&last| now < last) {
            self.backoff.resume_at = self.backoff.resume_at.min(last);
        }
    }
}

/// A call in progress, which may wait. While the destination is down, the waiting call with the
/// lowest number sends the probe.
struct Call<'a, T: Time> {
    number: u64,
    of: &'a Availability<T>,
}

impl<T: Time> Drop for Call<'_, T> {
    fn drop(&mut self) {
        self.of.lock().waiting.remove(&self.number);
        self.of.changed.notify_all();
    }
}

/// The time before the end of the process at which a waiting call tries once more.
const LAST_BEFORE_END: Duration = Duration::from_millis(500);

/// The longest pause before the last attempt of a process that is ending, if no server was ever
/// reached.
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// The availability of one destination.
#[derive(Debug)]
pub(crate) struct Availability<T = Monotonic> {
    state: Mutex<State>,
    changed: Condvar,
    retry: Retry,
    counter: Counter,
    time: T,
}

/// A permit that ends the probe if its holder panics before it has a result.
struct HeldPermit<'a, T: Time> {
    permit: Permit,
    of: &'a Availability<T>,
}

impl<T: Time> Drop for HeldPermit<'_, T> {
    fn drop(&mut self) {
        // After a result this changes nothing: the generation has advanced, or there was no probe.
        self.of.lock().backoff.abandoned(&self.permit);
        self.of.changed.notify_all();
    }
}

impl Availability {
    pub(crate) fn new(retry: Retry, counter: Counter) -> Self {
        Self::with_time(retry, counter, Monotonic::default())
    }
}

impl<T: Time> Availability<T> {
    pub(crate) fn with_time(retry: Retry, counter: Counter, time: T) -> Self {
        Availability { state: Mutex::default(), changed: Condvar::new(), retry, counter, time }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every wait. Requests in progress continue.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Announces that the process ends within this time. If every connection so far was refused, no
    /// server is there: the attempt after this call, or the second one of all, is the last.
    /// Otherwise a pause that lasts until the end, also one that the server asked for, ends half a
    /// second earlier (halfway, in a shorter time): what is not sent then is lost.
    pub(crate) fn end_soon(&self, within: Duration) {
        let mut state = self.lock();
        state.is_ending = true;
        let now = self.time.now();
        state.last_at = Some(now.saturating_add(within - LAST_BEFORE_END.min(within / 2)));
        if !state.was_reached {
            state.backoff.resume_at = now;
        }
        state.shorten_pause(now);
        drop(state);
        self.changed.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// The time until the next request may be sent; zero while the destination is up.
    pub(crate) fn retry_in(&self) -> Duration {
        let state = self.lock();
        if state.backoff.cause.is_none() {
            return Duration::ZERO;
        }
        state.backoff.resume_at.saturating_sub(self.time.now())
    }

    /// The time at which a batch that is sent now is given up.
    pub(crate) fn deadline(&self) -> Duration {
        self.time.now().saturating_add(self.retry.max_age())
    }

    /// Calls `attempt` until it succeeds, fails permanently, or reaches the deadline or the limit
    /// on attempts.
    pub(crate) fn send<R>(
        &self,
        deadline: Duration,
        mut attempt: impl FnMut() -> Result<R, ExportError>,
    ) -> Result<R, ExportError> {
        let mut attempts = 0;
        let call = self.begin_call();
        loop {
            let held = self.wait_for_permit(&call, deadline)?;
            attempts += 1;
            if attempts > 1 {
                self.counter.retry();
            }
            match self.settle(held, attempt(), Some(&call)) {
                Err(error) if error.may_retry() && attempts < self.retry.max_attempts() => {
                    if self.time.now() >= deadline || self.lock().has_given_up {
                        return Err(error);
                    }
                }
                result => return result,
            }
        }
    }

    /// Calls `attempt` once if a request may be sent now. Otherwise returns the failure that caused
    /// the current pause.
    pub(crate) fn send_once<R>(
        &self,
        attempt: impl FnOnce() -> Result<R, ExportError>,
    ) -> Result<R, ExportError> {
        let mut state = self.lock();
        let held = match state.backoff.turn(self.time.now()) {
            Turn::Send(permit) => HeldPermit { permit, of: self },
            Turn::At(_) | Turn::AfterProbe => {
                let cause = state.backoff.cause.clone();
                return Err(cause.unwrap_or_else(|| ExportError::new(ErrorKind::Unavailable, "", "")));
            }
        };
        drop(state);
        self.settle(held, attempt(), None)
    }

    fn settle<R>(
        &self,
        held: HeldPermit<'_, T>,
        result: Result<R, ExportError>,
        call: Option<&Call<'_, T>>,
    ) -> Result<R, ExportError> {
        let result = result.map_err(|error| error.with_pause(self.retry.max_server_delay()));
        let mut state = self.lock();
        state.was_reached |= !matches!(&result, Err(error) if error.kind() == ErrorKind::NothingListens);
        match &result {
            Err(error) if error.may_retry() => {
                // The call joins the queue before any waiting call can see the failure, so it keeps
                // its position.
                state.waiting.extend(call.map(|call| call.number));
                let (now, chance) = (self.time.now(), self.time.chance());
                state.backoff.failed(&held.permit, error, now, &self.retry, chance);
                if state.is_ending && !state.was_reached {
                    state.has_given_up = state.backoff.failures > 1;
                    let soon = now.saturating_add(LAST_PAUSE);
                    state.backoff.resume_at = state.backoff.resume_at.min(soon);
                }
                state.shorten_pause(now);
            }
            _ => state.backoff.answered(&held.permit),
        }
        self.counter.set_waiting(state.backoff.cause.clone());
        drop(state);
        drop(held);
        result
    }

    fn begin_call(&self) -> Call<'_, T> {
        let mut state = self.lock();
        let number = state.next_call;
        state.next_call += 1;
        state.waiting.insert(number);
        Call { number, of: self }
    }

    /// Waits for a permit. The error is the cause of a wait that reached the deadline, or the
    /// shutdown.
    fn wait_for_permit(
        &self,
        call: &Call<'_, T>,
        deadline: Duration,
    ) -> Result<HeldPermit<'_, T>, ExportError> {
        let mut state = self.lock();
        loop {
            let cause = |state: &State| state.backoff.cause.clone();
            if state.is_closed {
                return Err(match cause(&state) {
                    // The batch came before the shutdown, so the advice for late spans does not
                    // apply.
                    Some(error) => {
                        let detail = format!("during a retry: {error}");
                        ExportError::new(ErrorKind::ShutDown, error.target(), detail).with_remedy("")
                    }
                    None => ExportError::new(ErrorKind::ShutDown, "", ""),
                });
            }
            if state.has_given_up
                && let Some(error) = cause(&state)
            {
                return Err(error);
            }
            let now = self.time.now();
            // Without retries no batch may wait, so it would be lost unsent whenever another batch
            // had failed. So it is sent anyway, except during a pause that the server asked for.
            if self.retry.max_age().is_zero() && !state.backoff.is_wished(now) {
                let permit = Permit { generation: state.backoff.generation };
                state.waiting.remove(&call.number);
                return Ok(HeldPermit { permit, of: self });
            }
            let is_first = state.waiting.first() == Some(&call.number);
            let turn = match state.backoff.cause {
                Some(_) if !is_first => Turn::AfterProbe,
                _ => state.backoff.turn(now),
            };
            let until = match turn {
                Turn::Send(permit) => {
                    state.waiting.remove(&call.number);
                    return Ok(HeldPermit { permit, of: self });
                }
                Turn::At(time) => time.min(deadline),
                Turn::AfterProbe => deadline,
            };
            if now >= deadline {
                return Err(cause(&state).unwrap_or_else(|| ExportError::new(ErrorKind::TimedOut, "", "")));
            }
            state = self.time.wait(&self.changed, state, until);
        }
    }
}

#[cfg(test)]
mod tests;
