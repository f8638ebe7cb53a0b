//! Hours of outages and bursts in milliseconds: the test controls time, destination and disk.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use astracer_model::{SpanId, TraceId};
use astracer_spool::WhenSpoolFull;
use astracer_spool::testing::MemoryDisk;
use astracer_testing::SplitMix;

use super::draining::{Next, PAUSE};
use super::*;
use astracer_model::destination::{Attempt, Delivery};

/// A clock in seconds that the test advances.
#[derive(Clone, Debug, Default)]
struct Hand(Arc<AtomicU64>);

impl Clock for Hand {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mood {
    #[default]
    Takes,
    /// 503, with a `Retry-After` in seconds.
    Busy(u64),
    /// 403.
    Refuses,
    /// Accepts half of a call, then is busy.
    TakesHalf,
    /// Rejects one span of each call.
    TakesAllButOne,
    /// Loses the last span of each call because it is too large.
    LosesOne,
    /// The same for half of a call; then is busy.
    LosesOneOfHalf,
    /// Panics with a payload that panics when it is dropped.
    Panics,
}

struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

#[derive(Clone, Debug, Default)]
struct Scripted {
    mood: Arc<Mutex<Mood>>,
    arrived: Arc<Mutex<Vec<u64>>>,
    /// Requests with one of these spans are refused.
    bad: Arc<Mutex<Vec<u64>>>,
    /// The number of requests.
    requests: Arc<AtomicU64>,
    /// Joined requests with more spans are too large; 0 is unlimited.
    spans_max: usize,
    /// Calls are joined up to this size.
    join_bytes: usize,
    counter: Counter,
}

/// The outcome of a request that may be sent again.
fn busy(seconds: u64) -> Attempt {
    let error = ExportError::new(ErrorKind::Unavailable, "t", "busy").retryable(None);
    let outcome = DeliveryReport { error: Some(error), ..DeliveryReport::default() };
    Attempt { outcome, settled: 0, retry_in: Duration::from_secs(seconds) }
}

impl Scripted {
    fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn mood(&self) -> Mood {
        *self.mood.lock().unwrap()
    }

    fn is_bad(&self, spans: &[Span<'_>]) -> bool {
        let bad = self.bad.lock().unwrap();
        spans.iter().any(|span| bad.contains(&span.span_id.0))
    }

    fn arrived(&self) -> Vec<u64> {
        self.arrived.lock().unwrap().clone()
    }
}

impl Destination for Scripted {
    fn deliver(&self, _: &[Span<'_>]) -> DeliveryReport {
        unreachable!("a spool never waits")
    }

    fn try_send(&self, spans: &[Span<'_>], _: Duration) -> Attempt {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mood = if self.is_bad(spans) { Mood::Refuses } else { self.mood() };
        let (taken, rejected) = match mood {
            Mood::Busy(seconds) => return busy(seconds),
            Mood::Refuses => {
                self.counter.lose(ErrorKind::Forbidden, spans.len() as u64);
                let error = ExportError::new(ErrorKind::Forbidden, "t", "no");
                let outcome = DeliveryReport::lost(error, spans.len() as u64);
                return Attempt { outcome, settled: spans.len(), retry_in: Duration::ZERO };
            }
            Mood::Takes => (spans.len(), 0),
            Mood::TakesHalf => (spans.len() / 2, 0),
            Mood::TakesAllButOne => (spans.len() - 1, 1),
            Mood::LosesOne => (spans.len() - 1, 0),
            Mood::LosesOneOfHalf => (spans.len().div_ceil(2) - 1, 0),
            Mood::Panics => std::panic::panic_any(PanicsInDrop),
        };
        self.arrived.lock().unwrap().extend(spans[..taken].iter().map(|span| span.span_id.0));
        let delivery = Delivery::new(taken as u64, rejected);
        self.counter.deliver(&delivery);
        if mood == Mood::TakesHalf {
            let Attempt { outcome, retry_in, .. } = busy(1);
            return Attempt { outcome: DeliveryReport { delivery, ..outcome }, settled: taken, retry_in };
        }
        if matches!(mood, Mood::LosesOne | Mood::LosesOneOfHalf) {
            self.counter.lose(ErrorKind::TooLarge, 1);
            let outcome = DeliveryReport::lost(ExportError::new(ErrorKind::TooLarge, "t", "one span"), 1);
            let retry_in = Duration::from_secs(u64::from(mood == Mood::LosesOneOfHalf));
            return Attempt { outcome: DeliveryReport { delivery, ..outcome }, settled: taken + 1, retry_in };
        }
        let outcome = DeliveryReport::delivered(delivery);
        Attempt { outcome, settled: spans.len(), retry_in: Duration::ZERO }
    }

    fn join_bytes(&self) -> usize {
        self.join_bytes
    }

    /// A request cannot be accepted in part only.
    fn try_whole(&self, spans: &[Span<'_>], timeout: Duration) -> Attempt {
        let error = match self.mood() {
            Mood::Refuses => ErrorKind::Forbidden,
            Mood::LosesOne | Mood::LosesOneOfHalf => ErrorKind::TooLarge,
            Mood::TakesHalf => return busy(1),
            _ if self.spans_max > 0 && spans.len() > self.spans_max => ErrorKind::TooLarge,
            _ if self.is_bad(spans) => ErrorKind::BadRequest,
            _ => return self.try_send(spans, timeout),
        };
        self.requests.fetch_add(1, Ordering::Relaxed);
        let outcome =
            DeliveryReport { error: Some(ExportError::new(error, "t", "no")), ..DeliveryReport::default() };
        Attempt { outcome, ..Attempt::default() }
    }

    fn counter(&self) -> Counter {
        self.counter.clone()
    }

    fn shut_down(&self, _: Duration) -> Result<(), ExportError> {
        Ok(())
    }
}

struct World {
    shared: Shared,
    destination: Scripted,
    disk: MemoryDisk,
    clock: Hand,
    made: u64,
    /// The number of spans that a former process had left in the spool.
    found: u64,
}

impl World {
    fn new(change: impl Fn(SpooledBuilder) -> SpooledBuilder) -> Self {
        Self::on(MemoryDisk::default(), Hand::default(), change)
    }

    fn on(disk: MemoryDisk, clock: Hand, change: impl Fn(SpooledBuilder) -> SpooledBuilder) -> Self {
        Self::to(Scripted::default(), disk, clock, change)
    }

    fn to(
        destination: Scripted,
        disk: MemoryDisk,
        clock: Hand,
        change: impl Fn(SpooledBuilder) -> SpooledBuilder,
    ) -> Self {
        let builder = change(Spooled::builder("spool").with_clock(Arc::new(clock.clone())));
        let shared = Shared::open(disk.clone(), builder, Box::new(destination.clone())).unwrap();
        let found = shared.lock().counts().found;
        World { shared, destination, disk, clock, made: 0, found }
    }

    fn send(&mut self, count: u64) -> Result<Delivery, ErrorKind> {
        let span =
            |id| Span { trace_id: TraceId(1), span_id: SpanId(id), name: "work".into(), ..Span::default() };
        let spans: Vec<_> = (self.made + 1..=self.made + count).map(span).collect();
        self.made += count;
        let sent = self.shared.deliver(&spans).into_result().map_err(|error| error.kind());
        self.check();
        sent
    }

    fn step(&self) -> Next {
        let next = self.shared.step();
        self.check();
        next
    }

    fn drain(&self) {
        while self.step() == Next::Go {}
    }

    fn pending(&self) -> u64 {
        self.shared.lock().counts().pending
    }

    /// Checks that made = arrived + rejected + counted as lost + spooled.
    #[track_caller]
    fn check(&self) {
        let counts = self.destination.counter.read();
        let (sent, rejected, lost) = (counts.sent, counts.rejected, counts.lost.total());
        assert_eq!(self.destination.arrived().len() as u64, sent);
        let ledger = self.shared.lock().spool.as_ref().unwrap().ledger();
        assert!(ledger.is_balanced() && ledger.waiting == self.pending(), "{ledger:?}");
        let known = sent + rejected + lost + self.pending();
        assert_eq!(self.made + self.found, known, "{counts} {}", self.pending());
    }
}

#[test]
fn an_outage_costs_nothing_and_keeps_the_order() {
    for mode in [SpoolMode::Overflow, SpoolMode::Durable] {
        let mut world = World::new(|builder| builder.with_mode(mode));
        world.send(3).unwrap();
        assert_eq!(world.pending(), if mode == SpoolMode::Durable { 3 } else { 0 });
        world.destination.set(Mood::Busy(7));
        for _ in 0..10 {
            assert_eq!(world.send(5).unwrap().accepted, 5);
        }
        assert_eq!(world.step(), Next::Wait(Duration::from_secs(7)));
        world.destination.set(Mood::Takes);
        // While older spans wait, new ones queue up behind them.
        world.send(1).unwrap();
        world.drain();
        assert_eq!(world.destination.arrived(), Vec::from_iter(1..=54), "{mode:?}");
    }
}

/// The drain thread continues, and the record is tried again.
#[test]
fn a_destination_may_panic() {
    let mut world = World::new(|builder| builder.with_mode(SpoolMode::Durable));
    world.send(3).unwrap();
    world.destination.set(Mood::Panics);
    assert_eq!(world.step(), Next::Wait(PAUSE));
    world.destination.set(Mood::Takes);
    world.drain();
    assert_eq!(world.destination.arrived(), [1, 2, 3]);
}

#[test]
fn new_spans_can_go_first() {
    let mut world = World::new(|builder| builder.with_order(DrainOrder::NewFirst));
    world.destination.set(Mood::Busy(0));
    world.send(2).unwrap();
    assert_eq!(world.step(), Next::Wait(PAUSE));
    world.destination.set(Mood::Takes);
    world.send(1).unwrap();
    world.drain();
    assert_eq!(world.destination.arrived(), [3, 1, 2]);
}

#[test]
fn a_record_that_was_taken_in_part_goes_on_where_it_stopped() {
    let mut world = World::new(|builder| builder.with_mode(SpoolMode::Durable));
    world.send(8).unwrap();
    world.destination.set(Mood::TakesHalf);
    assert_eq!((world.step(), world.pending()), (Next::Wait(Duration::from_secs(1)), 4));
    // The process is killed; the next one continues.
    let clock = world.clock.clone();
    let next = World::on(world.disk.after_power_loss(|_, all| all), clock, |builder| builder);
    assert_eq!(next.found, 4);
    next.drain();
    assert_eq!(
        (world.destination.arrived(), next.destination.arrived()),
        (vec![1, 2, 3, 4], vec![5, 6, 7, 8])
    );
}

#[test]
fn spans_that_are_refused_for_good_become_dead_letters() {
    let mut world = World::new(|builder| builder.with_mode(SpoolMode::Durable));
    world.send(3).unwrap();
    world.destination.set(Mood::Refuses);
    world.drain();
    assert_eq!(world.destination.counter.read().lost.of(ErrorKind::Forbidden), 3);
    drop(world.shared);
    let report = astracer_spool::verify(&world.disk).unwrap();
    assert!(matches!(&report.reasons[..], [(reason, 3)] if reason.contains("no")), "{report:?}");
}

/// If one span of a record is too large, that span is a dead letter and the others are delivered,
/// in one attempt or two.
#[test]
fn a_dead_letter_has_the_spans_that_an_attempt_lost() {
    for mood in [Mood::LosesOne, Mood::LosesOneOfHalf] {
        let mut world = World::new(|builder| builder.with_mode(SpoolMode::Durable));
        world.send(8).unwrap();
        world.destination.set(mood);
        world.step();
        world.destination.set(Mood::Takes);
        world.drain();
        let counts = world.shared.lock().counts();
        assert_eq!((counts.delivered, counts.rejected, counts.pending), (7, 1, 0), "{mood:?}");
        let counted = world.destination.counter.read();
        assert_eq!((counted.sent, counted.lost.of(ErrorKind::TooLarge)), (7, 1));
        drop(world.shared);
        let report = astracer_spool::verify(&world.disk).unwrap();
        assert!(matches!(&report.reasons[..], [(reason, 1)] if reason.contains("one span")), "{report:?}");
    }
}

#[test]
fn a_spool_that_is_full_or_cannot_be_written_says_so() {
    let mut world = World::new(|builder| {
        builder.with_mode(SpoolMode::Durable).with_settings(Settings::default().with_max_bytes(300))
    });
    world.send(1).unwrap();
    assert_eq!(world.send(30), Err(ErrorKind::Full));
    world.disk.fail_writes(true);
    assert_eq!(world.send(1), Err(ErrorKind::File));
    let lost = world.destination.counter.read().lost;
    assert_eq!((lost.of(ErrorKind::Full), lost.of(ErrorKind::File)), (30, 1));
}

/// A durable world whose destination takes joined calls.
fn joining(join_bytes: usize) -> World {
    let destination = Scripted { join_bytes, ..Scripted::default() };
    let change = |builder: SpooledBuilder| builder.with_mode(SpoolMode::Durable);
    World::to(destination, MemoryDisk::default(), Hand::default(), change)
}

#[test]
fn waiting_records_are_joined_up_to_a_size() {
    let mut world = joining(1 << 20);
    (0..100).for_each(|_| drop(world.send(3)));
    assert_eq!((world.step(), world.pending()), (Next::Go, 0));
    assert_eq!(world.destination.requests.load(Ordering::Relaxed), 1);
    assert_eq!(world.destination.arrived(), Vec::from_iter(1..=300));
    // A record of one span has more than 36 bytes: ids of 16 and 8, a name of 4, and their tags.
    let mut world = joining(100);
    (0..10).for_each(|_| drop(world.send(1)));
    world.drain();
    let requests = world.destination.requests.load(Ordering::Relaxed);
    assert!((5..=10).contains(&requests), "{requests}");
}

/// A joined request that is refused is split until only the bad record is a dead letter.
#[test]
fn one_bad_record_spoils_no_other() {
    let mut world = joining(1 << 20);
    *world.destination.bad.lock().unwrap() = vec![77];
    (0..64).for_each(|_| drop(world.send(2)));
    world.drain();
    let counts = world.shared.lock().counts();
    assert_eq!((counts.delivered, counts.rejected, counts.dead_letters), (126, 2, 2));
    let mut arrived = world.destination.arrived();
    arrived.sort_unstable();
    assert_eq!(arrived, (1..=128).filter(|id| !(77..=78).contains(id)).collect::<Vec<_>>());
    // Two halves at each of six levels, and some more until requests are large again.
    let requests = world.destination.requests.load(Ordering::Relaxed);
    assert!(requests < 30, "{requests} requests");
}

/// The size that a server takes is learned: requests do not grow beyond it again.
#[test]
fn a_request_that_is_too_large_is_halved_for_good() {
    let destination = Scripted { join_bytes: 1 << 20, spans_max: 100, ..Scripted::default() };
    let change = |builder: SpooledBuilder| builder.with_mode(SpoolMode::Durable);
    let mut world = World::to(destination, MemoryDisk::default(), Hand::default(), change);
    (0..400).for_each(|_| drop(world.send(3)));
    world.drain();
    let counts = world.shared.lock().counts();
    assert_eq!((counts.delivered, counts.rejected), (1_200, 0));
    // 1,200, 600, 300 and 150 spans are too large; then 16 requests of 75.
    let requests = world.destination.requests.load(Ordering::Relaxed);
    assert!((16..24).contains(&requests), "{requests} requests");
}

/// A server that rejects some spans of a joined request does not say of which record, so each
/// record is a dead letter, and the spans are counted once.
#[test]
fn a_joined_request_that_is_rejected_in_part_keeps_all_its_records() {
    let mut world = joining(1 << 20);
    (0..3).for_each(|_| drop(world.send(2)));
    world.destination.set(Mood::TakesAllButOne);
    world.drain();
    let counts = world.shared.lock().counts();
    assert_eq!((counts.delivered, counts.rejected, counts.dead_letters, counts.pending), (5, 1, 1, 0));
    let (spans, queued) = {
        let mut state = world.shared.lock();
        let spool = state.spool.as_mut().unwrap();
        let revived = spool.revive(|letter| Some(decode(letter.kind, letter.payload).len() as u32)).unwrap();
        (revived.spans, revived.queued)
    };
    assert_eq!((spans, queued), (1, 6));
}

/// While one request has no response, others are sent and settled.
#[test]
fn requests_in_flight_end_in_any_order() {
    let mut world = joining(60);
    (0..4).for_each(|_| drop(world.send(1)));
    let mut batches: Vec<_> = (0..3).map(|_| world.shared.begin().unwrap()).collect();
    let last = batches.pop().unwrap();
    let attempt = world.shared.attempt(&last);
    assert_eq!(world.shared.finish(&last, attempt), Next::Go);
    assert_eq!((world.destination.arrived(), world.pending()), (vec![3], 3));
    // The server goes away: the requests in flight fail, and wait again in their order.
    world.destination.set(Mood::Busy(3));
    for batch in batches {
        let attempt = world.shared.attempt(&batch);
        assert_eq!(world.shared.finish(&batch, attempt), Next::Wait(Duration::from_secs(3)));
    }
    // One request at a time asks whether it is back.
    world.destination.set(Mood::Takes);
    let probe = world.shared.begin().unwrap();
    assert_eq!(world.shared.begin().unwrap_err(), Next::Idle);
    let attempt = world.shared.attempt(&probe);
    world.shared.finish(&probe, attempt);
    world.drain();
    assert_eq!(world.destination.arrived(), [3, 1, 2, 4]);
}

#[test]
fn every_span_made_arrived_waits_or_is_counted() {
    for seed in 0..30 {
        println!("seed {seed}");
        let mut random = SplitMix::new(seed);
        let mode = if seed % 2 == 0 { SpoolMode::Overflow } else { SpoolMode::Durable };
        let order = if seed % 3 == 0 { DrainOrder::NewFirst } else { DrainOrder::OldFirst };
        let when_full = if seed % 5 < 2 { WhenSpoolFull::DropOldest } else { WhenSpoolFull::Refuse };
        let settings = Settings::default()
            .with_segment_bytes(4_000)
            .with_max_bytes(30_000)
            .with_max_age(Duration::from_secs(1_800))
            .with_when_full(when_full);
        let change = |builder: SpooledBuilder| {
            builder.with_mode(mode).with_order(order).with_settings(settings.clone())
        };
        let scripted = || Scripted { join_bytes: if seed % 4 < 2 { 0 } else { 500 }, ..Scripted::default() };
        let mut world = World::to(scripted(), MemoryDisk::default(), Hand::default(), change);
        // Requests in flight.
        let mut batches = Vec::new();
        for _ in 0..400 {
            match random.below(20) {
                0..9 => drop(world.send(random.below(40) + 1)),
                9..12 => drop(world.step()),
                12..14 => batches.extend(world.shared.begin()),
                14 if !batches.is_empty() => {
                    let batch = batches.swap_remove(random.index(batches.len()));
                    let attempt = world.shared.attempt(&batch);
                    world.shared.finish(&batch, attempt);
                }
                14 => {}
                15..17 => world.destination.set(match random.below(8) {
                    0..3 => Mood::Takes,
                    3..6 => Mood::Busy(random.below(600)),
                    6 => Mood::TakesHalf,
                    _ => match random.below(6) {
                        0 => Mood::Refuses,
                        1 => Mood::LosesOne,
                        2 => Mood::LosesOneOfHalf,
                        _ => Mood::TakesAllButOne,
                    },
                }),
                // Hours pass; sometimes the clock is set back.
                17 => drop(world.clock.0.fetch_add(random.below(1_200), Ordering::Relaxed)),
                18 => world.clock.0.store(random.below(10_000), Ordering::Relaxed),
                _ => {
                    // The process is killed and started again.
                    let (disk, clock) = (world.disk.after_power_loss(|_, all| all), world.clock.clone());
                    let pending = world.pending();
                    batches.clear();
                    world = World::to(scripted(), disk, clock, change);
                    // Ends behind a request in flight are not written yet. A record in flight whose
                    // segment was dropped is gone.
                    assert!(world.found >= pending || when_full == WhenSpoolFull::DropOldest);
                }
            }
            world.check();
        }
        for batch in batches {
            let attempt = world.shared.attempt(&batch);
            world.shared.finish(&batch, attempt);
        }
        // The destination recovers at last.
        world.clock.0.store(0, Ordering::Relaxed);
        world.destination.set(Mood::Takes);
        world.drain();
        assert_eq!(world.pending(), 0);
        world.check();
    }
}

/// A disk that fails for some seconds costs one segment per series of failed reads, not one per
/// read after the first series.
#[test]
fn each_segment_is_read_several_times_before_it_is_given_up() {
    // Each record has a segment of its own.
    let settings = Settings::default().with_segment_bytes(1);
    let mut world =
        World::new(|builder| builder.with_mode(SpoolMode::Durable).with_settings(settings.clone()));
    (0..4).for_each(|_| drop(world.send(1)));
    world.disk.fail_reads(true);
    let damaged = |world: &World| world.destination.counter.read().lost.of(ErrorKind::Damaged);
    let after: Vec<u64> = (0..6)
        .map(|_| {
            assert_eq!(world.step(), Next::Wait(PAUSE));
            damaged(&world)
        })
        .collect();
    assert_eq!(after, [0, 0, 1, 1, 1, 2]);
    world.disk.fail_reads(false);
    world.drain();
    assert_eq!(world.destination.arrived(), [3, 4]);
}
