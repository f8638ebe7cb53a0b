//! Simulates which record each call counts in, for recordings with more keys than a sampler's table
//! holds.
//!
//! It follows the steps of the table itself, in a single thread. A new key takes a free record. If
//! there is none, the keys that have been idle for longest are evicted: at most a sixteenth of all
//! keys, at most once per eighth of the idle time required, and their records become free only at
//! the next such sweep. All keys that do not fit share the overflow record, so 90,000 keys in it
//! are sampled like one busy key.

use astracer_samplers::Limits;

use crate::workload::Workload;

/// A sweep evicts at most one in [`LEAVING`] records, and there are at most [`SWEEPS_PER_IDLE`]
/// sweeps within the required idle time.
const LEAVING: u32 = 16;
const SWEEPS_PER_IDLE: u64 = 8;
const NONE: u32 = u32::MAX;

/// The records of a table.
#[derive(Debug)]
pub(crate) struct Records {
    /// `None` if all keys fit: a key's record then has the key's own number.
    table: Option<Table>,
    len: usize,
}

#[derive(Debug)]
struct Table {
    limits: Limits,
    /// For each key, its record, or [`NONE`].
    records: Vec<u32>,
    /// For each record, its key, or [`NONE`].
    keys: Vec<u32>,
    free: Vec<u32>,
    resting: Vec<u32>,
    next_sweep_ns: u64,
}

/// The record of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) record: usize,
    /// Whether the key got the record with this call, so that earlier counts in it belong to
    /// another key.
    pub(crate) is_new: bool,
}

impl Records {
    /// The records of a service with default limits, which are also those of replays.
    pub(crate) fn new(workload: &Workload) -> Self {
        Self::within(workload.keys().len(), Limits::default())
    }

    fn within(keys: usize, limits: Limits) -> Self {
        let held = limits.keys();
        if keys <= held as usize {
            return Self { table: None, len: keys };
        }
        let table = Table {
            limits,
            records: vec![NONE; keys],
            keys: vec![NONE; held as usize],
            free: (0..held).rev().collect(),
            resting: Vec::new(),
            next_sweep_ns: 0,
        };
        Self { table: Some(table), len: held as usize + 1 }
    }

    /// The number of records; [`Records::find`] returns indices below it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether each key has its own record.
    pub(crate) fn has_all(&self) -> bool {
        self.table.is_none()
    }

    /// Whether this is the record shared by all keys that do not fit.
    pub(crate) fn is_overflow(&self, record: usize) -> bool {
        self.table.is_some() && record + 1 == self.len
    }

    /// The record of a key's call at `at_ns`, which must not decrease from call to call. `idle_ns`
    /// returns for how long a record has been equivalent to a fresh one.
    pub(crate) fn find(&mut self, key: u32, at_ns: u64, idle_ns: impl Fn(usize) -> u64) -> Found {
        let Some(table) = &mut self.table else { return Found { record: key as usize, is_new: false } };
        let known = table.records[key as usize];
        if known != NONE {
            return Found { record: known as usize, is_new: false };
        }
        if table.free.is_empty() && at_ns >= table.next_sweep_ns {
            table.sweep(at_ns, idle_ns);
        }
        match table.free.pop() {
            Some(record) => {
                table.records[key as usize] = record;
                table.keys[record as usize] = key;
                Found { record: record as usize, is_new: true }
            }
            None => Found { record: self.len - 1, is_new: false },
        }
    }
}

impl Table {
    fn sweep(&mut self, at_ns: u64, idle_ns: impl Fn(usize) -> u64) {
        let idle_min = self.limits.idle().get();
        self.next_sweep_ns = at_ns.saturating_add((idle_min / SWEEPS_PER_IDLE).max(1));
        self.free.append(&mut self.resting);
        let taken = (0u32..).zip(&self.keys).filter(|(_, key)| **key != NONE);
        let mut idle: Vec<(u64, u32)> = taken
            .map(|(record, _)| (idle_ns(record as usize), record))
            .filter(|&(idle_ns, _)| idle_ns >= idle_min)
            .collect();
        idle.sort_unstable_by_key(|&(idle_ns, record)| (std::cmp::Reverse(idle_ns), record));
        idle.truncate(self.limits.keys().div_ceil(LEAVING) as usize);
        for (_, record) in idle {
            let key = std::mem::replace(&mut self.keys[record as usize], NONE);
            self.records[key as usize] = NONE;
            self.resting.push(record);
        }
    }
}

/// A warning if some calls do not fit in a table with default limits.
pub fn crowded(workload: &Workload) -> Option<String> {
    let mut records = Records::new(workload);
    let mut last_ns = vec![0; records.len()];
    let mut without_room = 0u64;
    for arrival in workload.arrivals() {
        let found =
            records.find(arrival.key, arrival.at_ns, |record| arrival.at_ns.saturating_sub(last_ns[record]));
        last_ns[found.record] = arrival.at_ns;
        without_room += u64::from(records.is_overflow(found.record));
    }
    (without_room > 0).then(|| {
        format!(
            "{} keys exceed the sampler's table, which holds {} at a time: {:.1} % of the traces share one overflow record. \
             Fold ids in names (--fold), or use a key with fewer values; a service can also enlarge its table \
             (with_sampler_limits), which replays do not model",
            workload.keys().len(),
            Limits::default().keys(),
            without_room as f64 / workload.arrivals().len() as f64 * 1e2
        )
    })
}

#[cfg(test)]
mod tests {
    use astracer_samplers::{Config, Nanos, Randomness, Reason, Request, Sampler};

    use super::*;
    use crate::random::Random;
    use crate::testing::{many_names, synthetic};

    /// Compares with the sampler itself: its reasons show which calls did not fit, and its
    /// probabilities show their counts.
    #[test]
    fn calls_find_the_records_that_the_sampler_gives_them() {
        const KEYS: u32 = 300;
        const HALF_LIFE_NS: f64 = 50e6;
        let limits = Limits::single_threaded().with_keys(64).with_idle(Nanos::from_secs(2));
        let config: Config =
            "bump:lambda=1,min=0,count=decaying,tau=50ms,exponent=1".parse().expect("a sampler");
        let sampler = Sampler::with_limits(&config, limits);
        let mut records = Records::within(KEYS as usize, limits);
        // The count after the latest call of each record, and the time of that call.
        let mut states = vec![(0.0f64, 0u64); records.len()];
        let mut random = Random::new(3, 0);
        let (mut at_ns, mut overflown, mut renewed) = (1_000_000_000, 0, 0);
        for call in 0..20_000u32 {
            at_ns += (random.uniform() * 10e6) as u64;
            // Keys come in waves: those of a second ago are idle, and a few of all keys come now
            // and then.
            let wave = call / 400 * 20;
            let key =
                if random.uniform() < 0.9 { wave + random.below(60) } else { random.below(KEYS) } % KEYS;
            let name = format!("key {key}");
            let decision = sampler.decide(&Request::new(&name, Randomness::MAX, Nanos::new(at_ns)));
            let decayed = |record: usize| {
                let (count, last_ns) = states[record];
                count.log2() - (at_ns - last_ns) as f64 / HALF_LIFE_NS
            };
            // The sampler's own bound: it treats a count of 2^-24 as 0.
            let found =
                records.find(key, at_ns, |record| ((-24.0 - decayed(record)).max(0.0) * HALF_LIFE_NS) as u64);
            let is_overflow = records.is_overflow(found.record);
            assert_eq!(is_overflow, decision.reason == Reason::Overflow, "call {call} of {name}");
            let count = if found.is_new { 0.0 } else { decayed(found.record).exp2() };
            let expected = if count < 1e-6 { 1.0 } else { 1.0 - (-1.0 / count).exp() };
            let probability = decision.threshold.expect("by chance").probability().get();
            assert!((probability / expected - 1.0).abs() < 0.02, "call {call}: {probability}, {expected}");
            states[found.record] = (count + 1.0, at_ns);
            overflown += u32::from(is_overflow);
            renewed += u32::from(found.is_new);
        }
        assert!(overflown > 500 && renewed > 64 + 100, "{overflown} without room, {renewed} records given");
    }

    #[test]
    fn only_a_crowded_table_is_warned_of() {
        assert_eq!(crowded(&synthetic(500, 1)), None);
        assert_eq!(crowded(&many_names(10_000, 10_000, 1)), None);
        let warning = crowded(&many_names(12_000, 12_000, 1)).expect("2,000 without room");
        assert!(warning.starts_with("12000 keys") && warning.contains("16.7 % of the traces"), "{warning}");
    }
}
