//! Exporting spans: our exporter and opentelemetry-otlp in one run, to the same sink in another
//! process.
//!
//! The figure is the processor time of all threads of this process, from the first span passed to
//! the exporter to the response to the last request. The sink's own time is excluded, and so is
//! creating the spans. Every world runs once per round, and the result is the median of each
//! round's ratio to the stock world, so that a slow round affects all worlds alike.
//!
//! Worlds: `stock` is opentelemetry_sdk's batch processor with opentelemetry-otlp, at the default
//! batch of 512 spans and a queue that holds all spans. `processor, ours` is the same processor
//! with our exporter; `ours` passes batches of 512 to our exporter, as astracer-sdk's worker does,
//! and `otlp alone` passes the same to opentelemetry-otlp. `--sink KIND` is how the program starts
//! its own sink.
//!
//! Distortions: the loopback device has no latency and no loss, and its copies count; the sink
//! responds at once.

// Benchmarks may print.
#![allow(clippy::print_stdout)]

mod sink;
mod spans;
mod worlds;
mod zipkin;

use std::time::Duration;

use worlds::{Protocol, worlds};

/// The processor time of this process.
fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

const ROUNDS: usize = 11;
const BATCH: usize = 512;
const BATCHES: usize = 40;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(protocol: Protocol) {
    let sink = sink::Process::start(protocol);
    let worlds = worlds(protocol, &sink.url());
    let mut times = vec![Vec::new(); worlds.len()];
    for round in 0..=ROUNDS {
        for (at, world) in worlds.iter().enumerate() {
            let batches = spans::batches(BATCH, BATCHES);
            let start = process_time();
            world.export(batches);
            let took = process_time() - start;
            // The first round warms up connections and memory.
            if round > 0 {
                times[at].push(took.as_nanos() as f64 / (BATCH * BATCHES) as f64);
            }
        }
    }
    println!("{:<36} {:>10} {:>12} {:>8}", protocol.name(), "ns/span", "spans/cpu s", "ratio");
    for (at, world) in worlds.iter().enumerate() {
        let own = median(times[at].clone());
        let ratio = median(times[at].iter().zip(&times[0]).map(|(own, stock)| stock / own).collect());
        println!("{:<36} {own:>10.0} {:>12.0} {ratio:>7.2}x", world.name(), 1e9 / own);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(kind) = arguments.iter().position(|argument| argument == "--sink") {
        return sink::run(&arguments[kind + 1]);
    }
    // `cargo test` runs benchmarks too, but a measurement would be pointless there.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    for protocol in [Protocol::Grpc, Protocol::Http] {
        compare(protocol);
    }
    zipkin::compare();
}
