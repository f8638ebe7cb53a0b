//! Counts by key, across changes of the sampler.
//!
//! A sampler of another kind has a table of its own. The previous sampler is kept until no thread
//! can count in its table any more; then its counts are added to the carried ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use astracer_samplers::{Counts, KeyState, Nanos, Reason, Sampler, Snapshot};

/// The maximum number of keys whose counts are carried by name; those of other keys are added up.
const CARRIED_MAX: usize = 10_000;

/// The counts of a key since the start, and its state.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KeyStats {
    /// The key; one longer than 88 bytes is cut and ends with an ellipsis. `None` for all keys
    /// without a record together: those that found the table full, and those whose records were
    /// evicted.
    pub key: Option<String>,
    /// Local roots about which the sampler was asked.
    pub seen: u64,
    /// Roots that were kept when they began.
    pub kept: u64,
    /// Roots that were dropped when they began, and whose trace was kept late: by its stratum, a
    /// policy or a request.
    pub kept_late: u64,
    /// Roots that the sampler would have kept, and that the cap dropped by raising the threshold.
    pub dropped_by_cap: u64,
    /// Roots that the sampler would have kept, and that the cap dropped because it was used up.
    pub dropped_by_empty_cap: u64,
    /// Roots that the sampler would have kept, and that an override dropped.
    pub dropped_by_override: u64,
    /// Roots that the sampler would have dropped, and that an override selected.
    pub kept_by_override: u64,
    /// The probability of keeping a root now; `None` if the decision is not probabilistic.
    pub probability: Option<f64>,
    /// The tokens now in the key's bucket, if the sampler has buckets.
    pub tokens: Option<f64>,
}

impl KeyStats {
    /// Roots that were dropped when they began, for any reason.
    pub fn dropped(&self) -> u64 {
        self.seen.saturating_sub(self.kept)
    }

    /// Roots that the sampler itself dropped.
    pub fn dropped_by_sampler(&self) -> u64 {
        let others = self.dropped_by_cap + self.dropped_by_empty_cap + self.dropped_by_override;
        self.dropped().saturating_sub(others)
    }

    fn add(&mut self, counts: &Counts) {
        self.seen += counts.seen();
        self.kept += counts.kept();
        self.dropped_by_cap += counts.dropped_by(Reason::Cap);
        self.dropped_by_empty_cap += counts.dropped_by(Reason::CapEmpty);
        self.dropped_by_override += counts.dropped_by_override();
        self.kept_by_override += counts.kept_by_override();
    }
}

#[derive(Debug, Default)]
pub(crate) struct CarriedCounts {
    retired: Vec<Arc<Sampler>>,
    keys: BTreeMap<String, KeyStats>,
    others: KeyStats,
}

impl CarriedCounts {
    pub(super) fn retire(&mut self, sampler: Arc<Sampler>) {
        if sampler.snapshot().is_none() {
            return;
        }
        // At most as many samplers stay here as threads hold copies of. The others are folded at
        // the next change or query.
        self.retired.push(sampler);
    }

    /// Folds the counts of those samplers in which no thread can count any more. Being the last
    /// reference to these rules is not enough: a thread may still hold the rules before them, whose
    /// sampler counts in the same table.
    pub(super) fn fold(&mut self) {
        for mut sampler in std::mem::take(&mut self.retired) {
            if !Arc::get_mut(&mut sampler).is_some_and(Sampler::is_alone) {
                self.retired.push(sampler);
            } else if let Some(snapshot) = sampler.snapshot() {
                add(&snapshot, &mut self.keys, &mut self.others, CARRIED_MAX);
            }
        }
    }
}

/// Adds a table's counts. Keys that would exceed `keys_max` are added to `others`.
fn add(snapshot: &Snapshot, keys: &mut BTreeMap<String, KeyStats>, others: &mut KeyStats, keys_max: usize) {
    for key in &snapshot.keys {
        if keys.len() >= keys_max && !keys.contains_key(&key.key) {
            others.add(&key.counts);
            continue;
        }
        let stats = keys.entry(key.key.clone()).or_default();
        stats.key = Some(key.key.clone());
        stats.add(&key.counts);
    }
    others.add(&snapshot.overflow);
    others.add(&snapshot.evicted);
}

pub(super) fn by_key(carried: &CarriedCounts, sampler: &Sampler, now: Nanos) -> Vec<KeyStats> {
    let (mut keys, mut others) = (carried.keys.clone(), carried.others.clone());
    for snapshot in carried.retired.iter().filter_map(|retired| retired.snapshot()) {
        add(&snapshot, &mut keys, &mut others, CARRIED_MAX);
    }
    if let Some(snapshot) = sampler.snapshot() {
        // No limit here: a table limits its own keys, however many are carried.
        add(&snapshot, &mut keys, &mut others, usize::MAX);
    }
    for KeyState { key, probability, tokens, .. } in sampler.states(now).unwrap_or_default() {
        if let Some(stats) = keys.get_mut(&key) {
            stats.probability = probability.map(|probability| probability.get());
            stats.tokens = tokens;
        }
    }
    let mut all: Vec<KeyStats> = keys.into_values().collect();
    if others.seen > 0 {
        all.push(others);
    }
    all
}

#[cfg(all(test, not(loom)))]
mod tests {
    use astracer_samplers::{Cap, Config, Randomness, Request};

    use super::*;

    /// A thread decides with a sampler that it read before two changes, the first of the parameters
    /// and the second of the kind. The first two samplers count in one table, and only the second
    /// one was retired.
    #[test]
    fn a_call_by_the_sampler_before_the_last_is_counted() {
        let config = |text: &str| text.parse::<Config>().unwrap();
        let (cap, now) = (Cap::default(), Nanos::ZERO);
        let read = Sampler::new(&config("bump:lambda=1"));
        let next = read.reconfigured(&config("bump:lambda=9"), &cap, now).unwrap();
        let last = next.replaced(&config("bucket:capacity=1,rate=1"), &cap, now);
        let decide = || assert!(read.decide(&Request::new("a", Randomness::MIN, now)).threshold.is_some());
        let mut carried = CarriedCounts::default();
        let seen =
            |carried: &CarriedCounts| by_key(carried, &last, now).iter().map(|key| key.seen).sum::<u64>();

        decide();
        carried.retire(Arc::new(next));
        carried.fold();
        decide();
        assert_eq!(seen(&carried), 2);
        drop(read);
        carried.fold();
        assert_eq!((seen(&carried), carried.retired.len()), (2, 0));
    }
}
