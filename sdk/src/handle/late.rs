//! The part of the handle for late keeping.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use astracer_samplers::Nanos;
use astracer_samplers::tail::KeyOutcomes;
use opentelemetry::TraceId;

use super::Handle;
use crate::span_ext::note_callee_trouble;
use astracer_spans::late::{Announcement, Function, LateTraces, TailTrace, Weight};
use astracer_spans::record::KeepReason;
use astracer_spans::stats::Tally;

const IDS_MAX: usize = 16;

/// # Late keeping
///
/// See [`Builder::with_tail`](crate::Builder::with_tail). Without it, these methods
/// do nothing.
impl Handle {
    fn late(&self) -> Option<(&crate::core::Shared, &LateTraces)> {
        let shared = self.shared()?;
        Some((shared, shared.late.as_ref()?))
    }

    /// Keeps the recorded parts of a trace that the sampler dropped: those held now, and those
    /// whose root ends within the time set by
    /// [`Builder::with_trace_age_max`](crate::Builder::with_trace_age_max). Returns whether a part
    /// was held. No budget applies.
    pub fn keep(&self, trace_id: TraceId) -> bool {
        let Some((_, late)) = self.late() else { return false };
        late.keep(trace_id, KeepReason::HAND, None)
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
        let Some((_, late)) = self.late() else { return 0 };
        late.keep_where(&(Arc::new(wants) as Function))
    }

    /// Keeps the traces that another process requests, as [`Handle::keep`] does. `ids` are ids of
    /// 32 hexadecimal digits, separated by commas; each may be followed by the weight that the
    /// trace has, such as `;th=c;rv=ce6d1a75832a2f`, which the parts kept here then have too. The
    /// first 16 of a list are accepted. Of traces that are not held here (yet, any more, or at
    /// all), 100 per second are accepted from all callers together. Returns the number accepted.
    ///
    /// Each request covers the parts that are held, and one part that arrives later: if two
    /// requests of a trace are still open, it has to be requested twice.
    pub fn keep_for_caller(&self, ids: &str) -> usize {
        let Some((shared, late)) = self.late() else { return 0 };
        let mut accepted = 0;
        let mut ids = ids.split(',');
        for id in ids.by_ref().take(IDS_MAX) {
            let (id, weight) =
                id.split_once(';').map_or((id, None), |(id, weight)| (id, Some(weight.trim())));
            let weight = weight.map(Weight::parse);
            match (trace_id_of(id), weight) {
                // Each held trace took a request of its own, which bounds their number.
                (Some(trace_id), None | Some(Some(_)))
                    if late.holds(trace_id) || late.admits_caller(shared.decider.now()) =>
                {
                    late.keep(trace_id, KeepReason::CALLER, weight.flatten());
                    accepted += 1;
                }
                // `admits_caller` has counted it.
                (Some(_), None | Some(Some(_))) => {}
                _ => shared.counters.tally(Tally::RefusedCallers, 1),
            }
        }
        shared.counters.tally(Tally::RefusedCallers, ids.count() as u64);
        accepted
    }

    /// Returns the traces that were kept late after the first `known` ones (0 at first), oldest
    /// first, without duplicates, at most 16 of the last 1,024. Also returns the number to pass
    /// next time, and how many are left for then. For announcing them to other processes, which
    /// call [`Handle::keep_for_caller`].
    pub fn announcement_after(&self, known: u64) -> Announcement {
        self.late().map(|(_, late)| late.announced.after(known, IDS_MAX)).unwrap_or_default()
    }

    /// Adds a process to which traces are announced. Returns the number of those that it knows of,
    /// 0 at first, which the caller raises to [`Announcement::all`] with each announcement. A
    /// shutdown counts the others in [`TailStats::unannounced`](crate::TailStats::unannounced), and
    /// sets the number to [`u64::MAX`], so that nothing is announced any more.
    pub fn add_peer(&self) -> Arc<AtomicU64> {
        self.late().map(|(_, late)| late.announced.add_peer()).unwrap_or_default()
    }

    /// Counts traces that are not announced to another process, in
    /// [`TailStats::unannounced`](crate::TailStats::unannounced).
    pub fn count_unannounced(&self, traces: u64) {
        if let Some((shared, _)) = self.late() {
            shared.counters.tally(Tally::Unannounced, traces);
        }
    }

    /// Whether a trace was kept late recently: only about the last 2,000 are remembered.
    pub fn was_kept_late(&self, trace_id: TraceId) -> bool {
        self.late().is_some_and(|(_, late)| late.was_kept(trace_id))
    }

    /// Whether a trace went wrong here or in a called process a moment ago, and callers should
    /// learn of it, because keys are boosted ([`Boost`](crate::Boost)).
    pub fn reports_trouble(&self, trace_id: TraceId) -> bool {
        self.late().is_some_and(|(_, late)| late.sampler().boosts_keys() && late.troubled.has(trace_id))
    }

    /// Notes that a called process reported that this trace went wrong there. This process's caller
    /// learns of it too, and the key of the local root that this thread is inside is boosted
    /// ([`Boost`](crate::Boost)).
    pub fn note_callee_trouble(&self, trace_id: TraceId) {
        if self.late().is_some() {
            note_callee_trouble(trace_id);
        }
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
        let Some((shared, late)) = self.late() else { return false };
        let time = Nanos::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        late.sampler().arm(key, shared.decider.now(), time)
    }

    /// Calls, errors and durations of all local roots since the start, including dropped ones,
    /// sorted by key. Empty unless traces are kept late.
    pub fn outcomes(&self) -> Vec<KeyOutcomes> {
        self.late().map(|(_, late)| late.sampler().outcomes()).unwrap_or_default()
    }
}

fn trace_id_of(text: &str) -> Option<TraceId> {
    let is_id = |id: &&str| id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    let trace_id = Some(text.trim()).filter(is_id).and_then(|id| TraceId::from_hex(id).ok());
    trace_id.filter(|id| *id != TraceId::INVALID)
}
