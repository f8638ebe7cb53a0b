//! The samplers that `evaluate` is asked to replay.

use astracer_samplers::strata::Strata;
use astracer_samplers::{Cap, Config};
use astracer_tuner::Candidate;

/// A sampler from an option or a file, with its cap.
#[derive(PartialEq)]
pub(super) struct Sampler {
    pub(super) config: Config,
    /// Strata that decide at the end about what the sampler records.
    pub(super) strata: Option<Strata>,
    pub(super) cap: Cap,
}

impl Sampler {
    pub(super) fn new(config: Config, cap: Cap) -> Self {
        Self { config, strata: None, cap }
    }

    /// The sampler to replay, under this cap.
    pub(super) fn candidate(&self, cap: Cap) -> Candidate {
        Candidate::of_file(self.config.clone(), self.strata.as_ref(), cap)
    }
}
