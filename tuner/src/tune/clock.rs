//! Chooses the clock of half-lives: calls of all keys, or seconds.
//!
//! In calls, what is kept does not depend on the speed of traffic, but a burst makes its own time
//! pass. In seconds a burst is short, so that a loop that runs for a moment is kept once; but
//! traffic at another speed is kept to another share. So both are searched, and seconds are used
//! only if they are better over several speeds, at a size that stays near the limit.

use serde::Serialize;

use super::check::trial_replays;
use super::{Run, Tuning, stream};
use crate::draw::Draw;
use crate::half_life::Clock;
use crate::objective::Target;
use crate::space::{Parameters, Tunable};
use crate::traffic::at_speed;
use crate::workload::Workload;

/// The recording's speed, half of it and twice it.
const SPEEDS: [f64; 3] = [1.0, 0.5, 2.0];
/// Seconds are used if their value is at most this share of that of calls.
const GAIN: f64 = 0.9;
/// At no speed may the kept share be above the limit by more than this factor.
const SIZE_MAX: f64 = 1.25;
const REPLAYS: u64 = 12;
/// Starts of the search in seconds.
const STARTS: u32 = 1;
const CLOCK_STREAM: u64 = 1 << 36;

/// Compares half-lives in calls with half-lives in seconds, on draws that no search saw.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ClockTrial {
    /// The objective with half-lives in calls, relative to an equal share of the same size. It is
    /// the same at every speed.
    pub calls: f64,
    /// The same with half-lives in seconds: at the recording's speed and, if they are a tenth
    /// better there, at half of it and at twice it.
    pub seconds: Vec<f64>,
    /// The shares of bytes that these keep.
    pub sizes: Vec<f64>,
    /// The clock that is used.
    pub used: Clock,
}

impl ClockTrial {
    fn new(calls: f64, tried: &[(f64, f64)], size_max: f64) -> Self {
        let (seconds, sizes): (Vec<f64>, Vec<f64>) = tried.iter().copied().unzip();
        let mut trial = Self { calls, seconds, sizes, used: Clock::Calls };
        let is_within = trial.sizes.iter().all(|&size| size <= SIZE_MAX * size_max);
        if tried.len() == SPEEDS.len() && is_within && trial.of_seconds() <= GAIN * calls {
            trial.used = Clock::Seconds;
        }
        trial
    }

    /// The geometric mean over the speeds.
    pub fn of_seconds(&self) -> f64 {
        self.seconds.iter().product::<f64>().powf(1.0 / self.seconds.len() as f64)
    }
}

impl Run<'_> {
    /// Searches half-lives in seconds, and uses them if they are better than the parameters found
    /// in calls.
    pub(super) fn choose_clock(&self, workload: &Workload, target: &Target, tuning: &mut Tuning) {
        let options = self.options;
        let is_counted = matches!(tuning.parameters, Parameters::Decaying { .. });
        if options.sampler != Tunable::Bump || options.windows.is_some() || !tuning.feasible || !is_counted {
            return;
        }
        let Some(seconds) = self.common(workload, target, (STARTS, false), Clock::Seconds) else {
            return;
        };
        if seconds.infeasible.is_some() {
            return;
        }
        let size_max = options.limits.largest_share(workload);
        let Some(trial) =
            self.try_clocks(workload, target, [&tuning.parameters, &seconds.parameters], size_max)
        else {
            return;
        };
        let is_used = trial.used == Clock::Seconds;
        tuning.clock = Some(trial);
        if is_used {
            tuning.parameters = seconds.parameters;
            (tuning.score, tuning.value) = (seconds.expected, seconds.value);
            tuning.found_by = seconds.found_by;
            // Halves were tuned with half-lives in calls.
            tuning.later = None;
        }
    }

    fn try_clocks(
        &self,
        workload: &Workload,
        target: &Target,
        [calls, seconds]: [&Parameters; 2],
        size_max: f64,
    ) -> Option<ClockTrial> {
        let replays = trial_replays(workload, REPLAYS) as usize;
        let seed = stream(self.options.seed, CLOCK_STREAM);
        // Jitter is of the network and the scheduler, whatever the speed of traffic.
        let draws = Draw::unseen(replays, seed, self.options.random);
        let (_, of_calls) = self.trial((workload, target), (calls, &[]), &draws)?;
        let mut tried = Vec::new();
        for speed in SPEEDS {
            let there = at_speed(workload, speed, self.stop)?;
            let (replayed, value) = self.trial((&there, target), (seconds, &[]), &draws)?;
            tried.push((value, replayed.tfcr.mean));
            // Not better even at the speed for which it was tuned, so not worth two more trials.
            if tried.len() == 1 && value > GAIN * of_calls {
                break;
            }
        }
        Some(ClockTrial::new(of_calls, &tried, size_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Stop;
    use crate::testing::recorded;
    use crate::tune::{Options, PerKeyUse, tune};

    #[test]
    fn seconds_are_used_only_if_they_are_better_at_every_size() {
        let used = |values: &[f64], sizes: [f64; 3]| {
            let tried: Vec<(f64, f64)> = values.iter().copied().zip(sizes).collect();
            ClockTrial::new(1.0, &tried, 0.1).used
        };
        assert_eq!(used(&[0.9; 3], [0.1; 3]), Clock::Seconds);
        assert_eq!(used(&[0.91; 3], [0.1; 3]), Clock::Calls);
        // The geometric mean of 0.5, 0.5 and 2.8 is 0.888.
        assert_eq!(used(&[0.5, 0.5, 2.8], [0.1; 3]), Clock::Seconds);
        assert_eq!(used(&[0.5; 3], [0.1, 0.126, 0.05]), Clock::Calls);
        assert_eq!(used(&[0.5], [0.1; 3]), Clock::Calls, "not tried at other speeds");
    }

    /// The trial's choice is that of the parameters, and the file has the clock.
    #[test]
    fn the_file_has_the_clock_that_was_chosen() {
        let workload = recorded("dfsioe_write");
        let options = Options {
            iterations: 60,
            starts: 1,
            replays: 0,
            per_key: PerKeyUse::Never,
            ..Options::default()
        };
        let tuning = tune(&workload, &options, Stop::never(), &|_| ());
        let trial = tuning.clock.as_ref().expect("a trial");
        assert_eq!(tuning.parameters.clock(), trial.used, "{trial:?}");
        let text = tuning.config().expect("valid").to_string();
        assert_eq!(text.contains("calls"), trial.used == Clock::Calls, "{text} {trial:?}");
    }
}
