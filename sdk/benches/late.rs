//! Figures of traces that are kept late: which errors are kept, and the time that counting a root
//! takes.
//!
//! Calls come by a clock that is moved by hand and by a seeded generator, so that the first two
//! parts are the same each time. Prints tables; arguments name the parts to run (`kept`, `armed`,
//! `count`), all of them by default.

#![allow(clippy::print_stdout, reason = "a table is the result")]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use astracer_samplers::Nanos;
use astracer_samplers::tail::{Ended, Limits, TailSampler};
use astracer_sdk::{Astracer, Clock, DroppedSpans, ManualClock, ProvisionalMode, Stats, Tail};
use astracer_testing::SplitMix;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing::{Dispatch, error, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

fn main() {
    let parts: Vec<String> = std::env::args().skip(1).filter(|part| !part.starts_with('-')).collect();
    let has = |part: &str| parts.is_empty() || parts.iter().any(|asked| asked == part);
    if has("kept") {
        kept();
    }
    if has("armed") {
        armed();
    }
    if has("count") {
        count();
    }
}

/// The time to the next event of a Poisson process of this rate a second.
fn wait(random: &mut SplitMix, rate: f64) -> f64 {
    -(1.0 - random.unit()).ln() / rate
}

/// Counts root spans, and those with an error below them, by how they were kept.
#[derive(Clone, Debug, Default)]
struct Counts(Arc<Mutex<HashMap<&'static str, u64>>>);

impl SpanExporter for Counts {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let mut counts = self.0.lock().expect("nothing panics in here");
        for span in batch {
            let failed = !span.events.events.is_empty();
            let late = span.attributes.iter().any(|attribute| attribute.key.as_str() == "sampling.reason");
            if failed {
                *counts.entry(if late { "failed, late" } else { "failed, head" }).or_default() += 1;
            }
        }
        Ok(())
    }
}

struct World {
    astracer: Astracer,
    dispatch: Dispatch,
    clock: ManualClock,
    counts: Counts,
}

fn world(sampler: &str, tail: Tail) -> World {
    let (clock, hand) = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let counts = Counts::default();
    let astracer = Astracer::builder()
        .with_clock(clock)
        .with_sampler(sampler.parse().expect("a sampler"))
        .with_dropped_spans(DroppedSpans::Disabled)
        .with_tail(tail)
        .with_queue_bytes_max(1 << 30)
        .with_exporter(counts.clone())
        .build()
        .expect("a layer");
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(astracer.layer.clone()));
    World { astracer, dispatch, clock: hand, counts }
}

impl World {
    fn end(&self) -> (Stats, HashMap<&'static str, u64>) {
        self.astracer.handle.shutdown(Duration::from_secs(60)).expect("an exporter that is always there");
        (self.astracer.handle.stats(), self.counts.0.lock().expect("nothing panics in here").clone())
    }
}

fn request(key: usize, fails: bool) {
    let _root = info_span!("request", otel.name = KEYS[key % KEYS.len()]).entered();
    info_span!("query").in_scope(|| {
        if fails {
            error!("no such table");
        }
    });
}

const KEYS: [&str; 10] =
    ["GET /a", "GET /b", "GET /c", "GET /d", "GET /e", "GET /f", "GET /g", "GET /h", "GET /i", "GET /j"];

/// A million requests of ten keys, 5,000 a second, of which 1,000 fail at random; the head keeps 1
/// %.
fn kept() {
    println!("A million requests of ten keys, 5,000 a second, 1,000 of them fail at random, head ratio:0.01");
    println!("provisional   errors kept   by the head   late   not recorded   refused   spans lost");
    for provisional in [ProvisionalMode::Always, ProvisionalMode::Armed, ProvisionalMode::Never] {
        let tail: Tail = "error".parse().expect("a policy");
        let world = world("ratio:0.01", tail.with_provisional(provisional));
        let mut random = SplitMix::new(18);
        let mut fails = vec![false; 1_000_000];
        let mut left = 1_000;
        while left > 0 {
            let at = (random.next() % 1_000_000) as usize;
            left -= u64::from(!std::mem::replace(&mut fails[at], true));
        }
        tracing::dispatcher::with_default(&world.dispatch, || {
            for fails in fails {
                world.clock.advance(Duration::from_micros(200));
                request((random.next() % 10) as usize, fails);
            }
        });
        let missed: u64 = world.astracer.handle.outcomes().iter().map(|key| key.missed_errors).sum();
        let (stats, counts) = world.end();
        let [head, late] =
            ["failed, head", "failed, late"].map(|name| counts.get(name).copied().unwrap_or(0));
        println!(
            "{:<11} {:>13} {head:>13} {late:>6} {missed:>14} {:>9} {:>12}",
            provisional.name(),
            head + late,
            stats.tail.policies[0].refused,
            stats.spans_lost.total()
        );
    }
}

/// The share of errors that arming misses, by the rate of errors of a key, and in an outage.
fn armed() {
    println!(
        "\nArmed: errors that are not recorded, of a key with 100 calls a second for 20,000 s; head never"
    );
    println!("errors, as they come                       errors   not recorded   share   exp(-10 s x rate)");
    let independent = [0.001, 0.01, 0.03, 0.1, 0.3, 1.0].map(|rate| (rate, false));
    for (rate, outages) in independent.into_iter().chain([(0.01, true)]) {
        // Each error begins an outage of 30 s in which one call in ten fails, in the last row.
        let tail: Tail = "error()".parse().expect("a policy");
        let world = world("never", tail);
        let mut random = SplitMix::new(7);
        let (mut next, mut outage_until, mut now) = (wait(&mut random, rate), 0.0, 0.0);
        tracing::dispatcher::with_default(&world.dispatch, || {
            for _ in 0..2_000_000 {
                world.clock.advance(Duration::from_millis(10));
                now += 0.01;
                let mut fails = outages && now < outage_until && random.next().is_multiple_of(10);
                if now >= next {
                    fails = true;
                    outage_until = now + 30.0;
                    next = if outages { outage_until } else { now } + wait(&mut random, rate);
                }
                request(0, fails);
            }
        });
        let outcomes = world.astracer.handle.outcomes();
        let (errors, missed) = (outcomes[0].errors, outcomes[0].missed_errors);
        world.end();
        let share = missed as f64 / errors as f64;
        let named = if outages {
            "30 s with 10 % failing, each 100 s".to_owned()
        } else {
            format!("{rate} a second, independent")
        };
        let expected = if outages { "-".to_owned() } else { format!("{:.3}", (-10.0 * rate).exp()) };
        println!("{named:<40} {errors:>8} {missed:>14} {share:>7.3} {expected:>19}");
    }
}

/// The time of counting a root, on one thread.
fn count() {
    println!("\nCounting a root: ns, medians and extremes of 15 rounds of 1,000,000");
    println!("{:<28} key(), count(), both", "policies");
    for policies in ["error", "error,slow:500ms,slow:p99"] {
        let sampler = TailSampler::new(&policies.parse().expect("policies"), Limits::default());
        let mut random = SplitMix::new(3);
        let durations: Vec<Nanos> =
            (0..4_096).map(|_| Nanos::new((wait(&mut random, 1.0) * 2e6) as u64)).collect();
        let mut now = Nanos::from_secs(1);
        let mut columns = [const { Vec::new() }; 2];
        for _ in 0..15 {
            let number = sampler.key(KEYS[3]);
            let began = Instant::now();
            for at in 0..1_000_000_usize {
                black_box(sampler.key(black_box(KEYS[at % 8])));
            }
            columns[0].push(began.elapsed().as_secs_f64() * 1e3);
            let began = Instant::now();
            for at in 0..1_000_000_usize {
                now = now.saturating_add(Nanos::new(10_000));
                let ended =
                    Ended { now, duration: durations[at % 4_096], is_error: false, is_recorded: false };
                sampler.count(number, 0, black_box(&ended));
            }
            columns[1].push(began.elapsed().as_secs_f64() * 1e3);
        }
        let shown = columns.map(|mut column| {
            column.sort_by(f64::total_cmp);
            (column[7], column[0], column[14])
        });
        let [key, count] = shown;
        let cell = |of: (f64, f64, f64)| format!("{:.1} ({:.1} to {:.1})", of.0, of.1, of.2);
        println!("{policies:<28} {}   {}   {:.1}", cell(key), cell(count), key.0 + count.0);
    }
}
