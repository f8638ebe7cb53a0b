//! One replay of the sampler found: which traces it keeps, and how many traces each stands for.

use crate::candidate::Candidate;
use crate::draw::Draw;
use crate::stop::Stop;
use crate::tune::Tuning;
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
    pub(super) fn new(workload: &Workload, tuning: &Tuning) -> Self {
        let mut kept = Self { traces: Vec::new(), weighted: true };
        if let Ok(config) = tuning.config() {
            let keep = |arrival: usize, weight: Option<f64>| {
                kept.weighted &= weight.is_some();
                kept.traces.push((arrival, weight.unwrap_or(1.0)));
            };
            let draw = Draw::recorded(SEED).with_random(tuning.random);
            Candidate::from(config).replay(workload, &draw, Stop::never(), keep);
            kept.traces.sort_unstable_by_key(|&(arrival, _)| arrival);
        }
        kept
    }
}
