//! The part of the handle that changes and reports the rules.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use astracer_samplers::{Cap, Config, Nanos, Override, Sampler, shown_key};
use opentelemetry::TraceId;

use super::Handle;
use crate::fault::SteerError;
use crate::rules::{DryRun, DryRunStats, Forced};
use crate::steering::KeyStats;
use crate::why::Explanation;

const OVERRIDES_MAX: usize = 1_000;

/// # Changes while the service runs
///
/// A decision sees each change completely or not at all, and no count is lost.
impl Handle {
    /// Replaces the sampler. Keys that the new parameters treat as before keep their state. The cap
    /// stays.
    pub fn set_sampler(&self, config: &Config) {
        if let Some(shared) = self.shared() {
            shared.steering.set_sampler(config);
        }
    }

    /// Replaces the cap, including the builder's. The credit carries over: a used-up bucket stays
    /// empty, whatever the rates are.
    pub fn set_cap(&self, cap: &Cap) {
        if let Some(shared) = self.shared() {
            shared.steering.set_cap(cap);
        }
    }

    /// Sets the number of processes that share the fleet's cap. A cap that is set later brings its
    /// own number.
    pub fn set_replicas(&self, replicas: NonZeroU32) {
        if let Some(shared) = self.shared() {
            shared.steering.set_replicas(replicas);
        }
    }

    /// The cap in effect, for all replicas together.
    pub fn cap(&self) -> Option<Cap> {
        Some(*self.shared()?.decider.sampler().cap())
    }

    /// The fraction of the cap's credit over all traces that is left, from 0 to 1; `None` without
    /// such a cap.
    pub fn cap_level(&self) -> Option<f64> {
        let decider = &self.shared()?.decider;
        decider.sampler().cap_level(decider.now())
    }

    /// The budget's present factor, by which all probabilities are scaled; `None` without a budget.
    pub fn budget_factor(&self) -> Option<f64> {
        self.shared()?.steering.budget_factor()
    }

    /// Replaces sampler, cap and budget with those in the text of a parameters file. If the text
    /// has no cap or no budget, the one set in code applies: the builder's, or the one from
    /// [`set_cap`](Self::set_cap).
    ///
    /// # Errors
    ///
    /// If the text is not a parameters file, if it introduces a budget where the service started
    /// without one, or if its key rule, source of randomness or policies differ from those with
    /// which the service started. These cannot change while it runs. On an error, nothing changes.
    /// (An existing budget may change, and may end if it came from a file.)
    #[cfg(feature = "parameters")]
    pub fn set_parameters(&self, text: &str) -> Result<(), SteerError> {
        let Some(shared) = self.shared() else { return Ok(()) };
        shared.steering.set_parameters(text).map(drop)
    }

    /// Checks the watched or polled parameters file now, instead of at the next second or interval:
    /// see `Builder::with_watched_parameters_file`.
    /// Blocks until a polled source answers.
    pub fn look_at_parameters(&self) {
        let Some(shared) = self.shared() else { return };
        if let Some(housekeeping) = &shared.housekeeping {
            housekeeping.control_budget(&shared.steering);
        }
        #[cfg(feature = "parameters")]
        if let Some(poller) = &shared.poller {
            poller.look(&Arc::downgrade(&shared.steering));
        }
    }

    /// The reason, with the line, why the watched or polled parameters file is not in effect;
    /// `None` if it is.
    pub fn parameters_fault(&self) -> Option<String> {
        #[cfg(feature = "parameters")]
        return self.shared()?.poller.as_ref()?.fault();
        #[cfg(not(feature = "parameters"))]
        None
    }

    /// The numbers of heartbeat spans that the exporter accepted, and that it did not.
    pub fn heartbeat_spans(&self) -> (u64, u64) {
        self.shared().map(|shared| shared.queue.heartbeats()).unwrap_or_default()
    }

    /// The reason why the last snapshot could not be written; `None` if it was written.
    pub fn snapshot_fault(&self) -> Option<String> {
        self.shared()?.housekeeping.as_ref()?.snapshot_fault()
    }

    /// Lets an override decide on a key's roots for this time, in place of the sampler: for
    /// example, to keep all of `GET /checkout` for ten minutes. The cap still applies. Replaces an
    /// earlier override of the key.
    ///
    /// # Errors
    ///
    /// If 1,000 keys already have one.
    pub fn override_key(&self, key: &str, by: Override, time: Duration) -> Result<(), SteerError> {
        let Some(shared) = self.shared() else { return Ok(()) };
        shared.steering.change(|rules, _, now| {
            if rules.overrides.len() >= OVERRIDES_MAX && !rules.overrides.contains_key(key) {
                let message = format!("{OVERRIDES_MAX} keys already have an override (the limit); end one or wait until one expires");
                return Err(SteerError::new(message));
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
            shared.steering.change(|rules, _, _| rules.overrides.remove(key));
        }
    }

    /// The overrides in effect, by key, with the remaining time of each.
    pub fn overrides(&self) -> BTreeMap<String, (Override, Duration)> {
        let Some(shared) = self.shared() else { return BTreeMap::new() };
        let (rules, now) = (shared.decider.rules.load(), shared.decider.now());
        let holds = rules.overrides.iter().filter(|(_, forced)| now < forced.until);
        let left = |forced: &Forced| Duration::from_nanos(forced.until.saturating_sub(now).get());
        holds.map(|(key, forced)| (key.clone(), (forced.by, left(forced)))).collect()
    }

    /// Starts a dry run. This sampler is also asked about each root, with the same randomness and
    /// time; its decisions are counted and have no effect. `None` ends the dry run. Meanwhile a
    /// decision takes about twice as long.
    ///
    /// With [strata](crate::Builder::with_strata), which decide later, nothing is compared.
    pub fn set_dry_run(&self, config: Option<&Config>) {
        if let Some(shared) = self.shared() {
            shared.steering.change(|rules, _, _| {
                let new =
                    |config| Arc::new(DryRun::new(Sampler::with_limits(config, rules.sampler.limits())));
                rules.dry_run = config.map(new);
            });
        }
    }

    /// The decisions of the dry run, if there is one.
    pub fn dry_run(&self) -> Option<DryRunStats> {
        Some(self.shared()?.decider.rules.load().dry_run.as_ref()?.stats())
    }
}

/// # Counts and explanations
impl Handle {
    /// The counts of each key since the start, across all changes of the sampler, and its present
    /// state. Keys are sorted by name; those without a record come last. Empty if the sampler does
    /// not decide by key.
    pub fn keys(&self) -> Vec<KeyStats> {
        self.shared().map(|shared| shared.steering.keys()).unwrap_or_default()
    }

    /// The decision about a trace, if it is one of the last ones: see
    /// [`Builder::with_explanations`](crate::Builder::with_explanations). A decision is missing if
    /// threads contended for its buffer.
    pub fn why(&self, trace_id: TraceId) -> Option<Explanation> {
        let shared = self.shared()?;
        let note = shared.decider.why.as_ref()?.find(trace_id)?;
        let keys = self.keys();
        let name = shown_key(&note.key);
        let counts = keys.iter().find(|stats| stats.key.as_deref() == Some(&*name));
        let late = shared.late.as_ref().and_then(|late| late.status(trace_id));
        Some(Explanation::new(note, counts.map(|stats| (stats.seen, stats.kept)), late))
    }
}
