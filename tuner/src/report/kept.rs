//! One replay of the sampler found: which traces it keeps, and how many traces each stands for.

use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::stop::Stop;
use crate::tune::{StrataTuning, Tuning};
use crate::workload::Workload;

/// The seed of the replay.
pub(super) const SEED: u64 = 1;

/// The kept traces, in order of arrival.
#[derive(Debug)]
pub(super) struct KeptTraces {
    /// Arrivals with their weights, which are 1 if the sampler has none.
    pub(super) traces: Vec<(usize, f64)>,
    /// Whether the sampler has weights.
    pub(super) weighted: bool,
}

impl KeptTraces {
    /// The traces that the strata keep, or the sampler that was tuned if there are none.
    pub(super) fn new(workload: &Workload, tuning: &Tuning, strata: Option<&StrataTuning>) -> Self {
        let mut kept = Self { traces: Vec::new(), weighted: true };
        let head = || tuning.config().ok().map(Candidate::from);
        if let Some(sampler) = strata.map(|strata| Candidate::from(strata.late.clone())).or_else(head) {
            let keep = |arrival: usize, weight: Option<f64>| {
                kept.weighted &= weight.is_some();
                kept.traces.push((arrival, weight.unwrap_or(1.0)));
            };
            let draw = Draw::recorded(SEED).with_random(tuning.random);
            sampler.replay(workload, &draw, Stop::never(), keep);
            kept.traces.sort_unstable_by_key(|&(arrival, _)| arrival);
        }
        kept
    }
}
