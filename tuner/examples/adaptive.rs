//! Checks whether tuned parameters stay right when traffic changes. For each recording, common and
//! per-key parameters are tuned for a tenth of the bytes. Rows of Markdown tables show how they do
//! on the recorded traffic, at other speeds, with one rare key far more frequent, and on the later
//! half.
//!
//! ```text
//! cargo run --release -p astracer-tuner --example adaptive -- \
//!     [--replays N] [--tunings N] [--only TABLE] RECORDING...
//! ```
//!
//! TABLE is one of:
//!
//! - `speed`: dist/entropy and size over N replays (240), at the recorded speed and at 0.2, 2 and
//!   10 times it.
//! - `growth`: each key with at most 5 % of the calls 200 times as frequent, spread and in bursts:
//!   by how much kept bytes grow, as a multiple of the growth of all bytes. The worst key. Also the
//!   share of the recorded traffic's decisions that the keys' recorded shares change.
//! - `later`: tuned on the first half and replayed on the later half, by weights, with N search
//!   seeds (3).
//! - `coverage`: tuned on parts of the recording: is the ratio on the traffic that follows within
//!   the printed interval? `coverage-ninths` has other parts, and the traffic before them, too: the
//!   width of the interval was not chosen on these ratios.
//! - `odd`: the share of odd traces (a root slower than 99 % of its key's) that is kept of the
//!   later half by parameters of the first half, for floors over keys from none to a quarter of the
//!   budget.
//! - `misses`: how often a source of randomness misses every P-th call of a key, for P from 2 to
//!   1,000. Needs no recording.

#[path = "support/read.rs"]
mod read;

use std::error::Error;

use astracer_samplers::{Config, PerKey, Probability, RandomSource, Ratio, net};
use astracer_tuner::held_out::Replayed;
use astracer_tuner::traffic::{at_speed, grown};
use astracer_tuner::tune::{Options, PerKeyUse};
use astracer_tuner::{Candidate, Draw, Stop, Workload, tune};
use read::{read, short_name};

type Failure = Box<dyn Error>;

/// The seed of the replays, which differs from that of searches.
const SEED: u64 = 91_000;
/// All replays together cover about this many arrivals, but there are at least 24.
const REPLAYED_MAX: usize = 8_000_000;
const SPEEDS: [f64; 3] = [0.2, 2.0, 10.0];
/// Keys with a larger share of the calls are not made more frequent.
const RARE: f64 = 0.05;
const TIMES: u64 = 200;
/// A grown recording has at most this many traces; keys with more calls grow less.
const GROWN_MAX: u64 = 400_000;
const GROWN_REPLAYS: usize = 3;
/// Parts with fewer traces say nothing about coverage.
const COVERED_MIN: usize = 1_500;

fn draws(workload: &Workload, replays: usize, jitters_ms: &[f64]) -> Vec<Draw> {
    let most = (REPLAYED_MAX / workload.arrivals().len().max(1)).clamp(24, replays.max(24));
    let draws = Draw::unseen(most, SEED, RandomSource::Stratified);
    let jitters_ms = jitters_ms.iter().cycle();
    draws.into_iter().zip(jitters_ms).map(|(draw, &jitter_ms)| Draw { jitter_ms, ..draw }).collect()
}

fn replay(workload: &Workload, config: &Config, draws: &[Draw]) -> Result<Replayed, Failure> {
    let candidate = Candidate::from(config.clone());
    Ok(Replayed::new(workload, &candidate, draws, Stop::never(), &|| ()).ok_or("stopped")?)
}

/// By weights, as a share of an equal share of the same size on the same draws.
fn ratio(workload: &Workload, config: &Config, draws: &[Draw]) -> Result<(f64, f64, f64), Failure> {
    let found = replay(workload, config, draws)?;
    let share = Probability::new(found.tfcr.mean.clamp(0.0, 1.0)).ok_or("a share")?;
    let share = replay(workload, &Config::from(Ratio::new(share)?), draws)?.dist_over_entropy.mean;
    let weighted = found.by_weights().mean;
    Ok((weighted / share, found.dist_over_entropy.mean / share, found.tfcr.mean))
}

/// The recorded traffic and the same at other speeds. Jitter is a part of the recorded times, so it
/// is divided by the speed too.
#[allow(clippy::print_stdout)]
fn speed(name: &str, workload: &Workload, configs: &[(&str, Config)], replays: usize) -> Result<(), Failure> {
    for (kind, config) in configs {
        let mut cells = String::new();
        let mut here: Option<(f64, f64)> = None;
        for speed in std::iter::once(1.0).chain(SPEEDS) {
            let there = at_speed(workload, speed, Stop::never()).ok_or("stopped")?;
            let draws = draws(&there, replays, &[0.0, 5.0 / speed, 50.0 / speed]);
            let found = replay(&there, config, &draws)?;
            let (mean, size) = (found.dist_over_entropy.mean, found.tfcr.mean);
            match here {
                None => {
                    let error = found.dist_over_entropy.mean_interval[1] - mean;
                    cells += &format!(" {mean:.1} ± {error:.1} @ {:.2} % |", size * 1e2);
                }
                Some((mean_here, size_here)) => {
                    cells += &format!(" {:.2}, {:.2} |", mean / mean_here, size / size_here);
                }
            }
            here = here.or(Some((mean, size)));
        }
        println!("| {name} | {kind} |{cells}");
    }
    Ok(())
}

/// The parameters without recorded shares.
fn unbounded(config: &Config) -> Config {
    let Config::Bump(bump) = config else { return config.clone() };
    let mut free = PerKey::new(bump.default().clone().with_share(None));
    for (key, own) in bump.overrides() {
        free = free.with_override(key, own.clone().with_share(None));
    }
    Config::Bump(free)
}

/// The share of decisions that differ between two samplers on the same draws.
fn differing(workload: &Workload, configs: [&Config; 2], draws: &[Draw]) -> f64 {
    let mut differ = 0usize;
    for draw in draws {
        let [one, other] = configs.map(|config| {
            let mut kept = vec![false; workload.arrivals().len()];
            let candidate = Candidate::from(config.clone());
            candidate.replay(workload, draw, Stop::never(), |index, _| kept[index] = true);
            kept
        });
        differ += one.iter().zip(&other).filter(|(one, other)| one != other).count();
    }
    differ as f64 / (draws.len() * workload.arrivals().len()) as f64
}

#[allow(clippy::print_stdout)]
fn growth(name: &str, workload: &Workload, configs: &[(&str, Config)]) -> Result<(), Failure> {
    let bytes = |workload: &Workload| workload.arrivals().iter().map(|one| one.bytes as f64).sum::<f64>();
    let (all, traces) = (bytes(workload), workload.arrivals().len());
    let mut calls = vec![0u64; workload.keys().len()];
    workload.arrivals().iter().for_each(|arrival| calls[arrival.key as usize] += 1);
    let names: Vec<&str> = workload.keys().names().collect();
    for (kind, config) in configs {
        let here = replay(workload, config, &draws(workload, 24, &[0.0]))?.tfcr.mean * all;
        let (mut worst, mut keys) = ([(0.0, "", 0.0, 0.0); 2], 0);
        for (key, &calls) in (0..).zip(&calls).filter(|&(_, &calls)| calls > 0) {
            if calls as f64 > RARE * traces as f64 {
                continue;
            }
            keys += 1;
            let times = TIMES.min(GROWN_MAX / calls).max(2);
            for (worst, in_bursts) in worst.iter_mut().zip([false, true]) {
                let there = grown(workload, key, times, in_bursts, Stop::never()).ok_or("stopped")?;
                let draws = &draws(&there, 24, &[0.0])[..GROWN_REPLAYS];
                let (kept, traffic) =
                    (replay(&there, config, draws)?.tfcr.mean * bytes(&there) / here, bytes(&there) / all);
                if kept / traffic > worst.0 {
                    *worst = (kept / traffic, names[key as usize], kept, traffic);
                }
            }
        }
        let cell = |(of, key, kept, traffic): (f64, &str, f64, f64)| {
            format!("{of:.2} ({key}: kept x {kept:.1}, all x {traffic:.1})")
        };
        let changed =
            differing(workload, [config, &unbounded(config)], &draws(workload, 24, &[0.0, 5.0, 50.0]));
        println!(
            "| {name} | {kind} | {keys} | {} | {} | {:.3} % |",
            cell(worst[0]),
            cell(worst[1]),
            changed * 1e2
        );
    }
    Ok(())
}

/// The first half of the time and the rest, or of the traces if these are too uneven: as `tune`.
fn halves(workload: &Workload) -> Result<(Workload, Workload), Failure> {
    let all = workload.arrivals().len();
    let (first, rest) = workload.split(0.5, Stop::never()).ok_or("stopped")?;
    if (0.3..=0.7).contains(&(first.arrivals().len() as f64 / all as f64)) {
        return Ok((first, rest));
    }
    let part = |range| workload.part(range, Stop::never()).ok_or("stopped");
    Ok((part(0..all / 2)?, part(all / 2..all)?))
}

/// Tunes on the first half as a user would, and replays the later half.
#[allow(clippy::print_stdout)]
fn later(name: &str, workload: &Workload, tunings: u64) -> Result<(), Failure> {
    let (first, rest) = halves(workload)?;
    for seed in 1..=tunings {
        let options = Options { seed, ..Options::default() };
        let tuning = tune(&first, &options, Stop::never(), &|_| ());
        let printed = tuning.later.as_ref().map_or_else(String::new, |later| {
            let [low, high] = later.interval;
            format!("{:.2} ({low:.2} to {high:.2})", later.ratio)
        });
        let kind = match (tuning.feasible, tuning.sampler_name(), tuning.per_root.len()) {
            (false, ..) => "nothing within the limits".to_owned(),
            (_, "ratio", _) => "an equal share".to_owned(),
            (_, name, 0) => name.to_owned(),
            (_, _, keys) => format!("{keys} keys"),
        };
        if !tuning.feasible {
            println!("| {name} | {seed} | {kind} | - | - | - | {printed} |");
            continue;
        }
        let (weighted, counted, size) =
            ratio(&rest, &tuning.config()?, &draws(&rest, 240, &[0.0, 5.0, 50.0]))?;
        println!(
            "| {name} | {seed} | {kind} | {:.1} % | {weighted:.2} | {counted:.2} | {printed} |",
            size * 1e2
        );
    }
    Ok(())
}

/// Tunes on parts of the recording, and compares the printed ratio on "the later half" with that of
/// the result on the traffic that follows: two stretches as long as that half. Parts are a half and
/// a quarter of the traces long and begin at each eighth. With `ninths` they are a third and two
/// ninths long and begin at each ninth, and the traffic is that before them as well. Returns how
/// many of the ratios are within the printed interval, below it and above it.
#[allow(clippy::print_stdout)]
fn coverage(name: &str, workload: &Workload, tunings: u64, ninths: bool) -> Result<[u32; 3], Failure> {
    let traces = workload.arrivals().len();
    let mut found = [0u32; 3];
    let (parts, lengths) = if ninths { (9, [3, 2]) } else { (8, [4, 2]) };
    for length in lengths {
        let length = traces * length / parts;
        for begin in (0..parts).map(|place| traces * place / parts) {
            let end = begin + length;
            let part = |range| workload.part(range, Stop::never()).ok_or("stopped");
            let half = length / 2;
            let mut next = Vec::new();
            if end + length <= traces + 8 {
                next.extend([part(end..end + half)?, part(end + half..traces.min(end + length))?]);
            }
            if ninths && begin + 8 >= length {
                let from = begin.saturating_sub(length);
                next.extend([part(from..from + half)?, part(from + half..begin)?]);
            }
            if length < COVERED_MIN || end > traces || next.is_empty() {
                continue;
            }
            let first = part(begin..end)?;
            for seed in 1..=tunings {
                let options = Options { seed, replays: 24, ..Options::default() };
                let tuning = tune(&first, &options, Stop::never(), &|_| ());
                // An equal share has the ratio 1 whatever follows.
                let Some(later) = tuning.later.as_ref().filter(|_| tuning.sampler_name() != "ratio") else {
                    continue;
                };
                let ([low, high], config) = (later.interval, tuning.config()?);
                for part in &next {
                    let (ratio, ..) = ratio(part, &config, &draws(part, 96, &[0.0, 5.0, 50.0]))?;
                    found[if ratio < low {
                        1
                    } else if ratio > high {
                        2
                    } else {
                        0
                    }] += 1;
                    println!(
                        "{name} from {begin}, {length} traces, seed {seed}: printed {:.2} ({low:.2} to {high:.2}), later {ratio:.2}",
                        later.ratio
                    );
                }
            }
        }
    }
    Ok(found)
}

/// For each trace, whether its root lasts longer than 95 and 99 % of its key's. Keys are the names
/// of roots here.
fn is_odd(workload: &Workload) -> Vec<[bool; 2]> {
    let names: Vec<&str> = workload.keys().names().collect();
    let duration = |index: usize| {
        let key = names[workload.arrivals()[index].key as usize];
        let calls = workload.calls(index).iter();
        let own = calls.filter(|calls| &*workload.functions()[calls.function as usize].name == key);
        own.map(|calls| calls.max_ns).max().unwrap_or(0)
    };
    let durations: Vec<u64> = (0..workload.arrivals().len()).map(duration).collect();
    let mut sorted = vec![Vec::new(); names.len()];
    workload.arrivals().iter().zip(&durations).for_each(|(one, &ns)| sorted[one.key as usize].push(ns));
    sorted.iter_mut().for_each(|of_key| of_key.sort_unstable());
    let odd = |(arrival, ns): (&astracer_tuner::workload::Arrival, &u64)| {
        let of_key = &sorted[arrival.key as usize];
        [95, 99].map(|percent| of_key.get(of_key.len() * percent / 100).is_some_and(|from| ns > from))
    };
    workload.arrivals().iter().zip(&durations).map(odd).collect()
}

#[allow(clippy::print_stdout)]
fn odd(name: &str, workload: &Workload) -> Result<(), Failure> {
    let (first, rest) = halves(workload)?;
    let is_odd = is_odd(&rest);
    let all = [0, 1].map(|of| is_odd.iter().filter(|odd| odd[of]).count() as f64);
    for floor in [0.0, 0.0625, 0.125, 0.25] {
        let (mut cells, mut here, mut there) = ([0.0; 3], 0.0, 0.0);
        let seeds = 3u32;
        for seed in 1..=seeds {
            let options = Options {
                seed: seed.into(),
                per_key: PerKeyUse::Always,
                replays: 0,
                key_floor: floor,
                ..Options::default()
            };
            let tuning = tune(&first, &options, Stop::never(), &|_| ());
            let config = tuning.config()?;
            here += replay(&first, &config, &draws(&first, 96, &[0.0, 5.0, 50.0]))?.dist_over_entropy.mean;
            let draws = draws(&rest, 96, &[0.0, 5.0, 50.0]);
            there += replay(&rest, &config, &draws)?.dist_over_entropy.mean;
            let candidate = Candidate::from(config);
            let mut kept = [0.0; 3];
            let bytes: f64 = rest.arrivals().iter().map(|one| one.bytes as f64).sum();
            for draw in &draws {
                candidate.replay(&rest, draw, Stop::never(), |index, _| {
                    kept[0] += rest.arrivals()[index].bytes as f64 / bytes;
                    kept[1] += f64::from(u8::from(is_odd[index][0])) / all[0];
                    kept[2] += f64::from(u8::from(is_odd[index][1])) / all[1];
                });
            }
            let runs = draws.len() as f64 * f64::from(seeds);
            cells.iter_mut().zip(kept).for_each(|(cell, kept)| *cell += kept / runs * 1e2);
        }
        let [size, slow, slowest] = cells;
        let (here, there) = (here / f64::from(seeds), there / f64::from(seeds));
        println!(
            "| {name} | {floor} | {here:.1} | {there:.1} @ {size:.1} % | {slow:.1} % | {slowest:.1} % |"
        );
    }
    Ok(())
}

/// A start for each run, mixed as SplitMix64 does.
fn run_start(run: u32) -> u64 {
    let mixed = (u64::from(run) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The share of runs that keep no call of a kind.
#[allow(clippy::print_stdout)]
fn misses() {
    let runs = 2_000;
    println!("| p | calls | worst period | missed there | independent | most standard errors above |");
    println!("|---|---:|---:|---:|---:|---:|");
    for p in [0.001f64, 0.01, 0.05, 0.1, 0.3, 0.5] {
        // Three of these are expected to be kept.
        let calls = (3.0 / p).round() as u64;
        let independent = (1.0 - p).powi(calls as i32);
        let error = (independent * (1.0 - independent) / f64::from(runs)).sqrt();
        let mut worst = (0, f64::NEG_INFINITY, 0.0);
        for period in 2..=1000u64 {
            let mut missed = 0;
            for run in 0..runs {
                let start = run_start(run * 1000 + period as u32);
                let first = start % period;
                let keeps = |call: u64| (net(start, first + call * period) as f64) < p * 2f64.powi(64);
                missed += u32::from(!(0..calls).any(keeps));
            }
            let share = f64::from(missed) / f64::from(runs);
            let above = (share - independent) / error;
            if above > worst.1 {
                worst = (period, above, share);
            }
        }
        println!("| {p} | {calls} | {} | {:.4} | {independent:.4} | {:.1} |", worst.0, worst.2, worst.1);
    }
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Failure> {
    let (mut paths, mut only, mut replays, mut tunings) = (Vec::new(), None, 240, 3);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--only" => only = Some(value()?),
            "--replays" => replays = value()?.parse()?,
            "--tunings" => tunings = value()?.parse()?,
            _ => paths.push(arg),
        }
    }
    let wanted = |table: &str| only.as_ref().is_none_or(|only| only == table);
    if wanted("misses") {
        misses();
    }
    let mut covered = [0; 3];
    for path in &paths {
        let (name, workload) = (short_name(path), read(path)?);
        let mut configs = Vec::new();
        if wanted("speed") || wanted("growth") {
            for (kind, per_key) in [("common", PerKeyUse::Never), ("per key", PerKeyUse::Always)] {
                let options = Options { per_key, replays: 0, ..Options::default() };
                let tuning = tune(&workload, &options, Stop::never(), &|_| ());
                if tuning.feasible && (per_key == PerKeyUse::Never || !tuning.per_root.is_empty()) {
                    configs.push((kind, tuning.config()?));
                }
            }
        }
        if wanted("speed") {
            speed(&name, &workload, &configs, replays)?;
        }
        if wanted("growth") {
            growth(&name, &workload, &configs)?;
        }
        if wanted("later") {
            later(&name, &workload, tunings)?;
        }
        if wanted("odd") {
            odd(&name, &workload)?;
        }
        // Only on request: it takes as long as everything else.
        let ninths = only.as_deref() == Some("coverage-ninths");
        if ninths || wanted("coverage") {
            let found = coverage(&name, &workload, tunings, ninths)?;
            covered.iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
        }
    }
    let [inside, below, above] = covered;
    if inside + below + above > 0 {
        println!("{inside} ratios are within the printed interval, {below} below it and {above} above it");
    }
    Ok(())
}
