//! The keys of kept traces, for the cap on each key's exported bytes. A trace is decided when it
//! begins, but its bytes are known only when it is exported.
//!
//! Written only while such a cap is in effect, and only for kept traces: about 80 bytes each. A key
//! is stored as its hash.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap, RandomState};
use std::hash::BuildHasher as _;

use opentelemetry::TraceId;

use astracer_spans::sync::{Mutex, lock};

const SHARDS: usize = 8;
/// The number of traces remembered. With one small span each, a full queue of default size holds
/// slightly more.
const TRACES_MAX: usize = 1 << 17;

pub(crate) type KeyHash = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOf {
    Key(KeyHash),
    /// No key was computed: a parent decided, or no such cap was in effect when the trace began.
    NoKey,
    /// The trace began so long ago that its key was evicted.
    Forgotten,
}

#[derive(Debug, Default)]
pub(crate) struct KeptKeys {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    /// `None`: covered by no key's allowance.
    traces: HashMap<TraceId, Option<KeyHash>>,
    /// Oldest first.
    order: VecDeque<TraceId>,
    /// Whether a trace with a key was evicted. Evicting traces without a key does not set this,
    /// since an unknown trace would then be taken for one with a forgotten key.
    has_forgotten: bool,
}

impl KeptKeys {
    fn shard(&self, trace_id: TraceId) -> &Mutex<Shard> {
        &self.shards[trace_id.to_bytes()[15] as usize % SHARDS]
    }

    /// Stores the key by which a trace was counted. A later key replaces an earlier one. `None`: no
    /// key's allowance covers the trace, unless it already has a key: its first root may be this
    /// service's.
    pub(crate) fn note(&self, trace_id: TraceId, key: Option<&str>) {
        let hash = key.map(|key| self.hasher.hash_one(key));
        lock(self.shard(trace_id)).insert(trace_id, hash);
    }

    pub(crate) fn find(&self, trace_id: TraceId) -> KeyOf {
        let shard = lock(self.shard(trace_id));
        match shard.traces.get(&trace_id) {
            Some(Some(hash)) => KeyOf::Key(*hash),
            None if shard.has_forgotten => KeyOf::Forgotten,
            None | Some(None) => KeyOf::NoKey,
        }
    }
}

impl Shard {
    fn insert(&mut self, trace_id: TraceId, hash: Option<KeyHash>) {
        match self.traces.entry(trace_id) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                *known = hash.or(*known);
                return;
            }
            Entry::Vacant(place) => place.insert(hash),
        };
        self.order.push_back(trace_id);
        if self.order.len() > TRACES_MAX / SHARDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.has_forgotten |= self.traces.remove(&oldest).flatten().is_some();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The bound holds, and a trace with an evicted key is told apart from one without a key.
    #[test]
    fn the_oldest_traces_are_forgotten() {
        let keys = KeptKeys::default();
        let id = |number: usize| TraceId::from(number as u128);
        assert_eq!(keys.find(id(0)), KeyOf::NoKey);
        keys.note(id(0), Some("a"));
        keys.note(id(8), None);
        (2..TRACES_MAX / SHARDS).for_each(|number| keys.note(id(SHARDS * number), Some("b")));
        assert!(matches!(keys.find(id(0)), KeyOf::Key(_)));
        keys.note(id(SHARDS * TRACES_MAX), Some("a"));
        assert_eq!((keys.find(id(0)), keys.find(id(8))), (KeyOf::Forgotten, KeyOf::NoKey));
        // In another shard.
        assert_eq!(keys.find(id(1)), KeyOf::NoKey);
        keys.note(id(SHARDS * TRACES_MAX), Some("b"));
        keys.note(id(SHARDS * TRACES_MAX), None);
        assert_eq!(keys.find(id(SHARDS * TRACES_MAX)), keys.find(id(2 * SHARDS)));
        assert!(keys.shards.iter().all(|shard| lock(shard).traces.len() <= TRACES_MAX / SHARDS));
    }

    /// A service whose callers decide has no keys to evict.
    #[test]
    fn a_trace_without_a_key_is_not_a_forgotten_one() {
        let keys = KeptKeys::default();
        let id = |number: usize| TraceId::from((SHARDS * number) as u128);
        (0..=TRACES_MAX / SHARDS).for_each(|number| keys.note(id(number), None));
        assert_eq!(keys.find(id(0)), KeyOf::NoKey);
        assert_eq!(lock(&keys.shards[0]).traces.len(), TRACES_MAX / SHARDS);
    }
}
