//! A sampler that is evaluated: one of ours, or a baseline.

use std::fmt;

use astracer_baselines::{BaselineSpec, Keys};
use astracer_samplers::{Config, Count, Limits, Nanos, Sampler};

use crate::draw::Draw;
use crate::replay::{replay, replay_baseline};
use crate::stop::Stop;
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
    /// Replays a workload on one draw and calls `keep` with the index of each arrival kept, and with its weight if the
    /// sampler is ours and states one. False if it was asked to stop before the end.
    pub fn replay(
        &self,
        workload: &Workload,
        draw: &Draw,
        stop: Stop<'_>,
        mut keep: impl FnMut(usize, Option<f64>),
    ) -> bool {
        match self {
            Self::Ours(config) => {
                let sampler = Sampler::with_limits(config, Limits::single_threaded());
                replay(workload, &sampler, period(config), draw, stop, keep)
            }
            Self::Baseline(spec) => {
                let mut baseline = spec.build(&Keys::new(workload.keys().names()));
                replay_baseline(workload, baseline.as_mut(), draw, stop, |index| keep(index, None))
            }
        }
    }
}

/// The window that a draw's phase is a share of.
fn period(config: &Config) -> Nanos {
    match config {
        Config::Bump(bump) => match bump.default().count() {
            Count::Tumbling { window, .. } => window,
            _ => Nanos::ZERO,
        },
        _ => Nanos::ZERO,
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
