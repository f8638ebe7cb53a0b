//! The settings of a spool.

use std::time::Duration;

use crate::series::Durability;

/// When appended data is synced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sync {
    /// Never. A crash of the machine may lose everything that the operating system has not written
    /// on its own.
    Never,
    /// When a segment is full. A crash of the machine may lose the last segment.
    #[default]
    Segment,
    /// On each append. A crash of the machine loses nothing that was appended.
    Append,
}

/// The reaction to an append at the size limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenSpoolFull {
    /// The new record is rejected.
    #[default]
    Refuse,
    /// The oldest segment is removed; its spans are counted in
    /// [`Counts::dropped`](crate::Counts::dropped).
    DropOldest,
}

/// The settings of a spool.
#[derive(Clone, Debug)]
#[must_use]
pub struct Settings {
    pub(crate) segment_bytes: u64,
    pub(crate) max_bytes: u64,
    pub(crate) max_age: Duration,
    pub(crate) dead_letter_bytes: Option<u64>,
    pub(crate) when_full: WhenSpoolFull,
    sync: Sync,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            segment_bytes: 8 << 20,
            max_bytes: 1 << 30,
            max_age: Duration::from_secs(24 * 3600),
            dead_letter_bytes: None,
            when_full: WhenSpoolFull::default(),
            sync: Sync::default(),
        }
    }
}

impl Settings {
    /// Sets the size at which a new segment is begun; 8 MiB by default. Space is freed in whole
    /// segments.
    pub fn with_segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Limits the total size of the waiting segments; 1 GiB by default. Dead letters share it.
    pub fn with_max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Limits the age of a record; a day by default. Older records are counted in
    /// [`Counts::expired`](crate::Counts::expired).
    pub fn with_max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Limits the total size of dead letters. By default they use what waiting records leave of
    /// [`with_max_bytes`](Self::with_max_bytes). At the limit, and if waiting records need the
    /// space, their oldest segment is removed; its spans are counted in
    /// [`Ledger::thrown_away`](crate::Ledger::thrown_away).
    pub fn with_dead_letter_bytes(mut self, bytes: u64) -> Self {
        self.dead_letter_bytes = Some(bytes);
        self
    }

    /// Sets the reaction to an append at the size limit.
    pub fn with_when_full(mut self, when_full: WhenSpoolFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Sets when appended data is synced to the disk.
    pub fn with_sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    pub(crate) fn durability(&self) -> Durability {
        Durability { each_append: self.sync == Sync::Append, each_segment: self.sync != Sync::Never }
    }
}
