//! Fields, events and links of spans, kept for queries.
//!
//! Only the spans and events that a query names have fields, and only those fields that it names.
//! Values keep their types.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rapidhash::fast::RandomState;

use super::NONE;
use super::labels::Labels;
use super::values::{decode, encode};
use crate::intern::{Interner, Symbol};
use astracer_model::Format;
use astracer_model::ids::SpanId;
use astracer_model::log::LogRecord;
use astracer_model::span::Span;
use astracer_model::time::UnixNanos;
use astracer_model::value::{Attribute, Value};

/// Marks a span or event without fields.
pub(super) const NO_FIELDS: Symbol = Symbol(NONE);
/// The field with the class of an X-Trace report.
pub const CLASS: &str = "Class";
/// The field with the name of the instrumentation scope.
pub const SCOPE: &str = "otel.scope.name";

/// The points that a query asks about.
#[derive(Clone)]
pub struct KeepPoints {
    /// The fields that are kept: attributes of a span or an event, or else of its resource.
    pub fields: Vec<String>,
    /// Fields that are not taken from resources, because they have another meaning there.
    pub own_fields: Vec<String>,
    /// Decides by a span's name (as renamed), a report's class or an event's name, and by its line
    /// of source code, whether the query names it.
    pub wants: Arc<Wants>,
    /// Whether `wants` looks at lines of source code.
    pub lines: bool,
}

/// See [`KeepPoints::wants`].
pub type Wants = dyn Fn(&str, Option<(&str, u32)>) -> bool + Send + Sync;

impl fmt::Debug for KeepPoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fields, own) = (&self.fields, &self.own_fields);
        f.debug_struct("KeepPoints").field("fields", fields).field("own_fields", own).finish_non_exhaustive()
    }
}

/// One kept event.
#[derive(Clone, Copy, Debug)]
struct EventRow {
    span: u32,
    time: u64,
    name: Symbol,
    fields: Symbol,
}

/// The kept points of a recording.
#[derive(Debug, Default)]
pub(super) struct Points {
    fields: Labels,
    /// The set in `fields` of each span.
    span_fields: Vec<Symbol>,
    event_names: Interner,
    /// In the order of spans, then as written.
    events: Vec<EventRow>,
    /// The pieces of a span, whose events are the span's.
    pieces: HashMap<u32, Vec<u32>, RandomState>,
    /// The spans of the same trace that a span is linked to.
    links: HashMap<u32, Box<[SpanId]>, RandomState>,
    /// Whether a name is wanted, for those seen so far.
    wanted: HashMap<Box<str>, bool, RandomState>,
    text: String,
}

impl Points {
    pub(super) fn new(keep: &KeepPoints) -> Self {
        Self { fields: Labels::new(&keep.fields, &keep.own_fields), ..Self::default() }
    }

    /// Adds the next span, whose name was renamed to `name`.
    pub(super) fn add(&mut self, keep: &KeepPoints, span: &Span<'_>, name: &str, format: Option<Format>) {
        let index = self.span_fields.len() as u32;
        let is_report = format == Some(Format::XTraceJson);
        let class = is_report.then(|| last(&span.attributes, CLASS).and_then(Value::as_str)).flatten();
        let wanted = self.is_wanted(keep, class.unwrap_or(name), &span.attributes);
        let fields = match wanted {
            true => self.set(&span.attributes, span, is_report),
            false => NO_FIELDS,
        };
        self.span_fields.push(fields);
        for event in &span.events {
            if self.is_wanted(keep, &event.name, &event.attributes) {
                let fields = self.set(&event.attributes, span, false);
                let name = self.event_names.intern(&event.name);
                self.events.push(EventRow { span: index, time: event.time.0, name, fields });
            }
        }
        let links = span.links.iter().filter(|link| link.trace_id == span.trace_id);
        let links: Box<[SpanId]> = links.map(|link| link.span_id).collect();
        if !links.is_empty() {
            self.links.insert(index, links);
        }
    }

    fn is_wanted(&mut self, keep: &KeepPoints, name: &str, attributes: &[Attribute<'_>]) -> bool {
        if keep.lines
            && let Some(line) = source_line(attributes)
        {
            return (keep.wants)(name, Some(line));
        }
        if let Some(&wanted) = self.wanted.get(name) {
            return wanted;
        }
        let wanted = (keep.wants)(name, None);
        // Names may be unique; a recording keeps its own copy of them.
        if self.wanted.len() >= 1 << 16 {
            self.wanted.clear();
        }
        self.wanted.insert(name.into(), wanted);
        wanted
    }

    /// The fields of a point of this span, whose own attributes are `own`.
    fn set(&mut self, own: &[Attribute<'_>], span: &Span<'_>, is_report: bool) -> Symbol {
        self.fields.set(&mut self.text, |key, is_own, text| {
            let of_report = || is_report.then(|| reported(span, key)).flatten();
            let of_resource = || last(&span.resource.attributes, key).map(Cow::Borrowed);
            let value = last(own, key).map(Cow::Borrowed).or_else(of_report);
            let value = if is_own { value } else { value.or_else(of_resource) };
            if let Some(value) = value {
                encode(text, &value);
                return true;
            }
            let scope = &span.scope.name;
            let is_scope = key == SCOPE && !scope.is_empty();
            if is_scope {
                encode(text, &Value::String(Cow::Borrowed(scope)));
            }
            is_scope
        })
    }

    /// The fields of a log record whose name a query asks for.
    pub(super) fn log(&mut self, keep: &KeepPoints, log: &LogRecord<'_>, name: &str) -> Symbol {
        if !self.is_wanted(keep, name, &log.attributes) {
            return NO_FIELDS;
        }
        self.fields.set(&mut self.text, |key, is_own, text| {
            let members = if let Value::Map(members) = &log.body { &members[..] } else { &[] };
            let of_resource = || last(&log.resource.attributes, key).filter(|_| !is_own);
            let value = last(&log.attributes, key).or_else(|| last(members, key)).or_else(of_resource);
            if let Some(value) = value {
                encode(text, value);
            }
            value.is_some()
        })
    }

    /// Adds what a piece of a span states.
    pub(super) fn merge(&mut self, into: u32, piece: u32) {
        let (at, from) = (into as usize, piece as usize);
        let (Some(&own), Some(&theirs)) = (self.span_fields.get(at), self.span_fields.get(from)) else {
            return;
        };
        self.span_fields[at] = match (own, theirs) {
            (fields, NO_FIELDS) | (NO_FIELDS, fields) => fields,
            _ => self.fields.merge(own, theirs),
        };
        let more = self.pieces.remove(&piece).unwrap_or_default();
        self.pieces.entry(into).or_default().extend(std::iter::once(piece).chain(more));
        if let Some(links) = self.links.remove(&piece) {
            self.links.entry(into).or_insert(links);
        }
    }

    pub(super) fn fields_of(&self, span: u32) -> Option<Symbol> {
        self.span_fields.get(span as usize).copied().filter(|&fields| fields != NO_FIELDS)
    }

    pub(super) fn field_keys(&self) -> impl Iterator<Item = &str> {
        let (keys, own) = self.fields.keys();
        keys.iter().chain(own).map(String::as_str)
    }

    pub(super) fn found(&self) -> Vec<bool> {
        self.fields.found()
    }

    pub(super) fn symbols(&self, fields: Symbol) -> &[Option<Symbol>] {
        self.fields.symbols(fields)
    }

    pub(super) fn values(&self) -> impl ExactSizeIterator<Item = Value<'_>> {
        self.fields.texts().names().map(decode)
    }

    pub(super) fn events_of(&self, span: u32) -> impl Iterator<Item = EventView<'_>> {
        let pieces = self.pieces.get(&span).into_iter().flatten().copied();
        std::iter::once(span).chain(pieces).flat_map(|span| {
            let first = self.events.partition_point(|event| event.span < span);
            let own = self.events[first..].iter().take_while(move |event| event.span == span);
            own.map(|row| self.event(row))
        })
    }

    /// An event by its number in [`Self::events_of`], without a walk through those before.
    pub(super) fn event_of(&self, span: u32, number: usize) -> Option<EventView<'_>> {
        let first = self.events.partition_point(|event| event.span < span);
        match self.events.get(first + number).filter(|event| event.span == span) {
            Some(row) => Some(self.event(row)),
            None => self.events_of(span).nth(number),
        }
    }

    fn event(&self, row: &EventRow) -> EventView<'_> {
        EventView {
            time: UnixNanos(row.time),
            name: self.event_names.name(row.name),
            name_symbol: row.name,
            fields: row.fields,
        }
    }

    pub(super) fn event_names(&self) -> &Interner {
        &self.event_names
    }

    pub(super) fn links_of(&self, span: u32) -> &[SpanId] {
        self.links.get(&span).map_or(&[], |links| links)
    }
}

/// A kept event of a span.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EventView<'r> {
    /// The time of the event.
    pub time: UnixNanos,
    /// Its name.
    pub name: &'r str,
    /// The symbol of its name among [`super::Recording::event_names`].
    pub name_symbol: Symbol,
    /// The symbol of its fields, for [`super::Recording::field_symbols`].
    pub fields: Symbol,
}

/// The value of the last attribute with this key, as elsewhere in a recording.
fn last<'s, 'a>(attributes: &'s [Attribute<'a>], key: &str) -> Option<&'s Value<'a>> {
    attributes.iter().rev().find(|attribute| attribute.key == key).map(|attribute| &attribute.value)
}

/// The keys of an X-Trace report that its reader stores under other names.
fn reported<'s>(span: &'s Span<'_>, key: &str) -> Option<Cow<'s, Value<'s>>> {
    let own = |key| last(&span.attributes, key).map(Cow::Borrowed);
    let of_resource = |key| last(&span.resource.attributes, key).map(Cow::Borrowed);
    match key {
        "ThreadID" => own("thread.id"),
        "ThreadName" => own("thread.name"),
        "Host" => of_resource("host.name"),
        "ProcessID" => of_resource("xtrace.process"),
        "Agent" if !span.wording.derived_service => of_resource("service.name"),
        "Label" if !span.wording.derived_name => Some(Cow::Owned(Value::String(Cow::Borrowed(&span.name)))),
        _ => None,
    }
}

/// The line of source code that attributes state, by OpenTelemetry's names of any version.
fn source_line<'s>(attributes: &'s [Attribute<'_>]) -> Option<(&'s str, u32)> {
    let file = ["code.file.path", "code.filepath"].into_iter().find_map(|key| last(attributes, key))?;
    let line = ["code.line.number", "code.lineno"].into_iter().find_map(|key| last(attributes, key))?;
    let line = match line {
        Value::Int(line) => u32::try_from(*line).ok()?,
        Value::String(text) => text.parse().ok()?,
        _ => return None,
    };
    Some((file.as_str()?, line))
}
