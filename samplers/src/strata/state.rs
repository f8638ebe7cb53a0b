//! Counts and solved values of a sampler of strata, which continue when parameters change.

use super::table::{Decaying, Record, Table};
use super::{Strata, Stratum};
use crate::cap::meters::Meters;
use crate::sync::{AtomicU64, Ordering};

/// Traces are counted in 2^-8, since one stands for 1 / r.
pub(super) const PART_BITS: u32 = 8;
/// The share that the parameters keep is steered over this time, and over no less.
const STEERED_OVER: f64 = 3600.0;

/// The state that continues when parameters change.
#[derive(Debug)]
pub(super) struct State {
    pub(super) secret: u64,
    /// The traces of all keys, recorded or not, in 2^-8.
    pub(super) traces: AtomicU64,
    pub(super) keys: Table,
    pub(super) records: Table,
    /// For strata without a record, by octave and error.
    pub(super) others: Box<[Record]>,
    /// For all new keys.
    pub(super) new: Record,
    /// The bytes of strata without a probability in the parameters, and those that they should have
    /// kept by the ones they had.
    pub(super) unfitted: Decaying,
    pub(super) expected: Decaying,
    pub(super) steered: Steered,
    /// No stratum keeps more of its traces than this number divided by its count.
    pub(super) ceiling: Float,
    pub(super) lambda: Float,
    pub(super) correction: Float,
    /// The probability of new keys.
    pub(super) new_p: Float,
    /// The factor on all probabilities below 1, toward a budget.
    pub(super) factor: Float,
    pub(super) solved: AtomicU64,
    pub(super) solved_at: AtomicU64,
    pub(super) meters: Meters,
    /// Meters of the half of the cap for strata of probability 1.
    pub(super) whole: Meters,
    pub(super) tallies: Tallies,
}

impl State {
    pub(super) fn new(secret: u64) -> Self {
        State {
            secret,
            traces: AtomicU64::new(0),
            keys: Table::new(Strata::MAX),
            records: Table::new(Strata::MAX),
            others: (0..2 * Stratum::OCTAVES).map(|_| Record::default()).collect(),
            new: Record::default(),
            unfitted: Decaying::default(),
            expected: Decaying::default(),
            steered: Steered::default(),
            ceiling: Float::new(f64::INFINITY),
            lambda: Float::new(0.0),
            correction: Float::new(1.0),
            new_p: Float::new(1.0),
            factor: Float::new(1.0),
            solved: AtomicU64::new(0),
            solved_at: AtomicU64::new(0),
            meters: Meters::default(),
            whole: Meters::default(),
            tallies: Tallies::default(),
        }
    }
}

/// Relaxed everywhere: counts for statistics, which publish no other memory.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    pub(super) decided: AtomicU64,
    pub(super) kept: AtomicU64,
    pub(super) kept_bytes: AtomicU64,
    pub(super) refused: AtomicU64,
}

/// A float that any thread may read and write; 0 by default.
#[derive(Debug, Default)]
pub(super) struct Float(AtomicU64);

impl Float {
    pub(super) fn new(value: f64) -> Self {
        Float(AtomicU64::new(value.to_bits()))
    }

    pub(super) fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

/// The share of their bytes that strata keep by the parameters' probabilities, over an hour.
#[derive(Debug, Default)]
pub(super) struct Steered {
    /// Sums that decay by the hour, and the time that they cover in seconds.
    wanted: Float,
    all: Float,
    seconds: Float,
}

impl Steered {
    /// The share with these bytes of the last seconds. The first hour begins with the size.
    pub(super) fn share(&self, (wanted, all): (f64, f64), seconds: f64, size: f64) -> f64 {
        let rest = (-seconds / STEERED_OVER).exp();
        self.wanted.set(self.wanted.get() * rest + wanted);
        self.all.set(self.all.get() * rest + all);
        self.seconds.set(self.seconds.get() + seconds);
        let known = 1.0 - (-self.seconds.get() / STEERED_OVER).exp();
        size + known * (self.wanted.get() / self.all.get() - size)
    }
}
