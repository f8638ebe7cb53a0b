//! Runs each world in a process of its own, as the global subscriber. Services install a global
//! subscriber, and `tracing` finds it faster than a thread's.
//!
//! Traces come in bursts. After each, a flush outside the caller's time empties the queue, so that
//! nothing is lost. Processes of all worlds run in turn, round after round, and the table has
//! medians.

use std::process::Command;
use std::time::Duration;

use rustix::time::ClockId;

use crate::worlds::WORLDS;

/// Rounds of all worlds.
const ROUNDS: usize = 9;
const BURSTS: u64 = 60;
const TRACES_PER_BURST: u64 = 100;

/// Nanoseconds per span: of the calling thread, and of the whole process with the exporter.
#[derive(Clone, Copy, Debug)]
struct Times {
    caller: f64,
    process: f64,
}

fn cpu(clock: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs one world in this process, on `threads` threads, and prints its times.
pub(crate) fn child(name: &str, threads: u64) {
    let (_, make) = WORLDS.iter().find(|(known, _)| *known == name).expect("a world of that name");
    let mut world = make();
    world.install();
    let burst = |bursts: u64| -> Duration {
        (0..bursts)
            .map(|_| {
                let start = cpu(ClockId::ThreadCPUTime);
                world.run(TRACES_PER_BURST);
                let taken = cpu(ClockId::ThreadCPUTime) - start;
                world.flush();
                taken
            })
            .sum()
    };
    burst(BURSTS / 4);
    let before = cpu(ClockId::ProcessCPUTime);
    let caller: Duration = std::thread::scope(|scope| {
        let handles: Vec<_> = (1..threads).map(|_| scope.spawn(|| burst(BURSTS))).collect();
        let own = burst(BURSTS);
        own + handles.into_iter().map(|handle| handle.join().expect("a bench thread")).sum::<Duration>()
    });
    let process = cpu(ClockId::ProcessCPUTime) - before;
    let spans = (threads * BURSTS * TRACES_PER_BURST * world.spans) as f64;
    let stats = world.stats().unwrap_or_default();
    println!("{} {} {stats}", caller.as_nanos() as f64 / spans, process.as_nanos() as f64 / spans);
}

fn run(name: &str, threads: u64) -> (Times, String) {
    let program = std::env::current_exe().expect("the path of this program");
    let output = Command::new(program)
        .args(["--child", name, "--threads", &threads.to_string()])
        .output()
        .expect("a process for a world");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut parts = text.trim().splitn(3, ' ');
    let mut number = || parts.next().and_then(|number| number.parse().ok()).expect("a time");
    let times = Times { caller: number(), process: number() };
    (times, parts.next().unwrap_or_default().to_owned())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints the table.
pub(crate) fn table(threads: u64, only: Option<&str>) {
    let chosen: Vec<&str> = WORLDS
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| only.is_none_or(|only| only.split('|').any(|only| name.contains(only))))
        .collect();
    let mut times = vec![Vec::new(); chosen.len()];
    let mut stats = vec![String::new(); chosen.len()];
    for _ in 0..ROUNDS {
        for (at, name) in chosen.iter().enumerate() {
            let (taken, said) = run(name, threads);
            times[at].push(taken);
            stats[at] = said;
        }
    }
    println!(
        "{:<44} {:>8} {:>8} {:>8}   threads: {threads}",
        "world, each in a process", "caller", "p10", "process"
    );
    for (at, name) in chosen.iter().enumerate() {
        let mut caller: Vec<f64> = times[at].iter().map(|times| times.caller).collect();
        let process = median(times[at].iter().map(|times| times.process).collect());
        caller.sort_by(f64::total_cmp);
        let (middle, low) = (caller[caller.len() / 2], caller[caller.len() / 10]);
        println!("{name:<44} {middle:>8.1} {low:>8.1} {process:>8.1}   {}", stats[at]);
    }
}
