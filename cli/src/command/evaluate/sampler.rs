//! The samplers that `evaluate` is asked to replay.

use std::sync::Arc;

use astracer_samplers::strata::Strata;
use astracer_samplers::{Cap, Config};
use astracer_tuner::Candidate;
use astracer_tuner::late::Late;

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
        match &self.strata {
            Some(strata) => {
                let late = Late { head: self.config.clone(), strata: strata.clone() };
                Candidate::Late(Arc::new(late), cap)
            }
            None => Candidate::capped(self.config.clone(), cap),
        }
    }
}
