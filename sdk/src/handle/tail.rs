//! The handle's part in what is kept late.

use std::sync::Arc;
use std::time::Duration;

use astracer_samplers::Nanos;
use astracer_samplers::tail::{KeyOutcomes, Provisional};
use opentelemetry::TraceId;

use super::Handle;
use crate::record::KeptBy;
use crate::tail::{Function, Keeper, News, TailTrace};

/// Ids in one list of traces to keep.
const IDS_MAX: usize = 16;

/// Traces that are kept late: see [`Builder::with_tail`](crate::Builder::with_tail). Without it,
/// these do nothing.
impl Handle {
    fn keeper(&self) -> Option<(&crate::core::Shared, &Keeper)> {
        let shared = self.shared()?;
        Some((shared, shared.tail()?))
    }

    /// Keeps the recorded parts of a trace that the sampler dropped: those that are held, and those
    /// whose root ends within the time of
    /// [`Builder::with_trace_age_max`](crate::Builder::with_trace_age_max). Returns whether one was
    /// held. There is no budget for this.
    pub fn keep(&self, trace_id: TraceId) -> bool {
        let Some((shared, keeper)) = self.keeper() else { return false };
        keeper.keep(trace_id, KeptBy::HAND, shared.queue())
    }

    /// Keeps the traces that are held now and that the function wants; returns their number. It is
    /// asked about each, however long that takes. Panics are caught, and counted as not wanted.
    ///
    /// The function runs where no lock is held, while an eighth of the traces is out of the ring.
    /// Of these, one that is asked for meanwhile is kept when it comes back, whatever the function
    /// says; a child that ends meanwhile, after its root, does not find its trace and is given up,
    /// counted as `late`. Traces that come after the call has begun, the function's own among them,
    /// are not asked about.
    pub fn keep_where(&self, wants: impl Fn(&TailTrace<'_>) -> bool + Send + Sync + 'static) -> u64 {
        let Some((shared, keeper)) = self.keeper() else { return 0 };
        keeper.keep_where(&(Arc::new(wants) as Function), shared.queue())
    }

    /// Keeps, as [`Handle::keep`] does, the traces that another process asks for: ids of 32
    /// hexadecimal digits, separated by commas, of which the first 16 are heard, and 100 a second
    /// of all callers. Returns the number that was heard. Each ask is for the parts that are held,
    /// and for one that comes: two requests of a trace that are open need two.
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
                // Counted there.
                Some(_) => {}
                None => keeper.refuse_callers(1),
            }
        }
        keeper.refuse_callers(ids.count() as u64);
        heard
    }

    /// The traces that were kept late after this number of them (0 at first), the last one first,
    /// each once and at most 16; and the number to ask with next time. For telling other processes,
    /// which call [`Handle::keep_for_caller`].
    pub fn kept_late_after(&self, heard: u64) -> (Vec<TraceId>, u64) {
        let News { ids, all, .. } = self.news_after(heard);
        (ids, all)
    }

    /// The same, with the number of those that are left out.
    pub(crate) fn news_after(&self, heard: u64) -> News {
        self.keeper().map(|(_, keeper)| keeper.announced_after(heard, IDS_MAX)).unwrap_or_default()
    }

    /// Counts traces that another process is not told of.
    #[cfg(feature = "http")]
    pub(crate) fn count_untold(&self, traces: u64) {
        if let Some((_, keeper)) = self.keeper() {
            keeper.count_untold(traces);
        }
    }

    /// Whether a trace was kept late, and not long ago: of the last 2,000 or so.
    pub fn was_kept_late(&self, trace_id: TraceId) -> bool {
        self.keeper().is_some_and(|(_, keeper)| keeper.was_kept(trace_id))
    }

    /// Records the dropped traces of a key for this time, at most an hour: the next error of it
    /// should be seen whole. Returns whether the key is known.
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

    /// Calls, errors and durations by key, of all local roots since the start, dropped ones too; in
    /// the order of the keys. Empty unless traces are kept late.
    pub fn outcomes(&self) -> Vec<KeyOutcomes> {
        self.keeper().map(|(_, keeper)| keeper.outcomes()).unwrap_or_default()
    }
}
