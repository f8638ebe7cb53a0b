//! The log records of a recording, joined to their traces and spans.
//!
//! A record is kept as its time, its event and the numbers it states; of each event one message is
//! kept as an example.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use rapidhash::fast::RandomState;

use super::log_groups::{GroupLogs, Groups};
use super::mentions::Mentions;
use super::numbers::Numbers;
use super::origins::Origins;
use super::points::NO_FIELDS;
use super::view::{SpanView, TraceView};
use super::{NO_TIME, NONE, Origin, Recording};
use crate::intern::{Interner, Symbol};
use crate::log_event;
use crate::origin::{Written, program};
use crate::sets;
use crate::stem::stem;
use crate::stop::Pulse;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::{LogFormat, LogRecord, Severity};
use astracer_model::problem::{Limit, Place, Problem};
use astracer_model::sink::Record;
use astracer_model::text::lossy;
use astracer_model::time::UnixNanos;

/// The fixed part of one log record.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogRow {
    pub(super) time: u64,
    first_value: u64,
    values: u32,
    pub(super) event: Symbol,
    pub(super) service: Symbol,
    /// The position of the trace in [`Recording::traces`]; `NONE` if it is not in the recording.
    pub(super) trace: u32,
    /// The index of the span; `NONE` if it is not in the trace.
    pub(super) span: u32,
    file: u32,
    line: u32,
    byte: u64,
    pub(super) severity: Severity,
    /// True if the record states no service, so that it has the name of its file.
    is_named_by_file: bool,
}

/// The log records of a recording; empty unless [`super::Keep::logs`] is set.
#[derive(Debug, Default)]
pub(super) struct Logs {
    pub(super) rows: Vec<LogRow>,
    /// The ids of each row, until the rows are joined.
    ids: Vec<(TraceId, SpanId)>,
    /// Further numbers of each row that may be ids, until the rows are joined.
    mentions: Mentions,
    stated: Stated,
    /// Events, and the numbers of events.
    pub(super) names: Interner,
    values: Vec<(Symbol, f64)>,
    /// The least of the messages of each event, for people.
    examples: Vec<Box<str>>,
    /// The place of the folded message in the name of each event; `NONE` if another thing names it.
    message_places: Vec<u32>,
    /// The groups of each row; empty unless [`super::Keep::log_groups`] is set.
    groups: Groups,
    files: Vec<(Arc<str>, Option<LogFormat>)>,
    /// The format of the current file.
    format: Option<LogFormat>,
    /// Trace `n` has the rows from `first[n]` to `first[n + 1]`. Rows without a trace follow.
    first: Vec<u32>,
    text: String,
    /// Whether events with their numbers are kept, and whether records are.
    keeps: (bool, bool),
    grouping: Option<GroupLogs>,
    /// The texts of all records, and the further parts of each row; empty unless records are kept.
    texts: Vec<u8>,
    details: Vec<Detail>,
    threads: Interner,
}

/// Log records that belong to no trace of the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// Records that state no trace.
    pub none: u64,
    /// Records that state a trace that is not in the recording.
    pub elsewhere: u64,
}

/// The parts of a record that only [`super::Keep::records`] keeps.
#[derive(Clone, Copy, Debug)]
struct Detail {
    /// The beginning of the text, and its length.
    text: (u64, u32),
    thread: Symbol,
    /// The service that the record's resource states.
    service: Symbol,
    origin: u32,
    ids: (TraceId, SpanId),
    /// The place of the message in the text.
    message: (u32, u32),
    fields: Symbol,
    /// The unit of the time's last digit, in nanoseconds.
    resolution: u64,
}

impl Logs {
    /// Sets whether events and their numbers, and whether records are kept, and the groups of
    /// records.
    pub(super) fn keep(&mut self, events: bool, records: bool, grouping: Option<GroupLogs>) {
        self.keeps = (events, records);
        self.grouping = grouping;
    }

    /// Announces that the next records are of this format.
    pub(super) fn file(&mut self, format: LogFormat) {
        self.format = Some(format);
    }

    /// Adds a record. The problem says why it can't be added.
    pub(super) fn add(
        &mut self,
        log: &LogRecord<'_>,
        record: Record<'_>,
        services: &mut Interner,
        origins: &mut Origins,
        fields: impl FnOnce(&str) -> Symbol,
    ) -> Result<(), Problem> {
        if self.rows.len() >= NONE as usize {
            let detail = format!("a recording holds at most {NONE} log records");
            return Err(Problem::over(Limit::LogRecords, record.place.clone(), detail));
        }
        let file = match self.files.last() {
            Some((last, _)) if Arc::ptr_eq(last, &record.place.file) => self.files.len() - 1,
            _ => {
                self.files.push((Arc::clone(&record.place.file), self.format));
                self.files.len() - 1
            }
        };
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let first_value = self.values.len();
        let (names, values) = (&mut self.names, &mut self.values);
        // The numbers are named after the event is known.
        let mut numbers: Vec<(String, f64)> = Vec::new();
        let mut message_at = None;
        if self.keeps.0 {
            message_at = log_event::event(log, &mut text, |name, value| {
                let mut suffix = String::new();
                name.write(&mut suffix);
                numbers.push((suffix, value));
            });
        } else {
            text.push_str(log_name(log));
        }
        let event = names.intern(&text);
        if let Some(at) = message_at {
            if self.message_places.len() <= event.index() {
                self.message_places.resize(event.index() + 1, NONE);
            }
            self.message_places[event.index()] = at as u32;
        }
        let event_bytes = text.len();
        for (suffix, value) in numbers {
            text.truncate(event_bytes);
            text.push_str(&suffix);
            values.push((names.intern(&text), value));
        }
        self.text = text;
        if self.keeps.0 {
            self.keep_example(event, log_event::message(log));
        }
        let service = services.intern(&program(&log.resource));
        if self.keeps.1 {
            let text = lossy(record.bytes);
            // A record is shorter than 4 GiB.
            let text = text.get(..u32::MAX as usize).unwrap_or(&text);
            self.details.push(Detail {
                text: (self.texts.len() as u64, text.len() as u32),
                thread: self.threads.intern(&log.thread),
                service,
                origin: origins.of(&log.resource, &record.place.file, Written::Beside),
                ids: (log.trace_id, log.span_id),
                message: {
                    let message = log_event::message(log);
                    // Escapes of JSON differ; then the whole record is the message.
                    let found = place_in(text, message).map(|at| (at as u32, message.len() as u32));
                    found.unwrap_or((0, text.len() as u32))
                },
                fields: fields(log_name(log)),
                resolution: log.resolution,
            });
            self.texts.extend_from_slice(text.as_bytes());
        }
        if let Some(GroupLogs(groups_of)) = &self.grouping {
            let text = lossy(record.bytes);
            self.groups.add(|found| groups_of(log, &text, found));
        }
        self.rows.push(LogRow {
            time: log.when().map_or(NO_TIME, |time| time.0),
            first_value: first_value as u64,
            values: (self.values.len() - first_value) as u32,
            event,
            service,
            trace: NONE,
            span: NONE,
            file: file as u32,
            line: u32::try_from(record.place.line).unwrap_or(u32::MAX),
            byte: record.place.byte,
            severity: log.severity,
            is_named_by_file: false,
        });
        let ids = (log.trace_id, log.span_id);
        self.mentions.add(record.bytes, ids);
        self.ids.push(ids);
        Ok(())
    }

    fn keep_example(&mut self, event: Symbol, message: &str) {
        if self.examples.len() <= event.index() {
            self.examples.resize(event.index() + 1, Box::default());
        }
        let example = &mut self.examples[event.index()];
        if example.is_empty() || message < &**example && !message.is_empty() {
            *example = message.into();
        }
    }
}

/// The place of a message in the text that it was read from. Mostly it is a part of that very text,
/// and need not be searched for.
fn place_in(text: &str, message: &str) -> Option<usize> {
    let at = (message.as_ptr() as usize).checked_sub(text.as_ptr() as usize);
    let is_part = |at: &usize| text.len() >= message.len() && *at <= text.len() - message.len();
    at.filter(is_part).or_else(|| text.find(message))
}

/// The name by which a query finds a record: its event's, else its logger's, else `log`.
fn log_name<'l>(log: &'l LogRecord<'_>) -> &'l str {
    match (&*log.event_name, &*log.logger) {
        ("", "") => "log",
        ("", logger) => logger,
        (event, _) => event,
    }
}

/// Joins the records to the traces and spans that their ids name, and puts them in an order that
/// does not depend on the files'.
pub(super) fn join(recording: &mut Recording, pulse: &mut Pulse<'_>) {
    if recording.logs.rows.is_empty() {
        recording.logs.first = vec![0; recording.traces.len() + 1];
        return;
    }
    find_traces(recording, pulse);
    if pulse.stopped() {
        return;
    }
    let mut order: Vec<u32> = (0..recording.logs.rows.len() as u32).collect();
    {
        let logs = &recording.logs;
        let rank = |&index: &u32| {
            let row = &logs.rows[index as usize];
            let file = &*logs.files[row.file as usize].0;
            ((row.trace, row.time), (logs.names.name(row.event), file, row.byte))
        };
        if !pulse.sort_by_key(&mut order, rank) {
            return;
        }
    }
    let logs = &mut recording.logs;
    logs.rows = order.iter().map(|&index| logs.rows[index as usize]).collect();
    logs.details = match logs.details.is_empty() {
        true => Vec::new(),
        false => order.iter().map(|&index| logs.details[index as usize]).collect(),
    };
    logs.groups.reorder(&order);
    let ids = std::mem::take(&mut logs.ids);
    let mentions = std::mem::take(&mut logs.mentions);
    number(logs);
    find_spans(recording, pulse, |at| (ids[order[at] as usize].1, mentions.of(order[at] as usize)));
    name_services(recording);
    let logs = &mut recording.logs;
    let ends =
        (0..=recording.traces.len() as u32).map(|trace| logs.rows.partition_point(|row| row.trace < trace));
    logs.first = ends.map(|end| end as u32).collect();
}

/// Numbers events in the order of the rows, so that nothing depends on the order of files.
fn number(logs: &mut Logs) {
    let mut numbers = Numbers::new(logs.names.len());
    for row in &logs.rows {
        numbers.see(row.event);
        let range = row.first_value as usize..row.first_value as usize + row.values as usize;
        logs.values[range].iter().for_each(|&(name, _)| numbers.see(name));
    }
    if !numbers.is_changed(&logs.names) {
        return;
    }
    logs.names.renumber(&numbers.of);
    let renumbered = |symbol: Symbol| Symbol(numbers.of[symbol.index()]);
    logs.rows.iter_mut().for_each(|row| row.event = renumbered(row.event));
    logs.values.iter_mut().for_each(|(name, _)| *name = renumbered(*name));
    let mut examples = vec![Box::default(); logs.names.len()];
    for (event, example) in (0u32..).zip(std::mem::take(&mut logs.examples)) {
        examples[renumbered(Symbol(event)).index()] = example;
    }
    logs.examples = examples;
    let mut places = vec![NONE; logs.names.len()];
    for (event, place) in (0u32..).zip(std::mem::take(&mut logs.message_places)) {
        places[renumbered(Symbol(event)).index()] = place;
    }
    logs.message_places = places;
}

/// Finds the span of each row, whose trace is known: the one that it states, or else mentions.
fn find_spans<'m>(
    recording: &mut Recording,
    pulse: &mut Pulse<'_>,
    ids: impl Fn(usize) -> (SpanId, &'m [u128]),
) {
    let mut by_id: Vec<(SpanId, u32)> = Vec::new();
    let mut current = NONE;
    for at in 0..recording.logs.rows.len() {
        let trace = recording.logs.rows[at].trace;
        if trace == NONE {
            return;
        }
        if trace != current {
            current = trace;
            let row = &recording.traces[trace as usize];
            let members = &recording.order[row.first as usize..][..row.len as usize];
            by_id.clear();
            by_id.extend(members.iter().map(|&index| (recording.spans[index as usize].span_id, index)));
            by_id.sort_unstable();
            pulse.stopped_after(members.len());
        }
        let (stated, mentioned) = ids(at);
        let mentioned = mentioned.iter().filter_map(|&number| u64::try_from(number).ok()).map(SpanId);
        let found = std::iter::once(stated).chain(mentioned).find_map(|id| {
            let found = by_id.partition_point(|&(known, _)| known < id);
            by_id.get(found).filter(|&&(known, _)| known == id)
        });
        if let Some(&(id, index)) = found {
            recording.logs.rows[at].span = index;
            if let Some(detail) = recording.logs.details.get_mut(at) {
                detail.ids.1 = id;
            }
        }
        if pulse.stopped() {
            return;
        }
    }
}

/// A record whose resource names no service belongs to that of its span, or else to the service
/// named like its file.
fn name_services(recording: &mut Recording) {
    let mut stems: Vec<Option<Symbol>> = vec![None; recording.logs.files.len()];
    for row in &mut recording.logs.rows {
        if !recording.services.name(row.service).is_empty() {
            continue;
        }
        if row.span != NONE {
            row.service = recording.spans[row.span as usize].service;
        }
        if recording.services.name(row.service).is_empty() {
            let file = &recording.logs.files[row.file as usize].0;
            let services = &mut recording.services;
            row.service =
                *stems[row.file as usize].get_or_insert_with(|| services.intern(stem(&sets::of(file).0)));
            row.is_named_by_file = true;
        }
    }
}

/// One log record of a [`Recording`].
#[derive(Clone, Copy, Debug)]
pub struct LogView<'r> {
    recording: &'r Recording,
    row: &'r LogRow,
    /// The row's place among all.
    at: usize,
}

impl<'r> LogView<'r> {
    /// The time of the event; `None` if the record states none.
    pub fn time(self) -> Option<UnixNanos> {
        Some(self.row.time).filter(|&time| time != NO_TIME).map(UnixNanos)
    }

    /// The event, as [`log_event::event`] names it: without the service.
    pub fn event(self) -> &'r str {
        self.recording.logs.names.name(self.row.event)
    }

    /// The symbol of [`Self::event`] in [`Recording::log_names`].
    pub fn event_symbol(self) -> Symbol {
        self.row.event
    }

    /// The service that wrote the record: that of its resource, or else of its span, or else the
    /// name of its file.
    pub fn service(self) -> &'r str {
        self.recording.services.name(self.row.service)
    }

    /// The symbol of [`Self::service`] in [`Recording::services`].
    pub fn service_symbol(self) -> Symbol {
        self.row.service
    }

    /// The symbol in [`Recording::services`] of the service that the record's resource states, or
    /// of the empty name; `None` without [`super::Keep::records`].
    pub fn stated_service(self) -> Option<Symbol> {
        self.detail().map(|detail| detail.service)
    }

    /// True if [`Self::service`] is the name of the record's file, since nothing states a service.
    pub fn is_named_by_file(self) -> bool {
        self.row.is_named_by_file
    }

    /// The groups of the record, as symbols of [`Recording::log_groups`]; none unless
    /// [`super::Keep::log_groups`] is set.
    pub fn groups(self) -> &'r [Symbol] {
        self.recording.logs.groups.of(self.at)
    }

    /// The record's file.
    pub fn file(self) -> &'r Arc<str> {
        &self.recording.logs.files[self.row.file as usize].0
    }

    /// The severity.
    pub fn severity(self) -> Severity {
        self.row.severity
    }

    /// The numbers that the record states, each with the symbol of its name in
    /// [`Recording::log_names`]: the event's name, and behind it the number's.
    pub fn values(self) -> &'r [(Symbol, f64)] {
        let first = self.row.first_value as usize;
        &self.recording.logs.values[first..first + self.row.values as usize]
    }

    /// The span that the record names; `None` if it names none, or one that its trace lacks.
    pub fn span(self) -> Option<SpanView<'r>> {
        (self.row.span != NONE).then(|| self.recording.span(self.row.span))
    }

    /// The trace of the record, if it is in the recording.
    pub fn trace(self) -> Option<TraceView<'r>> {
        self.recording.trace(self.row.trace as usize).filter(|_| self.row.trace != NONE)
    }

    /// The record's text as written, and with [`super::Keep::records`] only.
    pub fn text(self) -> &'r str {
        let Some(Detail { text: (first, len), .. }) = self.detail() else { return "" };
        let logs = &self.recording.logs;
        let bytes = logs.texts.get(first as usize..first as usize + len as usize);
        std::str::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
    }

    /// The record's message as it stands in the text `(place, length)`; with
    /// [`super::Keep::records`] only.
    pub fn message_place(self) -> (u32, u32) {
        self.detail().map_or((0, 0), |detail| detail.message)
    }

    /// The symbol of the record's fields, for [`Recording::field_symbols`]; `None` if none were
    /// kept.
    pub fn fields(self) -> Option<Symbol> {
        self.detail().map(|detail| detail.fields).filter(|&fields| fields != NO_FIELDS)
    }

    /// The place of the record's text in [`Recording::take_log_texts`].
    pub fn text_place(self) -> (u64, u32) {
        self.detail().map_or((0, 0), |detail| detail.text)
    }

    /// The unit of the last digit of the record's time, in nanoseconds: the event is less than this
    /// later. 0 without [`super::Keep::records`].
    pub fn resolution(self) -> u64 {
        self.detail().map_or(0, |detail| detail.resolution)
    }

    /// The thread that the record states; empty if it states none, and without
    /// [`super::Keep::records`].
    pub fn thread(self) -> &'r str {
        self.detail().map_or("", |detail| self.recording.logs.threads.name(detail.thread))
    }

    /// The symbol of [`Self::thread`], for comparisons.
    pub fn thread_symbol(self) -> Symbol {
        self.detail().map_or(Symbol(0), |detail| detail.thread)
    }

    /// The record's host, clock and process; unknown without [`super::Keep::records`].
    pub fn origin(self) -> Origin {
        self.detail().map_or(Origin::UNKNOWN, |detail| self.recording.origins.get(detail.origin))
    }

    /// The ids that the record states, or mentions if they are in the recording; zero if it states
    /// none, and without [`super::Keep::records`].
    pub fn ids(self) -> (TraceId, SpanId) {
        self.detail().map_or((TraceId::ZERO, SpanId::ZERO), |detail| detail.ids)
    }

    fn detail(self) -> Option<Detail> {
        self.recording.logs.details.get(self.at).copied()
    }

    /// The file and line of the record.
    pub fn place(self) -> Place {
        let (file, _) = &self.recording.logs.files[self.row.file as usize];
        Place { file: Arc::clone(file), line: u64::from(self.row.line), byte: self.row.byte }
    }
}

impl<'r> TraceView<'r> {
    /// The log records of the trace, by time; empty unless the intake kept them.
    pub fn logs(self) -> impl ExactSizeIterator<Item = LogView<'r>> {
        self.recording.logs_of(self.position)
    }
}

impl Recording {
    /// All log records: those of each trace, in the order of [`Recording::traces`] and by time, and
    /// then those without a trace in the recording, by time. Records that are equal all count.
    pub fn logs(&self) -> impl ExactSizeIterator<Item = LogView<'_>> {
        self.log_rows(0..self.logs.rows.len())
    }

    /// The log records whose trace is not in the recording, by time.
    pub fn logs_without_trace(&self) -> impl ExactSizeIterator<Item = LogView<'_>> {
        let first = self.logs.first.last().map_or(0, |&first| first as usize);
        self.log_rows(first.min(self.logs.rows.len())..self.logs.rows.len())
    }

    /// The log records of the trace at this position in [`Recording::traces`], by time.
    pub(super) fn logs_of(&self, trace: usize) -> impl ExactSizeIterator<Item = LogView<'_>> {
        let at = |trace: usize| self.logs.first.get(trace).map_or(0, |&first| first as usize);
        self.log_rows(at(trace)..at(trace + 1))
    }

    /// Takes the texts of all records, which have none afterwards.
    pub fn take_log_texts(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.logs.texts)
    }

    fn log_rows(&self, range: Range<usize>) -> impl ExactSizeIterator<Item = LogView<'_>> {
        range.map(|at| LogView { recording: self, row: &self.logs.rows[at], at })
    }

    /// The numbers of log records that belong to no trace of the recording.
    pub fn logs_stated(&self) -> Stated {
        self.logs.stated
    }

    /// The names of the records' events, and of the numbers that they state.
    pub fn log_names(&self) -> &Interner {
        &self.logs.names
    }

    /// The names of the groups of log records.
    pub fn log_groups(&self) -> &Interner {
        &self.logs.groups.names
    }

    /// The place of the folded message in the name of an event; `None` if its statement in the code
    /// or its own name names it.
    pub fn log_message_place(&self, event: Symbol) -> Option<usize> {
        let place = self.logs.message_places.get(event.index()).copied();
        place.filter(|&place| place != NONE).map(|place| place as usize)
    }

    /// The message of one record of this event; the least of all in byte order.
    pub fn log_example(&self, event: Symbol) -> &str {
        self.logs.examples.get(event.index()).map_or("", |example| example)
    }

    /// The files with log records, in the order read, with their formats if the
    /// reader reported them.
    pub fn log_files(&self) -> &[(Arc<str>, Option<LogFormat>)] {
        &self.logs.files
    }
}

/// Finds the trace of each record, by the id that it states or else by one that it mentions. An id
/// of 64 bits is that of the trace whose id ends in them, if that is only one.
fn find_traces(recording: &mut Recording, pulse: &mut Pulse<'_>) {
    let mut by_id: HashMap<TraceId, u32, RandomState> = HashMap::default();
    let mut by_half: HashMap<u64, u32, RandomState> = HashMap::default();
    for (position, trace) in (0u32..).zip(&recording.traces) {
        by_id.insert(trace.id, position);
        by_half.entry(trace.id.0 as u64).and_modify(|found| *found = NONE).or_insert(position);
    }
    let position = |number: u128| {
        let half = u64::try_from(number).ok().filter(|&half| half != 0);
        let found = by_id.get(&TraceId(number)).or_else(|| by_half.get(&half?)).copied();
        found.filter(|&position| position != NONE)
    };
    let logs = &mut recording.logs;
    for (at, (row, (trace, _))) in logs.rows.iter_mut().zip(&logs.ids).enumerate() {
        let mentioned = || logs.mentions.of(at).iter().find_map(|&number| position(number));
        let found = position(trace.0).or_else(mentioned);
        row.trace = found.unwrap_or(NONE);
        match (found, logs.details.get_mut(at)) {
            (Some(found), Some(detail)) => detail.ids.0 = recording.traces[found as usize].id,
            (Some(_), None) => {}
            (None, _) if *trace == TraceId::ZERO => logs.stated.none += 1,
            (None, _) => logs.stated.elsewhere += 1,
        }
        if pulse.stopped() {
            return;
        }
    }
}
