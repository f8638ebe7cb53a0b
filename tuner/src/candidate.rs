//! A sampler that is evaluated: one of ours, or a baseline.

use std::fmt;

use astracer_baselines::{BaselineSpec, Keys};
use astracer_samplers::{Config, Limits, Sampler};

use crate::replay::{replay, replay_baseline};
use crate::workload::Workload;

/// A sampler that can be replayed over a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Candidate {
    /// A sampler that services can run.
    Ours(Config),
    /// Another project's, reimplemented to compare with.
    Baseline(BaselineSpec),
}

impl Candidate {
    /// Replays a workload and calls `keep` with the index of each arrival kept, and with its weight if the sampler is
    /// ours and states one. All candidates see the same draws.
    pub fn replay(&self, workload: &Workload, seed: u64, mut keep: impl FnMut(usize, Option<f64>)) {
        match self {
            Self::Ours(config) => {
                let sampler = Sampler::with_limits(config, Limits::single_threaded());
                replay(workload, &sampler, seed, keep);
            }
            Self::Baseline(spec) => {
                let mut baseline = spec.build(&Keys::new(workload.keys().names()));
                replay_baseline(workload, baseline.as_mut(), seed, |index| keep(index, None));
            }
        }
    }
}

impl From<Config> for Candidate {
    fn from(config: Config) -> Self {
        Self::Ours(config)
    }
}

impl From<BaselineSpec> for Candidate {
    fn from(spec: BaselineSpec) -> Self {
        Self::Baseline(spec)
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(config) => config.fmt(f),
            Self::Baseline(spec) => spec.fmt(f),
        }
    }
}
