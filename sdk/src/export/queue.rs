//! The queue between the service's threads and the exporter's: bounded in bytes. A full queue sheds what a trace hands
//! over, whole.
//!
//! A small trace is copied into a batch with others, and the buffer that it was recorded in stays with its thread:
//! memory that another processor has read is slow to write to. Each of a few groups of threads *gathers* a batch of its
//! own, which goes to the list that all threads share when it is full, or when the worker collects it.
//!
//! # Order
//!
//! A group's lock is taken before the state's. The flags `closed` and `eager` are set under the state's lock and read
//! under a group's:
//!
//! - `close` sets `closed`; the worker then collects all groups once more. A thread that locks its group after that sees
//!   `closed` (both locked the same group) and sheds its trace; one that did before left its trace where it is collected.
//! - the worker sets `eager`, collects all groups and sleeps. A thread that locks its group after that sees `eager`, and
//!   passes its batch on and wakes the worker; one that did before left its trace where it is collected.

// A batch moves between lists and threads: its address is moved, not its contents.
#![allow(clippy::vec_box)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::record::{Batch, Body, Buffer, Header, Record};
use crate::settings::Bounds;
use crate::stats::{Counted, Counters, Loss};
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, lock, wait_for};
use crate::thread;

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    groups: [Group; GROUPS],
    /// Bytes of batches that are passed on and not yet converted.
    bytes: AtomicUsize,
    /// The worker sleeps until there is something: no batch gathers.
    eager: AtomicBool,
    /// No more traces are taken.
    closed: AtomicBool,
    /// Empty batches, to be used again.
    spare: Mutex<Vec<Box<Batch>>>,
    /// The worker waits here.
    work: Condvar,
    /// Callers of flush and shutdown wait here.
    done: Condvar,
    counters: Arc<Counters>,
    bounds: Bounds,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Box<Batch>>,
    spans: usize,
    waits: Waits,
    flushes_asked: u64,
    /// The flushes up to this number are done; the worker is gone if it is the highest number.
    flushes_done: u64,
    ended: bool,
    /// The number of failed calls of the exporter, and the last error.
    failures: u64,
    last_error: Option<String>,
}

/// The event that the worker waits for, so that it is woken for nothing else: to wake a thread takes as long as to
/// record some hundred spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waits {
    #[default]
    No,
    ForAny,
    ForBatch,
}

/// The number of empty batches kept, and the bytes that each may hold.
const SPARE_MAX: usize = 256;
const SPARE_BYTES_MAX: usize = 256 * 1024;
/// A larger trace is handed over with its buffer: to copy it costs more than a cold buffer.
const COPIED_BYTES_MAX: usize = 32 * 1024;

/// The batch that some threads gather.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Group(Mutex<Option<Box<Batch>>>);

const GROUPS: usize = if cfg!(loom) { 2 } else { 16 };
/// A batch is passed on when it has this number of spans or of bytes.
const GATHERED_SPANS_MAX: usize = 64;
const GATHERED_BYTES_MAX: usize = 64 * 1024;

/// With memory for a batch that is nearly full and a trace more.
fn fresh() -> Box<Batch> {
    Box::new(Batch::with_capacity(GATHERED_SPANS_MAX * 3 / 2))
}

/// The worker's next step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Export what was taken. If it was taken after a flush was asked for, that flush is done then.
    Export {
        flush: Option<u64>,
    },
    /// Nothing came for a while.
    Idle,
    End,
}

/// The reason why waiting for the worker was in vain.
#[derive(Debug)]
pub(crate) enum WaitError {
    TimedOut,
    /// The exporter failed while the caller waited.
    Failed(String),
}

impl Queue {
    pub(crate) fn new(bounds: Bounds, counters: Arc<Counters>) -> Self {
        Queue {
            state: Mutex::default(),
            groups: Default::default(),
            bytes: AtomicUsize::new(0),
            eager: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            spare: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            counters,
            bounds,
        }
    }

    /// Takes a trace, or sheds and counts it; leaves an empty buffer.
    pub(crate) fn push(&self, header: Header, trace: &mut Buffer) {
        if trace.bytes_held() <= COPIED_BYTES_MAX {
            return self.gather(|batch| batch.add(header, trace));
        }
        let batch = Box::new(Batch::of(header, trace));
        let counted = counted(&batch);
        if let Err(loss) = self.pass_on(&mut Some(batch)) {
            self.counters.lose(loss, counted);
        }
    }

    /// As [`Queue::push`], for a span that leaves without the rest of its trace.
    pub(crate) fn push_span(&self, header: Header, record: Record, body: Option<&mut Body>) {
        self.gather(|batch| batch.add_span(header, record, body));
    }

    fn gather(&self, add: impl FnOnce(&mut Batch)) {
        let mut gathered = lock(&self.groups[thread::number() as usize % GROUPS].0);
        // The batch is asked even if it is shed: it counts the spans.
        let batch = gathered.get_or_insert_with(|| lock(&self.spare).pop().unwrap_or_else(fresh));
        let loss = if self.closed.load(Ordering::Relaxed) {
            Some(Loss::ShutDown)
        } else {
            (self.bytes.load(Ordering::Relaxed) >= self.bounds.queue_bytes).then_some(Loss::QueueFull)
        };
        if let Some(loss) = loss {
            let mut shed = Batch::default();
            add(&mut shed);
            drop(gathered);
            return self.counters.lose(loss, counted(&shed));
        }
        add(batch);
        let is_full = batch.spans() >= GATHERED_SPANS_MAX.min(self.bounds.batch_spans)
            || batch.bytes_used() >= GATHERED_BYTES_MAX.min(self.bounds.queue_bytes / 2);
        if is_full || self.eager.load(Ordering::Relaxed) {
            self.pass_on_or_shed(&mut gathered);
        }
    }

    fn pass_on_or_shed(&self, gathered: &mut Option<Box<Batch>>) {
        match self.pass_on(gathered) {
            // The worker will still collect it.
            Ok(()) | Err(Loss::ShutDown) => {}
            Err(loss) => {
                if let Some(batch) = gathered {
                    self.counters.lose(loss, counted(batch));
                    batch.clear();
                }
            }
        }
    }

    /// Passes a batch on to the worker; or leaves it, and says why.
    fn pass_on(&self, from: &mut Option<Box<Batch>>) -> Result<(), Loss> {
        let Some(batch) = from else { return Ok(()) };
        let bytes = batch.bytes_held();
        let mut state = lock(&self.state);
        if self.closed.load(Ordering::Relaxed) {
            return Err(Loss::ShutDown);
        }
        if self.bytes.load(Ordering::Relaxed) + bytes > self.bounds.queue_bytes {
            return Err(Loss::QueueFull);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        batch.bytes = bytes;
        state.spans += batch.spans();
        state.batches.extend(from.take());
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

    /// Whether the worker shall not wait for more.
    fn hurries(&self, state: &State) -> bool {
        self.closed.load(Ordering::Relaxed) || state.flushes_asked > state.flushes_done
    }

    fn set_waits(&self, state: &mut State, waits: Waits) {
        state.waits = waits;
        self.eager.store(waits == Waits::ForAny, Ordering::Relaxed);
    }

    /// Waits for work, at most for `idle` if there is none. For an export everything that there is goes to `taken`, which
    /// is empty.
    pub(crate) fn next(&self, taken: &mut VecDeque<Box<Batch>>, idle: Duration) -> Work {
        let mut state = lock(&self.state);
        self.set_waits(&mut state, Waits::ForBatch);
        let more = |state: &State| state.spans < self.bounds.batch_spans && !self.hurries(state);
        wait_while(&self.work, state, self.bounds.batch_delay, more);
        let work = self.take(taken);
        if work != Work::Idle {
            return work;
        }
        // Traces nearly always follow those of the last batch. Only if none came for a while is the worker woken by the
        // first: see the module on `eager`.
        self.set_waits(&mut lock(&self.state), Waits::ForAny);
        self.collect(taken);
        if taken.is_empty() {
            let nothing = |state: &State| state.batches.is_empty() && !self.hurries(state);
            wait_while(&self.work, lock(&self.state), idle, nothing);
        }
        self.take(taken)
    }

    /// Takes everything that there is.
    pub(crate) fn take(&self, taken: &mut VecDeque<Box<Batch>>) -> Work {
        let mut state = lock(&self.state);
        self.set_waits(&mut state, Waits::No);
        state.spans = 0;
        taken.append(&mut state.batches);
        // Read before the groups are collected: what ended before a flush, or the close, is in them or was taken here.
        let flush = (state.flushes_asked > state.flushes_done).then_some(state.flushes_asked);
        let closed = self.closed.load(Ordering::Relaxed);
        drop(state);
        self.collect(taken);
        match () {
            () if flush.is_some() || !taken.is_empty() => Work::Export { flush },
            () if closed => Work::End,
            () => Work::Idle,
        }
    }

    /// Takes the batches that gather.
    fn collect(&self, taken: &mut VecDeque<Box<Batch>>) {
        for group in &self.groups {
            let mut gathered = lock(&group.0);
            if gathered.as_ref().is_none_or(|batch| batch.is_empty()) {
                continue;
            }
            let Some(mut batch) = gathered.take() else { continue };
            batch.bytes = batch.bytes_held();
            self.bytes.fetch_add(batch.bytes, Ordering::Relaxed);
            taken.push_back(batch);
        }
    }

    /// Batches of whole traces, together as many spans as are exported at once, or a little more.
    pub(crate) fn split(&self, taken: &mut VecDeque<Box<Batch>>) -> Vec<Box<Batch>> {
        let mut spans = 0;
        let mut batches = Vec::new();
        while spans < self.bounds.batch_spans {
            let Some(batch) = taken.pop_front() else { break };
            spans += batch.spans();
            batches.push(batch);
        }
        batches
    }

    /// Gives batches back that were converted.
    pub(crate) fn recycle(&self, mut batches: Vec<Box<Batch>>) {
        let bytes = batches.iter().map(|batch| batch.bytes).sum();
        batches.retain(|batch| batch.bytes <= SPARE_BYTES_MAX);
        batches.iter_mut().for_each(|batch| batch.clear());
        let mut spare = lock(&self.spare);
        let free = SPARE_MAX.saturating_sub(spare.len());
        let rest = batches.split_off(free.min(batches.len()));
        spare.append(&mut batches);
        drop(spare);
        drop(rest);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn flushed(&self, flush: u64) {
        let mut state = lock(&self.state);
        state.flushes_done = state.flushes_done.max(flush);
        drop(state);
        self.done.notify_all();
    }

    /// The worker is gone, or there is none.
    pub(crate) fn ended(&self) {
        lock(&self.state).ended = true;
        self.done.notify_all();
    }

    pub(crate) fn failed(&self, error: String) {
        let mut state = lock(&self.state);
        state.failures += 1;
        state.last_error = Some(error);
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        lock(&self.state).last_error.clone()
    }

    /// Asks for everything that has ended to be exported.
    pub(crate) fn ask_flush(&self) -> FlushTicket {
        let mut state = lock(&self.state);
        if !state.ended {
            state.flushes_asked += 1;
        }
        let ticket = FlushTicket { number: state.flushes_asked, failures: state.failures };
        drop(state);
        self.work.notify_one();
        ticket
    }

    /// Takes no more traces. Those that are queued are still exported.
    pub(crate) fn close(&self) {
        let state = lock(&self.state);
        self.closed.store(true, Ordering::Relaxed);
        drop(state);
        self.work.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The number of failures so far.
    pub(crate) fn failures(&self) -> u64 {
        lock(&self.state).failures
    }

    pub(crate) fn wait_for_flush(&self, ticket: FlushTicket, timeout: Duration) -> Result<(), WaitError> {
        self.wait(ticket.failures, timeout, |state| state.flushes_done < ticket.number && !state.ended)
    }

    pub(crate) fn wait_for_end(&self, failures: u64, timeout: Duration) -> Result<(), WaitError> {
        self.wait(failures, timeout, |state| !state.ended)
    }

    fn wait(
        &self,
        failures: u64,
        timeout: Duration,
        unfinished: impl Fn(&State) -> bool,
    ) -> Result<(), WaitError> {
        let start = Instant::now();
        let mut state: MutexGuard<'_, State> = lock(&self.state);
        while unfinished(&state) {
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(WaitError::TimedOut);
            }
            state = wait_for(&self.done, state, left);
        }
        if state.failures > failures {
            return Err(WaitError::Failed(state.last_error.clone().unwrap_or_default()));
        }
        Ok(())
    }
}

/// Waits while `unfinished` says so, at most for `timeout`.
fn wait_while(
    condition: &Condvar,
    mut state: MutexGuard<'_, State>,
    timeout: Duration,
    unfinished: impl Fn(&State) -> bool,
) {
    let start = Instant::now();
    while unfinished(&state) {
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            return;
        }
        state = wait_for(condition, state, left);
    }
}

/// A flush that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushTicket {
    number: u64,
    /// The number of failures when it was asked for.
    failures: u64,
}

pub(crate) fn counted(batch: &Batch) -> Counted {
    Counted { spans: batch.spans() as u64, roots: batch.roots() }
}

#[cfg(all(test, loom))]
mod loom_models {
    //! loom models of the hand-over. Run by `cargo xtask loom`.

    use loom::thread;
    use opentelemetry::{SpanId, TraceFlags, TraceId};
    use tracing_core::callsite::DefaultCallsite;
    use tracing_core::metadata::Kind;
    use tracing_core::{Level, Metadata};

    use super::*;
    use crate::record::Ending;
    use crate::settings::Settings;

    static METADATA: Metadata<'static> = tracing_core::metadata! {
        name: "model",
        target: module_path!(),
        level: Level::INFO,
        fields: &[],
        callsite: &CALLSITE,
        kind: Kind::SPAN
    };

    static CALLSITE: DefaultCallsite = DefaultCallsite::new(&METADATA);

    fn queue() -> loom::sync::Arc<Queue> {
        loom::sync::Arc::new(Queue::new(Settings::default().bounds, Arc::default()))
    }

    fn push(queue: &Queue) {
        let header = Header { trace_id: TraceId::from(1), flags: TraceFlags::SAMPLED, state: None, began: 1 };
        let ids = (SpanId::from(1), SpanId::INVALID);
        let record = Record::new(&METADATA, ids, 1, Ending { time: 2, busy: None }, 1);
        queue.push_span(header, record, None);
    }

    fn spans(taken: &VecDeque<Box<Batch>>) -> u64 {
        taken.iter().map(|batch| batch.spans() as u64).sum()
    }

    /// A span ends while the queue is closed: it is exported, or counted as lost.
    #[test]
    fn loom_a_span_at_the_shutdown_is_exported_or_counted() {
        loom::model(|| {
            let queue = queue();
            let other = queue.clone();
            let ends = thread::spawn(move || push(&other));
            queue.close();
            // The worker's loop, from the close on: it ends when there is nothing left.
            let (mut taken, mut exported) = (VecDeque::new(), 0);
            while queue.take(&mut taken) != Work::End {
                exported += spans(&taken);
                taken.clear();
            }
            ends.join().unwrap();
            let lost = queue.counters.read().spans_lost.total();
            assert_eq!(exported + lost, 1);
        });
    }

    /// The worker falls asleep while a span ends: it is woken, or has seen the span.
    #[test]
    fn loom_the_worker_does_not_sleep_on_a_span() {
        loom::model(|| {
            let queue = queue();
            let other = queue.clone();
            let ends = thread::spawn(move || push(&other));
            let mut taken = VecDeque::new();
            // As in `Queue::next`, when nothing came for a while. Without the wake-up this waits for ever.
            queue.set_waits(&mut lock(&queue.state), Waits::ForAny);
            queue.collect(&mut taken);
            if taken.is_empty() {
                let nothing = |state: &State| state.batches.is_empty() && !queue.hurries(state);
                wait_while(&queue.work, lock(&queue.state), Duration::from_secs(3_600), nothing);
            }
            queue.take(&mut taken);
            assert_eq!(spans(&taken), 1);
            ends.join().unwrap();
        });
    }

    /// A flush is asked for after a span has ended: the export that completes it has the span.
    #[test]
    fn loom_a_flush_covers_the_spans_before_it() {
        loom::model(|| {
            let queue = queue();
            let other = queue.clone();
            let flushes = thread::spawn(move || {
                push(&other);
                let ticket = other.ask_flush();
                other.wait_for_flush(ticket, Duration::from_secs(3_600)).unwrap();
                other.counters.read().spans_exported
            });
            let mut taken = VecDeque::new();
            loop {
                if let Work::Export { flush } = queue.take(&mut taken) {
                    queue.counters.exported(Counted { spans: spans(&taken), roots: 0 });
                    taken.clear();
                    if let Some(flush) = flush {
                        queue.flushed(flush);
                        break;
                    }
                }
                thread::yield_now();
            }
            assert_eq!(flushes.join().unwrap(), 1);
        });
    }
}
