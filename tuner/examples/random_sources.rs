//! Measures what stratified randomness gains: replays the same sampler with both sources of
//! randomness, on each recording given.
//!
//! ```text
//! cargo run --release -p astracer-tuner --example random_sources -- RECORDING...
//! ```
//!
//! Prints a row of a Markdown table for each recording and sampler, with quotients of stratified by
//! independent: of the relative errors of the roots' and the functions' counts, and of
//! dist/entropy. The samplers are an equal share and bump with a decaying count, each as large as a
//! tenth of the bytes, and a probability for each key if `tune` finds them.

#[path = "support/read.rs"]
mod read;

use std::error::Error;

use astracer_samplers::{Config, Probability, RandomSource, Ratio};
use astracer_tuner::held_out::Replayed;
use astracer_tuner::tune::{Options, PerKeyUse};
use astracer_tuner::{Candidate, Draw, Stop, Tuning, Workload, tune};
use read::{read, short_name};

/// Replays with each source. Large recordings get fewer, but at least a third.
const REPLAYS: usize = 192;
const REPLAYED_MAX: usize = 8_000_000;
/// The seed of the replays, which differs from that of searches.
const SEED: u64 = 55_000;

fn samplers(workload: &Workload) -> Result<Vec<(&'static str, Candidate)>, Box<dyn Error>> {
    let tenth = Probability::new(0.1).ok_or("0.1 is a probability")?;
    let mut samplers = vec![("equal share", Candidate::from(Config::from(Ratio::new(tenth)?)))];
    let options = Options { per_key: PerKeyUse::Always, replays: 0, ..Options::default() };
    let tuning = tune(workload, &options, Stop::never(), &|_| ());
    if tuning.feasible {
        let common = Tuning { per_root: Vec::new(), ..tuning.clone() };
        samplers.push(("bump decaying", Candidate::from(common.config()?)));
        if !tuning.per_root.is_empty() {
            samplers.push(("a probability for each key", Candidate::from(tuning.config()?)));
        }
    }
    Ok(samplers)
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn Error>> {
    println!("| recording | sampler | roots | functions | dist/entropy | a run's range | replays |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    for path in std::env::args().skip(1) {
        let (name, workload) = (short_name(&path), read(&path)?);
        let replays = (REPLAYED_MAX / workload.arrivals().len().max(1)).clamp(REPLAYS / 3, REPLAYS);
        for (sampler, candidate) in samplers(&workload)? {
            let with = |random| {
                let draws = Draw::unseen(replays, SEED, random);
                Replayed::new(&workload, &candidate, &draws, Stop::never(), &|| ()).ok_or("stopped")
            };
            let [ours, other] = [with(RandomSource::Stratified)?, with(RandomSource::Independent)?];
            let (Some(counts), Some(of_other)) = (ours.counts, other.counts) else { continue };
            let range = |replayed: &Replayed| {
                let [low, high] = replayed.dist_over_entropy.run_interval;
                high - low
            };
            println!(
                "| {name} | {sampler} | {:.2} | {:.2} | {:.3} | {:.2} | {replays} |",
                counts.roots / of_other.roots,
                counts.functions / of_other.functions,
                ours.dist_over_entropy.mean / other.dist_over_entropy.mean,
                range(&ours) / range(&other),
            );
        }
    }
    Ok(())
}
