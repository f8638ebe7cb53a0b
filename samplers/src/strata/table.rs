//! Decaying counts by hash, in a table of fixed size without a lock.

use crate::sync::{AtomicU64, Ordering};

/// The number of places in which a hash may have its record.
const WINDOW: usize = 16;
/// A count below this makes way for a new one: nearly the same as none.
const NEGLIGIBLE: f32 = 0.5;

/// A sum that loses half of itself with each half-life: the sum as a float, and the time of its
/// last change, in one word.
#[derive(Debug, Default)]
pub(super) struct Decaying(AtomicU64);

/// A time in traces of all keys, which wraps around, with the half-life in such traces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) at: u32,
    /// 1 / half-life.
    pub(super) per_half_life: f32,
}

impl Moment {
    /// The rest of a unit that was added then.
    fn rest(self, since: u32) -> f32 {
        let elapsed = self.at.wrapping_sub(since);
        // A thread that read the time earlier may come later.
        if elapsed > u32::MAX / 2 {
            return 1.0;
        }
        let exponent = elapsed as f32 * self.per_half_life * std::f32::consts::LN_2;
        // Most strata in use had a trace a short while ago. The error of the series is below 10^-5.
        if exponent < 1.0 / 32.0 {
            return 1.0 - exponent + 0.5 * exponent * exponent;
        }
        (-exponent).exp()
    }
}

impl Decaying {
    fn unpack(word: u64, now: Moment) -> f32 {
        f32::from_bits((word >> 32) as u32) * now.rest(word as u32)
    }

    /// The sum after adding this. Relaxed: the word is the whole state, and publishes no other
    /// memory.
    pub(super) fn add(&self, amount: f32, now: Moment) -> f32 {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let sum = Self::unpack(word, now) + amount;
            let next = u64::from(sum.to_bits()) << 32 | u64::from(now.at);
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return sum,
                Err(seen) => word = seen,
            }
        }
    }

    pub(super) fn get(&self, now: Moment) -> f32 {
        Self::unpack(self.0.load(Ordering::Relaxed), now)
    }
}

/// One stratum, or one key. Relaxed everywhere: a call that races with a change of the record's
/// owner counts in the wrong one. That changes probabilities of later traces, and biases nothing.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Record {
    /// The owner's hash; 0 if there is none.
    owner: AtomicU64,
    /// The probability in the parameters as a float, NaN if there is none, with the number of the
    /// parameters above it; 0 while the record is being taken over.
    fitted: AtomicU64,
    /// The traces so far, each with a number.
    given: AtomicU64,
    /// The probability with which the last trace was recorded, as a float.
    most: AtomicU64,
    pub(super) count: Decaying,
    pub(super) bytes: Decaying,
}

impl Record {
    /// The probability that the parameters of this number (from 1 on) give the stratum. `None` if
    /// it is not known here, `Some(None)` if they give none.
    pub(super) fn fitted(&self, parameters: u32) -> Option<Option<f32>> {
        let word = self.fitted.load(Ordering::Relaxed);
        let p = f32::from_bits(word as u32);
        ((word >> 32) as u32 == parameters).then(|| Some(p).filter(|p| !p.is_nan()))
    }

    pub(super) fn set_fitted(&self, parameters: u32, p: Option<f32>) {
        let bits = u64::from(p.unwrap_or(f32::NAN).to_bits());
        self.fitted.store(u64::from(parameters) << 32 | bits, Ordering::Relaxed);
    }

    pub(super) fn set_most(&self, most: f32) {
        self.most.store(most.to_bits().into(), Ordering::Relaxed);
    }

    pub(super) fn most(&self) -> f32 {
        f32::from_bits(self.most.load(Ordering::Relaxed) as u32)
    }

    /// The number of this trace in the stratum, from 0 on. No two threads get the same.
    pub(super) fn next(&self) -> u64 {
        self.given.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn is_taken(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0
    }

    /// Gives the record to another owner, if nobody else has.
    fn take_over(&self, from: u64, to: u64) -> bool {
        if self.owner.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        for word in [&self.fitted, &self.given, &self.most, &self.count.0, &self.bytes.0] {
            word.store(0, Ordering::Relaxed);
        }
        true
    }
}

/// Records by hash.
#[derive(Debug)]
pub(super) struct Table(Box<[Record]>);

impl Table {
    pub(super) fn new(records: usize) -> Self {
        Table((0..records).map(|_| Record::default()).collect())
    }

    /// The record of this hash. It is opened if, among the places where it may be, there is a free
    /// one or one with a negligible count.
    pub(super) fn record(&self, hash: u64, now: Moment) -> Option<&Record> {
        let hash = hash.max(1);
        // If another thread is faster, its record may be the one that this thread looks for. With
        // more threads than two at one place, a call may go without.
        for _ in 0..2 {
            let mut weakest: Option<(f32, u64, &Record)> = None;
            for at in 0..WINDOW.min(self.0.len()) {
                let record = &self.0[(hash as usize).wrapping_add(at) % self.0.len()];
                let owner = record.owner.load(Ordering::Relaxed);
                if owner == hash {
                    return Some(record);
                }
                let count = if owner == 0 { 0.0 } else { record.count.get(now) };
                if weakest.is_none_or(|(least, ..)| count < least) {
                    weakest = Some((count, owner, record));
                }
            }
            let (_, owner, record) = weakest.filter(|(count, ..)| *count < NEGLIGIBLE)?;
            if record.take_over(owner, hash) {
                return Some(record);
            }
        }
        None
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.0.iter()
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use std::sync::Arc;

    const NOW: Moment = Moment { at: 7, per_half_life: 0.1 };

    #[test]
    fn no_count_is_lost_and_no_number_is_given_twice() {
        loom::model(|| {
            let record = Arc::new(Record::default());
            let other = Arc::clone(&record);
            let handle = loom::thread::spawn(move || {
                other.count.add(2.0, NOW);
                other.next()
            });
            record.count.add(1.0, NOW);
            let ours = record.next();
            assert_ne!(handle.join().unwrap(), ours);
            assert_eq!(record.count.get(NOW), 3.0);
        });
    }

    #[test]
    fn two_threads_open_one_record_for_one_hash() {
        loom::model(|| {
            let table = Arc::new(Table::new(2));
            let other = Arc::clone(&table);
            let handle = loom::thread::spawn(move || {
                other.record(5, NOW).map(|record| record.count.add(1.0, NOW)).is_some()
            });
            let found = table.record(5, NOW).map(|record| record.count.add(1.0, NOW)).is_some();
            assert!(found && handle.join().unwrap());
            let owners = table.records().filter(|record| record.is_taken()).count();
            assert_eq!(owners, 1);
        });
    }
}
