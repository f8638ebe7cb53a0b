//! The handle's changes of the rules, and its answers about them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use astracer_samplers::{Cap, Config, Nanos, Override, Sampler, shown_key};
use opentelemetry::TraceId;

use super::Handle;
use crate::rules::{DryRun, DryRunStats, Forced};
use crate::steering::{KeyStats, SteerError};
use crate::why::Explanation;

/// The keys that may have an override at once.
const OVERRIDES_MAX: usize = 1_000;

/// Changes while the service runs, and what the sampler has done. Each change is seen whole or not
/// at all by a decision, and loses no count.
impl Handle {
    /// Replaces the sampler. Keys that its parameters treat as before go on where they are; the cap
    /// stays.
    pub fn set_sampler(&self, config: &Config) {
        if let Some(shared) = self.shared() {
            shared.steering().set_sampler(shared.decider(), config);
        }
    }

    /// Replaces the cap, and that of the builder. Its credit stays as it is; a bucket that was used
    /// up is empty, whatever its rate was.
    pub fn set_cap(&self, cap: &Cap) {
        if let Some(shared) = self.shared() {
            shared.steering().set_cap(shared.decider(), cap);
        }
    }

    /// Tells the process by how many its fleet's cap is shared. A cap that comes later has its own
    /// number.
    pub fn set_replicas(&self, replicas: NonZeroU32) {
        if let Some(shared) = self.shared() {
            shared.steering().set_replicas(shared.decider(), replicas);
        }
    }

    /// The cap at work, of all replicas.
    pub fn cap(&self) -> Option<Cap> {
        Some(*self.shared()?.decider().sampler().cap())
    }

    /// The part of the cap's credit over all traces that is there, from 0 to 1; `None` without such
    /// a cap.
    pub fn cap_level(&self) -> Option<f64> {
        let decider = self.shared()?.decider();
        decider.sampler().cap_level(decider.now())
    }

    /// The factor that the budget has come to, by which all probabilities are scaled; `None`
    /// without a budget.
    pub fn budget_factor(&self) -> Option<f64> {
        self.shared()?.steering().budget_factor()
    }

    /// Replaces sampler, cap and budget by those of a parameters file's text. A text without a cap
    /// or without a budget leaves that of the code: the builder's, or of
    /// [`set_cap`](Self::set_cap).
    ///
    /// # Errors
    ///
    /// If the text is not a parameters file, begins a budget (one that there was from the start may
    /// change, or end if it was a file's), or has another key rule, another source of randomness or
    /// other policies at traces' ends than the service was started with, which cannot change while
    /// it runs. All goes on as before.
    #[cfg(feature = "parameters")]
    pub fn set_parameters(&self, text: &str) -> Result<(), SteerError> {
        let Some(shared) = self.shared() else { return Ok(()) };
        shared.steering().set_parameters(shared.decider(), text)
    }

    /// Looks now at the parameters file that is watched or polled, and not only at the next second
    /// or interval: see
    /// [`Builder::with_watched_parameters_file`](crate::Builder::with_watched_parameters_file). The
    /// answer of a URL is waited for.
    pub fn look_at_parameters(&self) {
        if let (Some(shared), Some(housekeeping)) = (self.shared(), self.housekeeping()) {
            housekeeping.look(shared);
        }
        #[cfg(feature = "polling")]
        if let (Some(shared), Some(poller)) = (&self.shared, &self.poller) {
            poller.look(&Arc::downgrade(shared));
        }
    }

    /// The reason why the watched or polled parameters file is not the one at work, with its line,
    /// if it is not.
    pub fn parameters_fault(&self) -> Option<String> {
        let watched = self.housekeeping().and_then(|housekeeping| housekeeping.faults().parameters);
        #[cfg(feature = "polling")]
        let watched = watched.or_else(|| self.poller.as_ref()?.fault());
        watched
    }

    /// The spans of heartbeats that the exporter took, and those that it did not.
    pub fn heartbeat_spans(&self) -> (u64, u64) {
        self.shared().map(|shared| shared.queue().heartbeats()).unwrap_or_default()
    }

    /// The reason why the last snapshot was not written, if it was not.
    pub fn snapshot_fault(&self) -> Option<String> {
        self.housekeeping()?.faults().snapshot
    }

    /// Decides on a key's roots by an override for this time, in place of the sampler: to keep all
    /// of `GET /checkout` for ten minutes, say. The cap holds all the same. An override of the same
    /// key from before ends.
    ///
    /// # Errors
    ///
    /// If 1,000 keys have one already.
    pub fn override_key(&self, key: &str, by: Override, time: Duration) -> Result<(), SteerError> {
        let Some(shared) = self.shared() else { return Ok(()) };
        shared.steering().change(shared.decider(), |rules, _, now| {
            if rules.overrides.len() >= OVERRIDES_MAX && !rules.overrides.contains_key(key) {
                let message = format!("{OVERRIDES_MAX} keys have overrides already; wait, or end one");
                return Err(SteerError::new(None, message));
            }
            let time = Nanos::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            let forced = Forced { by, until: now.saturating_add(time) };
            rules.overrides.insert(key.to_owned(), forced);
            Ok(())
        })
    }

    /// Ends a key's override.
    pub fn end_override(&self, key: &str) {
        if let Some(shared) = self.shared() {
            shared.steering().change(shared.decider(), |rules, _, _| rules.overrides.remove(key));
        }
    }

    /// The overrides that hold, by key, with the time that each has left.
    pub fn overrides(&self) -> BTreeMap<String, (Override, Duration)> {
        let Some(shared) = self.shared() else { return BTreeMap::new() };
        let (rules, now) = (shared.decider().rules().load(), shared.decider().now());
        let holds = rules.overrides.iter().filter(|(_, forced)| now < forced.until);
        let left = |forced: &Forced| Duration::from_nanos(forced.until.saturating_sub(now).get());
        holds.map(|(key, forced)| (key.clone(), (forced.by, left(forced)))).collect()
    }

    /// Begins a dry run: this sampler is asked about each root as well, with the same randomness
    /// and time, and its decisions are counted and have no effect. `None` ends it. A decision takes
    /// about twice its time meanwhile.
    pub fn set_dry_run(&self, config: Option<&Config>) {
        if let Some(shared) = self.shared() {
            shared.steering().change(shared.decider(), |rules, _, _| {
                let new =
                    |config| Arc::new(DryRun::new(Sampler::with_limits(config, rules.sampler.limits())));
                rules.dry_run = config.map(new);
            });
        }
    }

    /// The decisions of the dry run, if there is one.
    pub fn dry_run(&self) -> Option<DryRunStats> {
        Some(self.shared()?.decider().rules().load().dry_run.as_ref()?.stats())
    }

    /// The counts of each key since the start, through all changes of the sampler, and its state
    /// now: in the order of their names, then those of keys without a record. Empty if the sampler
    /// does not decide by key.
    pub fn keys(&self) -> Vec<KeyStats> {
        self.shared().map(|shared| shared.steering().keys(shared.decider())).unwrap_or_default()
    }

    /// The decision about a trace, if it is one of the last ones: see
    /// [`Builder::with_explanations`](crate::Builder::with_explanations).
    pub fn why(&self, trace_id: TraceId) -> Option<Explanation> {
        let shared = self.shared()?;
        let note = shared.decider().why()?.find(trace_id)?;
        let keys = self.keys();
        let name = shown_key(&note.key);
        let counts = keys.iter().find(|stats| stats.key.as_deref() == Some(&*name));
        let late = shared.tail().and_then(|keeper| keeper.fate(trace_id));
        Some(Explanation::new(note, counts.map(|stats| (stats.seen, stats.kept)), late))
    }

    /// Decisions that [`Handle::why`] does not know of because threads met at its memory.
    pub fn unexplained(&self) -> u64 {
        self.shared().and_then(|shared| Some(shared.decider().why()?.left_out())).unwrap_or_default()
    }
}
