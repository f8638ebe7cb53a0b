//! `astracer inspect`: shows what a recording holds.

mod fit;
mod weights;

use std::fmt::Write as _;
use std::path::PathBuf;

use astracer_tuner::inspect::Column;
use astracer_tuner::{Inspection, Stop};
use clap::Args as ClapArgs;
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt;
use crate::load::{self, Input};
use crate::output;
use crate::source::Source;

const EXAMPLES: &str = "\
Examples:
  astracer inspect traces/                  every recording in a folder
  astracer inspect run.tar.xz --sort p95    slowest functions first
  astracer inspect spans.json --json | jq .roots
  astracer inspect kept/ --weights          estimated and exact counts by key
  astracer inspect today/ --parameters astracer.toml  does the file still fit?
  curl -s 'http://localhost:16686/api/traces?service=a' | astracer inspect -

docs/metrics.md explains the columns.";

/// Rows of a table for people.
const TOP_DEFAULT: usize = 10;

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) source: Source,

    /// Column to sort by: name, count (traces, share), mean, sd, median, p75, p95, max, trees,
    /// spans, max/s.
    #[arg(long, value_name = "COLUMN", default_value = "count", conflicts_with = "weights")]
    pub(crate) sort: Column,

    /// Show only the first N rows of each table; 0 shows all [default: 10, with --json all].
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,

    /// Sum the weights (ot=th) of the root spans by key instead, and compare the sums with the
    /// exact counts in heartbeats.
    #[arg(long)]
    pub(crate) weights: bool,

    /// Say whether this parameters file fits the recording instead: which of its keys occur, and
    /// how much it keeps.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["weights", "sort", "top"])]
    pub(crate) parameters: Option<PathBuf>,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    input: &'a Input,
    #[serde(flatten)]
    inspection: Inspection,
}

pub(crate) fn run(args: &Inspect, stop: Stop<'_>) -> Result<(), Failure> {
    if let Some(file) = &args.parameters {
        return fit::run(&args.source, file, args.json, stop);
    }
    if args.weights {
        return weights::run(&args.source, args.top.unwrap_or(0), args.json, stop);
    }
    let loaded = load::load(&args.source, stop)?;
    let mut inspection = Inspection::new(&loaded.recording, stop).ok_or(Failure::Interrupted)?;
    interrupt::answer_at_once(stop)?;
    inspection.sort(args.sort);
    let (roots, functions) = (inspection.roots.len(), inspection.functions.len());
    let shown = |all: usize| match args.top.unwrap_or(if args.json { 0 } else { TOP_DEFAULT }) {
        0 => all,
        top => top.min(all),
    };
    inspection.roots.truncate(shown(roots));
    inspection.functions.truncate(shown(functions));
    if args.json {
        return output::print_json(&Report { input: &loaded.input, inspection });
    }
    let mut text = loaded.input.heading();
    let rate = if inspection.seconds > 0.0 {
        format!(" ({} traces/s)", output::rounded(inspection.traces as f64 / inspection.seconds))
    } else {
        String::new()
    };
    let _ = writeln!(
        text,
        "{}, {}, {}, {}, {}\nfrom {} over {}{rate}; {} as OTLP\n",
        output::plural(inspection.traces, "trace"),
        output::plural(inspection.spans, "span"),
        output::plural(functions as u64, "function"),
        output::plural(inspection.call_trees, "call tree"),
        output::bytes(inspection.bytes),
        load::utc(inspection.start_unix_ns),
        output::span(inspection.seconds),
        output::bytes(inspection.otlp_bytes),
    );
    text.push_str(&output::table(
        &["root", "traces", "share", "call\ntrees", "spans", "most\nin 1 s", "mean\nms", "sd\nms"],
        inspection.roots.iter().map(|root| {
            vec![
                output::named(&root.name).to_owned(),
                output::count(root.traces),
                output::percent(root.share),
                output::count(root.call_trees),
                output::count(root.spans),
                output::count(root.traces_per_second_max),
                output::measure(root.mean_ms),
                output::measure(root.sd_ms),
            ]
        }),
    ));
    more(&mut text, roots - inspection.roots.len(), "root");
    text.push_str(&output::table(
        &["function, times in ms", "spans", "mean", "sd", "median", "p75", "p95", "max"],
        inspection.functions.iter().map(|function| {
            vec![
                output::named(&function.name).to_owned(),
                output::count(function.count),
                output::measure(function.mean_ms),
                output::measure(function.sd_ms),
                output::measure(function.median_ms),
                output::measure(function.p75_ms),
                output::measure(function.p95_ms),
                output::measure(function.max_ms),
            ]
        }),
    ));
    more(&mut text, functions - inspection.functions.len(), "function");
    text.push_str(&loaded.input.footing());
    if let Some(hint) = loaded.input.sample_hint("the calls of each root") {
        let _ = writeln!(text, "hint: {hint}");
    }
    let weights = if loaded.input.is_sample() { " --weights" } else { "" };
    let _ =
        writeln!(text, "Where the time goes: astracer critical-path {}{weights}", loaded.input.arguments());
    output::report(&text)
}

/// Says how many rows of a table are not shown.
fn more(text: &mut String, rows: usize, noun: &str) {
    if rows > 0 {
        // Directly below the table, instead of its empty line.
        text.pop();
        let _ = writeln!(
            text,
            "... {}: --top 0 shows all\n",
            output::plural(rows as u64, &format!("more {noun}"))
        );
    }
}
