//! A sampler that is evaluated: one of ours, or a rival.

use std::fmt;

use astracer_samplers::{Config, Limits, Sampler};

use crate::replay::replay;
use crate::rivals::{self, RivalSpec};
use crate::workload::Workload;

/// What can be replayed over a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Contender {
    /// A sampler that services can run.
    Ours(Config),
    /// Another project's, reimplemented to compare with.
    Rival(RivalSpec),
}

impl Contender {
    /// Replays a workload and calls `keep` with the index of each arrival kept, and with its weight if the sampler is
    /// ours and tells one. All contenders see the same draws.
    pub fn replay(&self, workload: &Workload, seed: u64, mut keep: impl FnMut(usize, Option<f64>)) {
        match self {
            Self::Ours(config) => {
                let sampler = Sampler::with_limits(config, Limits::single_threaded());
                replay(workload, &sampler, seed, keep);
            }
            Self::Rival(spec) => rivals::replay(workload, spec, seed, |index| keep(index, None)),
        }
    }
}

impl From<Config> for Contender {
    fn from(config: Config) -> Self {
        Self::Ours(config)
    }
}

impl From<RivalSpec> for Contender {
    fn from(spec: RivalSpec) -> Self {
        Self::Rival(spec)
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(config) => config.fmt(f),
            Self::Rival(spec) => spec.fmt(f),
        }
    }
}
