//! The part of the handle for late keeping.

use std::sync::Arc;
use std::time::Duration;

use astracer_samplers::Nanos;
use astracer_samplers::tail::{KeyOutcomes, Provisional};
use opentelemetry::TraceId;

use super::Handle;
use crate::record::KeptBy;
use crate::tail::{Function, Keeper, News, TailTrace};

/// The maximum number of ids in one list of traces to keep.
const IDS_MAX: usize = 16;

/// Late keeping: see [`Builder::with_tail`](crate::Builder::with_tail). Without it, these methods
/// do nothing.
impl Handle {
    fn keeper(&self) -> Option<(&crate::core::Shared, &Keeper)> {
        let shared = self.shared()?;
        Some((shared, shared.tail()?))
    }

    /// Keeps the recorded parts of a trace that the sampler dropped: those held now, and those
    /// whose root ends within the time set by
    /// [`Builder::with_trace_age_max`](crate::Builder::with_trace_age_max). Returns whether a part
    /// was held. No budget applies.
    pub fn keep(&self, trace_id: TraceId) -> bool {
        let Some((shared, keeper)) = self.keeper() else { return false };
        keeper.keep(trace_id, KeptBy::HAND, shared.queue())
    }

    /// Keeps the held traces for which the function returns true, and returns their number. The
    /// function is called for every held trace, however long that takes. A panic is caught, and
    /// counts as false.
    ///
    /// The function runs without any lock. Meanwhile an eighth of the traces is out of the ring. If
    /// one of these is requested meanwhile, it is kept when it comes back, whatever the function
    /// returned. A child that ends meanwhile, after its root, does not find its trace; it is given
    /// up and counted as `late`. Traces that arrive after the call has begun, including the
    /// function's own, are skipped.
    pub fn keep_where(&self, wants: impl Fn(&TailTrace<'_>) -> bool + Send + Sync + 'static) -> u64 {
        let Some((shared, keeper)) = self.keeper() else { return 0 };
        keeper.keep_where(&(Arc::new(wants) as Function), shared.queue())
    }

    /// Keeps the traces that another process requests, as [`Handle::keep`] does. `ids` are ids of
    /// 32 hexadecimal digits, separated by commas. The first 16 of a list are accepted, and 100 per
    /// second from all callers together. Returns the number accepted.
    ///
    /// Each request covers the parts that are held, and one part that arrives later: if two
    /// requests of a trace are still open, it has to be requested twice.
    pub fn keep_for_caller(&self, ids: &str) -> usize {
        let Some((shared, keeper)) = self.keeper() else { return 0 };
        let mut heard = 0;
        let mut ids = ids.split(',');
        for id in ids.by_ref().take(IDS_MAX) {
            let is_id = |id: &&str| id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
            let trace_id = Some(id.trim()).filter(is_id).and_then(|id| TraceId::from_hex(id).ok());
            match trace_id.filter(|id| *id != TraceId::INVALID) {
                Some(trace_id) if keeper.admits_caller(shared.decider().now()) => {
                    keeper.keep(trace_id, KeptBy::CALLER, shared.queue());
                    heard += 1;
                }
                // `admits_caller` has counted it.
                Some(_) => {}
                None => keeper.refuse_callers(1),
            }
        }
        keeper.refuse_callers(ids.count() as u64);
        heard
    }

    /// Returns the traces that were kept late after the first `heard` ones (0 at first), newest
    /// first, without duplicates, at most 16; and the number to pass next time. For announcing them
    /// to other processes, which call [`Handle::keep_for_caller`].
    pub fn kept_late_after(&self, heard: u64) -> (Vec<TraceId>, u64) {
        let News { ids, all, .. } = self.news_after(heard);
        (ids, all)
    }

    /// As [`Handle::kept_late_after`], with the number of traces that are left out.
    pub(crate) fn news_after(&self, heard: u64) -> News {
        self.keeper().map(|(_, keeper)| keeper.announced_after(heard, IDS_MAX)).unwrap_or_default()
    }

    /// Counts traces that are not announced to another process.
    #[cfg(feature = "http")]
    pub(crate) fn count_untold(&self, traces: u64) {
        if let Some((_, keeper)) = self.keeper() {
            keeper.count_untold(traces);
        }
    }

    /// Whether a trace was kept late recently: only about the last 2,000 are remembered.
    pub fn was_kept_late(&self, trace_id: TraceId) -> bool {
        self.keeper().is_some_and(|(_, keeper)| keeper.was_kept(trace_id))
    }

    /// Records the dropped traces of a key for this time, at most an hour, so that its next error
    /// is recorded with its whole trace. Returns whether the key is known.
    pub fn arm(&self, key: &str, time: Duration) -> bool {
        self.arm_some(Some(key), time)
    }

    /// As [`Handle::arm`], for all known keys.
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

    /// Calls, errors and durations of all local roots since the start, including dropped ones,
    /// sorted by key. Empty unless traces are kept late.
    pub fn outcomes(&self) -> Vec<KeyOutcomes> {
        self.keeper().map(|(_, keeper)| keeper.outcomes()).unwrap_or_default()
    }
}
