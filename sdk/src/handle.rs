//! The handle of a running layer: counts, flush and shutdown, and its changes at run time.

mod late;
mod steer;

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use astracer_samplers::{Config, Snapshot};
use opentelemetry_sdk::Resource;

use crate::core::Shared;
use crate::fault::debug_as_display;
use crate::fit::FileFit;
use crate::observer::Observer;
use crate::reports::spans;
use astracer_spans::export::{Patience, WaitError};
use astracer_spans::panics::warn;
use astracer_spans::stats::Stats;

/// Counts, flush and shutdown of an [`Astracer`](crate::Astracer). Cheap to clone, and usable from
/// any thread.
///
/// A service that exits without [`Handle::shutdown`] loses the spans still in the queue, because a
/// global subscriber is never dropped. See [`Handle::shutdown_on_drop`].
#[derive(Clone, Debug)]
pub struct Handle {
    /// `None`: switched off.
    shared: Option<Arc<Shared>>,
}

/// A reference to a [`Handle`] that keeps neither layer nor destination alive, for callbacks and
/// threads that live longer: see [`Handle::downgrade`].
#[derive(Clone, Debug)]
pub struct WeakHandle {
    shared: Weak<Shared>,
}

impl WeakHandle {
    /// Returns the handle; `None` if all layers and handles are gone, or if it is switched off.
    pub fn upgrade(&self) -> Option<Handle> {
        Some(Handle { shared: Some(self.shared.upgrade()?) })
    }
}

/// Time after a shutdown's deadline for the exporter's thread to count the spans that remain.
const COUNTING: Duration = Duration::from_secs(1);

/// # State and shutdown
impl Handle {
    pub(crate) fn new(shared: Option<Arc<Shared>>) -> Self {
        Handle { shared }
    }

    /// Returns a reference that keeps neither the layer nor the destination alive.
    pub fn downgrade(&self) -> WeakHandle {
        WeakHandle { shared: self.shared.as_ref().map(Arc::downgrade).unwrap_or_default() }
    }

    pub(crate) fn shared(&self) -> Option<&Shared> {
        if cfg!(feature = "enabled") { self.shared.as_deref() } else { None }
    }

    /// Returns the observer of [`Builder::with_observer`](crate::Builder::with_observer), if it is
    /// of this type.
    pub fn observer<O: Observer>(&self) -> Option<&O> {
        let observer: &dyn Any = &**self.shared()?.observer.as_ref()?;
        observer.downcast_ref()
    }

    /// Returns true if anything is recorded; false if switched off.
    pub fn is_enabled(&self) -> bool {
        self.shared().is_some()
    }

    /// The service's resource; `None` if switched off.
    pub fn resource(&self) -> Option<&Resource> {
        Some(&self.shared()?.resource)
    }

    /// The date since which roots are counted, constant over the process's life; `None` if switched
    /// off.
    pub fn counted_since(&self) -> Option<SystemTime> {
        Some(self.shared()?.decider.clock.origin())
    }

    /// Counts since the layer was built; all zero if switched off.
    pub fn stats(&self) -> Stats {
        self.shared().map(Shared::stats).unwrap_or_default()
    }

    /// The sampler's counts by key; `None` if the sampler does not decide by key, or if switched
    /// off.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.shared()?.decider.sampler().snapshot()
    }

    /// The fit of the parameters file to the traffic, up to a minute ago. `None` without a file
    /// that `astracer tune` wrote, in the first minute, or if switched off.
    pub fn file_fit(&self) -> Option<FileFit> {
        self.shared()?.housekeeping.as_ref()?.file_fit()
    }

    /// The parameters of the sampler in use; `None` if switched off.
    pub fn sampler_config(&self) -> Option<Config> {
        Some(self.shared()?.decider.sampler().config().clone())
    }

    /// Exports the spans that have ended, including those of open traces, and waits until they are
    /// exported. It does not wait for spans that end in the meantime.
    ///
    /// A flush does not submit provisional traces
    /// ([`Builder::with_tail`](crate::Builder::with_tail)) to their policies. The ended spans of
    /// such traces stay in [`Stats::spans_waiting`].
    ///
    /// # Errors
    ///
    /// If it takes longer than `timeout`, or if spans were lost during the call; the error has the
    /// numbers. Spans not exported by the deadline stay in the queue.
    pub fn flush(&self, timeout: Duration) -> Result<(), FlushError> {
        let Some(shared) = self.shared() else { return Ok(()) };
        let began = Instant::now();
        let patience = began.checked_add(timeout).map_or(Patience::Full, Patience::Until);
        shared.traces.flush(&shared.queue, patience);
        let ticket = shared.queue.ask_flush();
        let flushed = shared.queue.wait(ticket, timeout.saturating_sub(began.elapsed()));
        flushed.map_err(|error| {
            shared.reports.note_reported(error.lost, &shared.stats().spans_lost);
            FlushError { wait: explained(error, shared), waited: timeout, is_end: false }
        })
    }

    /// Exports the spans that have ended, including those of open traces, shuts the exporter down,
    /// and waits for it. From now on nothing is recorded. Spans that are still open are lost, and
    /// counted when they end.
    ///
    /// If everything is exported before the deadline, the exporter gets the rest of `timeout` minus
    /// a tenth of it (at most half a second). An exporter with a spool drains it in that time.
    ///
    /// # Errors
    ///
    /// If it takes longer than `timeout`, or if spans were lost that neither an earlier error nor
    /// an event with the target `astracer` reported; the error has the numbers. Spans that the cap
    /// on bytes refused do not count, nor do those that end after the call.
    ///
    /// At the deadline the exporter is shut down even if it is waiting for its destination. Spans
    /// not exported by then are lost and counted in
    /// [`Losses::deadline`](crate::Losses::deadline). An export in flight gets one more second to
    /// end; otherwise its spans stay in [`Stats::spans_waiting`].
    pub fn shutdown(&self, timeout: Duration) -> Result<(), FlushError> {
        let Some(shared) = self.shared() else { return Ok(()) };
        shared.reports.begin_end();
        let ended = end(shared, timeout);
        shared.reports.end();
        shared.reports.announce();
        shared.reports.note(shared.queue.last_note());
        let stats = shared.stats();
        let unreported = shared.reports.take_unreported(&stats.spans_lost);
        let wait = match ended {
            Ok(()) if unreported == 0 => return Ok(()),
            Ok(()) => {
                let reason = shared.queue.last_error().map(|error| format!("; {error}")).unwrap_or_default();
                let last_error = Some(format!("since the start {}{reason}", stats.spans_lost));
                WaitError { timed_out: false, left: 0, lost: unreported, last_error }
            }
            Err(error) => {
                let switch = shared.reports.switch(shared.is_absent());
                let last_error = error.last_error.map(|reason| reason + switch);
                WaitError { lost: error.lost.max(unreported), last_error, ..error }
            }
        };
        Err(FlushError { wait, waited: timeout, is_end: true })
    }

    /// Returns a guard that shuts down when it is dropped, waiting at most `timeout`. For `main`:
    ///
    /// ```
    /// # let astracer = astracer_sdk::Astracer::builder().with_enabled(false).build().unwrap();
    /// let _guard = astracer.handle.shutdown_on_drop(std::time::Duration::from_secs(5));
    /// ```
    pub fn shutdown_on_drop(&self, timeout: Duration) -> ShutdownGuard {
        ShutdownGuard { handle: self.clone(), timeout }
    }
}

/// Adds the cause of a timeout: an exporter that waits for its destination has not failed yet, so
/// it has no last error.
fn explained(error: WaitError, shared: &Shared) -> WaitError {
    let destination = shared.destination.as_ref().filter(|_| error.timed_out);
    let waiting = destination.and_then(|destination| destination.waiting());
    WaitError { last_error: waiting.or(error.last_error), ..error }
}

fn end(shared: &Shared, timeout: Duration) -> Result<(), WaitError> {
    let began = Instant::now();
    let deadline = began.checked_add(timeout);
    if let Some(destination) = &shared.destination {
        destination.ask(|destination| destination.end_soon(timeout));
    }
    if let Some(housekeeping) = &shared.housekeeping {
        // The last heartbeat needs the exporter, so it goes out before the queue shuts the
        // exporter down. It may use half of the time; the queue has the rest.
        housekeeping.finish(timeout / 2);
    }
    #[cfg(feature = "parameters")]
    if let Some(poller) = &shared.poller {
        poller.finish();
    }
    let queue = &shared.queue;
    let ticket = queue.ticket();
    if let Some(deadline) = deadline {
        queue.end_by(deadline);
    }
    shared.close(deadline.map_or(Patience::Full, Patience::Until));
    let ended = queue.wait(ticket, timeout.saturating_sub(began.elapsed()));
    if let (Err(WaitError { timed_out: true, .. }), Some(destination)) = (&ended, &shared.destination) {
        // Asked before the exporter stops waiting: the error names the server.
        let waiting = destination
            .waiting()
            .or_else(|| destination.ask(|destination| destination.counter().unanswered()));
        queue.abandon();
        // An export may last for minutes while the destination is down. The thread that runs it
        // cannot interrupt it, so this thread shuts the exporter down.
        let _ = destination.shut_down(Duration::ZERO);
        let late = match queue.wait(ticket, COUNTING) {
            Err(late) => late,
            Ok(()) => WaitError { timed_out: true, left: 0, lost: 0, last_error: None },
        };
        let last_error = waiting.or(late.last_error);
        return Err(WaitError { timed_out: true, last_error, ..late });
    }
    ended
}

/// Shuts down when it is dropped; see [`Handle::shutdown_on_drop`].
#[derive(Debug)]
#[must_use = "an unbound guard is dropped, and shuts down, at once: bind it to a name, such as `_guard`"]
pub struct ShutdownGuard {
    handle: Handle,
    timeout: Duration,
}

impl Drop for ShutdownGuard {
    /// Emits an error as a warning with the target `astracer`, because `drop` cannot return it.
    fn drop(&mut self) {
        if let Err(error) = self.handle.shutdown(self.timeout) {
            // A developer without a server has been warned once.
            let is_known = |shared: &Shared| shared.is_absent() && shared.reports.is_outage_reported();
            warn(|| match self.handle.shared().is_some_and(is_known) {
                true => tracing::info!(target: "astracer", parent: None, "{}", error.outcome()),
                false => tracing::warn!(target: "astracer", parent: None, "{error}"),
            });
        }
    }
}

/// A flush or a shutdown that did not export everything.
#[derive(Clone, PartialEq, Eq)]
pub struct FlushError {
    wait: WaitError,
    waited: Duration,
    is_end: bool,
}

impl FlushError {
    /// Returns true if the exporter did not finish before the deadline.
    pub fn is_timeout(&self) -> bool {
        self.wait.timed_out
    }

    /// Returns true if the exporter finished, but failed or lost spans.
    pub fn is_export_failure(&self) -> bool {
        !self.wait.timed_out
    }

    /// Returns the number of spans that the call waited for and that are neither exported nor lost.
    pub fn spans_left(&self) -> u64 {
        self.wait.left
    }

    /// Returns the number of spans lost during the call, and for a shutdown also of those lost
    /// before that nothing reported. [`Stats::spans_lost`] has the reasons.
    pub fn spans_lost(&self) -> u64 {
        self.wait.lost
    }

    /// Returns what happened, without the reason.
    fn outcome(&self) -> String {
        let WaitError { timed_out, left, lost, .. } = self.wait;
        let seconds = self.waited.as_secs_f64();
        match (timed_out, self.is_end) {
            (true, true) if left > 0 => format!(
                "gave up after {seconds} s at the end: {} lost, {left} still being exported",
                spans(lost)
            ),
            (true, true) => format!("gave up after {seconds} s at the end: {} lost", spans(lost)),
            (true, false) => format!("gave up after {seconds} s: {} waiting, {lost} lost", spans(left)),
            (false, _) if lost == 1 => "1 span was lost".to_owned(),
            (false, _) if lost > 0 => format!("{lost} spans were lost"),
            (false, _) => "the exporter failed".to_owned(),
        }
    }
}

impl fmt::Display for FlushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.wait.last_error.as_deref();
        let reason = reason.unwrap_or("allow more time, or check why the exporter is slow");
        write!(f, "{}; {reason}", self.outcome())
    }
}

debug_as_display!(FlushError);

impl std::error::Error for FlushError {}
