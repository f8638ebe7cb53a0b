//! Instances from recorded traces: each trace with a root is one.
//!
//! | variable | kind | time, value |
//! |---|---|---|
//! | `service operation` | event | start of a span |
//! | `service operation ms` | state | end of the span, its duration |
//! | `gap A->B ms` | state | end of a span of A, its duration less that of its child in B |
//! | `service operation error` | event | end of a span with status error |
//! | `service operation: event` | event | the span's event |
//! | `service key=value` | event | start of a span with this attribute |
//! | `service key` | state | end of a span, its numeric attribute |
//! | `service log logger#line` | event | a log record |
//! | `service log logger#line [1]` | state | a log record, a number that it states |
//! | `service operation own ms` | state | end of the span, its duration less what its children cover |
//!
//! Times are ms since the root's start. In the paper the root provides the metric and is no
//! variable; here it is one like others, but for its start.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use astracer_model::Format;
use astracer_model::span::{Span, Status};
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};
use astracer_recording::recording::{Recording, SpanView, TraceView};
use astracer_recording::stop::Pulse;
use astracer_samplers::KeyRule;

use super::features::Kind;
use super::instances::{Class, Head, Observed, Role, Source, VariableId, Variables};
use super::templates::Templates;
use astracer_recording::root_attributes::RootAttributes;
use astracer_recording::weight;

/// The most distinct values of an attribute that are all variables. With more, such as customers,
/// only the most frequent ones are.
pub const VALUES_MAX: usize = 50;
/// The most frequent values of such an attribute that are variables, if this many traces have them.
const FREQUENT_MAX: usize = 20;
const FREQUENT_TRACES_MIN: u32 = 5;
/// Stands for the other values of such an attribute.
pub(super) const OTHERS: &str = "(others)";
/// The values of an attribute that are counted; later new ones are not.
const COUNTED_MAX: usize = 20_000;

/// A trace that was chosen for the comparison.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'r> {
    /// The recording that holds it.
    pub recording: &'r Recording,
    /// The trace.
    pub trace: TraceView<'r>,
    /// Its class.
    pub class: Class,
    /// The number of its run.
    pub run: u32,
}

/// The metric that is to be explained, P.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// The duration of the root, ms.
    #[default]
    Duration,
    /// The number of spans with status error.
    Errors,
    /// A numeric attribute of the root.
    Attribute(String),
    /// The time in all spans of this name, ms.
    Operation(String),
}

/// The way from traces to instances.
#[derive(Clone, Debug, Default)]
pub struct Method {
    /// The metric.
    pub metric: Metric,
    /// The type of a request. By default the root's name, or if all roots have one name, the first
    /// span of another service.
    pub key: Option<KeyRule>,
    /// Only the variables of the paper: starts, log records, durations and gaps.
    pub paper: bool,
    /// Variables whose names contain one of these are left out.
    pub ignore: Vec<String>,
    /// True if the classes were chosen by the root's duration, which then is no variable.
    pub is_duration_chosen: bool,
}

/// Instances of traces.
#[derive(Debug)]
pub struct Traces<'r> {
    method: &'r Method,
    chosen: Vec<Chosen<'r>>,
    heads: Vec<Head>,
    types: Vec<String>,
    /// Services that several files of one process each share, by their symbol in each recording.
    shared: HashSet<String>,
    /// The attributes that are variables: (service, key). Of some only these values.
    few: Named,
    templates: Templates,
}

/// Attributes by service and key; `None` stands for all values.
type Named = HashMap<(String, String), Option<HashSet<String>>>;
/// Each value of an attribute with the number of traces, and the last of them.
type Counted = HashMap<String, (u32, usize)>;

impl<'r> Traces<'r> {
    /// Makes instances of these traces. `None` if `pulse` stopped the work.
    pub fn new(mut chosen: Vec<Chosen<'r>>, method: &'r Method, pulse: &mut Pulse<'_>) -> Option<Self> {
        chosen.sort_by_key(|one| (one.trace.id(), one.class, one.trace.root().start()));
        let mut all = Traces {
            method,
            heads: Vec::with_capacity(chosen.len()),
            types: Vec::new(),
            shared: shared_services(&chosen),
            few: HashMap::new(),
            templates: Templates::default(),
            chosen,
        };
        if !method.paper {
            all.templates = Templates::new(recordings(&all.chosen));
            all.few = all.attributes(pulse)?;
        }
        let names: Vec<String> = all.type_names();
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        for (one, name) in all.chosen.iter().zip(&names) {
            let root = one.trace.root();
            let stratum = *numbers.entry(name).or_insert_with(|| {
                all.types.push(name.clone());
                all.types.len() as u32 - 1
            });
            all.heads.push(Head {
                id: one.trace.id().to_string(),
                class: one.class,
                run: one.run,
                stratum,
                weight: weight::adjusted_count(one.recording, one.trace),
                length_ms: ms(root.duration_ns()),
                metric: metric(&method.metric, one.trace),
                start_ns: root.start().0,
            });
            if pulse.stopped() {
                return None;
            }
        }
        Some(all)
    }

    /// The chosen traces, in the order of [`Source::heads`].
    pub fn chosen(&self) -> &[Chosen<'r>] {
        &self.chosen
    }

    fn type_names(&self) -> Vec<String> {
        let by_root = |one: &Chosen<'r>| {
            let root = one.trace.root();
            labelled(root.service(), root.name())
        };
        if let Some(rule) = &self.method.key {
            let mut memory = String::new();
            let key = |one: &Chosen<'r>| {
                let values = RootAttributes::new(one.recording, one.trace);
                rule.key(one.trace.root().name(), &values, &mut memory).to_owned()
            };
            return self.chosen.iter().map(key).collect();
        }
        let names: Vec<String> = self.chosen.iter().map(by_root).collect();
        if names.windows(2).any(|pair| pair[0] != pair[1]) {
            return names;
        }
        let entry = |one: &Chosen<'r>| {
            let root = one.trace.root();
            let other = one.trace.spans().find(|span| span.service() != root.service());
            other.map_or_else(|| by_root(one), |span| labelled(span.service(), span.name()))
        };
        self.chosen.iter().map(entry).collect()
    }

    /// The attributes with two values or more, and of those with many the most frequent values.
    /// Classes play no part, or chance would be underestimated.
    fn attributes(&self, pulse: &mut Pulse<'_>) -> Option<Named> {
        let mut values: HashMap<(&str, &str), Counted> = HashMap::new();
        for (at, one) in self.chosen.iter().enumerate() {
            for span in one.trace.spans() {
                let Some(full) = span.full() else { continue };
                for attribute in full.attributes.iter().chain(&full.resource.attributes) {
                    let known = values.entry((span.service(), &attribute.key)).or_default();
                    let Some(text) = text(&attribute.value) else { continue };
                    if let Some((traces, last)) = known.get_mut(&text) {
                        *traces += u32::from(*last != at);
                        *last = at;
                    } else if known.len() < COUNTED_MAX {
                        known.insert(text, (1, at));
                    }
                }
                if pulse.stopped() {
                    return None;
                }
            }
        }
        let named = values.into_iter().filter_map(|((service, key), values)| {
            let allowed = match values.len() {
                0 | 1 => return None,
                2..=VALUES_MAX => None,
                _ => Some(frequent(values)?),
            };
            Some(((service.to_owned(), key.to_owned()), allowed))
        });
        Some(named.collect())
    }

    /// The service of a span; with the file's stem where several files share it.
    fn service(&self, span: SpanView<'_>) -> String {
        match self.shared.contains(span.service()) {
            true => labelled(stem(span.file()), span.service()),
            false => span.service().to_owned(),
        }
    }
}

impl Source for Traces<'_> {
    fn heads(&self) -> &[Head] {
        &self.heads
    }

    fn types(&self) -> &[String] {
        &self.types
    }

    fn observe(&self, at: usize, variables: &mut Variables, observed: &mut Observed) {
        let one = &self.chosen[at];
        let trace = one.trace;
        let root = trace.root();
        let mut writer = Writer { ignore: &self.method.ignore, zero: root.start(), variables, observed };
        let mut resources: HashSet<usize> = HashSet::new();
        let covered = if self.method.paper { HashMap::new() } else { covered(trace) };
        for span in trace.spans() {
            let is_root = span.index() == root.index();
            if is_root && self.method.paper {
                continue;
            }
            let service = self.service(span);
            let name = labelled(&service, span.name());
            if !is_root {
                writer.event(&name, span.start());
            }
            if let Some(end) = span.end() {
                if !(is_root && self.method.is_duration_chosen) {
                    writer.state(&format!("{name} ms"), end, ms(span.duration_ns()));
                }
                if let Some(&covered) = covered.get(&span.index()) {
                    writer.state(
                        &format!("{name} own ms"),
                        end,
                        ms(span.duration_ns().saturating_sub(covered)),
                    );
                }
            }
            if let (Some(parent), Some(_)) = (span.parent(), span.end())
                && parent.service() != span.service()
                && let Some(end) = parent.end()
            {
                let above = self.service(parent);
                // In nanoseconds first: the difference of two large numbers of ms loses digits.
                let gap = i128::from(parent.duration_ns()) - i128::from(span.duration_ns());
                writer.state(&format!("gap {above}->{service} ms"), end, gap as f64 / 1e6);
            }
            if self.method.paper {
                continue;
            }
            if span.status() == Status::Error {
                writer.event(&format!("{name} error"), span.end().unwrap_or(span.start()));
            }
            if let Some(full) = span.full() {
                self.observe_content(span, full, &service, &name, &mut resources, &mut writer);
            }
        }
        self.observe_logs(one, &mut writer);
    }
}

impl Traces<'_> {
    fn observe_logs(&self, one: &Chosen<'_>, writer: &mut Writer<'_>) {
        for log in one.trace.logs() {
            let Some(time) = log.time() else { continue };
            let service = log.span().map_or_else(|| log.service().to_owned(), |span| self.service(span));
            let event = self.templates.name(log.event());
            writer.event(&labelled(&service, event), time);
            if self.method.paper {
                continue;
            }
            for &(name, value) in log.values() {
                let number = &one.recording.log_names().name(name)[log.event().len()..];
                writer.state(&labelled(&service, &format!("{event}{number}")), time, value);
            }
        }
    }

    fn observe_content(
        &self,
        span: SpanView<'_>,
        full: &Span<'_>,
        service: &str,
        name: &str,
        resources: &mut HashSet<usize>,
        writer: &mut Writer<'_>,
    ) {
        for event in &full.events {
            writer.event(&format!("{name}: {}", event.name), event.time);
        }
        // A resource's attributes say the same on each of its spans.
        let of_resource = match resources.insert(Arc::as_ptr(&full.resource).addr()) {
            true => full.resource.attributes.as_slice(),
            false => &[],
        };
        let all = full.attributes.iter().map(|own| (own, false));
        for (Attribute { key, value }, is_of_resource) in all.chain(of_resource.iter().map(|own| (own, true)))
        {
            if let Some(number) = number(value) {
                writer.state(&labelled(service, key), span.end().unwrap_or(span.start()), number);
            }
            if let Some(allowed) = self.few.get(&(span.service().to_owned(), key.clone().into_owned()))
                && let Some(text) = text(value)
            {
                let is_allowed = allowed.as_ref().is_none_or(|allowed| allowed.contains(&text));
                let text = if is_allowed { &text } else { OTHERS };
                let variable = writer.event(&format!("{service} {key}={text}"), span.start());
                let role = if is_of_resource { Role::Resource } else { Role::Attribute };
                variable.into_iter().for_each(|variable| writer.variables.set_role(variable, role));
            }
        }
    }
}

/// Writes variables with times since `zero`.
struct Writer<'w> {
    ignore: &'w [String],
    zero: UnixNanos,
    variables: &'w mut Variables,
    observed: &'w mut Observed,
}

impl Writer<'_> {
    fn time(&self, at: UnixNanos) -> f64 {
        (i128::from(at.0) - i128::from(self.zero.0)) as f64 / 1e6
    }

    fn is_ignored(&self, name: &str) -> bool {
        self.ignore.iter().any(|part| name.contains(part.as_str()))
    }

    /// Returns the number of the variable, if there is room for it.
    fn event(&mut self, name: &str, at: UnixNanos) -> Option<VariableId> {
        let time = self.time(at);
        let variable = match self.is_ignored(name) {
            true => None,
            false => self.variables.number(Kind::Event, name),
        };
        self.observed.events.extend(variable.map(|variable| (variable, time)));
        variable
    }

    fn state(&mut self, name: &str, at: UnixNanos, value: f64) {
        let time = self.time(at);
        if !self.is_ignored(name)
            && let Some(variable) = self.variables.number(Kind::State, name)
        {
            self.observed.states.push((variable, time, value));
        }
    }
}

/// The recordings of these traces, each once.
fn recordings<'r>(chosen: &[Chosen<'r>]) -> impl Iterator<Item = &'r Recording> {
    let by_run: BTreeMap<u32, &'r Recording> = chosen.iter().map(|one| (one.run, one.recording)).collect();
    by_run.into_values()
}

/// The most frequent of these values; `None` if none is frequent.
fn frequent(values: Counted) -> Option<HashSet<String>> {
    let mut of: Vec<(u32, String)> = values
        .into_iter()
        .map(|(text, (traces, _))| (traces, text))
        .filter(|&(traces, _)| traces >= FREQUENT_TRACES_MIN)
        .collect();
    of.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    of.truncate(FREQUENT_MAX);
    let found: HashSet<String> = of.into_iter().map(|(_, text)| text).collect();
    (!found.is_empty()).then_some(found)
}

/// For each span with children, by its index, the nanoseconds during which one of them ran.
fn covered(trace: TraceView<'_>) -> HashMap<u32, u64> {
    let mut of_children: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
    for span in trace.spans() {
        let (Some(parent), Some(end)) = (span.parent(), span.end()) else { continue };
        let Some(parent_end) = parent.end() else { continue };
        let within = (span.start().0.max(parent.start().0), end.0.min(parent_end.0));
        let own = of_children.entry(parent.index()).or_default();
        own.extend((within.0 < within.1).then_some(within));
    }
    let length = |mut parts: Vec<(u64, u64)>| {
        parts.sort_unstable();
        let mut reached = 0;
        parts.into_iter().fold(0, |sum, (start, end)| {
            let start = start.max(reached);
            reached = reached.max(end);
            sum + end.saturating_sub(start)
        })
    };
    of_children.into_iter().map(|(span, parts)| (span, length(parts))).collect()
}

fn ms(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// "service name", or the name alone.
fn labelled(service: &str, name: &str) -> String {
    if service.is_empty() { name.to_owned() } else { format!("{service} {name}") }
}

/// An attribute's value as text; `None` for lists, maps and bytes.
fn text(value: &Value<'_>) -> Option<String> {
    match value {
        Value::String(text) => Some(text.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Int(value) => Some(value.to_string()),
        Value::Double(_) | Value::Empty | Value::Bytes(_) | Value::Array(_) | Value::Map(_) => None,
    }
}

fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Int(value) => Some(*value as f64),
        Value::Double(value) => Some(*value),
        _ => None,
    }
}

fn metric(metric: &Metric, trace: TraceView<'_>) -> f64 {
    match metric {
        Metric::Duration => ms(trace.root().duration_ns()),
        Metric::Errors => trace.spans().filter(|span| span.status() == Status::Error).count() as f64,
        Metric::Attribute(key) => trace
            .root()
            .full()
            .and_then(|full| full.attributes.iter().find(|attribute| attribute.key == key.as_str()))
            .and_then(|attribute| number(&attribute.value))
            .unwrap_or(f64::NAN),
        Metric::Operation(name) => {
            let of = trace.spans().filter(|span| span.name() == name.as_str());
            of.map(|span| ms(span.duration_ns())).sum()
        }
    }
}

/// The services that several files of HTrace share. Each of its files is written by one process, so
/// they are different nodes of one service (HDFS's DataNodes). Other formats name nodes themselves,
/// or cut files by time.
fn shared_services(chosen: &[Chosen<'_>]) -> HashSet<String> {
    let mut files: HashMap<&str, HashSet<(u32, &str)>> = HashMap::new();
    for one in chosen {
        for span in one.trace.spans().filter(|span| span.format() == Some(Format::HTrace)) {
            files.entry(span.service()).or_default().insert((one.run, span.file()));
        }
    }
    let is_shared = |files: &HashSet<(u32, &str)>| {
        files.iter().any(|(run, _)| files.iter().filter(|(other, _)| run == other).count() > 1)
    };
    files.into_iter().filter(|(_, files)| is_shared(files)).map(|(service, _)| service.to_owned()).collect()
}

/// The name of a file without folders and extensions.
fn stem(file: &str) -> &str {
    let name = file.rsplit(['/', '\\', ':']).next().unwrap_or(file);
    name.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(name)
}
