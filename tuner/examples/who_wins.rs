//! Compares samplers on every recording given, at three sizes, on draws that no search used.
//!
//! ```text
//! cargo run --release -p astracer-tuner --example who_wins -- \
//!     [--size SHARE]... [--out FILE] RECORDING[:OTHER]...
//! ```
//!
//! Each sampler is tuned on the whole recording and replayed on it; tuned on its first half and
//! replayed on the second; and, if OTHER is given, tuned on the recording and replayed on OTHER.
//! Baselines are adjusted to the size on the part that they are tuned on, and left out if they
//! cannot reach it. Each result is a row of a Markdown table: dist/entropy with the interval of its
//! mean and the interval of nine in ten single runs, the share of the bytes kept, the errors of
//! weighted counts, and the number of replays. Below the table follows how often each sampler came
//! first; if it kept more than the size, its dist/entropy is first multiplied by the root of the
//! ratio. Rows are printed when they are found and appended to FILE, so a long table may be
//! interrupted.

#[path = "support/read.rs"]
mod read;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::Write as _;

use astracer_samplers::{Config, Probability, RandomSource, Ratio};
use astracer_tuner::equal_size::at_equal_size;
use astracer_tuner::held_out::Replayed;
use astracer_tuner::tune::{Options, PerKeyUse};
use astracer_tuner::{Candidate, Draw, Limits, Stop, Tunable, Tuning, Workload, tune};
use read::{read, short_name};

/// Replays of each sampler on each part. Large recordings get fewer, because chance matters less
/// there.
const REPLAYS: usize = 48;
const REPLAYS_MIN: usize = 6;
/// All replays of a sampler on a part together cover about this many arrivals.
const REPLAYED_MAX: usize = 2_000_000;
/// The seed of the replays, which differs from that of searches.
const SEED: u64 = 77_000;
/// Replays that determine a baseline's size, and the arrivals that they cover together.
const SIZING: usize = 6;
const SIZED_MAX: usize = 200_000;
/// Parts with fewer traces say nothing.
const TRACES_MIN: usize = 500;
/// The row of `tune`'s choice, which repeats one of the other samplers.
const CHOICE: &str = "tune's choice";
/// On other parts, a sampler takes part if it keeps at most this multiple of the size.
const COMPARABLE: f64 = 1.5;
/// A sampler is left out if it keeps more than this multiple of the size on the part that it was
/// tuned on.
const TOO_LARGE: f64 = 1.1;

fn draws(
    workload: &Workload,
    most: usize,
    arrivals_max: usize,
    seed: u64,
    random: RandomSource,
) -> Vec<Draw> {
    let affordable = arrivals_max / workload.arrivals().len().max(1);
    Draw::unseen(affordable.clamp(REPLAYS_MIN.min(most), most), seed, random)
}

/// All samplers, tuned on a workload to keep at most this share of the bytes. Samplers that cannot
/// are left out.
fn tuned(workload: &Workload, size: f64) -> Result<Vec<(String, Candidate)>, Box<dyn Error>> {
    let share = Probability::new(size).ok_or("--size must be a share from 0 to 1")?;
    let mut samplers = vec![("equal share".to_owned(), Candidate::from(Config::from(Ratio::new(share)?)))];
    let sizing = draws(workload, SIZING, SIZED_MAX, SEED - 1_000, RandomSource::Independent);
    // Each of ours is replayed once, so there is time for more draws.
    let sizing_ours = draws(workload, REPLAYS, REPLAYED_MAX, SEED - 1_000, RandomSource::Stratified);
    let limits = Limits { size_min: size / 10.0, size_max: size, ..Limits::default() };
    let tuned = |sampler: Tunable, per_key: PerKeyUse| {
        let options = Options { sampler, per_key, limits, replays: 0, ..Options::default() };
        tune(workload, &options, Stop::never(), &|_| ())
    };
    let mut add = |name: &str, tuning: &Tuning| -> Result<(), Box<dyn Error>> {
        let candidate = Candidate::from(tuning.config()?);
        let kept =
            Replayed::new(workload, &candidate, &sizing_ours, Stop::never(), &|| ()).ok_or("stopped")?;
        if tuning.feasible && kept.tfcr.mean < TOO_LARGE * size {
            samplers.push((name.to_owned(), candidate));
        }
        Ok(())
    };
    let chosen = tuned(Tunable::Bump, PerKeyUse::Auto);
    add("bump tumbling", &tuned(Tunable::Tumbling, PerKeyUse::Never))?;
    add("bump decaying", &Tuning { per_root: Vec::new(), ..chosen.clone() })?;
    add("bucket", &tuned(Tunable::Bucket, PerKeyUse::Never))?;
    if chosen.per_root.is_empty() {
        let always = tuned(Tunable::Bump, PerKeyUse::Always);
        if !always.per_root.is_empty() {
            add("a probability for each key", &always)?;
        }
    } else {
        add("a probability for each key", &chosen)?;
    }
    add(CHOICE, &chosen)?;
    let seconds = workload.seconds();
    for baseline in astracer_baselines::all() {
        // The equal share is in the list already.
        if !["ratio", "every"].contains(&baseline.kind().name) {
            let baseline = baseline.quickened_for(seconds);
            let found = at_equal_size(workload, &baseline, size, &sizing, Stop::never()).ok_or("stopped")?;
            if (found.tfcr / size - 1.0).abs() < 0.1 {
                samplers.push((baseline.kind().name.to_owned(), Candidate::from(found.spec)));
            }
        }
    }
    Ok(samplers)
}

/// The table, which is printed and, if there is a file, appended to it.
struct Table {
    file: Option<File>,
    won: BTreeMap<(String, String), u32>,
}

impl Table {
    #[allow(clippy::print_stdout)]
    fn line(&mut self, line: &str) -> Result<(), std::io::Error> {
        println!("{line}");
        self.file.as_mut().map_or(Ok(()), |file| writeln!(file, "{line}"))
    }
}

/// Replays each sampler, prints its row, and counts the winner.
fn judge(
    (name, on, size): (&str, &str, f64),
    workload: &Workload,
    samplers: &[(String, Candidate)],
    table: &mut Table,
) -> Result<(), Box<dyn Error>> {
    let draws = draws(workload, REPLAYS, REPLAYED_MAX, SEED, RandomSource::Stratified);
    let mut best: Option<(f64, &str)> = None;
    for (sampler, candidate) in samplers {
        let replayed = Replayed::new(workload, candidate, &draws, Stop::never(), &|| ()).ok_or("stopped")?;
        let (found, kept) = (replayed.dist_over_entropy, replayed.tfcr.mean);
        let counts = replayed.counts.map_or_else(
            || "- | -".to_owned(),
            |counts| format!("{:.2} | {:.2}", counts.functions, counts.functions_calibrated),
        );
        table.line(&format!(
            "| {name} | {} % | {on} | {sampler} | {:.1} ({:.1} to {:.1}) | {:.1} to {:.1} | {:.2} % | {counts} | {} |",
            size * 1e2,
            found.mean,
            found.mean_interval[0],
            found.mean_interval[1],
            found.run_interval[0],
            found.run_interval[1],
            kept * 1e2,
            draws.len(),
        ))?;
        // `tune`'s choice repeats another sampler, and sizes that differ too much are not
        // comparable.
        let at_size = found.mean * (kept / size).max(1.0).sqrt();
        if sampler != CHOICE
            && kept < COMPARABLE * size
            && at_size.is_finite()
            && best.is_none_or(|(least, _)| at_size < least)
        {
            best = Some((at_size, sampler));
        }
    }
    if let Some((_, first)) = best {
        let part = if on.starts_with("whole") { "in sample" } else { "held out" };
        *table.won.entry((part.to_owned(), first.to_owned())).or_default() += 1;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut sizes, mut recordings) = (Vec::new(), Vec::new());
    let mut table = Table { file: None, won: BTreeMap::new() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--size" => sizes.push(args.next().ok_or("--size needs a share")?.parse()?),
            "--out" => {
                let path = args.next().ok_or("--out needs a file")?;
                table.file = Some(File::options().append(true).create(true).open(path)?);
            }
            _ => recordings.push(arg),
        }
    }
    if sizes.is_empty() {
        sizes = vec![0.1, 0.03, 0.01];
    }
    table.line(
        "| recording | at most | replayed on | sampler | dist/entropy (mean) | single runs | bytes | rmse of functions | calibrated | replays |",
    )?;
    table.line("|---|---|---|---|---:|---:|---:|---:|---:|---:|")?;
    for recording in &recordings {
        let (path, other) = recording.split_once(':').map_or((&**recording, None), |(a, b)| (a, Some(b)));
        let name = short_name(path);
        let workload = read(path)?;
        let (first, later) = workload.split(0.5, Stop::never()).ok_or("stopped")?;
        for &size in &sizes {
            let samplers = tuned(&workload, size)?;
            judge((&name, "whole", size), &workload, &samplers, &mut table)?;
            if let Some(other) = other {
                let of_other = read(other)?;
                judge((&name, "another recording", size), &of_other, &samplers, &mut table)?;
            }
            if first.arrivals().len().min(later.arrivals().len()) >= TRACES_MIN {
                judge((&name, "later half", size), &later, &tuned(&first, size)?, &mut table)?;
            }
        }
    }
    table.line("")?;
    for ((part, sampler), times) in std::mem::take(&mut table.won) {
        table.line(&format!("{part}: {sampler} was first {times} times"))?;
    }
    Ok(())
}
