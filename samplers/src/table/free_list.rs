//! The free records, and the counts of evicted keys. Used under the table's lock.

use super::tally::Tally;
use crate::nanos::Nanos;

#[derive(Debug)]
pub(super) struct FreeList {
    /// Records without a key.
    free: Vec<u32>,
    /// Records whose keys the last sweep evicted.
    retired: Vec<u32>,
    /// True while a key has the record: it is neither free nor retired.
    taken: Box<[bool]>,
    /// No sweep happens before this time.
    next_sweep: Nanos,
    /// For each record the counts at the time its key got it: the key's baseline.
    bases: Box<[Tally]>,
    /// The counts of evicted keys, together.
    evicted: Tally,
    keys_evicted: u64,
}

impl FreeList {
    pub(super) fn new(keys: u32) -> Self {
        FreeList {
            free: (0..keys).rev().collect(),
            retired: Vec::new(),
            taken: vec![false; keys as usize].into(),
            next_sweep: Nanos::ZERO,
            bases: vec![Tally::default(); keys as usize].into(),
            evicted: Tally::default(),
            keys_evicted: 0,
        }
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn take_free(&mut self) -> Option<u32> {
        let id = self.free.pop()?;
        self.taken[id as usize] = true;
        Some(id)
    }

    pub(super) fn give_back(&mut self, id: u32) {
        self.taken[id as usize] = false;
        self.free.push(id);
    }

    pub(super) fn next_sweep(&self) -> Nanos {
        self.next_sweep
    }

    /// Frees the records that have been unused since the last sweep. Returns false if it is too
    /// early for another sweep.
    pub(super) fn begin_sweep(&mut self, now: Nanos, interval: Nanos) -> bool {
        // A sweep further ahead than any wait means that the clock was set back.
        if now < self.next_sweep && self.next_sweep.saturating_sub(now) <= interval {
            return false;
        }
        self.next_sweep = now.saturating_add(interval);
        self.free.append(&mut self.retired);
        true
    }

    pub(super) fn retire(&mut self, id: u32) {
        self.taken[id as usize] = false;
        self.retired.push(id);
        self.keys_evicted += 1;
    }

    pub(super) fn is_taken(&self, id: u32) -> bool {
        self.taken[id as usize]
    }

    pub(super) fn retired(&self) -> impl Iterator<Item = u32> {
        self.retired.iter().copied()
    }

    pub(super) fn evicted(&self) -> Tally {
        self.evicted
    }

    /// The counts of the record's present key: those since its baseline.
    pub(super) fn since_base(&self, id: u32, counted: Tally) -> Tally {
        counted.minus(self.bases[id as usize])
    }

    /// Moves the record's counts since its baseline to those of evicted keys.
    pub(super) fn evict_counts(&mut self, id: u32, counted: Tally) {
        self.evicted = self.evicted.plus(self.since_base(id, counted));
        self.bases[id as usize] = counted;
    }

    pub(super) fn keys_evicted(&self) -> u64 {
        self.keys_evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_taken_rests_and_is_free_again() {
        let mut free_list = FreeList::new(2);
        assert!(!free_list.is_taken(0) && !free_list.is_taken(1));
        assert_eq!(
            [free_list.take_free(), free_list.take_free(), free_list.take_free()],
            [Some(0), Some(1), None]
        );
        assert!(free_list.is_taken(0) && free_list.is_taken(1));
        assert!(free_list.begin_sweep(Nanos::from_secs(9), Nanos::from_secs(1)));
        free_list.retire(1);
        assert!(!free_list.is_taken(1) && !free_list.has_free());
        assert_eq!((free_list.retired().collect::<Vec<_>>(), free_list.keys_evicted()), (vec![1], 1));
        assert!(free_list.begin_sweep(Nanos::from_secs(10), Nanos::from_secs(1)));
        assert_eq!((free_list.take_free(), free_list.retired().count()), (Some(1), 0));
    }

    /// Only the first waiting thread sweeps; otherwise a burst of waiters would sweep once each,
    /// and records would be reused at once.
    #[test]
    fn sweeps_are_an_interval_apart() {
        let (second, milli) = (Nanos::from_secs(1), Nanos::from_millis(1));
        let mut free_list = FreeList::new(1);
        let at = Nanos::from_secs(100);
        assert!(free_list.begin_sweep(at, second));
        assert_eq!(free_list.next_sweep(), Nanos::from_secs(101));
        for too_early in [at, at.saturating_add(milli), Nanos::from_millis(100_999)] {
            assert!(!free_list.begin_sweep(too_early, second), "{too_early}");
        }
        assert!(free_list.begin_sweep(Nanos::from_secs(101), second));
        // The clock was set back by more than any wait.
        assert!(free_list.begin_sweep(at, second));
        assert_eq!(free_list.next_sweep(), Nanos::from_secs(101));
    }
}
