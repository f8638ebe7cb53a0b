//! The counts by key that readers were told of, which never fall.
//!
//! OpenTelemetry's SDK takes differences of what it is told, and below 0 they wrap. But the counts
//! of a key fall when it gives its record up and has a new one, and those of the others fall when
//! one of them is told apart. So a key that is told apart stays so, with a sum of its own, and the
//! others have what is left of all.

use std::collections::BTreeMap;

use crate::steering::KeyStats;

/// The keys that are told apart: OpenTelemetry's readers take 2,000 sets of attributes of an
/// instrument by default, and there are up to six for a key.
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

/// A count that goes on where it was when it begins again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    /// Of all times before.
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

/// A key that is told apart.
#[derive(Debug, Default)]
struct Key {
    /// Its counts before it gave a record up.
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
        // Threads count meanwhile, and what is kept before its reason: one of these may be behind
        // for a moment.
        self.now.iter_mut().zip(counts).for_each(|(now, count)| *now = (*now).max(count));
    }

    fn all(&self) -> Roots {
        std::array::from_fn(|at| self.before[at] + self.now[at])
    }
}

/// The sums that readers were told of.
#[derive(Debug, Default)]
pub(super) struct Told {
    keys: BTreeMap<String, Key>,
    others: Roots,
}

impl Told {
    /// Notes the counts of all keys.
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
        // Where none is free, it is so for good: nobody leaves the others.
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

    /// The counts of each key that is told apart, and those of all others.
    pub(super) fn each(&self, mut f: impl FnMut(Option<&str>, &Roots)) {
        self.keys.iter().for_each(|(key, counts)| f(Some(key), &counts.all()));
        if self.others.iter().any(|count| *count > 0) {
            f(None, &self.others);
        }
    }
}
