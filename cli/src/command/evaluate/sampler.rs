//! The samplers that `evaluate` is asked to replay.

use std::collections::BTreeMap;

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

/// The samplers' names in a table that has their rows in this order. A row under a cap is about the
/// cap alone if it comes right after that of the same sampler.
pub(super) fn labels(samplers: &[Candidate]) -> BTreeMap<String, String> {
    let mut before = None;
    let label = |sampler: &Candidate| {
        let (bare, cap) = match sampler {
            Candidate::Capped(config, cap) => (Candidate::Ours(config.clone()), *cap),
            Candidate::Late(late, cap) => (Candidate::Late(late.clone(), Cap::none()), *cap),
            Candidate::Ours(_) | Candidate::Baseline(_) => (sampler.clone(), Cap::none()),
        };
        let is_same = before.replace(bare.clone()) == Some(bare);
        let label = if is_same { format!("+ cap {cap}") } else { sampler.brief() };
        (sampler.to_string(), label)
    };
    samplers.iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_named_behind_its_sampler_only() {
        let sampler = |text: &str, cap: &str| {
            Candidate::capped(text.parse().expect("a sampler"), cap.parse().expect("a cap"))
        };
        let none = Cap::none();
        let always = Candidate::capped("always".parse().expect("a sampler"), none);
        let [one, two] = ["traces=9,burst=9", "traces=8,burst=9"].map(|cap| sampler("always", cap));
        let other = sampler("ratio:0.1", "traces=9,burst=9");
        let labels = labels(&[always, one.clone(), two.clone(), other.clone()]);
        assert_eq!(labels["always"], "always");
        assert_eq!(labels[&one.to_string()], "+ cap traces=9,burst=9");
        assert_eq!(labels[&two.to_string()], "+ cap traces=8,burst=9");
        assert_eq!(labels[&other.to_string()], "ratio:0.1 under traces=9,burst=9");
    }
}
