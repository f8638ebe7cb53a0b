//! A recorded point as a query sees it.

use astracer_causality::shifts::Shifts;
use astracer_model::span::Status;
use astracer_queries::{Builtin, Edge, Nest, Plan, Point, Value, Variable};
use astracer_recording::Recording;
use astracer_recording::intern::{Interner, Symbol};
use astracer_recording::recording::{EventView, SpanView};

use super::kept::sources;
use super::nests::Nests;
use astracer_causality::spot::Spot;

/// The values of a recording, each converted once, and the place of each variable.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) values: Vec<Value>,
    hosts: Vec<Value>,
    services: Vec<Value>,
    /// For each variable of the plan: the field of its name, then those of the built-in variable.
    places: Vec<(Option<usize>, Vec<usize>)>,
}

impl Columns {
    pub(super) fn new(recording: &Recording, plan: &Plan) -> Self {
        let keys: Vec<&str> = recording.field_keys().collect();
        let find = |name: &str| keys.iter().position(|&key| key == name);
        // An own field, which resources lack, comes after the others.
        let own = |name: &str| keys.iter().rposition(|&key| key == name);
        let places = plan.variables().iter().map(|variable| {
            let builtin = variable.builtin().into_iter().flat_map(sources);
            (own(variable.name()), builtin.filter_map(|&key| find(key)).collect())
        });
        let all = |names: &Interner| names.names().map(Value::from).collect();
        Self {
            places: places.collect(),
            values: recording.field_values().map(|value| Value::from(&value)).collect(),
            hosts: all(recording.hosts()),
            services: all(recording.services()),
        }
    }
}

impl Columns {
    /// The field of a variable's name in a set of fields.
    pub(super) fn own(&self, recording: &Recording, fields: Symbol, variable: &Variable) -> Option<&Value> {
        let (own, _) = self.places.get(variable.index())?;
        let symbol = recording.field_symbols(fields).get((*own)?).copied().flatten()?;
        self.values.get(symbol.index())
    }
}

/// One point, for the advice of a query.
pub(super) struct Recorded<'c, 'r> {
    pub(super) columns: &'c Columns,
    pub(super) recording: &'r Recording,
    pub(super) shifts: &'c Shifts,
    pub(super) nests: &'c Nests,
    pub(super) span: SpanView<'r>,
    pub(super) spot: Spot,
    pub(super) event: Option<EventView<'r>>,
    pub(super) name: &'c str,
    pub(super) of: &'c OfTrace,
}

/// A point's trace.
pub(super) struct OfTrace {
    pub(super) id: Value,
    /// The number of traces that it stands for, if known.
    pub(super) weight: Option<f64>,
    /// Its number among the traces that end together.
    pub(super) number: u32,
}

impl Recorded<'_, '_> {
    fn field(&self, at: usize) -> Option<&Value> {
        let set = match &self.event {
            Some(event) => event.fields,
            None => self.span.fields()?,
        };
        let symbol = self.recording.field_symbols(set).get(at).copied().flatten()?;
        self.columns.values.get(symbol.index())
    }

    fn builtin(&self, builtin: Builtin, sources: &[usize]) -> Value {
        let named =
            |values: &[Value], symbol: Symbol| values.get(symbol.index()).cloned().unwrap_or_default();
        let at_end = self.spot == Spot::End;
        match builtin {
            Builtin::Host => match self.span.origin().host {
                Symbol(0) => Value::Null,
                host => named(&self.columns.hosts, host),
            },
            Builtin::ProcName => named(&self.columns.services, self.span.service_symbol()),
            Builtin::Time => match (self.spot, &self.event) {
                (_, Some(event)) => self.shifts.corrected(self.span, event.time.0).into(),
                (Spot::End, _) => self.shifts.end(self.span).map_or(Value::Null, Value::from),
                _ => self.shifts.start(self.span).into(),
            },
            Builtin::Tracepoint => self.name.into(),
            Builtin::Name => self.event.as_ref().map_or_else(|| self.span.name(), |event| event.name).into(),
            Builtin::Kind => self.span.kind().word().map_or(Value::Null, Value::from),
            Builtin::Span => self.span.id().to_string().as_str().into(),
            Builtin::Parent => {
                let parent = self.span.parent_ids().next();
                parent.map_or(Value::Null, |id| id.to_string().as_str().into())
            }
            Builtin::Trace => self.of.id.clone(),
            Builtin::Sampled => true.into(),
            Builtin::Duration if at_end => self.span.duration_ns().into(),
            Builtin::Status if at_end => match self.span.status() {
                Status::Unset => "unset".into(),
                Status::Ok => "ok".into(),
                Status::Error => "error".into(),
            },
            Builtin::Busy if at_end => self.first(sources),
            Builtin::Duration | Builtin::Status | Builtin::Busy => Value::Null,
            Builtin::ProcId | Builtin::ThreadId | Builtin::Target => self.first(sources),
        }
    }

    fn first(&self, sources: &[usize]) -> Value {
        sources.iter().find_map(|&at| self.field(at)).cloned().unwrap_or_default()
    }
}

impl Point for Recorded<'_, '_> {
    fn tracepoint(&self) -> &str {
        self.name
    }

    fn edge(&self) -> Edge {
        match self.spot {
            Spot::Start => Edge::Start,
            Spot::End => Edge::End,
            Spot::Event(_) | Spot::Report => Edge::Event,
        }
    }

    fn variable(&self, variable: &Variable) -> Value {
        let Some((own, sources)) = self.columns.places.get(variable.index()) else { return Value::Null };
        if let Some(value) = own.and_then(|at| self.field(at)) {
            return value.clone();
        }
        variable.builtin().map_or(Value::Null, |builtin| self.builtin(builtin, sources))
    }

    fn trace(&self) -> Value {
        self.of.id.clone()
    }

    fn nest(&self) -> Nest {
        self.nests.of(self.span, self.edge())
    }

    fn weight(&self) -> f64 {
        self.of.weight.unwrap_or(1.0)
    }

    fn is_weight_known(&self) -> bool {
        self.of.weight.is_some()
    }

    fn trace_number(&self) -> u32 {
        self.of.number
    }
}
