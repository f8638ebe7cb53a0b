//! The queue between the service's threads and the exporter's threads, bounded in bytes and traces.
//!
//! A small trace is copied into a batch with other traces, and the buffer in which it was recorded
//! stays with its thread: memory that another processor has read is slow to write to. Threads are
//! divided into a few groups, and each group fills a batch of its own. When the batch is full, or
//! when a worker collects it, it moves to the list that all threads share.
//!
//! Batches are numbered when they enter the list. A worker takes the lowest numbers first, up to
//! the number of spans for one export. A flush takes the next number, and is done when every batch
//! with a lower one has been exported or lost.
//!
//! # Order
//!
//! A group's lock is taken before the state's. The flags `closed` and `eager` are set under the
//! state's lock and read under a group's lock. The locks order these accesses, so the flags
//! themselves are Relaxed:
//!
//! - `close` sets `closed`; a worker then collects all groups once more. A thread that locks its
//!   group after that collection sees `closed`, because both locked the same group, and sheds its
//!   trace. A thread that locked the group earlier has left its trace there, so the worker collects
//!   it.
//! - A worker sets `eager`, collects all groups and sleeps. A thread that locks its group after
//!   that collection sees `eager`, passes its batch on and wakes the worker. A thread that locked
//!   the group earlier has left its trace there, so the worker collects it.
//!
//! Several workers take turns to wait for work (`is_led`); only the export itself is concurrent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) use self::finish::Ticket;
pub use self::finish::WaitError;
use self::heartbeat::Heartbeats;
pub use self::space::Patience;
use super::list::List;
use crate::bounds::{Bounds, WhenQueueFull};
use crate::record::{Batch, Body, Buffer, Header, Record};
use crate::stats::{Counted, Counters, Loss};
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, lock, wait_for};
use crate::thread;
use astracer_model::text::escaped;

mod finish;
mod heartbeat;
mod space;

#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    groups: [Group; GROUPS],
    /// Bytes and traces of the batches that were passed on and are not converted yet. Relaxed: they
    /// bound the queue and guard no data.
    bytes: AtomicUsize,
    traces: AtomicUsize,
    /// A worker sleeps until there is any work, so batches are passed on at once.
    eager: AtomicBool,
    closed: AtomicBool,
    spare: Mutex<Vec<Box<Batch>>>,
    /// The leading worker waits here.
    work: Condvar,
    /// The other workers wait here.
    turn: Condvar,
    /// Callers of flush and shutdown wait here.
    done: Condvar,
    /// The service's threads wait here for space, if the queue blocks when full.
    space: Condvar,
    pub counters: Arc<Counters>,
    pub bounds: Bounds,
}

#[derive(Debug, Default)]
struct State {
    list: List,
    /// The number for the next batch.
    next_number: u64,
    in_flight: Vec<InFlight>,
    collected: Option<Instant>,
    wake_on: WakeOn,
    is_led: bool,
    blocked: usize,
    /// Requested flushes that no worker has taken, in order. The worker exports every batch below
    /// these numbers without waiting for more spans.
    flushes_asked: VecDeque<u64>,
    /// The flushes up to this number are done.
    flush_done: u64,
    ended: bool,
    heartbeats: Heartbeats,
    deadline: Option<Instant>,
    /// The deadline has passed: the rest is lost.
    abandoned: bool,
    /// Spans that were lost after the queue had accepted them.
    lost: u64,
    /// Exporter calls that failed without losing spans, such as a flush.
    failures: u64,
    last_error: Option<String>,
    last_note: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    /// The lowest number of the export's batches.
    number: u64,
    spans: usize,
}

/// The event that wakes the worker. Other events let it sleep, because waking a thread takes as
/// long as recording a few hundred spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WakeOn {
    #[default]
    Nothing,
    AnySpan,
    FullBatch,
}

/// The number of empty batches that are kept, and the bytes that each may hold.
const SPARE_MAX: usize = 256;
const SPARE_BYTES_MAX: usize = 256 * 1024;
/// A larger trace is handed over with its buffer: copying it costs more than a cold buffer.
const COPIED_BYTES_MAX: usize = 32 * 1024;

/// The batch that a group of threads fills.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Group(Mutex<Option<Box<Batch>>>);

const GROUPS: usize = if cfg!(loom) { 2 } else { 16 };
/// A batch is passed on when it reaches this number of spans or bytes.
const GATHERED_SPANS_MAX: usize = 64;
const GATHERED_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub enum Work {
    Export(Taken),
    /// Everything below this number was exported or lost: flush the exporter.
    Flush(u64),
    Idle,
    End,
}

/// The state of the export queue at the end of an interval. Batches are numbered in the order in
/// which they were queued.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueProgress {
    /// The lowest number that is not exported yet; `u64::MAX` if all are.
    pub outstanding: u64,
    /// The number for the next batch.
    pub next: u64,
    /// The number of spans shed because the queue was full.
    pub shed: u64,
}

impl QueueProgress {
    /// Whether the exporter may have received less since `before` than was kept: spans were shed,
    /// or a batch that waited then still waits.
    pub fn is_held_up(&self, before: &QueueProgress) -> bool {
        self.shed != before.shed || self.outstanding < before.next
    }
}

#[derive(Debug)]
pub struct Taken {
    pub batches: Vec<Box<Batch>>,
    pub counted: Counted,
    /// The lowest of their numbers.
    pub number: u64,
}

impl Queue {
    pub fn new(bounds: Bounds, counters: Arc<Counters>) -> Self {
        Queue { bounds, counters, ..Queue::default() }
    }

    /// Takes a trace, or sheds and counts it; leaves an empty buffer. Returns whether the trace was
    /// taken. Its batch may still be shed when it is full and does not fit the queue.
    pub fn push(&self, header: Header, trace: &mut Buffer) -> bool {
        if trace.bytes_held() <= COPIED_BYTES_MAX {
            return self.gather(|batch| batch.add(header, trace));
        }
        let batch = Box::new(Batch::of(header, trace));
        let counted = batch.counted();
        self.pass_on(&mut Some(batch)).inspect_err(|loss| self.counters.lose(*loss, counted)).is_ok()
    }

    /// As [`Queue::push`], for a span that leaves without the rest of its trace.
    pub fn push_span(&self, header: Header, record: Record, body: Option<&mut Body>) -> bool {
        let mut single = Buffer::default();
        single.append(record, body);
        self.gather(|batch| batch.add(header, &mut single))
    }

    fn gather(&self, add: impl FnOnce(&mut Batch)) -> bool {
        let mut gathered = lock(&self.groups[thread::number() as usize % GROUPS].0);
        // With capacity for a nearly full batch plus one trace.
        let fresh = || Box::new(Batch::with_capacity(GATHERED_SPANS_MAX * 3 / 2));
        let batch = gathered.get_or_insert_with(|| lock(&self.spare).pop().unwrap_or_else(fresh));
        let loss = if self.closed.load(Ordering::Relaxed) {
            Some(Loss::ShutDown)
        } else {
            (self.bounds.when_full == WhenQueueFull::ShedNewest && self.is_full()).then_some(Loss::QueueFull)
        };
        if let Some(loss) = loss {
            // A shed trace goes into a batch too, because the batch counts its spans.
            let mut shed = Batch::default();
            add(&mut shed);
            drop(gathered);
            self.counters.lose(loss, shed.counted());
            return false;
        }
        add(batch);
        let is_full = batch.spans() >= GATHERED_SPANS_MAX.min(self.bounds.batch_spans)
            || batch.traces() >= self.bounds.queue_traces
            || batch.bytes_used() >= GATHERED_BYTES_MAX.min(self.bounds.queue_bytes / 2);
        if is_full || self.eager.load(Ordering::Relaxed) { self.pass_on_or_shed(&mut gathered) } else { true }
    }

    /// Returns whether the batch is passed on, or will be collected.
    fn pass_on_or_shed(&self, gathered: &mut Option<Box<Batch>>) -> bool {
        match self.pass_on(gathered) {
            // `ShutDown`: a worker will still collect the batch.
            Ok(()) | Err(Loss::ShutDown) => true,
            Err(loss) => {
                if let Some(batch) = gathered {
                    self.counters.lose(loss, batch.counted());
                    batch.clear();
                }
                false
            }
        }
    }

    /// Passes a batch on to the workers. On error the batch stays where it is.
    fn pass_on(&self, from: &mut Option<Box<Batch>>) -> Result<(), Loss> {
        let Some(batch) = from else { return Ok(()) };
        let mut state = lock(&self.state);
        if self.closed.load(Ordering::Relaxed) {
            return Err(Loss::ShutDown);
        }
        if !self.fits(batch) {
            return Err(Loss::QueueFull);
        }
        if let Some(batch) = from.take() {
            self.enqueue(&mut state, batch);
        }
        let wake = match state.wake_on {
            WakeOn::Nothing => false,
            WakeOn::AnySpan => true,
            WakeOn::FullBatch => self.has_batch(&state),
        };
        if wake {
            self.set_wake_on(&mut state, WakeOn::Nothing);
        }
        drop(state);
        if wake {
            self.work.notify_one();
        }
        Ok(())
    }

    fn enqueue(&self, state: &mut State, mut batch: Box<Batch>) {
        batch.bytes = batch.bytes_held();
        batch.number = state.next_number;
        state.next_number += 1;
        self.bytes.fetch_add(batch.bytes, Ordering::Relaxed);
        self.traces.fetch_add(batch.traces(), Ordering::Relaxed);
        state.list.push(batch);
    }

    /// Whether there is enough work for an export: the number of spans for one export, or as much
    /// as fills half of the queue, since a full queue sheds traces or blocks the service.
    fn has_batch(&self, state: &State) -> bool {
        state.list.spans >= self.bounds.batch_spans
            || state.list.spans > 0
                && (self.bytes.load(Ordering::Relaxed) >= self.bounds.queue_bytes / 2
                    || self.traces.load(Ordering::Relaxed) >= self.bounds.queue_traces / 2)
    }

    /// Whether the worker must not wait for more spans.
    fn hurries(&self, state: &State) -> bool {
        self.closed.load(Ordering::Relaxed) || state.has_work_for_flush() || state.heartbeats.queued.is_some()
    }

    fn set_wake_on(&self, state: &mut State, wake_on: WakeOn) {
        state.wake_on = wake_on;
        self.eager.store(wake_on == WakeOn::AnySpan, Ordering::Relaxed);
    }

    pub fn next(&self, idle: Duration) -> Work {
        let mut state = lock(&self.state);
        while state.is_led {
            state = wait_for(&self.turn, state, idle);
        }
        state.is_led = true;
        let work = self.lead(state, idle);
        lock(&self.state).is_led = false;
        self.turn.notify_one();
        work
    }

    fn lead(&self, mut state: MutexGuard<'_, State>, idle: Duration) -> Work {
        self.set_wake_on(&mut state, WakeOn::FullBatch);
        let more = |state: &State| !self.has_batch(state) && !self.hurries(state);
        drop(wait_while(&self.work, state, self.bounds.batch_delay, more));
        let work = self.take();
        if !matches!(work, Work::Idle) {
            return work;
        }
        // More traces nearly always follow soon after a batch. So the first one wakes the worker
        // only after a pause: see `eager` in the module documentation.
        self.set_wake_on(&mut lock(&self.state), WakeOn::AnySpan);
        self.collect();
        let nothing = |state: &State| state.list.spans == 0 && !self.hurries(state);
        drop(wait_while(&self.work, lock(&self.state), idle, nothing));
        self.take()
    }

    /// Takes the spans of one export, or other work that is due.
    pub fn take(&self) -> Work {
        let mut state = lock(&self.state);
        self.set_wake_on(&mut state, WakeOn::Nothing);
        // Read before the groups are collected: a trace that ended before the close is then in the
        // groups or in the list.
        let closed = self.closed.load(Ordering::Relaxed);
        let is_due = state.list.spans < self.bounds.batch_spans
            || state.collected.is_none_or(|collected| collected.elapsed() >= self.bounds.batch_delay)
            || closed;
        drop(state);
        if is_due {
            self.collect();
        }
        let mut state = lock(&self.state);
        // Flushes come before an export, which may take minutes and would delay them.
        if let Some(flush) = state.reach_flushes() {
            return Work::Flush(flush);
        }
        let batches = state.list.take(self.bounds.batch_spans);
        let Some(first) = batches.first() else {
            return if closed { Work::End } else { Work::Idle };
        };
        let number = first.number;
        state.in_flight.push(InFlight { number, spans: batches.iter().map(|batch| batch.spans()).sum() });
        drop(state);
        let counted = batches.iter().map(|batch| batch.counted()).sum();
        Work::Export(Taken { batches, counted, number })
    }

    fn collect(&self) {
        for group in &self.groups {
            let mut gathered = lock(&group.0);
            if gathered.as_ref().is_some_and(|batch| batch.spans() > 0)
                && let Some(batch) = gathered.take()
            {
                self.enqueue(&mut lock(&self.state), batch);
            }
        }
        lock(&self.state).collected = Some(Instant::now());
    }

    pub fn release(&self, batches: &[Box<Batch>]) {
        let bytes = batches.iter().map(|batch| batch.bytes).sum();
        let traces = batches.iter().map(|batch| batch.traces()).sum();
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.traces.fetch_sub(traces, Ordering::Relaxed);
        // A blocked thread checks for space and counts itself as blocked under this lock. The space
        // was released before, so that thread either saw the space or is notified.
        if lock(&self.state).blocked > 0 {
            self.space.notify_all();
        }
    }

    pub fn recycle(&self, mut batches: Vec<Box<Batch>>) {
        batches.retain(|batch| batch.bytes <= SPARE_BYTES_MAX);
        batches.iter_mut().for_each(|batch| batch.clear());
        let mut spare = lock(&self.spare);
        let free = SPARE_MAX.saturating_sub(spare.len());
        let rest = batches.split_off(free.min(batches.len()));
        spare.append(&mut batches);
        drop(spare);
        drop(rest);
    }

    /// Notes that an export is done and its spans are counted; `lost` of them were lost. Returns a
    /// flush for the caller to carry out, if this export completes one.
    pub fn exported(&self, number: u64, lost: u64, error: Option<String>) -> Option<u64> {
        let mut state = lock(&self.state);
        state.in_flight.retain(|export| export.number != number);
        state.lost += lost;
        if error.is_some() {
            state.last_error = error.as_deref().map(|error| escaped(error).into_owned());
        }
        state.reach_flushes()
    }

    /// The figures that steer a budget.
    pub fn progress(&self) -> QueueProgress {
        let shed = self.counters.read().spans_lost.queue_full;
        let state = lock(&self.state);
        QueueProgress { outstanding: state.outstanding(), next: state.next_number, shed }
    }

    /// Counts the spans in the groups and in the list.
    #[cfg(all(test, not(loom)))]
    pub(super) fn held(&self) -> Counted {
        let gathers = |group: &Group| -> Counted { lock(&group.0).iter().map(|batch| batch.counted()).sum() };
        let gathered: Counted = self.groups.iter().map(gathers).sum();
        gathered + lock(&self.state).list.counted()
    }
}

impl State {
    fn outstanding(&self) -> u64 {
        let in_flight = self.in_flight.iter().map(|export| export.number).min();
        let waiting = self.list.first_number();
        in_flight.into_iter().chain(waiting).min().unwrap_or(u64::MAX)
    }

    fn ticket(&self, number: u64) -> Ticket {
        Ticket { number, lost: self.lost, failures: self.failures }
    }

    fn spans_below(&self, number: u64) -> u64 {
        let in_flight = self.in_flight.iter().filter(|export| export.number < number);
        (in_flight.map(|export| export.spans).sum::<usize>() + self.list.spans_below(number)) as u64
    }
}

/// Waits while `unfinished` returns true, for at most `timeout`.
fn wait_while<'s>(
    condition: &Condvar,
    mut state: MutexGuard<'s, State>,
    timeout: Duration,
    unfinished: impl Fn(&State) -> bool,
) -> MutexGuard<'s, State> {
    let start = Instant::now();
    while unfinished(&state) {
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        state = wait_for(condition, state, left);
    }
    state
}

#[cfg(all(test, loom))]
mod loom_models;

#[cfg(all(test, not(loom)))]
mod tests {
    use opentelemetry::SpanId;

    use super::*;
    use crate::test_callsite::METADATA;

    /// A batch of one trace with this number of spans.
    fn batch(spans: u64) -> Option<Box<Batch>> {
        let mut trace = Buffer::default();
        for number in 1..=spans {
            let mut record = Record::new(&METADATA, (SpanId::from(number), SpanId::INVALID), (1, 2), None, 1);
            record.is_local_root = number == 1;
            trace.append(record, None);
        }
        Some(Box::new(Batch::of(Header::default(), &mut trace)))
    }

    fn queue(traces: usize) -> Queue {
        let bounds = Bounds { queue_traces: traces, ..Bounds::default() };
        Queue::new(bounds, Arc::new(Counters::default()))
    }

    /// The close came after the thread had put its trace into the group's batch. The worker's last
    /// collection finds it there.
    #[test]
    fn a_batch_that_meets_the_close_waits_for_the_worker() {
        let queue = queue(10);
        queue.close();
        let mut gathered = batch(3);
        assert!(queue.pass_on_or_shed(&mut gathered), "taken");
        assert_eq!(gathered.as_ref().map(|batch| batch.spans()), Some(3));
        assert_eq!(queue.counters.read().spans_lost.total(), 0);
        *lock(&queue.groups[0].0) = gathered;
        let Work::Export(taken) = queue.take() else { panic!("nothing was collected") };
        assert_eq!(taken.counted.spans, 3);
        assert!(matches!(queue.take(), Work::End));
    }

    #[test]
    fn an_interval_is_held_up_by_what_waits_or_was_shed() {
        let before = QueueProgress { outstanding: 3, next: 5, shed: 7 };
        for (now, is_held_up) in [
            // A batch that waited then, number 4, still waits.
            (QueueProgress { outstanding: 4, next: 9, shed: 7 }, true),
            (QueueProgress { outstanding: 5, next: 9, shed: 7 }, false),
            (QueueProgress { outstanding: u64::MAX, next: 5, shed: 7 }, false),
            (QueueProgress { outstanding: u64::MAX, next: 5, shed: 8 }, true),
        ] {
            assert_eq!(now.is_held_up(&before), is_held_up, "{now:?}");
        }
    }

    /// Half of the queue, in traces or in bytes, is enough for an export: a full queue sheds.
    #[test]
    fn half_of_the_queue_does_not_wait_for_more() {
        let bytes = batch(1).map_or(0, |batch| batch.bytes_held());
        let wide =
            Bounds { queue_traces: 1_000, queue_bytes: 1 << 20, batch_spans: 1_000, ..Bounds::default() };
        for (bounds, enough) in [
            (Bounds { queue_traces: 6, ..wide }, 3),
            (Bounds { queue_bytes: 6 * bytes, ..wide }, 3),
            (Bounds { batch_spans: 4, ..wide }, 4),
        ] {
            let queue = Queue::new(bounds, Arc::new(Counters::default()));
            for number in 1..=enough {
                queue.pass_on(&mut batch(1)).unwrap();
                assert_eq!(queue.has_batch(&lock(&queue.state)), number == enough, "{number} of {bounds:?}");
            }
        }
    }

    /// A batch with as many traces as the queue holds leaves its group, although it has few spans.
    #[test]
    fn a_group_gathers_no_more_traces_than_the_queue_holds() {
        let queue = queue(2);
        for (number, passed_on) in [(1, 0), (2, 2)] {
            let record = Record::new(&METADATA, (SpanId::from(number), SpanId::INVALID), (1, 2), None, 1);
            assert!(queue.push_span(Header::default(), record, None));
            assert_eq!(lock(&queue.state).list.spans, passed_on);
        }
    }

    #[test]
    fn large_batches_are_not_kept_for_reuse() {
        let queue = queue(10);
        let sized = |bytes: usize| {
            let mut batch = batch(1).unwrap();
            batch.bytes = bytes;
            batch
        };
        queue.recycle(vec![sized(SPARE_BYTES_MAX), sized(SPARE_BYTES_MAX + 1)]);
        let spare = lock(&queue.spare);
        assert_eq!(
            spare.iter().map(|batch| (batch.bytes, batch.spans())).collect::<Vec<_>>(),
            [(SPARE_BYTES_MAX, 0)]
        );
    }

    #[test]
    fn the_earliest_deadline_of_a_shutdown_holds() {
        let (queue, now) = (queue(10), Instant::now());
        for (seconds, earliest) in [(20, 20), (10, 10), (30, 10)] {
            queue.end_by(now + Duration::from_secs(seconds));
            assert_eq!(lock(&queue.state).deadline, Some(now + Duration::from_secs(earliest)));
        }
    }

    /// One trace would leave with its own buffer, the other would be gathered.
    #[test]
    fn traces_that_end_after_the_close_are_lost_by_it() {
        for spans in [1, 10_000] {
            let queue = queue(10);
            queue.close();
            let mut trace = Buffer::default();
            for number in 1..=spans {
                let ids = (SpanId::from(number), SpanId::INVALID);
                trace.append(Record::new(&METADATA, ids, (1, 2), None, 1), None);
            }
            assert!(!queue.push(Header::default(), &mut trace));
            assert_eq!(trace.records.len(), 0);
            let lost = queue.counters.read().spans_lost;
            assert_eq!((lost.shut_down, lost.total()), (spans, spans));
        }
    }

    #[test]
    fn a_batch_that_does_not_fit_is_shed_and_its_memory_reused() {
        let queue = queue(1);
        assert!(queue.pass_on_or_shed(&mut batch(2)));
        let mut second = batch(3);
        assert!(!queue.pass_on_or_shed(&mut second), "shed");
        assert_eq!(second.map(|batch| batch.spans()), Some(0));
        let lost = queue.counters.read().spans_lost;
        assert_eq!((lost.queue_full, lost.total()), (3, 3));
        assert_eq!(queue.held().spans, 2);
    }
}
