//! The share of failing traces that is kept where the head sampler keeps 1 %: with every dropped
//! trace recorded, and with keys armed by their recent errors. `-- --roots` measures the cost of
//! counting a dropped root instead.
//!
//! The clock is advanced by hand and ids come from a seeded generator, so the counts are the same
//! in each run. Errors are counted by `Handle::outcomes`, over all roots; kept errors are counted
//! at the exporter.

// The program prints counts.
#![allow(clippy::print_stdout)]

mod root;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use astracer_sdk::{Astracer, Clock, ProvisionalMode, Stats, Tail};
use astracer_testing::{SplitMix, mix};
use opentelemetry::{SpanId, TraceId};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{IdGenerator, SpanData, SpanExporter};
use tracing::{Dispatch, error, info_span};

/// Calls of a run; more if [`PERIODS`] bursts need more.
const CALLS: u64 = 1_000_000;
const PERIODS: u64 = 2;
/// During a burst every second call fails.
const BURST_SECONDS: f64 = 10.0;
const KEYS: [&str; 20] = [
    "GET /a", "GET /b", "GET /c", "GET /d", "GET /e", "GET /f", "GET /g", "GET /h", "GET /i", "GET /j",
    "GET /k", "GET /l", "GET /m", "GET /n", "GET /o", "GET /p", "GET /q", "GET /r", "GET /s", "GET /t",
];

/// Which calls fail.
#[derive(Clone, Copy)]
enum Failing {
    /// One at a random place in each thousand.
    OneOfAThousand,
    /// Each call with this probability, independently.
    Alone(f64),
    /// This share of all calls, in bursts.
    InBursts(f64),
}

impl Failing {
    fn fails(self, call: u64, seconds: f64, random: &mut SplitMix, place: &mut u64) -> bool {
        match self {
            Failing::OneOfAThousand => {
                if call.is_multiple_of(1_000) {
                    *place = random.below(1_000);
                }
                call % 1_000 == *place
            }
            Failing::Alone(share) => random.unit() < share,
            Failing::InBursts(share) => {
                let period = period(share);
                // Each period starts with a quiet half.
                (seconds + period / 2.0) % period < BURST_SECONDS && call.is_multiple_of(2)
            }
        }
    }

    fn calls(self, rate: f64) -> u64 {
        match self {
            Failing::InBursts(share) => CALLS.max((PERIODS as f64 * period(share) * rate) as u64),
            _ => CALLS,
        }
    }
}

/// Seconds from one burst to the next, for this share of failing calls.
fn period(share: f64) -> f64 {
    BURST_SECONDS / 2.0 / share
}

const SEED: u64 = 18;

#[derive(Debug)]
struct Ids(AtomicU64);

impl Ids {
    fn next(&self) -> u64 {
        mix(self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed))
    }
}

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        TraceId::from(u128::from(self.next()) << 64 | u128::from(self.next()))
    }

    fn new_span_id(&self) -> SpanId {
        SpanId::from(self.next().max(1))
    }
}

/// Counts exported spans with an event; each failing trace has exactly one.
#[derive(Clone, Debug, Default)]
struct Arrived(Arc<AtomicU64>);

impl SpanExporter for Arrived {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let failed = batch.iter().filter(|span| !span.events.events.is_empty()).count();
        self.0.fetch_add(failed as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// Counts of a run.
struct Counts {
    errors: u64,
    missed: u64,
    arrived: u64,
    recorded: u64,
    stats: Stats,
}

/// Runs calls of `keys` keys in turn. Each key has `rate` calls per second.
fn run(tail: Tail, keys: usize, rate: f64, failing: Failing) -> Counts {
    let (clock, hand) = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let arrived = Arrived::default();
    let astracer = Astracer::builder()
        .with_sampler("ratio:0.01".parse().expect("a sampler"))
        .with_tail(tail)
        .with_clock(clock)
        .with_id_generator(Ids(AtomicU64::new(SEED)))
        .with_queue_bytes_max(1 << 30)
        .with_exporter(arrived.clone())
        .build()
        .expect("a subscriber");
    let rate = rate * keys as f64;
    let calls = failing.calls(rate);
    let (mut random, mut place) = (SplitMix::new(SEED), 0);
    let flush = || astracer.handle.flush(Duration::from_secs(60)).expect("all exported");
    tracing::dispatcher::with_default(&Dispatch::new(astracer.subscriber()), || {
        for call in 0..calls {
            hand.advance(Duration::from_secs_f64(1.0 / rate));
            let root = info_span!("request", otel.name = KEYS[call as usize % keys]).entered();
            info_span!("query").in_scope(|| {
                if failing.fails(call, call as f64 / rate, &mut random, &mut place) {
                    error!("no such table");
                }
            });
            drop(root);
            if call.is_multiple_of(100_000) {
                flush();
            }
        }
    });
    flush();
    let stats = astracer.handle.stats();
    let outcomes = astracer.handle.outcomes();
    let sum = |of: fn(&astracer_sdk::KeyOutcomes) -> u64| outcomes.iter().map(of).sum::<u64>();
    assert_eq!(sum(|key| key.calls), calls);
    assert_eq!((stats.spans_lost.total(), stats.tail.spans_given_up.ring_full), (0, 0), "{stats}");
    Counts {
        errors: sum(|key| key.errors),
        missed: sum(|key| key.missed_errors),
        arrived: arrived.0.load(Ordering::Relaxed),
        recorded: stats.traces_made,
        stats,
    }
}

fn main() {
    if std::env::args().any(|argument| argument == "--roots") {
        return root::print(&Arrived::default());
    }
    let tail: Tail = "error".parse().expect("a policy");
    let always = tail.with_provisional(ProvisionalMode::Always);
    let Counts { errors, arrived, stats, .. } = run(always, KEYS.len(), 50.0, Failing::OneOfAThousand);
    let policy = &stats.tail.policies[0];
    println!(
        "every dropped trace recorded, default budget, {CALLS} calls at 1,000 per second over 20 keys: {errors} fail, \
         {arrived} of these are exported ({} kept late, the others by the head sampler); the budget refused {}\n",
        policy.kept, policy.refused
    );
    println!("armed, one key, no budget: missed errors of all errors, and the share of traces recorded");
    let shares = [0.001, 0.01, 0.1];
    println!("{:<26}{:>34}{:>34}{:>34}", "calls per second", "0.1 % fail", "1 %", "10 %");
    for (pattern, of) in
        [("each on its own", Failing::Alone as fn(f64) -> _), ("in bursts of 10 s", Failing::InBursts)]
    {
        for rate in [1.0, 10.0, 100.0, 1_000.0] {
            let cells = shares.map(|share| {
                let tail: Tail = "error()".parse().expect("a policy");
                let counts = run(tail, 1, rate, of(share));
                assert_eq!(counts.arrived, counts.errors - counts.missed, "every recorded error is kept");
                let percent = |part: u64, all: u64| part as f64 * 100.0 / all.max(1) as f64;
                format!(
                    "{} of {} = {:.2} %, {:.1} %",
                    counts.missed,
                    counts.errors,
                    percent(counts.missed, counts.errors),
                    percent(counts.recorded, of(share).calls(rate))
                )
            });
            println!("{:<26}{:>34}{:>34}{:>34}", format!("{rate}, {pattern}"), cells[0], cells[1], cells[2]);
        }
    }
}
