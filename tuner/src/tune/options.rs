//! The options of a search, and those that no search can meet.

use std::time::Duration;

use astracer_report::numbers::written_percent;
use astracer_samplers::{Cap, RandomSource};
use serde::Serialize;

use crate::limits::Limits;
use crate::objective::Objective;
use crate::space::Tunable;

/// The shortest window that a sampler allows.
const WINDOW_MIN: Duration = Duration::from_millis(1);

/// The search: for which sampler, within which limits, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The sampler.
    pub sampler: Tunable,
    /// The objective to minimise.
    pub objective: Objective,
    /// The quantile of single runs to minimise, 0.5 to 1; the mean if unset.
    pub risk: Option<f64>,
    /// Limits on the part that is kept.
    pub limits: Limits,
    /// The hard cap that services are to run under. The search knows nothing of it: what it costs
    /// is found by replay.
    pub cap: Cap,
    /// Window lengths for bump; `None` searches for the length too.
    pub windows: Option<Vec<Duration>>,
    /// The seed of everything that is random.
    pub seed: u64,
    /// The randomness of traces that begin in the service.
    pub random: RandomSource,
    /// Draws of phase and jitter that common parameters are scored on. Each score is a mean over
    /// the randomness of decisions already.
    pub draws: usize,
    /// Searches from different random points.
    pub starts: u32,
    /// Proposals that each start scores, at most.
    pub iterations: u64,
    /// A start ends after this number of proposals without anything better.
    pub stall: u64,
    /// Tuning ends after this; the result then depends on the machine's speed.
    pub time_max: Option<Duration>,
    /// Whether to search at random and on a grid too, with as many evaluations.
    pub compare: bool,
    /// Replays that the result is checked with at most, on draws that no search saw; 0 for none.
    /// There are 96, and twice and twice again as many while the mean of dist/entropy is not known
    /// within 5 %.
    pub replays: u64,
    /// Whether keys get probabilities of their own.
    pub per_key: PerKeyUse,
    /// Proposals that each start of the search over single keys scores.
    pub per_key_iterations: u64,
    /// The least number of traces kept of a key with a probability of its own, in expectation. If
    /// unset, the most of 40, 20, 10, 5, 3 and 1 that costs at most half of each limit.
    pub min_kept: Option<f64>,
    /// Tunes on this first share of the time, and looks at the result on the rest.
    pub split: Option<f64>,
}

/// Whether keys get probabilities of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PerKeyUse {
    /// If they are better on blocks of time that they were not tuned on, and no key is a loop.
    #[default]
    Auto,
    /// If any are within the limits.
    Always,
    /// Not.
    Never,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sampler: Tunable::Bump,
            objective: Objective::paper(),
            risk: None,
            limits: Limits::default(),
            cap: Cap::none(),
            windows: None,
            seed: 1,
            random: RandomSource::Stratified,
            draws: 8,
            starts: 4,
            iterations: 500,
            stall: 200,
            time_max: None,
            compare: false,
            replays: 768,
            per_key: PerKeyUse::Auto,
            per_key_iterations: 5000,
            min_kept: None,
            split: None,
        }
    }
}

impl Options {
    /// The same search for common parameters, and nothing beside it: no comparison, no single keys,
    /// no check.
    pub(crate) fn search_only(&self) -> Self {
        Self { compare: false, per_key: PerKeyUse::Never, replays: 0, split: None, ..self.clone() }
    }

    /// Refuses what no search can meet.
    ///
    /// # Errors
    ///
    /// The option at fault, in words, with what to write instead.
    pub fn check(&self) -> Result<(), OptionsError> {
        let wrong = |message: String| Err(OptionsError(message));
        for window in self.windows.iter().flatten() {
            if *window < WINDOW_MIN {
                return wrong(format!("a window of {window:?} is shorter than a millisecond, the least"));
            }
            if u64::try_from(window.as_nanos()).is_err() {
                return wrong(format!(
                    "a window of {} s is too long: 584 years are the most",
                    window.as_secs()
                ));
            }
        }
        if self.windows.as_ref().is_some_and(Vec::is_empty) {
            return wrong("the list of windows is empty".to_owned());
        }
        let Limits { size_min, size_max, .. } = self.limits;
        if size_min.is_nan() || size_max.is_nan() || size_min > size_max {
            return wrong(format!(
                "the least size, {} %, is above the greatest, {} %",
                written_percent(size_min),
                written_percent(size_max)
            ));
        }
        if self.risk.is_some_and(|risk| !(0.5..1.0).contains(&risk)) {
            return wrong("a risk is a quantile from 0.5 to below 1, for example 0.9".to_owned());
        }
        if self.objective.needs_weights() && self.sampler == Tunable::Bucket {
            return wrong("a token bucket has no weights to estimate counts by".to_owned());
        }
        Ok(())
    }
}

/// Options that no search can meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsError(String);

impl std::fmt::Display for OptionsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionsError {}
