//! Applying a parameters file: to a builder, and later to the running service.
//!
//! Both go through [`apply`], so that a part which a file may set has one place and one order. A
//! builder takes every part. A running service refuses those that were fixed at its start.

use astracer_samplers::parameters::{Parameters, ParametersError};
use astracer_samplers::tail::Tail;
use astracer_samplers::{Budget, Cap, Config, KeyRule, RandomSource};

/// The receiver of a file's parts.
pub(crate) trait Target {
    /// Sets the key rule.
    fn set_key(&mut self, key: KeyRule) -> Result<(), &'static str>;
    /// Sets the source of randomness.
    fn set_random(&mut self, random: RandomSource) -> Result<(), &'static str>;
    /// Sets the policies of late keeping.
    fn set_tail(&mut self, tail: Tail) -> Result<(), &'static str>;
    /// Sets the budget; `None` restores the one set in code.
    fn set_budget(&mut self, budget: Option<Budget>) -> Result<(), &'static str>;
    /// Sets the sampler and the cap; a cap without bounds restores the one set in code.
    fn set_sampler(&mut self, sampler: &Config, cap: &Cap);
}

/// Applies the text of a parameters file to `target`. A refusal changes nothing: the parts that a
/// service can refuse come first, and the budget, which has an effect at once, is the last of them.
pub(crate) fn apply(text: &str, target: &mut impl Target) -> Result<(), Refusal> {
    let invalid = |error: ParametersError| Refusal { line: error.line(), message: error.to_string() };
    let parameters: Parameters = text.parse().map_err(invalid)?;
    let refused = |message: &'static str| Refusal { line: None, message: message.to_owned() };
    target.set_key(parameters.key).map_err(refused)?;
    target.set_random(parameters.random).map_err(refused)?;
    target.set_tail(parameters.tail).map_err(refused)?;
    target.set_budget(parameters.budget).map_err(refused)?;
    target.set_sampler(&parameters.config, &parameters.cap);
    Ok(())
}

/// A file that was not applied.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The line of the file at fault, from 1.
    pub(crate) line: Option<usize>,
    /// With the line, if there is one.
    pub(crate) message: String,
}

impl Refusal {
    /// The message without the line.
    pub(crate) fn reason(&self) -> &str {
        let parts = self.message.split_once(": ").filter(|_| self.line.is_some());
        parts.map_or(&self.message, |parts| parts.1)
    }
}
