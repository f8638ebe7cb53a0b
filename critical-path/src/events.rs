//! Event graphs of recorded traces: X-Trace reports, in which each event is an instant with edges
//! from the events that it followed.
//!
//! The time before an event belongs to its latest parent, for which the event was waiting. If
//! clocks disagree, an event can lie before its parents; that time counts as zero.

use std::collections::HashMap;

use astracer_causality::rules::{All, Options, TraceGraph};
use astracer_causality::shifts::Shifts;
use astracer_causality::spot::Spot;
use astracer_recording::intern::Symbol;
use astracer_recording::recording::TraceView;
use astracer_recording::stop::Pulse;

use crate::graph::{Edge, Graph, GraphPath, ProcedureSlack};
use crate::path::{Amount, CriticalPath, Segment};
use crate::rule::Rule;
use crate::tree::NONE;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time of the event, ns since the epoch.
    pub time: u64,
    /// The event's name.
    pub name: Symbol,
    /// The service.
    pub service: Symbol,
    /// The span's number in the recording.
    pub index: u32,
}

/// The event graph of one trace.
#[derive(Clone, Debug, Default)]
pub struct EventGraph {
    events: Vec<Event>,
    graph: Graph,
    /// The latest parent of each event, among equals the first written; [`NONE`] for an event
    /// without parents.
    latest: Vec<u32>,
    /// The number of parents that are not in the trace.
    missing: u64,
    /// The points of spans that the events are, or junctions; empty if each span is an event.
    spots: Vec<Option<Spot>>,
    /// The event at which the execution ended, if it is not the latest.
    sink: Option<u32>,
}

impl EventGraph {
    /// The starts and ends of a trace's spans, their events and the junctions between calls as
    /// events, with the edges of causality. The execution ends with its root.
    pub fn of_points(trace: TraceView<'_>) -> Self {
        let mut points = TraceGraph::new(Options::default());
        if !points.read(trace, &Shifts::none(), &All, &mut Pulse::never()) {
            return Self::read(trace);
        }
        let spans = points.spans();
        let event = |(time, span, _): (u64, u32, Option<Spot>)| {
            let span = spans[span as usize];
            let (name, service) = (span.name_symbol(), span.service_symbol());
            Event { time, name, service, index: span.index() }
        };
        let edges = points.edges().iter().map(|&(from, to, _)| Edge { from, to });
        let mut graph = Self::new(points.nodes().map(event).collect(), edges.collect(), 0);
        graph.spots = points.nodes().map(|(.., spot)| spot).collect();
        let root = trace.root().index();
        let is_end = |(event, spot): (&Event, &Option<Spot>)| event.index == root && *spot == Some(Spot::End);
        let end = graph.events.iter().zip(&graph.spots).position(is_end);
        graph.sink = end.map(|end| end as u32);
        graph
    }

    /// The point of a span that an event is: `None` for a junction, and if each span is an event.
    pub fn spot(&self, event: u32) -> Option<Spot> {
        self.spots.get(event as usize).copied().flatten()
    }

    /// True if the events are points of spans.
    pub fn has_points(&self) -> bool {
        !self.spots.is_empty()
    }

    /// Reads a trace whose spans are events. Spans with a length count at their starts.
    pub fn read(trace: TraceView<'_>) -> Self {
        let events: Vec<Event> = trace
            .spans()
            .map(|span| Event {
                time: span.start().0,
                name: span.name_symbol(),
                service: span.service_symbol(),
                index: span.index(),
            })
            .collect();
        let mut by_id: Vec<_> = trace.spans().map(|span| span.id()).zip(0u32..).collect();
        by_id.sort_unstable();
        let (mut edges, mut missing) = (Vec::new(), 0);
        for (to, span) in (0u32..).zip(trace.spans()) {
            for parent in span.parent_ids() {
                let at = by_id.partition_point(|&(id, _)| id < parent);
                match by_id.get(at).filter(|&&(id, _)| id == parent) {
                    Some(&(_, from)) if from != to => edges.push(Edge { from, to }),
                    Some(_) => {}
                    None => missing += 1,
                }
            }
        }
        Self::new(events, edges, missing)
    }

    /// A graph of events, in the order of the input, and edges between them. There must be at least
    /// one event.
    pub fn new(events: Vec<Event>, edges: Vec<Edge>, missing: u64) -> Self {
        let time = |event: u32| events[event as usize].time;
        let first = events.iter().map(|event| event.time).min().unwrap_or(0);
        let graph = Graph::new(events.len(), edges, |event| (time(event), event));
        let graph = graph.with_starts(|event| (time(event) - first) as f64);
        let latest = (0..events.len() as u32).map(|event| {
            let parents = graph.edges_into(event).iter().map(|&edge| graph.edges()[edge as usize].from);
            parents
                .reduce(|latest, next| if time(next) > time(latest) { next } else { latest })
                .unwrap_or(NONE)
        });
        let latest = latest.collect();
        Self { events, graph, latest, missing, spots: Vec::new(), sink: None }
    }

    /// The events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The graph of the edges between the events.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The number of parents that are not in the trace.
    pub fn missing_parents(&self) -> u64 {
        self.missing
    }

    /// The event at which the execution ended: the latest, and among equals the last in the order
    /// of the trace.
    pub fn last_event(&self) -> u32 {
        let latest = (0u32..).zip(&self.events).max_by_key(|&(at, event)| (event.time, at));
        self.sink.unwrap_or_else(|| latest.map_or(0, |(at, _)| at))
    }

    /// The latest parent of an event, among equals the first written.
    pub fn latest_parent(&self, event: u32) -> Option<u32> {
        Some(self.latest[event as usize]).filter(|&parent| parent != NONE)
    }

    /// The lengths of the edges: the time from the latest parent to the event, the same for each
    /// edge into an event.
    pub fn lengths(&self) -> Vec<f64> {
        let time = |event: u32| self.events[event as usize].time;
        let waited: Vec<f64> = (0..self.events.len() as u32)
            .map(|event| {
                let parent = self.latest_parent(event);
                parent.map_or(0, |parent| time(event).saturating_sub(time(parent))) as f64
            })
            .collect();
        self.graph.edges().iter().map(|edge| waited[edge.to as usize]).collect()
    }

    /// The events of the critical path, first one first. By [`Rule::Events`], each is the latest
    /// parent of the next. By any other rule it is the longest path, and among equally long ones
    /// the path through the latest parents.
    pub fn path(&self, rule: Rule) -> Vec<u32> {
        let mut at = self.last_event();
        let mut path = vec![at];
        if rule == Rule::Events {
            while let Some(parent) = self.latest_parent(at) {
                path.push(parent);
                at = parent;
            }
        } else {
            let edges =
                self.graph.longest_path(&self.lengths(), at, |edge| self.events[edge.from as usize].time);
            path.extend(edges.iter().map(|&edge| self.graph.edges()[edge as usize].from));
        }
        path.reverse();
        path
    }

    /// Writes the path as segments, one per event, each reaching to the next event; the last has
    /// length zero. If a time goes back, as between clocks that disagree, the segment has length
    /// zero.
    pub fn find(&self, rule: Rule, path: &mut CriticalPath) {
        path.clear();
        let events = self.path(rule);
        let time = |event: u32| self.events[event as usize].time;
        let (Some(&first), Some(&last)) = (events.first(), events.last()) else { return };
        let end = time(last).max(time(first));
        let mut start = time(first);
        for (place, &node) in events.iter().enumerate() {
            let until = events.get(place + 1).map_or(end, |&next| time(next).clamp(start, end));
            path.segments.push(Segment { node, start, end: until });
            start = until;
        }
        self.give_and_take(path);
    }

    /// Computes drag and slack. The time from an event of the path to the next can shrink until the
    /// longest path that avoids the next event is as long. An event beside the path delays the
    /// events whose latest parent it is; the time after it can grow until a path through one of
    /// them is as long as the critical path.
    fn give_and_take(&self, path: &mut CriticalPath) {
        let (lengths, sink) = (self.lengths(), self.last_event());
        let (to, from) = (self.graph.longest_to(&lengths), self.graph.longest_from(&lengths, sink));
        let avoiding = self.graph.longest_avoiding(&lengths, sink);
        let longest = to[sink as usize];
        let nanos = |length: f64| length.max(0.0).round() as u64;
        let mut on_path = vec![false; self.events.len()];
        path.segments.iter().for_each(|segment| on_path[segment.node as usize] = true);
        for (place, segment) in path.segments.iter().enumerate() {
            let next = path.segments.get(place + 1).map(|next| next.node);
            let room = next.map_or(0, |next| nanos(longest - avoiding[next as usize]));
            path.drag.push(Amount { node: segment.node, ns: segment.length().min(room) });
        }
        let mut slack: Vec<Option<u64>> = vec![None; self.events.len()];
        for event in (0..self.events.len()).filter(|&event| from[event].is_finite()) {
            let parent = self.latest[event] as usize;
            if let Some(own) = slack.get_mut(parent).filter(|_| !on_path[parent]) {
                let room = nanos(longest - to[event] - from[event]);
                *own = Some(own.map_or(room, |least| least.min(room)));
            }
        }
        let amounts = (0u32..).zip(slack).filter_map(|(node, ns)| Some(Amount { node, ns: ns? }));
        amounts.for_each(|amount| path.slack.push(amount));
    }

    /// The effect of each function's time on the longest path. Lists at most `count` functions that
    /// are on the path, those with the most time there first; all others have no effect. The time
    /// after an event belongs to the event's function.
    pub fn procedures(&self, count: usize) -> Vec<(Symbol, ProcedureSlack)> {
        let (lengths, sink) = (self.lengths(), self.last_event());
        // The function to which the time of an edge belongs.
        let of_edge = |edge: u32| {
            let edge = self.graph.edges()[edge as usize];
            self.events[self.latest_parent(edge.to).unwrap_or(edge.from) as usize].name
        };
        let mut times: HashMap<Symbol, f64> = HashMap::new();
        for edge in self.graph.longest_path(&lengths, sink, |edge| self.events[edge.from as usize].time) {
            *times.entry(of_edge(edge)).or_default() += lengths[edge as usize];
        }
        let mut functions: Vec<(Symbol, f64)> = times.into_iter().collect();
        functions.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        functions.truncate(count);
        let procedure = |name: Symbol| self.graph.procedure(&lengths, sink, |edge| of_edge(edge) == name);
        functions.into_iter().map(|(name, _)| (name, procedure(name))).collect()
    }

    /// The time from the graph's first event to the beginning of a path that was found here, ns.
    pub(crate) fn before(&self, path: &CriticalPath) -> f64 {
        path.segments.iter().next().map_or(0.0, |first| self.graph.start(first.node))
    }

    /// The `count` longest paths to the last event, longest first. Lengths are in ns from the
    /// graph's first event.
    pub fn top_paths(&self, count: usize) -> Vec<GraphPath> {
        self.graph.top_paths(&self.lengths(), self.last_event(), count)
    }

    /// The new length of the execution from its first event, in ns, if the time after each event is
    /// multiplied by `factor` of the event's name. It is that of the longest path, where the time
    /// before an event belongs to its latest parent. Events without parents keep their time.
    pub fn retime(&self, factor: impl Fn(Symbol) -> f64) -> f64 {
        let mut lengths = self.lengths();
        for (edge, length) in self.graph.edges().iter().zip(&mut lengths) {
            let named = self.latest_parent(edge.to).unwrap_or(edge.from);
            *length *= factor(self.events[named as usize].name);
        }
        self.graph.longest_to(&lengths)[self.last_event() as usize]
    }
}
