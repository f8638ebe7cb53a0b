//! Latency if some functions were faster or slower, over a recording.

use std::collections::HashMap;

use astracer_recording::intern::Symbol;
use serde::Serialize;

use crate::statistics::{Summary, Times};
use crate::traced::Analyser;

/// Traces' lengths before and after.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Speedup {
    /// As recorded.
    pub before: Summary,
    /// With the factors.
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
    /// With a factor for the time of each of these functions; the others keep theirs.
    pub fn new(factors: HashMap<Symbol, f64>) -> Self {
        Self { factors, before: Times::default(), after: Times::default() }
    }

    /// Adds the trace that the analyser found the path of last.
    pub fn add(&mut self, analyser: &mut Analyser, weight: Option<f64>) {
        let weight = weight.unwrap_or(1.0);
        let factor = |name: Symbol| self.factors.get(&name).copied().unwrap_or(1.0);
        let (before, after) = analyser.retime(factor);
        self.before.push(before, weight);
        // Past the end of 64 bits the conversion stops at the largest length.
        self.after.push(after.round() as u64, weight);
    }

    /// The lengths, with these percentiles (0 to 100).
    pub fn finish(self, percentiles: &[f64]) -> Speedup {
        Speedup { before: self.before.summary(percentiles), after: self.after.summary(percentiles) }
    }
}
