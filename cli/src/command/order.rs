//! `astracer order`: one order of the events of several processes that respects cause and effect.

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use astracer_causality::causes::Clocking;
use astracer_causality::intake::{Collected, Intake};
use astracer_formats::events::ClockPattern;
use astracer_order::links::Links;
use astracer_order::page::{Diagram, page};
use astracer_order::vectors::Lines;
use astracer_order::{self as order, Goal, Options};
use astracer_recording::source;
use astracer_recording::stop::Pulse;
use astracer_tuner::Stop;
use clap::{Args as ClapArgs, ValueEnum};

use crate::failure::Failure;
use crate::interrupt;
use crate::load::{self, Input};
use crate::output::{self, escaped, shown};
use crate::outputs::{Output, Outputs};
use crate::progress::Progress;
use crate::source::{Bounds, LogReading, check_inputs};
use crate::values;

mod ask;
mod believe;
mod clocks;
mod contradictions;
mod estimated;
mod falcon;
mod inside;
mod line;
mod members;
mod merged;
mod next;
mod report;
mod same;
mod show;
mod streamed;

use ask::Ask;
use merged::Merge;

/// Paths in the title of the page.
const TITLE_PATHS: usize = 4;
/// Files are written in pieces of this size.
const BUFFER_BYTES: usize = 1 << 18;

const EXAMPLES: &str = "\
Examples:
  astracer order web=web/ db=db/               logs and straces of two hosts
  astracer order events.jsonl                  Falcon's events, one a line
  astracer order a.jsonl b.jsonl --out o.jsonl with order, cause and clock
  astracer order events.jsonl --goal concurrency --json
  astracer order web=web/ db=db/ --offset db=1.5ms  db's clock runs 1.5 ms ahead
  astracer order web=web/ db=db/ --merged       all logs as one, in that order
  astracer order events.jsonl --between /LOOKING/ zk.log:565
  astracer order events.jsonl --cause-of 565 --shiviz causes.log
  astracer order web=web/ db=db/ --same /'got 17'/ /'sent 17'/  one moment

An EVENT is its id, FILE:LINE, or /REGEX/, the first whose text matches.
Record with strace -f -ttt -T -yy -s 512 -o FILE. Exits with 1 if the events contradict each other, so that no order exists.";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Order {
    /// Files, folders or archives (tar, gz, xz, zst) of events, strace's output, logs and spans; -
    /// reads standard input. HOST=PATH names the host whose clock wrote the times.
    #[arg(required = true, value_name = "RECORDING")]
    paths: Vec<PathBuf>,

    /// Which of the valid orders to print: time (the closest to the recorded times) or concurrency
    /// (each event as early as its causes allow).
    #[arg(long, value_enum, value_name = "GOAL", default_value = "time")]
    goal: Aim,

    /// Take the clock of HOST as DURATION ahead (with a minus: behind) instead of estimating it
    /// from messages. May be repeated.
    #[arg(long = "offset", value_name = "HOST=DURATION", value_parser = values::offset)]
    offsets: Vec<(String, i64)>,

    /// Take the events A and B of two hosts as one moment, which states the offset between their
    /// clocks: A's counts as right unless --offset or another --same names it. May be repeated.
    #[arg(long, num_args = 2, value_names = ["A", "B"], value_parser = ask::event)]
    same: Vec<ask::EventName>,

    /// Take the times of all hosts as they were recorded.
    #[arg(long, conflicts_with_all = ["offsets", "same"])]
    raw_times: bool,

    /// If events contradict each other, go on without the least certain constraints, and list
    /// them.
    #[arg(long)]
    drop_cycles: bool,

    /// Regular expression of logs with vector clocks, with the groups event, host and clock, if
    /// their first line does not state it (ShiViz).
    #[arg(long, value_name = "REGEX", help_heading = "Reading")]
    clock_pattern: Option<ClockPattern>,

    #[command(flatten)]
    bounds: Bounds,

    #[command(flatten)]
    logs: LogReading,

    /// Write the events in order to FILE, as Falcon's JSON lines with order, dependency, clock,
    /// file and line.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Write the events for ShiViz: vector clocks, with the regular expression in the first line.
    #[arg(long, value_name = "FILE")]
    shiviz: Option<PathBuf>,

    /// Write the events in Chrome's JSON for Perfetto: threads as tracks, messages as flows.
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,

    /// Write a page with the space-time diagram: threads as lines, messages as arrows. Above 20,000
    /// events, processes are drawn instead of threads.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    ask: Ask,

    #[command(flatten)]
    merge: Merge,

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
    let mut file =
        |option, path: &Option<PathBuf>| path.as_ref().map(|path| outputs.file(option, path)).transpose();
    let files = Files {
        out: file("--out", &args.out)?,
        shiviz: file("--shiviz", &args.shiviz)?,
        perfetto: file("--perfetto", &args.perfetto)?,
        html: file("--html", &args.html)?,
    };
    let options = streamed::options(args);
    if streamed::run(args, &hosts, &paths, &options, stop)? {
        return Ok(());
    }
    let (collected, input) =
        interrupt::answer_at_once_while_reading(stop, || read(args, &options, &hosts, &paths, stop))?;
    interrupt::answer_at_once(stop)?;
    let (left_out, joins) = (collected.left_out.clone(), collected.joins.clone());
    let steps = collected.steps.clone();
    let hosts = collected.events.hosts();
    if let Some((unknown, _)) = args.offsets.iter().find(|(host, _)| !hosts.contains(host)) {
        let hosts: Vec<_> = hosts.iter().map(|host| escaped(host)).collect();
        let (unknown, hosts) = (escaped(unknown), hosts.join(", "));
        return Err(Failure::Usage(format!(
            "--offset: no event is of host '{unknown}'; the hosts are {hosts}"
        )));
    }
    let options = Options {
        goal: args.goal.goal(),
        clocking: Clocking {
            raw_times: args.raw_times,
            offsets: same::offsets(&args.offsets, &args.same, &collected.events)?,
            ..Clocking::default()
        },
        drop_cycles: args.drop_cycles,
    };
    let asked = || stop.is_asked();
    let order = order::order(collected, &options, &mut Pulse::new(asked)).ok_or(Failure::Interrupted)?;
    let report = report::Report::new(&input, &order, &left_out, &joins, &steps);
    if !order.exists() {
        let late = contradictions::failure(&order);
        let printed = if args.json { output::print_json(&report) } else { output::report(&report.screen()) };
        return Failure::after(printed, late);
    }
    let links = Links::new(&order);
    let lines = Lines::new(&links);
    let answer = ask::answer(&args.ask, args.merge.selected_trace(), &links, &lines)?;
    let named: Vec<_> = args.paths.iter().take(TITLE_PATHS).map(|path| shown(path)).collect();
    let title = named.join(", ") + if args.paths.len() > TITLE_PATHS { " ..." } else { "" };
    let notes = report.notes();
    let next = next::of_page(&order);
    let diagram = Diagram {
        title: &title,
        notes: &notes,
        links: &links,
        lines: &lines,
        chosen: &answer.chosen,
        goal: args.goal.goal(),
        next: &next,
    };
    let late = files.write(&diagram);
    if args.merge.merged.is_none() {
        input.name_unread();
    }
    let printed = if args.json {
        output::print_json(&show::Answered::new(&report, &links, &answer))
    } else if args.merge.merged.is_some() {
        input.warn();
        steps.iter().for_each(|steps| output::note(&report::steps(steps)));
        merged::print(&args.merge, &links, &lines, &answer.chosen)
    } else if let Some(text) = show::text(&links, &answer, files.any()) {
        output::report(&(input.heading() + &text + &input.footing()))
    } else {
        output::report(&(report.screen() + &next::steps(&args.paths, &order)))
    };
    Failure::after(printed, late)
}

/// The files to write.
struct Files {
    out: Option<Output>,
    shiviz: Option<Output>,
    perfetto: Option<Output>,
    html: Option<Output>,
}

impl Files {
    /// True if there are any.
    fn any(&self) -> bool {
        [&self.out, &self.shiviz, &self.perfetto, &self.html].into_iter().any(Option::is_some)
    }

    fn write(&self, diagram: &Diagram<'_>) -> Result<(), Failure> {
        let Diagram { links, lines, chosen, .. } = *diagram;
        if let Some(file) = &self.out {
            falcon::write(file, links.order(), chosen)?;
        }
        if let Some(file) = &self.shiviz {
            write_to(file, |out| order::shiviz::write(links, lines, chosen, out))?;
        }
        if let Some(file) = &self.perfetto {
            write_to(file, |out| order::perfetto::write(links, chosen, out))?;
        }
        if let Some(file) = &self.html {
            file.write(&page(diagram))?;
        }
        Ok(())
    }
}

fn write_to(
    file: &Output,
    write: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> io::Result<()>,
) -> Result<(), Failure> {
    let open = file.open()?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, open.writer()?);
    write(&mut writer).and_then(|()| writer.flush()).map_err(|error| file.failure(&error))?;
    drop(writer);
    open.complete()
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
    options: &source::Options,
    hosts: &[String],
    paths: &[PathBuf],
    stop: Stop<'_>,
) -> Result<(Collected, Input), Failure> {
    let progress = Progress::reading(paths);
    let mut intake =
        Intake::new(load::EXAMPLES).stop_when(|| stop.is_asked()).progress_to(|bytes| progress.inc(bytes));
    if args.merge.merged.is_some() {
        intake = intake.with_unwritten();
    }
    let mut files = Vec::new();
    let mut log_files = Vec::new();
    let mut span_files = Vec::new();
    let mut seen = HashSet::new();
    for (host, path) in hosts.iter().zip(paths) {
        // The same file under another name.
        if path.canonicalize().is_ok_and(|path| path.is_file() && !seen.insert((host, path))) {
            continue;
        }
        intake.set_host(host);
        let asked = || stop.is_asked();
        match source::read_waiting(path, options, &asked, &mut intake) {
            Ok(summary) => {
                files.extend(summary.event_files);
                log_files.extend(summary.log_files);
                span_files.extend(summary.files);
            }
            // Named like any other file that was not read.
            Err(error) if error.is_unrecognised() => {}
            Err(error) => return Err(Failure::Job(error.to_string())),
        }
    }
    progress.finish();
    if stop.is_asked() {
        return Err(Failure::Interrupted);
    }
    let collected = intake.finish();
    let input =
        Input::of_events(paths, &files, &log_files, &span_files, collected.problems(), &collected.skipped);
    if collected.events.is_empty() {
        return Err(Failure::Job(input.without_events()));
    }
    let input = input.with_logs(&collected.recording, &options.logs.zone);
    input.check_logs(args.bounds.strict, false)?;
    Ok((collected, input))
}
