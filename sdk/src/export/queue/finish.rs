//! Flushes, the shutdown, and the wait for them.

use std::time::{Duration, Instant};

use super::{Queue, State};
use crate::export::ticket::{Ticket, WaitError};
use crate::stats::Loss;
use crate::sync::{MutexGuard, Ordering, lock, wait_for};

/// The number of flushes that are asked for at once. The last of them waits for what those beyond
/// wait for.
const FLUSHES_ASKED_MAX: usize = 1_024;

impl Queue {
    pub(crate) fn flushed(&self, flush: u64) {
        let mut state = lock(&self.state);
        state.flush_done = state.flush_done.max(flush);
        drop(state);
        self.done.notify_all();
    }

    /// No worker is left, or there never was one.
    pub(crate) fn ended(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        state.heartbeats.give_up();
        drop(state);
        self.done.notify_all();
    }

    /// Notes that the exporter failed otherwise than by losing spans.
    pub(crate) fn failed(&self, error: String) {
        let mut state = lock(&self.state);
        state.failures += 1;
        state.last_error = Some(error);
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        lock(&self.state).last_error.clone()
    }

    /// Asks for everything that has ended to be exported.
    pub(crate) fn ask_flush(&self) -> Ticket {
        self.collect();
        let mut state = lock(&self.state);
        if !state.ended && state.flushes_asked.back() != Some(&state.next_number) {
            // A number of its own, so that the exporter is flushed even if nothing waits.
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

    /// Everything is to end by then, the exporter too. Of several such times the first one holds.
    pub(crate) fn end_by(&self, deadline: Instant) {
        let mut state = lock(&self.state);
        state.deadline = Some(state.deadline.map_or(deadline, |known| known.min(deadline)));
    }

    /// The time until then; `None` if nobody waits for the end, or without end.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let deadline = lock(&self.state).deadline?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Takes no more traces. Those that are queued are still exported.
    pub(crate) fn close(&self) {
        let state = lock(&self.state);
        self.closed.store(true, Ordering::Relaxed);
        drop(state);
        self.work.notify_one();
        self.space.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Gives up what waits in the closed queue, and counts it as lost at the shutdown's deadline.
    /// An export under way ends by itself.
    pub(crate) fn abandon(&self) {
        self.collect();
        let mut state = lock(&self.state);
        state.abandoned = true;
        state.heartbeats.give_up();
        let batches = state.lists.take(usize::MAX);
        state.lost += batches.iter().map(|batch| batch.spans() as u64).sum::<u64>();
        drop(state);
        for batch in &batches {
            self.counters.lose(Loss::Deadline, batch.counted());
        }
        self.recycle(batches);
        self.done.notify_all();
    }

    /// Returns true after the deadline of the shutdown.
    pub(crate) fn is_abandoned(&self) -> bool {
        lock(&self.state).abandoned
    }

    /// Returns the ticket of a shutdown: it waits for everything.
    pub(crate) fn ticket(&self) -> Ticket {
        lock(&self.state).ticket(u64::MAX)
    }

    pub(crate) fn wait_for_flush(&self, ticket: Ticket, timeout: Duration) -> Result<(), WaitError> {
        self.wait(ticket, timeout, |state| state.flush_done < ticket.number && !state.ended)
    }

    pub(crate) fn wait_for_end(&self, ticket: Ticket, timeout: Duration) -> Result<(), WaitError> {
        self.wait(ticket, timeout, |state| !state.ended)
    }

    fn wait(
        &self,
        ticket: Ticket,
        timeout: Duration,
        unfinished: impl Fn(&State) -> bool,
    ) -> Result<(), WaitError> {
        let start = Instant::now();
        let mut state: MutexGuard<'_, State> = lock(&self.state);
        let mut timed_out = false;
        while unfinished(&state) {
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                timed_out = true;
                break;
            }
            state = wait_for(&self.done, state, left);
        }
        let lost = state.lost - ticket.lost;
        if !timed_out && lost == 0 && state.failures == ticket.failures {
            return Ok(());
        }
        let left = if timed_out { state.spans_below(ticket.number) } else { 0 };
        Err(WaitError { timed_out, left, lost, last_error: state.last_error.clone() })
    }
}

impl State {
    /// Takes the flushes up that wait for no batch any more, whatever later ones wait for: others
    /// may ask for flushes again and again. Returns the last of them, which is all of them.
    pub(super) fn reach_flushes(&mut self) -> Option<u64> {
        let outstanding = self.outstanding();
        let reached = self.flushes_asked.partition_point(|asked| *asked <= outstanding);
        self.flushes_asked.drain(..reached).next_back()
    }

    /// Returns true if the asked flushes have work for the worker that waits, not only for those
    /// that export.
    pub(super) fn has_work_for_flush(&self) -> bool {
        let (Some(first), Some(last)) = (self.flushes_asked.front(), self.flushes_asked.back()) else {
            return false;
        };
        self.lists.first_number().is_some_and(|number| number < *last) || self.outstanding() >= *first
    }
}
