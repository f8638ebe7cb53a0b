//! The queue between the service's threads and the exporter's: bounded in bytes, and it sheds whole traces.
//!
//! A small trace is copied into a buffer that comes back from the exporter's thread, at once, and the buffer that it was
//! recorded in stays with its place: its memory is in the cache of the thread that writes to it next. Memory that another
//! processor has read is slow to write to, and slowest when it is written bit by bit between locks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::layer::Parcel;
use crate::settings::Bounds;
use crate::stats::{Counters, Loss};

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Bytes that wait, and those that the worker has not converted yet. Changed under the lock.
    bytes: AtomicUsize,
    /// Empty buffers, to be used again.
    spare: Mutex<Vec<Parcel>>,
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
    waits: Waits,
    /// No more traces are taken.
    closed: bool,
    /// The worker is gone.
    ended: bool,
    flushes_asked: u64,
    flushes_done: u64,
    last_error: Option<String>,
}

impl State {
    fn hurries(&self) -> bool {
        self.closed || self.flushes_asked > self.flushes_done
    }
}

/// What the worker waits for, so that it is woken for nothing else: to wake a thread takes as long as to record some
/// hundred spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waits {
    #[default]
    No,
    ForAny,
    ForBatch,
}

/// How many empty buffers wait, and how large each may be.
const SPARE_MAX: usize = 256;
const SPARE_BYTES_MAX: usize = 256 * 1024;
/// A larger trace is handed over with its buffer: to copy it costs more than a cold buffer.
const COPIED_BYTES_MAX: usize = 32 * 1024;

/// What the worker is to do next.
pub(crate) enum Work {
    /// There are traces.
    Export,
    /// Everything that was queued before the flush was exported.
    Flush(u64),
    End,
}

/// The time was up.
pub(crate) struct TimedOut;

impl Queue {
    pub(crate) fn new(bounds: Bounds, counters: Arc<Counters>) -> Self {
        Queue {
            state: Mutex::default(),
            bytes: AtomicUsize::new(0),
            spare: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            counters,
            bounds,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_spare(&self) -> MutexGuard<'_, Vec<Parcel>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a trace, or sheds and counts it; leaves an empty buffer.
    pub(crate) fn push(&self, trace: &mut Parcel) {
        let spans = trace.records.len();
        if self.bytes.load(Ordering::Relaxed) >= self.bounds.queue_bytes {
            self.counters.lose(Loss::QueueFull, spans as u64);
            return trace.clear();
        }
        let mut parcel = self.lock_spare().pop().unwrap_or_default();
        if trace.bytes_held() <= COPIED_BYTES_MAX {
            trace.move_to(&mut parcel);
        } else {
            std::mem::swap(trace, &mut parcel);
            parcel.bytes = parcel.bytes_held();
        }
        let bytes = parcel.bytes;
        let mut state = self.lock();
        let waiting = self.bytes.load(Ordering::Relaxed);
        let loss = if state.closed {
            Some(Loss::ShutDown)
        } else if waiting + bytes > self.bounds.queue_bytes {
            Some(Loss::QueueFull)
        } else {
            None
        };
        if let Some(loss) = loss {
            drop(state);
            self.counters.lose(loss, spans as u64);
            return;
        }
        self.bytes.store(waiting + bytes, Ordering::Relaxed);
        state.spans += spans;
        state.traces.push_back(parcel);
        let wake = match state.waits {
            Waits::No => false,
            Waits::ForAny => true,
            Waits::ForBatch => state.spans >= self.bounds.batch_spans,
        };
        if wake {
            state.waits = Waits::No;
        }
        drop(state);
        if wake {
            self.work.notify_one();
        }
    }

    /// Waits for work. For an export all that there is goes to `taken`, which is empty.
    pub(crate) fn next(&self, taken: &mut VecDeque<Parcel>) -> Work {
        let mut state = self.lock();
        // Traces nearly always follow those of the last batch. Only if none came for a while does the first one count.
        let mut idle = false;
        loop {
            if idle {
                state.waits = Waits::ForAny;
                let nothing = |state: &mut State| state.traces.is_empty() && !state.hurries();
                state = self.work.wait_while(state, nothing).unwrap_or_else(PoisonError::into_inner);
            }
            state.waits = Waits::ForBatch;
            let more = |state: &mut State| state.spans < self.bounds.batch_spans && !state.hurries();
            let waited = self.work.wait_timeout_while(state, self.bounds.batch_delay, more);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waits = Waits::No;
            if !state.traces.is_empty() {
                state.spans = 0;
                std::mem::swap(&mut state.traces, taken);
                return Work::Export;
            }
            if state.flushes_asked > state.flushes_done {
                return Work::Flush(state.flushes_asked);
            }
            if state.closed {
                return Work::End;
            }
            idle = true;
        }
    }

    /// Whole traces, together as many spans as are exported at once, or a little more.
    pub(crate) fn batch(&self, taken: &mut VecDeque<Parcel>) -> Vec<Parcel> {
        let mut spans = 0;
        let mut batch = Vec::new();
        while spans < self.bounds.batch_spans {
            let Some(trace) = taken.pop_front() else { break };
            spans += trace.records.len();
            batch.push(trace);
        }
        batch
    }

    /// Gives buffers back that were converted; `bytes` is what they were before.
    pub(crate) fn recycle(&self, buffers: Vec<Parcel>, bytes: usize) {
        let mut kept: Vec<Parcel> = Vec::with_capacity(buffers.len());
        for mut buffer in buffers {
            buffer.clear();
            buffer.bytes = buffer.bytes_held();
            if buffer.bytes <= SPARE_BYTES_MAX {
                kept.push(buffer);
            }
        }
        let mut spare = self.lock_spare();
        let room = SPARE_MAX.saturating_sub(spare.len());
        let rest = kept.split_off(room.min(kept.len()));
        spare.append(&mut kept);
        drop(spare);
        drop(rest);
        let state = self.lock();
        self.bytes.store(self.bytes.load(Ordering::Relaxed).saturating_sub(bytes), Ordering::Relaxed);
        drop(state);
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
