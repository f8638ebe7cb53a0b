//! Builder settings for head sampling: the cap and the budget, and how decisions are reported and
//! remembered.

use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "parameters")]
use astracer_samplers::parameters::Parameters;
#[cfg(feature = "parameters")]
use astracer_samplers::tail::Tail;
use astracer_samplers::{Budget, Cap, Config, Limits, RandomSource};

use super::Builder;
#[cfg(feature = "parameters")]
use crate::polling::Client;

const DEFAULT_SAMPLER: &str = "bump:lambda=10,min=0.01,window=1s";

pub(super) fn default_sampler() -> Config {
    // A test parses this constant, so the fallback is never used.
    DEFAULT_SAMPLER.parse().unwrap_or(Config::Always)
}

/// # Caps, budgets and records of decisions
impl Builder {
    /// Limits the memory of the sampler.
    pub fn with_sampler_limits(mut self, limits: Limits) -> Self {
        self.sampler_limits = limits;
        self
    }

    /// Sets the source of randomness for traces that begin here. By default it is their ids; it can
    /// be stratified.
    pub fn with_random(mut self, random: RandomSource) -> Self {
        self.random = random;
        self
    }

    /// Fixes where stratified random numbers and those of [strata](Self::with_strata) begin, for
    /// tests and to compare with a replay: `astracer evaluate --seed` with the same number keeps
    /// the same traces. By default each process draws a secret, so that callers cannot choose to be
    /// kept.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Bounds what is kept and exported, whatever the sampler decides; no bound by default. Each
    /// process gets its share of a fleet's cap: see [`Cap::replicas`]. A cap in a parameters file
    /// replaces this one, which applies again with a file without a cap.
    pub fn with_cap(mut self, cap: Cap) -> Self {
        (self.cap, self.own_cap) = (cap, cap);
        self
    }

    /// Sets a target for exported bytes per second, measured as OTLP protobuf before compression;
    /// none by default.
    ///
    /// The probabilities of `bump` and `ratio` samplers are scaled by one factor. It changes at
    /// most twofold per interval and lowers no key below its floor; see
    /// [`Handle::budget_factor`](crate::Handle::budget_factor). Samplers without probabilities are
    /// not scaled. A snapshot taken at another factor counts as one of another sampler, and is
    /// ignored. A budget in a parameters file replaces this one, which applies again with a file
    /// without a budget.
    pub fn with_budget(mut self, budget: Budget) -> Self {
        (self.budget, self.own_budget) = (Some(budget.clone()), Some(budget));
        self
    }

    /// Remembers at least this number of decisions, up to 131,072, for
    /// [`Handle::why`](crate::Handle::why); none by default.
    ///
    /// Each remembered decision takes up to 350 bytes, allocated when it is made, and makes a
    /// decision about 50 ns slower. Decisions are stored in eight ring buffers that the threads
    /// share, so with many threads up to eight times the number is remembered.
    pub fn with_explanations(mut self, decisions: usize) -> Self {
        self.explained = decisions;
        self
    }

    /// Sends a heartbeat at this interval, and at shutdown; none by default.
    ///
    /// A heartbeat consists of spans named `astracer.heartbeat` with one event for each key. The
    /// event says how many roots of the key there were and how many were kept since the process
    /// started: exact totals beside the weights of the kept traces. The interval is rounded up to
    /// whole seconds, with a minimum of one. A heartbeat is one of the exports in flight, and the
    /// next one waits until the exporter has taken it.
    pub fn with_heartbeat(mut self, every: Duration) -> Self {
        self.chores.heartbeat = Some(every);
        self
    }

    /// Writes a snapshot of the sampler's keys and their states each minute and at shutdown, and
    /// loads an existing one at the start, so that the sampler continues where the previous process
    /// stopped.
    ///
    /// Counts of calls start at zero. A snapshot that is damaged, or of another sampler, is ignored
    /// with a warning. Processes must not share a path.
    pub fn with_snapshot_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.chores.snapshot = Some(path.into());
        self
    }

    /// As [`with_parameters_file`](Self::with_parameters_file), but also checks the file each
    /// second. A new file takes effect while the service runs, and all counts are kept.
    ///
    /// If a file cannot be used, that is reported once, with the line and the reason, in a warning
    /// and in `Handle::parameters_fault`. The last good parameters stay in effect. Replaces an
    /// earlier [polled source](Self::with_polled_parameters).
    #[cfg(feature = "parameters")]
    pub fn with_watched_parameters_file(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let (mut builder, taken) = self.with_parameters_of(&path);
        builder.polled = Some(Client::of_file(path, taken));
        builder
    }

    /// Polls a source of parameters files, such as a URL (`Polling` of `astracer`), starting at
    /// once. New parameters take effect while the service runs, and all counts are kept. Until the
    /// first file arrives, the other settings apply. If a response cannot be used, that is reported
    /// once, in a warning and in `Handle::parameters_fault`. The last good parameters stay in
    /// effect. Replaces an earlier
    /// [watched file](Self::with_watched_parameters_file), or source.
    ///
    /// The file is first requested when the service already runs, so some parts must match the
    /// builder's settings: the keys, the source of randomness, and the policies
    /// ([`with_tail`](Self::with_tail)) if the file has any. If the file has a budget, the builder
    /// needs one too ([`with_budget`](Self::with_budget)), which the file's replaces.
    #[cfg(feature = "parameters")]
    pub fn with_polled_parameters(mut self, source: impl crate::ParametersSource) -> Self {
        match Client::new(source) {
            Ok(client) => {
                self.polled = Some(client);
                self
            }
            Err((origin, message)) => self.with_fault(origin, message),
        }
    }

    /// Adds attributes that say how a kept trace was decided; off by default. Its root has
    /// `sampler.type` (the reason) and `sampler.key`, and for a probabilistic decision also
    /// `sampler.param` (the probability). If the trace has a weight, each of its spans has
    /// `sampler.adjusted_count`, the number of traces that this one represents. The trace state
    /// always has the weight, as `ot=th`.
    pub fn with_sampling_attributes(mut self, with: bool) -> Self {
        self.sampling_attributes = with;
        self.settings.extras.weights = with;
        self
    }
}

/// # Parameters files
#[cfg(feature = "parameters")]
impl Builder {
    pub(super) fn take(&mut self, parameters: Parameters) {
        let Parameters { config, key, random, cap, tail, budget, strata, recorded_kept, comments: _ } =
            parameters;
        self.strata = strata.or_else(|| self.own_strata.clone());
        self.recorded_kept = recorded_kept;
        self.chores.follows_file = recorded_kept.is_some();
        (self.key, self.random, self.sampler) = (key.into(), random, Some(config));
        self.file_tail = tail.clone();
        if tail != Tail::default() {
            self.tail = tail;
        }
        self.budget = budget.or_else(|| self.own_budget.clone());
        self.cap = if cap.is_none() { self.own_cap } else { cap };
    }
}
