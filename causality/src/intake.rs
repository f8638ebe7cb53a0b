//! Collects events from readers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use astracer_model::event::{Channel, Endpoint, Event, EventKind};
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::LogRecord;
use astracer_model::problem::{Place, Problem, Problems};
use astracer_model::sink::{Record, Sink};
use astracer_model::span::{Span, SpanKind};
use astracer_model::{EventFormat, Format, LogFormat};
use astracer_recording::intern::Interner;
use rapidhash::fast::RandomState;

use crate::placing::{self, Known, Pending};
use crate::points::{Events, NONE, Placed, Row, SpanRow};
use crate::spans::{self, Ties};
use crate::threads::{Origin, Threads, or_local};
use crate::written::{self, Joins, LogRow, UNREAD, Written};

type Map<K, V> = HashMap<K, V, RandomState>;

/// A sink that collects events.
#[derive(Default)]
pub struct Intake<'i> {
    events: Events,
    /// The name of the host that the user gives to the files.
    host: String,
    origins: Vec<Origin>,
    /// True for a file that was read before.
    is_repeated: bool,
    /// The files that log records were written to, by [`Written::path`].
    paths: Interner,
    written: Vec<Written>,
    records: Vec<LogRow>,
    threads: Threads,
    spans: Vec<Pending>,
    names: Interner,
    /// Spans of event files, by their ids.
    span_events: Map<(u32, TraceId, SpanId), u32>,
    channels: Map<Channel<'static>, u32>,
    problems: Problems,
    skipped: Vec<(Arc<str>, String)>,
    left_out: BTreeMap<&'static str, u64>,
    stop: Option<Box<dyn Fn() -> bool + 'i>>,
    progress: Option<Box<dyn Fn(u64) + 'i>>,
}

impl std::fmt::Debug for Intake<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intake").field("events", &self.events.len()).finish_non_exhaustive()
    }
}

/// The events of all files, and what was wrong with them.
#[derive(Debug)]
#[non_exhaustive]
pub struct Collected {
    /// The events.
    pub events: Events,
    /// The problems of the input.
    pub problems: Problems,
    /// Files that were not read, with the reason.
    pub skipped: Vec<(Arc<str>, String)>,
    /// Parts of event files that made no event, counted by reason.
    pub left_out: BTreeMap<&'static str, u64>,
    /// Records and spans that were joined to threads and processes.
    pub joins: Joins,
    pub(crate) ties: Ties,
}

impl<'i> Intake<'i> {
    /// An empty intake that keeps up to `examples` problems of each kind.
    pub fn new(examples: usize) -> Self {
        Self { problems: Problems::with_examples(examples), ..Self::default() }
    }

    /// Lets `stop` end the reading.
    #[must_use]
    pub fn stop_when(mut self, stop: impl Fn() -> bool + 'i) -> Self {
        self.stop = Some(Box::new(stop));
        self
    }

    /// Reports bytes that were read.
    #[must_use]
    pub fn progress_to(mut self, progress: impl Fn(u64) + 'i) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Sets the host of the files that follow; empty if it is unknown.
    pub fn set_host(&mut self, host: &str) {
        host.clone_into(&mut self.host);
    }

    /// The events, in an order that does not depend on the files'.
    pub fn finish(mut self) -> Collected {
        let mut joins = self.join();
        let Self { mut events, problems, skipped, left_out, origins, .. } = self;
        own_starts(&mut events.rows, &origins);
        let mut seen = HashSet::with_capacity_and_hasher(events.rows.len(), RandomState::default());
        let has_ids = |row: &Row| !origins[row.file as usize].is_ordered;
        if events.rows.iter().all(|row| has_ids(row) && seen.insert(row.id)) {
            events.rows.sort_unstable_by_key(|row| row.id);
        } else {
            let files = std::mem::take(&mut events.files);
            events.rows.sort_by(|a, b| {
                (&files[a.file as usize], a.sequence).cmp(&(&files[b.file as usize], b.sequence))
            });
            events.files = files;
            (0..).zip(&mut events.rows).for_each(|(id, row)| row.id = id);
        }
        // In files whose order counts, a clock that steps back does no harm.
        let mut latest = vec![0; events.files.len()];
        let mut by_sequence: Vec<u32> = (0..events.rows.len() as u32).collect();
        by_sequence.sort_unstable_by_key(|&at| (events.rows[at as usize].sequence, at));
        for at in by_sequence {
            let row = &mut events.rows[at as usize];
            if origins[row.file as usize].is_ordered {
                let latest = &mut latest[row.file as usize];
                *latest = row.time.max(*latest);
                row.rank = *latest;
            }
            if let Some(&(_, count)) =
                events.clock_parts.get(row.clock.0 as usize).filter(|_| row.clock.1 > 0)
            {
                // Its own part comes first.
                row.rank = count;
            }
        }
        let ties = spans::tie(&mut events, &mut joins);
        Collected { events, problems, skipped, left_out, joins, ties }
    }

    /// Joins log records to the calls that wrote them, and makes events of all others.
    fn join(&mut self) -> Joins {
        let (mut records, mut written) =
            (std::mem::take(&mut self.records), std::mem::take(&mut self.written));
        let files: Vec<Arc<str>> = self.events.files.clone();
        let mut found = written::join(&mut self.events, &mut records, &mut written, &self.paths);
        let writes = self.events.rows.len();
        self.events.rows.retain(|row| row.channel != UNREAD);
        let unread = (writes - self.events.rows.len()) as u64;
        if unread > 0 {
            *self.left_out.entry("a write to a file that is no log here").or_insert(0) += unread;
        }
        let known = Known::new(&self.events);
        self.events.rows.iter_mut().filter(|row| !spans::is_span(row)).for_each(|row| row.chain = row.thread);
        for record in &records {
            let origin = self.origins[record.file as usize].clone();
            // A log without threads is one thread.
            let name = if record.thread.is_empty() { &origin.process } else { &*record.thread };
            let host = if !origin.host.is_empty() { &*origin.host } else { &*record.host };
            let mut row = Row::new(EventKind::Log, record.time, &mut self.events.texts, "");
            row.text = record.text;
            (row.file, row.line, row.sequence) = (record.file, record.line, record.line.saturating_mul(4));
            let name = format!("{name}@{}", or_local(host));
            row.ids = record.ids;
            row.thread = self.thread(&name, &origin.process, or_local(host), &files[record.file as usize]);
            row.chain = row.thread;
            // On the line of a traced thread it is drawn, but not ordered by it.
            let (process, host) = {
                let process = self.events.threads[row.thread as usize].process;
                (process, self.events.processes[process as usize].host)
            };
            if let Some(thread) = known.thread(&self.events, host, Some(process), &record.thread) {
                row.thread = thread;
                found.thread += 1;
            }
            self.events.rows.push(row);
        }
        let known = Known::new(&self.events);
        let (spans, names) = (std::mem::take(&mut self.spans), std::mem::take(&mut self.names));
        placing::place(&mut self.events, &mut self.threads, &spans, &names, &self.origins, &known);
        for (number, reason) in [
            (found.before_first_write, "log records that no traced call wrote"),
            (found.unknown_writes, "writes to a log whose text is not in it"),
            (found.ambiguous_logs, "logs to which several traced paths fit"),
        ] {
            if number > 0 {
                found.unjoined.insert(reason, number);
            }
        }
        found
    }

    fn file(&mut self, file: &Arc<str>) -> u32 {
        if self.events.files.last().is_none_or(|last| last != file) {
            self.open(file, false);
        }
        self.events.files.len() as u32 - 1
    }

    fn open(&mut self, file: &Arc<str>, is_ordered: bool) {
        let known = self.events.files.iter().zip(&self.origins);
        self.is_repeated = known.into_iter().any(|(name, origin)| name == file && origin.host == self.host);
        if self.is_repeated {
            self.skipped.push((Arc::clone(file), "it was read before".to_owned()));
        }
        let folder = file.rfind('/').map_or(0, |at| at + 1);
        let stem = file[folder..].split('.').next().unwrap_or_default();
        let stem = if stem.is_empty() { &file[folder..] } else { stem };
        self.events.files.push(Arc::clone(file));
        self.origins.push(Origin {
            host: self.host.clone(),
            process: stem.to_owned(),
            group: format!("{}{stem}", &file[..folder]),
            is_ordered,
            has_clocks: false,
        });
    }

    fn thread(&mut self, name: &str, process: &str, host: &str, group: &str) -> u32 {
        self.threads.thread(&mut self.events, name, process, host, group)
    }

    /// Keeps the ids of a message or a record.
    fn ids(&mut self, ids: impl IntoIterator<Item = (TraceId, SpanId)>) -> (u32, u16) {
        let first = self.events.ids.len();
        self.events.ids.extend(ids);
        (first as u32, (self.events.ids.len() - first) as u16)
    }

    /// The span of these ids in event files.
    fn span_of(&mut self, trace: TraceId, id: SpanId, parents: &[(TraceId, SpanId)], thread: u32) -> u32 {
        let events = &mut self.events;
        *self.span_events.entry((thread, trace, id)).or_insert_with(|| {
            let first = events.parents.len() as u32;
            events.parents.extend(parents.iter().map(|&(_, parent)| parent));
            events.spans.push(SpanRow {
                trace,
                id,
                parents: (first, events.parents.len() as u32),
                kind: SpanKind::Unspecified,
                follows: false,
                shared: false,
                start: NONE,
                end: NONE,
                thread,
                placed: Placed::Process,
                by_bytes: false,
            });
            events.spans.len() as u32 - 1
        })
    }

    fn channel(&mut self, channel: &Channel<'_>) -> u32 {
        let owned = |end: &Endpoint<'_>| Endpoint { address: end.address.to_string().into(), port: end.port };
        let key =
            Channel { from: owned(&channel.from), to: owned(&channel.to), is_datagram: channel.is_datagram };
        let channels = &mut self.events.channels;
        *self.channels.entry(key).or_insert_with_key(|key| {
            channels.push(key.clone());
            channels.len() as u32 - 1
        })
    }
}

/// With one file a thread, a child's file begins with a start, and its parent's file has the start
/// that its fork made; likewise a parent sees the end of a child at its wait. One of each counts.
fn own_starts(rows: &mut Vec<Row>, origins: &[Origin]) {
    let is_from_parent =
        |row: &Row| !row.sequence.is_multiple_of(4) || !origins[row.file as usize].is_ordered;
    let mut made: Map<u32, u32> = Map::default();
    let mut ended: Map<u32, u32> = Map::default();
    for row in rows.iter() {
        if row.kind == EventKind::Start && is_from_parent(row) {
            made.insert(row.thread, row.file);
        } else if row.kind == EventKind::End && !is_from_parent(row) {
            ended.insert(row.thread, row.file);
        }
    }
    rows.retain(|row| match row.kind {
        EventKind::Start if !is_from_parent(row) => {
            made.get(&row.thread).is_none_or(|&file| file == row.file)
        }
        EventKind::End if is_from_parent(row) => ended.get(&row.thread).is_none_or(|&file| file == row.file),
        _ => true,
    });
}

impl Sink for Intake<'_> {
    fn file(&mut self, file: &Arc<str>, _: Format) {
        self.open(file, true);
    }

    fn span(&mut self, span: Span<'_>, record: Record<'_>) {
        let file = Intake::file(self, &record.place.file);
        if self.is_repeated {
            return;
        }
        let place = (file, record.place.line);
        match Pending::of(&span, place, &mut self.names, &mut self.events.texts) {
            Some(span) => self.spans.push(span),
            None => self.left_out("a span without a start", record.place),
        }
    }

    fn wants_events(&self) -> bool {
        true
    }

    fn event_file(&mut self, file: &Arc<str>, format: EventFormat) {
        self.open(file, format != EventFormat::FalconJson);
        if let Some(origin) = self.origins.last_mut() {
            origin.has_clocks = format == EventFormat::VectorClocks;
        }
    }

    fn wants_logs(&self) -> bool {
        true
    }

    fn log_file(&mut self, file: &Arc<str>, _: LogFormat) {
        self.open(file, true);
    }

    fn log(&mut self, log: LogRecord<'_>, record: Record<'_>) {
        let file = Intake::file(self, &record.place.file);
        if self.is_repeated {
            return;
        }
        let has_ids = log.span_id != SpanId::ZERO;
        let ids = self.ids(has_ids.then_some((log.trace_id, log.span_id)));
        let text = String::from_utf8_lossy(record.bytes);
        let text = Row::new(EventKind::Log, 0, &mut self.events.texts, &text).text;
        // A record without a time belongs to the one before it.
        let before = self.records.last().filter(|before| before.file == file).map_or(0, |before| before.time);
        let named = |key: &str| log.resource.attributes.iter().find(|own| own.key == key)?.value.as_str();
        let host = named("host.name").or(named("k8s.pod.name")).unwrap_or_default();
        self.records.push(LogRow {
            file,
            line: record.place.line,
            time: log.when().map_or(before, |time| time.0),
            text,
            thread: (&*log.thread).into(),
            host: host.into(),
            ids,
        });
    }

    fn event(&mut self, event: Event<'_>, record: Record<'_>) {
        if self.is_repeated {
            return;
        }
        let mut row = Row::new(event.kind, event.time.0, &mut self.events.texts, &event.text);
        row.id = event.id.unwrap_or(0);
        row.file = Intake::file(self, &record.place.file);
        (row.line, row.sequence, row.bytes) = (record.place.line, event.sequence, event.bytes);
        let origin = self.origins[row.file as usize].clone();
        if origin.has_clocks {
            let host = or_local(&origin.host);
            let mut known = |name: &str| self.thread(&format!("{name}@{host}"), name, host, "");
            row.thread = known(&event.thread);
            let mut clock: Vec<(u32, u64)> =
                event.clock.iter().map(|(name, count)| (known(name), *count)).collect();
            clock.sort_by_key(|&(thread, _)| thread != row.thread);
            if clock.first().is_none_or(|first| first.0 != row.thread) {
                return self.left_out("a vector clock without its own host", record.place);
            }
            clock.truncate(usize::from(u16::MAX));
            row.clock = (self.events.clock_parts.len() as u32, clock.len() as u16);
            self.events.clock_parts.extend(clock);
        } else if origin.is_ordered {
            let host = or_local(&origin.host);
            let name = |thread: &str| format!("{thread}@{host}");
            row.thread = self.thread(&name(&event.thread), &origin.process, host, &origin.group);
            if !event.child.is_empty() {
                row.child = self.thread(&name(&event.child), &origin.process, host, &origin.group);
            }
        } else {
            row.thread = self.thread(&event.thread, &event.process, &event.host, "");
            if !event.child.is_empty() {
                row.child = self.thread(&event.child, "", "", "");
            }
        }
        if let (EventKind::SpanStart | EventKind::SpanEnd, Some(&(trace, id))) =
            (event.kind, event.contexts.first())
        {
            row.span = self.span_of(trace, id, &event.contexts[1..], row.thread);
        } else {
            row.ids = self.ids(event.contexts.iter().copied());
        }
        let len = event.head.len().min(row.head.0.len());
        row.head.0[..len].copy_from_slice(&event.head[..len]);
        row.head.1 = len as u8;
        if !event.path.is_empty() {
            // Until the log is known that it was written to.
            row.channel = UNREAD;
            let path = self.paths.intern(&event.path);
            self.written.push(Written { path, row: self.events.rows.len() as u32 });
            self.events.rows.push(row);
            return;
        }
        row.channel = event.channel.as_ref().map_or(NONE, |channel| self.channel(channel));
        self.events.rows.push(row);
    }

    fn left_out(&mut self, reason: &'static str, _: &Place) {
        *self.left_out.entry(reason).or_insert(0) += 1;
    }

    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        self.skipped.push((Arc::clone(file), reason.to_owned()));
    }

    fn progress(&mut self, bytes: u64) {
        self.progress.iter().for_each(|progress| progress(bytes));
    }

    fn stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop())
    }
}
