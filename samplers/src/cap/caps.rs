//! A cap's allowances for traces, asked in turn: that of new keys, the key's, then that of all
//! traces.

use super::{Answer, Bucket, Cap, Meter};
use crate::decision::{Decision, Reason};
use crate::nanos::Nanos;
use crate::randomness::Randomness;
use crate::threshold::Threshold;

/// The buckets of a cap for traces. Plain values: the meters belong to the table, and survive a
/// change of the cap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Caps {
    traces: Option<Bucket>,
    key_traces: Option<Bucket>,
    new_traces: Option<Bucket>,
}

impl Caps {
    /// The buckets for this process's share.
    pub(crate) fn new(cap: &Cap) -> Self {
        let cap = cap.own_share();
        Caps {
            traces: cap.traces.map(Bucket::new),
            key_traces: cap.key_traces.map(Bucket::new),
            new_traces: cap.new_traces.map(Bucket::new),
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.traces.is_none() && self.key_traces.is_none() && self.new_traces.is_none()
    }

    /// Whether keys have allowances of their own.
    pub(crate) fn by_key(&self) -> bool {
        self.key_traces.is_some()
    }

    /// Takes over the meter of all traces from another cap: clamps its debt if the allowance
    /// differs.
    pub(crate) fn take_over(&self, old: Option<&Caps>, all: &Meter, now: Nanos) {
        if let Some(bucket) = &self.traces
            && old.and_then(|old| old.traces) != self.traces
        {
            all.clip(bucket, now);
        }
    }

    /// As [`Caps::take_over`], for the meter of new keys.
    pub(crate) fn take_over_new(&self, old: Option<&Caps>, new: &Meter, now: Nanos) {
        if let Some(bucket) = &self.new_traces
            && old.and_then(|old| old.new_traces) != self.new_traces
        {
            new.clip(bucket, now);
        }
    }

    /// Decides about the first call of a new key, which the sampler keeps; before
    /// [`Caps::admit`]. A decision without a threshold stays without one.
    pub(crate) fn admit_new(
        &self,
        new: &Meter,
        decision: Decision,
        randomness: Randomness,
        now: Nanos,
    ) -> Decision {
        let Some(bucket) = &self.new_traces else { return decision };
        let threshold = decision.threshold.map_or(0, Threshold::get);
        match new.ask(bucket, 1, threshold, randomness, now) {
            Answer::Kept { threshold, is_weighed } => {
                let threshold = Threshold::new(threshold).filter(|_| is_weighed);
                Decision { threshold: decision.threshold.and(threshold), ..decision }
            }
            refused => refusal(refused),
        }
    }

    /// As [`Caps::take_over`], for the meters of keys.
    pub(crate) fn take_over_keys<'a>(
        &self,
        old: Option<&Caps>,
        meters: impl Iterator<Item = &'a Meter>,
        now: Nanos,
    ) {
        if let Some(bucket) = &self.key_traces
            && old.and_then(|old| old.key_traces) != self.key_traces
        {
            meters.for_each(|meter| meter.clip(bucket, now));
        }
    }

    /// Decides about a trace that the sampler keeps. A decision without a threshold stays without
    /// one.
    #[inline]
    pub(crate) fn admit(
        &self,
        all: &Meter,
        of_key: Option<&Meter>,
        decision: Decision,
        randomness: Randomness,
        now: Nanos,
    ) -> Decision {
        let mut threshold = decision.threshold.map_or(0, Threshold::get);
        let mut is_weighed = decision.threshold.is_some();
        let of_key = of_key.zip(self.key_traces.as_ref());
        if let Some((meter, bucket)) = of_key {
            match meter.ask(bucket, 1, threshold, randomness, now) {
                Answer::Kept { threshold: raised, is_weighed: still } => {
                    threshold = raised;
                    is_weighed &= still;
                }
                refused => return refusal(refused),
            }
        }
        if let Some(bucket) = &self.traces {
            match all.ask(bucket, 1, threshold, randomness, now) {
                Answer::Kept { threshold: raised, is_weighed: still } => {
                    threshold = raised;
                    is_weighed &= still;
                }
                refused => {
                    // The trace is not kept, so the key gets its unit back.
                    if let Some((meter, bucket)) = of_key {
                        meter.give_back(bucket, 1);
                    }
                    return refusal(refused);
                }
            }
        }
        let threshold = if is_weighed { Threshold::new(threshold) } else { None };
        Decision { threshold, ..decision }
    }
}

fn refusal(refused: Answer) -> Decision {
    let reason = if refused == Answer::Raised { Reason::Cap } else { Reason::CapEmpty };
    Decision { keep: false, threshold: None, reason }
}
