//! Tallies: how many calls each record kept and dropped, split by thread and summed when read.

use std::cell::Cell;
use std::ops::AddAssign;

use crate::sync::{AtomicU64, Ordering};

/// For one record: by the law's two reasons, dropped and kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally(pub(super) [[u64; 2]; 2]);

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        for (sum, counts) in self.0.as_flattened_mut().iter_mut().zip(other.0.as_flattened()) {
            sum.add_assign(counts);
        }
    }
}

/// The four counts, in the order of [`Tally`]: half a cache line, so that no record's lie in two.
#[derive(Debug)]
#[repr(align(32))]
struct Cells([AtomicU64; 4]);

#[derive(Debug)]
pub(super) struct Tallies {
    /// By shard, then by record: threads of different shards write to different memory.
    shards: Box<[Box<[Cells]>]>,
}

impl Tallies {
    pub(super) fn new(shards: u32, records: usize) -> Self {
        let shard = || (0..records).map(|_| Cells(std::array::from_fn(|_| AtomicU64::new(0)))).collect();
        Tallies { shards: (0..shards).map(|_| shard()).collect() }
    }

    /// Counts a call, and returns how many of its kind this thread's shard has now counted.
    #[inline]
    pub(super) fn add(&self, id: u32, slot: usize, keep: bool) -> u64 {
        // A power of two, so that no division is needed.
        let shard = thread_number() as usize & (self.shards.len() - 1);
        self.shards[shard][id as usize].0[slot * 2 + usize::from(keep)].fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn read(&self, id: u32) -> Tally {
        self.sum(id, |count| count.load(Ordering::Relaxed))
    }

    /// Reads and sets to zero, losing no call.
    pub(super) fn take(&self, id: u32) -> Tally {
        self.sum(id, |count| count.swap(0, Ordering::Relaxed))
    }

    fn sum(&self, id: u32, read: impl Fn(&AtomicU64) -> u64) -> Tally {
        let mut sum = Tally::default();
        for shard in &self.shards {
            let [a, b, c, d] = &shard[id as usize].0;
            sum.add(Tally([[read(a), read(b)], [read(c), read(d)]]));
        }
        sum
    }
}

/// A small number for each thread, given out in turn, so that threads which live at the same time mostly have
/// different shards. It decides where a call is counted and nothing else. Not of `sync`: loom's atomics cannot be
/// static, and its models have one shard.
#[inline]
fn thread_number() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    const UNKNOWN: u32 = u32::MAX;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: Cell<u32> = const { Cell::new(UNKNOWN) });
    NUMBER.with(|number| {
        if number.get() == UNKNOWN {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed) & (UNKNOWN >> 1));
        }
        number.get()
    })
}
