//! `astracer events`: the event graph of one trace.

use std::path::PathBuf;

use astracer_critical_path::drawing::Drawing;
use astracer_critical_path::{Rule, segments};
use astracer_model::TraceId;
use astracer_recording::recording::Keep;
use astracer_tuner::Stop;
use clap::Args as ClapArgs;

use crate::failure::Failure;
use crate::interrupt;
use crate::load::{self, Loaded};
use crate::output::{self, escaped, measure, named};
use crate::outputs::Outputs;
use crate::source::Source;

const EXAMPLES: &str = "\
Examples:
  astracer events run.json --trace 3615c831d3fc58b5
  astracer events run.json --trace 3615c831d3fc58b5 --dot | dot -Tsvg > g.svg
  astracer events run.json --trace 3615c831d3fc58b5 --html graph.html

X-Trace reports are events, and so are those of spans with xtrace.event. Of other traces, the events are the starts and ends of
spans, written name and name@end; with --rule events, only starts.";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Events {
    #[command(flatten)]
    pub(crate) source: Source,

    /// Trace to draw.
    #[arg(long, value_name = "ID", value_parser = super::critical_path::trace_id)]
    pub(crate) trace: TraceId,

    /// Rule for the critical path: last (the longest path) or events (the latest parents).
    #[arg(long, value_name = "RULE", default_value = "last", value_parser = rule)]
    pub(crate) rule: Rule,

    /// Show the N longest paths, and the gain and slack of up to N functions on the longest; at
    /// most 100 [default: 5].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=TOP_MAX))]
    pub(crate) top: Option<u8>,

    /// Print one JSON object.
    #[arg(long, conflicts_with = "dot")]
    pub(crate) json: bool,

    /// Print a graph for Graphviz.
    #[arg(long)]
    pub(crate) dot: bool,

    /// Write a page with the drawing to FILE: a lane for each thread, and the edges.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// The number of names that distinguish a path from the longest one; the page has more.
const APART_SHOWN: usize = 3;

const TOP_DEFAULT: u8 = 5;
/// Memory grows with this number, because each event holds its longest paths.
const TOP_MAX: i64 = 100;

fn rule(text: &str) -> Result<Rule, String> {
    let rule = text.parse::<Rule>().ok().filter(|rule| matches!(rule, Rule::Last | Rule::Events));
    rule.ok_or_else(|| format!("invalid rule '{}' for events: use last or events", escaped(text)))
}

pub(crate) fn run(args: &Events, stop: Stop<'_>) -> Result<(), Failure> {
    if args.top.is_some() && args.dot && args.html.is_none() {
        return Err(Failure::Usage(
            "--top has no effect with --dot, which prints the whole graph; omit one of them".to_owned(),
        ));
    }
    let mut outputs = Outputs::new(&args.source.paths);
    let html = args.html.as_ref().map(|path| outputs.file("--html", path)).transpose()?;
    let labels = ["host.name", "hostname", "xtrace.process", "thread.id"].map(str::to_owned).to_vec();
    let Loaded { recording, input } =
        load::load_keeping(&args.source, Keep { labels, x_trace: true, ..Keep::default() }, stop)?;
    let trace = recording.traces().find(|trace| trace.id() == args.trace).ok_or_else(|| {
        let id = segments::trace_id(args.trace);
        Failure::Job(format!("no trace has the id {id}; critical-path --segments lists all ids"))
    })?;
    interrupt::answer_at_once(stop)?;
    let drawing = Drawing::new(&recording, trace, args.rule, args.top.unwrap_or(TOP_DEFAULT).into());
    // Print the result before a failed file ends the command.
    let late = html.as_ref().map_or(Ok(()), |file| file.write(&drawing.page()));
    if args.json {
        return Failure::after(output::print_json(&drawing), late);
    }
    if args.dot {
        return Failure::after(output::print(&drawing.dot()), late);
    }
    let rows = drawing.events.iter().map(|event| {
        vec![
            format!("{} {}", if event.on_path { "#" } else { " " }, named(&event.name)),
            measure((event.time_ns - drawing.start_ns) as f64 / 1e6),
            event.critical_ns.map_or_else(|| "-".to_owned(), |ns| measure(ns as f64 / 1e6)),
            event.lane.to_string(),
            event.edges.len().to_string(),
        ]
    });
    let mut text = input.heading();
    text.push_str(&format!(
        "trace {}: {} on {}; the longest path has {} and takes {} ms\n\n",
        drawing.trace_id,
        output::plural(drawing.events.len() as u64, "event"),
        output::plural(drawing.lanes.len() as u64, "thread"),
        output::plural(drawing.events.iter().filter(|event| event.on_path).count() as u64, "event"),
        measure(drawing.path_ns as f64 / 1e6),
    ));
    text.push_str(&output::table(
        &["event (# on the path)", "at\nms", "ms to the\nnext", "thread", "edges\nin"],
        rows,
    ));
    let lanes = drawing.lanes.iter().enumerate();
    text.push_str(&output::table(
        &["thread", "number"],
        lanes.map(|(number, lane)| vec![lane.clone(), number.to_string()]),
    ));
    text.push_str(&longest_paths(&drawing));
    if drawing.missing_parents + drawing.cut_edges > 0 {
        text.push_str(&format!(
            "ignored: {} from events that were not recorded, {} that close a cycle\n",
            output::plural(drawing.missing_parents, "edge"),
            output::count(drawing.cut_edges)
        ));
    }
    text.push_str(&input.footing());
    if let Some(file) = html.as_ref().filter(|_| late.is_ok()) {
        text.push_str(&format!("wrote {}\n", output::shown(file.path())));
    }
    Failure::after(output::report(&text), late)
}

/// The functions on the longest path, and the longest paths.
fn longest_paths(drawing: &Drawing) -> String {
    let millis = |ns: f64| measure(ns / 1e6);
    let mut text = String::new();
    if !drawing.procedures.is_empty() {
        let rows = drawing.procedures.iter().map(|row| {
            vec![
                named(&row.name).to_owned(),
                millis(row.on_path_ns),
                millis(row.gain_ns),
                millis(row.slack_ns),
            ]
        });
        text.push_str(&output::table(&["function on the longest path", "ms", "gain\nms", "slack\nms"], rows));
    }
    if !drawing.paths.is_empty() {
        let rows = (1..).zip(&drawing.paths).map(|(number, path)| {
            let apart = drawing.apart(path, APART_SHOWN);
            let through = if apart.is_empty() { apart } else { format!(", through {apart}") };
            let events = output::count(path.events.len() as u64);
            vec![format!("{number}{through}"), millis(path.length_ns), millis(path.behind_ns), events]
        });
        text.push_str(&output::table(&["longest paths", "ms", "shorter\nby ms", "events"], rows));
    }
    text
}
