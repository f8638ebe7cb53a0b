//! Exact counts of each key that continue when its record is evicted.
//!
//! A key's counts start again at 0 when its record is evicted and later recreated, and the counts
//! of the keys without a record decrease when one of them gets a record. Metrics and heartbeats
//! report totals since the process began, so both keep a running sum for each key they report, and
//! give the rest of the sum over all keys to the others.

use std::collections::BTreeMap;

use crate::steering::KeyStats;

/// Running sums of [`Handle::keys`](crate::Handle::keys), `N` counts for each key that is reported
/// separately.
///
/// A key's counts start again at 0 when its record is evicted and later recreated. These sums never
/// fall, so they suit counters of a monitoring system.
#[derive(Debug)]
pub struct KeyTotals<const N: usize> {
    keys: BTreeMap<String, Total<N>>,
    counts: fn(&KeyStats) -> [u64; N],
}

#[derive(Debug)]
struct Total<const N: usize> {
    /// The sum over the evicted records.
    before: [u64; N],
    now: [u64; N],
    seen: u64,
}

impl<const N: usize> Total<N> {
    const NONE: Self = Total { before: [0; N], now: [0; N], seen: 0 };

    fn note(&mut self, seen: u64, counts: [u64; N]) {
        if seen < self.seen {
            (self.before, self.now) = (self.all(), [0; N]);
        }
        self.seen = seen;
        // Threads keep counting meanwhile, and they count a kept root before its reason. So one of
        // these counts may be behind for a moment.
        self.now.iter_mut().zip(counts).for_each(|(now, count)| *now = (*now).max(count));
    }

    fn all(&self) -> [u64; N] {
        std::array::from_fn(|at| self.before[at] + self.now[at])
    }
}

impl<const N: usize> KeyTotals<N> {
    /// Totals of what `counts` reads.
    pub fn new(counts: fn(&KeyStats) -> [u64; N]) -> Self {
        KeyTotals { keys: BTreeMap::new(), counts }
    }

    /// Takes in the current counts of all keys. At most `keys_max` are reported separately: those
    /// that already are, and of the others the ones with the most roots.
    pub fn note(&mut self, all: &[KeyStats], keys_max: usize) {
        let mut new: BTreeMap<&str, &KeyStats> = BTreeMap::new();
        for stats in all {
            if let Some(key) = stats.key.as_deref() {
                new.insert(key, stats);
            }
        }
        for (key, total) in &mut self.keys {
            match new.remove(key.as_str()) {
                Some(stats) => total.note(stats.seen, (self.counts)(stats)),
                None => total.note(0, [0; N]),
            }
        }
        let mut new: Vec<(&str, &KeyStats)> = new.into_iter().collect();
        new.sort_by_key(|(_, stats)| std::cmp::Reverse(stats.seen));
        for (key, stats) in new.into_iter().take(keys_max.saturating_sub(self.keys.len())) {
            let mut total = Total::NONE;
            total.note(stats.seen, (self.counts)(stats));
            self.keys.insert(key.to_owned(), total);
        }
    }

    /// Counts a key among the others from now on.
    pub fn remove(&mut self, key: &str) {
        self.keys.remove(key);
    }

    /// The totals of the keys that are reported separately, in the order of their names.
    pub fn each(&self) -> impl Iterator<Item = (&str, [u64; N])> {
        self.keys.iter().map(|(key, total)| (key.as_str(), total.all()))
    }

    /// The sum over all other keys. Saturates: threads count meanwhile, so the part may briefly
    /// exceed the whole.
    pub fn others(&self, all: &[KeyStats]) -> [u64; N] {
        let mut left = [0; N];
        for stats in all {
            left.iter_mut().zip((self.counts)(stats)).for_each(|(left, count)| *left += count);
        }
        for total in self.keys.values() {
            left.iter_mut().zip(total.all()).for_each(|(left, count)| *left = left.saturating_sub(count));
        }
        left
    }
}
