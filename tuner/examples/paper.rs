//! Repeats comparisons of the ASTracer paper that are of no use for tuning a service, and that the
//! command line tool therefore does not offer.
//!
//! ```text
//! cargo run --release -p astracer-tuner --example paper -- searches [--iterations N] RECORDING
//! cargo run --release -p astracer-tuner --example paper -- phases SAMPLER RECORDING
//! cargo run --release -p astracer-tuner --example paper -- periods RECORDING
//! ```
//!
//! - `searches`: the best dist/entropy that annealing, random search and a grid find with as many
//!   candidates (500), for bump and a tenth of the bytes.
//! - `phases`: a sampler with windows, such as `bump:lambda=10,min=0.01,window=1s`, with its
//!   windows at ten places relative to the recording.
//! - `periods`: samplers of other projects with their own periods (30 s or more), and with periods
//!   so short that at least ten fit into the recording. A recording of few periods shows only how
//!   they start.
//!
//! Each prints a Markdown table.

#[path = "support/read.rs"]
mod read;

use std::error::Error;

use astracer_baselines::BaselineSpec;
use astracer_samplers::Config;
use astracer_tuner::equal_size::at_equal_size;
use astracer_tuner::key::Grouping;
use astracer_tuner::tune::{Options, PerKeyUse};
use astracer_tuner::{Candidate, Draw, Evaluator, Stop, Workload, tune};
use read::{read, short_name};

const USAGE: &str = "give searches [--iterations N], phases SAMPLER or periods, and a recording";
/// The share of the bytes that baselines keep.
const SIZE: f64 = 0.1;
/// Replays of each row.
const SEEDS: u64 = 10;

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let Some((&recording, what)) = args.split_last() else { return Err(USAGE.into()) };
    if !matches!(what, ["searches"] | ["searches", "--iterations", _] | ["phases", _] | ["periods"]) {
        return Err(USAGE.into());
    }
    let workload = read(recording)?;
    println!("{}\n", short_name(recording));
    match *what {
        ["searches", _, iterations] => searches(&workload, iterations.parse()?),
        ["searches"] => searches(&workload, 500),
        ["phases", sampler] => phases(&Candidate::from(sampler.parse::<Config>()?), &workload),
        _ => periods(&workload),
    }
}

#[allow(clippy::print_stdout)]
fn searches(workload: &Workload, iterations: u64) -> Result<(), Box<dyn Error>> {
    let options =
        Options { compare: true, per_key: PerKeyUse::Never, replays: 0, iterations, ..Options::default() };
    let tuning = tune(workload, &options, Stop::never(), &|_| ());
    println!("| search | candidates | best {} |\n|---|---:|---:|", tuning.objective);
    for search in tuning.starts.iter().chain(&tuning.compared) {
        let best = search.best.map_or_else(|| "-".to_owned(), |best| format!("{:.3}", best.objective));
        println!("| {} | {} | {best} |", search.method, search.evaluations);
    }
    Ok(())
}

fn phases(sampler: &Candidate, workload: &Workload) -> Result<(), Box<dyn Error>> {
    if !sampler.has_windows() {
        return Err(
            format!("'{sampler}' has no windows: use for example bump:lambda=10,min=0.01,window=1s").into()
        );
    }
    let rows = (0..10).map(|tenth| {
        let phase = f64::from(tenth) / 10.0;
        (format!("{phase}"), sampler.clone(), phase)
    });
    table("phase", rows.collect(), workload)
}

fn periods(workload: &Workload) -> Result<(), Box<dyn Error>> {
    let seconds = workload.seconds();
    let draws: Vec<Draw> = (0..3).map(Draw::recorded).collect();
    let mut rows = Vec::new();
    for own in astracer_baselines::all() {
        let short = own.quickened_for(seconds);
        let specs: Vec<BaselineSpec> =
            if short.to_string() == own.to_string() { vec![own] } else { vec![own, short] };
        for spec in specs {
            let sized = at_equal_size(workload, &spec, SIZE, &draws, Stop::never()).ok_or("stopped")?;
            rows.push((sized.spec.to_string(), Candidate::from(sized.spec), 0.0));
        }
    }
    table("sampler", rows, workload)
}

/// Replays each candidate at its phase, and prints a row for it.
#[allow(clippy::print_stdout)]
fn table(
    first: &str,
    rows: Vec<(String, Candidate, f64)>,
    workload: &Workload,
) -> Result<(), Box<dyn Error>> {
    let evaluator = Evaluator::new(workload);
    println!("| {first} | bytes kept | dist/entropy | call trees |\n|---|---:|---:|---:|");
    for (name, candidate, phase) in rows {
        let draws: Vec<Draw> = (0..SEEDS).map(|seed| Draw { phase, ..Draw::recorded(seed) }).collect();
        let found = evaluator.evaluate(&[candidate], &draws, &Grouping::default(), Stop::never(), || ());
        let found = found.ok_or("stopped")?;
        let mean = &found.summary.first().ok_or("no result")?.mean;
        println!(
            "| {name} | {:.2} % | {:.2} | {:.1} |",
            mean.tfcr * 100.0,
            mean.dist_over_entropy,
            mean.call_trees
        );
    }
    Ok(())
}
