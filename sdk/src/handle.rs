//! The handle: what the service keeps to ask for stats, and to end in order.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use astracer_samplers::{Config, Snapshot};

use crate::layer::Core;
use crate::stats::Stats;

/// Stats, flush and shutdown. Cheap to clone.
///
/// A service that ends without [`Handle::shutdown`] loses what is queued: a global subscriber is never dropped.
#[derive(Clone, Debug)]
pub struct Handle {
    core: Option<Arc<Core>>,
}

impl Handle {
    pub(crate) fn new(core: Option<Arc<Core>>) -> Self {
        Handle { core }
    }

    fn core(&self) -> Option<&Core> {
        if cfg!(feature = "enabled") { self.core.as_deref() } else { None }
    }

    /// Whether anything is recorded at all: false if switched off.
    pub fn is_enabled(&self) -> bool {
        self.core().is_some()
    }

    /// Counts since the start.
    pub fn stats(&self) -> Stats {
        let Some(core) = self.core() else { return Stats::default() };
        Stats { last_error: core.queue.last_error(), ..core.counters.read() }
    }

    /// The sampler's counts by key; `None` if it does not decide by key.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.core()?.decider.sampler().snapshot()
    }

    /// The sampler at work; `None` if switched off.
    pub fn sampler_config(&self) -> Option<&Config> {
        Some(self.core()?.decider.sampler().config())
    }

    /// Exports the traces that have ended, and waits for it.
    ///
    /// # Errors
    ///
    /// If it takes longer than `timeout`; it goes on nevertheless.
    pub fn flush(&self, timeout: Duration) -> Result<(), TimedOut> {
        self.core().map_or(Ok(()), |core| core.queue.flush(timeout).map_err(|_| TimedOut))
    }

    /// Exports what has ended, of open traces too, shuts the exporter down, and waits for it. From now on every local
    /// root is dropped. Spans that are still open are lost, and counted.
    ///
    /// # Errors
    ///
    /// If it takes longer than `timeout`; it goes on nevertheless.
    pub fn shutdown(&self, timeout: Duration) -> Result<(), TimedOut> {
        let Some(core) = self.core() else { return Ok(()) };
        core.close();
        core.queue.wait_for_end(timeout).map_err(|_| TimedOut)
    }
}

/// The exporter was not done in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the exporter was not done in time")
    }
}

impl std::error::Error for TimedOut {}
