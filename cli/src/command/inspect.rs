//! `astracer inspect`: what a recording holds.

mod weights;

use std::fmt::Write as _;

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
  astracer inspect traces/                      every recording in a folder
  astracer inspect run.tar.xz --sort p95        slowest functions first
  curl -s 'http://localhost:16686/api/traces?service=a' | astracer inspect -
  astracer inspect spans.json --json | jq .roots
  astracer inspect kept/ --weights              what the kept roots stand for, beside heartbeats

The columns are explained in docs/metrics.md.";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) source: Source,

    /// The column to sort by: name, count (traces, share), mean, sd, median, p75, p95, max, trees,
    /// spans, max/s.
    #[arg(long, value_name = "COLUMN", default_value = "count", conflicts_with = "weights")]
    pub(crate) sort: Column,

    /// Show only the first N rows of each table; 0 shows all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) top: usize,

    /// Sum the weights (ot=th) of the roots by key instead, and compare them with the exact counts
    /// of heartbeats.
    #[arg(long)]
    pub(crate) weights: bool,

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
    if args.weights {
        return weights::run(&args.source, args.top, args.json, stop);
    }
    let loaded = load::load(&args.source, stop)?;
    let mut inspection = Inspection::new(&loaded.recording, stop).ok_or(Failure::Interrupted)?;
    interrupt::answer_at_once(stop)?;
    inspection.sort(args.sort);
    let functions = inspection.functions.len() as u64;
    if args.top > 0 {
        inspection.roots.truncate(args.top);
        inspection.functions.truncate(args.top);
    }
    if args.json {
        return output::print_json(&Report { input: &loaded.input, inspection });
    }
    let mut text = loaded.input.heading();
    let _ = writeln!(
        text,
        "{}, {}, {}, {} ({} as OTLP), {}\nfrom {} for {:.1} s\n",
        output::plural(inspection.traces, "trace"),
        output::plural(inspection.spans, "span"),
        output::plural(inspection.call_trees, "call tree"),
        output::bytes(inspection.bytes),
        output::bytes(inspection.otlp_bytes),
        output::plural(functions, "function"),
        load::utc(inspection.start_unix_ns),
        inspection.seconds,
    );
    text.push_str(&output::table(
        &["root", "traces", "share", "trees", "spans", "max/s", "mean ms", "sd ms"],
        inspection.roots.iter().map(|root| {
            vec![
                output::named(&root.name).to_owned(),
                output::count(root.traces),
                format!("{:.2}%", root.share * 100.0),
                output::count(root.call_trees),
                output::count(root.spans),
                output::count(root.traces_per_second_max),
                output::measure(root.mean_ms),
                output::measure(root.sd_ms),
            ]
        }),
    ));
    text.push_str(&output::table(
        &["function", "count", "mean ms", "sd", "median", "p75", "p95", "max"],
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
    text.push_str(&loaded.input.footing());
    output::print(&text)
}
