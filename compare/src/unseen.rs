//! Variances of means whose sample may have missed what varies.
//!
//! In a weighted sample, few traces of large weight may stand for most of the traffic. If 30 traces
//! of weight 80 have no error, and 1.8 % of the other group's traces have one, the sample's own
//! variance is 0, and any difference looks certain. But 30 traces of such traffic have no error in
//! 58 % of samples. So the variance of a group's mean is at least its expectation if both groups
//! have the same traffic, which is the hypothesis that is tested (a score test; C. R. Rao, 1948):
//! with the other group's values x, their weights w and mean m, and the weight v that this group's
//! sampler gives to such a trace, Σwv(x - m)² / (W W'), where W and W' are the sums of weights of
//! both groups (the variance of an expanded sum under Poisson sampling; C.-E. Särndal, B. Swensson
//! and J. Wretman, "Model Assisted Survey Sampling", 1992, section 3.5, with its expectation over
//! the other group).
//!
//! v is the mean weight of this group's traces of the same type and octave of length, each of which
//! counts with its weight: samplers of the start decide by type, strata by both.

use std::collections::BTreeMap;

/// The weights of a group's instances of one type, by octave of their length.
#[derive(Debug)]
pub(super) struct Weights {
    /// Σw and Σw².
    octaves: BTreeMap<i32, (f64, f64)>,
}

impl Weights {
    /// Takes pairs of a length (ms) and a weight.
    pub(super) fn new(instances: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut octaves: BTreeMap<i32, (f64, f64)> = BTreeMap::new();
        for (length, weight) in instances {
            let (sum, square) = octaves.entry(octave(length)).or_default();
            *sum += weight;
            *square += weight * weight;
        }
        Self { octaves }
    }

    /// The weight of an instance of this length: that of its octave, else of the next one below, as
    /// with strata, else above. 0 without instances.
    pub(super) fn of(&self, length: f64) -> f64 {
        let octave = octave(length);
        let below = self.octaves.range(..=octave).next_back();
        below.or_else(|| self.octaves.range(octave..).next()).map_or(0.0, |(_, (sum, square))| square / sum)
    }
}

/// The octave of a length in ms: those of strata, which count in ns.
fn octave(length: f64) -> i32 {
    (length * 1e6).max(0.5).log2().floor() as i32
}
