//! Instances from recorded traces: each trace with a root is one.
//!
//! | variable | kind | time, value |
//! |---|---|---|
//! | `service operation` | event | start of a span |
//! | `service operation ms` | state | end of the span, its duration |
//! | `gap A->B ms` | state | end of a span of A, its duration less that of its child in B |
//! | `service operation error` | event | end of a span with status error |
//! | `service operation: event` | event | the span's event |
//! | `service operation: TYPE`, `... TYPE message` | event | an exception in the span's events |
//! | `service key=value` | event | start of a span with this attribute |
//! | `service key` | state | end of a span, its numeric attribute |
//! | `service log logger#line` | event | a log record |
//! | `service log logger#line [1]` | state | a log record, a number that it states |
//! | `service operation own ms` | state | end of the span, its duration less what its children cover |
//!
//! Times are ms since the root's start. The paper uses the root for the metric only. Here the
//! root's variables count too, except its start.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use astracer_model::Format;
use astracer_model::span::Status;
use astracer_recording::intern::Symbol;
use astracer_recording::log_event;
use astracer_recording::recording::{ContentView, Kept, Recording, SpanView, TraceView};
use astracer_recording::root_attributes::RootAttributes;
use astracer_recording::stop::Pulse;
use astracer_recording::weight;
use astracer_samplers::KeyRule;
use rapidhash::fast::RandomState;

use super::instances::{Class, Head, Observed, Role, Source, Variables};
use super::templates::Templates;
use super::writer::{About, Symbols, Writer};

mod attributes;

use attributes::Named;
pub(super) use attributes::OTHERS;
pub use attributes::VALUES_MAX;

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
    /// True if the root's duration chose the classes; it is left out of the variables then.
    pub is_duration_chosen: bool,
}

/// Instances of traces.
#[derive(Debug)]
pub struct Traces<'r> {
    method: &'r Method,
    chosen: Vec<Chosen<'r>>,
    heads: Vec<Head>,
    types: Vec<String>,
    /// Services that several files of one process each share.
    shared: HashSet<String>,
    /// The attributes that are variables.
    named: Named,
    templates: Templates,
}

impl<'r> Traces<'r> {
    /// Makes instances of these traces. `None` if `pulse` stopped the work.
    pub fn new(mut chosen: Vec<Chosen<'r>>, method: &'r Method, pulse: &mut Pulse<'_>) -> Option<Self> {
        chosen.sort_by_key(|one| (one.trace.id(), one.class, one.trace.root().start()));
        let mut all = Traces {
            method,
            heads: Vec::with_capacity(chosen.len()),
            types: Vec::new(),
            shared: shared_services(&chosen),
            named: Named::default(),
            templates: Templates::default(),
            chosen,
        };
        if !method.paper {
            all.templates = Templates::new(recordings(&all.chosen));
            all.named = Named::new(&all.chosen, pulse)?;
        }
        let names = all.type_names();
        let mut numbers: HashMap<&str, u32, RandomState> = HashMap::default();
        for (one, name) in all.chosen.iter().zip(&names) {
            let root = one.trace.root();
            let stratum = *numbers.entry(name).or_insert_with(|| {
                all.types.push(name.to_string());
                all.types.len() as u32 - 1
            });
            all.heads.push(Head {
                id: one.trace.id().to_string(),
                class: one.class,
                run: one.run,
                stratum,
                weight: weight::adjusted_count(one.recording, one.trace),
                length_ms: ms(root.duration_ns()),
                metric: metric(&method.metric, one.recording, one.trace),
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

    fn type_names(&self) -> Vec<Rc<str>> {
        let mut known: HashMap<(u32, Symbol, Symbol), Rc<str>, RandomState> = HashMap::default();
        let mut named = |run: u32, span: SpanView<'_>| {
            let key = (run, span.service_symbol(), span.name_symbol());
            let name = || labelled(span.service(), span.name()).into();
            Rc::clone(known.entry(key).or_insert_with(name))
        };
        if let Some(rule) = &self.method.key {
            let mut memory = String::new();
            let key = |one: &Chosen<'r>| {
                let values = RootAttributes::new(one.recording, one.trace);
                rule.key(one.trace.root().name(), &values, &mut memory).into()
            };
            return self.chosen.iter().map(key).collect();
        }
        let names: Vec<Rc<str>> = self.chosen.iter().map(|one| named(one.run, one.trace.root())).collect();
        if names.windows(2).any(|pair| !Rc::ptr_eq(&pair[0], &pair[1]) && pair[0] != pair[1]) {
            return names;
        }
        let entry = |one: &Chosen<'r>| {
            let root = one.trace.root();
            let other = one.trace.spans().find(|span| span.service() != root.service());
            named(one.run, other.unwrap_or(root))
        };
        self.chosen.iter().map(entry).collect()
    }

    fn is_shared(&self, span: SpanView<'_>) -> bool {
        !self.shared.is_empty() && self.shared.contains(span.service())
    }

    /// The service of a span; with the file's stem where several files share it.
    fn service(&self, span: SpanView<'_>) -> String {
        match self.is_shared(span) {
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
        let ignore = &self.method.ignore;
        let mut writer = Writer { ignore, run: one.run, zero: root.start(), variables, observed };
        let mut resources: Vec<u32> = Vec::new();
        let covered = if self.method.paper { Vec::new() } else { covered(trace) };
        for span in trace.spans() {
            let is_root = span.index() == root.index();
            if is_root && self.method.paper {
                continue;
            }
            let named = Operation { traces: self, span };
            let symbols = named.symbols(NO_SYMBOL);
            if !is_root {
                writer.event(About::Span, symbols, span.start(), || named.name());
            }
            if let Some(end) = span.end() {
                if !(is_root && self.method.is_duration_chosen) {
                    let duration = ms(span.duration_ns());
                    writer.state(About::Duration, symbols, end, duration, || format!("{} ms", named.name()));
                }
                if let Ok(place) = covered.binary_search_by_key(&span.index(), |&(index, _)| index) {
                    let own = ms(span.duration_ns().saturating_sub(covered[place].1));
                    writer.state(About::Own, symbols, end, own, || format!("{} own ms", named.name()));
                }
            }
            if let (Some(parent), Some(_)) = (span.parent(), span.end())
                && parent.service_symbol() != span.service_symbol()
                && let Some(end) = parent.end()
            {
                // In nanoseconds first: the difference of two large numbers of ms loses digits.
                let gap = i128::from(parent.duration_ns()) - i128::from(span.duration_ns());
                let is_plain = !self.is_shared(parent) && !self.is_shared(span);
                let symbols = is_plain.then(|| [parent.service_symbol(), span.service_symbol(), NO_SYMBOL]);
                writer.state(About::Gap, symbols, end, gap as f64 / 1e6, || {
                    format!("gap {}->{} ms", self.service(parent), self.service(span))
                });
            }
            if self.method.paper {
                continue;
            }
            if span.status() == Status::Error {
                let at = span.end().unwrap_or(span.start());
                writer.event(About::Error, symbols, at, || format!("{} error", named.name()));
            }
            if let Some(content) = span.content() {
                self.observe_content(one, &named, content, &mut resources, &mut writer);
            }
        }
        self.observe_logs(one, &mut writer);
    }
}

/// Stands for a symbol that a name does not have.
pub(super) const NO_SYMBOL: Symbol = Symbol(u32::MAX);

/// A span, to be named.
struct Operation<'t, 'r> {
    traces: &'t Traces<'r>,
    span: SpanView<'r>,
}

impl Operation<'_, '_> {
    fn service(&self) -> String {
        self.traces.service(self.span)
    }

    fn name(&self) -> String {
        labelled(&self.service(), self.span.name())
    }

    /// The symbols of the operation and one more; `None` if the service's name has the file's.
    fn symbols(&self, more: Symbol) -> Option<Symbols> {
        let is_plain = !self.traces.is_shared(self.span);
        is_plain.then(|| [self.span.service_symbol(), self.span.name_symbol(), more])
    }

    /// The symbols of the service and two more.
    fn symbols_of_service(&self, more: [Symbol; 2]) -> Option<Symbols> {
        let is_plain = !self.traces.is_shared(self.span);
        is_plain.then(|| [self.span.service_symbol(), more[0], more[1]])
    }
}

impl Traces<'_> {
    fn observe_logs(&self, one: &Chosen<'_>, writer: &mut Writer<'_>) {
        for log in one.trace.logs() {
            let Some(time) = log.time() else { continue };
            let is_plain = log.span().is_none_or(|span| !self.is_shared(span));
            let service_symbol = log.span().map_or(log.service_symbol(), |span| span.service_symbol());
            let service = || log.span().map_or_else(|| log.service().to_owned(), |span| self.service(span));
            let symbols = |more: Symbol| is_plain.then(|| [service_symbol, log.event_symbol(), more]);
            let event = || self.templates.name(log.event());
            writer.event(About::Log, symbols(NO_SYMBOL), time, || labelled(&service(), event()));
            if self.method.paper {
                continue;
            }
            for &(name, value) in log.values() {
                writer.state(About::LogNumber, symbols(name), time, value, || {
                    let number = &one.recording.log_names().name(name)[log.event().len()..];
                    labelled(&service(), &format!("{}{number}", event()))
                });
            }
        }
    }

    fn observe_content(
        &self,
        one: &Chosen<'_>,
        named: &Operation<'_, '_>,
        content: ContentView<'_>,
        resources: &mut Vec<u32>,
        writer: &mut Writer<'_>,
    ) {
        let (span, texts) = (named.span, one.recording.content_texts());
        for event in content.events {
            let name = || format!("{}: {}", named.name(), texts.name(event.name));
            writer.event(About::Event, named.symbols(event.name), event.time, name);
            let [class, message] = event.exception.map(|symbol| texts.name(symbol));
            if !class.is_empty() {
                let symbols = named.symbols(event.exception[0]);
                writer.event(About::Exception, symbols, event.time, || format!("{}: {class}", named.name()));
            }
            if !message.is_empty() {
                // Numbers and ids in a message differ from one exception to the next.
                let name = || format!("{}: {class} {}", named.name(), log_event::folded(message));
                writer.event(About::Message, named.symbols(event.exception[1]), event.time, name);
            }
        }
        // A resource's attributes say the same on each of its spans.
        let is_new = !resources.contains(&content.resource);
        resources.extend(is_new.then_some(content.resource));
        let of_resource = if is_new { content.resource_attributes } else { &[] };
        let all = content.attributes.iter().map(|own| (own, Role::Attribute));
        let all = all.chain(of_resource.iter().map(|own| (own, Role::Resource)));
        for (&(key, value), role) in all.filter(|((key, _), _)| !is_of_sampler(texts.name(*key))) {
            let number = match value {
                Kept::Int(value) => Some(value as f64),
                Kept::Double(value) => Some(value),
                _ => None,
            };
            if let Some(number) = number {
                let symbols = named.symbols_of_service([key, NO_SYMBOL]);
                let end = span.end().unwrap_or(span.start());
                writer.state(About::Number, symbols, end, number, || {
                    labelled(&named.service(), texts.name(key))
                });
            }
            if !self.named.has(one.run, span.service_symbol(), key) {
                continue;
            }
            let (text, symbols) = match value {
                Kept::Text(text) => (texts.name(text).into(), named.symbols_of_service([key, text])),
                Kept::Int(value) => (Cow::Owned(value.to_string()), None),
                Kept::Bool(value) => (Cow::Owned(value.to_string()), None),
                Kept::Double(_) | Kept::Other => continue,
            };
            let variable = writer.event(About::Value, symbols, span.start(), || {
                let text = self.named.value(one.run, span.service_symbol(), key, &text);
                format!("{} {}={text}", named.service(), texts.name(key))
            });
            variable.into_iter().for_each(|variable| writer.variables.set_role(variable, role));
        }
    }
}

/// Whether an attribute says how the trace was sampled. It follows from the durations and errors by
/// which a sampler decided, and explains none.
fn is_of_sampler(key: &str) -> bool {
    key.starts_with("sampler.") || key.starts_with("sampling.")
}

/// The recordings of these traces, each once.
fn recordings<'r>(chosen: &[Chosen<'r>]) -> impl Iterator<Item = &'r Recording> {
    let by_run: BTreeMap<u32, &'r Recording> = chosen.iter().map(|one| (one.run, one.recording)).collect();
    by_run.into_values()
}

/// The spans with children, by their index, with the nanoseconds during which a child ran.
fn covered(trace: TraceView<'_>) -> Vec<(u32, u64)> {
    let mut parts: Vec<(u32, u64, u64)> = Vec::new();
    for span in trace.spans() {
        let (Some(parent), Some(end)) = (span.parent(), span.end()) else { continue };
        let Some(parent_end) = parent.end() else { continue };
        let (from, to) = (span.start().0.max(parent.start().0), end.0.min(parent_end.0));
        parts.push((parent.index(), from, to.max(from)));
    }
    parts.sort_unstable();
    let length = |parts: &[(u32, u64, u64)]| {
        let mut reached = 0;
        parts.iter().fold(0, |sum, &(_, start, end)| {
            let start = start.max(reached);
            reached = reached.max(end);
            sum + end.saturating_sub(start)
        })
    };
    parts.chunk_by(|a, b| a.0 == b.0).map(|of_one| (of_one[0].0, length(of_one))).collect()
}

fn ms(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// "service name", or the name alone.
pub(super) fn labelled(service: &str, name: &str) -> String {
    if service.is_empty() { name.to_owned() } else { format!("{service} {name}") }
}

fn metric(metric: &Metric, recording: &Recording, trace: TraceView<'_>) -> f64 {
    match metric {
        Metric::Duration => ms(trace.root().duration_ns()),
        Metric::Errors => trace.spans().filter(|span| span.status() == Status::Error).count() as f64,
        Metric::Attribute(key) => {
            let content = trace.root().content();
            let attributes = content.map_or(&[][..], |content| content.attributes);
            let own = attributes.iter().find(|(own, _)| recording.content_texts().name(*own) == key);
            match own {
                Some(&(_, Kept::Int(value))) => value as f64,
                Some(&(_, Kept::Double(value))) => value,
                _ => f64::NAN,
            }
        }
        Metric::Operation(name) => {
            let of = trace.spans().filter(|span| span.name() == name.as_str());
            of.map(|span| ms(span.duration_ns())).sum()
        }
    }
}

/// The services that several files of HTrace share in each run. Each of its files is written by one
/// process, so they are different nodes of one service (HDFS's DataNodes). Other formats name nodes
/// themselves, or cut files by time. If a run has the service in one file or in another format, as
/// after a conversion, its nodes are not known, and the file's name would be the difference.
fn shared_services(chosen: &[Chosen<'_>]) -> HashSet<String> {
    let mut files: HashMap<&str, HashMap<u32, HashSet<Option<&str>>>> = HashMap::new();
    let mut seen: HashSet<(u32, Symbol, *const u8), RandomState> = HashSet::default();
    for one in chosen {
        for span in one.trace.spans() {
            // Texts are compared once for each service and file.
            if seen.insert((one.run, span.service_symbol(), span.file().as_ptr())) {
                let file = (span.format() == Some(Format::HTrace)).then(|| span.file());
                files.entry(span.service()).or_default().entry(one.run).or_default().insert(file);
            }
        }
    }
    let has_nodes = |files: &HashSet<Option<&str>>| files.len() > 1 && !files.contains(&None);
    let is_shared = |runs: &HashMap<u32, HashSet<Option<&str>>>| runs.values().all(has_nodes);
    files.into_iter().filter(|(_, runs)| is_shared(runs)).map(|(service, _)| service.to_owned()).collect()
}

/// The name of a file without folders and extensions.
fn stem(file: &str) -> &str {
    let name = file.rsplit(['/', '\\', ':']).next().unwrap_or(file);
    name.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(name)
}
