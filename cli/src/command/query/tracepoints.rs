//! `astracer query --tracepoints`: the names, hosts and fields that a query can ask for.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use astracer_causality::intake::Collected;
use astracer_model::value::Attribute;
use astracer_model::{EventKind, Format, Span, Value};
use astracer_queries::glob;
use astracer_recording::Recording;
use astracer_recording::recording::{CLASS, Keep, KeepPoints, SpanView};
use astracer_tuner::Stop;
use serde::Serialize;

use crate::failure::Failure;
use crate::load::{self, Causal, ProblemCount};
use crate::output;
use crate::source::{LogReading, Source};

/// Tracepoints whose fields are listed, the fields of one, and the hosts of one. The first by name
/// stay.
const NAMES: usize = 10_000;
const FIELDS: usize = 300;
const HOSTS: usize = 100;
/// Examples of a field: the first by their text.
const EXAMPLES: usize = 3;
/// The columns of an example.
const EXAMPLE_WIDTH: usize = 40;
/// Hosts of a tracepoint on the screen.
const HOSTS_SHOWN: usize = 5;

#[derive(Serialize)]
struct Listing<'a> {
    tracepoints: Vec<Tracepoint>,
    /// The fields of resources, which all their tracepoints have.
    resource: Vec<Field>,
    problems: &'a [ProblemCount],
}

#[derive(Serialize)]
struct Tracepoint {
    name: String,
    kind: Kind,
    /// Starts of spans, events, reports, system calls or log records.
    points: u64,
    hosts: Vec<String>,
    fields: Vec<Field>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Span,
    Event,
    Report,
    Call,
    Log,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Span => "span",
            Self::Event => "event",
            Self::Report => "report",
            Self::Call => "call",
            Self::Log => "log",
        }
    }
}

#[derive(Serialize)]
struct Field {
    name: String,
    types: BTreeSet<&'static str>,
    /// The records that have the field, with those that were written twice.
    count: u64,
    examples: BTreeSet<String>,
}

type Fields = BTreeMap<String, Field>;

/// The fields of each tracepoint, collected as spans are read. Beyond the limit, those first by
/// name are kept, whatever the order of files.
#[derive(Default)]
struct Found {
    names: BTreeMap<(Kind, String), Fields>,
    resource: Fields,
}

impl Found {
    fn span(&mut self, pattern: &str, span: &Span<'_>, name: &str, format: Option<Format>) {
        let is_report = format == Some(Format::XTraceJson);
        let class = span.attributes.iter().rev().find(|attribute| attribute.key == CLASS);
        let class = class.filter(|_| is_report).and_then(|class| class.value.as_str());
        let kind = if is_report { Kind::Report } else { Kind::Span };
        let mut any = self.point(pattern, kind, class.unwrap_or(name), &span.attributes);
        for event in &span.events {
            any |= self.point(pattern, Kind::Event, &event.name, &event.attributes);
        }
        if any {
            add(&mut self.resource, &span.resource.attributes);
        }
    }

    fn point(&mut self, pattern: &str, kind: Kind, name: &str, attributes: &[Attribute<'_>]) -> bool {
        if !glob(pattern, name) {
            return false;
        }
        let key = (kind, name.to_owned());
        add(self.names.entry(key).or_default(), attributes);
        if self.names.len() > NAMES {
            self.names.pop_last();
        }
        true
    }
}

fn add(fields: &mut Fields, attributes: &[Attribute<'_>]) {
    for attribute in attributes {
        let name: &str = &attribute.key;
        if !fields.contains_key(name) {
            let field =
                Field { name: name.to_owned(), types: BTreeSet::new(), count: 0, examples: BTreeSet::new() };
            fields.insert(name.to_owned(), field);
            if fields.len() > FIELDS {
                fields.pop_last();
            }
        }
        let Some(field) = fields.get_mut(name) else { continue };
        field.count += 1;
        field.types.insert(match &attribute.value {
            Value::Empty => "null",
            Value::String(_) => "text",
            Value::Bool(_) => "boolean",
            Value::Int(_) => "integer",
            Value::Double(_) => "number",
            Value::Bytes(_) => "bytes",
            Value::Array(_) => "list",
            Value::Map(_) => "map",
        });
        let example = astracer_queries::Value::from(&attribute.value).to_string();
        let example = output::shortened(&example, EXAMPLE_WIDTH);
        if !field.examples.contains(&*example) {
            field.examples.insert(example.into_owned());
            if field.examples.len() > EXAMPLES {
                field.examples.pop_last();
            }
        }
    }
}

/// The list of tracepoints as it is printed.
pub(super) fn run(
    source: &Source,
    pattern: &str,
    (top, as_json, logs): (usize, bool, Option<&LogReading>),
    stop: Stop<'_>,
) -> Result<String, Failure> {
    let found = RefCell::new(Found::default());
    let watch = |span: &Span<'_>, name: &str, format: Option<Format>| {
        found.borrow_mut().span(pattern, span, name, format);
    };
    let wanted = pattern.to_owned();
    let keep = KeepPoints {
        fields: vec![CLASS.to_owned()],
        own_fields: Vec::new(),
        wants: Arc::new(move |name, _| glob(&wanted, name)),
        lines: false,
    };
    let keep = Keep { points: Some(keep), origins: true, records: logs.is_some(), ..Keep::default() };
    let (loaded, input) = load::load_causes(source, keep, logs, Some(Box::new(watch)), stop)?;
    let mut counts = match &loaded {
        Causal::Spans(recording) => counts(recording, pattern, stop),
        Causal::All(collected) => counts(&collected.recording, pattern, stop).map(|mut counts| {
            of_calls(collected, pattern, &mut counts);
            counts
        }),
    }
    .ok_or(Failure::Interrupted)?;
    let Found { mut names, resource } = found.into_inner();
    let mut tracepoints: Vec<Tracepoint> = std::mem::take(&mut counts)
        .into_iter()
        .map(|(key, (points, hosts))| {
            let fields = names.remove(&key).unwrap_or_default().into_values().collect();
            let (kind, name) = key;
            Tracepoint { name, kind, points, hosts: hosts.into_iter().collect(), fields }
        })
        .collect();
    tracepoints.sort_by(|one, other| {
        other.points.cmp(&one.points).then_with(|| (&one.name, one.kind).cmp(&(&other.name, other.kind)))
    });
    let resource: Vec<Field> = resource.into_values().collect();
    if as_json {
        let problems = input.problems();
        return output::json(&Listing { tracepoints, resource, problems });
    }
    let mut text = input.heading();
    text.push('\n');
    if tracepoints.is_empty() {
        let _ = writeln!(
            text,
            "no tracepoint matches '{}'; omit the pattern to list all",
            output::escaped(pattern)
        );
    }
    let shown = if top == 0 { tracepoints.len() } else { top.min(tracepoints.len()) };
    tracepoints[..shown].iter().for_each(|tracepoint| show(tracepoint, &mut text));
    if tracepoints.len() > shown {
        let more = output::plural((tracepoints.len() - shown) as u64, "more tracepoint");
        let _ = writeln!(text, "... {more}: --top 0 shows all");
    }
    text.push_str("\nEach also has host, time, procName, procId, threadId, tracepoint, name,\n");
    text.push_str("target and trace; at @end a span has duration, busy and status too.\n");
    if tracepoints.iter().any(|tracepoint| matches!(tracepoint.kind, Kind::Call | Kind::Log)) {
        text.push_str("A call has bytes, from, to, file and child where it has them; a log record has\n");
        text.push_str("message and level.\n");
    }
    if tracepoints.iter().any(|tracepoint| tracepoint.kind == Kind::Report) {
        text.push_str("A report also has Agent, Host, Label, ProcessID, ThreadID and ThreadName.\n");
    }
    if !resource.is_empty() {
        text.push_str("Fields of resources, for each of their tracepoints:\n");
        resource.iter().for_each(|field| show_field(field, &mut text));
    }
    text.push_str(&input.footing());
    Ok(output::prose(&text))
}

/// The points and hosts of each tracepoint, with each span once.
type Counts = BTreeMap<(Kind, String), (u64, BTreeSet<String>)>;

fn counts(recording: &Recording, pattern: &str, stop: Stop<'_>) -> Option<Counts> {
    let mut counts = Counts::new();
    let mut add = |kind, name: &str, span: SpanView<'_>| {
        count(&mut counts, pattern, kind, name, recording.hosts().name(span.origin().host));
    };
    let values: Vec<Value<'_>> = recording.field_values().collect();
    let class = |span: SpanView<'_>| {
        let symbol = recording.field_symbols(span.fields()?).first().copied().flatten()?;
        values.get(symbol.index())?.as_str()
    };
    for trace in recording.traces() {
        if stop.is_asked() {
            return None;
        }
        for span in trace.spans() {
            match span.format() {
                Some(Format::XTraceJson) => {
                    add(Kind::Report, class(span).unwrap_or(span.name()), span);
                }
                _ => add(Kind::Span, span.name(), span),
            }
            span.events().for_each(|event| add(Kind::Event, event.name, span));
        }
    }
    Some(counts)
}

fn count(counts: &mut Counts, pattern: &str, kind: Kind, name: &str, host: &str) {
    if !glob(pattern, name) {
        return;
    }
    let (points, hosts) = counts.entry((kind, name.to_owned())).or_default();
    *points += 1;
    if !host.is_empty() && !hosts.contains(host) {
        hosts.insert(host.to_owned());
        if hosts.len() > HOSTS {
            hosts.pop_last();
        }
    }
}

/// Adds system calls and log records.
fn of_calls(collected: &Collected, pattern: &str, counts: &mut Counts) {
    let (events, recording) = (&collected.events, &collected.recording);
    for row in events.rows() {
        let of_call = events.calls().name(row.call);
        let name = match row.kind {
            EventKind::SpanStart | EventKind::SpanEvent | EventKind::SpanEnd => continue,
            EventKind::Log if of_call.is_empty() => continue,
            kind if of_call.is_empty() => kind.name(),
            _ => of_call,
        };
        let host = if events.is_host_known(row) { events.host(row) } else { "" };
        count(counts, pattern, Kind::Call, name, host);
    }
    for log in recording.logs() {
        count(counts, pattern, Kind::Log, log.event(), recording.hosts().name(log.origin().host));
    }
}

fn show(tracepoint: &Tracepoint, text: &mut String) {
    let hosts = tracepoint.hosts.iter().take(HOSTS_SHOWN).map(|host| output::escaped(host));
    let hosts = hosts.collect::<Vec<_>>().join(", ");
    let hosts = if hosts.is_empty() { "unknown hosts".to_owned() } else { hosts };
    let more = match tracepoint.hosts.len().saturating_sub(HOSTS_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let points = output::plural(tracepoint.points, "point");
    let name = output::brief(output::named(&tracepoint.name));
    let _ = writeln!(text, "{name} ({}, {points} on {hosts}{more})", tracepoint.kind.name());
    tracepoint.fields.iter().for_each(|field| show_field(field, text));
}

fn show_field(field: &Field, text: &mut String) {
    let types = field.types.iter().copied().collect::<Vec<_>>().join(" or ");
    let examples: Vec<_> = field.examples.iter().map(|example| output::escaped(example)).collect();
    let _ = writeln!(
        text,
        "  {}: {types}, {} times: {}",
        output::brief(&field.name),
        output::count(field.count),
        examples.join(", ")
    );
}
