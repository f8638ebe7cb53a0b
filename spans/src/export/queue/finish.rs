//! Flushes and the shutdown, and waiting for them.

use std::time::{Duration, Instant};

use astracer_model::text::escaped;

use super::{Queue, State, wait_while};
use crate::stats::Loss;
use crate::sync::{Ordering, lock};

/// The point up to which a caller of flush or shutdown waits, and the counts when it began to wait.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    pub(super) number: u64,
    pub(super) lost: u64,
    pub(super) failures: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitError {
    pub timed_out: bool,
    /// Spans that the caller waited for and that are still queued or being exported.
    pub left: u64,
    pub lost: u64,
    pub last_error: Option<String>,
}

/// The maximum number of pending flushes. Beyond it, a new flush replaces the last one, whose
/// callers then also wait for what the new one waits for.
const FLUSHES_ASKED_MAX: usize = 1_024;

impl Queue {
    /// Notes that the flushes up to this number are done.
    pub fn flushed(&self, flush: u64) {
        let mut state = lock(&self.state);
        state.flush_done = state.flush_done.max(flush);
        drop(state);
        self.done.notify_all();
    }

    /// Notes that no worker is left, or that none was ever started.
    pub fn ended(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        state.heartbeats.discard();
        drop(state);
        self.done.notify_all();
    }

    pub fn failed(&self, error: String) {
        let mut state = lock(&self.state);
        state.failures += 1;
        state.last_error = Some(escaped(&error).into_owned());
    }

    /// The last failure, as one line that cannot control a terminal.
    pub fn last_error(&self) -> Option<String> {
        lock(&self.state).last_error.clone()
    }

    /// Keeps the text that a server sent beside a success.
    pub(crate) fn noted(&self, note: &str) {
        lock(&self.state).last_note = Some(escaped(note).into_owned());
    }

    /// The last note, as one line that cannot control a terminal.
    pub fn last_note(&self) -> Option<String> {
        lock(&self.state).last_note.clone()
    }

    pub fn ask_flush(&self) -> Ticket {
        self.collect();
        let mut state = lock(&self.state);
        if !state.ended && state.flushes_asked.back() != Some(&state.next_number) {
            // Take a new number, so that the exporter is flushed even if no batch waits.
            state.next_number += 1;
            let number = state.next_number;
            if state.flushes_asked.len() == FLUSHES_ASKED_MAX {
                state.flushes_asked.pop_back();
            }
            state.flushes_asked.push_back(number);
        }
        let ticket = state.ticket(state.next_number);
        drop(state);
        self.work.notify_one();
        ticket
    }

    /// Sets the deadline of the shutdown, including that of the exporter. The earliest deadline
    /// wins.
    pub fn end_by(&self, deadline: Instant) {
        let mut state = lock(&self.state);
        state.deadline = Some(state.deadline.map_or(deadline, |known| known.min(deadline)));
    }

    pub fn time_left(&self) -> Option<Duration> {
        let deadline = lock(&self.state).deadline?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Rejects new traces. Queued ones are still exported.
    pub fn close(&self) {
        let state = lock(&self.state);
        self.closed.store(true, Ordering::Relaxed);
        drop(state);
        self.work.notify_one();
        self.space.notify_all();
    }

    /// Whether the queue rejects new traces. Relaxed: a caller that must not miss the close checks
    /// this under the lock of a trace slot, and the shutdown flushes all slots after the close.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Drops the spans that wait in the closed queue, and counts them as lost at the shutdown's
    /// deadline. An export in flight still ends by itself.
    pub fn abandon(&self) {
        self.collect();
        let mut state = lock(&self.state);
        state.abandoned = true;
        state.heartbeats.discard();
        let batches = state.list.take(usize::MAX);
        state.lost += batches.iter().map(|batch| batch.spans() as u64).sum::<u64>();
        drop(state);
        for batch in &batches {
            self.counters.lose(Loss::Deadline, batch.counted());
        }
        self.release(&batches);
        self.recycle(batches);
        self.done.notify_all();
    }

    pub fn is_abandoned(&self) -> bool {
        lock(&self.state).abandoned
    }

    /// The ticket of a shutdown, which waits for everything.
    pub fn ticket(&self) -> Ticket {
        lock(&self.state).ticket(u64::MAX)
    }

    /// Waits for a flush, or for the end: no flush has the number of the shutdown's ticket.
    pub fn wait(&self, ticket: Ticket, timeout: Duration) -> Result<(), WaitError> {
        let unfinished = |state: &State| state.flush_done < ticket.number && !state.ended;
        let state = wait_while(&self.done, lock(&self.state), timeout, unfinished);
        let timed_out = unfinished(&state);
        let lost = state.lost - ticket.lost;
        if !timed_out && lost == 0 && state.failures == ticket.failures {
            return Ok(());
        }
        let left = if timed_out { state.spans_below(ticket.number) } else { 0 };
        Err(WaitError { timed_out, left, lost, last_error: state.last_error.clone() })
    }
}

impl State {
    /// Removes the flushes that no longer wait for a batch. Flushes that wait stay, so a stream of
    /// new flushes does not delay old ones. Returns the last one removed, which covers the others.
    pub(super) fn reach_flushes(&mut self) -> Option<u64> {
        let outstanding = self.outstanding();
        let reached = self.flushes_asked.partition_point(|asked| *asked <= outstanding);
        self.flushes_asked.drain(..reached).next_back()
    }

    /// Whether the waiting worker has something to do for a pending flush. Otherwise the flush
    /// waits only for exports in flight.
    pub(super) fn has_work_for_flush(&self) -> bool {
        let (Some(first), Some(last)) = (self.flushes_asked.front(), self.flushes_asked.back()) else {
            return false;
        };
        self.list.first_number().is_some_and(|number| number < *last) || self.outstanding() >= *first
    }
}
