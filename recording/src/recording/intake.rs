//! The sink that collects spans into a recording.

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;
use rapidhash::fast::RandomState;

use super::documents::Documents;
use super::labels::Labels;
use super::log_groups::GroupLogs;
use super::points::{KeepPoints, NO_FIELDS, Points};
use super::values::write_value;
use super::{Marks, NO_TIME, NONE, Recording, SpanRow, content, x_trace};
use crate::intern::Symbol;
use crate::origin::Written;
use astracer_model::Format;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::LogRecord;
use astracer_model::otlp::otlp_size;
use astracer_model::problem::{Limit, Place, Problem, Problems};
use astracer_model::sink::{Content, Record, Sink, Wants};
use astracer_model::span::Span;
use astracer_model::value::{Attribute, Value};

/// The number of skipped files that are remembered by name; the rest are only counted.
const SKIPPED_MAX: usize = 100;
/// The number of raw names whose renamed form is cached.
const RENAMED_MAX: usize = 1 << 16;

/// The parts of each span that a recording keeps, in addition to its place in the tree, its times
/// and its name.
#[derive(Clone, Debug, Default)]
pub struct Keep {
    /// Keep attributes, events and links, so that spans can be written again.
    pub full: bool,
    /// Keep attributes and events in compact form.
    pub contents: bool,
    /// Keep the values of these attributes, taken from the span or else from its resource. If a key
    /// is repeated, the last value counts.
    pub labels: Vec<String>,
    /// Keep the values of these attributes, taken from the span only. If a key is repeated, the
    /// last value counts. Lists, maps and bytes are not kept.
    pub own_labels: Vec<String>,
    /// Keep tracestates, which contain samplers' thresholds.
    pub trace_states: bool,
    /// Keep the events of log records and the numbers that they state, joined to traces and spans.
    pub logs: bool,
    /// Keep log records with their texts, threads and origins, joined to traces and spans. Files of
    /// logs are skipped unless this or `logs` is set.
    pub records: bool,
    /// Keep the groups that log records belong to, such as requests.
    pub log_groups: Option<GroupLogs>,
    /// Keep the hosts and processes of spans.
    pub origins: bool,
    /// Keep the fields and events that a query asks about.
    pub points: Option<KeepPoints>,
    /// Read the events of X-Trace that spans have as an X-Trace file has them: a trace with such
    /// events consists of them, each an instant with edges from those before it.
    pub x_trace: bool,
}

/// A file that was skipped because it contains no traces.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// The file.
    pub file: Arc<str>,
    /// The reason for skipping it.
    pub reason: String,
}

type Rename<'c> = Box<dyn FnMut(&str, &mut String) + 'c>;
type Watch<'c> = Box<dyn FnMut(&Span<'_>, &str, Option<Format>) + 'c>;
type Stop<'c> = Box<dyn Fn() -> bool + 'c>;
type Progress<'c> = Box<dyn FnMut(u64) + 'c>;

/// A [`Sink`] that builds a [`Recording`].
pub struct Intake<'c> {
    keep: Keep,
    rename: Option<Rename<'c>>,
    watch: Option<Watch<'c>>,
    pub(super) stop: Option<Stop<'c>>,
    progress: Option<Progress<'c>>,
    /// Symbols of raw names, so that renaming runs once per name.
    renamed: HashMap<Box<str>, Symbol, RandomState>,
    trace_numbers: HashTable<u32>,
    hasher: RandomState,
    text: String,
    /// The current file and its format.
    file_format: Option<(Arc<str>, Format)>,
    pub(super) documents: Documents,
    pub(super) trace_ids: Vec<TraceId>,
    pub(super) recording: Recording,
}

impl fmt::Debug for Intake<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake")
            .field("keep", &self.keep)
            .field("spans", &self.recording.spans.len())
            .finish_non_exhaustive()
    }
}

impl<'c> Intake<'c> {
    /// Makes an intake without spans.
    pub fn new(keep: Keep) -> Self {
        let labels = Labels::new(&keep.labels, &keep.own_labels);
        let points = keep.points.as_ref().map(Points::new).unwrap_or_default();
        let mut recording = Recording { labels, points, ..Recording::default() };
        recording.logs.keep(keep.logs, keep.records, keep.log_groups.clone());
        Self {
            keep,
            rename: None,
            watch: None,
            stop: None,
            progress: None,
            renamed: HashMap::default(),
            trace_numbers: HashTable::new(),
            hasher: RandomState::default(),
            text: String::new(),
            file_format: None,
            documents: Documents::default(),
            trace_ids: Vec::new(),
            recording,
        }
    }

    /// Renames spans: `rename` receives each name and writes the one to use instead (with ids
    /// folded, for example). It is called at least once per distinct name, not once per span.
    pub fn rename_with(mut self, rename: impl FnMut(&str, &mut String) + 'c) -> Self {
        self.rename = Some(Box::new(rename));
        self
    }

    /// Shows each span to `watch` as it is read, with its name as renamed and the format of its
    /// file.
    pub fn watch_with(mut self, watch: impl FnMut(&Span<'_>, &str, Option<Format>) + 'c) -> Self {
        self.watch = Some(Box::new(watch));
        self
    }

    /// Polls `stop` from time to time and ends early when it returns true.
    pub fn stop_when(mut self, stop: impl Fn() -> bool + 'c) -> Self {
        self.stop = Some(Box::new(stop));
        self
    }

    /// Calls `progress` with the number of input bytes read since the last call.
    pub fn progress_to(mut self, progress: impl FnMut(u64) + 'c) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Keeps up to `per_kind` examples of each kind of problem, instead of 20.
    pub fn examples(mut self, per_kind: usize) -> Self {
        self.recording.problems = Problems::with_examples(per_kind);
        self
    }

    /// Sets the host of the files that follow, whatever they state; empty if it is unknown.
    pub fn set_host(&mut self, host: &str) {
        host.clone_into(&mut self.recording.origins.given);
    }

    /// True if log records were read.
    pub fn has_logs(&self) -> bool {
        !self.recording.logs.rows.is_empty()
    }

    /// Names a file that holds neither spans nor log records, but belongs to a host:
    /// [`Recording::host_of_file`] has it once all files are read.
    pub fn beside(&mut self, file: &Arc<str>) {
        self.recording.origins.file(file, Written::Beside);
    }

    /// The index of a trace id, for [`SpanRow::trace`].
    pub(super) fn trace_number(&mut self, id: TraceId) -> u32 {
        let hash = self.hasher.hash_one(id.0);
        if let Some(&number) = self.trace_numbers.find(hash, |&number| self.trace_ids[number as usize] == id)
        {
            return number;
        }
        let number = self.trace_ids.len() as u32;
        self.trace_ids.push(id);
        let (ids, hasher) = (&self.trace_ids, &self.hasher);
        self.trace_numbers.insert_unique(hash, number, |&number| hasher.hash_one(ids[number as usize].0));
        number
    }

    fn name(&mut self, raw: &str) -> Symbol {
        let Some(rename) = &mut self.rename else {
            return self.recording.names.intern(raw);
        };
        if let Some(&symbol) = self.renamed.get(raw) {
            return symbol;
        }
        self.text.clear();
        rename(raw, &mut self.text);
        let symbol = self.recording.names.intern(&self.text);
        if self.renamed.len() >= RENAMED_MAX {
            self.renamed.clear();
        }
        self.renamed.insert(raw.into(), symbol);
        symbol
    }

    fn label(&mut self, span: &Span<'_>) -> Symbol {
        self.recording.labels.set(&mut self.text, |key, is_own, text| {
            let mut write_last = |attributes: &[Attribute<'_>]| {
                let last = attributes.iter().rev().find(|attribute| attribute.key == key);
                // Policies compare these values, and no condition matches a list.
                let last = last.filter(|attribute| !is_own || is_plain(&attribute.value));
                last.map(|attribute| write_value(text, &attribute.value)).is_some()
            };
            write_last(&span.attributes) || !is_own && write_last(&span.resource.attributes)
        })
    }

    fn add(&mut self, span: Span<'_>, record: Record<'_>, marks: Marks) {
        // Indices have 32 bits, and the largest value means "none".
        if self.recording.spans.len() >= NONE as usize {
            let detail = format!("a recording holds at most {NONE} spans");
            self.problem(Problem::over(Limit::Spans, record.place.clone(), detail));
            return;
        }
        let trace = if span.trace_id == TraceId::ZERO { NONE } else { self.trace_number(span.trace_id) };
        let name = self.name(&span.name);
        let node = self.recording.nodes.of(&span.resource, &mut self.recording.services);
        self.documents.span(span.trace_id);
        let threshold = threshold(&span.trace_state);
        self.recording.is_weighted |=
            threshold.is_some_and(|digits| digits.bytes().any(|digit| digit != b'0'));
        let marks = marks
            .set_if(Marks::THRESHOLD, threshold.is_some())
            .set_if(Marks::SHARED, span.shared)
            .set_if(Marks::FOLLOWS, span.follows)
            .set_if(Marks::LONE, span.start.is_none() && span.lone_duration.is_some());
        let end = if marks.has(Marks::LONE) { span.lone_duration } else { span.end.map(|end| end.0) };
        let row = SpanRow {
            span_id: span.span_id,
            parent_id: span.parents.first().copied().unwrap_or(SpanId::ZERO),
            start: span.start.map_or(NO_TIME, |start| start.0),
            end: end.unwrap_or(NO_TIME),
            content: content::digest(&span, self.recording.nodes.digest(node)),
            byte: record.place.byte,
            trace,
            name,
            service: self.recording.nodes.get(node).service,
            record_bytes: u32::try_from(record.bytes.len()).unwrap_or(u32::MAX),
            otlp_bytes: u32::try_from(otlp_size(&span)).unwrap_or(u32::MAX),
            line: u32::try_from(record.place.line).unwrap_or(u32::MAX),
            parent: NONE,
            file: self.file_number(record.place),
            node,
            kind: span.kind,
            status: span.status,
            marks,
        };
        if span.parents.len() > 1 {
            let index = self.recording.spans.len() as u32;
            self.recording.more_parents.insert(index, span.parents[1..].into());
        }
        if !self.recording.labels.is_empty() {
            let label = self.label(&span);
            self.recording.span_labels.push(label);
        }
        if self.keep.trace_states {
            let symbol = self.recording.trace_states.intern(&span.trace_state);
            self.recording.span_trace_states.push(symbol);
        }
        let format = match marks.has(Marks::EVENT) {
            true => Some(Format::XTraceJson),
            false => self.recording.formats[row.file as usize],
        };
        if self.keep.origins {
            let written = match format {
                Some(Format::HTrace) => Written::Tracer,
                _ => Written::Collected,
            };
            let origin = self.recording.origins.of(&span.resource, &record.place.file, written);
            self.recording.span_origins.push(origin);
        }
        if let Some(keep) = &self.keep.points {
            let Recording { points, names, .. } = &mut self.recording;
            points.add(keep, &span, names.name(name), format);
        }
        if let Some(watch) = &mut self.watch {
            watch(&span, self.recording.names.name(name), format);
        }
        self.recording.spans.push(row);
        if self.keep.contents {
            self.recording.contents.add(&span);
        }
        if self.keep.full {
            self.recording.full.push(span.into_owned());
        }
    }

    fn file_number(&mut self, place: &Place) -> u32 {
        let files = &mut self.recording.files;
        if files.last().is_none_or(|last| !Arc::ptr_eq(last, &place.file)) {
            files.push(Arc::clone(&place.file));
            let told = self.file_format.as_ref().filter(|(file, _)| Arc::ptr_eq(file, &place.file));
            self.recording.formats.push(told.map(|&(_, format)| format));
        }
        (files.len() - 1) as u32
    }
}

/// The digits of the field `th` of the tracestate's member `ot`.
fn threshold(trace_state: &str) -> Option<&str> {
    let member = trace_state.split(',').find_map(|member| member.trim().strip_prefix("ot="));
    member?.split(';').find_map(|field| field.strip_prefix("th:"))
}

/// A text, a number or a boolean.
fn is_plain(value: &Value<'_>) -> bool {
    !matches!(value, Value::Array(_) | Value::Map(_) | Value::Bytes(_))
}

impl Sink for Intake<'_> {
    fn span(&mut self, span: Span<'_>, record: Record<'_>) {
        if !self.keep.x_trace || !x_trace::has_events(&span) {
            return self.add(span, record, Marks::default());
        }
        let mut bytes = record.bytes;
        for event in x_trace::events(&span) {
            // The record is counted once.
            self.add(event, Record { bytes: std::mem::take(&mut bytes), ..record }, Marks::EVENT);
        }
    }

    fn file(&mut self, file: &Arc<str>, content: Content) {
        match content {
            Content::Spans(format) => {
                self.file_format = Some((Arc::clone(file), format));
                self.document();
            }
            Content::Logs(format) => self.recording.logs.file(format),
            Content::Events(_) => {}
        }
    }

    fn wants(&self) -> Wants {
        Wants { logs: self.keep.logs || self.keep.records, events: false }
    }

    fn log(&mut self, log: LogRecord<'_>, record: Record<'_>) {
        let Recording { logs, services, origins, points, .. } = &mut self.recording;
        let keep = self.keep.points.as_ref();
        let fields = |name: &str| keep.map_or(NO_FIELDS, |keep| points.log(keep, &log, name));
        if let Err(problem) = logs.add(&log, record, services, origins, fields) {
            self.problem(problem);
        }
    }

    fn document(&mut self) {
        self.documents.next(self.recording.spans.len() as u32);
    }

    fn problem(&mut self, problem: Problem) {
        self.recording.problems.push(problem);
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        if self.recording.skipped.len() < SKIPPED_MAX {
            self.recording.skipped.push(Skipped { file: Arc::clone(file), reason: reason.to_owned() });
        } else {
            self.recording.skipped_more += 1;
        }
    }

    fn progress(&mut self, bytes: u64) {
        if let Some(progress) = &mut self.progress {
            progress(bytes);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop())
    }
}
