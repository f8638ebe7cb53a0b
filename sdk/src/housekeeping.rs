//! Periodic work on its own thread: adjusting a budget's factor, sending heartbeats, saving
//! snapshots of the record table, and comparing traffic with the recording of a parameters file.
//!
//! The thread starts only if one of these is enabled. It makes no spans. Subscribers see only its
//! warnings, each once.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use astracer_model::{UnixNanos, files};
use astracer_samplers::{Nanos, Restored, Sampler};
use opentelemetry::{Context, TraceId};

use crate::fit::{FileFit, Follower};
use crate::heartbeat::Heart;
use crate::steering::Steering;
use astracer_spans::export::Queue;
use astracer_spans::panics::warn;

const TICK: Duration = Duration::from_secs(1);
const SNAPSHOT_TICKS: u64 = 60;
const FIT_TICKS: u64 = 60;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Chores {
    pub(crate) snapshot: Option<PathBuf>,
    pub(crate) heartbeat: Option<Duration>,
    /// The parameters file has figures of its recording, with which traffic is compared.
    pub(crate) follows_file: bool,
}

#[derive(Debug)]
pub(crate) struct Housekeeping {
    chores: Chores,
    queue: Arc<Queue>,
    /// Not held while a subscriber is called: it may be the user's code, block for minutes, or call
    /// the handle.
    status: Mutex<Status>,
    changed: Condvar,
    follower: Mutex<Follower>,
}

#[derive(Debug, Default)]
struct Status {
    snapshot_fault: Option<String>,
    is_over: bool,
    is_done: bool,
}

impl Housekeeping {
    pub(crate) fn new(chores: Chores, queue: Arc<Queue>) -> Arc<Self> {
        let (status, changed, follower) = (Mutex::default(), Condvar::new(), Mutex::default());
        Arc::new(Housekeeping { chores, queue, status, changed, follower })
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until the handle ends the thread, or until all layers and handles are gone. In the
    /// first case it writes a last snapshot and sends a last heartbeat.
    pub(crate) fn run(&self, steering: &Weak<Steering>) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let _done = Done(self);
        let mut heart = Heart::default();
        for tick in 1.. {
            let is_over = self.sleep();
            let Some(steering) = steering.upgrade() else { return };
            if is_over {
                self.save(&steering);
                self.queue.wait_for_heartbeat();
                self.beat(&mut heart, &steering);
                self.queue.wait_for_heartbeat();
                return;
            }
            self.control_budget(&steering);
            if u64::is_multiple_of(tick, SNAPSHOT_TICKS) {
                self.save(&steering);
            }
            if u64::is_multiple_of(tick, FIT_TICKS) {
                self.compare_with_file(&steering);
            }
            if self.chores.heartbeat.is_some_and(|every| is_due(tick, every)) {
                self.beat(&mut heart, &steering);
            }
        }
    }

    fn sleep(&self) -> bool {
        let woken = self.changed.wait_timeout_while(self.status(), TICK, |status| !status.is_over);
        woken.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// Makes the thread write the last snapshot and export the last heartbeat, and waits at most
    /// `timeout` until it has ended. A heartbeat can block for as long as the exporter waits for
    /// its destination.
    pub(crate) fn finish(&self, timeout: Duration) {
        let mut status = self.status();
        status.is_over = true;
        self.changed.notify_all();
        drop(self.changed.wait_timeout_while(status, timeout, |status| !status.is_done));
    }

    pub(crate) fn control_budget(&self, steering: &Steering) {
        steering.control_budget(|| self.queue.progress());
    }

    pub(crate) fn compare_with_file(&self, steering: &Steering) {
        if self.chores.follows_file {
            let (config, now) = (steering.decider.sampler().config().clone(), steering.decider.now());
            let (keys, recorded_kept) = (steering.keys(), steering.recorded_kept());
            let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
            follower.note(&config, recorded_kept, &keys, now);
        }
    }

    /// The fit of the parameters file to the traffic, up to a minute ago.
    pub(crate) fn file_fit(&self) -> Option<FileFit> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner).fit().cloned()
    }

    fn save(&self, steering: &Steering) {
        let Some(path) = &self.chores.snapshot else { return };
        let decider = &steering.decider;
        let Some(image) = decider.sampler().image(decider.now(), UnixNanos::from(SystemTime::now()).0) else {
            return;
        };
        let fault = replace(path, &image).err();
        let fault = fault.map(|error| format!("{}: cannot write the snapshot: {error}", path.display()));
        let known = std::mem::replace(&mut self.status().snapshot_fault, fault.clone());
        if let Some(fault) = fault.filter(|fault| known.as_ref() != Some(fault)) {
            warn(|| tracing::warn!(target: "astracer", parent: None, "{fault}"));
        }
    }

    /// Hands a heartbeat to the exporter's threads. Skipped while the previous one is unsent: the
    /// next one has newer totals anyway.
    fn beat(&self, heart: &mut Heart, steering: &Steering) {
        if self.chores.heartbeat.is_none() || !self.queue.accepts_heartbeat() {
            return;
        }
        let spans = heart.beat(steering.keys(), SystemTime::now());
        if let Some(span) = spans.first() {
            steering.decider.note_keyless(TraceId::from(span.trace_id.0));
        }
        self.queue.send_heartbeat(spans);
    }

    pub(crate) fn snapshot_fault(&self) -> Option<String> {
        self.status().snapshot_fault.clone()
    }
}

/// Whether a heartbeat is due at this tick. An interval with a fraction of a second lasts to the
/// next whole one.
fn is_due(tick: u64, every: Duration) -> bool {
    tick.is_multiple_of(every.as_secs().saturating_add(u64::from(every.subsec_nanos() > 0)).max(1))
}

/// Marks the thread as ended when dropped, also by a panic.
struct Done<'a>(&'a Housekeeping);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.status().is_done = true;
        self.0.changed.notify_all();
    }
}

/// Restores the keys of a snapshot, and returns the time at which the sampler continues. A snapshot
/// that is damaged or belongs to another sampler is ignored with a warning; a missing one is
/// ignored silently.
pub(crate) fn warm_start(sampler: &Sampler, path: &Path) -> Nanos {
    let restored = match read(path) {
        Ok(None) => return Nanos::ZERO,
        Ok(Some(bytes)) => sampler.restore(&bytes).map_err(|error| Box::new(error) as Box<dyn fmt::Display>),
        Err(error) => Err(Box::new(error) as Box<dyn fmt::Display>),
    };
    match restored {
        // If the wall clock was set back, continue as if no time had passed.
        Ok(Restored { stamp, now, .. }) => {
            now.saturating_add(Nanos::new(UnixNanos::from(SystemTime::now()).0.saturating_sub(stamp)))
        }
        Err(error) => {
            let path = path.display();
            tracing::warn!(target: "astracer", parent: None, "{path}: ignoring the snapshot: {error}");
            Nanos::ZERO
        }
    }
}

/// The maximum number of bytes read from a snapshot. 16 million keys would take 2 GiB; the default
/// 10,000 take 1.2 MiB.
const BYTES_MAX: u64 = 256 << 20;

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match files::read(path, BYTES_MAX) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the file by a rename, so that readers never see a part of it. A crash may leave the
/// temporary file `*.new` beside it.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside: PathBuf = path.with_file_name(name);
    // A crash may have left it behind. Opening a pipe of that name would wait.
    let _ = fs::remove_file(&beside);
    let written = File::create_new(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| fs::rename(&beside, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    renamed
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Heartbeats are sent at most as often as requested.
    #[test]
    fn an_interval_with_a_fraction_lasts_to_the_next_whole_second() {
        let beats = |every: Duration| (1..=12).filter(|tick| is_due(*tick, every)).count();
        let every = [1_000, 1_001, 1_900, 2_000, 2_500, 6_000, 12_000].map(Duration::from_millis);
        assert_eq!(every.map(beats), [12, 6, 6, 6, 4, 2, 1]);
        assert_eq!(beats(Duration::MAX), 0);
    }

    /// Counts begin when the layer is built, so the first comparison has something to compare.
    #[cfg(feature = "parameters")]
    #[test]
    fn the_first_comparison_with_a_file_says_how_it_fits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("astracer.toml");
        let file = "version = 5\n[bump]\nlambda = 0.0\ncount = \"none\"\n[bump.probability_by_key]\na = 0.5\n\
                    [recorded]\nkept = 0.1\n";
        fs::write(&path, file).unwrap();
        let astracer = crate::Astracer::builder().with_parameters_file(&path).build().unwrap();
        let shared = astracer.handle.shared().unwrap();
        assert_eq!(astracer.handle.file_fit(), None);
        shared.housekeeping.as_ref().unwrap().compare_with_file(&shared.steering);
        assert_eq!(astracer.handle.file_fit().map(|fit| (fit.keys, fit.keys_seen)), Some((1, 0)));
    }
}
