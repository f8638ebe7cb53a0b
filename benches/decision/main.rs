//! The cost of one sampling decision: our samplers and baselines in one run, on one thread, on two
//! threads with the same key, and with a flood of unique names.
//!
//! Times are the deciding threads' processor time rather than wall time, so that other work on the
//! machine does not count. Two threads disturb each other only while both run, so the figure for
//! two threads is valid only on a machine with two idle cores; the share of time in which both ran
//! is printed.
//!
//! Distortions: the key is one string in the cache, and the loop does nothing else, so branch
//! prediction is perfect. Each body creates a random number with the same few instructions (about 1
//! ns, the row `floor`). Our samplers get `now` as an argument; the rows with a clock read it as a
//! service would. governor and Jaeger's rate limiter read their own clock in every call or when
//! their bucket is empty; governor is also measured with its fake clock.

// The program prints resident memory, which criterion does not measure.
#![allow(clippy::print_stderr)]

mod rivals;
mod worlds;

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

use astracer_samplers::{Cap, Config, Limits, Nanos, Randomness, Request, Sampler};
use worlds::{World, worlds};

/// Decides `count` times on the hot key, on this thread.
fn run(world: &dyn World, seed: u64, count: u64) {
    world.decide_many(&worlds::HOT.to_owned(), seed, count);
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The processor time that `work` takes on this thread.
fn timed(work: impl FnOnce()) -> Duration {
    let start = thread_time();
    work();
    thread_time() - start
}

/// The mean processor time of `count` decisions on each of two threads at once, and the wall time.
fn timed_in_two(world: &dyn World, count: u64) -> (Duration, Duration) {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let barrier = &barrier;
        let run_one = move |seed| {
            barrier.wait();
            let start = Instant::now();
            (timed(|| run(world, seed, count)), start.elapsed())
        };
        let other = scope.spawn(move || run_one(3));
        let (mine, my_wall) = run_one(5);
        let (theirs, their_wall) = other.join().expect("a bench thread");
        // The mean, so that a thread that waits for the other does not look fast.
        ((mine + theirs) / 2, my_wall.max(their_wall))
    })
}

fn hot_key(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hot_key_1_thread");
    for (name, world) in worlds() {
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|count| timed(|| run(&*world, 1, count)));
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("hot_key_2_threads");
    for (name, world) in worlds() {
        let (mut own, mut wall) = (Duration::ZERO, Duration::ZERO);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|count| {
                let (time, passed) = timed_in_two(&*world, count);
                (own, wall) = (own + time, wall + passed);
                time
            });
        });
        eprintln!("both threads ran in {:.0} % of the time", 100.0 * own.as_secs_f64() / wall.as_secs_f64());
    }
    group.finish();
}

/// Two threads decide as fast as they can with the real clock. Afterwards the cap's bound is
/// checked over every window that begins with a kept trace.
fn cap_at_full_speed(_: &mut Criterion) {
    const TIME: Duration = Duration::from_secs(3);
    let cap: Cap = "traces=10000,burst=1000".parse().expect("a cap");
    let config: Config = "bump:lambda=1e6,min=0.5".parse().expect("a sampler");
    let sampler = Sampler::with_cap(&config, Limits::default(), &cap);
    let start = Instant::now();
    let one = |seed: u64| {
        let (mut decisions, mut kept, mut state) = (0u64, Vec::new(), seed);
        loop {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let random = (state ^ state >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
            let now = start.elapsed();
            if now >= TIME {
                return (decisions, kept);
            }
            decisions += 1;
            let now = now.as_nanos() as u64;
            let request = Request::new(worlds::HOT, Randomness::from_low_bits(random), Nanos::new(now));
            if sampler.decide(&request).keep {
                kept.push(now);
            }
        }
    };
    let ((first, mut kept), (second, others)) = std::thread::scope(|scope| {
        let other = scope.spawn(|| one(3));
        (one(5), other.join().expect("a bench thread"))
    });
    kept.extend(others);
    kept.sort_unstable();
    let allowance = cap.traces.expect("it is given");
    for millis in [1, 10, 100, 1_000] {
        let window = Duration::from_millis(millis);
        let within = |(at, begin): (usize, &u64)| {
            kept.partition_point(|time| *time <= begin + window.as_nanos() as u64) - at
        };
        let most = kept.iter().enumerate().map(within).max().unwrap_or(0);
        let bound = allowance.worst_case(window.as_secs_f64());
        assert!(most as f64 <= bound, "{most} of {bound} in {window:?}");
        eprintln!("cap at full speed: at most {most} kept in any {window:?}, the bound is {bound}");
    }
    let rate = (first + second) as f64 / TIME.as_secs_f64() / 1e6;
    eprintln!("cap at full speed: {rate:.1} million decisions a second on two threads, {} kept", kept.len());
}

/// Decides once per name, and starts again after the last.
fn run_through(world: &dyn World, names: &[String], count: u64) {
    for (name, call) in names.iter().cycle().zip(0..count) {
        world.decide_many(black_box(name), call, 1);
    }
}

/// A million names against a full table; no name repeats within a round.
fn unique_names(criterion: &mut Criterion) {
    const NAMES: usize = 1_000_000;
    let names: Vec<String> =
        (0..NAMES).map(|i| format!("GET /users/{:08x}/orders", i * 2_654_435_761)).collect();
    let mut group = criterion.benchmark_group("unique_names");
    for (name, world) in worlds().into_iter().filter(|(name, _)| worlds::BY_KEY.contains(name)) {
        let before = resident_kib();
        for name in &names {
            world.decide_many(name, 1, 1);
        }
        let after = resident_kib();
        eprintln!("resident memory, {name}: {:+} KiB after a million unique names", after - before);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|count| timed(|| run_through(&*world, &names, count)));
        });
        // The same loop over a million copies of one key: what the names' memory costs, plus the
        // time for a known key.
        let known = vec![worlds::HOT.to_owned(); NAMES];
        group.bench_function(BenchmarkId::from_parameter(format!("{name}, known key")), |bencher| {
            bencher.iter_custom(|count| timed(|| run_through(&*world, &known, count)));
        });
    }
    group.finish();
}

/// The resident memory of this process; 0 if the kernel does not report it.
fn resident_kib() -> i64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        })
        .unwrap_or(0)
}

/// Creates and drops a sampler with its table: the cost of each seed of a replay before its first
/// call.
fn fresh(criterion: &mut Criterion) {
    use astracer_samplers::{Config, Limits, Sampler};
    let mut group = criterion.benchmark_group("fresh_sampler");
    for text in [worlds::BUMP, worlds::BUCKET] {
        let config: Config = text.parse().expect("a valid config");
        for (name, limits) in [("default", Limits::default()), ("single_threaded", Limits::single_threaded())]
        {
            let sampler = Sampler::with_limits(&config, limits);
            group.bench_function(BenchmarkId::new(name, text), |bencher| {
                bencher
                    .iter_custom(|count| timed(|| (0..count).for_each(|_| drop(black_box(sampler.fresh())))));
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = decision;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = hot_key, cap_at_full_speed, unique_names, fresh
}
criterion_main!(decision);
