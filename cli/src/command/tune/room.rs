//! One limit for the sampler and the policies behind it: the search has what the policies leave.

use std::num::NonZeroUsize;

use astracer_samplers::{Cap, Config, Probability, Ratio};
use astracer_tuner::tail::{Outcomes, TailSummary};
use astracer_tuner::tune::Options;
use astracer_tuner::{Candidate, Draw, Limits, Stop, Tuning, Workload};

use crate::failure::Failure;

/// Replays of the policies.
const REPLAYS: usize = 12;
/// More than the limits by this factor is another search's business.
const TOLERANCE: f64 = 1.02;
/// Searches: the first has room by an estimate, the second by what the first one's sampler leaves.
pub(super) const SEARCHES: NonZeroUsize = NonZeroUsize::new(2).expect("not 0");

/// The policies' part of the limits.
pub(super) struct Room<'a> {
    workload: &'a Workload,
    outcomes: &'a Outcomes,
    /// Of the sampler and the policies together.
    limits: Limits,
    cap: Cap,
    draws: Vec<Draw>,
}

impl<'a> Room<'a> {
    pub(super) fn new(workload: &'a Workload, outcomes: &'a Outcomes, options: &Options) -> Self {
        let draws = Draw::unseen(REPLAYS, options.seed, options.random);
        Self { workload, outcomes, limits: options.limits, cap: options.cap, draws }
    }

    /// The limits of the sampler alone, by what the policies keep behind an equal share.
    pub(super) fn first(&self, stop: Stop<'_>) -> Result<Limits, Failure> {
        let share = Probability::new(self.limits.size_max.min(1.0)).and_then(|share| Ratio::new(share).ok());
        let share = share.map_or(Config::Never, Config::from);
        let kept = self.behind(&share.into(), stop)?;
        let limits = self.less(&kept);
        if limits.size_max <= 0.0
            || [limits.traces_per_second_max, limits.bytes_per_second_max]
                .iter()
                .flatten()
                .any(|&max| max <= 0.0)
        {
            return Err(Failure::Job(format!(
                "the policies of --tail alone keep {:.2} % of the bytes, and the limits leave nothing for the sampler: raise \
                 --size-max (or the limit by second), or give the policies smaller budgets",
                kept.tail.mean * 1e2
            )));
        }
        Ok(limits)
    }

    /// The policies behind the sampler that was found; and the limits for another search if that is too much.
    pub(super) fn after(
        &self,
        tuning: &Tuning,
        stop: Stop<'_>,
    ) -> Result<(TailSummary, Option<Limits>), Failure> {
        let found = tuning.config().map_err(|error| Failure::Job(error.to_string()))?;
        let kept = self.behind(&Candidate::capped(found, self.cap), stop)?;
        let over = kept.head.mean + kept.tail.mean > TOLERANCE * self.limits.size_max;
        let limits = over.then(|| self.less(&kept)).filter(|limits| limits.size_max > 0.0);
        Ok((kept, limits))
    }

    fn behind(&self, sampler: &Candidate, stop: Stop<'_>) -> Result<TailSummary, Failure> {
        self.outcomes.replay(self.workload, sampler, &self.draws, stop).ok_or(Failure::Interrupted)
    }

    fn less(&self, kept: &TailSummary) -> Limits {
        let seconds = self.workload.arrivals().last().map_or(0.0, |last| last.at_ns as f64 / 1e9).max(1e-9);
        let bytes: u64 = self.workload.arrivals().iter().map(|arrival| arrival.bytes).sum();
        let size_max = self.limits.size_max - kept.tail.mean;
        Limits {
            size_min: self.limits.size_min.min(size_max / 10.0),
            size_max,
            traces_per_second_max: self
                .limits
                .traces_per_second_max
                .map(|max| max - kept.traces.mean / seconds),
            bytes_per_second_max: self
                .limits
                .bytes_per_second_max
                .map(|max| max - kept.tail.mean * bytes as f64 / seconds),
        }
    }
}
