//! A point of a request, as its caller describes it.

use std::ops::Range;

use crate::value::Value;

/// The part of a span that a point is, or an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// A span's start.
    Start,
    /// A span's end.
    End,
    /// An event.
    Event,
}

/// A variable that a point has even if none of its fields has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// `host`.
    Host,
    /// `time` or `timestamp`: nanoseconds since 1970.
    Time,
    /// `procId`.
    ProcId,
    /// `procName` or `service`.
    ProcName,
    /// `threadId`.
    ThreadId,
    /// `tracepoint`: the name by which a query finds the point.
    Tracepoint,
    /// `name` of the span or event.
    Name,
    /// `kind` of the span: `server`, `client`, `producer`, `consumer` or `internal`.
    Kind,
    /// `span`: the id of the span.
    Span,
    /// `parent`: the id of the span's parent.
    Parent,
    /// `target`: the module or instrumentation scope.
    Target,
    /// `trace`: the id of the trace.
    Trace,
    /// `sampled`.
    Sampled,
    /// `duration` in nanoseconds, at a span's end.
    Duration,
    /// `busy` nanoseconds, at a span's end.
    Busy,
    /// `status`, at a span's end.
    Status,
}

/// The names of the built-in variables.
pub(crate) const BUILTINS: [(&str, Builtin); 18] = [
    ("host", Builtin::Host),
    ("time", Builtin::Time),
    ("timestamp", Builtin::Time),
    ("procId", Builtin::ProcId),
    ("procName", Builtin::ProcName),
    ("service", Builtin::ProcName),
    ("threadId", Builtin::ThreadId),
    ("tracepoint", Builtin::Tracepoint),
    ("name", Builtin::Name),
    ("kind", Builtin::Kind),
    ("span", Builtin::Span),
    ("parent", Builtin::Parent),
    ("target", Builtin::Target),
    ("trace", Builtin::Trace),
    ("sampled", Builtin::Sampled),
    ("duration", Builtin::Duration),
    ("busy", Builtin::Busy),
    ("status", Builtin::Status),
];

/// A variable that advice observes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    index: usize,
    name: Box<str>,
    builtin: Option<Builtin>,
}

impl Variable {
    pub(crate) fn new(index: usize, name: &str) -> Self {
        let builtin = BUILTINS.iter().find(|(known, _)| *known == name).map(|&(_, builtin)| builtin);
        Variable { index, name: name.into(), builtin }
    }

    /// The position in [`Plan::variables`](crate::Plan::variables).
    pub fn index(&self) -> usize {
        self.index
    }

    /// The name as the query writes it, for example `http.route`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The built-in variable of this name, which a point uses if none of its fields has the name.
    pub fn builtin(&self) -> Option<Builtin> {
        self.builtin
    }
}

/// The place of a point in the tree of spans, whose spans have numbers in preorder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nest {
    /// The span that the point is in: the parent of a span's start or end, the span of an event.
    pub within: Option<u32>,
    /// The span whose start or end the point is, and all below it. `None` for other points, which
    /// have nothing below them.
    pub spans: Option<Range<u32>>,
}

/// A point of a request at which advice runs.
pub trait Point {
    /// The name of the tracepoint.
    fn tracepoint(&self) -> &str;

    /// A span's start or end, or an event.
    fn edge(&self) -> Edge;

    /// The value of a variable: the point's own field of the name, else the built-in one.
    fn variable(&self, variable: &Variable) -> Value;

    /// The id of the trace. Only an output that names traces asks for it.
    fn trace(&self) -> Value {
        Value::Null
    }

    /// The place in the tree of spans. Only a plan with more than one [stage](crate::Plan::stages)
    /// asks for it.
    fn nest(&self) -> Nest {
        Nest::default()
    }

    /// The number of traces that this one stands for: 1/p if it was sampled with probability p, 0
    /// if it was kept late. Only an output with weights asks for it.
    fn weight(&self) -> f64 {
        1.0
    }

    /// Whether the weight is known. If not, the trace stands for itself at least.
    fn is_weight_known(&self) -> bool {
        true
    }

    /// A number of the trace among those that [`Output::end_trace`](crate::Output::end_trace) ends
    /// together: each was sampled by a number of its own.
    fn trace_number(&self) -> u32 {
        0
    }
}
