//! Late strata: sampling by outcome, with true weights.
//!
//! When a trace begins, the head decides whether it is *recorded*; when its root has ended, its
//! *stratum* decides whether it is kept. A stratum consists of the traces with the same key, octave
//! of the root's duration, and outcome; optionally also with the same kind of call tree. Each has a
//! probability p of its own, so that what is slow or rare is kept more often than what is common,
//! and every kept trace stands for 1 / p traces.
//!
//! ```text
//! root begins -> Strata::recorded(head's threshold): record this trace?
//! root ends   -> StrataSampler::draw(): the threshold of its stratum, and randomness to compare
//!             -> Draw::of_all(): both as those of one decision, for the trace state
//! at times    -> StrataSampler::solve(): follow the traffic
//! ```
//!
//! # Probabilities
//!
//! A stratum that the parameters name has the probability that the tuner found. Any other has
//!
//! > p = max(floor, lambda / x)
//!
//! where x is the stratum's count of traces with this one, which decays with a half-life in traces
//! of all keys. [`StrataSampler::solve`] chooses lambda so that the share [`Strata::size`] of the
//! bytes is kept. New *keys* share a quarter of that, so that a flood of unique names does not
//! raise the size; a new stratum of a known key is what this sampler exists to keep.
//!
//! If the probabilities of the parameters keep more than the size over an hour, because requests
//! have become slower than recorded, a ceiling that is solved like lambda bounds them, down to the
//! size.
//!
//! p depends on earlier traces and on the trace's own stratum, never on its randomness. So weights
//! are true whatever p is, and races between threads change p but bias nothing.
//!
//! # Randomness
//!
//! The randomness of a stratum's successive traces is spread evenly ([`net`](crate::net())), which
//! makes the errors of counts two to three times smaller than with independent numbers.
//!
//! # The probability of being recorded
//!
//! A trace that is not recorded cannot be kept. The head records the share r of a key's traces, and
//! a recorded one is kept with p / r, so it is kept with p in all, or with r if that is less.

mod draw;
mod kind;
mod sampler;
mod solver;
mod state;
mod stratum;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::BTreeMap;

pub use draw::{Draw, RecordedTrace};
pub use kind::Kind;
pub use sampler::{StrataCounts, StrataSampler};
pub use stratum::Stratum;

use crate::config_error::ConfigError;
use crate::nanos::Nanos;
use crate::probability::Probability;
use crate::threshold::Threshold;

/// The share of a key's traces that is recorded, so that their strata can be known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record {
    /// All traces. For services with few requests: recording a span costs about a tenth of a
    /// microsecond more than dropping it.
    All,
    /// This many times the probability of the head sampler, and at most all.
    Times(f64),
}

impl Record {
    /// Five times the head sampler's probability.
    pub const DEFAULT: Record = Record::Times(5.0);
}

/// The probabilities of strata, and how others are found.
#[derive(Clone, Debug, PartialEq)]
pub struct Strata {
    pub(crate) size: Probability,
    pub(crate) record: Record,
    pub(crate) floor: Option<Probability>,
    pub(crate) half_life: u32,
    pub(crate) lambda: Option<f64>,
    pub(crate) by_kind: bool,
    pub(crate) probabilities: BTreeMap<String, BTreeMap<Stratum, Probability>>,
}

impl Strata {
    /// The half-life of counts, in traces of all keys, if none is given.
    pub const HALF_LIFE_DEFAULT: u32 = 2_000;
    /// The shortest interval of a budget with strata. Bursts are where the variance is: over ten
    /// minutes, the gain of strata is gone.
    pub const BUDGET_INTERVAL_MIN: Nanos = Nanos::from_secs(3_600);
    /// The greatest number of strata with counts of their own.
    pub const MAX: usize = 4_096;

    /// Strata that keep this share of the bytes, with probabilities by their counts only.
    ///
    /// # Errors
    ///
    /// If the share is 0.
    pub fn new(size: Probability) -> Result<Self, ConfigError> {
        if size == Probability::ZERO {
            let message = "the size must be a share of the bytes above 0 and at most 1, such as 0.1";
            return Err(ConfigError::out_of_range("size=0".to_owned(), message));
        }
        Ok(Strata {
            size,
            record: Record::DEFAULT,
            floor: None,
            half_life: Self::HALF_LIFE_DEFAULT,
            lambda: None,
            by_kind: false,
            probabilities: BTreeMap::new(),
        })
    }

    /// Sets the share of traces that is recorded.
    ///
    /// # Errors
    ///
    /// If it is a number below 1, or not finite.
    pub fn with_record(self, record: Record) -> Result<Self, ConfigError> {
        match record {
            Record::Times(times) if !(times.is_finite() && times >= 1.0) => Err(ConfigError::out_of_range(
                format!("record={times}"),
                "give the number of traces to record for each that the head sampler would keep, from 1 on, \
                 or \"all\"",
            )),
            record => Ok(Strata { record, ..self }),
        }
    }

    /// Sets the least probability of a stratum; by default an eighth of the size.
    #[must_use]
    pub fn with_floor(self, floor: Probability) -> Self {
        Strata { floor: Some(floor), ..self }
    }

    /// Sets the half-life of counts, in traces of all keys.
    ///
    /// # Errors
    ///
    /// If it is 0.
    pub fn with_half_life(self, half_life: u32) -> Result<Self, ConfigError> {
        if half_life == 0 {
            let message = "a half-life must be at least one trace, such as 2000calls";
            return Err(ConfigError::out_of_range("half_life=0".to_owned(), message));
        }
        Ok(Strata { half_life, ..self })
    }

    /// Fixes lambda, which otherwise follows the traffic.
    ///
    /// # Errors
    ///
    /// If it is not above 0 and finite.
    pub fn with_lambda(self, lambda: f64) -> Result<Self, ConfigError> {
        if !(lambda.is_finite() && lambda > 0.0) {
            let message = "lambda must be a number above 0, or left out, so that it follows the traffic";
            return Err(ConfigError::out_of_range(format!("lambda={lambda}"), message));
        }
        Ok(Strata { lambda: Some(lambda), ..self })
    }

    /// Tells strata apart by the kind of their call trees, too.
    #[must_use]
    pub fn by_kind(self, by_kind: bool) -> Self {
        Strata { by_kind, ..self }
    }

    /// Sets the probability of one stratum of a key.
    #[must_use]
    pub fn with_probability(mut self, key: impl Into<String>, stratum: Stratum, p: Probability) -> Self {
        self.probabilities.entry(key.into()).or_default().insert(stratum, p);
        self
    }

    /// The share of the bytes to keep.
    pub fn size(&self) -> Probability {
        self.size
    }

    /// The share of traces that is recorded.
    pub fn record(&self) -> Record {
        self.record
    }

    /// The least probability of a stratum.
    pub fn floor(&self) -> Probability {
        self.floor.unwrap_or(Probability::new(self.size.get() / 8.0).unwrap_or(Probability::ZERO))
    }

    /// Whether strata are told apart by the kind of their call trees.
    pub fn is_by_kind(&self) -> bool {
        self.by_kind
    }

    /// The keys with probabilities, each with those of its strata.
    pub fn probabilities(&self) -> impl Iterator<Item = (&str, &BTreeMap<Stratum, Probability>)> {
        self.probabilities.iter().map(|(key, strata)| (key.as_str(), strata))
    }

    /// The probability that the parameters give a stratum: its own; else that of the same key,
    /// octave and error with trees of any kind; else that of the next lower octave. `None` if there
    /// is none.
    pub fn probability(&self, key: &str, stratum: Stratum) -> Option<Probability> {
        let of_key = self.probabilities.get(key)?;
        let of_any_kind = Stratum { kind: None, ..stratum };
        of_key.get(&stratum).or_else(|| of_key.get(&of_any_kind)).copied().or_else(|| {
            let lower = of_key.range(..of_any_kind).rev();
            let mut alike =
                lower.filter(|(other, _)| other.is_error == stratum.is_error && other.kind.is_none());
            alike.next().map(|(_, p)| *p)
        })
    }

    /// The threshold with which a trace is recorded that the head sampler keeps with this one.
    /// `None` stands for a sampler that does not decide by chance, with which nothing is recorded
    /// unless all is.
    pub fn recorded(&self, head: Option<Threshold>) -> Option<Threshold> {
        match (self.record, head) {
            (Record::All, _) => Some(Threshold::ALWAYS),
            (Record::Times(_), None) => None,
            (Record::Times(times), Some(head)) => {
                let kept = (Threshold::RANGE - head.get()) as f64 * times;
                // A cast saturates.
                Some(Threshold::new(Threshold::RANGE.saturating_sub(kept as u64)).unwrap_or(Threshold::MAX))
            }
        }
    }
}
