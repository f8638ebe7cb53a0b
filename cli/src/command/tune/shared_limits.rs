//! Divides the limits between the sampler and the late policies: the search may use what the
//! policies leave.

use astracer_samplers::{Cap, Config, Probability, Ratio};
use astracer_tuner::limits::KeptSizes;
use astracer_tuner::tail::{Outcomes, TailSummary};
use astracer_tuner::tune::Options;
use astracer_tuner::{Candidate, Draw, Limits, Stop, Tuning, Workload};

use crate::failure::Failure;

/// Replays of the policies.
pub(super) const REPLAYS: usize = 12;
/// Exceeding the limits by more than this factor is worth another search.
pub(super) const TOLERANCE: f64 = 1.02;
/// The policies' part of the limits.
pub(super) struct SharedLimits<'a> {
    workload: &'a Workload,
    outcomes: &'a Outcomes,
    /// For the sampler and the policies together.
    limits: Limits,
    cap: Cap,
    draws: Vec<Draw>,
}

/// The largest equal share of everything within limits.
pub(super) fn share_within(limits: &Limits, workload: &Workload) -> Config {
    let share = Probability::new(limits.largest_share(workload).min(1.0));
    share.and_then(|share| Ratio::new(share).ok()).map_or(Config::Never, Config::from)
}

/// The policies, replayed with the chosen sampler.
pub(super) struct After {
    pub(super) summary: TailSummary,
    /// The limits for another search, if both together exceed the limits and the policies leave
    /// anything.
    pub(super) again: Option<Limits>,
    /// The warning if both together exceed the limits.
    pub(super) over: Option<String>,
}

impl<'a> SharedLimits<'a> {
    pub(super) fn new(workload: &'a Workload, outcomes: &'a Outcomes, options: &Options) -> Self {
        let draws = Draw::unseen(REPLAYS, options.seed, options.random);
        Self { workload, outcomes, limits: options.limits, cap: options.cap, draws }
    }

    /// The limits for the sampler alone, estimated from what the policies keep beside an equal
    /// share within the limits.
    pub(super) fn first(&self, stop: Stop<'_>) -> Result<Limits, Failure> {
        let share = share_within(&self.limits, self.workload);
        let kept = self.behind(&share.into(), stop)?;
        self.less(&kept).ok_or_else(|| {
            Failure::Job(format!(
                "the policies of --tail alone keep {:.2} % of the bytes, which leaves nothing for the sampler: raise \
                 --size-max (or the limit per second), or give the policies smaller budgets",
                kept.tail.mean * 1e2
            ))
        })
    }

    /// Replays the policies with the sampler that was found.
    pub(super) fn after(&self, tuning: &Tuning, stop: Stop<'_>) -> Result<After, Failure> {
        let found = tuning.config().map_err(|error| Failure::Job(error.to_string()))?;
        let kept = self.behind(&Candidate::capped(found, self.cap), stop)?;
        let share = kept.head.mean + kept.tail.mean;
        let together = sizes(self.workload, (share, kept.head_traces.mean + kept.traces.mean));
        let is_over = self.limits.excess(&together) > TOLERANCE.ln();
        let over = is_over.then(|| {
            format!(
                "the sampler and the policies of --tail together keep {}: give the policies smaller budgets, or the sampler \
                 a smaller limit",
                self.limits.exceeded(&together)
            )
        });
        Ok(After { again: if is_over { self.less(&kept) } else { None }, over, summary: kept })
    }

    fn behind(&self, sampler: &Candidate, stop: Stop<'_>) -> Result<TailSummary, Failure> {
        self.outcomes.replay(self.workload, sampler, &self.draws, stop).ok_or(Failure::Interrupted)
    }

    /// The limits that the policies leave; `None` if they leave nothing.
    fn less(&self, kept: &TailSummary) -> Option<Limits> {
        let (seconds, bytes) = whole(self.workload);
        let size_max = self.limits.size_max - kept.tail.mean;
        let less = |max: Option<f64>, taken: f64| max.map(|max| max - taken / seconds);
        let traces_per_second_max = less(self.limits.traces_per_second_max, kept.traces.mean);
        let bytes_per_second_max = less(self.limits.bytes_per_second_max, kept.tail.mean * bytes);
        let all = [Some(size_max), traces_per_second_max, bytes_per_second_max];
        all.iter().flatten().all(|&max| max > 0.0).then(|| Limits {
            size_min: self.limits.size_min.min(size_max / 10.0),
            size_max,
            traces_per_second_max,
            bytes_per_second_max,
        })
    }
}

/// The recording's length in seconds, at least 1 as in the search, and its bytes.
fn whole(workload: &Workload) -> (f64, f64) {
    (workload.rate_seconds(), workload.arrivals().iter().map(|arrival| arrival.bytes).sum::<u64>() as f64)
}

/// The sizes of this share of the bytes and number of traces.
pub(super) fn sizes(workload: &Workload, (share, traces): (f64, f64)) -> KeptSizes {
    let (seconds, bytes) = whole(workload);
    let mut sizes = KeptSizes::default();
    sizes.size = share;
    sizes.traces_per_second = traces / seconds;
    sizes.bytes_per_second = share * bytes / seconds;
    sizes
}
