//! Which records are free, and what is left of keys that lost theirs. Under the table's lock.

use super::tally::Tally;
use crate::nanos::Nanos;

#[derive(Debug)]
pub(super) struct Rooms {
    /// Records that no key has.
    free: Vec<u32>,
    /// Records that were taken away in the last sweep.
    resting: Vec<u32>,
    /// Whether a record is in `resting`.
    is_resting: Box<[bool]>,
    /// No sweep before this time.
    next_sweep: Nanos,
    /// The counts of keys that left.
    evicted: Tally,
    keys_evicted: u64,
}

impl Rooms {
    pub(super) fn new(keys: u32) -> Self {
        Rooms {
            free: (0..keys).rev().collect(),
            resting: Vec::new(),
            is_resting: vec![false; keys as usize].into(),
            next_sweep: Nanos::ZERO,
            evicted: Tally::default(),
            keys_evicted: 0,
        }
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn take_free(&mut self) -> Option<u32> {
        self.free.pop()
    }

    pub(super) fn give_back(&mut self, id: u32) {
        self.free.push(id);
    }

    pub(super) fn next_sweep(&self) -> Nanos {
        self.next_sweep
    }

    /// Frees the records that have rested since the last sweep. False if it is too early for another.
    pub(super) fn begin_sweep(&mut self, now: Nanos, interval: Nanos) -> bool {
        // Further ahead than any wait: the clock was set back.
        if now < self.next_sweep && self.next_sweep.saturating_sub(now) <= interval {
            return false;
        }
        self.next_sweep = now.saturating_add(interval);
        for id in self.resting.drain(..) {
            self.is_resting[id as usize] = false;
            self.free.push(id);
        }
        true
    }

    pub(super) fn rest(&mut self, id: u32) {
        self.is_resting[id as usize] = true;
        self.resting.push(id);
        self.keys_evicted += 1;
    }

    pub(super) fn is_resting(&self, id: u32) -> bool {
        self.is_resting[id as usize]
    }

    pub(super) fn resting(&self) -> impl Iterator<Item = u32> {
        self.resting.iter().copied()
    }

    pub(super) fn evicted(&self) -> Tally {
        self.evicted
    }

    pub(super) fn evicted_mut(&mut self) -> &mut Tally {
        &mut self.evicted
    }

    pub(super) fn keys_evicted(&self) -> u64 {
        self.keys_evicted
    }
}
