//! The queue between the service's threads and the exporter's: bounded in bytes, and it sheds whole traces.
//!
//! A small trace is copied into a bundle with others, at once, and the buffer that it was recorded in stays with its place:
//! its memory is in the cache of the thread that writes to it next. Memory that another processor has read is slow to
//! write to, and slowest when it is written bit by bit between locks. A bundle gathers in an outbox of a few threads' own,
//! and goes to what all threads share when it is full, or the worker asks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::layer::{Buffer, Bundle, Parcel, thread_number};
use crate::settings::Bounds;
use crate::stats::{Counters, Loss};

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    outboxes: [Outbox; OUTBOXES],
    /// Bytes that wait outside of the outboxes, and those that the worker has not converted yet.
    bytes: AtomicUsize,
    /// The worker sleeps until there is something: nothing gathers.
    waits_for_any: AtomicBool,
    /// No more traces are taken. Set under the lock.
    closed: AtomicBool,
    /// Empty ones, to be used again.
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
    bundles: VecDeque<Parcel>,
    spans: usize,
    waits: Waits,
    /// The worker is gone.
    ended: bool,
    flushes_asked: u64,
    flushes_done: u64,
    last_error: Option<String>,
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

/// How many empty bundles wait, and how large each may be.
const SPARE_MAX: usize = 256;
const SPARE_BYTES_MAX: usize = 256 * 1024;
/// A larger trace is handed over with its buffer: to copy it costs more than a cold buffer.
const COPIED_BYTES_MAX: usize = 32 * 1024;

/// Where small traces of some threads gather. Its lock is taken before that of the state.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Outbox(Mutex<Option<Parcel>>);

const OUTBOXES: usize = 16;
/// How much gathers.
const OUTBOX_SPANS_MAX: usize = 64;
const OUTBOX_BYTES_MAX: usize = 64 * 1024;

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Option<Parcel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// With room for one that is nearly full and a trace more.
fn fresh() -> Parcel {
    Box::new(Bundle::with_capacity(OUTBOX_SPANS_MAX * 3 / 2))
}

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
            outboxes: Default::default(),
            bytes: AtomicUsize::new(0),
            waits_for_any: AtomicBool::new(false),
            closed: AtomicBool::new(false),
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
    pub(crate) fn push(&self, trace: &mut Buffer) {
        let spans = trace.records.len();
        if self.bytes.load(Ordering::Relaxed) >= self.bounds.queue_bytes {
            self.counters.lose(Loss::QueueFull, spans as u64);
            return trace.clear();
        }
        if trace.bytes_held() > COPIED_BYTES_MAX {
            if let Err(loss) = self.deliver(&mut Some(Box::new(Bundle::of(trace)))) {
                self.counters.lose(loss, spans as u64);
            }
            return;
        }
        let mut outbox = self.outboxes[thread_number() as usize % OUTBOXES].lock();
        // The worker looks into the outboxes for the last time after this was set: what it would not find is shed here.
        if self.closed.load(Ordering::Relaxed) {
            drop(outbox);
            self.counters.lose(Loss::ShutDown, spans as u64);
            return trace.clear();
        }
        let bundle = outbox.get_or_insert_with(|| self.lock_spare().pop().unwrap_or_else(fresh));
        bundle.add(trace);
        let is_full = bundle.spans() >= OUTBOX_SPANS_MAX.min(self.bounds.batch_spans)
            || bundle.bytes_used() >= OUTBOX_BYTES_MAX.min(self.bounds.queue_bytes / 2);
        // Read after the lock was taken: see `Queue::sleep`.
        if is_full || self.waits_for_any.load(Ordering::Relaxed) {
            self.deliver_from(&mut outbox);
        }
    }

    fn deliver_from(&self, outbox: &mut Option<Parcel>) {
        match self.deliver(outbox) {
            // The worker will still look here.
            Ok(()) | Err(Loss::ShutDown) => {}
            Err(loss) => {
                if let Some(bundle) = outbox {
                    self.counters.lose(loss, bundle.spans() as u64);
                    bundle.clear();
                }
            }
        }
    }

    /// Passes a bundle on to the worker; or leaves it, and says why.
    fn deliver(&self, from: &mut Option<Parcel>) -> Result<(), Loss> {
        let Some(bundle) = from else { return Ok(()) };
        let bytes = bundle.bytes_held();
        let mut state = self.lock();
        if self.closed.load(Ordering::Relaxed) {
            return Err(Loss::ShutDown);
        }
        if self.bytes.load(Ordering::Relaxed) + bytes > self.bounds.queue_bytes {
            return Err(Loss::QueueFull);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        bundle.bytes = bytes;
        state.spans += bundle.spans();
        state.bundles.extend(from.take());
        let wake = match state.waits {
            Waits::No => false,
            Waits::ForAny => true,
            Waits::ForBatch => state.spans >= self.bounds.batch_spans,
        };
        if wake {
            self.set_waits(&mut state, Waits::No);
        }
        drop(state);
        if wake {
            self.work.notify_one();
        }
        Ok(())
    }

    fn hurries(&self, state: &State) -> bool {
        self.closed.load(Ordering::Relaxed) || state.flushes_asked > state.flushes_done
    }

    fn set_waits(&self, state: &mut State, waits: Waits) {
        state.waits = waits;
        self.waits_for_any.store(waits == Waits::ForAny, Ordering::Relaxed);
    }

    /// Waits for work. For an export all that there is goes to `taken`, which is empty.
    pub(crate) fn next(&self, taken: &mut VecDeque<Parcel>) -> Work {
        loop {
            let mut state = self.lock();
            self.set_waits(&mut state, Waits::ForBatch);
            let more = |state: &mut State| state.spans < self.bounds.batch_spans && !self.hurries(state);
            let waited = self.work.wait_timeout_while(state, self.bounds.batch_delay, more);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            self.set_waits(&mut state, Waits::No);
            state.spans = 0;
            std::mem::swap(&mut state.bundles, taken);
            let flush = (state.flushes_asked > state.flushes_done).then_some(state.flushes_asked);
            let closed = self.closed.load(Ordering::Relaxed);
            drop(state);
            self.empty_outboxes(taken);
            if !taken.is_empty() {
                return Work::Export;
            }
            if let Some(flush) = flush {
                return Work::Flush(flush);
            }
            if closed {
                return Work::End;
            }
            self.sleep(taken);
            if !taken.is_empty() {
                return Work::Export;
            }
        }
    }

    /// Traces nearly always follow those of the last batch. Only if none came for a while is the worker woken by the
    /// first: what is put into an outbox after it was looked into here is passed on at once.
    fn sleep(&self, taken: &mut VecDeque<Parcel>) {
        let mut state = self.lock();
        self.set_waits(&mut state, Waits::ForAny);
        drop(state);
        self.empty_outboxes(taken);
        if taken.is_empty() {
            let nothing = |state: &mut State| state.bundles.is_empty() && !self.hurries(state);
            drop(self.work.wait_while(self.lock(), nothing));
        }
    }

    /// Takes what has gathered.
    fn empty_outboxes(&self, taken: &mut VecDeque<Parcel>) {
        for outbox in &self.outboxes {
            let Some(mut bundle) = outbox.lock().take_if(|bundle| !bundle.is_empty()) else { continue };
            bundle.bytes = bundle.bytes_held();
            self.bytes.fetch_add(bundle.bytes, Ordering::Relaxed);
            taken.push_back(bundle);
        }
    }

    /// Whole traces, together as many spans as are exported at once, or a little more.
    pub(crate) fn batch(&self, taken: &mut VecDeque<Parcel>) -> Vec<Parcel> {
        let mut spans = 0;
        let mut batch = Vec::new();
        while spans < self.bounds.batch_spans {
            let Some(bundle) = taken.pop_front() else { break };
            spans += bundle.spans();
            batch.push(bundle);
        }
        batch
    }

    /// Gives bundles back that were converted, and are empty.
    pub(crate) fn recycle(&self, mut bundles: Vec<Parcel>) {
        let bytes = bundles.iter().map(|bundle| bundle.bytes).sum();
        bundles.retain(|bundle| bundle.bytes <= SPARE_BYTES_MAX);
        let mut spare = self.lock_spare();
        let room = SPARE_MAX.saturating_sub(spare.len());
        let rest = bundles.split_off(room.min(bundles.len()));
        spare.append(&mut bundles);
        drop(spare);
        drop(rest);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
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
        let state = self.lock();
        self.closed.store(true, Ordering::Relaxed);
        drop(state);
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

#[cfg(test)]
mod tests {
    use opentelemetry::SpanId;
    use tracing::{Dispatch, info_span};
    use tracing_core::span::Id;

    use super::*;
    use crate::layer::SpanRecord;
    use crate::settings::Settings;

    fn queue(change: impl FnOnce(&mut Bounds)) -> Queue {
        let mut bounds = Settings::default().bounds;
        bounds.batch_delay = Duration::ZERO;
        change(&mut bounds);
        Queue::new(bounds, Arc::default())
    }

    fn lost(queue: &Queue) -> (u64, u64) {
        let lost = queue.counters.read().spans_lost;
        (lost.queue_full, lost.shut_down)
    }

    /// A trace of one span with so much text.
    fn trace(text: usize) -> Buffer {
        let registry = Dispatch::new(tracing_subscriber::Registry::default());
        let metadata =
            tracing::dispatcher::with_default(&registry, || info_span!("root").metadata().unwrap());
        let mut trace = Buffer::default();
        trace.push(SpanRecord::new(&Id::from_u64(1), SpanId::from(1), SpanId::INVALID, metadata, 1));
        trace.memory.text = "x".repeat(text);
        trace
    }

    /// Spans that gather, and spans that wait for the worker.
    fn spans(queue: &Queue) -> (usize, usize) {
        let gathered = queue.outboxes.iter().filter_map(|outbox| Some(outbox.lock().as_ref()?.spans())).sum();
        (gathered, queue.lock().bundles.iter().map(|bundle| bundle.spans()).sum())
    }

    #[test]
    fn traces_gather_until_they_are_many() {
        let queue = queue(|_| ());
        for n in 1..OUTBOX_SPANS_MAX {
            queue.push(&mut trace(0));
            assert_eq!(spans(&queue), (n, 0));
        }
        queue.push(&mut trace(0));
        assert_eq!(spans(&queue), (0, OUTBOX_SPANS_MAX));
    }

    #[test]
    fn traces_gather_until_they_are_large() {
        let queue = queue(|_| ());
        let third = OUTBOX_BYTES_MAX / 3;
        for n in 1..=2 {
            queue.push(&mut trace(third));
            assert_eq!(spans(&queue), (n, 0));
        }
        queue.push(&mut trace(third));
        assert_eq!(spans(&queue), (0, 3));
        queue.push(&mut trace(COPIED_BYTES_MAX));
        assert_eq!(spans(&queue), (0, 4), "a large one does not gather");
    }

    /// What is over the bound is shed when it is passed on, and the outbox is empty for what comes then.
    #[test]
    fn the_bound_holds_for_what_gathered() {
        // Memory grows by doubling: three texts take the room of four.
        let queue = queue(|bounds| bounds.queue_bytes = 30_000);
        let third = 15_000 / 3;
        (0..3).for_each(|_| queue.push(&mut trace(third)));
        assert_eq!((spans(&queue), lost(&queue)), ((0, 3), (0, 0)));
        (0..3).for_each(|_| queue.push(&mut trace(third)));
        assert_eq!((spans(&queue), lost(&queue)), ((0, 3), (3, 0)));
        let mut taken = VecDeque::new();
        assert!(matches!(queue.next(&mut taken), Work::Export));
        queue.recycle(taken.into());
        assert_eq!(queue.bytes.load(Ordering::Relaxed), 0);
        queue.push(&mut trace(third));
        assert_eq!((spans(&queue), lost(&queue)), ((1, 0), (3, 0)));
    }

    #[test]
    fn a_closed_queue_takes_nothing() {
        let queue = queue(|_| ());
        queue.push(&mut trace(0));
        queue.close();
        queue.push(&mut trace(0));
        queue.push(&mut trace(COPIED_BYTES_MAX));
        assert_eq!((spans(&queue), lost(&queue)), ((1, 0), (0, 2)));
        let mut taken = VecDeque::new();
        assert!(matches!(queue.next(&mut taken), Work::Export));
        assert_eq!(taken.len(), 1);
        taken.clear();
        assert!(matches!(queue.next(&mut taken), Work::End));
    }

    /// A thread that saw the queue open while it was being closed: what it has gathered is still taken.
    #[test]
    fn what_gathered_before_the_queue_closed_leaves() {
        let queue = queue(|_| ());
        queue.push(&mut trace(0));
        queue.close();
        queue.outboxes.iter().for_each(|outbox| queue.deliver_from(&mut outbox.lock()));
        assert_eq!((spans(&queue), lost(&queue)), ((1, 0), (0, 0)));
        let mut taken = VecDeque::new();
        assert!(matches!(queue.next(&mut taken), Work::Export));
        assert_eq!(taken.len(), 1);
    }
}
