//! Does the printed figure hold? Tunes on a recording, and replays what was found over ten phases, eight seeds and
//! three jitters that neither the search nor the check saw.
//!
//! ```text
//! cargo run --release -p astracer-tuner --example figures -- [--sampler NAME] [--size SHARE] RECORDING [OTHER]
//! ```
//!
//! A line for each recording: the printed mean, the mean of these 240 replays and its interval, the sizes, and the errors
//! of counts. With a second recording, the parameters are replayed on that one too.

use std::cell::RefCell;
use std::error::Error;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use astracer_recording::recording::{Intake, Keep};
use astracer_recording::source;
use astracer_samplers::Template;
use astracer_tuner::held_out::Replayed;
use astracer_tuner::key::Grouping;
use astracer_tuner::names::NameFolding;
use astracer_tuner::tune::{Options, PerKeyUse};
use astracer_tuner::{Draw, Limits, Stop, Workload, tune};

fn read(path: &str) -> Result<Workload, Box<dyn Error>> {
    let folding = RefCell::new(NameFolding::new(Template::default()));
    let mut intake = Intake::new(Keep::default()).rename_with(|raw, out| folding.borrow_mut().fold(raw, out));
    source::read(Path::new(path), &source::Options::default(), &mut intake)?;
    Ok(Workload::new(&intake.finish(), &Grouping::default()))
}

/// Ten phases, eight seeds, three jitters.
fn draws(stratified: bool) -> Vec<Draw> {
    let mut draws = Vec::new();
    for phase in 0..10 {
        for seed in 0..8 {
            for jitter_ms in [0.0, 5.0, 50.0] {
                let number = draws.len() as u64;
                let phase = (f64::from(phase) + f64::from(seed) / 8.0) / 10.0;
                draws.push(Draw { phase, jitter_ms, stratified, ..Draw::recorded(1_000_000 + number) });
            }
        }
    }
    draws
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn Error>> {
    let mut options = Options::default();
    let mut paths = Vec::new();
    let mut stratified = false;
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
                other => return Err(format!("{other}: use auto, bump, per-key or bucket").into()),
            },
            "--seed" => options.seed = value()?.parse()?,
            "--per-key-iterations" => options.per_key_iterations = value()?.parse()?,
            "--stratified" => stratified = value()?.parse()?,
            "--iterations" => options.iterations = value()?.parse()?,
            _ => paths.push(arg),
        }
    }
    let [first, others @ ..] = &paths[..] else { return Err("which recording?".into()) };
    let workload = read(first)?;
    let flag = AtomicBool::new(false);
    let tuning = tune(&workload, &options, &flag, &|_| ());
    let config = tuning.config()?;
    let shown: String = config.to_string().chars().take(100).collect();
    println!("{first}: {shown}");
    println!(
        "  {:.1} s, {} evaluations, search {:.2}, expected {:.2}",
        tuning.seconds, tuning.evaluations, tuning.value, tuning.score.dist_over_entropy
    );
    if let Some(trial) = &tuning.per_key_trial {
        let of =
            |both: &[Replayed; 2]| both.map(|replayed| (replayed.dist_over_entropy.mean, replayed.tfcr.mean));
        println!(
            "  trial on other blocks: common {:.2?}, per key {:.2?}",
            of(&trial.common),
            of(&trial.per_key)
        );
    }
    for warning in &tuning.warnings {
        println!("  warning: {warning}");
    }
    let printed = tuning.replayed.map_or(f64::NAN, |replayed| replayed.dist_over_entropy.mean);
    let share = tuning.replayed_share.map_or(f64::NAN, |replayed| replayed.dist_over_entropy.mean);
    println!(
        "  printed {printed:.2}, equal share {share:.2}, bootstrap {:.1?}",
        tuning.bootstrap.map(|b| b.run_interval)
    );
    for path in std::iter::once(first).chain(others) {
        let other = read(path)?;
        let sampler = config.clone().into();
        let replayed = Replayed::new(&other, &sampler, &draws(stratified), Stop::new(&flag, None), &|| ())
            .ok_or("stopped")?;
        let found = replayed.dist_over_entropy;
        println!(
            "  on {path}: {:.2} (mean {:.2?}, runs {:.1?}) at {:.4} of the bytes, {:.1} trees; by weights {:.2?}; {:.3?}",
            found.mean,
            found.mean_interval,
            found.run_interval,
            replayed.tfcr.mean,
            replayed.call_trees.mean,
            replayed.dist_over_entropy_weighted.map(|weighted| weighted.mean),
            replayed.counts,
        );
        println!("  printed / replayed {:.3}", printed / found.mean);
    }
    Ok(())
}
