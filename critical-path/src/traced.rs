//! From a recording to the critical path of each of its traces, one after another.

use astracer_causality::shifts::Shifts;
use astracer_model::Format;
use astracer_recording::intern::Symbol;
use astracer_recording::recording::{Recording, TraceView};
use astracer_recording::stop::Pulse;

use crate::events::EventGraph;
use crate::path::CriticalPath;
use crate::place::Skew;
use crate::retime::Retimer;
use crate::rule::{Rule, SpanPaths};
use crate::tree::{NO_HOST, Tree};

/// Options for finding paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Method {
    /// The rule by which paths are found.
    pub rule: Rule,
    /// The treatment of clock skew; used only by the rule `last`.
    pub skew: Skew,
}

/// The spans of a trace as its path refers to them: a tree of spans, or a graph of events.
#[derive(Clone, Copy, Debug)]
pub enum Shape<'a> {
    /// Spans below their parents.
    Tree(&'a Tree),
    /// Events, which may have several parents.
    Events(&'a EventGraph),
}

/// One trace with its critical path.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// The trace.
    pub trace: TraceView<'a>,
    /// The trace's spans, by the numbers that the path uses.
    pub shape: Shape<'a>,
    /// The trace's path.
    pub path: &'a CriticalPath,
}

impl Traced<'_> {
    /// The function of a node.
    pub fn name(&self, node: u32) -> Symbol {
        match self.shape {
            Shape::Tree(tree) => tree.nodes()[node as usize].name,
            Shape::Events(graph) => graph.events()[node as usize].name,
        }
    }

    /// The service of a node.
    pub fn service(&self, node: u32) -> Symbol {
        match self.shape {
            Shape::Tree(tree) => tree.nodes()[node as usize].service,
            Shape::Events(graph) => graph.events()[node as usize].service,
        }
    }

    /// The span's number in the recording.
    pub fn index(&self, node: u32) -> u32 {
        match self.shape {
            Shape::Tree(tree) => tree.nodes()[node as usize].order,
            Shape::Events(graph) => graph.events()[node as usize].index,
        }
    }

    /// The parent of a node in its call path. `None` for roots and for events.
    pub fn parent(&self, node: u32) -> Option<u32> {
        match self.shape {
            Shape::Tree(tree) => {
                Some(tree.nodes()[node as usize].parent).filter(|&parent| parent != crate::tree::NONE)
            }
            Shape::Events(_) => None,
        }
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        match self.shape {
            Shape::Tree(tree) => tree.nodes().len(),
            Shape::Events(graph) => graph.events().len(),
        }
    }
}

/// Finds the paths of a recording's traces.
#[derive(Clone, Debug, Default)]
pub struct Analyser {
    method: Method,
    tree: Tree,
    events: EventGraph,
    paths: SpanPaths,
    path: CriticalPath,
    retimer: Retimer,
    /// The corrections of clocks, for the rule `last`.
    shifts: Shifts,
    /// True if the latest trace was a graph of events.
    is_events: bool,
}

impl Analyser {
    /// An analyser that uses this method.
    pub fn new(method: Method) -> Self {
        Self { method, ..Self::default() }
    }

    /// Corrects clocks before spans are fitted into their parents; only the rule `last` does.
    #[must_use]
    pub fn with_shifts(mut self, shifts: Shifts) -> Self {
        if self.method.rule == Rule::Last && self.method.skew == Skew::Shift {
            self.shifts = shifts;
        }
        self
    }

    /// Finds the path of one trace of the recording.
    pub fn trace<'a>(&'a mut self, recording: &'a Recording, trace: TraceView<'a>) -> Traced<'a> {
        self.find(recording, trace, &mut Pulse::never());
        self.traced(trace)
    }

    /// As [`Analyser::trace`]; `None` if the pulse stopped the work.
    pub fn trace_unless_stopped<'a>(
        &'a mut self,
        recording: &'a Recording,
        trace: TraceView<'a>,
        pulse: &mut Pulse<'_>,
    ) -> Option<Traced<'a>> {
        self.find(recording, trace, pulse).then(|| self.traced(trace))
    }

    fn traced<'a>(&'a self, trace: TraceView<'a>) -> Traced<'a> {
        let shape = if self.is_events { Shape::Events(&self.events) } else { Shape::Tree(&self.tree) };
        Traced { trace, shape, path: &self.path }
    }

    fn find(&mut self, recording: &Recording, trace: TraceView<'_>, pulse: &mut Pulse<'_>) -> bool {
        let rule = self.method.rule;
        self.is_events = rule == Rule::Events || (rule == Rule::Last && is_event_graph(trace));
        if self.is_events {
            self.events = EventGraph::read(trace);
            self.events.find(self.method.rule, &mut self.path);
            return !pulse.stopped_after(trace.span_count());
        }
        // Labels are read only by CRISP's rule, as the hosts of spans. A label set without values
        // names no host.
        let host = |label| {
            if recording.label_values(label).any(|value| value.is_some()) { label } else { NO_HOST }
        };
        self.tree.read(trace, host, &self.shifts, pulse)
            && self.paths.find(&self.tree, self.method.rule, self.method.skew, &mut self.path, pulse)
    }

    /// The length of the latest trace, and the length it would have if each function took `factor`
    /// times as long, in ns. Spans are fitted into their parents as in the rule `last`, whatever
    /// the rule of the path.
    pub fn retime(&mut self, factor: impl Fn(Symbol) -> f64) -> (u64, f64) {
        if self.is_events {
            // The path may begin later than the graph's first event. Its length is counted from its
            // own beginning.
            let before = self.events.before(&self.path);
            let length = self.events.retime(|_| 1.0) - before;
            return (length.round() as u64, self.events.retime(factor) - before);
        }
        if self.method.rule != Rule::Last {
            self.paths.place(&self.tree, self.method.skew, &mut Pulse::never());
        }
        let length = self.tree.nodes().first().map_or(0, |root| root.length());
        (length, self.retimer.retime(&self.tree, self.paths.placed(), factor))
    }
}

/// True if the trace was recorded as events.
fn is_event_graph(trace: TraceView<'_>) -> bool {
    trace.root().format() == Some(Format::XTraceJson)
}
