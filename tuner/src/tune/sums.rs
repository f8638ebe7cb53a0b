//! The sums over a workload that a search of common parameters needs. They take as long as some
//! hundred scores.

use std::num::NonZeroU64;
use std::time::Duration;

use astracer_samplers::RandomSource;

use super::Run;
use crate::draw::Draw;
use crate::expect::Counting;
use crate::family::{BucketFamily, BumpFamily, Settings};
use crate::half_life::CALL_NS;
use crate::half_life::Clock;
use crate::space::Tunable;
use crate::workload::Workload;

/// Sums for the sampler whose parameters are searched.
#[derive(Debug)]
pub(super) enum SummedFamily<'w> {
    Bump(BumpFamily),
    Bucket(BucketFamily<'w>),
}

impl Run<'_> {
    /// Builds the sums of a workload for a search of common parameters; `None` if asked to stop.
    /// Without `report`, call trees are scored only if the objective needs them.
    pub(super) fn family<'w>(
        &self,
        workload: &'w Workload,
        report: bool,
        clock: Clock,
    ) -> Option<SummedFamily<'w>> {
        let options = self.options;
        let extras = options.objective.extras();
        // The second clock is only tried, and half-lives have no phase.
        let draws = match clock {
            Clock::Calls => options.draws,
            Clock::Seconds => options.draws.div_ceil(2),
        };
        let draws = Draw::seen(draws, options.seed, options.random);
        let counting = match options.sampler {
            Tunable::Tumbling => Counting::Tumbling,
            Tunable::Bump => Counting::Decaying,
            Tunable::Bucket => {
                return BucketFamily::new(workload, &draws, extras, self.stop).map(SummedFamily::Bucket);
            }
        };
        let windows = options.windows.as_ref().map(|windows| {
            // Half-lives are counted in calls: as many as come in that time on average.
            let length_ns = workload.length_ns().max(1);
            let calls_per_ns = workload.arrivals().len() as f64 / length_ns as f64;
            let ns = |window: &Duration| {
                let ns = window.as_nanos();
                let calls = (ns as f64 * calls_per_ns).round().max(1.0);
                match counting {
                    Counting::Tumbling => u64::try_from(ns).ok().and_then(NonZeroU64::new),
                    Counting::Decaying => NonZeroU64::new((calls * CALL_NS) as u64),
                }
            };
            windows.iter().filter_map(ns).collect::<Vec<_>>()
        });
        let stratified = options.random == RandomSource::Stratified;
        let settings = Settings {
            size_max: options.limits.size_max,
            extras,
            call_trees: report || options.objective.needs_call_trees(),
            stratified,
            clock,
        };
        BumpFamily::new(workload, counting, &draws, windows.as_deref(), settings, self.stop)
            .map(SummedFamily::Bump)
    }
}
