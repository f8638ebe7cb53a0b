//! Ratio: a fixed share of traces. Its decisions are consistent with those of every other sampler
//! that compares the same randomness.

use crate::config_error::ConfigError;
use crate::probability::Probability;
use crate::threshold::Threshold;

/// A fixed ratio; its threshold is rounded as OpenTelemetry recommends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    probability: Probability,
    threshold: Threshold,
}

impl Ratio {
    /// Keeps this share of traces. The threshold is rounded as in [`Threshold::from_ratio`].
    ///
    /// # Errors
    ///
    /// If the probability is below 2^-56, the least that the OpenTelemetry specification can
    /// express.
    pub fn new(probability: Probability) -> Result<Self, ConfigError> {
        if probability.get() < Threshold::MAX.probability().get() {
            return Err(ConfigError::out_of_range(
                format!("{probability}"),
                "a ratio is at least 2^-56; to keep nothing, use the sampler `never`",
            ));
        }
        Ok(Ratio { probability, threshold: Threshold::from_ratio(probability) })
    }

    /// The configured share.
    pub fn probability(&self) -> Probability {
        self.probability
    }

    /// The threshold that randomness is compared with.
    pub fn threshold(&self) -> Threshold {
        self.threshold
    }
}
