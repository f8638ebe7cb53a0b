//! How parameters do on traces that they were not tuned on.

use std::num::NonZeroU64;

use astracer_samplers::Config;
use rayon::prelude::*;
use serde::Serialize;

use crate::candidate::Candidate;
use crate::evaluate::Evaluator;
use crate::expect::{Expectation, Expected};
use crate::score::Score;
use crate::statistics::MeanSd;
use crate::workload::Workload;

/// Worse than what tuning there reaches by more than this: fitted to what happened once.
const OVER_FITTED: f64 = 1.3;

/// Means over several replays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// How many replays.
    pub replays: u64,
    /// dist/entropy.
    pub dist_over_entropy: MeanSd,
    /// Share of the bytes.
    pub tfcr: MeanSd,
    /// Call trees found.
    pub call_trees: MeanSd,
    /// Traces kept.
    pub traces: MeanSd,
    /// The distance of latencies, by weights where there are any.
    pub latency: MeanSd,
}

impl Replayed {
    /// Replays a sampler with seeds 1 to `replays`, on all cores; `done` is called after each.
    pub fn new(workload: &Workload, config: &Config, replays: u64, done: &(dyn Fn() + Sync)) -> Self {
        let evaluator = Evaluator::new(workload);
        let config = Candidate::from(config.clone());
        let score = |seed: u64| {
            let score = evaluator.score_and_latency(&config, seed);
            done();
            score
        };
        let scores: Vec<(Score, f64)> = (1..=replays).into_par_iter().map(score).collect();
        let mean_sd = |of: fn(&Score) -> f64| MeanSd::of(scores.iter().map(|(score, _)| of(score)));
        Self {
            replays,
            dist_over_entropy: mean_sd(|score| score.dist_over_entropy),
            tfcr: mean_sd(|score| score.tfcr),
            call_trees: mean_sd(|score| score.call_trees as f64),
            traces: mean_sd(|score| score.traces as f64),
            latency: MeanSd::of(scores.iter().map(|&(_, latency)| latency)),
        }
    }
}

/// Parameters on another workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeldOut {
    /// Which workload.
    pub name: String,
    /// Its traces.
    pub traces: u64,
    /// What the parameters keep of it.
    pub replayed: Replayed,
    /// An equal share of it, of the same size, in expectation.
    pub baseline: Expected,
    /// What parameters that were tuned on it keep of it.
    pub tuned_there: Option<Replayed>,
}

impl HeldOut {
    /// Replays parameters on another workload, and those tuned there for comparison.
    pub fn new(
        name: &str,
        workload: &Workload,
        config: &Config,
        tuned_there: Option<&Config>,
        replays: u64,
    ) -> Self {
        let replayed = Replayed::new(workload, config, replays, &|| ());
        Self {
            name: name.to_owned(),
            traces: workload.arrivals().len() as u64,
            replayed,
            baseline: equal_share(workload, replayed.tfcr.mean),
            tuned_there: tuned_there.map(|config| Replayed::new(workload, config, replays, &|| ())),
        }
    }

    /// What a person should know about it.
    pub fn warnings(&self, size_max: f64) -> Vec<String> {
        let mut warnings = Vec::new();
        let here = self.replayed.dist_over_entropy.mean;
        if let Some(there) = &self.tuned_there {
            let best = there.dist_over_entropy.mean;
            if here > OVER_FITTED * best {
                warnings.push(format!(
                    "over-fitted: on {} dist/entropy is {here:.3}, and tuning there would reach {best:.3}",
                    self.name
                ));
            }
        }
        if here > self.baseline.dist_over_entropy {
            warnings.push(format!(
                "on {} dist/entropy is {here:.3}, and an equal share of the same size has {:.3}",
                self.name, self.baseline.dist_over_entropy
            ));
        }
        let size = self.replayed.tfcr.mean;
        if size > size_max {
            warnings.push(format!(
                "on {} {:.2} % of the bytes are kept; the limit where it was tuned is {:.2} %",
                self.name,
                size * 1e2,
                size_max * 1e2
            ));
        }
        warnings
    }
}

/// The score of keeping each trace with the same probability, in expectation.
pub(crate) fn equal_share(workload: &Workload, share: f64) -> Expected {
    let expectation = Expectation::with_windows(workload, &[NonZeroU64::MAX], true);
    expectation.ratio(share, &mut expectation.scratch())
}
