//! `astracer compare`: what differs between good and bad runs.

use std::borrow::Cow;
use std::path::PathBuf;

use astracer_compare::comparison::{self, Comparison};
use astracer_compare::file::InstancesFile;
use astracer_compare::instances::{Class, Head, Source};
use astracer_compare::metrics::{Metrics, WithMetrics};
use astracer_compare::network::{self, attention::Focus};
use astracer_compare::singles::{Explained, Sides, sides};
use astracer_compare::traces::{Method, Traces};
use astracer_critical_path::lanes::Lanes;
use astracer_recording::stop::Pulse;
use astracer_samplers::KeyRule;
use astracer_tuner::Stop;
use clap::{Args as ClapArgs, ValueEnum};
use serde::Serialize;

use crate::failure::Failure;
use crate::load::Input;
use crate::output;
use crate::outputs::{Output, Outputs};
use crate::source::{LogReading, Naming, Reading, check_inputs};
use crate::values;

mod classes;
mod instances;
mod limits;
mod logs;
mod metrics;
mod nearest;
mod page;
mod render;
mod rule;
mod singles;
mod when;

use classes::{Classes, Run};
use limits::{Least, Step};

const EXAMPLES: &str = "\
Examples:
  astracer compare good/ bad/                        two recordings
  astracer compare --good a/ --good b/ --bad c/      several good runs confirm
  astracer compare day/ --bad-time 2026-11-27T10:05:00Z+180s --near 20m
  astracer compare day/ --bad-slowest 1%             what slow traces have
  astracer compare day/ --bad-where version=2 --root 'GET /cart'
  astracer compare good.log bad.log                  logs alone, in stretches of time
  astracer compare hdfs.log --instance '/blk_-?[0-9]+/' --bad-ids failed.txt
  astracer compare day/ --explain 4bf92f3577b34da6a3ce929d0e0e4736
  astracer compare runs.instances.jsonl.gz --paper   DISTALYZER's own test
  astracer compare --good a/ --good b/ --bad new/ --fail-on confirmed

docs/compare.md has the definitions, with an example worked by hand. Logs in a
recording count too: OTLP, JSON lines, tracing's text, log4j's layouts and
Nezha's CSV (docs/recordings.md has an example of each).";

/// Ranked variables on the screen.
const TOP_DEFAULT: usize = 10;

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Compare {
    /// GOOD and BAD recordings; or any number of recordings with a --bad-... option, which splits
    /// their traces; or files of instances (see docs/compare.md).
    #[arg(value_name = "RECORDING", required_unless_present = "good")]
    paths: Vec<PathBuf>,

    /// A good run; repeatable. Several show how much good runs differ.
    #[arg(long, value_name = "RECORDING", requires = "bad", conflicts_with = "paths")]
    good: Vec<PathBuf>,

    /// A bad run; repeatable.
    #[arg(long, value_name = "RECORDING", requires = "good", conflicts_with = "paths")]
    bad: Vec<PathBuf>,

    #[command(flatten)]
    classes: Classes,

    /// Show how this trace differs from the others of its root's type, instead of two classes.
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["good", "fail_on", "html", "paper"], group = "split",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    explain: Option<String>,

    /// Compare logs alone, of which one instance is: file, time:LENGTH (a stretch of time), the
    /// records with one value of an ATTRIBUTE, or those in which /REGEX/ matches the same text
    /// [default without traces: files, or stretches of time].
    #[arg(long, value_name = "RULE", value_parser = rule::rule)]
    instance: Option<rule::Rule>,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    logs: LogReading,

    #[command(flatten)]
    naming: Naming,

    /// The metric to explain: duration (of the root), errors, attribute:KEY (of the root) or
    /// operation:NAME (the time in its spans).
    #[arg(long, value_name = "METRIC", default_value = "duration", value_parser = limits::metric)]
    metric: astracer_compare::traces::Metric,

    /// Metrics of services, hosts or pods as further variables: a CSV file with the columns time,
    /// entity, name and value.
    #[arg(long, value_name = "FILE", conflicts_with = "paper")]
    metrics: Option<PathBuf>,

    /// The type of a request, such as name+http.route: traces are compared within types [default:
    /// the root's name, or the first span of another service if all roots have one name].
    #[arg(long, value_name = "KEY", conflicts_with = "paper")]
    key: Option<KeyRule>,

    /// Leave out variables whose name contains this; repeatable.
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    ignore: Vec<String>,

    /// The test of the DISTALYZER paper: Welch's t-test over all requests together.
    #[arg(long)]
    paper: bool,

    /// Count traces with a large metric more: the weight doubles with each STEP of the metric, up
    /// to 1,024 (a duration such as 500ms if the metric is a time, otherwise a number).
    #[arg(long, value_name = "STEP", value_parser = limits::step)]
    weight_step: Option<Step>,

    /// Treat recordings as separate runs even if their times touch.
    #[arg(long)]
    assume_runs: bool,

    /// Greatest number of variables to test.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    variables_max: u32,

    /// The seed of the permuted labels.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// The smallest node of a network's tree that is split, as a share of its class [default: 1/3].
    #[arg(long, value_name = "SHARE", default_value = "0.33333333333333331", hide_default_value = true, value_parser = values::part)]
    split_min: f64,

    /// The balance of scores in networks, from 0 (how much variables differ) to 1 (how closely they
    /// are connected) [default: 0.5].
    #[arg(long, value_name = "SHARE", default_value = "0.5", hide_default_value = true, value_parser = limits::focus)]
    focus: Focus,

    /// Show only the first N variables; 0 shows all [default: 10, with --json all].
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Exit with 1 if a variable is significant, or confirmed by several runs.
    #[arg(long, value_enum, value_name = "WHICH")]
    fail_on: Option<FailOn>,

    /// Count only differences of at least this much for --fail-on: a time, a share of the good
    /// mean, or both, such as 5ms,10%.
    #[arg(long, value_name = "LEAST", value_parser = limits::least, requires = "fail_on", conflicts_with = "explain")]
    at_least: Option<Least>,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,

    /// Write a page to FILE: what differs, distributions, typical traces, networks, tests.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The values of `--fail-on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Significant and more than the difference between good runs.
    Confirmed,
    /// Significant in these recordings.
    Significant,
}

#[derive(Serialize)]
struct Report<'a, T> {
    inputs: &'a [Input],
    /// Lines of files of instances that are not JSON.
    unreadable_lines: u64,
    #[serde(flatten)]
    result: &'a T,
}

pub(crate) fn run(args: &Compare, stop: Stop<'_>) -> Result<(), Failure> {
    let all: Vec<&PathBuf> = args.paths.iter().chain(&args.good).chain(&args.bad).collect();
    check_inputs(all.iter().copied())?;
    args.naming.check()?;
    args.classes.check(!args.good.is_empty(), args.paths.len(), args.explain.is_some())?;
    let html =
        args.html.as_ref().map(|file| Outputs::new(all.iter().copied()).file("--html", file)).transpose()?;
    let tail = args.weight_step.map(|step| step.of(&args.metric)).transpose()?;
    let file = instances::read(&all, stop)?;
    let options = comparison::Options {
        paper: args.paper,
        noun: if file.is_some() { "instances" } else { "traces" },
        metric: limits::metric_name(&args.metric, file.is_some()),
        is_split: args.classes.splits(),
        chosen_by: args.classes.chosen_by(),
        variables_max: args.variables_max as usize,
        seed: args.seed,
        tail,
        window: args.classes.window(),
        // The screen shows neither.
        details: args.json || args.html.is_some(),
        networks: (args.json || args.html.is_some()).then_some(network::Options {
            split_min: args.split_min,
            focus: args.focus,
            ..network::Options::default()
        }),
    };
    let mut pulse = stop.pulse();
    let metrics = metrics::read(args.metrics.as_deref())?;
    let job = Job { args, metrics: &metrics.metrics };
    let found = match &file {
        Some(file) => of_file(&job, file, &all, &options, &mut pulse)?,
        None => {
            let loaded = classes::load(args, stop)?;
            let found = match logs::are_compared(args, &loaded)? {
                true => of_logs(&job, &loaded, options, &mut pulse)?,
                false => of_traces(&job, &loaded, &options, &mut pulse)?,
            };
            let inputs = loaded.into_iter().map(|one| one.loaded.input).collect();
            Found { inputs, notes: found.notes + &metrics.note, ..found }
        }
    };
    match &found.answer {
        Answer::Comparison(comparison) => print(args, html.as_ref(), comparison, &found),
        Answer::Sides(sides) => singles::print_sides(args, sides, &found),
        Answer::Explained(explained) => singles::print_explained(args, explained, &found),
    }
}

/// The options, and the metrics that they name.
#[derive(Clone, Copy)]
struct Job<'a> {
    args: &'a Compare,
    metrics: &'a Metrics,
}

/// The result, and the parts that are printed with it.
struct Found {
    answer: Answer,
    inputs: Vec<Input>,
    /// The typical good and bad trace.
    lanes: Option<[Lanes; 2]>,
    /// Further lines of the screen.
    notes: String,
    unreadable_lines: u64,
}

enum Answer {
    Comparison(Box<Comparison>),
    /// Two single instances.
    Sides(Sides),
    /// One instance among others.
    Explained(Explained),
}

impl Found {
    fn new(answer: Answer) -> Self {
        Found { answer, inputs: Vec::new(), lanes: None, notes: String::new(), unreadable_lines: 0 }
    }
}

fn of_file(
    job: &Job<'_>,
    file: &InstancesFile,
    paths: &[&PathBuf],
    options: &comparison::Options,
    pulse: &mut Pulse<'_>,
) -> Result<Found, Failure> {
    let args = job.args;
    if args.classes.is_given() || !args.good.is_empty() || args.instance.is_some() || args.metrics.is_some() {
        return Err(Failure::Usage(
            "files of instances state their instances and classes (cls); give them alone, without --good, --bad, \
             --bad-..., --instance or --metrics"
                .into(),
        ));
    }
    let (unreadable_lines, notes) = instances::unreadable(file, paths);
    Ok(Found { notes, unreadable_lines, ..Found::new(answer(job, file, options, pulse)?) })
}

fn of_logs(
    job: &Job<'_>,
    loaded: &[Run],
    options: comparison::Options,
    pulse: &mut Pulse<'_>,
) -> Result<Found, Failure> {
    let runs = logs::runs(loaded);
    let logs::Chosen { logs, noun, metric, notes } = logs::choose(job.args, loaded, &runs, pulse)?;
    let options = comparison::Options { noun, metric: metric.to_owned(), ..options };
    let notes = notes.into_iter().map(|line| line + "\n").collect();
    Ok(Found { notes, ..Found::new(answer(job, &logs, &options, pulse)?) })
}

fn of_traces(
    job: &Job<'_>,
    loaded: &[Run],
    options: &comparison::Options,
    pulse: &mut Pulse<'_>,
) -> Result<Found, Failure> {
    let args = job.args;
    let method = Method {
        metric: args.metric.clone(),
        key: args.key.clone(),
        paper: args.paper,
        ignore: args.ignore.clone(),
        is_duration_chosen: args.classes.is_by_duration(),
    };
    let traces = Traces::new(classes::choose(args, loaded)?, &method, pulse).ok_or(Failure::Interrupted)?;
    let answer = answer(job, &traces, options, pulse)?;
    let lanes = match &answer {
        Answer::Comparison(comparison) => page::lanes(&traces, comparison),
        Answer::Sides(_) | Answer::Explained(_) => None,
    };
    Ok(Found { lanes, ..Found::new(answer) })
}

/// Compares the classes of a source, its only two instances, or one instance with the others.
fn answer(
    &Job { args, metrics }: &Job<'_>,
    source: &impl Source,
    options: &comparison::Options,
    pulse: &mut Pulse<'_>,
) -> Result<Answer, Failure> {
    let source = &WithMetrics { source, metrics };
    if let Some(id) = &args.explain {
        let explained = singles::explain(id, source, options, pulse)?;
        return Ok(Answer::Explained(explained));
    }
    if let Some(sides) = sides(source, &options.metric, options.variables_max) {
        singles::check(args, options.noun)?;
        return Ok(Answer::Sides(sides));
    }
    check_counts(source.heads(), options.noun)?;
    let comparison = comparison::compare(source, options, pulse).ok_or(Failure::Interrupted)?;
    Ok(Answer::Comparison(Box::new(comparison)))
}

fn print(
    args: &Compare,
    html: Option<&Output>,
    comparison: &Comparison,
    found: &Found,
) -> Result<(), Failure> {
    let written = match html {
        Some(file) => page::write(args, file, &found.inputs, comparison, found.lanes.as_ref()),
        None => Ok(String::new()),
    };
    // Print the result before a failed file ends the command, because it is worth more.
    let (written, late) = match written {
        Ok(written) => (written, Ok(())),
        Err(failure) => (String::new(), Err(failure)),
    };
    check_metric(comparison)?;
    let failed = args.fail_on.map_or(Ok(()), |on| limits::verdict(on, args.at_least.as_ref(), comparison));
    if args.json {
        let mut shown = Cow::Borrowed(comparison);
        if let Some(top) = args.top.filter(|&top| top > 0 && top < comparison.ranked.len()) {
            shown.to_mut().ranked.truncate(top);
        }
        let printed = output::print_json(&Report {
            inputs: &found.inputs,
            unreadable_lines: found.unreadable_lines,
            result: &*shown,
        });
        return Failure::after(printed, late.and(failed));
    }
    let text = render::screen(args, &found.inputs, comparison) + &found.notes + &written;
    Failure::after(output::report(&text), late.and(failed))
}

/// Refuses a metric that a class does not have.
fn check_metric(comparison: &Comparison) -> Result<(), Failure> {
    for (mean, name) in comparison.metric.means.into_iter().zip(["good", "bad"]) {
        if !mean.is_finite() {
            return Err(Failure::Job(format!(
                "no {name} trace has the metric; give --metric an attribute whose values are numbers on roots"
            )));
        }
    }
    Ok(())
}

/// Refuses a class without two instances.
fn check_counts(heads: &[Head], noun: &str) -> Result<(), Failure> {
    let of = |class| heads.iter().filter(|head| head.class == class).count() as u64;
    for (class, name) in [(Class::Good, "good"), (Class::Bad, "bad")] {
        if of(class) < 2 {
            return Err(Failure::Job(format!(
                "{} {noun} in the {name} class; a comparison needs two in each, or one in each to put them side by \
                 side: widen the class, or read more recordings",
                output::count(of(class)),
            )));
        }
    }
    Ok(())
}
