//! The cost of a span in a trace of ten: our layer and others in one run.
//!
//! The first output is a table of ratios to a registry with an idle layer. Every world runs once
//! per round, so that changes of the machine's speed affect all alike, and the table has the median
//! of the rounds. It counts the processor time of the service's thread, so a busy machine disturbs
//! it less. Criterion's own measurements of the same worlds follow. Arguments: `--ratios` prints
//! only the table, `--only TEXT` selects worlds, `--processes` runs each in a process of its own,
//! `--threads 2` runs each on two threads, `--once NAME` runs one world and nothing else, for
//! callgrind.
//!
//! Distortions: the loop does nothing else, so caches and branch prediction are perfect; and no
//! exporter keeps up at this speed, so in every world queues are full and exporter threads are
//! always busy.

// The program prints ratios, which criterion does not measure.
#![allow(clippy::print_stdout)]

mod bodies;
mod processes;
mod worlds;

use std::sync::Barrier;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};

use worlds::{WORLDS, World};

/// The processor time of this thread.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The mean processor time of `traces` traces on each of `threads` threads at once.
fn timed(world: &World, threads: u64, traces: u64) -> Duration {
    let barrier = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        let work = || {
            barrier.wait();
            let start = cpu();
            world.run(traces);
            cpu() - start
        };
        let handles: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        let total: Duration = handles.into_iter().map(|handle| handle.join().expect("a bench thread")).sum();
        (own + total) / threads as u32
    })
}

const ROUNDS: usize = 15;
const TRACES: u64 = 4_000;

fn ratios(threads: u64, only: Option<&str>) {
    let chosen: Vec<_> = WORLDS
        .iter()
        .enumerate()
        .filter(|(i, (name, _))| *i == 0 || only.is_none_or(|only| name.contains(only)))
        .collect();
    let mut times = vec![Vec::new(); chosen.len()];
    let mut stats = vec![None; chosen.len()];
    for _ in 0..ROUNDS {
        for (at, (_, (_, make))) in chosen.iter().enumerate() {
            let world = make();
            timed(&world, threads, TRACES / 4);
            times[at].push(timed(&world, threads, TRACES).as_nanos() as f64 / (TRACES * world.spans) as f64);
            stats[at] = world.stats();
        }
    }
    let median = |times: &[f64]| {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    // Each round has its own ratio, because a slow round slows all worlds.
    println!("{:<44} {:>8} {:>8}   threads: {threads}", "world", "ns/span", "ratio");
    for (at, (_, (name, _))) in chosen.iter().enumerate() {
        let ratio: Vec<f64> = times[at].iter().zip(&times[0]).map(|(own, idle)| own / idle).collect();
        let said = stats[at].as_deref().unwrap_or_default();
        println!("{name:<44} {:>8.1} {:>7.3}x   {said}", median(&times[at]), median(&ratio));
    }
}

fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

fn main() {
    if let Some(name) = argument("--once") {
        let (_, make) = WORLDS.iter().find(|(known, _)| *known == name).expect("a world of that name");
        return make().run(argument("--traces").and_then(|traces| traces.parse().ok()).unwrap_or(10_000));
    }
    if let Some(name) = argument("--child") {
        let threads = argument("--threads").and_then(|threads| threads.parse().ok()).unwrap_or(1);
        return processes::child(&name, threads);
    }
    let threads = argument("--threads").and_then(|threads| threads.parse().ok()).unwrap_or(1);
    if std::env::args().any(|argument| argument == "--processes") {
        return processes::table(threads, argument("--only").as_deref());
    }
    ratios(threads, argument("--only").as_deref());
    if std::env::args().any(|argument| argument == "--ratios") {
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("span_of_ten");
    for (name, make) in WORLDS {
        let world = make();
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|spans| {
                let traces = spans.div_ceil(world.spans);
                timed(&world, threads, traces).mul_f64(spans as f64 / (traces * world.spans) as f64)
            });
        });
    }
    group.finish();
    criterion.final_summary();
}
