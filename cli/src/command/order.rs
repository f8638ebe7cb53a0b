//! `astracer order`: one order of the events of several processes that respects cause and effect.

use std::path::{Path, PathBuf};

use astracer_analysis::order::{self, Goal, Intake, Options};
use astracer_recording::source;
use astracer_tuner::Stop;
use clap::{Args as ClapArgs, ValueEnum};

use crate::failure::Failure;
use crate::interrupt;
use crate::load::{self, Input};
use crate::output::{self, escaped};
use crate::outputs::Outputs;
use crate::progress::Progress;
use crate::source::{Bounds, LogReading, check_inputs};
use crate::values;

mod clocks;
mod falcon;
mod report;

const EXAMPLES: &str = "\
Examples:
  astracer order web=web/ db=db/               logs and straces of two hosts
  astracer order events.jsonl                  Falcon's events, one a line
  astracer order a.jsonl b.jsonl --out o.jsonl with order, cause and clock
  astracer order events.jsonl --goal concurrency --json
  astracer order web=web/ db=db/ --offset db=1.5ms  db's clock runs 1.5 ms ahead

Record with strace -f -ttt -yy -s 512 -o FILE. Exits with 1 if the events contradict each other, so that no order exists.";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Order {
    /// Files, folders or archives (tar, gz, xz, zst) of events, strace's output and logs; - reads
    /// standard input. HOST=PATH names the host whose clock wrote the times.
    #[arg(required = true, value_name = "LOGS")]
    paths: Vec<PathBuf>,

    /// The order that is wanted: time (the closest to the recorded times) or concurrency (each
    /// event as early as its causes allow).
    #[arg(long, value_enum, value_name = "GOAL", default_value = "time")]
    goal: Aim,

    /// Take the clock of HOST as TIME ahead (with a minus: behind) instead of estimating it from
    /// messages. May be repeated.
    #[arg(long = "offset", value_name = "HOST=TIME", value_parser = values::offset)]
    offsets: Vec<(String, i64)>,

    /// Take the times of all hosts as they were recorded.
    #[arg(long, conflicts_with = "offsets")]
    raw_times: bool,

    #[command(flatten)]
    bounds: Bounds,

    #[command(flatten)]
    logs: LogReading,

    /// Write the events in order to FILE, as Falcon's JSON lines with order, dependency, clock,
    /// file and line.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The values of `--goal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Aim {
    /// The closest to the recorded times.
    Time,
    /// Each event as early as its causes allow.
    Concurrency,
}

impl Aim {
    fn goal(self) -> Goal {
        match self {
            Self::Time => Goal::Time,
            Self::Concurrency => Goal::Concurrency,
        }
    }
}

pub(crate) fn run(args: &Order, stop: Stop<'_>) -> Result<(), Failure> {
    let (hosts, paths): (Vec<String>, Vec<PathBuf>) = args.paths.iter().map(|path| host(path)).unzip();
    check_inputs(&paths)?;
    let mut outputs = Outputs::new(&paths);
    let out = args.out.as_ref().map(|path| outputs.file("--out", path)).transpose()?;
    let (collected, input) =
        interrupt::answer_at_once_while_reading(stop, || read(args, &hosts, &paths, stop))?;
    interrupt::answer_at_once(stop)?;
    let hosts = collected.events.hosts();
    if let Some((unknown, _)) = args.offsets.iter().find(|(host, _)| !hosts.contains(host)) {
        let hosts: Vec<_> = hosts.iter().map(|host| escaped(host)).collect();
        let (unknown, hosts) = (escaped(unknown), hosts.join(", "));
        return Err(Failure::Usage(format!(
            "--offset: no event is of host '{unknown}'; the hosts are {hosts}"
        )));
    }
    let options =
        Options { goal: args.goal.goal(), raw_times: args.raw_times, offsets: args.offsets.clone() };
    let order = order::order(collected.events, &options);
    let late = match &out {
        Some(file) if order.exists() => falcon::write(file, &order),
        _ => Ok(()),
    };
    let late = late.and(report::contradiction(&order));
    let report = report::Report::new(&input, &order, &collected.left_out, &collected.joins);
    if args.json {
        return Failure::after(output::print_json(&report), late);
    }
    Failure::after(output::report(&report.screen()), late)
}

/// The host and the path of an argument. A file whose name has an equals sign is that file.
fn host(path: &Path) -> (String, PathBuf) {
    let named = path.to_str().and_then(|text| text.split_once('='));
    match named.filter(|(host, _)| !host.is_empty() && !host.contains('/') && !path.exists()) {
        Some((host, rest)) => (host.to_owned(), rest.into()),
        None => (String::new(), path.to_owned()),
    }
}

fn read(
    args: &Order,
    hosts: &[String],
    paths: &[PathBuf],
    stop: Stop<'_>,
) -> Result<(order::intake::Collected, Input), Failure> {
    let options = source::Options { logs: args.logs.options(), ..args.bounds.options() };
    let progress = Progress::reading(paths);
    let mut intake =
        Intake::new(load::EXAMPLES).stop_when(|| stop.is_asked()).progress_to(|bytes| progress.inc(bytes));
    let mut files = Vec::new();
    let mut log_files = Vec::new();
    for (host, path) in hosts.iter().zip(paths) {
        intake.set_host(host);
        let asked = || stop.is_asked();
        let summary = source::read_waiting(path, &options, &asked, &mut intake)
            .map_err(|error| Failure::Job(error.to_string()))?;
        files.extend(summary.event_files);
        log_files.extend(summary.log_files);
    }
    progress.finish();
    if stop.is_asked() {
        return Err(Failure::Interrupted);
    }
    let collected = intake.finish();
    let input = Input::of_events(paths, &files, &log_files, &collected.problems, &collected.skipped);
    if collected.events.is_empty() {
        return Err(Failure::Job(format!("no events in {}", input.arguments())));
    }
    input.check(args.bounds.strict, false)?;
    Ok((collected, input))
}
