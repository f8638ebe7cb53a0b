//! The queue between the service's threads and the exporter's: bounded in bytes, and it sheds whole traces.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::layer::Parcel;
use crate::settings::Bounds;
use crate::stats::{Counters, Loss};

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// The worker waits here.
    work: Condvar,
    /// Callers of flush and shutdown wait here.
    done: Condvar,
    counters: Arc<Counters>,
    bounds: Bounds,
}

#[derive(Debug, Default)]
struct State {
    traces: VecDeque<Parcel>,
    spans: usize,
    bytes: usize,
    /// Empty buffers, to be used again.
    spare: Vec<Parcel>,
    /// No more traces are taken.
    closed: bool,
    /// The worker is gone.
    ended: bool,
    flushes_asked: u64,
    flushes_done: u64,
    last_error: Option<String>,
}

/// How many empty buffers wait, and how large each may be.
const SPARE_MAX: usize = 256;
const SPARE_BYTES_MAX: usize = 256 * 1024;

/// What the worker is to do next.
pub(crate) enum Work {
    Export(Vec<Parcel>),
    /// Everything that was queued before the flush was exported.
    Flush(u64),
    End,
}

/// The time was up.
pub(crate) struct TimedOut;

impl Queue {
    pub(crate) fn new(bounds: Bounds, counters: Arc<Counters>) -> Self {
        Queue { state: Mutex::default(), work: Condvar::new(), done: Condvar::new(), counters, bounds }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a trace, or sheds and counts it; leaves an empty buffer.
    pub(crate) fn push(&self, trace: &mut Parcel) {
        let (bytes, spans) = (trace.bytes(), trace.records.len());
        let mut state = self.lock();
        let loss = if state.closed {
            Some(Loss::ShutDown)
        } else if state.bytes + bytes > self.bounds.queue_bytes {
            Some(Loss::QueueFull)
        } else {
            None
        };
        if let Some(loss) = loss {
            drop(state);
            self.counters.lose(loss, spans as u64);
            trace.clear();
            return;
        }
        let before = state.spans;
        state.bytes += bytes;
        state.spans += spans;
        let after = state.spans;
        let empty = state.spare.pop().unwrap_or_else(|| trace.another());
        state.traces.push_back(std::mem::replace(trace, empty));
        drop(state);
        // Once for the first, so that the worker begins to wait for more; once when there are enough.
        if before == 0 || (before < self.bounds.batch_spans && after >= self.bounds.batch_spans) {
            self.work.notify_one();
        }
    }

    /// Waits for work. Returns what the worker exports next: whole traces, together a batch or a little more.
    pub(crate) fn next(&self) -> Work {
        let mut state = self.lock();
        loop {
            let hurry = |state: &State| state.closed || state.flushes_asked > state.flushes_done;
            if state.traces.is_empty() {
                if state.flushes_asked > state.flushes_done {
                    return Work::Flush(state.flushes_asked);
                }
                if state.closed {
                    return Work::End;
                }
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if state.spans < self.bounds.batch_spans && !hurry(&state) {
                let more = |state: &mut State| state.spans < self.bounds.batch_spans && !hurry(state);
                let waited = self.work.wait_timeout_while(state, self.bounds.batch_delay, more);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let mut batch = Vec::new();
            let mut spans = 0;
            while spans < self.bounds.batch_spans {
                let Some(trace) = state.traces.pop_front() else { break };
                spans += trace.records.len();
                state.bytes = state.bytes.saturating_sub(trace.bytes());
                batch.push(trace);
            }
            state.spans = state.spans.saturating_sub(spans);
            return Work::Export(batch);
        }
    }

    /// Gives buffers back that were exported.
    pub(crate) fn recycle(&self, buffers: Vec<Parcel>) {
        let mut kept: Vec<Parcel> = Vec::with_capacity(buffers.len());
        for mut buffer in buffers {
            buffer.clear();
            if buffer.bytes() <= SPARE_BYTES_MAX {
                kept.push(buffer);
            }
        }
        let mut state = self.lock();
        let room = SPARE_MAX.saturating_sub(state.spare.len());
        let rest = kept.split_off(room.min(kept.len()));
        state.spare.append(&mut kept);
        drop(state);
        drop(rest);
    }

    pub(crate) fn flushed(&self, flush: u64) {
        self.lock().flushes_done = flush;
        self.done.notify_all();
    }

    pub(crate) fn ended(&self) {
        self.lock().ended = true;
        self.done.notify_all();
    }

    pub(crate) fn failed(&self, error: String) {
        self.lock().last_error = Some(error);
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.lock().last_error.clone()
    }

    /// Asks for everything that is queued to be exported, and waits for it.
    pub(crate) fn flush(&self, timeout: Duration) -> Result<(), TimedOut> {
        let mut state = self.lock();
        if state.ended {
            return Ok(());
        }
        state.flushes_asked += 1;
        let asked = state.flushes_asked;
        self.work.notify_one();
        self.wait(state, timeout, |state| state.flushes_done < asked && !state.ended)
    }

    /// Takes no more traces. What is queued is still exported.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_one();
    }

    pub(crate) fn wait_for_end(&self, timeout: Duration) -> Result<(), TimedOut> {
        let state = self.lock();
        self.wait(state, timeout, |state| !state.ended)
    }

    fn wait(
        &self,
        mut state: MutexGuard<'_, State>,
        timeout: Duration,
        unfinished: impl Fn(&State) -> bool,
    ) -> Result<(), TimedOut> {
        let start = Instant::now();
        while unfinished(&state) {
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(TimedOut);
            }
            state = self.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}
