//! A query over a recording: each trace with bags of its own, traces in parallel.

use std::collections::HashMap;

use astracer_model::Format;
use astracer_queries::{Bag, Builtin, Edge, Lists, Output, OutputOptions, Plan, Table, Value};
use astracer_recording::Recording;
use astracer_recording::intern::{Interner, Symbol};
use astracer_recording::recording::{CLASS, EventView, SpanView, TraceView};
use astracer_recording::stop::Pulse;
use rapidhash::fast::RandomState;
use rayon::prelude::*;

use super::kept::LINE;
use super::nests::Nests;
use super::point::{Columns, OfTrace, Recorded};
use astracer_causality::flow::Flow;
use astracer_causality::rules::{Asked, Options, TraceGraph};
use astracer_causality::shifts::{self, Estimate, Shifts, SpanClock};
use astracer_causality::spot::{At, Spot};
use astracer_recording::weight;

/// Traces that one thread takes at a time.
const TRACES_AT_ONCE: usize = 64;

/// A query, and the way in which it is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    /// The query.
    pub plan: &'q Plan,
    /// The way in which causality is derived from spans.
    pub rules: Options,
    /// Estimate: each trace counts by its weight (`ot=th`), if tracestates were kept.
    pub weights: bool,
    /// Name traces behind each row.
    pub traces: bool,
}

/// The answer to a query.
#[derive(Debug)]
#[non_exhaustive]
pub struct Answer {
    /// The rows.
    pub table: Table,
    /// With weights: the traces without a weight, each of which counts once.
    pub unweighted_traces: u64,
    /// With weights: the traces kept late. They have weight 0, because others count for them.
    pub late_traces: u64,
    /// Cycles in the order of points, each opened at its earliest point.
    pub cycles: u64,
    /// Calls to another host whose span lies outside its caller's by corrected clocks, although the
    /// caller waited: what they did is not before what the caller did next. Only joins look.
    pub outside: u64,
    /// The clocks that were compared with another; empty without a join.
    pub clocks: Vec<SpanClock>,
    /// Tracepoints of the query that match no name in the recording, each with a name that was
    /// perhaps meant.
    pub unmatched: Vec<(String, Option<String>)>,
    /// Variables of the query that are neither built in nor a field of any point.
    pub unknown_fields: Vec<String>,
}

/// Asks a query. The recording must have been read with [`keep`](super::keep) of the same plan.
/// `None` if `stop` returned true.
pub fn ask(recording: &Recording, question: Question<'_>, stop: impl Fn() -> bool + Sync) -> Option<Answer> {
    let found = match question.plan.joins() {
        true => shifts::estimate(recording, &mut Pulse::new(&stop))?,
        false => Estimate::default(),
    };
    let asker = Asker::new(recording, question, found.shifts);
    let count = recording.trace_count();
    let ranges: Vec<_> =
        (0..count).step_by(TRACES_AT_ONCE).map(|at| at..(at + TRACES_AT_ONCE).min(count)).collect();
    let new = || Some(Part::new(question));
    let parts = ranges.into_par_iter().fold(new, |part, range| {
        let mut part = part?;
        let mut pulse = Pulse::new(&stop);
        for trace in range.filter_map(|position| recording.trace(position)) {
            asker.trace(trace, &mut part, &mut pulse)?;
        }
        Some(part)
    });
    let part = parts.reduce(new, |one, other| Some(one?.and(other?)))?;
    if stop() {
        return None;
    }
    Some(Answer {
        table: part.output.finish(),
        unweighted_traces: part.unweighted,
        late_traces: part.late,
        cycles: part.cycles,
        outside: part.outside + part.graph.outside(),
        clocks: found.clocks,
        unmatched: asker.unmatched(),
        unknown_fields: unknown_fields(recording, question.plan, &[]),
    })
}

/// The answer that one thread has so far.
struct Part<'r> {
    graph: TraceGraph<'r>,
    /// The spans of the current order.
    spans: Vec<SpanView<'r>>,
    output: Output,
    unweighted: u64,
    late: u64,
    cycles: u64,
    /// The calls outside their callers that merged parts have found.
    outside: u64,
}

impl Part<'_> {
    fn new(question: Question<'_>) -> Self {
        let (weights, traces) = (question.weights, question.traces);
        let options = OutputOptions { weights, traces, ..OutputOptions::default() };
        Self {
            graph: TraceGraph::new(question.rules),
            spans: Vec::new(),
            output: Output::new(question.plan, options),
            unweighted: 0,
            late: 0,
            cycles: 0,
            outside: 0,
        }
    }

    fn and(mut self, other: Self) -> Self {
        self.output.merge(other.output);
        self.unweighted += other.unweighted;
        self.late += other.late;
        self.cycles += other.cycles;
        self.outside += other.outside + other.graph.outside();
        self
    }
}

/// A query's needs of a recording: the advice lists of each name, and the values of fields.
struct Asker<'q, 'r> {
    recording: &'r Recording,
    question: Question<'q>,
    shifts: Shifts,
    nests: Nests,
    columns: Columns,
    /// The lists of each name of a span, and of an event.
    of_spans: Vec<Lists>,
    of_events: Vec<Lists>,
    /// Whether an event may be visited.
    any_event: bool,
    /// Whether a variable is the trace's id.
    names_trace: bool,
    /// The place of a report's class among fields, and each class with its lists.
    class: Option<usize>,
    classes: HashMap<Symbol, (String, Lists), RandomState>,
    /// The places of [`LINE`], if the query names lines.
    lines: Option<[Option<usize>; 4]>,
}

impl<'q, 'r> Asker<'q, 'r> {
    fn new(recording: &'r Recording, question: Question<'q>, shifts: Shifts) -> Self {
        let plan = question.plan;
        let select = |names: &Interner| names.names().map(|name| plan.select(name, None)).collect();
        let place = |name: &str| recording.field_keys().position(|key| key == name);
        let of_events: Vec<Lists> = select(recording.event_names());
        let lines = plan.names_lines().then(|| LINE.map(place));
        let mut asker = Self {
            recording,
            question,
            shifts,
            nests: Nests::new(recording, plan),
            columns: Columns::new(recording, plan),
            of_spans: select(recording.names()),
            any_event: !of_events.is_empty()
                && (lines.is_some() || of_events.iter().any(|lists| lists.wants(Edge::Event))),
            of_events,
            names_trace: question.traces
                || plan.variables().iter().any(|known| known.builtin() == Some(Builtin::Trace)),
            class: place(CLASS),
            classes: HashMap::default(),
            lines,
        };
        asker.find_classes();
        asker
    }

    fn find_classes(&mut self) {
        let is_report = |trace: &TraceView<'_>| trace.root().format() == Some(Format::XTraceJson);
        for span in self.recording.traces().filter(is_report).flat_map(TraceView::spans) {
            let Some(class) = self.class_of(span) else { continue };
            if !self.classes.contains_key(&class)
                && let Some(name) = self.columns.values.get(class.index())
            {
                let name = name.to_string();
                let lists = self.question.plan.select(&name, None);
                self.classes.insert(class, (name, lists));
            }
        }
    }

    fn class_of(&self, span: SpanView<'_>) -> Option<Symbol> {
        if span.format() != Some(Format::XTraceJson) {
            return None;
        }
        self.recording.field_symbols(span.fields()?).get(self.class?).copied().flatten()
    }

    /// The name by which a query finds a span, and its advice lists.
    fn named(&self, span: SpanView<'r>) -> (&str, Lists) {
        let class = self.class_of(span).and_then(|class| self.classes.get(&class));
        let (name, lists) = match class {
            Some((name, lists)) => (&**name, *lists),
            None => (span.name(), self.of_spans[span.name_symbol().index()]),
        };
        (name, span.fields().and_then(|fields| self.by_line(name, fields)).unwrap_or(lists))
    }

    fn named_event(&self, event: &EventView<'r>) -> Lists {
        let by_name = || self.of_events[event.name_symbol.index()];
        self.by_line(event.name, event.fields).unwrap_or_else(by_name)
    }

    /// The lists of a point whose fields state its line of source code, if the query names lines.
    fn by_line(&self, name: &str, fields: Symbol) -> Option<Lists> {
        let places = self.lines?;
        let symbols = self.recording.field_symbols(fields);
        let value = |at: Option<usize>| self.columns.values.get(symbols.get(at?).copied().flatten()?.index());
        let [path, old_path, number, old_number] = places.map(value);
        let Value::Text(path) = path.or(old_path)? else { return None };
        let number = match number.or(old_number)? {
            Value::Int(number) => u32::try_from(*number).ok()?,
            Value::Text(number) => number.parse().ok()?,
            _ => return None,
        };
        Some(self.question.plan.select(name, Some((path, number))))
    }

    fn trace(&self, trace: TraceView<'r>, part: &mut Part<'r>, pulse: &mut Pulse<'_>) -> Option<()> {
        let weight = match self.question.weights {
            false => Some(1.0),
            true => weight::adjusted_count(self.recording, trace),
        };
        part.unweighted += u64::from(weight.is_none());
        part.late += u64::from(weight == Some(0.0));
        let id = if self.names_trace { trace_id(trace).as_str().into() } else { Value::Null };
        let of = OfTrace { id, weight, number: 0 };
        if self.question.plan.joins() {
            if part.graph.read(trace, &self.shifts, self, pulse) {
                part.spans.clear();
                part.spans.extend_from_slice(part.graph.spans());
                let (spans, output) = (&part.spans, &mut part.output);
                let mut run = Run { asker: self, spans, output, of: &of };
                for stage in 0..self.question.plan.stages() {
                    run.output.begin_stage(stage);
                    let cycles = part.graph.walk(&mut run, pulse)?;
                    part.cycles += if stage == 0 { cycles } else { 0 };
                }
            }
        } else {
            let output = &mut part.output;
            let mut run = Run { asker: self, spans: &[], output, of: &of };
            for stage in 0..self.question.plan.stages() {
                run.output.begin_stage(stage);
                let mut bag = run.output.begin();
                for span in trace.spans() {
                    run.visit_all(&mut bag, span);
                    if pulse.stopped() {
                        return None;
                    }
                }
            }
        }
        if pulse.stopped() {
            return None;
        }
        part.output.end_trace();
        Some(())
    }

    fn unmatched(&self) -> Vec<(String, Option<String>)> {
        let mut names: Vec<&str> =
            self.recording.names().names().chain(self.recording.event_names().names()).collect();
        names.extend(self.classes.values().map(|(name, _)| &**name));
        names.sort_unstable();
        names.dedup();
        unmatched(self.question.plan, &names)
    }
}

/// The tracepoints of a query that match none of these names, each with a name that was perhaps
/// meant.
pub(crate) fn unmatched(plan: &Plan, names: &[&str]) -> Vec<(String, Option<String>)> {
    let unmatched = plan.unmatched(names).into_iter();
    unmatched.map(|(point, near)| (point, near.map(str::to_owned))).collect()
}

/// The variables of a query that are neither built in, nor among `others`, nor a field of any
/// point.
pub(crate) fn unknown_fields(recording: &Recording, plan: &Plan, others: &[&str]) -> Vec<String> {
    let found = recording.fields_found();
    let found = recording.field_keys().zip(found).filter(|(_, found)| *found).map(|(key, _)| key);
    let found: Vec<&str> = found.chain(others.iter().copied()).collect();
    let variables = plan.variables().iter().filter(|known| known.builtin().is_none());
    variables.map(|known| known.name()).filter(|name| !found.contains(name)).map(str::to_owned).collect()
}

/// A trace's id with as many digits as it was probably written with.
pub(crate) fn trace_id(trace: TraceView<'_>) -> String {
    let id = trace.id();
    u64::try_from(id.0).map_or_else(|_| id.to_string(), |id| format!("{id:016x}"))
}

impl Asked for Asker<'_, '_> {
    fn span(&self, span: SpanView<'_>) -> bool {
        // A view of the same recording, by its index.
        let span = self.recording.span(span.index());
        !self.named(span).1.is_empty()
            || self.any_event && span.events().any(|event| self.named_event(&event).wants(Edge::Event))
    }

    fn point(&self, span: SpanView<'_>, spot: Spot) -> bool {
        let span = self.recording.span(span.index());
        let lists = || self.named(span).1;
        match spot {
            Spot::Start => lists().wants(Edge::Start),
            Spot::End => lists().wants(Edge::End),
            Spot::Report => lists().wants(Edge::Event),
            Spot::Event(at) => {
                let event = span.event(at as usize);
                event.is_some_and(|event| self.named_event(&event).wants(Edge::Event))
            }
        }
    }
}

/// The walk through a trace's points.
struct Run<'a, 'q, 'r> {
    asker: &'a Asker<'q, 'r>,
    spans: &'a [SpanView<'r>],
    output: &'a mut Output,
    of: &'a OfTrace,
}

impl<'r> Run<'_, '_, 'r> {
    /// Visits the points of a span in any order.
    fn visit_all(&mut self, bag: &mut Bag, span: SpanView<'r>) {
        let (_, lists) = self.asker.named(span);
        if !lists.is_empty() {
            if span.format() == Some(Format::XTraceJson) {
                self.visit_spot(bag, span, Spot::Report);
            } else {
                self.visit_spot(bag, span, Spot::Start);
                if span.end().is_some() {
                    self.visit_spot(bag, span, Spot::End);
                }
            }
        }
        if self.asker.any_event {
            for event in span.events() {
                self.visit_event(bag, span, event);
            }
        }
    }

    fn visit_spot(&mut self, bag: &mut Bag, span: SpanView<'r>, spot: Spot) {
        let (name, lists) = self.asker.named(span);
        self.visit_point(bag, lists, name, span, spot, None);
    }

    fn visit_event(&mut self, bag: &mut Bag, span: SpanView<'r>, event: EventView<'r>) {
        let lists = self.asker.named_event(&event);
        self.visit_point(bag, lists, event.name, span, Spot::Event(0), Some(event));
    }

    fn visit_point(
        &mut self,
        bag: &mut Bag,
        lists: Lists,
        name: &str,
        span: SpanView<'r>,
        spot: Spot,
        event: Option<EventView<'r>>,
    ) {
        let Asker { columns, recording, question, shifts, nests, .. } = self.asker;
        let of = self.of;
        let point = Recorded { columns, recording, shifts, nests, span, spot, event, name, of };
        question.plan.visit(bag, lists, &point, self.output);
    }
}

impl Flow<At> for Run<'_, '_, '_> {
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

    fn visit(&mut self, bag: &mut Bag, At { span, spot }: At) {
        let span = self.spans[span as usize];
        match spot {
            Spot::Event(at) => {
                if let Some(event) = span.event(at as usize) {
                    self.visit_event(bag, span, event);
                }
            }
            spot => self.visit_spot(bag, span, spot),
        }
    }
}
