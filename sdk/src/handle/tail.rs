//! The handle's part in what is kept late.

use std::sync::Arc;
use std::time::Duration;

use astracer_samplers::Nanos;
use astracer_samplers::tail::{KeyOutcomes, Provisional};
use opentelemetry::TraceId;

use super::Handle;
use crate::record::KeptBy;
use crate::tail::{Keeper, TailTrace};

/// Traces that are kept late: see [`Builder::with_tail`](crate::Builder::with_tail). Without it, these do nothing.
impl Handle {
    fn keeper(&self) -> Option<(&crate::core::Shared, &Keeper)> {
        let shared = self.shared()?;
        Some((shared, shared.tail()?))
    }

    /// Keeps the recorded parts of a trace that the sampler dropped: those that are held, and those whose root ends within the
    /// time of [`Builder::with_trace_age_max`](crate::Builder::with_trace_age_max). Returns whether one was held. There is
    /// no budget for this.
    pub fn keep(&self, trace_id: TraceId) -> bool {
        let Some((shared, keeper)) = self.keeper() else { return false };
        keeper.keep(trace_id, KeptBy::HAND, shared.decider().now(), shared.queue())
    }

    /// Keeps the traces that are held now and that the function wants; returns their number. Panics are caught, and counted as
    /// not wanted.
    pub fn keep_where(&self, wants: impl Fn(&TailTrace<'_>) -> bool + Send + Sync + 'static) -> u64 {
        let Some((shared, keeper)) = self.keeper() else { return 0 };
        keeper.keep_where(Arc::new(wants), shared.queue())
    }

    /// Records the dropped traces of a key for this time, at most an hour: the next error of it should be seen whole. Returns
    /// whether the key is known.
    pub fn arm(&self, key: &str, time: Duration) -> bool {
        self.arm_some(Some(key), time)
    }

    /// As [`Handle::arm`], for all keys that are known.
    pub fn arm_all(&self, time: Duration) {
        self.arm_some(None, time);
    }

    fn arm_some(&self, key: Option<&str>, time: Duration) -> bool {
        let Some((shared, keeper)) = self.keeper() else { return false };
        let time = Nanos::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        keeper.sampler().arm(key, shared.decider().now(), time)
    }

    /// Changes which dropped traces of a key are recorded. Returns whether the key is known.
    pub fn set_provisional(&self, key: &str, provisional: Provisional) -> bool {
        self.keeper().is_some_and(|(_, keeper)| keeper.sampler().set_provisional(key, provisional))
    }

    /// Calls, errors and durations by key, of all local roots since the start, dropped ones too; in the order of the keys.
    /// Empty unless traces are kept late.
    pub fn outcomes(&self) -> Vec<KeyOutcomes> {
        self.keeper().map(|(_, keeper)| keeper.outcomes()).unwrap_or_default()
    }
}
