//! Work that is done now and then, on a thread of its own: watching the parameters file, and snapshots of the record table.
//!
//! The thread is started only if one of these is asked for. It makes no spans: no subscriber hears it but for warnings, each
//! of which is given once.

mod file;
#[cfg(feature = "parameters")]
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use astracer_samplers::{Nanos, Restored, Sampler};
use opentelemetry::Context;

use crate::core::Shared;

/// The time between two looks at the parameters file.
const TICK: Duration = Duration::from_secs(1);
/// The number of ticks between two snapshots.
const SNAPSHOT_TICKS: u32 = 60;

/// The work to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chores {
    #[cfg_attr(not(feature = "parameters"), allow(dead_code, reason = "files of parameters cannot be read"))]
    pub(crate) watched: Option<PathBuf>,
    pub(crate) snapshot: Option<PathBuf>,
}

impl Chores {
    pub(crate) fn is_empty(&self) -> bool {
        self.watched.is_none() && self.snapshot.is_none()
    }
}

/// The thread's state, for itself and for the handle.
#[derive(Debug)]
pub(crate) struct Housekeeping {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    chores: Chores,
    #[cfg(feature = "parameters")]
    watch: watch::Watch,
    ticks: u32,
    is_over: bool,
    faults: Faults,
}

/// The faults that hold now. Each is told once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    pub(crate) parameters: Option<String>,
    pub(crate) snapshot: Option<String>,
}

impl Housekeeping {
    pub(crate) fn new(chores: Chores) -> Arc<Self> {
        let state = State {
            #[cfg(feature = "parameters")]
            watch: watch::Watch::new(chores.watched.as_deref()),
            chores,
            ticks: 0,
            is_over: false,
            faults: Faults::default(),
        };
        Arc::new(Housekeeping { state: Mutex::new(state), wake: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until it is told to end, or nobody is left who could be interested.
    pub(crate) fn run(&self, shared: &Weak<Shared>) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let mut state = self.lock();
        while !state.is_over {
            state = self.wake.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
            let Some(shared) = shared.upgrade() else { return };
            if !state.is_over {
                state.tick(&shared);
            }
        }
    }

    /// The last snapshot; then the thread ends.
    pub(crate) fn finish(&self, shared: &Shared) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let mut state = self.lock();
        if !std::mem::replace(&mut state.is_over, true) {
            state.save(shared);
        }
        self.wake.notify_all();
    }

    /// Looks at the parameters file now.
    pub(crate) fn look(&self, shared: &Shared) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        self.lock().tick(shared);
    }

    pub(crate) fn faults(&self) -> Faults {
        self.lock().faults.clone()
    }
}

impl State {
    fn tick(&mut self, shared: &Shared) {
        #[cfg(feature = "parameters")]
        if let Some(path) = &self.chores.watched {
            match self.watch.look(path, |text| shared.steering().set_parameters(shared.decider(), text)) {
                watch::Seen::Nothing => {}
                watch::Seen::Taken => self.faults.parameters = None,
                watch::Seen::Fault(fault) => tell(&mut self.faults.parameters, fault),
            }
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(SNAPSHOT_TICKS) {
            self.save(shared);
        }
    }

    fn save(&mut self, shared: &Shared) {
        let Some(path) = &self.chores.snapshot else { return };
        let decider = shared.decider();
        let Some(image) = decider.sampler().image(decider.now(), unix_nanos()) else { return };
        match file::replace(path, &image) {
            Ok(()) => self.faults.snapshot = None,
            Err(error) => {
                let fault = format!("{}: the snapshot cannot be written: {error}", path.display());
                tell(&mut self.faults.snapshot, fault);
            }
        }
    }
}

/// Tells a fault that is new.
fn tell(known: &mut Option<String>, fault: String) {
    if known.as_ref() != Some(&fault) {
        tracing::warn!("astracer: {fault}");
        *known = Some(fault);
    }
}

/// Nanoseconds since 1970 by the wall clock; 0 before.
fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Takes the keys of a snapshot over; gives the time at which the sampler is to go on. A snapshot that is damaged or of
/// another sampler is ignored, with a warning; one that is not there, without.
pub(crate) fn warm_start(sampler: &Sampler, path: &std::path::Path) -> Nanos {
    let restored = match file::read(path) {
        Ok(None) => return Nanos::ZERO,
        Ok(Some(bytes)) => sampler.restore(&bytes).map_err(|error| Box::new(error) as Box<dyn fmt::Display>),
        Err(error) => Err(Box::new(error) as Box<dyn fmt::Display>),
    };
    match restored {
        // A wall clock that was set back: as if no time had passed.
        Ok(Restored { stamp, now, .. }) => now.saturating_add(Nanos::new(unix_nanos().saturating_sub(stamp))),
        Err(error) => {
            tracing::warn!("astracer: {}: the snapshot is ignored: {error}", path.display());
            Nanos::ZERO
        }
    }
}
