//! Counts by key as they were reported to metric readers, made monotonic.
//!
//! OpenTelemetry's SDK computes differences between reports, which wrap around below 0. But a key's
//! counts decrease when its record is evicted and later recreated, and the counts of the remaining
//! keys decrease when one of them gets a series of its own. So a key with its own series keeps it,
//! with a running sum, and the other keys share the rest of the total.

use std::collections::BTreeMap;

use crate::steering::KeyStats;

/// The maximum number of keys with their own series. OpenTelemetry's readers accept 2,000 attribute
/// sets per instrument by default, and a key has up to six.
pub(super) const KEYS_MAX: usize = 300;

/// Decisions and their reasons, in the order of [`Roots`].
pub(super) const DECISIONS: [(&str, &str); 6] = [
    ("kept", "sampler"),
    ("kept", "override"),
    ("dropped", "sampler"),
    ("dropped", "cap"),
    ("dropped", "cap_empty"),
    ("dropped", "override"),
];

/// Counts by decision.
pub(super) type Roots = [u64; DECISIONS.len()];

fn roots(stats: &KeyStats) -> Roots {
    let by_override = stats.kept_by_override.min(stats.kept);
    [
        stats.kept - by_override,
        by_override,
        stats.dropped_by_sampler(),
        stats.dropped_by_cap,
        stats.dropped_by_empty_cap,
        stats.dropped_by_override,
    ]
}

/// A running sum over a counter that may restart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    /// The total before the last restart.
    before: u64,
    now: u64,
}

impl Sum {
    pub(super) fn note(&mut self, count: u64) {
        if count < self.now {
            self.before += self.now;
        }
        self.now = count;
    }

    pub(super) fn all(self) -> u64 {
        self.before + self.now
    }
}

/// A key with its own series.
#[derive(Debug, Default)]
struct Key {
    /// The counts from before the key's record was last evicted.
    before: Roots,
    now: Roots,
    seen: u64,
}

impl Key {
    fn note(&mut self, seen: u64, counts: Roots) {
        if seen < self.seen {
            self.before = self.all();
            self.now = Roots::default();
        }
        self.seen = seen;
        // Threads keep counting meanwhile, and they count a kept root before its reason. So one of
        // these counts may be behind for a moment.
        self.now.iter_mut().zip(counts).for_each(|(now, count)| *now = (*now).max(count));
    }

    fn all(&self) -> Roots {
        std::array::from_fn(|at| self.before[at] + self.now[at])
    }
}

/// The sums that were reported to readers.
#[derive(Debug, Default)]
pub(super) struct ReportedCounts {
    keys: BTreeMap<String, Key>,
    others: Roots,
}

impl ReportedCounts {
    /// Takes in the current counts of all keys.
    pub(super) fn note(&mut self, all: &[KeyStats]) {
        let mut by_name: BTreeMap<&str, &KeyStats> = BTreeMap::new();
        let mut left = Roots::default();
        for stats in all {
            left.iter_mut().zip(roots(stats)).for_each(|(left, count)| *left += count);
            if let Some(key) = stats.key.as_deref() {
                by_name.insert(key, stats);
            }
        }
        for (key, known) in &mut self.keys {
            match by_name.remove(key.as_str()) {
                Some(stats) => known.note(stats.seen, roots(stats)),
                None => known.note(0, Roots::default()),
            }
        }
        let mut new: Vec<&KeyStats> = by_name.into_values().collect();
        new.sort_by_key(|stats| std::cmp::Reverse(stats.seen));
        // Once all series are taken, they stay taken: a key never loses its own.
        let free = KEYS_MAX.saturating_sub(self.keys.len());
        for stats in new.iter().take(free) {
            let key = Key { now: roots(stats), seen: stats.seen, ..Key::default() };
            self.keys.insert(stats.key.clone().unwrap_or_default(), key);
        }
        for key in self.keys.values() {
            left.iter_mut().zip(key.all()).for_each(|(left, count)| *left = left.saturating_sub(count));
        }
        self.others.iter_mut().zip(left).for_each(|(others, left)| *others = (*others).max(left));
    }

    /// The counts of each key with its own series, then those of all other keys.
    pub(super) fn each(&self, mut f: impl FnMut(Option<&str>, &Roots)) {
        self.keys.iter().for_each(|(key, counts)| f(Some(key), &counts.all()));
        if self.others.iter().any(|count| *count > 0) {
            f(None, &self.others);
        }
    }
}
