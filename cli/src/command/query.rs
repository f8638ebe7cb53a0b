//! `astracer query`: answers a question about a recording.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use astracer_ask::{self as points, Answer, Question};
use astracer_causality::causes::{Causes, Clocking};
use astracer_causality::rules::Options;
use astracer_queries::{Fault, Plan, Program, Rewrite};
use astracer_recording::Recording;
use astracer_recording::recording::Keep;
use astracer_recording::stop::Pulse;
use astracer_recording::weight::ADJUSTED_COUNT;
use astracer_tuner::Stop;
use clap::Args as ClapArgs;

use crate::bounded::{read_input, read_within};
use crate::failure::Failure;
use crate::interrupt;
use crate::load::{self, Causal};
use crate::output;
use crate::source::{LogReading, Naming, Reading, Source};
use crate::values::time_limit;

mod answer;
mod definitions;
mod screen;
mod tracepoints;

const EXAMPLES: &str = "\
Examples:
  astracer query run.tar.xz --tracepoints            the names and fields to ask for
  astracer query run.tar.xz -q 'From r In disk.read
      GroupBy r.host Select r.host, COUNT, SUM(r.bytes)'
  astracer query run.tar.xz -q 'From r In disk.read
      Join c In First(\"client:*\") On c -> r
      GroupBy c.name Select c.name, SUM(r.bytes)'    by the client that caused it
  astracer query kept/ -f reads.query --weights      estimates from a sample
  astracer query run/ --logs -q 'From w In write
      Join r In MostRecent(\"GET /cart\") On r -> w
      Select r.trace, w.file, w.bytes'               through straces and logs
  astracer query run/ --why -q 'From r In \"GET /cart\"@end
      Join d In disk.read Below r
      GroupBy r.host Select r.host, MAX(r.duration)' the trace of the slowest
  astracer query --explain -f reads.query            the advice of a query

docs/queries.md has the language on one page, with questions people have.";

/// Rows of a table for people.
const TOP_DEFAULT: usize = 30;
/// The largest text of a query.
const TEXT_MAX: u64 = 16 << 20;

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Query {
    /// Recordings to ask: files, folders or archives (tar, gz, xz, zst); - reads standard input.
    #[arg(value_name = "RECORDING", required_unless_present = "explain")]
    paths: Vec<PathBuf>,

    /// The query, such as 'From r In disk.read GroupBy r.host Select r.host, SUM(r.bytes)'.
    #[arg(short, long, value_name = "TEXT", required_unless_present_any = ["file", "tracepoints"], conflicts_with = "file")]
    query: Option<String>,

    /// A file with the query; - reads standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// A file with names for tracepoints, as TOML: Reads = ["disk.read", "cache.read@end"].
    #[arg(long, value_name = "FILE")]
    definitions: Option<PathBuf>,

    /// Weight each trace by 1 / probability, from its threshold (`ot=th` in the tracestate): COUNT,
    /// SUM, AVERAGE and QUANTILE become estimates with 95 % intervals.
    #[arg(long)]
    weights: bool,

    /// Name up to three traces with matches of each row, and the trace of each MIN and MAX.
    #[arg(long)]
    why: bool,

    /// Read log records, too, as points named like their loggers. Straces are always read, as
    /// points named like their system calls.
    #[arg(long)]
    logs: bool,

    /// Leave out causes that only a reply brings back: work in another process is not before what
    /// its caller does afterwards, as a fleet without returned baggage sees it.
    #[arg(long)]
    no_remote_returns: bool,

    /// Rules that shorten the advice: all, none, or some of columns,filters,groups. The answer is
    /// the same.
    #[arg(long, value_name = "RULES", default_value = "all")]
    rewrite: Rewrite,

    /// Print the advice that the query compiles to, instead of an answer.
    #[arg(long, conflicts_with_all = ["json", "sort", "top"])]
    explain: bool,

    /// List the tracepoints that a query can name, with their points, hosts and fields: all, or
    /// those that match a pattern such as 'client:*'.
    #[arg(
        long,
        value_name = "PATTERN",
        num_args = 0..=1,
        default_missing_value = "*",
        conflicts_with_all = ["query", "file", "definitions", "explain", "sort", "weights", "no_remote_returns"]
    )]
    tracepoints: Option<String>,

    /// Column to sort by: its name, largest first [default: the first aggregate].
    #[arg(long, value_name = "COLUMN", conflicts_with = "json")]
    sort: Option<String>,

    /// Show only the first N rows or tracepoints; 0 shows all [default: 30].
    #[arg(long, value_name = "N", conflicts_with = "json")]
    top: Option<usize>,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    log_reading: LogReading,

    #[command(flatten)]
    naming: Naming,

    /// End without an answer after this time, with exit code 1.
    #[arg(long, value_name = "DURATION", value_parser = time_limit)]
    limit_time: Option<Duration>,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Query, stop: Stop<'_>) -> Result<(), Failure> {
    // Nothing is lost with an answer that is not there yet, so a signal ends the process at once:
    // a join may multiply rows for hours.
    let text = interrupt::answer_at_once_while(|| {
        let limit = args.limit_time.map(|limit| {
            let limit_text = humantime::format_duration(limit);
            let error = format!(
                "no answer within {limit_text} (--limit-time); narrow the query, as by Where, or allow more"
            );
            interrupt::end_after(limit, error)
        });
        let text = answer(args, stop);
        drop(limit);
        text
    })?;
    interrupt::answer_at_once(stop)?;
    output::print(&text)
}

/// The answer as it is printed.
fn answer(args: &Query, stop: Stop<'_>) -> Result<String, Failure> {
    let source =
        Source { paths: args.paths.clone(), reading: args.reading.clone(), naming: args.naming.clone() };
    source.check()?;
    if !args.logs && args.log_reading != LogReading::default() {
        return Err(Failure::Usage(
            "--layout, --layouts and --log-zone have no effect without --logs; add it".into(),
        ));
    }
    let logs = args.logs.then_some(&args.log_reading);
    if let Some(pattern) = &args.tracepoints {
        return tracepoints::run(&source, pattern, (args.top.unwrap_or(TOP_DEFAULT), args.json, logs), stop);
    }
    let (plan, hints) = plan(args)?;
    if args.explain {
        return Ok(output::prose(&plan.to_string()));
    }
    let sort = args.sort.as_deref().map(|column| screen::column(&plan, column)).transpose()?;
    let plan = Arc::new(plan);
    let keep = Keep {
        points: Some(points::keep(&plan)),
        origins: true,
        records: args.logs,
        trace_states: args.weights,
        own_labels: if args.weights { vec![ADJUSTED_COUNT.to_owned()] } else { Vec::new() },
        ..Keep::default()
    };
    let (found, input) = load::load_causes(&source, keep, logs, None, stop)?;
    let rules = Options { remote_returns: !args.no_remote_returns };
    let question = Question { plan: &plan, rules, weights: args.weights, traces: args.why };
    let (answer, recording) = ask(found, question, stop).ok_or(Failure::Interrupted)?;
    let problems = answer::problems(&answer);
    if args.json {
        return output::json(&answer::json(&answer, input.problems(), &problems, &hints));
    }
    let shown = screen::Shown { sort, top: args.top.unwrap_or(TOP_DEFAULT) };
    let sampled = recording.is_weighted();
    let text = screen::screen(&plan, &answer, &problems, &input, &shown, sampled, &hints);
    Ok(output::prose(&text))
}

/// Asks each trace alone if there are only spans, and else all points of the recording.
fn ask(found: Causal, question: Question<'_>, stop: Stop<'_>) -> Option<(Answer, Recording)> {
    let asked = || stop.is_asked();
    match found {
        Causal::Spans(recording) => {
            let answer = points::ask(&recording, question, asked)?;
            Some((answer, *recording))
        }
        Causal::All(collected) => {
            let clocking = Clocking { rules: question.rules, ..Clocking::default() };
            let (causes, recording) = Causes::find(*collected, &clocking, &mut Pulse::new(asked))?;
            let answer = points::ask_all(&causes, &recording, question, asked)?;
            Some((answer, recording))
        }
    }
}

/// The plan of the query's text, and hints about it.
fn plan(args: &Query) -> Result<(Plan, Vec<Fault>), Failure> {
    let definitions = definitions::read(args.definitions.as_deref())?;
    let (text, name) = match (&args.query, &args.file) {
        (Some(text), _) => (text.clone(), None),
        (None, Some(path)) => (read_text(path)?, Some(output::shown(path))),
        (None, None) => return Err(Failure::Usage("the query is missing; add -q TEXT or -f FILE".into())),
    };
    let refused = |faults: Vec<Fault>| {
        let place = name.as_ref().map_or_else(|| "the query".to_owned(), Clone::clone);
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Failure::Usage(format!("{place} is not valid\n{}", faults.join("\n\n")))
    };
    let program = Program::parse_with(&text, &definitions).map_err(refused)?;
    let plan = program.plan(args.rewrite).map_err(refused)?;
    Ok((plan, program.hints().to_vec()))
}

/// Reads a text within [`TEXT_MAX`].
fn read_text(path: &Path) -> Result<String, Failure> {
    let shown = output::shown(path);
    let read = match path.as_os_str() == "-" {
        true => read_within(io::stdin().lock(), TEXT_MAX),
        false => read_input(path, TEXT_MAX),
    };
    let read = read.map_err(|error| Failure::Job(format!("cannot read {shown}: {error}")))?;
    let bytes = read.ok_or_else(|| {
        Failure::Job(format!("{shown} is larger than {} MiB; is it the right file?", TEXT_MAX >> 20))
    })?;
    String::from_utf8(bytes)
        .map_err(|_| Failure::Job(format!("{shown} is not UTF-8 text; is it the right file?")))
}
