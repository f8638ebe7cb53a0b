//! The latency of a recording if some functions were faster or slower.

use std::collections::HashMap;

use astracer_recording::intern::Symbol;
use serde::Serialize;

use crate::statistics::{Summary, Times};
use crate::traced::Analyser;

/// The lengths of traces before and after a change of speed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Speedup {
    /// The lengths as recorded.
    pub before: Summary,
    /// The lengths with the factors applied.
    pub after: Summary,
}

/// Re-times traces one by one.
#[derive(Clone, Debug)]
pub struct Retiming {
    factors: HashMap<Symbol, f64>,
    before: Times,
    after: Times,
}

impl Retiming {
    /// Applies a factor to the time of each of these functions; the others keep their time.
    pub fn new(factors: HashMap<Symbol, f64>) -> Self {
        Self { factors, before: Times::default(), after: Times::default() }
    }

    /// Adds the trace whose path the analyser found last. A trace without a weight counts as one.
    pub fn add(&mut self, analyser: &mut Analyser, weight: Option<f64>) {
        let weight = weight.unwrap_or(1.0);
        let factor = |name: Symbol| self.factors.get(&name).copied().unwrap_or(1.0);
        let (before, after) = analyser.retime(factor);
        self.before.push(before, weight);
        // Lengths beyond 64 bits saturate in this conversion.
        self.after.push(after.round() as u64, weight);
    }

    /// The lengths, with these percentiles (0 to 100).
    pub fn finish(self, percentiles: &[f64]) -> Speedup {
        Speedup { before: self.before.summary(percentiles), after: self.after.summary(percentiles) }
    }
}
