//! Event graphs of recorded traces: X-Trace reports, each an instant with edges from the events that it followed.
//!
//! The time before an event belongs to the parent that came last: until then the event was waiting. Where clocks
//! disagree an event can lie before its parents; that time counts as none.

use astracer_recording::intern::Symbol;
use astracer_recording::recording::TraceView;

use crate::graph::{Edge, Graph};
use crate::path::{CriticalPath, Segment};
use crate::rule::Rule;
use crate::tree::NONE;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened, ns since the epoch.
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
    /// The parent that came last of each event, of equal ones the first written; [`NONE`] if it has none.
    latest: Vec<u32>,
    /// Parents that are not in the trace.
    missing: u64,
}

impl EventGraph {
    /// Reads a trace whose spans are events. Spans that have a length count at their starts.
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

    /// A graph of events in the order of the input, and edges between them; at least one event.
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
        Self { events, graph, latest, missing }
    }

    /// The events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The edges between them.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Parents that the trace does not hold.
    pub fn missing_parents(&self) -> u64 {
        self.missing
    }

    /// The event at which the execution ended: the latest, and of equal ones the last in the input.
    pub fn last_event(&self) -> u32 {
        let latest = (0u32..).zip(&self.events).max_by_key(|(_, event)| (event.time, event.index));
        latest.map_or(0, |(at, _)| at)
    }

    /// The parent that came last, of equal ones the first written.
    pub fn latest_parent(&self, event: u32) -> Option<u32> {
        Some(self.latest[event as usize]).filter(|&parent| parent != NONE)
    }

    /// The lengths of the edges: from the latest parent's time to the event's, the same for each edge into an event.
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

    /// The events of the critical path, first one first. By [`Rule::Events`] each is the latest parent of the next; by
    /// any other rule it is the longest path, and of equally long ones that of the latest parents.
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

    /// Writes the path as segments, one for each of its events, which reaches to the next; the last has no length.
    /// Times that go back, as between clocks that disagree, stand still instead.
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
        let nanos = |segment: &Segment| crate::path::Amount { node: segment.node, ns: segment.length() };
        // No sibling takes the place of an event: the whole time until the next one can go.
        path.drag.extend(path.segments.iter().map(nanos));
    }

    /// The new length of the execution, ns, with `factor` for the time after each event of a name: the longest path, in
    /// which the time before an event belongs to its latest parent.
    pub fn retime(&self, factor: impl Fn(Symbol) -> f64) -> f64 {
        let mut lengths = self.lengths();
        for (edge, length) in self.graph.edges().iter().zip(&mut lengths) {
            let named = self.latest_parent(edge.to).unwrap_or(edge.from);
            *length *= factor(self.events[named as usize].name);
        }
        self.graph.longest_to(&lengths)[self.last_event() as usize]
    }
}
