//! The weight of a trace that is kept late, also as text for other processes.

use std::fmt;

use astracer_samplers::tracestate::OtMember;
use astracer_samplers::{Randomness, Threshold};

/// The weight of a trace that is kept late. As text: `th=c;rv=6e6d1a75832a2f`, with the values that
/// a trace state has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// The threshold of the decision.
    pub threshold: Threshold,
    /// The randomness that reaches the threshold, if it is not the trace's own.
    pub randomness: Option<Randomness>,
}

impl Weight {
    /// Reads the text; `None` if it is malformed, or the randomness does not reach the threshold.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.replace('=', ":");
        let member = OtMember::parse(&text).ok()?;
        let (threshold, randomness) = (member.threshold?, member.randomness);
        let is_kept = randomness.is_none_or(|randomness| threshold.keeps(randomness));
        is_kept.then_some(Weight { threshold, randomness })
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let member = OtMember::of_numbers(Some(self.threshold), self.randomness);
        f.write_str(&member.value().replace(':', "="))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_rest_is_refused() {
        for text in ["th=c;rv=ce6d1a75832a2f", "th=0", "th=fd70a"] {
            assert_eq!(Weight::parse(text).map(|weight| weight.to_string()).as_deref(), Some(text));
        }
        // The second randomness is below its threshold.
        for text in ["", "th=", "th=c;rv=6e6d1a75832a2f", "rv=ce6d1a75832a2f", "th=C", "boost"] {
            assert_eq!(Weight::parse(text), None, "{text}");
        }
    }
}
