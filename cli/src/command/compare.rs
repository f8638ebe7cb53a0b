//! `astracer compare`: what differs between good and bad runs.

use std::path::PathBuf;

use astracer_compare::comparison::{self, Comparison};
use astracer_compare::instances::{Class, Source as _};
use astracer_compare::network::{self, attention::Focus};
use astracer_compare::traces::{Method, Traces};
use astracer_recording::stop::Pulse;
use astracer_samplers::KeyRule;
use astracer_tuner::Stop;
use clap::{Args as ClapArgs, ValueEnum};
use serde::Serialize;

use crate::failure::Failure;
use crate::load::Input;
use crate::output;
use crate::outputs::Outputs;
use crate::source::{LogReading, Naming, Reading, check_inputs};
use crate::values;

mod classes;
mod instances;
mod limits;
mod page;
mod render;
mod when;

use classes::Classes;
use limits::{Least, Step};

const EXAMPLES: &str = "\
Examples:
  astracer compare good/ bad/                        two recordings
  astracer compare --good a/ --good b/ --bad c/      several good runs confirm
  astracer compare day/ --bad-time 2026-11-27T10:05:00Z+180s --near 20m
  astracer compare day/ --bad-slowest 1%             what slow traces have
  astracer compare day/ --bad-where version=2 --root 'GET /cart'
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
    #[arg(long, value_name = "LEAST", value_parser = limits::least, requires = "fail_on")]
    at_least: Option<Least>,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,

    /// Write a page to FILE: distributions, networks, values by type, typical traces, all tests.
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
struct Report<'a> {
    inputs: &'a [Input],
    /// Lines of files of instances that are not JSON.
    unreadable_lines: u64,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

pub(crate) fn run(args: &Compare, stop: Stop<'_>) -> Result<(), Failure> {
    let all: Vec<&PathBuf> = args.paths.iter().chain(&args.good).chain(&args.bad).collect();
    check_inputs(all.iter().copied())?;
    args.naming.check()?;
    args.classes.check(!args.good.is_empty(), args.paths.len())?;
    let html =
        args.html.as_ref().map(|file| Outputs::new(all.iter().copied()).file("--html", file)).transpose()?;
    let tail = args.weight_step.map(|step| step.of(&args.metric)).transpose()?;
    let file = instances::read(&all, stop)?;
    let options = comparison::Options {
        paper: args.paper,
        metric: limits::metric_name(&args.metric, file.is_some()),
        is_split: args.classes.splits(),
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
    let method = Method {
        metric: args.metric.clone(),
        key: args.key.clone(),
        paper: args.paper,
        ignore: args.ignore.clone(),
        is_duration_chosen: args.classes.is_by_duration(),
    };
    let mut pulse = stop.pulse();
    let unreadable = file.as_ref().map_or((0, String::new()), |file| instances::unreadable(file, &all));
    let (inputs, mut comparison, lanes) = if let Some(file) = file {
        if args.classes.is_given() || !args.good.is_empty() {
            return Err(Failure::Usage(
                "files of instances state their classes (cls); give them alone, without --good, --bad or --bad-..."
                    .into(),
            ));
        }
        check_counts(file.heads().iter().map(|head| head.class))?;
        (Vec::new(), compare(&file, &options, &mut pulse)?, None)
    } else {
        let loaded = classes::load(args, stop)?;
        let chosen = classes::choose(args, &loaded)?;
        check_counts(chosen.iter().map(|one| one.class))?;
        let traces = Traces::new(chosen, &method, &mut pulse).ok_or(Failure::Interrupted)?;
        let comparison = compare(&traces, &options, &mut pulse)?;
        let lanes = page::lanes(&traces, &comparison);
        drop(traces);
        (loaded.into_iter().map(|one| one.loaded.input).collect(), comparison, lanes)
    };
    let written = match &html {
        Some(file) => page::write(args, file, &inputs, &comparison, lanes.as_ref()),
        None => Ok(String::new()),
    };
    // Print the result before a failed file ends the command, because it is worth more.
    let (written, late) = match written {
        Ok(written) => (written, Ok(())),
        Err(failure) => (String::new(), Err(failure)),
    };
    check_metric(&comparison)?;
    let failed = args.fail_on.map_or(Ok(()), |on| limits::verdict(on, args.at_least.as_ref(), &comparison));
    if args.json {
        if let Some(top) = args.top.filter(|&top| top > 0) {
            comparison.ranked.truncate(top);
        }
        let printed = output::print_json(&Report {
            inputs: &inputs,
            unreadable_lines: unreadable.0,
            comparison: &comparison,
        });
        return Failure::after(printed, late.and(failed));
    }
    let text = render::screen(args, &inputs, &comparison) + &unreadable.1 + &written;
    Failure::after(output::report(&text), late.and(failed))
}

fn compare(
    source: &impl astracer_compare::instances::Source,
    options: &comparison::Options,
    pulse: &mut Pulse<'_>,
) -> Result<Comparison, Failure> {
    comparison::compare(source, options, pulse).ok_or(Failure::Interrupted)
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
fn check_counts(classes: impl Iterator<Item = Class> + Clone) -> Result<(), Failure> {
    for (class, name) in [(Class::Good, "good"), (Class::Bad, "bad")] {
        let count = classes.clone().filter(|&own| own == class).count();
        if count < 2 {
            return Err(Failure::Job(format!(
                "{} in the {name} class; a comparison needs two in each: widen the class, or read more recordings",
                output::plural(count as u64, "trace"),
            )));
        }
    }
    Ok(())
}
