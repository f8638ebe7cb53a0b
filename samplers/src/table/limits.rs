//! The limits of a record table.

use crate::nanos::Nanos;

/// The limits of a record table. Its memory is allocated when the sampler is built: for each key
/// 128 bytes for the record, 32 to 64 in the index, and 32 for each shard. A cap or an override
/// adds 64 bytes for each key: at once if the cap is by key, otherwise when it first changes a
/// decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    keys: u32,
    idle: Nanos,
    shards: u32,
}

/// 16 million keys: with more, the index's 32-bit tags would collide too often.
const KEYS_MAX: u32 = 1 << 24;
const SHARDS_MAX: u32 = 256;

impl Default for Limits {
    /// 10,000 keys, an idle time of a minute, and 16 shards.
    fn default() -> Self {
        Limits { keys: 10_000, idle: Nanos::from_secs(60), shards: 16 }
    }
}

impl Limits {
    /// For a replay in one thread: the default with one shard, which makes a sampler cheaper to
    /// build.
    pub fn single_threaded() -> Self {
        Self::default().with_shards(1)
    }

    /// The number of keys with a record of their own, at most 2^24; with 0, all keys share the
    /// overflow record.
    #[must_use]
    pub fn with_keys(self, keys: u32) -> Self {
        Limits { keys: keys.min(KEYS_MAX), ..self }
    }

    /// The time for which a key must be idle before it may be evicted, at least a nanosecond. With
    /// a shorter time, new keys get a record sooner, but a flood of unique names gets more calls
    /// kept.
    #[must_use]
    pub fn with_idle(self, idle: Nanos) -> Self {
        Limits { idle: idle.max(Nanos::new(1)), ..self }
    }

    /// The number of parts into which the tallies are split: from 1 to 256, rounded up to a power
    /// of two. The first half belong to one thread each, which is the fastest way to count. All
    /// other threads share the rest, and contend less the more there are. Any number is correct.
    #[must_use]
    pub fn with_shards(self, shards: u32) -> Self {
        Limits { shards: shards.clamp(1, SHARDS_MAX).next_power_of_two(), ..self }
    }

    /// The number of keys with a record of their own.
    pub fn keys(&self) -> u32 {
        self.keys
    }

    /// The time for which a key must be idle before it may be evicted.
    pub fn idle(&self) -> Nanos {
        self.idle
    }

    /// The number of parts into which the tallies are split.
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// The time between two sweeps of a full table.
    pub(crate) fn sweep_interval(&self) -> Nanos {
        Nanos::new((self.idle.get() / 8).max(1))
    }

    /// The greatest number of keys that one sweep evicts: a sixteenth, so that most keys keep their
    /// counts while few sweeps serve many new keys.
    pub(crate) fn leaving_max(&self) -> usize {
        self.keys.div_ceil(16) as usize
    }
}
