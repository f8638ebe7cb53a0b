//! Stats, flush and shutdown.

mod steer;
mod tail;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use astracer_samplers::{Config, Snapshot};
use opentelemetry_sdk::Resource;

use crate::core::Shared;
use crate::export::{Patience, SharedExporter, WaitError};
use crate::housekeeping::Housekeeping;
use crate::stats::Stats;

/// Stats, flush and shutdown. Cheap to clone.
///
/// A service that ends without [`Handle::shutdown`] loses the spans that are queued: a global
/// subscriber is never dropped. See [`Handle::shutdown_on_drop`].
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Option<Arc<Shared>>,
    exporter: Option<Arc<SharedExporter>>,
    housekeeping: Option<Arc<Housekeeping>>,
    resource: Option<Resource>,
    #[cfg(feature = "polling")]
    poller: Option<Arc<crate::polling::Poller>>,
}

/// The time that the exporter's thread gets, after the deadline of a shutdown, to count the spans
/// that are left.
const COUNTING: Duration = Duration::from_secs(1);

impl Handle {
    pub(crate) fn new(shared: Option<Arc<Shared>>, exporter: Option<Arc<SharedExporter>>) -> Self {
        Handle {
            shared,
            exporter,
            housekeeping: None,
            resource: None,
            #[cfg(feature = "polling")]
            poller: None,
        }
    }

    pub(crate) fn with_resource(self, resource: Resource) -> Self {
        Handle { resource: Some(resource), ..self }
    }

    pub(crate) fn with_housekeeping(self, housekeeping: Option<Arc<Housekeeping>>) -> Self {
        Handle { housekeeping, ..self }
    }

    #[cfg(feature = "polling")]
    pub(crate) fn with_poller(self, poller: Arc<crate::polling::Poller>) -> Self {
        Handle { poller: Some(poller), ..self }
    }

    /// Starts the thread that polls.
    #[cfg(feature = "polling")]
    pub(crate) fn poll(&self) -> std::io::Result<()> {
        let (Some(shared), Some(poller)) = (&self.shared, self.poller.clone()) else { return Ok(()) };
        let weak = Arc::downgrade(shared);
        let thread = std::thread::Builder::new().name("astracer-poller".to_owned());
        thread.spawn(move || poller.run(&weak)).map(drop)
    }

    /// For what must not keep the layer alive.
    #[cfg(feature = "metrics")]
    pub(crate) fn shared_weak(&self) -> Option<std::sync::Weak<Shared>> {
        self.shared()?;
        self.shared.as_ref().map(Arc::downgrade)
    }

    fn housekeeping(&self) -> Option<&Housekeeping> {
        self.housekeeping.as_deref()
    }

    pub(crate) fn shared(&self) -> Option<&Shared> {
        if cfg!(feature = "enabled") { self.shared.as_deref() } else { None }
    }

    /// Whether anything is recorded at all: false if switched off.
    pub fn is_enabled(&self) -> bool {
        self.shared().is_some()
    }

    /// The service's resource; `None` if switched off.
    pub fn resource(&self) -> Option<&Resource> {
        self.shared()?;
        self.resource.as_ref()
    }

    /// The date from which on roots are counted, the same whenever it is asked for; `None` if
    /// switched off.
    pub fn counted_since(&self) -> Option<SystemTime> {
        Some(self.shared()?.decider().clock().origin())
    }

    /// Counts since the start.
    pub fn stats(&self) -> Stats {
        let waiting = self.exporter.as_ref().and_then(|exporter| exporter.waiting());
        self.shared().map(|shared| Stats { waiting, ..shared.stats() }).unwrap_or_default()
    }

    /// The sampler's counts by key; `None` if it does not decide by key.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.shared()?.decider().sampler().snapshot()
    }

    /// The sampler at work; `None` if switched off.
    pub fn sampler_config(&self) -> Option<Config> {
        Some(self.shared()?.decider().sampler().config().clone())
    }

    /// Exports the spans that have ended, those of open traces too, and waits for it. Spans that
    /// end meanwhile are not waited for. Dropped traces that a policy may keep at their ends
    /// ([`Builder::with_tail`](crate::Builder::with_tail)) are not decided by it: what has ended of
    /// them stays in [`Stats::spans_waiting`].
    ///
    /// # Errors
    ///
    /// If it takes longer than `timeout`, or spans were lost meanwhile; the error has the numbers.
    /// Spans that are not exported at the deadline stay in the queue.
    pub fn flush(&self, timeout: Duration) -> Result<(), ExportError> {
        let Some(shared) = self.shared() else { return Ok(()) };
        let began = Instant::now();
        shared.flush_traces(began.checked_add(timeout).map_or(Patience::Full, Patience::Until));
        let ticket = shared.queue().ask_flush();
        let flushed = shared.queue().wait_for_flush(ticket, timeout.saturating_sub(began.elapsed()));
        Ok(flushed.map_err(|error| self.explained(error))?)
    }

    /// An error of waiting with the cause: an exporter that waits for its destination has not
    /// failed yet.
    fn explained(&self, error: WaitError) -> WaitError {
        let waiting =
            self.exporter.as_ref().filter(|_| error.timed_out).and_then(|exporter| exporter.waiting());
        WaitError { last_error: waiting.or(error.last_error), ..error }
    }

    /// Exports the spans that have ended, those of open traces too, shuts the exporter down, and
    /// waits for it. From now on nothing is recorded. Spans that are still open are lost, and
    /// counted when they end. What is left of `timeout` when all is exported, but for a tenth or
    /// half a second of it, is the exporter's: one with a spool drains it meanwhile.
    ///
    /// # Errors
    ///
    /// If it takes longer than `timeout`, or spans were lost meanwhile; the error has the numbers.
    /// At the deadline the exporter is shut down, even if it is waiting for its destination. Spans
    /// that are not exported by then are lost and counted in
    /// [`Losses::deadline`](crate::Losses::deadline). An export under way gets one second more to
    /// end; if it does not, its spans stay in [`Stats::spans_waiting`].
    pub fn shutdown(&self, timeout: Duration) -> Result<(), ExportError> {
        let Some(shared) = self.shared() else { return Ok(()) };
        let began = Instant::now();
        let deadline = began.checked_add(timeout);
        if let Some(housekeeping) = self.housekeeping() {
            // The last heartbeat needs the exporter, which the queue shuts down. Half of the time
            // is the queue's at least.
            housekeeping.finish(timeout / 2);
        }
        #[cfg(feature = "polling")]
        if let Some(poller) = &self.poller {
            poller.finish();
        }
        let queue = shared.queue();
        let ticket = queue.ticket();
        if let Some(deadline) = deadline {
            queue.end_by(deadline);
        }
        shared.close(deadline.map_or(Patience::Full, Patience::Until));
        let ended = queue.wait_for_end(ticket, timeout.saturating_sub(began.elapsed()));
        if let (Err(WaitError { timed_out: true, .. }), Some(exporter)) = (&ended, &self.exporter) {
            queue.abandon();
            // An export may last for minutes while the destination is down. Its thread cannot end
            // it, so this one does.
            let _ = exporter.shut_down(Duration::ZERO);
            let Err(late) = queue.wait_for_end(ticket, COUNTING) else { return Ok(ended?) };
            return Err(WaitError { timed_out: true, ..late }.into());
        }
        Ok(ended?)
    }

    /// A guard that shuts down when it is dropped, and waits for it at most for `timeout`. For
    /// `main`:
    ///
    /// ```
    /// # let astracer = astracer_sdk::Astracer::builder().with_enabled(false).build().unwrap();
    /// let _guard = astracer.handle.shutdown_on_drop(std::time::Duration::from_secs(5));
    /// ```
    pub fn shutdown_on_drop(&self, timeout: Duration) -> ShutdownGuard {
        ShutdownGuard { handle: self.clone(), timeout }
    }
}

/// Shuts down when it is dropped; see [`Handle::shutdown_on_drop`].
#[derive(Debug)]
#[must_use = "dropped at once, it shuts down at once: bind it to a name, such as `_guard`"]
pub struct ShutdownGuard {
    handle: Handle,
    timeout: Duration,
}

impl Drop for ShutdownGuard {
    /// An error is not reported: [`Stats::last_error`] has the exporter's.
    fn drop(&mut self) {
        let _ = self.handle.shutdown(self.timeout);
    }
}

/// A flush or a shutdown did not export everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportError(WaitError);

impl ExportError {
    /// Returns true if the exporter was not done in time.
    pub fn is_timeout(&self) -> bool {
        self.0.timed_out
    }

    /// Returns true if the exporter was done, but failed.
    pub fn is_export_failure(&self) -> bool {
        !self.0.timed_out
    }

    /// Returns the spans that were waited for and are neither exported nor lost.
    pub fn spans_left(&self) -> u64 {
        self.0.left
    }

    /// Returns the spans that were lost during the call. [`Stats::spans_lost`] has their reasons.
    pub fn spans_lost(&self) -> u64 {
        self.0.lost
    }
}

impl From<WaitError> for ExportError {
    fn from(error: WaitError) -> Self {
        ExportError(error)
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WaitError { timed_out, left, lost, last_error } = &self.0;
        match timed_out {
            true => write!(f, "the exporter was not done in time: {left} spans wait, {lost} are lost")?,
            false => write!(f, "the exporter failed: {lost} spans are lost")?,
        }
        match last_error {
            Some(error) => write!(f, "; {error}"),
            None => f.write_str("; allow it more time, or see why it is slow"),
        }
    }
}

impl std::error::Error for ExportError {}
