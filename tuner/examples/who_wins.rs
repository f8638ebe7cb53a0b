//! Which sampler wins on which traffic: every recording given, at three sizes, on draws that no search saw.
//!
//! ```text
//! cargo run --release -p astracer-tuner --example who_wins -- [--size SHARE]... RECORDING[:OTHER]...
//! ```
//!
//! Each sampler is tuned on the whole recording and replayed on it; tuned on its first half and replayed on the later one; and
//! tuned on the recording and replayed on OTHER, if one is given. Baselines are made as large as the size on the part that
//! they are tuned on; those that cannot are left out. A row of a Markdown table for each: dist/entropy with the interval of its mean and that of nine of ten
//! single runs, the share of the bytes kept, and the errors of counts by weight. Below the table: how often each sampler came
//! first, with dist/entropy brought to the same size by the root of the sizes' ratio.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use astracer_recording::recording::{Intake, Keep};
use astracer_recording::source;
use astracer_samplers::{Config, Probability, RandomSource, Ratio, Template};
use astracer_tuner::equal_size::at_equal_size;
use astracer_tuner::held_out::Replayed;
use astracer_tuner::key::Grouping;
use astracer_tuner::names::NameFolding;
use astracer_tuner::tune::{Options, PerKeyUse};
use astracer_tuner::{Candidate, Draw, Limits, Stop, Tunable, Workload, tune};

/// Replays of each sampler on each part.
const REPLAYS: usize = 48;
/// Their seed; searches have another.
const SEED: u64 = 77_000;
/// Replays that a baseline's size is found with.
const SIZING: usize = 6;

fn read(path: &str) -> Result<Workload, Box<dyn Error>> {
    let folding = RefCell::new(NameFolding::new(Template::default()));
    let mut intake = Intake::new(Keep::default()).rename_with(|raw, out| folding.borrow_mut().fold(raw, out));
    source::read(Path::new(path), &source::Options::default(), &mut intake)?;
    Ok(Workload::new(&intake.finish(), &Grouping::default()))
}

/// All samplers, tuned on a workload to keep at most this share of the bytes; those that cannot are left out.
fn tuned(workload: &Workload, size: f64) -> Result<Vec<(String, Candidate)>, Box<dyn Error>> {
    let share = Probability::new(size).ok_or("a size is a share")?;
    let mut samplers = vec![("equal share".to_owned(), Candidate::from(Config::from(Ratio::new(share)?)))];
    let ours = [
        ("bump tumbling", Tunable::Tumbling, PerKeyUse::Never),
        ("bump decaying", Tunable::Bump, PerKeyUse::Never),
        ("bucket", Tunable::Bucket, PerKeyUse::Never),
        ("a probability for each key", Tunable::Bump, PerKeyUse::Always),
        ("tune's choice", Tunable::Bump, PerKeyUse::Auto),
    ];
    for (name, sampler, per_key) in ours {
        let limits = Limits { size_min: size / 10.0, size_max: size, ..Limits::default() };
        let options = Options { sampler, per_key, limits, replays: 0, ..Options::default() };
        let tuning = tune(workload, &options, Stop::never(), &|_| ());
        if tuning.feasible {
            samplers.push((name.to_owned(), Candidate::from(tuning.config()?)));
        }
    }
    let draws = Draw::unseen(SIZING, SEED - 1_000, RandomSource::Independent);
    let seconds = workload.arrivals().last().map_or(0.0, |last| last.at_ns as f64 / 1e9);
    for baseline in astracer_baselines::all() {
        // An equal share is there already.
        if !["ratio", "every"].contains(&baseline.kind().name) {
            let baseline = baseline.quickened_for(seconds);
            let found = at_equal_size(workload, &baseline, size, &draws, Stop::never()).ok_or("stopped")?;
            if (found.tfcr / size - 1.0).abs() < 0.1 {
                samplers.push((baseline.kind().name.to_owned(), Candidate::from(found.spec)));
            }
        }
    }
    Ok(samplers)
}

/// Replays each sampler, prints its row, and counts the first.
#[allow(clippy::print_stdout)]
fn judge(
    (name, on, size): (&str, &str, f64),
    workload: &Workload,
    samplers: &[(String, Candidate)],
    won: &mut BTreeMap<(String, String), u32>,
) -> Result<(), Box<dyn Error>> {
    let draws = Draw::unseen(REPLAYS, SEED, RandomSource::Stratified);
    let mut best: Option<(f64, &str)> = None;
    for (sampler, candidate) in samplers {
        let replayed = Replayed::new(workload, candidate, &draws, Stop::never(), &|| ()).ok_or("stopped")?;
        let (found, kept) = (replayed.dist_over_entropy, replayed.tfcr.mean);
        let counts = replayed.counts.map_or_else(
            || "- | -".to_owned(),
            |counts| format!("{:.2} | {:.2}", counts.functions, counts.functions_calibrated),
        );
        println!(
            "| {name} | {} % | {on} | {sampler} | {:.1} ({:.1} to {:.1}) | {:.1} to {:.1} | {:.1} % | {counts} |",
            size * 1e2,
            found.mean,
            found.mean_interval[0],
            found.mean_interval[1],
            found.run_interval[0],
            found.run_interval[1],
            kept * 1e2,
        );
        // A choice between others takes no part itself.
        let at_size = found.mean * (kept / size).sqrt();
        if sampler != "tune's choice" && at_size.is_finite() && best.is_none_or(|(least, _)| at_size < least)
        {
            best = Some((at_size, sampler));
        }
    }
    if let Some((_, first)) = best {
        let part = if on.starts_with("whole") { "in sample" } else { "held out" };
        *won.entry((part.to_owned(), first.to_owned())).or_default() += 1;
    }
    Ok(())
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn Error>> {
    let (mut sizes, mut recordings) = (Vec::new(), Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--size" => sizes.push(args.next().ok_or("--size needs a share")?.parse()?),
            _ => recordings.push(arg),
        }
    }
    if sizes.is_empty() {
        sizes = vec![0.1, 0.03, 0.01];
    }
    println!(
        "| recording | at most | replayed on | sampler | dist/entropy (mean) | single runs | bytes | rmse of functions | calibrated |"
    );
    println!("|---|---|---|---|---:|---:|---:|---:|---:|");
    let mut won = BTreeMap::new();
    for recording in &recordings {
        let (path, other) = recording.split_once(':').map_or((&**recording, None), |(a, b)| (a, Some(b)));
        let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
        let name = name.split('.').next().unwrap_or_default().to_owned();
        let workload = read(path)?;
        let (first, later) = workload.split(0.5, Stop::never()).ok_or("stopped")?;
        for &size in &sizes {
            let samplers = tuned(&workload, size)?;
            judge((&name, "whole", size), &workload, &samplers, &mut won)?;
            if let Some(other) = other {
                let of_other = read(other)?;
                judge((&name, "another recording", size), &of_other, &samplers, &mut won)?;
            }
            // A part with a handful of traces says nothing.
            if first.arrivals().len().min(later.arrivals().len()) >= 500 {
                judge((&name, "later half", size), &later, &tuned(&first, size)?, &mut won)?;
            }
        }
    }
    println!();
    for ((part, sampler), times) in won {
        println!("{part}: {sampler} was first {times} times");
    }
    Ok(())
}
