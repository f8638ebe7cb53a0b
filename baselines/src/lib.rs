//! Samplers of other projects, to compare ours with: reimplemented from their published algorithms.
//!
//! A baseline decides from recorded time and from the same draws as our samplers. What the original
//! does in a thread of its own once a period is done here at the next arrival: tick `n` falls `n`
//! periods after the first arrival, and an arrival at the very moment of a tick comes after it.
//! Networks between parts of the original (an agent that sends rates to its clients, a collector
//! that is asked once a minute) are taken to be instant, which flatters a baseline whose feedback
//! is slow.
//!
//! One file for each algorithm; each says where it comes from, what is simplified, whether the
//! weight that the original records is true, and how it is known to be biased. [`all`] lists them;
//! [`BaselineSpec`] is one with its parameters, as a value and as text.

mod brave;
mod consistent_rate;
mod dynsampler;
mod fixed;
mod jaeger;
mod kind;
mod spec;
mod ticks;
mod water_fill;
mod xray;

use std::sync::Arc;

pub use kind::Kind;
pub use spec::{BaselineSpec, InvalidBaseline};

/// A sampler that keeps its state between calls.
pub trait Baseline {
    /// Whether this trace is kept. Calls come in order of time.
    fn keeps(&mut self, call: Call) -> bool;
}

/// A trace that begins, as a baseline sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// Its key: a place in the [`Keys`] that the baseline was built for.
    pub key: u32,
    /// Nanoseconds since the first arrival.
    pub at_ns: u64,
    /// The draw, in [0, 1): what is kept with probability `p` is kept if this is below `p`.
    pub uniform: f64,
}

/// The keys of a workload, and their order by name: some baselines hand out rates in that order.
#[derive(Clone, Debug)]
pub struct Keys {
    /// By key: its place in the order of the names.
    places: Arc<[u32]>,
}

impl Keys {
    /// Keys with these names; the first is key 0.
    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut named: Vec<(&str, u32)> = names.into_iter().zip(0..).collect();
        named.sort_unstable();
        let mut places = vec![0; named.len()];
        for ((_, key), place) in named.into_iter().zip(0..) {
            places[key as usize] = place;
        }
        Self { places: places.into() }
    }

    /// The number of keys.
    fn count(&self) -> usize {
        self.places.len()
    }

    /// The key's place in the order of the names' bytes.
    fn place(&self, key: u32) -> u32 {
        self.places[key as usize]
    }
}

/// Every kind of baseline, with its default parameters.
pub fn all() -> Vec<BaselineSpec> {
    spec::KINDS.iter().map(|kind| BaselineSpec::with_defaults(kind)).collect()
}

#[cfg(test)]
mod tests;
