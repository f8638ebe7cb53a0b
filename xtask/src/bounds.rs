//! The bounds step: instructions and memory of whole commands grow at most linearly with everything
//! that a recording can have many of.
//!
//! Each case is measured at n, 4n and 16n. From n to 4n there are 3n more things, and from 4n to
//! 16n there are 12n more. So the second increase is four times the first for a linear command, and
//! sixteen times for a quadratic one. Increases are compared rather than totals, so that a start
//! that costs more than the work hides nothing. The bound allows for sorting, and for the steps in
//! which vectors grow.
//!
//! Instructions are counted by cachegrind on one thread, so a busy machine changes nothing. Memory
//! is the peak that the kernel reports. The step needs valgrind.

mod input;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::built::Built;
use crate::metadata::Package;
use crate::program;
use crate::step_result::{Options, StepResult};

use input::Many;

const BUILD: &str = "build --release -p astracer-cli --locked";
/// The largest accepted ratio of the second increase to the first.
const RATIO_MAX: f64 = 4.6;
/// Bytes by which the second increase may exceed linear growth: memory of the program itself,
/// whatever it reads.
const SLACK_BYTES: f64 = 2e7;
const SIZES: [usize; 3] = [1, 4, 16];

/// A command, and the number of things at the smallest size.
struct Case {
    many: Many,
    /// The number for `SIZES[0]`.
    few: usize,
    command: Of,
}

/// Commands. In their arguments `@` stands for the folder of the input.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    Inspect,
    Evaluate,
    Tune,
    CriticalPath,
    Events,
    Convert,
    Parameters,
    Tail,
    /// The baselines that work in intervals, with one interval for every ten traces.
    Baselines,
}

impl Of {
    fn args(self) -> &'static [&'static str] {
        match self {
            Of::Inspect => &["inspect", "@in", "--json"],
            Of::Evaluate => &[
                "evaluate",
                "@in",
                "--seeds",
                "1",
                "--sampler",
                "bump:lambda=3,min=0.01",
                "--sampler",
                "bucket:capacity=2,rate=1",
                "--json",
            ],
            Of::Tune => &[
                "tune",
                "@in",
                "--size-max",
                "100%",
                "--starts",
                "1",
                "--iterations",
                "4",
                // The same number for each size. Otherwise the tool stops earlier for larger
                // inputs: the mean of four times as many things may be known after an eighth of the
                // replays.
                "--replays",
                "24",
                "--per-key",
                "never",
                "--out",
                "@out.toml",
                "--json",
            ],
            Of::CriticalPath => &["critical-path", "@in", "--segments", "@out", "--json", "--top", "0"],
            Of::Events => &["events", "@in", "--trace", "1", "--json"],
            Of::Convert => &["convert", "@in", "@out", "--to", "jaeger-json"],
            Of::Parameters => {
                &["evaluate", "@in", "--seeds", "1", "--parameters", "@parameters.toml", "--json"]
            }
            Of::Tail => &[
                "evaluate",
                "@in",
                "--seeds",
                "1",
                "--sampler",
                "ratio:0.1",
                "--tail",
                "odd,attr:value=1",
                "--provisional",
                "always",
                "--json",
            ],
            Of::Baselines => &[
                "evaluate",
                "@in",
                "--seeds",
                "1",
                "--size",
                "10%",
                "--baselines",
                "dynsampler-avg:period=0.1s",
                "dynsampler-ema:period=0.1s",
                "dynsampler-ema-throughput:period=0.1s",
                "dynsampler-per-key:period=0.1s",
                "dynsampler-total:period=0.1s",
                "dynsampler-windowed:period=0.1s,lookback=2s",
                "jaeger-adaptive:period=0.1s",
                "waterfill:bucket=0.1s",
                "--json",
            ],
        }
    }
}

/// Everything that inputs can have many of, with the commands that depend on it. With these sizes a
/// count takes seconds.
fn cases() -> Vec<Case> {
    use Of::{Baselines, Convert, CriticalPath, Evaluate, Events, Inspect, Parameters, Tail, Tune};
    let commands: [(Many, usize, &[Of]); 22] = [
        (Many::Traces, 150, &[Inspect, Evaluate, CriticalPath, Convert]),
        (Many::Spans, 300, &[Inspect, Evaluate, CriticalPath, Convert]),
        (Many::Names, 200, &[Inspect, Evaluate, CriticalPath]),
        (Many::Roots, 100, &[Inspect, Evaluate, CriticalPath]),
        (Many::Children, 300, &[Inspect, CriticalPath, Events, Convert]),
        (Many::Branches, 300, &[Inspect, Evaluate, CriticalPath, Events, Convert]),
        (Many::Depth, 300, &[Inspect, CriticalPath, Events]),
        (Many::Parents, 300, &[Inspect, CriticalPath, Events, Convert]),
        (Many::Processes, 300, &[Inspect, CriticalPath, Convert]),
        (Many::Problems, 300, &[Inspect, Convert]),
        (Many::Members, 60, &[Inspect, Convert]),
        (Many::Keys, 60, &[Parameters]),
        (Many::Traces, 150, &[Tail]),
        (Many::Depth, 300, &[Tail]),
        (Many::Values, 2000, &[Tail]),
        (Many::Roots, 400, &[Baselines]),
        // The search itself costs as much as 700 traces, and varies with its findings. With 60 it
        // hid what traces cost.
        (Many::Traces, 200, &[Tune]),
        (Many::Names, 20, &[Tune]),
        (Many::Roots, 20, &[Tune]),
        (Many::Children, 640, &[Tune]),
        (Many::Branches, 640, &[Tune]),
        (Many::Depth, 640, &[Tune]),
    ];
    let case = |(many, few, of): (Many, usize, &[Of])| {
        of.iter().map(|&command| Case { many, few, command }).collect::<Vec<_>>()
    };
    commands.into_iter().flat_map(case).collect()
}

pub(crate) fn run(root: &Path, options: Options) -> StepResult {
    if let Err(missing) = program::valgrind(options.install) {
        return StepResult::Skipped(missing);
    }
    StepResult::of(measure(root))
}

/// The command line tool.
pub(crate) fn builds(package: &Package) -> Built {
    Built::program_if(package.name == "astracer-cli")
}

fn measure(root: &Path) -> Result<StepResult, String> {
    let program = program::build(root, BUILD)?;
    let folder = root.join("target/bounds");
    println!("{:<10} {:<14} {:>22} {:>22}", "many", "command", "instructions", "peak MB");
    let cases = cases();
    let next = AtomicUsize::new(0);
    // Counts do not depend on other processors, so each worker takes the next case.
    let worker = |number: usize| {
        let folder = folder.join(number.to_string());
        let mut passed = true;
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            passed &= case.measure(&program, &folder)?;
        }
        Ok::<_, String>(passed)
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let passed = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|number| scope.spawn(move || worker(number))).collect();
        workers.into_iter().try_fold(true, |passed, worker| {
            Ok::<_, String>(worker.join().map_err(|_| "a worker panicked")?? && passed)
        })
    })?;
    if !passed {
        println!(
            "\nFrom 4n to 16n, costs rose by more than {RATIO_MAX} times their rise from n to 4n (linear: 4)."
        );
    }
    Ok(passed.into())
}

impl Case {
    /// Measures the command and prints its costs. Returns whether they grow linearly.
    fn measure(&self, program: &Path, folder: &Path) -> Result<bool, String> {
        let Case { many, few, command } = *self;
        let (mut instructions, mut peaks) = (Vec::new(), Vec::new());
        for times in SIZES {
            input::write(folder, many, few * times)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
            let place = folder.to_str().ok_or("the folder's name is not UTF-8")?;
            let args: Vec<String> =
                command.args().iter().map(|arg| arg.replacen('@', &format!("{place}/"), 1)).collect();
            instructions.push(program::instructions(program, &args)?);
            peaks.push(peak_bytes(program, &args)?);
        }
        let (work, memory) = (ratio(&instructions, 0.0), ratio(&peaks, SLACK_BYTES));
        let within = work <= RATIO_MAX && memory <= RATIO_MAX;
        println!(
            "{:<10} {:<14} {:>15.2e} {work:>6.2} {:>15.1} {memory:>6.2}{}",
            format!("{many:?}"),
            format!("{command:?}"),
            instructions[2],
            peaks[2] / 1e6,
            if within { "" } else { "  more than linear" }
        );
        Ok(within)
    }
}

/// The increase from 4n to 16n, divided by that from n to 4n. The first `slack` of the larger
/// increase does not count.
fn ratio(found: &[f64], slack: f64) -> f64 {
    let [first, second, third] = found else { return f64::INFINITY };
    (third - second - slack).max(0.0) / (second - first).max(1.0)
}

/// The peak memory of one run, polled every millisecond: without unsafe code or another program, a
/// parent cannot read the peak after the exit. These commands do not reach their peak in the last
/// millisecond.
fn peak_bytes(program: &Path, args: &[String]) -> Result<f64, String> {
    let mut child = Command::new(program)
        .args(args)
        .env("RAYON_NUM_THREADS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let mut peak = 0.0f64;
    loop {
        peak = peak.max(high_water(&child).unwrap_or(0.0));
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Ok(Some(status)) if status.success() => return Ok(peak),
            _ => return Err(format!("the command {args:?} failed")),
        }
    }
}

fn high_water(child: &Child) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let kilobytes =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"))?;
    Some(kilobytes.trim().parse::<f64>().ok()? * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_command_has_a_ratio_of_four_whatever_its_start() {
        let of = |cost: fn(f64) -> f64| ratio(&[1.0, 4.0, 16.0].map(|n| 1e9 + cost(1e6 * n)), 0.0);
        assert_eq!(of(|n| 5.0 * n), 4.0);
        assert_eq!(of(|n| n * n / 1e3), 16.0);
        assert!(of(|n| n.sqrt()) < RATIO_MAX);
        // Next to a hundred instructions per thing, one per pair among a thousand things is
        // noticed.
        assert!(of(|n| 100.0 * n + n * n / 1e4) > RATIO_MAX);
        assert_eq!(ratio(&[5e6, 5e6, 7e6], 3e6), 0.0);
    }

    #[test]
    fn every_thing_is_measured() {
        for many in Many::ALL {
            assert!(cases().iter().any(|case| case.many == many), "{many:?}");
        }
    }
}
