//! Samplers of other projects, reimplemented from their published algorithms, as baselines for
//! ours.
//!
//! A baseline decides from recorded time, and from the same random draws as our samplers. Where the
//! original updates itself periodically in a thread of its own, the baseline does so at the next
//! arrival: tick `n` falls `n` periods after the first arrival, and an arrival at the exact time of
//! a tick comes after it. Networks between parts of the original (an agent that sends rates to its
//! clients, a collector that is polled once a minute) are assumed to be instant, which favours
//! baselines with slow feedback.
//!
//! There is one file per algorithm. It names the source, what is simplified, whether the weight
//! that the original records is unbiased, and the known biases. [`all`] lists the baselines;
//! [`BaselineSpec`] is one with its parameters, as a value and as text.

mod brave;
mod consistent_rate;
mod dynsampler;
mod fixed;
mod grafana;
mod jaeger;
mod kind;
mod spec;
mod ticks;
mod water_fill;
mod xray;

use std::sync::Arc;

pub use kind::Kind;
pub use spec::{BaselineSpec, InvalidBaseline};

/// A sampler with state.
pub trait Baseline {
    /// Whether this trace is kept. Calls must come in order of time.
    fn keeps(&mut self, call: Call) -> bool;
}

/// The beginning of a trace, as a baseline sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// The key: an index into the [`Keys`] that the baseline was built for.
    pub key: u32,
    /// Nanoseconds since the first arrival.
    pub at_ns: u64,
    /// The random draw, in [0, 1): a trace to be kept with probability `p` is kept if this is below
    /// `p`.
    pub uniform: f64,
}

/// The keys of a workload, and their order by name, in which some baselines assign rates.
#[derive(Clone, Debug)]
pub struct Keys {
    /// For each key, its position in the order of the names.
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

    /// The key's position in the order of the names' bytes.
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
