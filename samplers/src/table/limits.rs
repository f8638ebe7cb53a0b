//! The bounds of a record table.

use crate::nanos::Nanos;

/// The bounds of a record table. All memory is taken when the sampler is made: for each key 128
/// bytes for its record, 8 to 16 in the index, and 32 for each shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    keys: u32,
    idle: Nanos,
    shards: u32,
}

/// 16 million keys; an index beyond that would not fit its 32-bit tags well.
const KEYS_MAX: u32 = 1 << 24;
const SHARDS_MAX: u32 = 256;

impl Default for Limits {
    /// 10,000 keys; a minute; 16 shards.
    fn default() -> Self {
        Limits { keys: 10_000, idle: Nanos::from_secs(60), shards: 16 }
    }
}

impl Limits {
    /// For a replay in one thread: as the default, with one shard, which makes a sampler cheaper to
    /// build.
    pub fn single_threaded() -> Self {
        Self::default().with_shards(1)
    }

    /// The number of keys that have a record of their own, at most 2^24; with 0 all share the
    /// overflow record.
    #[must_use]
    pub fn with_keys(self, keys: u32) -> Self {
        Limits { keys: keys.min(KEYS_MAX), ..self }
    }

    /// The time for which a key must have been idle before it may lose its record: at least a
    /// nanosecond. The shorter, the sooner new keys find room, and the more of them a flood of
    /// unique names gets kept.
    #[must_use]
    pub fn with_idle(self, idle: Nanos) -> Self {
        Limits { idle: idle.max(Nanos::new(1)), ..self }
    }

    /// The number of parts into which the tallies are split, from 1 to 256, rounded up to a power
    /// of two. The first half of them belong to one thread each, the fastest way to count; all
    /// other threads share the rest, and disturb each other the less the more there are. Any number
    /// is correct.
    #[must_use]
    pub fn with_shards(self, shards: u32) -> Self {
        Limits { shards: shards.clamp(1, SHARDS_MAX).next_power_of_two(), ..self }
    }

    /// The number of keys that have a record of their own.
    pub fn keys(&self) -> u32 {
        self.keys
    }

    /// The time for which a key must have been idle before it may lose its record.
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

    /// The number of keys that a sweep evicts, at most: a sixteenth, so that most keep their
    /// counts, and few sweeps serve many new keys.
    pub(crate) fn leaving_max(&self) -> usize {
        self.keys.div_ceil(16) as usize
    }
}
