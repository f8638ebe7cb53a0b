//! Checks whether the printed figure holds: tunes on a recording, then replays the result over ten
//! phases, eight seeds (or N) and three jitters that neither the search nor its check used.
//!
//! ```text
//! cargo run --release -p astracer-tuner --example figures -- \
//!     [--sampler NAME] [--size SHARE] [--half] [--seeds N] RECORDING [OTHER]
//! ```
//!
//! For each recording it prints the printed mean, the mean of these replays (240) with its
//! interval, the sizes, and the errors of counts. If a second recording is given, the parameters
//! are replayed on it too. With `--half`, the first half of the recording is tuned on, and the
//! second half is replayed instead of the recording.

#[path = "support/read.rs"]
mod read;

use std::error::Error;

use astracer_samplers::{Config, Probability, RandomSource, Ratio};
use astracer_tuner::held_out::Replayed;
use astracer_tuner::tune::{Options, PerKeyUse};
use astracer_tuner::{Draw, Limits, Stop, tune};
use read::{read, short_name};

/// Ten phases, some seeds, three jitters.
fn draws(seeds: u32, random: RandomSource) -> Vec<Draw> {
    let mut draws = Vec::new();
    for phase in 0..10 {
        for seed in 0..seeds {
            for jitter_ms in [0.0, 5.0, 50.0] {
                let number = draws.len() as u64;
                let phase = (f64::from(phase) + f64::from(seed) / f64::from(seeds)) / 10.0;
                draws.push(
                    Draw { phase, jitter_ms, ..Draw::recorded(1_000_000 + number) }.with_random(random),
                );
            }
        }
    }
    draws
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn Error>> {
    let mut options = Options::default();
    let mut paths = Vec::new();
    let mut verbose = false;
    let mut half = false;
    let mut seeds = 8;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--size" => {
                let size_max: f64 = value()?.parse()?;
                options.limits = Limits { size_min: size_max / 10.0, size_max, ..options.limits };
            }
            "--sampler" => match value()?.as_str() {
                "bump" => options.per_key = PerKeyUse::Never,
                "per-key" => options.per_key = PerKeyUse::Always,
                "bucket" => options.sampler = astracer_tuner::Tunable::Bucket,
                "auto" => {}
                other => {
                    return Err(
                        format!("invalid --sampler {other}: use auto, bump, per-key or bucket").into()
                    );
                }
            },
            "--seed" => options.seed = value()?.parse()?,
            "--per-key-iterations" => options.per_key_iterations = value()?.parse()?,
            "--random" => {
                let name = value()?;
                options.random = RandomSource::from_name(&name)
                    .ok_or_else(|| format!("invalid --random {name}: use stratified or independent"))?;
            }
            "--draws" => options.draws = value()?.parse()?,
            "--iterations" => options.iterations = value()?.parse()?,
            "--half" => half = true,
            "--seeds" => seeds = value()?.parse()?,
            "--verbose" => verbose = value()?.parse()?,
            _ => paths.push(arg),
        }
    }
    let [first, others @ ..] = &paths[..] else { return Err("no recording given".into()) };
    let mut workload = read(first)?;
    let mut later = None;
    if half {
        let (before, after) = workload.split(0.5, Stop::never()).ok_or("stopped")?;
        (workload, later) = (before, Some(after));
    }
    let tuning = tune(&workload, &options, Stop::never(), &|_| ());
    let config = tuning.config()?;
    let shown: String = config.to_string().chars().take(100).collect();
    println!("{}: {shown}", short_name(first));
    println!(
        "  {:.1} s, {} evaluations, search {:.2}, expected {:.2}",
        tuning.seconds, tuning.evaluations, tuning.value, tuning.score.dist_over_entropy
    );
    if verbose {
        for root in &tuning.per_root {
            let of_key = || workload.arrivals().iter().filter(|arrival| workload.key(arrival) == root.key);
            let (traces, bytes) = (of_key().count(), of_key().map(|arrival| arrival.bytes).sum::<u64>());
            let all: u64 = workload.arrivals().iter().map(|arrival| arrival.bytes).sum();
            println!(
                "  {:50} {traces:6} traces, {:5.1} % of the bytes: {:?}",
                root.key,
                bytes as f64 / all as f64 * 1e2,
                root.parameters
            );
        }
    }
    if verbose {
        let own = |key: &str| {
            tuning.per_root.iter().find(|root| root.key == key).map_or(1.0, |root| match root.parameters {
                astracer_tuner::Parameters::Constant { probability } => probability,
                _ => 1.0,
            })
        };
        let mut variances = vec![(0.0, 0, 0.0f64); workload.functions().len()];
        for (index, arrival) in workload.arrivals().iter().enumerate() {
            let p = own(workload.key(arrival));
            for calls in workload.calls(index) {
                let row = &mut variances[calls.function as usize];
                row.0 += f64::from(calls.count).powi(2) * (1.0 - p) / p;
                row.1 += 1;
                row.2 = row.2.max(1.0 / p);
            }
        }
        let mut rows: Vec<_> = workload
            .functions()
            .iter()
            .zip(&variances)
            .filter(|(f, _)| f.count > 0)
            .map(|(f, v)| (v.0.sqrt() / f.count as f64, v.1, v.2, &f.name))
            .collect();
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        let all: f64 = rows.iter().map(|row| row.0).sum::<f64>() / rows.len() as f64;
        println!("  error of counts by formula, independent {all:.3}: {:.3?}", &rows[..12.min(rows.len())]);
    }
    if let Some(trial) = &tuning.per_key_trial {
        let of =
            |both: &[Replayed; 2]| both.map(|replayed| (replayed.dist_over_entropy.mean, replayed.tfcr.mean));
        println!(
            "  trial on the other half: common {:.2?}, per key {:.2?}",
            of(&trial.common),
            of(&trial.per_key)
        );
    }
    for warning in &tuning.warnings {
        println!("  warning: {warning}");
    }
    let printed = tuning.replayed.map_or(f64::NAN, |replayed| replayed.dist_over_entropy.mean);
    let share = tuning.replayed_share.map_or(f64::NAN, |replayed| replayed.dist_over_entropy.mean);
    let replays = tuning.replayed.map_or(0, |replayed| replayed.replays);
    println!(
        "  printed {printed:.2} ({replays} replays; mean {:.2?}), equal share {share:.2}, bootstrap {:.1?}",
        tuning.replayed.map(|replayed| replayed.dist_over_entropy.mean_interval),
        tuning.bootstrap.map(|b| b.run_interval)
    );
    if let Some(deciding) = tuning.replayed.and_then(|replayed| replayed.deciding) {
        println!("  {deciding:?}");
    }
    for path in std::iter::once(first).chain(others) {
        let other = match later.take() {
            Some(later) => later,
            None => read(path)?,
        };
        let sampler = config.clone().into();
        let replayed = Replayed::new(&other, &sampler, &draws(seeds, options.random), Stop::never(), &|| ())
            .ok_or("stopped")?;
        let found = replayed.dist_over_entropy;
        println!(
            "  on {}: {:.2} (mean {:.2?}, runs {:.1?}) at {:.4} of the bytes, {:.1} trees; by weights {:.2?}; {:.3?}",
            short_name(path),
            found.mean,
            found.mean_interval,
            found.run_interval,
            replayed.tfcr.mean,
            replayed.call_trees.mean,
            replayed.dist_over_entropy_weighted.map(|weighted| weighted.mean),
            replayed.counts,
        );
        println!("  printed / replayed {:.3}", printed / found.mean);
        // The rule of the later half: by weights, beside an equal share of the same size.
        let share = Probability::new(replayed.tfcr.mean.clamp(0.0, 1.0)).ok_or("a share")?;
        let share = Config::from(Ratio::new(share)?).into();
        let share = Replayed::new(&other, &share, &draws(seeds, options.random), Stop::never(), &|| ())
            .ok_or("stopped")?
            .dist_over_entropy;
        let weighted = replayed.dist_over_entropy_weighted.unwrap_or(found);
        println!(
            "  of an equal share ({:.2}): {:.3}, by weights {:.3}; printed for the later half {:.3?}",
            share.mean,
            found.mean / share.mean,
            weighted.mean / share.mean,
            tuning.later.as_ref().map(|later| (later.ratio, later.interval))
        );
    }
    Ok(())
}
