//! The options of a search, and a check for options that no search can meet.

use std::time::Duration;

use astracer_report::numbers::written_percent;
use astracer_samplers::{Cap, RandomSource};
use serde::Serialize;

use crate::limits::Limits;
use crate::objective::Objective;
use crate::space::Tunable;

/// The shortest window that a sampler allows.
const WINDOW_MIN: Duration = Duration::from_millis(1);
/// The share of the budget that is shared evenly among the keys. An eighth costs 1 to 7 % of
/// dist/entropy (docs/results/adaptive.md).
const KEY_FLOOR: f64 = 0.0625;

/// The sampler to search for, the limits, and how long to search.
#[derive(Clone, Debug)]
pub struct Options {
    /// The sampler.
    pub sampler: Tunable,
    /// The objective to minimise.
    pub objective: Objective,
    /// The quantile of single runs to minimise, 0.5 to 1; the mean if unset.
    pub risk: Option<f64>,
    /// Limits on what is kept.
    pub limits: Limits,
    /// The hard cap under which services will run. The search ignores it; replays show its effect.
    pub cap: Cap,
    /// Window lengths for bump; `None` also searches for the length.
    pub windows: Option<Vec<Duration>>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The source of randomness for traces that begin in the service.
    pub random: RandomSource,
    /// Draws of phase and jitter on which common parameters are scored. Each of these scores is
    /// already a mean over the randomness of decisions.
    pub draws: usize,
    /// The number of annealing starts, each from another random point.
    pub starts: u32,
    /// The most proposals that each start scores.
    pub iterations: u64,
    /// A start ends after this many proposals without an improvement.
    pub stall: u64,
    /// The longest time for tuning. If it runs out, the result depends on the speed of the machine.
    pub time_max: Option<Duration>,
    /// Whether to also search at random and on a grid, with as many evaluations.
    pub compare: bool,
    /// The most replays that check the result, on draws that no search used; 0 for no check. There
    /// are 96 at first, and their number is doubled until the mean of dist/entropy is known within
    /// 5 %.
    pub replays: u64,
    /// Whether keys get their own probabilities.
    pub per_key: PerKeyUse,
    /// Proposals that each start of the search over single keys scores.
    pub per_key_iterations: u64,
    /// The floor on the expected number of kept traces of each key with its own probability. If
    /// unset, the largest of 40, 20, 10, 5, 3 and 1 that uses up at most half of each limit.
    pub min_kept: Option<f64>,
    /// This share of the largest size allowed is shared evenly among keys with their own
    /// probability, in bytes, so that an odd trace of a frequent and cheap key is not missed for
    /// the sake of the objective.
    pub key_floor: f64,
    /// Whether an equal share is used wherever the result is not 10 % better by the mean over
    /// halves that it was not tuned on. Otherwise only if the whole interval is above that.
    pub or_equal: bool,
    /// If set, tunes on this first share of the time and checks the result on the rest.
    pub split: Option<f64>,
}

/// Whether keys get their own probabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PerKeyUse {
    /// If they are better on halves of the time that they were not tuned on, and no key is a loop.
    #[default]
    Auto,
    /// If there are any within the limits.
    Always,
    /// Never.
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
            key_floor: KEY_FLOOR,
            or_equal: false,
            split: None,
        }
    }
}

impl Options {
    /// The same search for common parameters only: no comparison, no single keys, no check.
    pub(crate) fn search_only(&self) -> Self {
        Self { compare: false, per_key: PerKeyUse::Never, replays: 0, split: None, ..self.clone() }
    }

    /// Rejects options that no search can meet.
    ///
    /// # Errors
    ///
    /// Says which option is wrong, and how to correct it.
    pub fn check(&self) -> Result<(), OptionsError> {
        let wrong = |message: String| Err(OptionsError(message));
        for window in self.windows.iter().flatten() {
            if *window < WINDOW_MIN {
                return wrong(format!("a window of {window:?} is too short: use a millisecond or more"));
            }
            if u64::try_from(window.as_nanos()).is_err() {
                return wrong(format!(
                    "a window of {} s is too long: the longest is 584 years",
                    window.as_secs()
                ));
            }
        }
        if self.windows.as_ref().is_some_and(Vec::is_empty) {
            return wrong("the list of windows is empty: name at least one window length".to_owned());
        }
        let Limits { size_min, size_max, .. } = self.limits;
        if size_min.is_nan() || size_max.is_nan() || size_min > size_max {
            return wrong(format!(
                "the smallest size, {} %, is above the largest, {} %",
                written_percent(size_min),
                written_percent(size_max)
            ));
        }
        if self.risk.is_some_and(|risk| !(0.5..1.0).contains(&risk)) {
            return wrong("invalid risk: use a quantile from 0.5 to below 1, such as 0.9".to_owned());
        }
        if self.objective.needs_weights() && self.sampler == Tunable::Bucket {
            let message = "the objective `counts` needs weights, which a token bucket does not have; use \
                           another sampler";
            return wrong(message.to_owned());
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
