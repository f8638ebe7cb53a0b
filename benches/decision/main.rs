//! One sampling decision: ours and rivals in the same run, one thread, two threads on the same key, and a flood of
//! unique names.
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

/// The time of `count` decisions in each of `threads` threads at once.
fn timed(world: &dyn World, threads: u64, count: u64) -> Duration {
    if threads == 1 {
        let start = Instant::now();
        run(world, 1, count);
        return start.elapsed();
    }
    let barrier = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    run(world, 2 * thread + 1, count);
                    start.elapsed()
                })
            })
            .collect();
        // The mean of the threads: neither may wait for the other and look fast.
        let total: Duration = handles.into_iter().map(|handle| handle.join().expect("a bench thread")).sum();
        total / threads as u32
    })
}

fn hot_key(criterion: &mut Criterion) {
    for threads in [1, 2] {
        let mut group = criterion.benchmark_group(format!("hot_key_{threads}_threads"));
        for (name, world) in worlds() {
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                bencher.iter_custom(|count| timed(&*world, threads, count));
            });
        }
        group.finish();
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
            bencher.iter_custom(|count| {
                let mut names = names.iter().cycle();
                let start = Instant::now();
                for _ in 0..count {
                    if let Some(name) = names.next() {
                        world.decide_many(black_box(name), 1, 1);
                    }
                }
                start.elapsed()
            });
        });
        // The same loop over as many strings that are one key: what the memory of the names costs, and the known
        // key's time.
        let known = vec![worlds::HOT.to_owned(); NAMES];
        group.bench_function(BenchmarkId::from_parameter(format!("{name}, known key")), |bencher| {
            bencher.iter_custom(|count| {
                let mut names = known.iter().cycle();
                let start = Instant::now();
                for _ in 0..count {
                    if let Some(name) = names.next() {
                        world.decide_many(black_box(name), 1, 1);
                    }
                }
                start.elapsed()
            });
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
            group.bench_function(BenchmarkId::new(name, text), |bencher| bencher.iter(|| sampler.fresh()));
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
