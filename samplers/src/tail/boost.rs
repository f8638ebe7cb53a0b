//! Boost: after an error or a slow root, a key's head probability is raised for a while, so that
//! whole distributed traces of an incident exist.

use std::fmt;
use std::str::FromStr;

use crate::cap::{Allowance, Meter};
use crate::config_error::ConfigError;
use crate::decision::{Decision, Reason};
use crate::nanos::Nanos;
use crate::probability::Probability;
use crate::randomness::Randomness;
use crate::threshold::Threshold;

const EXAMPLE: &str = "use on, or parts such as probability=1,lasting=1m,rest=10m,traces=100,burst=100";

/// The settings of a boost. The text form is `on`, for the defaults, or a list of parts:
/// `probability=1,lasting=1m,rest=10m,traces=100,burst=100`.
///
/// A boost of a key begins when one of its roots has an error, or is slow: longer than a policy
/// `slow:500ms` says, or longer than twice the threshold of a policy `slow:p99`, which healthy
/// roots exceed too. It also begins when a called process reports that a part of the trace went
/// wrong there. While it lasts, the key's probability is at least [`Boost::probability`], and the
/// decision carries the raised one, so weights stay true. The next boost of the key begins at the
/// earliest [`Boost::rest`] after the previous one ended.
///
/// [`Boost::traces`] bounds the traces that only boosts keep, of all keys together. While less than
/// half of its burst is left, the probability falls linearly to the sampler's own.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Boost {
    /// The least probability while a boost lasts.
    pub probability: Probability,
    /// The time that a boost lasts: at most a minute.
    pub lasting: Nanos,
    /// The time after a boost in which its key gets no other.
    pub rest: Nanos,
    /// The traces that boosts may keep in this process beyond the sampler's own. Threads that
    /// decide at the same moment may each keep one more.
    pub traces: Allowance,
}

impl Default for Boost {
    /// Every trace for a minute, at most once in eleven minutes; 100 traces per second.
    fn default() -> Self {
        Boost {
            probability: Probability::ONE,
            lasting: Boost::LASTING_MAX,
            rest: Nanos::from_secs(600),
            traces: Allowance::HUNDRED,
        }
    }
}

impl Boost {
    /// The longest time that a boost may last.
    pub const LASTING_MAX: Nanos = Nanos::from_secs(60);

    /// Sets the least probability while a boost lasts; 1 by default.
    #[must_use]
    pub fn with_probability(self, probability: Probability) -> Self {
        Boost { probability, ..self }
    }

    /// Sets how long a boost lasts, and for how long the key then gets no other; a minute and ten
    /// minutes by default.
    ///
    /// # Errors
    ///
    /// If a boost would not last, or would last longer than a minute.
    pub fn with_times(self, lasting: Nanos, rest: Nanos) -> Result<Self, ConfigError> {
        if lasting == Nanos::ZERO || lasting > Boost::LASTING_MAX {
            let message = "a boost lasts more than 0 and at most 1m";
            return Err(ConfigError::out_of_range(format!("lasting={lasting}"), message));
        }
        Ok(Boost { lasting, rest, ..self })
    }

    /// Bounds the traces that only boosts keep; 100 per second by default.
    #[must_use]
    pub fn with_traces(self, traces: Allowance) -> Self {
        Boost { traces, ..self }
    }
}

impl fmt::Display for Boost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Boost { probability, lasting, rest, traces } = self;
        write!(
            f,
            "probability={},lasting={lasting},rest={rest},traces={},burst={}",
            probability.get(),
            traces.rate(),
            traces.burst()
        )
    }
}

impl FromStr for Boost {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut boost = Boost::default();
        if text.trim() == "on" {
            return Ok(boost);
        }
        let (mut lasting, mut rest, mut rate, mut burst) = (boost.lasting, boost.rest, None, None);
        for part in text.split(',').map(str::trim) {
            let wrong = || ConfigError::syntax(part, EXAMPLE);
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let number = || value.parse::<f64>().map_err(|_| wrong());
            let time = || Nanos::parse(value).ok_or_else(wrong);
            match name {
                "probability" => {
                    let range = || ConfigError::out_of_range(part, "a probability is from 0 to 1");
                    boost.probability = Probability::new(number()?).ok_or_else(range)?;
                }
                "lasting" => lasting = time()?,
                "rest" => rest = time()?,
                "traces" => rate = Some(number()?),
                "burst" => burst = Some(number()?),
                _ => return Err(ConfigError::unknown_parameter(part, EXAMPLE)),
            }
        }
        if rate.is_some() || burst.is_some() {
            let rate = rate.unwrap_or(boost.traces.rate());
            boost.traces = Allowance::new(rate, burst.unwrap_or(rate.max(1.0)))?;
        }
        boost.with_times(lasting, rest)
    }
}

/// A boost that is in progress for a key: raises the probability of a decision.
#[derive(Debug)]
pub struct Boosting<'a> {
    pub(super) boost: &'a Boost,
    pub(super) meter: &'a Meter,
}

impl Boosting<'_> {
    /// The decision with the raised probability, in place of a sampler's own decision, which was
    /// made by chance.
    ///
    /// The raised threshold depends on earlier decisions only, never on this call's randomness.
    /// Otherwise weights would be biased.
    pub(crate) fn raise(&self, own: Decision, randomness: Randomness, now: Nanos) -> Decision {
        let probability = own.threshold.map_or(0.0, |threshold| threshold.probability().get());
        let left = (2.0 * self.meter.level(&self.boost.traces, now)).min(1.0);
        let raised = probability + (self.boost.probability.get() - probability) * left;
        let threshold = Probability::new(raised).filter(|_| raised > probability);
        let Some(threshold) = threshold.map(Threshold::from_probability) else { return own };
        let keep = threshold.keeps(randomness);
        if keep && !own.keep {
            // A refusal changes nothing: it means that other threads have just taken the rest.
            let _ = self.meter.admit(&self.boost.traces, 1, now);
        }
        Decision { keep, threshold: Some(threshold), reason: Reason::Boost }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn text_and_settings_agree() {
        for text in ["probability=0.5,lasting=30s,rest=2m,traces=5,burst=20", "lasting=1ms", "burst=3"] {
            let boost: Boost = text.parse().unwrap();
            assert_eq!(boost.to_string().parse::<Boost>().unwrap(), boost, "{text}");
        }
        assert_eq!("on".parse::<Boost>().unwrap(), Boost::default());
        for wrong in ["", "off", "probability=2", "lasting=61s", "lasting=0s", "rest=x", "traces=0", "p=1"] {
            assert!(wrong.parse::<Boost>().is_err(), "{wrong}");
        }
    }

    /// The largest randomness below a threshold is dropped, and the threshold itself is kept: the
    /// written threshold is the one that was compared.
    #[test]
    fn the_threshold_written_is_the_one_used() {
        let boost = Boost::default().with_probability(Probability::new(0.25).unwrap());
        let meter = Meter::default();
        let own = Decision { keep: false, threshold: None, reason: Reason::Bump };
        let boosting = Boosting { boost: &boost, meter: &meter };
        let quarter = 3 << 54;
        for (randomness, keep) in [(quarter - 1, false), (quarter, true)] {
            let decision = boosting.raise(own, Randomness::from_low_bits(randomness), Nanos::ZERO);
            assert_eq!((decision.keep, decision.threshold.unwrap().get()), (keep, quarter));
        }
    }
}
