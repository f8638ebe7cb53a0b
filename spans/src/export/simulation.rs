//! Random traffic, outages, flushes and a shutdown on a queue without threads. One invariant holds
//! after every step: each span made was exported, was lost and counted, is queued, or is being
//! exported.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use astracer_samplers::Threshold;
use astracer_testing::SplitMix;
use opentelemetry::{SpanId, TraceFlags, TraceId};

use super::queue::{Patience, Queue, Taken, Ticket, WaitError, Work};
use crate::bounds::{Bounds, WhenQueueFull};
use crate::record::{Buffer, Header, Record};
use crate::stats::{Counted, Counters, Loss, Tally};
use crate::test_callsite::METADATA;
use crate::trace_state::State;

struct World {
    queue: Queue,
    counters: Arc<Counters>,
    in_flight: Vec<Taken>,
    made: Counted,
    /// Numbers of the traces that arrived, in order of arrival.
    arrived: Vec<u128>,
    flushes: Vec<RequestedFlush>,
}

/// A requested flush.
struct RequestedFlush {
    ticket: Ticket,
    /// The number of the last trace that had ended when the flush was requested.
    last: u128,
    is_done: bool,
}

/// The trace state for a weight of `2^power`: the threshold drops the share `1 - 2^-power` of the
/// range.
fn state(power: u32) -> State {
    let threshold = Threshold::new((1_u64 << 56) - (1_u64 << (56 - power)));
    State::of_numbers(threshold.filter(|_| power > 0), None)
}

impl World {
    fn new(change: impl FnOnce(&mut Bounds)) -> Self {
        let mut bounds = Bounds::default();
        change(&mut bounds);
        let counters = Arc::new(Counters::default());
        let queue = Queue::new(bounds, counters.clone());
        World {
            queue,
            counters,
            in_flight: Vec::new(),
            made: Counted::default(),
            arrived: Vec::new(),
            flushes: Vec::new(),
        }
    }

    /// Ends a trace of `spans` spans with weight `2^power`.
    fn end_trace(&mut self, spans: u64, power: u32) {
        self.made.roots += 1;
        let trace_id = TraceId::from(u128::from(self.made.roots));
        let mut buffer = Buffer::default();
        for span in 0..spans {
            let ids = (SpanId::from(span + 1), SpanId::INVALID);
            let mut record = Record::new(&METADATA, ids, (1, 2), None, 1);
            if span == 0 {
                record.is_local_root = true;
            }
            buffer.append(record, None);
            self.counters.tally(Tally::SpansMade, 1);
            self.counters.tally(Tally::SpansEnded, 1);
        }
        self.counters.tally(Tally::TracesMade, 1);
        self.made.spans += spans;
        self.made.calls += f64::from(1_u32 << power);
        let header = Header {
            trace_id,
            flags: TraceFlags::SAMPLED,
            state: state(power),
            began: 1,
            ..Header::default()
        };
        self.queue.push(header, &mut buffer);
        self.check();
    }

    /// Takes work as a worker does; returns false if there is none.
    fn take(&mut self) -> bool {
        let work = self.queue.take();
        let goes_on = !matches!(work, Work::Idle | Work::End);
        match work {
            Work::Export(taken) => self.in_flight.push(taken),
            Work::Flush(flush) => self.queue.flushed(flush),
            Work::Idle | Work::End => {}
        }
        self.check();
        self.check_flushes();
        goes_on
    }

    /// Completes an export: all of its spans arrive, or all are lost.
    fn complete(&mut self, at: usize, arrives: bool) {
        let Taken { batches, counted, number } = self.in_flight.remove(at);
        let traces = batches.iter().flat_map(|batch| batch.each());
        let traces = traces.map(|trace| u128::from_be_bytes(trace.header.trace_id.to_bytes()));
        let mut traces: Vec<_> = traces.collect();
        let mut done = self.flushes.iter().filter(|flush| flush.is_done);
        assert!(
            done.all(|flush| traces.iter().all(|trace| *trace > flush.last)),
            "a flush did not wait for these traces"
        );
        if arrives {
            self.arrived.append(&mut traces);
            self.counters.exported.add(counted);
        } else {
            self.counters.lose(Loss::Rejected, counted);
        }
        self.queue.release(&batches);
        self.queue.recycle(batches);
        let lost = if arrives { 0 } else { counted.spans };
        if let Some(flush) = self.queue.exported(number, lost, None) {
            self.queue.flushed(flush);
        }
        self.check();
        self.check_flushes();
    }

    fn ask_flush(&mut self) {
        let ticket = self.queue.ask_flush();
        self.flushes.push(RequestedFlush { ticket, last: u128::from(self.made.roots), is_done: false });
    }

    /// After each step of a worker, a flush waits only for spans that had ended when it was
    /// requested.
    #[track_caller]
    fn check_flushes(&mut self) {
        for flush in self.flushes.iter_mut().filter(|flush| !flush.is_done) {
            match self.queue.wait(flush.ticket, Duration::ZERO) {
                Err(WaitError { timed_out: true, left, .. }) => assert!(left > 0, "no spans are left"),
                Ok(()) | Err(_) => flush.is_done = true,
            }
        }
    }

    #[track_caller]
    fn check(&self) {
        let stats = self.counters.read();
        let in_flight: Counted = self.in_flight.iter().map(|taken| taken.counted).sum();
        let queued = self.queue.held();
        let (exported, lost) = (stats.spans_exported, stats.spans_lost.total());
        assert_eq!(self.made.spans, exported + lost + in_flight.spans + queued.spans, "{stats:?}");
        let (exported, lost) = (stats.traces_exported, stats.traces_lost.total());
        assert_eq!(self.made.roots, exported + lost + in_flight.roots + queued.roots, "{stats:?}");
    }

    /// Exports everything that is left.
    fn drain(&mut self) {
        while self.take() {}
        while !self.in_flight.is_empty() {
            self.complete(0, true);
        }
    }
}

const POLICIES: [WhenQueueFull; 2] = [WhenQueueFull::ShedNewest, WhenQueueFull::Block(Duration::ZERO)];

#[test]
fn every_span_is_exported_lost_or_waits_after_every_step() {
    for seed in 0..16 {
        let when_full = POLICIES[seed as usize % POLICIES.len()];
        println!("seed {seed} {when_full:?}");
        let mut random = SplitMix::new(seed);
        let mut world = World::new(|bounds| {
            bounds.when_full = when_full;
            bounds.queue_bytes = 40_000;
            bounds.queue_traces = 10 + random.below(300) as usize;
            bounds.batch_spans = 1 + random.below(60) as usize;
            bounds.batch_delay = Duration::ZERO;
        });
        let mut is_up = true;
        for _ in 0..1_500 {
            match random.below(100) {
                0..60 => {
                    let spans_max = if random.below(20) == 0 { 700 } else { 6 };
                    world.end_trace(1 + random.below(spans_max), random.below(12) as u32);
                }
                60..80 => drop(world.in_flight.len() < 4 && world.take()),
                // During an outage no export completes, except for an occasional rejection.
                80..95 if !world.in_flight.is_empty() && (is_up || random.below(10) == 0) => {
                    let at = random.below(world.in_flight.len() as u64) as usize;
                    world.complete(at, is_up);
                }
                95..97 => is_up = !is_up,
                97 => world.ask_flush(),
                _ => {}
            }
            world.check();
        }
        world.queue.close();
        // In every third run the deadline of the shutdown passes.
        if seed % 3 == 0 {
            world.queue.abandon();
            world.check();
        }
        world.end_trace(3, 0);
        world.drain();
        let stats = world.counters.read();
        assert_eq!((stats.spans_waiting, world.queue.held().spans), (0, 0));
        assert_eq!(stats.spans_lost.shut_down, 3);
        // All calls are exported or reported as lost. Sums of powers of two are exact.
        let arrived = world.made.calls - stats.calls_lost as f64;
        assert!(arrived >= stats.traces_exported as f64, "{arrived} {stats:?}");
        assert!(world.flushes.iter().all(|flush| flush.is_done));
        let unique: BTreeSet<_> = world.arrived.iter().collect();
        assert_eq!(unique.len(), world.arrived.len());
    }
}

/// 100 traces of one span each are pushed to a queue of 40, with 10 spans per batch: the newest are
/// shed, with the calls that they represent.
#[test]
fn the_newest_traces_are_shed() {
    let mut world = World::new(|bounds| (bounds.queue_traces, bounds.batch_spans) = (40, 10));
    let power = |number: u64| (number % 4) as u32;
    for number in 1..=100 {
        world.end_trace(1, power(number));
    }
    world.drain();
    let shed: u64 = (41..=100).map(|number| 1 << power(number)).sum();
    assert_eq!((world.arrived, world.counters.read().calls_lost), (Vec::from_iter(1..=40), shed));
}

/// A trace that can never fit is lost alone.
#[test]
fn what_can_never_fit_pushes_nothing_out() {
    const BYTES: usize = 1 << 20;
    let mut world = World::new(|bounds| (bounds.queue_bytes, bounds.batch_spans) = (BYTES, 1));
    for _ in 0..11 {
        world.end_trace(1, 0);
    }
    world.end_trace(2 * (BYTES / size_of::<Record>()) as u64, 0);
    world.drain();
    world.arrived.sort_unstable();
    assert_eq!(world.arrived, Vec::from_iter(1..=11));
    assert_eq!(world.counters.read().traces_lost.queue_full, 1);
}

/// After a failed export the others continue; a flush waits for the lowest number.
#[test]
fn a_flush_waits_for_every_export_before_it() {
    let mut world = World::new(|bounds| bounds.batch_spans = 1);
    for _ in 0..3 {
        world.end_trace(1, 0);
        world.take();
    }
    let ticket = world.queue.ask_flush();
    world.end_trace(1, 0);
    let left = |world: &World| world.queue.wait(ticket, Duration::ZERO).map_err(|error| error.left);
    assert_eq!(left(&world), Err(3));
    world.complete(2, true);
    world.complete(0, true);
    assert_eq!(left(&world), Err(1));
    world.complete(0, false);
    let error = world.queue.wait(ticket, Duration::ZERO).unwrap_err();
    assert_eq!((error.timed_out, error.left, error.lost), (false, 0, 1));
}

/// The list of flushes is bounded: the last one then also waits for the batches of later ones.
#[test]
fn any_number_of_flushes_may_be_asked_for() {
    let mut world = World::new(|bounds| bounds.batch_spans = 10_000);
    let ask = |world: &mut World| {
        world.end_trace(1, 0);
        [world.queue.ask_flush(), world.queue.ask_flush()]
    };
    let mut tickets: Vec<_> = (0..1_100).flat_map(|_| ask(&mut world)).collect();
    world.take();
    tickets.extend(ask(&mut world));
    let done = |world: &World| {
        let is_done = |ticket: &&Ticket| world.queue.wait(**ticket, Duration::ZERO).is_ok();
        tickets.iter().filter(is_done).count()
    };
    world.complete(0, true);
    assert_eq!(done(&world), 2 * 1_023);
    world.drain();
    assert_eq!(done(&world), 2 * 1_101);
}

#[test]
fn a_thread_that_waits_for_space_gives_up_at_its_deadline() {
    let mut world = World::new(|bounds| {
        (bounds.when_full, bounds.queue_traces, bounds.batch_spans) =
            (WhenQueueFull::Block(Duration::from_millis(1)), 1, 1);
    });
    for _ in 0..2 {
        world.queue.wait_for_space(Patience::Full);
        world.end_trace(1, 0);
    }
    // The third finds the queue at twice its bound.
    world.queue.wait_for_space(Patience::Full);
    world.end_trace(1, 0);
    assert_eq!(world.counters.read().spans_lost.queue_full, 1);
    world.drain();
    world.queue.wait_for_space(Patience::Full);
    world.end_trace(1, 0);
    assert_eq!(world.counters.read().spans_lost.queue_full, 1);
}
