//! A recorded trace, and the decision about it.

use super::Stratum;
use crate::nanos::Nanos;
use crate::randomness::Randomness;
use crate::threshold::Threshold;

/// A recorded trace whose root has ended.
#[derive(Clone, Copy, Debug)]
pub struct RecordedTrace<'a> {
    /// The root's key.
    pub key: &'a str,
    /// Its stratum.
    pub stratum: Stratum,
    /// The threshold with which it was recorded: [`Strata::recorded`](super::Strata::recorded).
    pub recorded: Threshold,
    /// Its bytes.
    pub bytes: u64,
    /// The current time.
    pub now: Nanos,
    /// Random bits, such as those of the trace id; the low 24 are used.
    pub random: u64,
}

/// The decision about one recorded trace, as one among those that are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// The threshold of the trace's stratum; `None` if the cap is used up.
    pub threshold: Option<Threshold>,
    /// Whether the stratum keeps the trace.
    pub keeps: bool,
    pub(super) recorded: Threshold,
}

impl Draw {
    /// The threshold and randomness of a kept trace, as those of one decision about all traces,
    /// recorded or not. `also` is the threshold with which policies keep such traces by a
    /// randomness of their own, independent of the stratum's. So the trace is kept with
    ///
    /// > p = r (1 - (1 - q)(1 - q'))
    ///
    /// where r is the probability of being recorded, and q and q' are those of stratum and
    /// policies. `random` are random bits: the randomness is uniform above the threshold, so that
    /// later samplers can compare it too. `None` if neither threshold is known.
    pub fn of_all(&self, also: Option<Threshold>, random: u64) -> Option<(Threshold, Randomness)> {
        if self.threshold.is_none() && also.is_none() {
            return None;
        }
        let all = u128::from(Threshold::RANGE);
        let rejects = |threshold: Option<Threshold>| threshold.map_or(all, |it| u128::from(it.get()));
        let kept = all - rejects(self.threshold) * rejects(also) / all;
        let recorded = all - u128::from(self.recorded.get());
        let kept = ((kept * recorded / all) as u64).clamp(1, Threshold::RANGE);
        let below = u128::from(kept) * u128::from(Randomness::from_low_bits(random).get()) / all;
        let threshold = Threshold::RANGE - kept;
        Some((Threshold::new(threshold)?, Randomness::from_low_bits(threshold + below as u64)))
    }
}
