//! Keys of recorded traces, made as a service makes them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use astracer_model::Status;
use astracer_recording::intern::{Interner, Symbol};
use astracer_recording::recording::{Recording, TraceView};
use astracer_recording::root_attributes::RootAttributes;
use astracer_recording::shape::{ShapeId, Shapes};
use astracer_samplers::strata::Stratum;
use astracer_samplers::{KeyRule, KeyRuleError, Nanos, Template};

use crate::known::{is_added, is_of_end};

/// The rule that gives a recording's traces their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grouping {
    /// By a key that is known when a trace starts, as in a service.
    Key(KeyRule),
    /// By the whole call tree. It is not known when a trace starts, so no head sampler can use it.
    /// It shows what a perfect key could gain if one root name covers many kinds of traces.
    Tree,
    /// By such a key, the octave of the root's duration, and whether a span failed: a good key of a
    /// sampler that decides when a trace has ended, such as those of collectors. As text:
    /// `outcome:` and the key.
    Outcome(KeyRule),
}

/// The root's name, which is the paper's choice.
impl Default for Grouping {
    fn default() -> Self {
        Self::Key(KeyRule::default())
    }
}

impl From<KeyRule> for Grouping {
    fn from(rule: KeyRule) -> Self {
        Self::Key(rule)
    }
}

/// The most values that an attribute may have to be proposed for keys.
pub const VALUES_MAX: usize = 200;
/// The most other attributes that are tried.
const OTHERS_MAX: usize = 4;

/// Attributes of OpenTelemetry's conventions that a root span has when it starts, and that take few
/// values.
pub const START_ATTRIBUTES: [&str; 6] = [
    "http.request.method",
    "http.method",
    "http.route",
    "rpc.service",
    "rpc.method",
    "messaging.destination.name",
];

impl Grouping {
    /// The groupings worth comparing, simplest first: the name, the name with those
    /// [`START_ATTRIBUTES`] that roots have, the name with each other attribute that a sampler can
    /// know at the start, that most roots have and that has 2 to [`VALUES_MAX`] values, and the
    /// tree.
    pub fn candidates(recording: &Recording, template: Template) -> Vec<Self> {
        let name = KeyRule::new(template);
        let is_usual = |label: &&String| START_ATTRIBUTES.contains(&label.as_str());
        let usual = present(recording).filter(is_usual).cloned();
        let usual = usual.fold(name.clone(), KeyRule::with_attribute);
        let mut candidates = vec![Self::Key(name.clone())];
        if !usual.is_name_only() {
            candidates.push(Self::Key(usual));
        }
        let is_late = |label: &String| is_added(label) || is_of_end(label);
        let others = telling(recording).into_iter().filter(|label| !is_usual(label) && !is_late(label));
        candidates.extend(
            others.take(OTHERS_MAX).map(|label| Self::Key(name.clone().with_attribute(label.clone()))),
        );
        candidates.push(Self::Tree);
        candidates
    }

    /// Attributes of this grouping that no root span of the recording carries, nor its resource;
    /// probably misspelt.
    pub fn absent(&self, recording: &Recording) -> Vec<String> {
        let present: Vec<&String> = present(recording).collect();
        self.attributes().into_iter().filter(|name| !present.contains(&name)).collect()
    }

    /// The attributes that a recording must keep for this grouping.
    pub fn attributes(&self) -> Vec<String> {
        match self {
            Self::Key(rule) | Self::Outcome(rule) => {
                rule.attributes().chain(rule.attributes_at_end()).map(str::to_owned).collect()
            }
            Self::Tree => Vec::new(),
        }
    }

    /// The same grouping, with names and values folded by `template`.
    #[must_use]
    pub fn with_template(self, template: Template) -> Self {
        match self {
            Self::Key(rule) => Self::Key(rule.with_template(template)),
            Self::Outcome(rule) => Self::Outcome(rule.with_template(template)),
            Self::Tree => Self::Tree,
        }
    }
}

/// The keys of one recording's traces. Each key is built only once per name and set of values.
#[derive(Debug)]
pub(crate) struct Keys<'r> {
    recording: &'r Recording,
    grouping: &'r Grouping,
    interner: Interner,
    /// The keys at the end, if they differ from those at the start.
    ends: Option<Interner>,
    /// Keys by name, set of values and outcome, or by tree.
    known: HashMap<(u32, Option<Symbol>, Option<Stratum>), KeyOfTrace>,
    memory: [String; 2],
}

/// The key of a trace when its root starts, and when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyOfTrace {
    pub(crate) at_start: Symbol,
    pub(crate) at_end: Symbol,
}

impl<'r> Keys<'r> {
    pub(crate) fn new(recording: &'r Recording, grouping: &'r Grouping) -> Self {
        let ends_alike = match grouping {
            Grouping::Key(rule) => rule.attributes_at_end().len() == 0,
            Grouping::Tree | Grouping::Outcome(_) => true,
        };
        Self {
            recording,
            grouping,
            interner: Interner::default(),
            ends: (!ends_alike).then(Interner::default),
            known: HashMap::new(),
            memory: Default::default(),
        }
    }

    /// The key of a trace whose call tree is `shape`.
    pub(crate) fn of(&mut self, trace: TraceView<'r>, shapes: &Shapes, shape: ShapeId) -> KeyOfTrace {
        let root = trace.root();
        let outcome = match self.grouping {
            Grouping::Outcome(_) => Some(outcome(trace)),
            _ => None,
        };
        let group = match self.grouping {
            Grouping::Key(rule) | Grouping::Outcome(rule) => {
                let by_name = rule.is_name_only() && rule.attributes_at_end().len() == 0;
                let labels = root.label_symbol().filter(|_| !by_name);
                (root.name_symbol().0, labels, outcome)
            }
            Grouping::Tree => (shape.0, None, None),
        };
        if let Some(&key) = self.known.get(&group) {
            return key;
        }
        let both = |symbol| KeyOfTrace { at_start: symbol, at_end: symbol };
        let [start, end] = &mut self.memory;
        let key = match self.grouping {
            Grouping::Key(rule) => {
                let values = RootAttributes::new(self.recording, trace);
                let key = rule.key(root.name(), &values, start);
                let at_start = self.interner.intern(key);
                let at_end = |ends: &mut Interner| ends.intern(rule.key_at_end(key, &values, end));
                KeyOfTrace { at_start, at_end: self.ends.as_mut().map_or(at_start, at_end) }
            }
            // A sampler that sees outcomes sees all attributes.
            Grouping::Outcome(rule) => {
                let values = RootAttributes::new(self.recording, trace);
                let key = rule.key_at_end(rule.key(root.name(), &values, start), &values, end);
                both(self.interner.intern(&format!("{key} {}", outcome.unwrap_or_default())))
            }
            // The number distinguishes trees of one root; the name is for people.
            Grouping::Tree => {
                let name =
                    shapes.name(shape).map_or("(several tops)", |name| self.recording.names().name(name));
                both(self.interner.intern(&format!("{name} #{}", shape.0)))
            }
        };
        self.known.insert(group, key);
        key
    }

    /// The keys at the start, and those at the end.
    pub(crate) fn finish(self) -> (Arc<Interner>, Arc<Interner>) {
        let starts = Arc::new(self.interner);
        let ends = self.ends.map_or_else(|| starts.clone(), Arc::new);
        (starts, ends)
    }
}

/// The stratum of a whole trace.
fn outcome(trace: TraceView<'_>) -> Stratum {
    let has_failed = trace.spans().any(|span| span.status() == Status::Error);
    Stratum::new(Nanos::new(trace.root().duration_ns()), has_failed)
}

/// The labels that at least one root of the recording has.
fn present(recording: &Recording) -> impl Iterator<Item = &String> {
    let labels = recording.label_keys();
    let mut present = vec![false; labels.len()];
    let sets: HashSet<_> = recording.traces().filter_map(|trace| trace.root().label_symbol()).collect();
    for set in sets {
        let values = recording.label_values(set);
        present.iter_mut().zip(values).for_each(|(present, value)| *present |= value.is_some());
    }
    labels.iter().zip(present).filter(|(_, present)| *present).map(|(label, _)| label)
}

/// The labels that most roots have, with 2 to [`VALUES_MAX`] values; those with the fewest values
/// first.
fn telling(recording: &Recording) -> Vec<&String> {
    let labels = recording.label_keys();
    let mut roots: HashMap<Symbol, usize> = HashMap::new();
    let sets = recording.traces().filter_map(|trace| trace.root().label_symbol());
    sets.for_each(|set| *roots.entry(set).or_default() += 1);
    let mut values: Vec<(usize, HashSet<&str>)> = vec![Default::default(); labels.len()];
    for (&set, &roots) in &roots {
        for ((carriers, values), value) in values.iter_mut().zip(recording.label_values(set)) {
            *carriers += if value.is_some() { roots } else { 0 };
            values.extend(value.filter(|_| values.len() <= VALUES_MAX));
        }
    }
    let mut telling: Vec<(usize, &String)> = values
        .iter()
        .zip(labels)
        .filter(|((carriers, values), _)| {
            2 * carriers > recording.trace_count() && (2..=VALUES_MAX).contains(&values.len())
        })
        .map(|((_, values), label)| (values.len(), label))
        .collect();
    telling.sort();
    telling.into_iter().map(|(_, label)| label).collect()
}

impl fmt::Display for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(rule) => rule.fmt(f),
            Self::Tree => f.write_str("tree"),
            Self::Outcome(rule) => write!(f, "outcome:{rule}"),
        }
    }
}

/// A text that is not a grouping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidGrouping(KeyRuleError);

impl fmt::Display for InvalidGrouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; or tree; or outcome: and a key", self.0)
    }
}

impl std::error::Error for InvalidGrouping {}

impl FromStr for Grouping {
    type Err = InvalidGrouping;

    fn from_str(text: &str) -> Result<Self, InvalidGrouping> {
        match text {
            "tree" => Ok(Self::Tree),
            _ => match text.strip_prefix("outcome:") {
                Some(key) => key.parse().map(Self::Outcome).map_err(InvalidGrouping),
                None => text.parse().map(Self::Key).map_err(InvalidGrouping),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use astracer_model::problem::Place;
    use astracer_model::sink::{Record, Sink};
    use astracer_model::value::Attribute;
    use astracer_model::{Span, SpanId, TraceId, UnixNanos, Value};
    use astracer_recording::recording::{Intake, Keep};

    use super::*;
    use crate::workload::Workload;

    #[test]
    fn groupings_survive_printing_and_others_are_refused() {
        for text in [
            "name",
            "tree",
            "name+http.route",
            "name+http.request.method+http.route",
            "outcome:name+http.route",
        ] {
            assert_eq!(text.parse::<Grouping>().map(|grouping| grouping.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "names", "name+", "name+a+", "tree+a", "outcome", "outcome:", "outcome:tree"] {
            let error = text.parse::<Grouping>().expect_err(text).to_string();
            assert!(error.contains("name+ATTRIBUTE"), "{error}");
        }
    }

    /// Attributes follow the name. Attributes that a root lacks are left out. Values are folded
    /// like names.
    #[test]
    fn keys_with_attributes_are_written_as_a_service_writes_them() {
        let labels = ["http.request.method", "http.method", "http.route"].map(str::to_owned).to_vec();
        let mut intake = Intake::new(Keep { labels, ..Keep::default() });
        let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
        for (trace, attributes) in [
            vec![("http.request.method", "GET"), ("http.route", "/orders/12345 now")],
            vec![("http.request.method", "GET")],
            vec![],
        ]
        .into_iter()
        .enumerate()
        {
            let value = |(key, value): (&'static str, &'static str)| Attribute {
                key: key.into(),
                value: Value::String(value.into()),
            };
            let span = Span {
                trace_id: TraceId(trace as u128 + 1),
                span_id: SpanId(trace as u64 + 1),
                name: "handle".into(),
                start: Some(UnixNanos(trace as u64)),
                end: Some(UnixNanos(9)),
                attributes: attributes.into_iter().map(value).collect(),
                ..Span::default()
            };
            intake.span(span, Record { bytes: b"x", place: &place });
        }
        let recording = intake.finish();
        let [name, both, Grouping::Tree] = &Grouping::candidates(&recording, Template::default())[..] else {
            panic!("the name, with two attributes, and the tree");
        };
        assert_eq!(
            (name.to_string(), both.to_string()),
            ("name".into(), "name+http.request.method+http.route".into())
        );
        let keys = |template: Template| {
            let workload = Workload::new(&recording, &both.clone().with_template(template));
            workload.arrivals().iter().map(|arrival| workload.key(arrival).to_owned()).collect::<Vec<_>>()
        };
        let (folded, raw) = (keys(Template::default()), keys(Template::RAW));
        let route = |route| format!("handle;http.request.method=GET;http.route=/orders/{route} now");
        assert_eq!(folded[1..], ["handle;http.request.method=GET", "handle"]);
        assert_eq!((&folded[0], &raw[0]), (&route("*"), &route("12345")));
    }
    /// Octave 3 is 8 to 16 ms; a child that fails makes the trace another.
    #[test]
    fn outcomes_divide_keys() {
        let mut intake = Intake::new(Keep::default());
        let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
        for (trace, ms, status) in [(1, 9, Status::Unset), (2, 15, Status::Unset), (3, 15, Status::Error)] {
            for (id, parent) in [(1, None), (2, Some(SpanId(1)))] {
                let span = Span {
                    trace_id: TraceId(trace),
                    span_id: SpanId(id),
                    parents: parent.into_iter().collect(),
                    name: "handle".into(),
                    start: Some(UnixNanos(trace as u64)),
                    end: Some(UnixNanos(trace as u64 + ms * 1_000_000)),
                    status: if parent.is_some() { status } else { Status::Unset },
                    ..Span::default()
                };
                intake.span(span, Record { bytes: b"x", place: &place });
            }
        }
        let grouping: Grouping = "outcome:name".parse().expect("a grouping");
        let workload = Workload::new(&intake.finish(), &grouping);
        let keys: Vec<&str> = workload.arrivals().iter().map(|arrival| workload.key(arrival)).collect();
        assert_eq!(keys, ["handle 3", "handle 3", "handle 3e"]);
    }

    /// Ten roots: 9 carry `tenant` with 3 values, all carry `id` with 10 values, which is as many
    /// as there are roots here but few enough, and 4 carry `flag`. The last two are not known at
    /// the start.
    #[test]
    fn attributes_on_most_roots_are_proposed() {
        let labels =
            ["flag", "tenant", "id", "region", "http.route", "thread.id", "http.response.status_code"]
                .map(str::to_owned)
                .to_vec();
        let mut intake = Intake::new(Keep { labels, ..Keep::default() });
        let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
        for trace in 0..10u64 {
            let value = |key: &'static str, value: String| Attribute {
                key: key.into(),
                value: Value::String(value.into()),
            };
            let mut attributes = vec![value("id", trace.to_string()), value("region", "eu".to_owned())];
            for later in ["thread.id", "http.response.status_code"] {
                attributes.push(value(later, (trace % 2).to_string()));
            }
            attributes.extend((trace > 0).then(|| value("tenant", (trace % 3).to_string())));
            attributes.extend((trace < 4).then(|| value("flag", trace.to_string())));
            let span = Span {
                trace_id: TraceId(u128::from(trace) + 1),
                span_id: SpanId(trace + 1),
                name: "handle".into(),
                start: Some(UnixNanos(trace)),
                end: Some(UnixNanos(99)),
                attributes,
                ..Span::default()
            };
            intake.span(span, Record { bytes: b"x", place: &place });
        }
        let found = Grouping::candidates(&intake.finish(), Template::default());
        let found: Vec<String> = found.iter().map(Grouping::to_string).collect();
        assert_eq!(found, ["name", "name+tenant", "name+id", "tree"]);
    }
}
