//! The state that callers share with the drain threads, and what callers do with it.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use astracer_formats::otlp_proto;
use astracer_model::destination::{Attempt, Counter, DeliveryReport, Destination, ErrorKind, ExportError};
use astracer_model::text::escaped;
use astracer_model::{Format, Span};
use astracer_spool::{Counts as SpoolCounts, Disk, Failure, Record, Settlement, Spool};

use super::payload::kind_of;
use super::{DrainOrder, SpoolMode, SpooledBuilder};
use crate::clock::Clock;

pub(super) struct Shared {
    pub(super) destination: Box<dyn Destination>,
    pub(super) counter: Counter,
    state: Mutex<State>,
    /// Notified when a record was settled, a pause began, or the spool is to end.
    pub(super) changed: Condvar,
    /// Notified when a drain thread may find something to do.
    pub(super) work: Condvar,
    pub(super) mode: SpoolMode,
    order: DrainOrder,
    direct_timeout: Duration,
    pub(super) max_refusal: Duration,
    clock: Arc<dyn Clock>,
    pub(super) target: String,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("destination", &self.destination).finish_non_exhaustive()
    }
}

/// The greatest number of records in one request.
pub(super) const JOIN_RECORDS: usize = 512;

/// The greatest number of spans in a joined request, as in the Collector's batches.
pub(super) const JOIN_SPANS: u64 = 8_192;

pub(super) struct State {
    /// `None` if [`Spooled`](super::Spooled) was dropped while a request is still in progress. This
    /// releases the folder.
    pub(super) spool: Option<Spool>,
    /// The spool's counts when its losses were last added to the counter.
    pub(super) seen: SpoolCounts,
    /// True if no more spans are accepted.
    pub(super) is_closed: bool,
    /// True if the drain threads should end.
    pub(super) is_ended: bool,
    /// Requests of drain threads that have no outcome yet.
    pub(super) in_flight: usize,
    /// Requests among them whose records are being decoded.
    pub(super) preparing: usize,
    /// The time at which the last request was sent.
    pub(super) sent_at: Option<Instant>,
    /// True after a request that may be sent again. Then one thread at a time sends.
    pub(super) is_down: bool,
    /// The greatest number of records in the next request. It is halved when a request is refused,
    /// until the refused record is alone, and doubled when one is accepted.
    pub(super) join_records: usize,
    /// The size up to which records are joined, if the destination does not say less. It shrinks
    /// where a request is larger than its records, as Zipkin's are.
    pub(super) join_bytes: usize,
    /// The time until which the drain threads wait for the destination to recover.
    pub(super) paused_until: Option<Instant>,
    /// The number of such waits since the start.
    pub(super) pauses: u64,
    /// Consecutive failed reads.
    pub(super) read_failures: u32,
    /// The time of the first of the doubtful failures that the drain threads got in a row.
    pub(super) refused_since: Option<u64>,
}

/// The shortest time between two notes of the same failure.
const NOTE_PAUSE_NS: u64 = 60_000_000_000;
/// Used for pauses that end beyond the range of the clock.
const LONG: Duration = Duration::from_secs(365 * 86_400);

impl State {
    pub(super) fn counts(&self) -> SpoolCounts {
        self.spool.as_ref().map_or(self.seen, Spool::counts)
    }

    pub(super) fn sync(&mut self) -> std::io::Result<()> {
        self.spool.as_mut().map_or(Ok(()), Spool::sync)
    }

    /// Stores why the destination accepts nothing, at most once a minute for the same reason.
    pub(super) fn note_failure(&mut self, now: u64, error: &ExportError) {
        let Some(spool) = &mut self.spool else { return };
        let text = error.to_string();
        let is_known = |known: &Failure| {
            // Long texts are stored in part, with an ellipsis.
            let stored = known.text.strip_suffix("...").unwrap_or(&known.text);
            let is_same = text.starts_with(stored) && !stored.is_empty();
            is_same && now.saturating_sub(known.time_ns) < NOTE_PAUSE_NS
        };
        if !spool.failure().is_some_and(is_known) {
            spool.note_failure(now, &text);
        }
    }

    pub(super) fn settle(&mut self, record: &Record, outcome: Settlement<'_>) {
        if let Some(spool) = &mut self.spool {
            spool.settle(record, outcome);
        }
    }

    /// Pauses all drain threads.
    pub(super) fn pause(&mut self, time: Duration) {
        let now = Instant::now();
        // Requests that fail at the same time are one pause.
        self.pauses += u64::from(self.paused_until.is_none_or(|end| end <= now));
        self.paused_until = Some(now.checked_add(time).unwrap_or(now + LONG));
    }
}

impl Shared {
    pub(super) fn open(
        disk: impl Disk + 'static,
        builder: SpooledBuilder,
        destination: Box<dyn Destination>,
    ) -> std::io::Result<Self> {
        let (spool, _) = Spool::open(disk, builder.settings)?;
        let state = State {
            // Losses found at the start are counted, too.
            seen: SpoolCounts::default(),
            spool: Some(spool),
            is_closed: false,
            is_ended: false,
            in_flight: 0,
            preparing: 0,
            sent_at: None,
            is_down: false,
            join_records: JOIN_RECORDS,
            join_bytes: usize::MAX,
            paused_until: None,
            pauses: 0,
            read_failures: 0,
            refused_since: None,
        };
        let shared = Shared {
            counter: destination.counter(),
            destination,
            state: Mutex::new(state),
            changed: Condvar::new(),
            work: Condvar::new(),
            mode: builder.mode,
            order: builder.order,
            direct_timeout: builder.direct_timeout,
            max_refusal: builder.max_refusal,
            clock: builder.clock,
            target: builder.folder.display().to_string(),
        };
        shared.note_losses(&mut shared.lock());
        Ok(shared)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes everyone who waits for a change of the state.
    pub(super) fn notify(&self) {
        self.changed.notify_all();
        self.work.notify_all();
    }

    pub(super) fn now_ns(&self) -> u64 {
        let since = self.clock.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
        let (is_closed, pending) = {
            let state = self.lock();
            (state.is_closed, state.counts().pending)
        };
        if is_closed {
            self.counter.lose(ErrorKind::ShutDown, spans.len() as u64);
            let error = ExportError::new(ErrorKind::ShutDown, &*self.target, "");
            return DeliveryReport::lost(error, spans.len() as u64);
        }
        let is_direct =
            self.mode == SpoolMode::Overflow && (pending == 0 || self.order == DrainOrder::NewFirst);
        let attempt = match is_direct {
            true => self.destination.try_send(spans, self.direct_timeout),
            false => Attempt::default(),
        };
        let Attempt { mut outcome, settled, .. } = attempt;
        let (kind, now) = (kind_of(Format::OtlpProto), self.now_ns());
        if let Some((count, reason)) = rejection(&outcome, settled) {
            let mut body = Vec::new();
            otlp_proto::write_request(&mut body, spans.get(..settled).unwrap_or(spans));
            if let Some(spool) = &mut self.lock().spool {
                spool.append_dead(kind, now, count, &body, &reason);
            }
        }
        let rest = spans.get(settled..).unwrap_or_default();
        if rest.is_empty() {
            return outcome;
        }
        if outcome.lost.total() == 0 {
            // The error belongs to the spans that now go to the spool.
            outcome.error = None;
        }
        let mut body = Vec::new();
        otlp_proto::write_request(&mut body, rest);
        match self.append(kind, rest.len() as u64, &body) {
            Ok(()) => outcome.delivery.accepted += rest.len() as u64,
            Err(error) => {
                self.counter.lose(error.kind(), rest.len() as u64);
                outcome.lose(error, rest.len() as u64);
            }
        }
        outcome
    }

    pub(super) fn append(&self, kind: u32, spans: u64, request: &[u8]) -> Result<(), ExportError> {
        let now = self.now_ns();
        let mut state = self.lock();
        let count = u32::try_from(spans).unwrap_or(u32::MAX);
        let Some(spool) = &mut state.spool else {
            return Err(ExportError::new(ErrorKind::ShutDown, &*self.target, ""));
        };
        let appended = spool.append(kind, now, count, request);
        self.note_losses(&mut state);
        drop(state);
        match appended {
            Ok(()) => {
                self.work.notify_one();
                Ok(())
            }
            Err(error) => {
                let kind = if error.is_full() { ErrorKind::Full } else { ErrorKind::File };
                Err(ExportError::new(kind, &*self.target, error.to_string()))
            }
        }
    }

    /// Adds the spool's own losses to the counter.
    pub(super) fn note_losses(&self, state: &mut State) {
        let (now, seen) = (state.counts(), state.seen);
        self.counter.lose(ErrorKind::Expired, now.expired - seen.expired);
        self.counter.lose(ErrorKind::Damaged, now.damaged - seen.damaged);
        self.counter.lose(ErrorKind::Full, now.dropped - seen.dropped);
        state.seen = now;
    }
}

/// Returns how many of the settled spans of an attempt were rejected or lost, and the reason;
/// `None` if all were accepted. The error that ended the attempt did not lose any.
pub(super) fn rejection(outcome: &DeliveryReport, settled: usize) -> Option<(u32, String)> {
    let DeliveryReport { delivery, error, .. } = outcome;
    let rejected = (settled as u64).saturating_sub(delivery.accepted);
    let lost = rejected.saturating_sub(delivery.rejected);
    let count = u32::try_from(rejected).ok().filter(|&count| count > 0)?;
    let reason = match error {
        Some(error) if lost > 0 => error.to_string(),
        _ if delivery.message.is_empty() => "the server gives no reason".to_owned(),
        _ => escaped(&delivery.message).into_owned(),
    };
    let all = count as usize == settled;
    Some((count, if all { reason } else { format!("{count} of {settled} spans, unknown which: {reason}") }))
}
