//! The calls that a sampler saw, kept and dropped, by key.

use super::extras::Overruled;
use super::tally::Tally;
use crate::decision::Reason;
use crate::probability::Probability;

/// A sampler's counts. Their sum is the number of its decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Keys that have a record, in the order of their names.
    pub keys: Vec<KeyCounts>,
    /// Keys that found no room, together.
    pub overflow: Counts,
    /// Keys that had a record once and gave it up for others, together. One that comes back begins
    /// at zero.
    pub evicted: Counts,
    /// The number of times that a key gave up its record.
    pub keys_evicted: u64,
    /// The number of keys that can have a record.
    pub keys_max: u32,
}

/// The counts of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyCounts {
    /// The key; of one longer than 88 bytes the beginning, and an ellipsis.
    pub key: String,
    /// Its counts.
    pub counts: Counts,
}

/// Calls, kept and dropped, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    reasons: [Reason; 2],
    tally: Tally,
    overruled: Overruled,
}

/// The state of one key at some time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KeyState {
    /// The key, as in [`KeyCounts`].
    pub key: String,
    /// The probability with which a call would be kept; `None` if that is not by chance.
    pub probability: Option<Probability>,
    /// The tokens in its bucket, if it has one.
    pub tokens: Option<f64>,
}

impl Counts {
    pub(super) fn new(reasons: [Reason; 2], tally: Tally, overruled: Overruled) -> Self {
        Counts { reasons, tally, overruled }
    }

    /// Calls.
    pub fn seen(&self) -> u64 {
        self.tally.0.iter().flatten().sum()
    }

    /// Calls that were kept.
    pub fn kept(&self) -> u64 {
        let own: u64 = self.tally.0.iter().map(|[_, kept]| kept).sum();
        let Overruled { raised, empty, forced_kept, forced_dropped } = self.overruled;
        // During calls one count may be ahead of another.
        (own + forced_kept).saturating_sub(raised + empty + forced_dropped)
    }

    /// Calls that were dropped.
    pub fn dropped(&self) -> u64 {
        self.seen().saturating_sub(self.kept())
    }

    /// (dropped, kept) for this reason.
    fn of(&self, reason: Reason) -> [u64; 2] {
        let mut sum = [0, 0];
        for (known, [dropped, kept]) in self.reasons.iter().zip(self.tally.0) {
            if *known == reason {
                sum = [sum[0] + dropped, sum[1] + kept];
            }
        }
        sum
    }

    /// Calls that the sampler would have kept, and the cap dropped: by a raised threshold
    /// ([`Reason::Cap`]) and because it was empty ([`Reason::CapEmpty`]).
    pub fn capped(&self) -> u64 {
        self.overruled.raised + self.overruled.empty
    }

    /// Calls that the sampler would have dropped, and an override wanted kept.
    pub fn kept_by_override(&self) -> u64 {
        self.overruled.forced_kept
    }

    /// Calls that the sampler would have kept, and an override dropped.
    pub fn dropped_by_override(&self) -> u64 {
        self.overruled.forced_dropped
    }

    /// Calls that the sampler kept for this reason, before cap and overrides.
    pub fn kept_by(&self, reason: Reason) -> u64 {
        self.of(reason)[1]
    }

    /// Calls that were dropped for this reason: the sampler's before overrides, the cap's, or an
    /// override.
    pub fn dropped_by(&self, reason: Reason) -> u64 {
        match reason {
            Reason::Cap => self.overruled.raised,
            Reason::CapEmpty => self.overruled.empty,
            Reason::Override => self.overruled.forced_dropped,
            _ => self.of(reason)[0],
        }
    }
}
