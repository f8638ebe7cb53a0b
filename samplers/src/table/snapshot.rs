//! Counts of the calls that a sampler saw, kept and dropped, by key.

use super::extras::Overruled;
use super::tally::Tally;
use crate::decision::Reason;
use crate::probability::Probability;

/// A sampler's counts. Their total is the number of its decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Keys that have a record, in the order of their names.
    pub keys: Vec<KeyCounts>,
    /// Keys without a record, together.
    pub overflow: Counts,
    /// Evicted keys, together. A key that comes back starts at zero.
    pub evicted: Counts,
    /// The number of evictions.
    pub keys_evicted: u64,
    /// The greatest number of keys with a record.
    pub keys_max: u32,
}

/// The counts of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyCounts {
    /// The key; of one longer than 88 bytes the beginning, and an ellipsis
    /// ([`shown_key`](crate::shown_key)).
    pub key: String,
    /// Its counts.
    pub counts: Counts,
}

/// Numbers of calls, kept and dropped, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    reasons: [Reason; 2],
    tally: Tally,
    overruled: Overruled,
}

/// The state of one key at a point in time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KeyState {
    /// The key, as in [`KeyCounts`].
    pub key: String,
    /// The probability with which a call would be kept; `None` if decisions are not made by chance.
    pub probability: Option<Probability>,
    /// The tokens in its bucket, if it has one.
    pub tokens: Option<f64>,
}

impl Counts {
    pub(super) fn new(reasons: [Reason; 2], tally: Tally, overruled: Overruled) -> Self {
        Counts { reasons, tally, overruled }
    }

    /// The number of calls.
    pub fn seen(&self) -> u64 {
        self.tally.0.iter().flatten().sum()
    }

    /// The number of calls that were kept.
    pub fn kept(&self) -> u64 {
        let own: u64 = self.tally.0.iter().map(|[_, kept]| kept).sum();
        let Overruled { raised, empty, forced_kept, forced_dropped } = self.overruled;
        // While calls are in progress, one count may be ahead of another.
        (own + forced_kept).saturating_sub(raised + empty + forced_dropped)
    }

    /// The number of calls that were dropped.
    pub fn dropped(&self) -> u64 {
        self.seen().saturating_sub(self.kept())
    }

    /// The calls dropped and kept for this reason.
    fn of(&self, reason: Reason) -> [u64; 2] {
        let mut sum = [0, 0];
        for (known, [dropped, kept]) in self.reasons.iter().zip(self.tally.0) {
            if *known == reason {
                sum = [sum[0] + dropped, sum[1] + kept];
            }
        }
        sum
    }

    /// Calls that the sampler or an override kept and the cap dropped: by a raised threshold
    /// ([`Reason::Cap`]), or because its bucket was empty ([`Reason::CapEmpty`]).
    pub fn capped(&self) -> u64 {
        self.overruled.raised + self.overruled.empty
    }

    /// Calls that the sampler would have dropped and an override or a boost kept. The cap may have
    /// dropped some of them after all.
    pub fn kept_by_override(&self) -> u64 {
        self.overruled.forced_kept
    }

    /// Calls that the sampler would have kept and an override dropped.
    pub fn dropped_by_override(&self) -> u64 {
        self.overruled.forced_dropped
    }

    /// Calls that the sampler kept for this reason, before cap and overrides.
    pub fn kept_by(&self, reason: Reason) -> u64 {
        self.of(reason)[1]
    }

    /// Calls that were dropped for this reason: by the sampler before overrides, by the cap, or by
    /// an override.
    pub fn dropped_by(&self, reason: Reason) -> u64 {
        match reason {
            Reason::Cap => self.overruled.raised,
            Reason::CapEmpty => self.overruled.empty,
            Reason::Override => self.overruled.forced_dropped,
            _ => self.of(reason)[0],
        }
    }
}
