//! One sampling decision: ours and rivals in the same run, one thread, two threads on the same key, and a flood of
//! unique names.
//!
//! Times are the deciding threads' own processor time, not the wall's: other work on the machine then does not count.
//! Two threads only disturb each other while both run, so that the figure for two is good only on a machine with two
//! idle cores; the share of the time in which they did is printed.
//!
//! What the bench itself distorts: the key is one string in the cache, and the loop does nothing else, so that branch
//! prediction is perfect. Each body makes a random number by the same few instructions (about 1 ns, the row `floor`).
//! Our samplers are handed `now`; the rows with a clock read it as a service would. governor and Jaeger's rate limiter
//! read their own clock in every call or when their bucket is empty; governor is also measured with its fake clock.

// A benchmark may print what criterion does not measure: the resident memory.
#![allow(clippy::print_stderr)]

mod rivals;
mod worlds;

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

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

/// What `work` costs this thread.
fn timed(work: impl FnOnce()) -> Duration {
    let start = thread_time();
    work();
    thread_time() - start
}

/// The processor time of `count` decisions in each of two threads at once, and the wall time that passed.
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
        // The mean of the two: neither may wait for the other and look fast.
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

/// Decides once for each of the names, from the first again after the last.
fn run_through(world: &dyn World, names: &[String], count: u64) {
    for (name, call) in names.iter().cycle().zip(0..count) {
        world.decide_many(black_box(name), call, 1);
    }
}

/// A million names, none seen twice in a round, against a table that is full.
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
        eprintln!("resident memory, {name}: {:+} KiB by a million unique names", after - before);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|count| timed(|| run_through(&*world, &names, count)));
        });
        // The same loop over as many strings that are one key: what the memory of the names costs, and the known
        // key's time.
        let known = vec![worlds::HOT.to_owned(); NAMES];
        group.bench_function(BenchmarkId::from_parameter(format!("{name}, known key")), |bencher| {
            bencher.iter_custom(|count| timed(|| run_through(&*world, &known, count)));
        });
    }
    group.finish();
}

/// Resident memory of this process, from the kernel; 0 where there is no such file.
fn resident_kib() -> i64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        })
        .unwrap_or(0)
}

/// A sampler with its table, made and dropped: what each seed of a replay costs before its first call.
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
    targets = hot_key, unique_names, fresh
}
criterion_main!(decision);
