//! Settings of what is kept: the cap, and what is told and remembered about decisions.

use std::path::PathBuf;
use std::time::Duration;

use astracer_samplers::{Budget, Cap, Config, Limits, RandomSource};

use super::Builder;

/// The text of the default sampler.
const DEFAULT_SAMPLER: &str = "bump:lambda=10,min=0.01,window=1s";

pub(crate) fn default_sampler() -> Config {
    // A constant, which a test parses.
    DEFAULT_SAMPLER.parse().unwrap_or(Config::Always)
}

impl Builder {
    /// Limits on the memory of the sampler.
    pub fn with_sampler_limits(mut self, limits: Limits) -> Self {
        self.sampler_limits = limits;
        self
    }

    /// The randomness of traces that begin here: their ids', unless it is to be stratified.
    pub fn with_random(mut self, random: RandomSource) -> Self {
        self.random = random;
        self
    }

    /// Bounds on what is kept and exported, whatever the sampler decides; none by default. A
    /// process holds its share of a fleet's cap: see [`Cap::replicas`]. A parameters file that has
    /// a cap replaces it; it comes back with one that has none.
    pub fn with_cap(mut self, cap: Cap) -> Self {
        (self.cap, self.own_cap) = (cap, cap);
        self
    }

    /// The cap of a parameters file, if it has any: else that of the code.
    #[cfg(feature = "parameters")]
    pub(crate) fn with_cap_of(mut self, cap: Cap) -> Self {
        self.cap = if cap.is_none() { self.own_cap } else { cap };
        self
    }

    /// A target of exported bytes a second, as OTLP protobuf before compression; none by default.
    /// The probabilities of bump and of a ratio are scaled by one factor, which moves at most
    /// twofold an interval and brings no key below its floor; see
    /// [`Handle::budget_factor`](crate::Handle::budget_factor). Samplers without probabilities stay
    /// as they are. A snapshot of another factor is of another sampler, and ignored. A parameters
    /// file that has a budget replaces it; it comes back with one that has none.
    pub fn with_budget(mut self, budget: Budget) -> Self {
        (self.budget, self.own_budget) = (Some(budget.clone()), Some(budget));
        self
    }

    /// The budget of a parameters file, if it has any: else that of the code.
    #[cfg(feature = "parameters")]
    pub(crate) fn with_budget_of(mut self, budget: Option<Budget>) -> Self {
        self.budget = budget.or_else(|| self.own_budget.clone());
        self
    }

    /// Remembers at least this number of decisions, up to 131,072, for
    /// [`Handle::why`](crate::Handle::why); none by default. Each takes up to 350 bytes, as it is
    /// made, and a decision some 50 ns more. Many threads, which share eight memories, are
    /// remembered with up to eight times the number.
    pub fn with_explanations(mut self, decisions: usize) -> Self {
        self.explained = decisions;
        self
    }

    /// Sends a heartbeat this often, and at shutdown: spans named `astracer.heartbeat` with an
    /// event for each key, which says how many roots of it there were and how many were kept since
    /// the process began: exact totals beside the weights of what was kept. In whole seconds,
    /// rounded up, and at least one; none by default. It is one of the exports in flight, and while
    /// the exporter has not taken it, there is no other.
    pub fn with_heartbeat(mut self, every: Duration) -> Self {
        self.chores.heartbeat = Some(every);
        self
    }

    /// Takes a snapshot of the sampler's keys and their states each minute and at shutdown, and
    /// begins with the one that is there: the sampler goes on where the process before was. Counts
    /// of calls begin at zero. A snapshot that is damaged, or of another sampler, is ignored with a
    /// warning. Processes must not share a path.
    pub fn with_snapshot_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.chores.snapshot = Some(path.into());
        self
    }

    /// As [`with_parameters_file`](Self::with_parameters_file), and looks at the file each second:
    /// a new one is taken over while the service runs, with all counts kept. One that cannot be
    /// used is told once, with its line and the reason, in a warning and in
    /// `Handle::parameters_fault`; the last good one holds.
    #[cfg(feature = "parameters")]
    pub fn with_watched_parameters_file(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let (mut builder, taken) = self.with_parameters_of(&path);
        (builder.chores.watched, builder.chores.taken) = (Some(path), taken);
        builder
    }

    /// Asks a URL for the parameters file from time to time, the first time at once, and takes a
    /// new one over while the service runs, with all counts kept. Until there is one, the other
    /// settings hold. An answer that cannot be used is told once, in a warning and in
    /// `Handle::parameters_fault`; the last good parameters hold.
    ///
    /// A file is only asked for once the service runs, so some of it must be as the builder has it:
    /// keys and source of randomness; policies ([`with_tail`](Self::with_tail)) if it has any; and
    /// if it has a budget, the builder needs one ([`with_budget`](Self::with_budget)), which it
    /// replaces.
    #[cfg(feature = "polling")]
    pub fn with_polled_parameters(mut self, polling: crate::Polling) -> Self {
        match polling.client() {
            Ok(client) => {
                self.polled = Some(client);
                self
            }
            Err((origin, message)) => self.with_fault(origin, message),
        }
    }

    /// Adds to each root that the sampler kept how it was decided: `sampler.type` (the reason),
    /// `sampler.key`, and where the decision was made by chance `sampler.param` (the probability)
    /// and `sampler.adjusted_count` (the number of traces that this one stands for); off by
    /// default. The trace state has the weight in any case, as `ot=th`.
    pub fn with_sampling_attributes(mut self, with: bool) -> Self {
        self.sampling_attributes = with;
        self
    }
}
