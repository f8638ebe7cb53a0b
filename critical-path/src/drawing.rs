//! A drawing of one execution's event graph: a lane for each thread, and an edge to each event from
//! the events that it followed.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use astracer_causality::spot::Spot;
use astracer_model::Format;
use astracer_model::text::escaped;
use astracer_recording::intern::Symbol;
use astracer_recording::recording::{Recording, SpanView, TraceView};
use astracer_report::chart::{legend, pc};
use astracer_report::names::{line, short, shortened};
use astracer_report::numbers::{count, three};
use astracer_report::page::{Page, Tone, table};
use maud::{Markup, html};
use serde::Serialize;

use crate::events::EventGraph;
use crate::graph::{GraphPath, ProcedureSlack};
use crate::path::CriticalPath;
use crate::rule::Rule;
use crate::segments::trace_id;

/// The greatest number of events on a page; those on the path are drawn first, then the earliest.
const DRAWN_MAX: usize = 4000;
/// The greatest number of names listed for the difference between a path and the longest one.
const APART_MAX: usize = 8;
/// The letters of these names on the page.
const APART_LETTERS: usize = 300;

/// An event graph, prepared for drawing.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Drawing {
    /// The trace's id, in hexadecimal.
    pub trace_id: String,
    /// The first event's time, ns since the epoch.
    pub start_ns: u64,
    /// The last event's time, ns since the epoch.
    pub end_ns: u64,
    /// The length of the path, ns.
    pub path_ns: u64,
    /// The host, process and thread of each lane.
    pub lanes: Vec<String>,
    /// The events, in order of time.
    pub events: Vec<DrawnEvent>,
    /// The longest paths, longest first.
    pub paths: Vec<DrawnPath>,
    /// The functions on the longest path, those with the most time there first.
    pub procedures: Vec<DrawnProcedure>,
    /// The number of parents that are not in the recording.
    pub missing_parents: u64,
    /// The number of edges that were left out because they closed a cycle.
    pub cut_edges: u64,
}

/// One event.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DrawnEvent {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its service.
    pub service: String,
    /// Its time, ns since the epoch.
    pub time_ns: u64,
    /// The lane's index in [`Drawing::lanes`].
    pub lane: usize,
    /// The edges from the events that it followed.
    pub edges: Vec<DrawnEdge>,
    /// Whether the event is on the path.
    pub on_path: bool,
    /// The time from the event to the next event of the path, ns; `None` for an event beside the
    /// path.
    pub critical_ns: Option<u64>,
}

/// One of the longest paths.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DrawnPath {
    /// The length in ns, counted from the beginning of the critical path, even if this path begins
    /// elsewhere.
    pub length_ns: f64,
    /// The amount by which it is shorter than the longest path, ns.
    pub behind_ns: f64,
    /// The indices of its events in [`Drawing::events`].
    pub events: Vec<u32>,
}

/// The effect of one function's time.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DrawnProcedure {
    /// The function's name.
    pub name: String,
    /// The time after the function's events on the longest path, ns.
    pub on_path_ns: f64,
    /// The amount by which the execution would be shorter if the function took no time, ns.
    pub gain_ns: f64,
    /// The part of `on_path_ns` that can be saved before another path becomes the longest, ns.
    pub slack_ns: f64,
}

/// An edge to an event.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct DrawnEdge {
    /// The index in [`Drawing::events`] of the event that it comes from.
    pub from: u32,
    /// The edge's length, ns.
    pub length_ns: f64,
    /// Edge slack, ns: the longest delay that leaves the execution's end unchanged; `None` if the
    /// end does not depend on this edge.
    pub slack_ns: Option<f64>,
    /// Whether the path goes through this edge.
    pub on_path: bool,
}

/// The name of an event: of a point of a span as queries write it.
fn name(graph: &EventGraph, event: u32, span: SpanView<'_>) -> String {
    let name = span.name();
    match graph.spot(event) {
        None if graph.has_points() => format!("{name} goes on"),
        None | Some(Spot::Start | Spot::Report) => name.to_owned(),
        Some(Spot::End) => format!("{name}@end"),
        Some(Spot::Event(number)) => format!("{name} event {}", number + 1),
    }
}

impl Drawing {
    /// Prepares a trace for drawing, with up to `top` of its longest paths and as many functions.
    /// Lanes are named by the labels that were kept of the spans.
    pub fn new(recording: &Recording, trace: TraceView<'_>, rule: Rule, top: usize) -> Self {
        let is_report = trace.root().format() == Some(Format::XTraceJson);
        let has_length = trace.spans().any(|span| span.duration_ns() > 0);
        let graph = match rule == Rule::Last && has_length && !is_report {
            true => EventGraph::of_points(trace),
            false => EventGraph::read(trace),
        };
        let mut path = CriticalPath::default();
        graph.find(rule, &mut path);
        let lengths = graph.lengths();
        let slack = graph.graph().edge_slack(&lengths, graph.last_event());
        let steps = path.segments.iter().zip(path.segments.iter().skip(1));
        let before: HashMap<u32, u32> = steps.map(|(step, next)| (next.node, step.node)).collect();
        let (mut lanes, mut numbers) = (Vec::new(), HashMap::new());
        let mut lane = |name: String| {
            *numbers.entry(name).or_insert_with_key(|name| {
                lanes.push(name.clone());
                lanes.len() - 1
            })
        };
        let mut events: Vec<DrawnEvent> = (0u32..)
            .zip(graph.events())
            .map(|(event, own)| {
                let span = recording.span(own.index);
                let labels = span.label_symbol().map(|labels| recording.label_values(labels));
                let parts: Vec<&str> = labels.into_iter().flatten().flatten().collect();
                let edges = graph.graph().edges_into(event).iter().map(|&edge| {
                    let from = graph.graph().edges()[edge as usize].from;
                    let on_path = before.get(&event) == Some(&from);
                    DrawnEdge {
                        from,
                        length_ns: lengths[edge as usize],
                        slack_ns: slack[edge as usize],
                        on_path,
                    }
                });
                DrawnEvent {
                    id: span.id().to_string(),
                    name: name(&graph, event, span),
                    service: span.service().to_owned(),
                    time_ns: own.time,
                    lane: lane(if parts.is_empty() { span.service().to_owned() } else { parts.join(" ") }),
                    edges: edges.collect(),
                    on_path: false,
                    critical_ns: None,
                }
            })
            .collect();
        for segment in path.segments.iter() {
            let event = &mut events[segment.node as usize];
            (event.on_path, event.critical_ns) = (true, Some(segment.length()));
        }
        let times = || events.iter().map(|event| event.time_ns);
        let paths = graph.top_paths(top);
        let longest = paths.first().map_or(0.0, |path| path.length);
        let begin = graph.before(&path);
        let drawn = |path: GraphPath| DrawnPath {
            length_ns: (path.length - begin).max(0.0),
            behind_ns: longest - path.length,
            events: path.events,
        };
        let procedure = |(name, effect): (Symbol, ProcedureSlack)| DrawnProcedure {
            name: recording.names().name(name).to_owned(),
            on_path_ns: effect.on_path,
            gain_ns: effect.gain,
            slack_ns: effect.slack,
        };
        Self {
            trace_id: trace_id(trace.id()),
            start_ns: times().min().unwrap_or(0),
            end_ns: times().max().unwrap_or(0),
            path_ns: path.length(),
            paths: paths.into_iter().map(drawn).collect(),
            procedures: graph.procedures(top).into_iter().map(procedure).collect(),
            missing_parents: graph.missing_parents(),
            cut_edges: graph.graph().cut_edges(),
            events,
            lanes,
        }
    }

    /// The functions of a path's events that are not on the longest path, in order, without
    /// immediate repetitions; at most `names_max`.
    pub fn apart(&self, path: &DrawnPath, names_max: usize) -> String {
        let first: HashSet<u32> =
            self.paths.iter().take(1).flat_map(|first| &first.events).copied().collect();
        let apart = path.events.iter().filter(|event| !first.contains(event));
        let mut names: Vec<_> = apart.map(|&event| line(&self.events[event as usize].name)).collect();
        names.dedup();
        if names.len() > names_max {
            names.truncate(names_max);
            names.push("...".into());
        }
        names.join(" > ")
    }

    /// The graph in Graphviz's language, with the path in bold.
    pub fn dot(&self) -> String {
        let mut text = String::from("digraph events {\n  rankdir=TB; node [shape=box, fontsize=10];\n");
        let mut by_lane: Vec<Vec<usize>> = vec![Vec::new(); self.lanes.len()];
        self.events.iter().enumerate().for_each(|(place, event)| by_lane[event.lane].push(place));
        for (number, lane) in self.lanes.iter().enumerate() {
            let _ = writeln!(text, "  subgraph cluster_{number} {{ label=\"{}\";", quoted(lane));
            for &place in &by_lane[number] {
                let event = &self.events[place];
                let ms = (event.time_ns - self.start_ns) as f64 / 1e6;
                let style = if event.on_path { ", style=bold" } else { "" };
                let _ =
                    writeln!(text, "    e{place} [label=\"{}\\n{ms:.3} ms\"{style}];", quoted(&event.name));
            }
            text.push_str("  }\n");
        }
        for (place, event) in self.events.iter().enumerate() {
            for edge in &event.edges {
                let style = if edge.on_path { ", style=bold" } else { "" };
                let (from, ms) = (edge.from, edge.length_ns / 1e6);
                let _ = writeln!(text, "  e{from} -> e{place} [label=\"{ms:.3}\"{style}];");
            }
        }
        text + "}\n"
    }

    /// A self-contained HTML page, with time from left to right.
    pub fn page(&self) -> String {
        const LANE: f64 = 30.0;
        let length = (self.end_ns - self.start_ns).max(1) as f64;
        let mut drawn: Vec<usize> = (0..self.events.len()).collect();
        if drawn.len() > DRAWN_MAX {
            drawn.sort_by_key(|&place| (!self.events[place].on_path, place));
            drawn.truncate(DRAWN_MAX);
            drawn.sort_unstable();
        }
        let x = |event: &DrawnEvent| pc((event.time_ns - self.start_ns) as f64 / length * 98.0 + 1.0);
        let y = |event: &DrawnEvent| (event.lane as f64 + 0.75) * LANE;
        let is_drawn = |place: usize| drawn.binary_search(&place).is_ok();
        let colour = |on_path: bool| if on_path { "bad" } else { "soft" };
        let picture = html! {
            p {
                (count(self.events.len() as u64)) " events of " (count(self.lanes.len() as u64)) " threads. "
                @if drawn.len() < self.events.len() { " Only " (count(drawn.len() as u64)) " are drawn: those on the path, then the earliest." }
            }
            (legend(&[("fill-bad", "on the critical path"), ("fill-soft", "beside it")]))
            svg.clip height=(self.lanes.len() as f64 * LANE + 4.0) role="img" aria-label="Events by thread and time" {
                @for (number, lane) in self.lanes.iter().enumerate() {
                    line.line-grid x1="0" x2="100%" y1=((number as f64 + 0.75) * LANE) y2=((number as f64 + 0.75) * LANE) {}
                    text x="2" y=((number as f64 + 0.4) * LANE) { (shortened(&line(lane), 40)) }
                }
                @for &place in &drawn {
                    @let event = &self.events[place];
                    @for edge in event.edges.iter().filter(|edge| is_drawn(edge.from as usize)) {
                        @let from = &self.events[edge.from as usize];
                        line class=(format!("edge line-{}", colour(edge.on_path)))
                            x1=(x(from)) y1=(y(from)) x2=(x(event)) y2=(y(event)) {}
                    }
                }
                @for &place in &drawn {
                    @let event = &self.events[place];
                    circle class=(format!("fill-{}", colour(event.on_path))) cx=(x(event)) cy=(y(event)) r="3" {
                        title { (short(&event.name)) ", " (short(&event.service)) ", at " (millis((event.time_ns - self.start_ns) as f64)) " ms" }
                    }
                }
            }
        };
        let title = format!("astracer events: {}", self.trace_id);
        let about = format!("astracer events · trace {}", self.trace_id);
        let answer =
            format!("The critical path takes {} of {} ms", millis(self.path_ns as f64), millis(length));
        let page = Page {
            title: &title,
            about: &about,
            answer: &answer,
            picture,
            tone: Tone::Plain,
            next: &[],
            script: None,
        };
        page.html(&self.longest_paths())
    }

    /// Tables of the longest paths, and of the functions on the longest of them.
    fn longest_paths(&self) -> Markup {
        html! {
            @if !self.procedures.is_empty() {
                h2 { "Functions on the longest path" }
                p.note {
                    "Gain: how much sooner the execution would end if the function took no time. Slack: the part of its time that can "
                    "be saved before another path becomes the longest."
                }
                (table("Functions on the longest path", &html! {
                    tr { th { "function" } th { "on path ms" } th { "gain ms" } th { "slack ms" } }
                    @for row in &self.procedures {
                        tr {
                            td.name { (short(&row.name)) } td { (millis(row.on_path_ns)) } td { (millis(row.gain_ns)) }
                            td { (millis(row.slack_ns)) }
                        }
                    }
                }))
            }
            @if !self.paths.is_empty() {
                h2 { "Longest paths" }
                (table("Longest paths", &html! {
                    tr { th { "path" } th { "ms" } th { "behind ms" } th { "events" } th.left { "differs from the first in" } }
                    @for (number, path) in (1..).zip(&self.paths) {
                        tr {
                            td { (number) } td { (millis(path.length_ns)) } td { (millis(path.behind_ns)) }
                            td { (count(path.events.len() as u64)) } td.name { (shortened(&self.apart(path, APART_MAX), APART_LETTERS)) }
                        }
                    }
                }))
            }
        }
    }
}

fn millis(ns: f64) -> String {
    three(ns / 1e6)
}

/// Escapes text for a Graphviz string.
fn quoted(text: &str) -> String {
    escaped(text).replace('\\', "\\\\").replace('"', "\\\"")
}
