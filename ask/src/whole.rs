//! A query over all points of a recording: spans, log records and system calls in one graph.
//!
//! Bags travel along every edge, so a join sees whatever happened before a point, in any trace.

use std::collections::HashMap;

use astracer_causality::causes::Causes;
use astracer_causality::flow::Flow;
use astracer_causality::points;
use astracer_causality::spot::Spot;
use astracer_model::Format;
use astracer_model::event::EventKind;
use astracer_model::ids::TraceId;
use astracer_queries::{Bag, Builtin, Edge, Nest, Output, OutputOptions, Plan, Point, Value, Variable};
use astracer_recording::recording::{LogView, SpanView};
use astracer_recording::stop::Pulse;
use astracer_recording::{Recording, weight};
use rapidhash::fast::RandomState;

use crate::answer::{Answer, Question, trace_id, unknown_fields, unmatched};
use crate::nests::Nests;
use crate::point::{Columns, OfTrace, Recorded};

/// Fields of every log record and system call that has them, beside its own.
const FIELDS: [&str; 7] = ["message", "level", "bytes", "from", "to", "file", "child"];

/// Asks a query about all points. The recording must have been read with [`keep`](crate::keep) of
/// the same plan. `None` if `stop` returned true.
pub fn ask_all(
    causes: &Causes,
    recording: &Recording,
    question: Question<'_>,
    stop: impl Fn() -> bool,
) -> Option<Answer> {
    let plan = question.plan;
    let (mut unweighted, mut late) = (0, 0);
    let mut traces: HashMap<TraceId, OfTrace, RandomState> = HashMap::default();
    for trace in recording.traces() {
        let weight = match question.weights {
            false => Some(1.0),
            true => weight::adjusted_count(recording, trace),
        };
        unweighted += u64::from(weight.is_none());
        late += u64::from(weight == Some(0.0));
        // 0 is the number of points without a trace.
        let number = traces.len() as u32 + 1;
        traces.insert(trace.id(), OfTrace { id: trace_id(trace).as_str().into(), weight, number });
    }
    let points = Points {
        causes,
        recording,
        plan,
        nests: Nests::new(recording, plan),
        columns: Columns::new(recording, plan),
        logs: recording.logs().collect(),
        indices: causes.events.span_indices(),
        traces,
        nothing: OfTrace { id: Value::Null, weight: Some(1.0), number: 0 },
    };
    let (weights, traces) = (question.weights, question.traces);
    let options = OutputOptions { weights, traces, ..OutputOptions::default() };
    let mut walk = Walk { points: &points, output: Output::new(plan, options) };
    let mut pulse = Pulse::new(&stop);
    let mut cycles = 0;
    for stage in 0..plan.stages() {
        walk.output.begin_stage(stage);
        cycles = causes.walk(&mut walk, &mut pulse)?;
    }
    let mut output = walk.output;
    (0..recording.trace_count().max(1)).for_each(|_| output.end_trace());
    let mut names: Vec<&str> = causes.events.rows().iter().map(|row| points.name(row)).collect();
    names.sort_unstable();
    names.dedup();
    if stop() {
        return None;
    }
    Some(Answer {
        table: output.finish(),
        unweighted_traces: unweighted,
        late_traces: late,
        cycles,
        outside: causes.outside,
        clocks: causes.clocks(),
        unmatched: unmatched(plan, &names),
        unknown_fields: unknown_fields(recording, plan, &FIELDS),
    })
}

struct Points<'a> {
    causes: &'a Causes,
    recording: &'a Recording,
    plan: &'a Plan,
    nests: Nests,
    columns: Columns,
    logs: Vec<LogView<'a>>,
    /// The index in the recording of each span.
    indices: Vec<Option<u32>>,
    traces: HashMap<TraceId, OfTrace, RandomState>,
    nothing: OfTrace,
}

impl<'a> Points<'a> {
    /// The name by which a query finds a point: that of a span or its event, else the system call,
    /// else the log record's.
    fn name(&self, row: &points::Point) -> &'a str {
        let events = &self.causes.events;
        let of_call = events.calls().name(row.call);
        match row.kind {
            EventKind::SpanStart | EventKind::SpanEvent | EventKind::SpanEnd => events.text(row),
            EventKind::Log => {
                // A record that a traced call wrote is found by the call's name, too.
                let is_call_asked = !of_call.is_empty() && !self.plan.select(of_call, None).is_empty();
                let of_record = || self.logs.get(row.log as usize).map_or("log", |log| log.event());
                if is_call_asked { of_call } else { of_record() }
            }
            kind if of_call.is_empty() => kind.name(),
            _ => of_call,
        }
    }

    fn span(&self, row: &points::Point) -> Option<SpanView<'a>> {
        let index = self.indices.get(row.span as usize).copied().flatten()?;
        Some(self.recording.span(index))
    }

    fn trace(&self, row: &points::Point) -> &OfTrace {
        let span = self.causes.events.spans().get(row.span as usize);
        span.and_then(|span| self.traces.get(&span.trace)).unwrap_or(&self.nothing)
    }
}

struct Walk<'p, 'a> {
    points: &'p Points<'a>,
    output: Output,
}

impl Flow<u32> for Walk<'_, '_> {
    type Bag = Bag;

    fn begin(&mut self) -> Bag {
        self.output.begin()
    }

    fn lost(&mut self) -> Bag {
        self.output.lost()
    }

    fn split(&mut self, bag: &mut Bag) -> Bag {
        bag.split()
    }

    fn merge(&mut self, bag: &mut Bag, other: Bag) {
        bag.merge(other);
    }

    fn visit(&mut self, bag: &mut Bag, at: u32) {
        let points = self.points;
        let events = &points.causes.events;
        let row = &events.rows()[at as usize];
        let name = points.name(row);
        let lists = points.plan.select(name, None);
        let Some(span) = points.span(row).filter(|_| row.is_of_span()) else {
            if lists.wants(Edge::Event) {
                let point = Other { points, at, row, name };
                points.plan.visit(bag, lists, &point, &mut self.output);
            }
            return;
        };
        let (spot, event) = match row.kind {
            EventKind::SpanEnd => (Spot::End, None),
            EventKind::SpanEvent => {
                let number = events.event_number(row);
                (Spot::Event(number), span.event(number as usize))
            }
            _ if span.format() == Some(Format::XTraceJson) => (Spot::Report, None),
            _ => (Spot::Start, None),
        };
        let of = points.trace(row);
        let Points { columns, recording, causes, nests, .. } = points;
        let shifts = &causes.shifts;
        let point = Recorded { columns, recording, shifts, nests, span, spot, event, name, of };
        if lists.wants(point.edge()) {
            points.plan.visit(bag, lists, &point, &mut self.output);
        }
    }
}

/// A log record or a system call.
struct Other<'p, 'a> {
    points: &'p Points<'a>,
    at: u32,
    row: &'p points::Point,
    name: &'p str,
}

impl Other<'_, '_> {
    /// A field that records or calls have without an attribute of its name.
    fn stated(&self, name: &str) -> Option<Value> {
        let events = &self.points.causes.events;
        let channel = || events.channels().get(self.row.channel as usize);
        let log = || self.points.logs.get(self.row.log as usize);
        match name {
            "message" if self.row.kind == EventKind::Log => {
                let text = events.text(self.row);
                let (at, len) = log().map_or((0, text.len() as u32), |log| log.message_place());
                text.get(at as usize..at as usize + len as usize).map(Value::from)
            }
            "level" => {
                log().map(|log| log.severity().word()).filter(|word| !word.is_empty()).map(Value::from)
            }
            "bytes" if self.row.bytes > 0 => Some(self.row.bytes.into()),
            "from" => channel().map(|channel| channel.from.to_string().as_str().into()),
            "to" => channel().map(|channel| channel.to.to_string().as_str().into()),
            "file" => events.files().get(self.row.log_file as usize).map(|file| (&**file).into()),
            "child" => events.threads().get(self.row.child as usize).map(|thread| (&*thread.name).into()),
            _ => None,
        }
    }

    fn builtin(&self, builtin: Builtin) -> Value {
        let events = &self.points.causes.events;
        let process = events.process(self.row);
        let named = |name: &str| if name.is_empty() { Value::Null } else { name.into() };
        match builtin {
            Builtin::Host => match events.is_host_known(self.row) {
                true => named(events.host(self.row)),
                false => Value::Null,
            },
            Builtin::Time => self.points.causes.aligned_times[self.at as usize].into(),
            Builtin::ProcName | Builtin::ProcId => named(&process.name),
            Builtin::ThreadId => named(&events.thread(self.row).name),
            Builtin::Tracepoint | Builtin::Name => self.name.into(),
            Builtin::Target => {
                self.points.logs.get(self.row.log as usize).map_or(Value::Null, |_| self.name.into())
            }
            Builtin::Trace => self.points.trace(self.row).id.clone(),
            Builtin::Sampled => true.into(),
            Builtin::Span => {
                let span = events.spans().get(self.row.span as usize);
                span.map_or(Value::Null, |span| span.id.to_string().as_str().into())
            }
            Builtin::Kind | Builtin::Parent | Builtin::Duration | Builtin::Busy | Builtin::Status => {
                Value::Null
            }
        }
    }
}

impl Point for Other<'_, '_> {
    fn tracepoint(&self) -> &str {
        self.name
    }

    fn edge(&self) -> Edge {
        Edge::Event
    }

    fn variable(&self, variable: &Variable) -> Value {
        let points = self.points;
        let fields = points.logs.get(self.row.log as usize).and_then(|log| log.fields());
        let own = fields.and_then(|fields| points.columns.own(points.recording, fields, variable));
        own.cloned()
            .or_else(|| self.stated(variable.name()))
            .unwrap_or_else(|| variable.builtin().map_or(Value::Null, |builtin| self.builtin(builtin)))
    }

    fn trace(&self) -> Value {
        self.points.trace(self.row).id.clone()
    }

    fn nest(&self) -> Nest {
        let span = self.points.span(self.row);
        span.map_or_else(Nest::default, |span| self.points.nests.of(span, Edge::Event))
    }

    fn weight(&self) -> f64 {
        self.points.trace(self.row).weight.unwrap_or(1.0)
    }

    fn is_weight_known(&self) -> bool {
        self.points.trace(self.row).weight.is_some()
    }

    fn trace_number(&self) -> u32 {
        self.points.trace(self.row).number
    }
}
