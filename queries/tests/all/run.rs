//! Executions: graphs of events that a plan is run over.

use std::collections::HashMap;

use astracer_queries::{Bag, Edge, Limits, Nest, Output, OutputOptions, Plan, Point, Value, Variable};

/// An event with its direct causes, which come before it in their list.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) tracepoint: String,
    pub(crate) request: usize,
    pub(crate) parents: Vec<usize>,
    pub(crate) fields: HashMap<String, Value>,
    pub(crate) edge: Edge,
    pub(crate) nest: Nest,
}

impl Default for Event {
    fn default() -> Self {
        let (tracepoint, fields) = (String::new(), HashMap::new());
        Event {
            tracepoint,
            request: 0,
            parents: Vec::new(),
            fields,
            edge: Edge::Event,
            nest: Nest::default(),
        }
    }
}

impl Point for Event {
    fn tracepoint(&self) -> &str {
        &self.tracepoint
    }

    fn edge(&self) -> Edge {
        self.edge
    }

    fn nest(&self) -> Nest {
        self.nest.clone()
    }

    fn variable(&self, variable: &Variable) -> Value {
        self.fields.get(variable.name()).cloned().unwrap_or_default()
    }
}

/// The way of a bag from an event to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carry {
    /// Each flow gets a copy.
    Split,
    /// The last flow takes the bag itself.
    Move,
    /// Each flow gets the bytes of a message.
    Bytes,
}

pub(crate) const CARRIES: [Carry; 3] = [Carry::Split, Carry::Move, Carry::Bytes];

/// Runs a plan over an execution, request by request.
pub(crate) fn run(plan: &Plan, events: &[Event], carry: Carry, options: OutputOptions) -> Output {
    let mut output = Output::new(plan, options);
    let requests = events.iter().map(|event| event.request).max().map_or(0, |last| last + 1);
    for request in 0..requests {
        for stage in 0..plan.stages() {
            output.begin_stage(stage);
            walk(plan, events, request, carry, &mut output);
        }
        output.end_trace();
    }
    output
}

fn walk(plan: &Plan, events: &[Event], request: usize, carry: Carry, output: &mut Output) {
    let mut flows = vec![0; events.len()];
    for &parent in events.iter().flat_map(|event| &event.parents) {
        flows[parent] += 1;
    }
    let mut bags: Vec<Option<Bag>> = events.iter().map(|_| None).collect();
    for (index, event) in events.iter().enumerate().filter(|(_, event)| event.request == request) {
        let mut merged: Option<Bag> = None;
        for &parent in &event.parents {
            flows[parent] -= 1;
            let bag = bags[parent].as_ref().expect("a parent comes first");
            let bag = match carry {
                Carry::Split => bag.split(),
                Carry::Move if flows[parent] == 0 => bags[parent].take().expect("a parent comes first"),
                Carry::Move => bag.split(),
                Carry::Bytes => Bag::decode(&bag.encode(usize::MAX), plan, Limits::RECORDING).unwrap(),
            };
            match &mut merged {
                Some(merged) => merged.merge(bag),
                None => merged = Some(bag),
            }
        }
        let mut bag = merged.unwrap_or_else(|| output.begin());
        plan.visit(&mut bag, plan.select(&event.tracepoint, None), event, output);
        bags[index] = Some(bag);
    }
}

/// Rows as a multiset of texts, in which a number is the same as an integer and as a float.
pub(crate) fn multiset(rows: &[Vec<Value>]) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::Int(number) => format!("{:.12e}", *number as f64),
        // The JSON reader may miss the last digit of a golden average.
        Value::Float(number) => format!("{number:.12e}"),
        other => format!("{other:?}"),
    };
    let mut all: Vec<String> =
        rows.iter().map(|row| row.iter().map(text).collect::<Vec<_>>().join(", ")).collect();
    all.sort();
    all
}
