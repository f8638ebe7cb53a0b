//! The drain threads: they join waiting records into requests, and keep several requests in flight.
//!
//! One request a round trip would limit the rate by the distance to the server. A request that is
//! refused is sent again in halves, until only the bad record goes to the dead letters.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use astracer_model::Span;
use astracer_model::destination::{Attempt, ErrorKind};
use astracer_spool::{Record, Settlement, Spool};

use super::payload::decode;
use super::shared::{JOIN_RECORDS, JOIN_SPANS, Shared, State, rejection};

/// The next step of a drain thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Go,
    /// There is nothing to send.
    Idle,
    /// The destination cannot accept more for this long.
    Wait(Duration),
}

/// The wait after a failure of unknown duration.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// A further request begins when the last one has had no response for this long. A server that is
/// near gets one at a time, whose records are joined; more threads would take time from receiving.
const PACE: Duration = Duration::from_millis(5);
/// The number of failed reads after which a segment is skipped.
const READ_FAILURES_MAX: u32 = 3;

/// The records of a request, with the spans that it sends.
#[derive(Debug)]
pub(super) struct Batch {
    records: Vec<Record>,
    spans: Vec<Span<'static>>,
}

impl Batch {
    /// The number of spans of each record that this request sends.
    fn parts(&self) -> impl Iterator<Item = (&Record, u32)> {
        self.records.iter().map(|record| (record, record.spans - record.settled))
    }
}

impl Shared {
    /// Drains until the spool ends.
    pub(super) fn run(&self) {
        loop {
            let next = self.step();
            let mut state = self.lock();
            if let Next::Wait(time) = next {
                state.pause(time);
            }
            self.changed.notify_all();
            while !state.is_ended && !may_begin(&mut state) {
                let left = until_turn(&state);
                let waited = self.work.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if state.is_ended {
                return;
            }
        }
    }

    /// Sends the oldest records in one request.
    pub(super) fn step(&self) -> Next {
        let batch = match self.begin() {
            Ok(batch) => batch,
            Err(next) => return next,
        };
        let attempt = self.attempt(&batch);
        self.finish(&batch, attempt)
    }

    /// Takes the records of the next request. The error is the next step if there is no request.
    pub(super) fn begin(&self) -> Result<Batch, Next> {
        let now = self.now_ns();
        let mut state = self.lock();
        if state.is_ended || state.is_down && state.in_flight > 0 {
            return Err(Next::Idle);
        }
        // A destination may have learned that its server takes less.
        let join_bytes = state.join_bytes.min(self.destination.join_bytes());
        let records = take(&mut state, join_bytes, now);
        self.note_losses(&mut state);
        let records = records?;
        state.in_flight += 1;
        state.preparing += 1;
        drop(state);
        let mut batch = Batch { records: Vec::with_capacity(records.len()), spans: Vec::new() };
        let mut bad = Vec::new();
        for record in records {
            // A drain thread that ended in a panic would leave its records under way.
            let decoded = catch_unwind(|| decode(record.kind, &record.payload));
            let spans = decoded.unwrap_or_default();
            if spans.len() == record.spans as usize {
                batch.spans.extend(spans.into_iter().skip(record.settled as usize));
                batch.records.push(record);
            } else {
                bad.push((format!("only {} of {} spans can be decoded", spans.len(), record.spans), record));
            }
        }
        let mut state = self.lock();
        for (reason, record) in bad {
            self.counter.lose(ErrorKind::Damaged, u64::from(record.spans - record.settled));
            state.settle(&record, Settlement::Rejected(&reason));
        }
        state.preparing -= 1;
        if batch.records.is_empty() {
            state.in_flight -= 1;
            return Err(Next::Go);
        }
        state.sent_at = Some(Instant::now());
        drop(state);
        self.work.notify_one();
        Ok(batch)
    }

    /// Sends a request; `None` if the destination panicked.
    pub(super) fn attempt(&self, batch: &Batch) -> Option<Attempt> {
        let send = || match batch.records.len() {
            1 => self.destination.try_send(&batch.spans, Duration::MAX),
            _ => self.destination.try_whole(&batch.spans, Duration::MAX),
        };
        catch_unwind(AssertUnwindSafe(send))
            // The payload comes from the destination and may itself panic when it is dropped. The
            // payload of that second panic is leaked.
            .map_err(|payload| catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget))
            .ok()
    }

    /// Records the outcome of a request.
    pub(super) fn finish(&self, batch: &Batch, attempt: Option<Attempt>) -> Next {
        let now = self.now_ns();
        let mut state = self.lock();
        state.in_flight -= 1;
        let is_panic = attempt.is_none();
        let attempt = attempt.unwrap_or_default();
        let is_settled = attempt.settled >= batch.spans.len();
        let error = attempt.outcome.error.as_ref();
        let may_retry = is_panic || error.is_none_or(|error| error.may_retry());
        let doubtful = error.filter(|error| attempt.settled == 0 && !is_settled && error.is_doubtful());
        state.refused_since = doubtful.map(|_| state.refused_since.unwrap_or(now));
        state.is_down = !is_settled && may_retry;
        if let Some(error) = error.filter(|_| !is_settled) {
            state.note_failure(now, error);
        }
        let retry_in = if attempt.retry_in.is_zero() { PAUSE } else { attempt.retry_in };
        let next = match &batch.records[..] {
            [record] => self.finish_one(&mut state, record, attempt, now),
            _ if is_settled => {
                settle_joined(&mut state, batch, &attempt);
                true
            }
            records => {
                if let Some(spool) = &mut state.spool {
                    let waiting = records.iter().map(|record| (record, Settlement::Partly(record.settled)));
                    spool.settle_all(waiting);
                }
                if error.is_some_and(|error| error.kind() == ErrorKind::TooLarge) {
                    // The limit stays, so requests do not grow beyond it again.
                    let bytes: usize = records.iter().map(|record| record.payload.len()).sum();
                    state.join_bytes = state.join_bytes.min(bytes / 2).max(1);
                } else if doubtful.is_some() || !may_retry {
                    state.join_records = state.join_records.min(records.len() / 2);
                }
                !may_retry
            }
        };
        self.note_losses(&mut state);
        // Other threads may go on, or take what was put back.
        self.work.notify_all();
        if next { Next::Go } else { Next::Wait(retry_in) }
    }

    /// Records the outcome of a request with one record. Returns true if the record has ended.
    fn finish_one(&self, state: &mut State, record: &Record, attempt: Attempt, now: u64) -> bool {
        let Attempt { outcome, settled, .. } = attempt;
        let rest = (record.spans - record.settled) as usize;
        let settled = settled.min(rest);
        let left = (rest - settled) as u32;
        let mut done = record.settled + settled as u32;
        let (mut rejected, mut reason) = rejection(&outcome, settled).unwrap_or_default();
        if let (Some(error), Some(since)) = (outcome.error.as_ref(), state.refused_since)
            && u128::from(now.saturating_sub(since)) >= self.max_refusal.as_nanos()
        {
            self.counter.lose(error.kind(), u64::from(left));
            (done, rejected, reason) = (record.spans, left, error.to_string());
            // The next record gets its own time.
            state.refused_since = None;
        }
        if left == 0 && rejected == 0 {
            state.join_records = (state.join_records * 2).min(JOIN_RECORDS);
        }
        let outcome = Settlement::PartlyRejected { settled: done, rejected, reason: &reason };
        state.settle(record, outcome);
        left == 0
    }
}

/// Settles the records of a joined request that the destination accepted, at least in part.
fn settle_joined(state: &mut State, batch: &Batch, attempt: &Attempt) {
    let rejection = rejection(&attempt.outcome, batch.spans.len());
    // The server does not name the spans that it rejected, so each record goes to the dead letters.
    // Smaller requests follow, of which fewer records do.
    state.join_records = match rejection {
        Some(_) => 1,
        None => (batch.records.len() * 2).clamp(state.join_records, JOIN_RECORDS),
    };
    let Some(spool) = &mut state.spool else { return };
    match rejection {
        None => spool.settle_all(batch.records.iter().map(|record| (record, Settlement::Delivered))),
        Some((mut rejected, reason)) => spool.settle_all(batch.parts().map(|(record, spans)| {
            let here = rejected.min(spans);
            rejected -= here;
            (record, Settlement::PerhapsRejected { rejected: here, reason: &reason })
        })),
    }
}

/// Takes as many waiting records as one request may have.
fn take(state: &mut State, join_bytes: usize, now: u64) -> Result<Vec<Record>, Next> {
    let (records_max, bytes_max) = match join_bytes {
        0 => (1, 0),
        bytes_max => (state.join_records.max(1), bytes_max),
    };
    let Some(spool) = &mut state.spool else { return Err(Next::Idle) };
    let (mut records, mut bytes, mut spans) = (Vec::new(), 0, 0);
    while records.len() < records_max {
        match spool.take(now) {
            Ok(Some(record)) => {
                bytes += record.payload.len();
                spans += u64::from(record.spans);
                if !records.is_empty() && (bytes > bytes_max || spans > JOIN_SPANS) {
                    spool.settle(&record, Settlement::Partly(record.settled));
                    break;
                }
                records.push(record);
            }
            Ok(None) => break,
            Err(_) if !records.is_empty() => break,
            Err(_) => {
                state.read_failures += 1;
                if state.read_failures >= READ_FAILURES_MAX {
                    spool.skip_segment();
                    // The next segment has its own attempts.
                    state.read_failures = 0;
                }
                return Err(Next::Wait(PAUSE));
            }
        }
    }
    if records.is_empty() {
        return Err(Next::Idle);
    }
    state.read_failures = 0;
    Ok(records)
}

/// True if a drain thread may begin a request. Ends a pause that is over.
fn may_begin(state: &mut State) -> bool {
    state.paused_until = state.paused_until.filter(|&end| end > Instant::now());
    state.paused_until.is_none()
        && !(state.is_down && state.in_flight > 0)
        && (state.in_flight == 0 || state.preparing == 0 && until_pace(state).is_zero())
        && state.spool.as_ref().is_some_and(Spool::is_ready)
}

/// The time until the last request has been in flight for [`PACE`].
fn until_pace(state: &State) -> Duration {
    state.sent_at.map_or(Duration::ZERO, |sent| PACE.saturating_sub(sent.elapsed()))
}

/// The time until a thread may begin, as far as it depends on time.
fn until_turn(state: &State) -> Duration {
    let pause = state.paused_until.map(|end| end.saturating_duration_since(Instant::now()));
    let pace = Some(until_pace(state)).filter(|pace| !pace.is_zero());
    pause.or(pace).unwrap_or(Duration::MAX)
}
