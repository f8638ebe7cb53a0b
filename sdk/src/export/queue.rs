//! The queue between the service's threads and the exporter's: bounded in bytes and traces.
//!
//! A small trace is copied into a batch with others, and the buffer that it was recorded in stays
//! with its thread: memory that another processor has read is slow to write to. Each of a few
//! groups of threads *gathers* a batch of its own, which goes to the lists that all threads share
//! when it is full, or when a worker collects it.
//!
//! Batches are numbered when they come to the lists. A worker takes the lowest numbers first, as
//! many spans as are exported at once; the rest stays in the lists, where [`WhenFull`] may shed it.
//! A flush is done when every batch below its number has been exported or lost.
//!
//! # Order
//!
//! A group's lock is taken before the state's. The flags `closed` and `eager` are set under the
//! state's lock and read under a group's:
//!
//! - `close` sets `closed`; a worker then collects all groups once more. A thread that locks its
//!   group after that sees `closed` (both locked the same group) and sheds its trace; one that did
//!   before left its trace where it is collected.
//! - a worker sets `eager`, collects all groups and sleeps. A thread that locks its group after
//!   that sees `eager`, and passes its batch on and wakes the worker; one that did before left its
//!   trace where it is collected.
//!
//! Several workers take turns in waiting for work (`is_led`): only the export itself is concurrent.

// A batch moves between lists and threads: its address is moved, not its contents.
#![allow(clippy::vec_box)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::heartbeat::Heartbeats;
use super::lists::{CLASSES, Held, Lists};
use super::ticket::Ticket;
use crate::record::{Batch, Body, Buffer, Header, Record, weight_class};
use crate::settings::{Bounds, WhenFull};
use crate::stats::{Counted, Counters, Loss};
use crate::steering::Flow;
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, lock, wait_for};
use crate::thread;

mod finish;
mod heartbeat;

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    groups: [Group; GROUPS],
    /// Bytes and traces of batches that are passed on and not yet converted.
    bytes: AtomicUsize,
    traces: AtomicUsize,
    /// A worker sleeps until there is something: no batch gathers.
    eager: AtomicBool,
    /// No more traces are taken.
    closed: AtomicBool,
    /// Empty batches, to be used again.
    spare: Mutex<Vec<Box<Batch>>>,
    /// The worker that leads waits here.
    work: Condvar,
    /// Workers that do not lead wait here.
    turn: Condvar,
    /// Callers of flush and shutdown wait here.
    done: Condvar,
    /// The service's threads wait here, if they are to wait for space.
    space: Condvar,
    counters: Arc<Counters>,
    bounds: Bounds,
}

#[derive(Debug)]
struct State {
    lists: Lists,
    /// The number of the next batch.
    next_number: u64,
    /// Exports under way.
    in_flight: Vec<InFlight>,
    /// Time of the last collection of the groups.
    collected: Instant,
    waits: Waits,
    /// A worker waits for work, or takes it.
    is_led: bool,
    /// Threads of the service that wait for space.
    blocked: usize,
    /// Flushes that are asked for, and that no worker has taken up, in order: every batch below
    /// these numbers is to be exported without waiting for more.
    flushes_asked: VecDeque<u64>,
    /// The flushes up to this number are done; no worker is left if it is the highest number.
    flush_done: u64,
    ended: bool,
    heartbeats: Heartbeats,
    /// The deadline of the shutdown, if it has one.
    deadline: Option<Instant>,
    /// It has passed: the rest is lost.
    abandoned: bool,
    /// Spans that were lost after the queue had taken them.
    lost: u64,
    /// Failed calls of the exporter that cost no span, such as a failed flush.
    failures: u64,
    last_error: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    /// The lowest number of its batches.
    number: u64,
    spans: usize,
}

/// The event that the worker waits for, so that it is woken for nothing else: to wake a thread
/// takes as long as to record some hundred spans.
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

/// The batches that some threads gather: one, or one for each class of weights.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Group(Mutex<[Option<Box<Batch>>; CLASSES]>);

const GROUPS: usize = if cfg!(loom) { 2 } else { 16 };
/// A batch is passed on when it has this number of spans or bytes.
const GATHERED_SPANS_MAX: usize = 64;
const GATHERED_BYTES_MAX: usize = 64 * 1024;

/// With memory for a batch that is nearly full and a trace more.
fn fresh() -> Box<Batch> {
    Box::new(Batch::with_capacity(GATHERED_SPANS_MAX * 3 / 2))
}

/// A worker's next step.
#[derive(Debug)]
pub(crate) enum Work {
    /// Export this.
    Export(Taken),
    /// Everything below this number is exported or lost: flush the exporter.
    Flush(u64),
    /// Nothing came for a while.
    Idle,
    End,
}

/// The time that a thread may wait for space, where the service's threads are to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// The service's threads'.
    Full,
    /// No longer than until then.
    Until(Instant),
    /// None: it may be a worker, which makes the space itself.
    None,
}

impl Patience {
    /// Whether the time is over that it had.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Patience::Until(end) if Instant::now() >= end)
    }
}

/// Batches for one export.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) batches: Vec<Box<Batch>>,
    pub(crate) counted: Counted,
    /// The lowest number of them.
    pub(crate) number: u64,
}

impl Queue {
    pub(crate) fn new(bounds: Bounds, counters: Arc<Counters>) -> Self {
        let state = State {
            lists: Lists::default(),
            next_number: 0,
            in_flight: Vec::new(),
            collected: Instant::now(),
            waits: Waits::default(),
            is_led: false,
            blocked: 0,
            flushes_asked: VecDeque::new(),
            flush_done: 0,
            ended: false,
            heartbeats: Heartbeats::default(),
            deadline: None,
            abandoned: false,
            lost: 0,
            failures: 0,
            last_error: None,
        };
        Queue {
            state: Mutex::new(state),
            groups: Default::default(),
            bytes: AtomicUsize::new(0),
            traces: AtomicUsize::new(0),
            eager: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            spare: Mutex::default(),
            work: Condvar::new(),
            turn: Condvar::new(),
            done: Condvar::new(),
            space: Condvar::new(),
            counters,
            bounds,
        }
    }

    /// Waits for space, if the service's threads are to wait. The caller holds no lock: a worker
    /// may need any to make space.
    #[inline]
    pub(crate) fn wait_for_space(&self) {
        self.wait_patiently(Patience::Full);
    }

    /// As [`Queue::wait_for_space`], for as long as the caller may.
    #[inline]
    pub(crate) fn wait_patiently(&self, patience: Patience) {
        if let WhenFull::Block(deadline) = self.bounds.when_full
            && self.is_full()
        {
            match patience {
                Patience::Full => self.block(deadline),
                Patience::Until(end) => {
                    self.block(deadline.min(end.saturating_duration_since(Instant::now())));
                }
                Patience::None => {}
            }
        }
    }

    /// Whether a thread that hands a trace over now is to wait.
    pub(crate) fn makes_wait(&self) -> bool {
        matches!(self.bounds.when_full, WhenFull::Block(_)) && self.is_full()
    }

    #[cold]
    fn block(&self, deadline: Duration) {
        let start = Instant::now();
        let mut state = lock(&self.state);
        while self.is_full() && !self.closed.load(Ordering::Relaxed) {
            let left = deadline.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            state.blocked += 1;
            state = wait_for(&self.space, state, left);
            state.blocked -= 1;
        }
    }

    fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.bounds.queue_bytes
            || self.traces.load(Ordering::Relaxed) >= self.bounds.queue_traces
    }

    /// Returns true if a batch fits beside what is there, once `shed` has left.
    fn fits(&self, (bytes, traces): (usize, usize), shed: Held) -> bool {
        // Threads that were let in at the same time may meet a queue that is full again. Their wait
        // is not in vain.
        let factor = if matches!(self.bounds.when_full, WhenFull::Block(_)) { 2 } else { 1 };
        let fits = |held: &AtomicUsize, more: usize, less: usize, max: usize| {
            (held.load(Ordering::Relaxed) + more).saturating_sub(less) <= max.saturating_mul(factor)
        };
        fits(&self.bytes, bytes, shed.bytes, self.bounds.queue_bytes)
            && fits(&self.traces, traces, shed.traces, self.bounds.queue_traces)
    }

    /// Takes a trace, or sheds and counts it; leaves an empty buffer. Returns whether it took it:
    /// it may still make room for others.
    pub(crate) fn push(&self, header: Header, trace: &mut Buffer) -> bool {
        let class = self.class_of(&header);
        if trace.bytes_held() <= COPIED_BYTES_MAX {
            return self.gather(class, |batch| batch.add(header, trace));
        }
        let mut batch = Box::new(Batch::of(header, trace));
        batch.class = class;
        let counted = batch.counted();
        let passed_on = self.pass_on(&mut Some(batch));
        if let Err(loss) = passed_on {
            self.counters.lose(loss, counted);
        }
        passed_on.is_ok()
    }

    /// As [`Queue::push`], for a span that leaves without the rest of its trace.
    pub(crate) fn push_span(&self, header: Header, record: Record, body: Option<&mut Body>) -> bool {
        let class = self.class_of(&header);
        self.gather(class, |batch| batch.add_span(header, record, body))
    }

    fn class_of(&self, header: &Header) -> u8 {
        match self.bounds.when_full {
            WhenFull::ShedLowestWeight => weight_class(header, CLASSES),
            _ => 0,
        }
    }

    fn gather(&self, class: u8, add: impl FnOnce(&mut Batch)) -> bool {
        let mut group = lock(&self.groups[thread::number() as usize % GROUPS].0);
        let gathered = &mut group[usize::from(class) % CLASSES];
        // The batch is asked even if it is shed: it counts the spans.
        let batch = gathered.get_or_insert_with(|| lock(&self.spare).pop().unwrap_or_else(fresh));
        let loss = if self.closed.load(Ordering::Relaxed) {
            Some(Loss::ShutDown)
        } else {
            (self.bounds.when_full == WhenFull::ShedNewest && self.is_full()).then_some(Loss::QueueFull)
        };
        if let Some(loss) = loss {
            let mut shed = Batch::default();
            add(&mut shed);
            drop(group);
            self.counters.lose(loss, shed.counted());
            return false;
        }
        add(batch);
        batch.class = class;
        let is_full = batch.spans() >= GATHERED_SPANS_MAX.min(self.bounds.batch_spans)
            || batch.traces() >= self.bounds.queue_traces
            || batch.bytes_used() >= GATHERED_BYTES_MAX.min(self.bounds.queue_bytes / 2);
        if is_full || self.eager.load(Ordering::Relaxed) { self.pass_on_or_shed(gathered) } else { true }
    }

    /// Returns whether the batch is passed on, or will be.
    fn pass_on_or_shed(&self, gathered: &mut Option<Box<Batch>>) -> bool {
        match self.pass_on(gathered) {
            // A worker will still collect it.
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

    /// Passes a batch on to the workers; or leaves it, and says why.
    fn pass_on(&self, from: &mut Option<Box<Batch>>) -> Result<(), Loss> {
        let Some(batch) = from else { return Ok(()) };
        let size = (batch.bytes_held(), batch.traces());
        let mut state = lock(&self.state);
        if self.closed.load(Ordering::Relaxed) {
            return Err(Loss::ShutDown);
        }
        // Nothing is shed for what would not fit all the same.
        if !self.fits(size, self.may_shed(&state, batch)) {
            return Err(Loss::QueueFull);
        }
        let mut shed = Vec::new();
        while !self.fits(size, Held::default()) {
            let Some(victim) = self.victim(&mut state, batch) else { break };
            self.bytes.fetch_sub(victim.bytes, Ordering::Relaxed);
            self.traces.fetch_sub(victim.traces(), Ordering::Relaxed);
            state.lost += victim.spans() as u64;
            state.last_error = Some("the queue was full".to_owned());
            shed.push(victim);
        }
        if let Some(batch) = from.take() {
            self.enqueue(&mut state, batch);
        }
        let wake = match state.waits {
            Waits::No => false,
            Waits::ForAny => true,
            Waits::ForBatch => self.has_batch(&state),
        };
        if wake {
            self.set_waits(&mut state, Waits::No);
        }
        drop(state);
        if wake {
            self.work.notify_one();
        }
        for victim in &shed {
            self.counters.lose(Loss::QueueFull, victim.counted());
        }
        self.keep_spare(shed);
        Ok(())
    }

    /// The most that makes space for a batch.
    fn may_shed(&self, state: &State, instead_of: &Batch) -> Held {
        match self.bounds.when_full {
            WhenFull::ShedOldest => state.lists.held_below(CLASSES),
            WhenFull::ShedLowestWeight => state.lists.held_below(usize::from(instead_of.class)),
            WhenFull::ShedNewest | WhenFull::Block(_) => Held::default(),
        }
    }

    /// Takes a batch that makes space for another off the lists.
    fn victim(&self, state: &mut State, instead_of: &Batch) -> Option<Box<Batch>> {
        match self.bounds.when_full {
            WhenFull::ShedOldest => state.lists.pop_first(),
            WhenFull::ShedLowestWeight => state.lists.pop_lightest(instead_of.class),
            WhenFull::ShedNewest | WhenFull::Block(_) => None,
        }
    }

    /// Adds a batch to the lists.
    fn enqueue(&self, state: &mut State, mut batch: Box<Batch>) {
        batch.bytes = batch.bytes_held();
        batch.number = state.next_number;
        state.next_number += 1;
        self.bytes.fetch_add(batch.bytes, Ordering::Relaxed);
        self.traces.fetch_add(batch.traces(), Ordering::Relaxed);
        state.lists.push(batch);
    }

    /// Whether there is enough for an export: as many spans as are exported at once, or as much as
    /// fills half of the queue, since a full queue sheds or makes the service wait.
    fn has_batch(&self, state: &State) -> bool {
        state.lists.spans() >= self.bounds.batch_spans
            || !state.lists.is_empty()
                && (self.bytes.load(Ordering::Relaxed) >= self.bounds.queue_bytes / 2
                    || self.traces.load(Ordering::Relaxed) >= self.bounds.queue_traces / 2)
    }

    /// Returns true if the worker shall not wait for more.
    fn hurries(&self, state: &State) -> bool {
        self.closed.load(Ordering::Relaxed) || state.has_work_for_flush() || state.heartbeats.wait()
    }

    fn set_waits(&self, state: &mut State, waits: Waits) {
        state.waits = waits;
        self.eager.store(waits == Waits::ForAny, Ordering::Relaxed);
    }

    /// Waits for work, at most for `idle` if there is none.
    pub(crate) fn next(&self, idle: Duration) -> Work {
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
        self.set_waits(&mut state, Waits::ForBatch);
        let more = |state: &State| !self.has_batch(state) && !self.hurries(state);
        drop(wait_while(&self.work, state, self.bounds.batch_delay, more));
        let work = self.take();
        if !matches!(work, Work::Idle) {
            return work;
        }
        // Traces nearly always follow those of the last batch. Only if none came for a while is the
        // worker woken by the first: see the module on `eager`.
        self.set_waits(&mut lock(&self.state), Waits::ForAny);
        self.collect();
        let nothing = |state: &State| state.lists.is_empty() && !self.hurries(state);
        drop(wait_while(&self.work, lock(&self.state), idle, nothing));
        self.take()
    }

    /// Takes the spans of one export, or what else is to be done.
    pub(crate) fn take(&self) -> Work {
        let mut state = lock(&self.state);
        self.set_waits(&mut state, Waits::No);
        // Read before the groups are collected: what ended before the close is in them or in the
        // lists.
        let closed = self.closed.load(Ordering::Relaxed);
        let is_due = state.lists.spans() < self.bounds.batch_spans
            || state.collected.elapsed() >= self.bounds.batch_delay
            || closed;
        drop(state);
        if is_due {
            self.collect();
        }
        let mut state = lock(&self.state);
        // Before an export, which may last for minutes: it is not waited for.
        if let Some(flush) = state.reach_flushes() {
            return Work::Flush(flush);
        }
        let batches = state.lists.take(self.bounds.batch_spans);
        let Some(first) = batches.first() else {
            return if closed { Work::End } else { Work::Idle };
        };
        let number = first.number;
        let counted = batches.iter().map(|batch| batch.counted()).sum();
        state.in_flight.push(InFlight { number, spans: batches.iter().map(|batch| batch.spans()).sum() });
        Work::Export(Taken { batches, counted, number })
    }

    /// Moves the batches that gather to the lists.
    fn collect(&self) {
        for group in &self.groups {
            let mut group = lock(&group.0);
            for gathered in group.iter_mut() {
                if gathered.as_ref().is_some_and(|batch| !batch.is_empty())
                    && let Some(batch) = gathered.take()
                {
                    self.enqueue(&mut lock(&self.state), batch);
                }
            }
        }
        lock(&self.state).collected = Instant::now();
    }

    /// Gives batches back that were converted, and with them their space.
    pub(crate) fn recycle(&self, batches: Vec<Box<Batch>>) {
        let bytes = batches.iter().map(|batch| batch.bytes).sum();
        let traces = batches.iter().map(|batch| batch.traces()).sum();
        self.keep_spare(batches);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.traces.fetch_sub(traces, Ordering::Relaxed);
        // Threads that wait for space look at it under this lock.
        if lock(&self.state).blocked > 0 {
            self.space.notify_all();
        }
    }

    fn keep_spare(&self, mut batches: Vec<Box<Batch>>) {
        batches.retain(|batch| batch.bytes <= SPARE_BYTES_MAX);
        batches.iter_mut().for_each(|batch| batch.clear());
        let mut spare = lock(&self.spare);
        let free = SPARE_MAX.saturating_sub(spare.len());
        let rest = batches.split_off(free.min(batches.len()));
        spare.append(&mut batches);
        drop(spare);
        drop(rest);
    }

    /// Notes that an export is over, and its spans are counted; `lost` of them, for the reason
    /// `error`. Returns the flush that the caller is to do, if it completes one.
    pub(crate) fn exported(&self, number: u64, lost: u64, error: Option<String>) -> Option<u64> {
        let mut state = lock(&self.state);
        state.in_flight.retain(|export| export.number != number);
        state.lost += lost;
        if error.is_some() {
            state.last_error = error;
        }
        state.reach_flushes()
    }

    /// For a budget.
    pub(crate) fn flow(&self) -> Flow {
        let shed = self.counters.read().spans_lost.queue_full;
        let state = lock(&self.state);
        Flow { outstanding: state.outstanding(), next: state.next_number, shed }
    }

    /// Counts what gathers and what waits in the lists.
    #[cfg(all(test, not(loom)))]
    pub(super) fn held(&self) -> Counted {
        let gathers =
            |group: &Group| -> Counted { lock(&group.0).iter().flatten().map(|batch| batch.counted()).sum() };
        let gathered: Counted = self.groups.iter().map(gathers).sum();
        [gathered, lock(&self.state).lists.counted()].into_iter().sum()
    }
}

impl State {
    /// The lowest number that is not yet exported or lost.
    fn outstanding(&self) -> u64 {
        let in_flight = self.in_flight.iter().map(|export| export.number).min();
        let waiting = self.lists.first_number();
        in_flight.into_iter().chain(waiting).min().unwrap_or(u64::MAX)
    }

    fn ticket(&self, number: u64) -> Ticket {
        Ticket { number, lost: self.lost, failures: self.failures }
    }

    fn spans_below(&self, number: u64) -> u64 {
        let in_flight = self.in_flight.iter().filter(|export| export.number < number);
        (in_flight.map(|export| export.spans).sum::<usize>() + self.lists.spans_below(number)) as u64
    }
}

/// Waits while `unfinished` says so, at most for `timeout`.
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
