//! Periodic work on its own thread: watching the parameters file, adjusting a budget's factor,
//! sending heartbeats, and saving snapshots of the record table.
//!
//! The thread starts only if one of these is enabled. It makes no spans. Subscribers see only its
//! warnings, each once.

mod file;
#[cfg(feature = "parameters")]
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use astracer_model::Span;
use astracer_samplers::{Nanos, Restored, Sampler};
use opentelemetry::Context;

use crate::core::Shared;
use crate::heartbeat::Heart;
use crate::steering::NewParameters;
use astracer_spans::panics::warn;

/// The interval between checks of the parameters file.
const TICK: Duration = Duration::from_secs(1);
/// The number of ticks between snapshots.
const SNAPSHOT_TICKS: u64 = 60;

/// The enabled kinds of work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chores {
    #[cfg_attr(not(feature = "parameters"), allow(dead_code, reason = "files of parameters cannot be read"))]
    pub(crate) watched: Option<PathBuf>,
    /// The text of the watched file, if the builder applied it.
    #[cfg(feature = "parameters")]
    pub(crate) taken: Option<String>,
    pub(crate) snapshot: Option<PathBuf>,
    pub(crate) heartbeat: Option<Duration>,
}

impl Chores {
    pub(crate) fn is_empty(&self) -> bool {
        self.watched.is_none() && self.snapshot.is_none() && self.heartbeat.is_none()
    }
}

/// The thread's state, shared with the handle.
///
/// Neither lock is held while a subscriber is called: it may be the user's code, block for minutes,
/// or call the handle.
#[derive(Debug)]
pub(crate) struct Housekeeping {
    /// Held during one piece of work: reading the parameters file, writing the snapshot.
    work: Mutex<Work>,
    /// Held only briefly. Locked after `work`.
    status: Mutex<Status>,
    changed: Condvar,
}

#[derive(Debug)]
struct Work {
    chores: Chores,
    #[cfg(feature = "parameters")]
    watch: watch::Watch,
    ticks: u64,
    heart: Heart,
}

/// The results of the work so far, and the thread's end.
#[derive(Debug, Default)]
struct Status {
    faults: Faults,
    /// Asks the thread to stop.
    is_over: bool,
    /// The thread has ended.
    is_done: bool,
}

/// The current faults. Each is reported once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    pub(crate) parameters: Option<String>,
    pub(crate) snapshot: Option<String>,
}

/// The result of one piece of work: a fault, or success; `None` if nothing changed.
type Change = Option<Result<(), String>>;

impl Housekeeping {
    pub(crate) fn new(chores: Chores) -> Arc<Self> {
        let work = Work {
            #[cfg(feature = "parameters")]
            watch: watch::Watch::new(chores.taken.clone()),
            chores,
            ticks: 0,
            heart: Heart::default(),
        };
        Arc::new(Housekeeping {
            work: Mutex::new(work),
            status: Mutex::new(Status::default()),
            changed: Condvar::new(),
        })
    }

    /// Works until the handle ends the thread, or until all layers and handles are gone. In the
    /// first case it writes a last snapshot and sends a last heartbeat.
    pub(crate) fn run(&self, shared: &Weak<Shared>) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let _done = Done(self);
        loop {
            let is_over = self.sleep();
            let Some(shared) = shared.upgrade() else { return };
            if is_over {
                self.save(&shared);
                shared.queue().wait_for_heartbeat();
                self.beat(&shared);
                shared.queue().wait_for_heartbeat();
                return;
            }
            self.look(&shared);
            let (saves, beats) = lock(&self.work).next_tick();
            if saves {
                self.save(&shared);
            }
            if beats {
                self.beat(&shared);
            }
        }
    }

    /// Waits for the next tick. Returns true if the thread must stop.
    fn sleep(&self) -> bool {
        let status = lock(&self.status);
        let woken = self.changed.wait_timeout_while(status, TICK, |status| !status.is_over);
        woken.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// Makes the thread write the last snapshot and export the last heartbeat, and waits at most
    /// `timeout` until it has ended. A heartbeat can block for as long as the exporter waits for
    /// its destination.
    pub(crate) fn finish(&self, timeout: Duration) {
        let mut status = lock(&self.status);
        status.is_over = true;
        self.changed.notify_all();
        drop(self.changed.wait_timeout_while(status, timeout, |status| !status.is_done));
    }

    /// Checks the parameters file now.
    pub(crate) fn look(&self, shared: &Shared) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        shared.steering().control_budget(shared.decider(), || shared.queue().progress());
        let (change, news) = lock(&self.work).look(shared);
        self.note(change, |faults| &mut faults.parameters);
        // Without a lock: the subscriber may call the handle.
        if let Some(news) = news {
            news.tell();
        }
    }

    fn save(&self, shared: &Shared) {
        let change = lock(&self.work).save(shared);
        self.note(change, |faults| &mut faults.snapshot);
    }

    /// Stores the result of a piece of work, and warns of a new fault.
    fn note(&self, change: Change, place: impl FnOnce(&mut Faults) -> &mut Option<String>) {
        let Some(result) = change else { return };
        let fault = result.err();
        let mut status = lock(&self.status);
        let known = place(&mut status.faults);
        let is_new = *known != fault;
        known.clone_from(&fault);
        drop(status);
        if let Some(fault) = fault.filter(|_| is_new) {
            warn(|| tracing::warn!("astracer: {fault}"));
        }
    }

    /// Hands a heartbeat to the exporter's threads. Skipped while the previous one is unsent: the
    /// next one has newer totals anyway.
    fn beat(&self, shared: &Shared) {
        let queue = shared.queue();
        if queue.accepts_heartbeat()
            && let Some(spans) = lock(&self.work).beat(shared)
        {
            queue.send_heartbeat(spans);
        }
    }

    pub(crate) fn faults(&self) -> Faults {
        lock(&self.status).faults.clone()
    }
}

/// Marks the thread as ended when dropped, also by a panic.
struct Done<'a>(&'a Housekeeping);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        lock(&self.0.status).is_done = true;
        self.0.changed.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    /// Counts a tick. Returns whether a snapshot and a heartbeat are due.
    fn next_tick(&mut self) -> (bool, bool) {
        self.ticks += 1;
        let ticks =
            |every: Duration| every.as_secs().saturating_add(u64::from(every.subsec_nanos() > 0)).max(1);
        let beats = self.chores.heartbeat.is_some_and(|every| self.ticks.is_multiple_of(ticks(every)));
        (self.ticks.is_multiple_of(SNAPSHOT_TICKS), beats)
    }

    #[cfg(feature = "parameters")]
    fn look(&mut self, shared: &Shared) -> (Change, Option<NewParameters>) {
        let Some(path) = &self.chores.watched else { return (None, None) };
        let mut news = None;
        let take = |text: &str| {
            news = shared.steering().set_parameters(shared.decider(), text)?;
            Ok(())
        };
        let change = match self.watch.look(path, take) {
            watch::FileCheck::Unchanged => None,
            watch::FileCheck::Applied => Some(Ok(())),
            watch::FileCheck::Fault(fault) => Some(Err(fault)),
        };
        (change, news)
    }

    #[cfg(not(feature = "parameters"))]
    fn look(&mut self, _: &Shared) -> (Change, Option<NewParameters>) {
        (None, None)
    }

    /// The spans of a heartbeat, if heartbeats are enabled.
    fn beat(&mut self, shared: &Shared) -> Option<Vec<Span<'static>>> {
        self.chores.heartbeat?;
        let spans = self.heart.beat(shared.steering().keys(shared.decider()), SystemTime::now());
        if let Some(span) = spans.first() {
            shared.decider().note_keyless(opentelemetry::TraceId::from(span.trace_id.0));
        }
        Some(spans)
    }

    fn save(&mut self, shared: &Shared) -> Change {
        let path = self.chores.snapshot.as_ref()?;
        let decider = shared.decider();
        let image = decider.sampler().image(decider.now(), unix_nanos())?;
        let written = file::replace(path, &image);
        Some(written.map_err(|error| format!("{}: cannot write the snapshot: {error}", path.display())))
    }
}

/// Nanoseconds since 1970 by the wall clock; 0 before 1970.
fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Restores the keys of a snapshot, and returns the time at which the sampler continues. A snapshot
/// that is damaged or belongs to another sampler is ignored with a warning; a missing one is
/// ignored silently.
pub(crate) fn warm_start(sampler: &Sampler, path: &std::path::Path) -> Nanos {
    let restored = match file::read(path) {
        Ok(None) => return Nanos::ZERO,
        Ok(Some(bytes)) => sampler.restore(&bytes).map_err(|error| Box::new(error) as Box<dyn fmt::Display>),
        Err(error) => Err(Box::new(error) as Box<dyn fmt::Display>),
    };
    match restored {
        // If the wall clock was set back, continue as if no time had passed.
        Ok(Restored { stamp, now, .. }) => now.saturating_add(Nanos::new(unix_nanos().saturating_sub(stamp))),
        Err(error) => {
            tracing::warn!("astracer: {}: ignoring the snapshot: {error}", path.display());
            Nanos::ZERO
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Heartbeats are sent at most as often as requested.
    #[test]
    fn an_interval_with_a_fraction_lasts_to_the_next_whole_second() {
        let beats = |every: Duration| {
            let chores = Chores { heartbeat: Some(every), ..Chores::default() };
            let housekeeping = Housekeeping::new(chores);
            let mut work = lock(&housekeeping.work);
            (1..=12).filter(|_| work.next_tick().1).count()
        };
        let every = [1_000, 1_001, 1_900, 2_000, 2_500, 6_000, 12_000].map(Duration::from_millis);
        assert_eq!(every.map(beats), [12, 6, 6, 6, 4, 2, 1]);
        assert_eq!(beats(Duration::MAX), 0);
    }
}
