//! Loss and speed between a service and its backend, ours and stock in one run.
//!
//! Every world (an SDK with its exporter) runs in a process of its own. The sink is another
//! process, and counts the spans that arrive. Arguments choose scenarios (`flood`, `outage`,
//! `spool`, `receive`); without any, all run. `--seconds N` sets the length of the long outage.
//!
//! - `flood`: two threads end spans at full speed for 10 s.
//! - `outage`: 2,000 spans a second with the sink down for 10 s, without a spool; 20,000 a second
//!   with the sink down for 60 s, with a spool, and the same rate while it drains.
//! - `spool`: appends compared with plain sequential writes of the same bytes with as many syncs,
//!   and the time until the first record of a gigabyte arrives.
//! - `receive`: spans per second of the receiver's processor time, from requests with gzip, and the
//!   memory of 1,000 idle connections.
//!
//! Distortions: the loopback device has no latency and no loss; sinks and services share the
//! processors.

// Benchmarks may print.
#![allow(clippy::print_stdout)]

mod disk;
mod process;
mod receive;
mod service;
mod sink;

use std::time::{Duration, Instant};

use process::Child;
use service::World;

/// Runs one world against a sink that is down from `down` to `up`, and prints a line of results.
fn run(world: World, rate: Option<u32>, total: Duration, away: Option<(Duration, Duration)>) {
    let mut sink = Child::start(&["--sink"]);
    let address = sink.line();
    let seconds = total.as_secs().to_string();
    let rate_text = rate.unwrap_or(0).to_string();
    let mut service =
        Child::start(&["--service", world.name(), &format!("http://{address}"), &rate_text, &seconds]);
    let begin = Instant::now();
    if let Some((down, up)) = away {
        std::thread::sleep(down.saturating_sub(begin.elapsed()));
        sink.say("down");
        std::thread::sleep(up.saturating_sub(begin.elapsed()));
        sink.say("up");
    }
    let mut drained = None;
    let report = loop {
        let line = service.line();
        match line.split_once(' ') {
            // Seconds since the start, and the spans in the spool at that time.
            Some(("pending", rest)) => {
                let mut fields = rest.split(' ').map(|field| field.parse::<f64>().expect("a number"));
                let (at, pending) = (fields.next().expect("a time"), fields.next().expect("a count"));
                let up = away.map_or(0.0, |(_, up)| up.as_secs_f64());
                // Only an empty spool after the sink's return counts as drained.
                if at <= up + 0.5 {
                    drained = None;
                } else if pending == 0.0 && drained.is_none() {
                    drained = Some(at - up);
                }
            }
            Some(("report", rest)) => break rest.to_owned(),
            _ => panic!("unexpected line from the service: {line:?}"),
        }
    };
    sink.say("count");
    let arrived: u64 = sink.line().parse().expect("a count");
    let report: service::Report = serde_json::from_str(&report).expect("a report");
    let missing = report.made as i64 - arrived as i64;
    println!(
        "{:<22} made {:>9}  arrived {arrived:>9}  missing {missing:>9} ({:>5.2} %)  counted lost {:>9}  \
         cpu {:>6.2} s  arrived/cpu s {:>8.0}  most memory {:>4} MB{}",
        world.name(),
        report.made,
        100.0 * missing as f64 / report.made as f64,
        report.lost.map_or("-".to_owned(), |lost| lost.to_string()),
        report.cpu_s,
        arrived as f64 / report.cpu_s,
        report.rss_max >> 20,
        drained.map_or(String::new(), |time: f64| format!("  drained after {time:.0} s")),
    );
    if !report.reasons.is_empty() {
        println!("{:<22} {}", "", report.reasons);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--sink", ..] => return sink::run(),
        ["--service", world, url, rate, seconds, ..] => return service::run(world, url, rate, seconds),
        ["--receiver", ..] => return receive::serve(),
        _ => {}
    }
    // `cargo test` runs benchmarks too, but a measurement would be pointless there.
    if !words.contains(&"--bench") {
        return;
    }
    let chosen = |name: &str| {
        let names = ["flood", "outage", "spool", "receive"];
        words.contains(&name) || !words.iter().any(|word| names.contains(word))
    };
    let at = words.iter().position(|word| *word == "--seconds");
    let seconds = at.and_then(|at| words.get(at + 1)?.parse().ok()).unwrap_or(60);
    let second = Duration::from_secs(1);
    if chosen("flood") {
        println!("flood: two threads at full speed for 10 s");
        for world in [World::Stock, World::Default, World::OneInFlight, World::Block, World::Spool] {
            run(world, None, 10 * second, None);
        }
    }
    if chosen("outage") {
        println!("outage of 10 s at 2,000 spans/s, 21 s in all");
        for world in [World::Stock, World::Default] {
            run(world, Some(2_000), 21 * second, Some((3 * second, 13 * second)));
        }
        println!("outage of {seconds} s at 20,000 spans/s, then {seconds} s of the same traffic");
        let away = (5 * second, (5 + seconds) * second);
        run(World::Spool, Some(20_000), (5 + 2 * seconds) * second, Some(away));
    }
    if chosen("spool") {
        disk::run();
    }
    if chosen("receive") {
        receive::run();
    }
}
