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
use crate::export::SharedExporter;
use crate::heartbeat::Heart;

/// The time between two looks at the parameters file.
const TICK: Duration = Duration::from_secs(1);
/// The number of ticks between two snapshots.
const SNAPSHOT_TICKS: u64 = 60;

/// The work to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chores {
    #[cfg_attr(not(feature = "parameters"), allow(dead_code, reason = "files of parameters cannot be read"))]
    pub(crate) watched: Option<PathBuf>,
    pub(crate) snapshot: Option<PathBuf>,
    pub(crate) heartbeat: Option<Duration>,
}

impl Chores {
    pub(crate) fn is_empty(&self) -> bool {
        self.watched.is_none() && self.snapshot.is_none() && self.heartbeat.is_none()
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
    ticks: u64,
    heart: Heart,
    /// Spans of heartbeats that the exporter took, and did not.
    heartbeats: (u64, u64),
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
            heart: Heart::default(),
            heartbeats: (0, 0),
            is_over: false,
            faults: Faults::default(),
        };
        Arc::new(Housekeeping { state: Mutex::new(state), wake: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until it is told to end, or nobody is left who could be interested.
    pub(crate) fn run(&self, shared: &Weak<Shared>, exporter: Option<&SharedExporter>) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let mut state = self.lock();
        while !state.is_over {
            state = self.wake.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
            let Some(shared) = shared.upgrade() else { return };
            if !state.is_over {
                state.tick(&shared, exporter);
            }
        }
    }

    /// The last snapshot and the last heartbeat; then the thread ends.
    pub(crate) fn finish(&self, shared: &Shared, exporter: Option<&SharedExporter>) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let mut state = self.lock();
        if !std::mem::replace(&mut state.is_over, true) {
            state.save(shared);
            state.beat(shared, exporter);
        }
        self.wake.notify_all();
    }

    /// Looks at the parameters file now.
    pub(crate) fn look(&self, shared: &Shared, exporter: Option<&SharedExporter>) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        self.lock().tick(shared, exporter);
    }

    pub(crate) fn heartbeats(&self) -> (u64, u64) {
        self.lock().heartbeats
    }

    pub(crate) fn faults(&self) -> Faults {
        self.lock().faults.clone()
    }
}

impl State {
    fn tick(&mut self, shared: &Shared, exporter: Option<&SharedExporter>) {
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
        if self.chores.heartbeat.is_some_and(|every| self.ticks.is_multiple_of(every.as_secs())) {
            self.beat(shared, exporter);
        }
    }

    fn beat(&mut self, shared: &Shared, exporter: Option<&SharedExporter>) {
        let (Some(_), Some(exporter)) = (self.chores.heartbeat, exporter) else { return };
        let spans = self.heart.beat(shared.steering().keys(shared.decider()), SystemTime::now());
        let all = spans.len() as u64;
        let accepted = exporter.export(spans).accepted;
        self.heartbeats.0 += accepted;
        self.heartbeats.1 += all - accepted.min(all);
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
