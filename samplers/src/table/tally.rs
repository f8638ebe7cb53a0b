//! Tallies: the number of calls that each record kept and dropped, split by thread and summed when
//! read.

use crate::sync::{AtomicU64, Ordering};
use crate::thread;

/// The counts of one record: for each of the policy's two reasons, dropped and kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally(pub(super) [[u64; 2]; 2]);

impl Tally {
    pub(super) fn plus(self, other: Tally) -> Tally {
        self.zip(other, u64::wrapping_add)
    }

    /// `other` must be an earlier reading of the same counts, so that none of its counts is larger.
    pub(super) fn minus(self, other: Tally) -> Tally {
        self.zip(other, u64::wrapping_sub)
    }

    fn zip(self, other: Tally, with: impl Fn(u64, u64) -> u64) -> Tally {
        let ([[a, b], [c, d]], [[e, f], [g, h]]) = (self.0, other.0);
        Tally([[with(a, e), with(b, f)], [with(c, g), with(d, h)]])
    }
}

/// The four counts, in the order of [`Tally`]. Aligned to half a cache line, so that no record's
/// counts straddle two.
#[derive(Debug)]
#[repr(align(32))]
struct Cells([AtomicU64; 4]);

/// All tallies. Counts only grow, also when a record changes keys.
///
/// Each shard in the first half belongs to one thread, the only one to write there. Its additions
/// need no atomic read-modify-write, each of which would cost a third of a decision. All other
/// threads share the second half.
#[derive(Debug)]
pub(super) struct Tallies {
    /// By shard, then by record: threads with different shards write to different memory.
    shards: Box<[Box<[Cells]>]>,
    /// The number of shards that belong to one thread each.
    own: usize,
}

impl Tallies {
    /// `shards` must be a power of two.
    pub(super) fn new(shards: u32, records: usize) -> Self {
        let shard = || (0..records).map(|_| Cells(std::array::from_fn(|_| AtomicU64::new(0)))).collect();
        Tallies { shards: (0..shards).map(|_| shard()).collect(), own: shards as usize / 2 }
    }

    /// Counts a call, and returns the number of calls with the same reason and outcome that its
    /// shard has counted. Relaxed: `thread::number` hands a shard's counts from one owner to the
    /// next, and no other memory depends on them.
    #[inline]
    pub(super) fn add(&self, id: u32, slot: usize, keep: bool) -> u64 {
        let number = thread::number() as usize;
        let cell = slot * 2 + usize::from(keep);
        if number < self.own {
            let count = &self.shards[number][id as usize].0[cell];
            let counted = count.load(Ordering::Relaxed) + 1;
            count.store(counted, Ordering::Relaxed);
            counted
        } else {
            let shared = self.own + (number & (self.shards.len() - self.own - 1));
            self.shards[shared][id as usize].0[cell].fetch_add(1, Ordering::Relaxed) + 1
        }
    }

    /// All calls that a record has counted, for any key that had it.
    pub(super) fn read(&self, id: u32) -> Tally {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.shards.iter().fold(Tally::default(), |sum, shard| {
            let [a, b, c, d] = &shard[id as usize].0;
            sum.plus(Tally([[read(a), read(b)], [read(c), read(d)]]))
        })
    }
}
