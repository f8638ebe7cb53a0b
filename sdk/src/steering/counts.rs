//! Counts by key, through changes of the sampler.
//!
//! A sampler of another kind has a table of its own. The one before is kept until no thread can be
//! counting in it any more; then its counts are added to those that are carried on.

use std::collections::BTreeMap;
use std::sync::Arc;

use astracer_samplers::{Counts, KeyState, Nanos, Reason, Sampler, Snapshot};

/// Keys whose counts are carried on by name; the others' are added up.
const CARRIED_MAX: usize = 10_000;

/// The counts of a key since the start, and its state.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KeyStats {
    /// The key; of one longer than 88 bytes the beginning and an ellipsis. `None` for keys without
    /// a record, together: those that found no room and those that gave theirs up.
    pub key: Option<String>,
    /// Local roots that the sampler was asked about.
    pub seen: u64,
    /// Those that were kept.
    pub kept: u64,
    /// Those that the sampler would have kept and the cap dropped, by a raised threshold.
    pub dropped_by_cap: u64,
    /// Those that the sampler would have kept and the cap dropped, since it was empty.
    pub dropped_by_empty_cap: u64,
    /// Those that the sampler would have kept and an override dropped.
    pub dropped_by_override: u64,
    /// Those that the sampler would have dropped and an override wanted kept.
    pub kept_by_override: u64,
    /// The probability with which a root would be kept now; `None` if that is not by chance.
    pub probability: Option<f64>,
    /// The tokens that the key's bucket has now, if the sampler has buckets.
    pub tokens: Option<f64>,
}

impl KeyStats {
    /// Those that were dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.seen.saturating_sub(self.kept)
    }

    /// Those that the sampler itself dropped.
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

/// Counts of samplers that are no longer at work.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    retired: Vec<Arc<Sampler>>,
    keys: BTreeMap<String, KeyStats>,
    others: KeyStats,
}

impl Carried {
    pub(super) fn retire(&mut self, sampler: Arc<Sampler>) {
        if sampler.snapshot().is_none() {
            return;
        }
        // As many as threads have copies of, at most: the others are carried on at the next change
        // or question.
        self.retired.push(sampler);
    }

    /// Carries the counts of samplers on in which nobody can count any more. A thread may hold the
    /// last reference to the rules before these, whose sampler counts in the same table: it is not
    /// enough that nobody holds these.
    pub(super) fn fold(&mut self) {
        for mut sampler in std::mem::take(&mut self.retired) {
            if Arc::get_mut(&mut sampler).is_some_and(Sampler::is_alone) {
                self.carry(&sampler);
            } else {
                self.retired.push(sampler);
            }
        }
    }

    fn carry(&mut self, sampler: &Sampler) {
        let Some(snapshot) = sampler.snapshot() else { return };
        let Carried { keys, others, .. } = self;
        add(&snapshot, keys, others, CARRIED_MAX);
    }
}

/// Adds a table's counts; those of keys that would be more than `keys_max` to `others`.
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

/// All counts so far.
pub(super) fn by_key(carried: &Carried, sampler: &Sampler, now: Nanos) -> Vec<KeyStats> {
    let (mut keys, mut others) = (carried.keys.clone(), carried.others.clone());
    for snapshot in carried.retired.iter().filter_map(|retired| retired.snapshot()) {
        add(&snapshot, &mut keys, &mut others, CARRIED_MAX);
    }
    if let Some(snapshot) = sampler.snapshot() {
        // The keys of a table are within its limit, however many are carried.
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

    /// A thread decides by the sampler that it read before two changes: of parameters, then of the
    /// kind. The first two samplers count in one table, and only the second was retired.
    #[test]
    fn a_call_by_the_sampler_before_the_last_is_counted() {
        let config = |text: &str| text.parse::<Config>().unwrap();
        let (cap, now) = (Cap::default(), Nanos::ZERO);
        let read = Sampler::new(&config("bump:lambda=1"));
        let next = read.reconfigured(&config("bump:lambda=9"), &cap, now).unwrap();
        let last = next.replaced(&config("bucket:capacity=1,rate=1"), &cap, now);
        let decide = || assert!(read.decide(&Request::new("a", Randomness::MIN, now)).threshold.is_some());
        let mut carried = Carried::default();
        let seen = |carried: &Carried| by_key(carried, &last, now).iter().map(|key| key.seen).sum::<u64>();

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
