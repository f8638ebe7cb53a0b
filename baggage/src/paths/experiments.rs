//! Experiments: the time that requests would take if a function were faster or slower.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// Experiments that run at once.
pub const EXPERIMENTS_MAX: usize = 8;

/// A part of a service that an experiment changes: see [`zone`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(pub(super) Arc<str>);

/// The time in a function of this name, with everything below it: a span's name, or that of
/// [`zone!`](crate::zone).
pub fn zone(name: impl Into<Arc<str>>) -> Zone {
    Zone(name.into())
}

/// An experiment that was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExperimentError {
    /// There are [`EXPERIMENTS_MAX`] already: remove one.
    TooMany,
    /// The factor is negative, not finite, or above 1,000.
    Factor,
    /// The service does not measure critical paths: see
    /// [`with_critical_path`](crate::Applications::with_critical_path).
    NotMeasured,
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "8 experiments run already: remove one before you add another",
            Self::NotMeasured => {
                "this service measures no critical paths: give its `Flows` `Applications::with_critical_path`"
            }
            Self::Factor => "an experiment's factor must be between 0 and 1,000",
        })
    }
}

impl std::error::Error for ExperimentError {}

#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    pub(crate) name: Arc<str>,
    pub(crate) zone: Zone,
    pub(crate) factor: f64,
    /// Identifies the experiment in other processes that have the same one.
    pub(super) id: u64,
}

/// The experiments that begin with a request.
#[derive(Debug, Default)]
pub(crate) struct Set(pub(super) Vec<Experiment>);

impl Set {
    /// The experiments that change a function, one bit for each.
    #[inline]
    pub(super) fn of(&self, name: &str) -> u8 {
        let bits = self.0.iter().enumerate().filter(|(_, experiment)| *experiment.zone.0 == *name);
        bits.fold(0, |bits, (at, _)| bits | 1 << at)
    }

    /// Adds a time to the lengths of ways, as each experiment changes it.
    #[inline]
    pub(super) fn add(&self, lengths: &mut [f64; EXPERIMENTS_MAX], inside: u8, nanos: u64) {
        for (at, (length, experiment)) in lengths.iter_mut().zip(&self.0).enumerate() {
            let factor = if inside >> at & 1 == 1 { experiment.factor } else { 1.0 };
            *length += nanos as f64 * factor;
        }
    }
}

/// The experiments that run now. A change replaces the set; requests keep theirs.
#[derive(Debug, Default)]
pub(crate) struct Running(RwLock<Option<Arc<Set>>>);

impl Running {
    /// `None`: there are none.
    pub(super) fn now(&self) -> Option<Arc<Set>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds an experiment, or replaces the one of the same name.
    pub(super) fn add(&self, name: Arc<str>, zone: Zone, factor: f64) -> Result<(), ExperimentError> {
        if !(0.0..=1_000.0).contains(&factor) {
            return Err(ExperimentError::Factor);
        }
        let mut own = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = own.as_deref().map(|set| set.0.clone()).unwrap_or_default();
        let id = id(&name, &zone, factor);
        let new = Experiment { name, zone, factor, id };
        match all.iter().position(|known| known.name == new.name) {
            Some(at) => all[at] = new,
            None if all.len() == EXPERIMENTS_MAX => return Err(ExperimentError::TooMany),
            None => all.push(new),
        }
        *own = Some(Arc::new(Set(all)));
        Ok(())
    }

    /// Removes an experiment. Returns whether there was one of this name.
    pub(super) fn remove(&self, name: &str) -> bool {
        let mut own = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(set) = own.as_deref() else { return false };
        let left: Vec<Experiment> = set.0.iter().filter(|known| *known.name != *name).cloned().collect();
        let is_known = left.len() < set.0.len();
        *own = Some(left).filter(|left| !left.is_empty()).map(|left| Arc::new(Set(left)));
        is_known
    }
}

/// FNV-1a: the same in each process.
fn id(name: &str, zone: &Zone, factor: f64) -> u64 {
    let bytes =
        name.bytes().chain([0]).chain(zone.0.bytes()).chain([0]).chain(factor.to_bits().to_be_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
