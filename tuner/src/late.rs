//! Late strata: probabilities by outcome, found in closed form.
//!
//! A trace has influence on the means, deviations and counts of functions. A stratum of traces
//! (same key, octave of the root's duration, error, and optionally kind of tree) is kept with a
//! probability in proportion to the root of its mean influence per byte, and each kept trace stands
//! for 1 / p traces. Of all probabilities of the same size, these have the least variance, to first
//! order (Neyman's allocation).

mod fit;
mod influence;
mod replay;
#[cfg(test)]
mod tests;

use std::fmt;

use astracer_samplers::Config;
use astracer_samplers::strata::{Record, Strata};

pub use fit::{Fit, FitOptions};
pub(crate) use replay::replay;

/// A head sampler that decides which traces are recorded, and the strata that decide which of these
/// are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Late {
    /// The head sampler.
    pub head: Config,
    /// The strata.
    pub strata: Strata,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "strata:size={},record=", self.strata.size().get())?;
        match self.strata.record() {
            Record::All => f.write_str("all")?,
            Record::Times(times) => write!(f, "{times}")?,
        }
        if self.strata.is_by_kind() {
            f.write_str(",kind")?;
        }
        let (keys, strata) = self
            .strata
            .probabilities()
            .fold((0, 0), |(keys, strata), (_, of_key)| (keys + 1, strata + of_key.len()));
        match strata {
            0 => f.write_str(";no strata in the file"),
            _ => write!(f, ";{strata} strata of {keys} keys"),
        }
    }
}
