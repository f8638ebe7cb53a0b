//! Collects events from readers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use astracer_model::event::{Channel, Endpoint, Event, EventKind};
use astracer_model::log::LogRecord;
use astracer_model::problem::{Place, Problem, Problems};
use astracer_model::sink::{Record, Sink};
use astracer_model::span::Span;
use astracer_model::{EventFormat, LogFormat};
use astracer_recording::intern::Interner;
use rapidhash::fast::RandomState;

use super::events::{Events, NONE, Process, Row, Thread};
use super::written::{self, Joins, LogRow, UNREAD, Written};

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
    threads: Map<(String, String), u32>,
    processes: Map<(u32, String), u32>,
    hosts: Map<String, u32>,
    channels: Map<Channel<'static>, u32>,
    problems: Problems,
    skipped: Vec<(Arc<str>, String)>,
    left_out: BTreeMap<&'static str, u64>,
    stop: Option<Box<dyn Fn() -> bool + 'i>>,
    progress: Option<Box<dyn Fn(u64) + 'i>>,
}

/// Where the events of a file belong.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    /// The host, if the user names it.
    pub(super) host: String,
    /// The file's name without folder and endings.
    pub(super) process: String,
    /// Files of one process, of which each may hold one thread: folder and process.
    group: String,
    /// True if the order of lines is the order of events.
    pub(super) is_ordered: bool,
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
        let joins = self.join();
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
        }
        Collected { events, problems, skipped, left_out, joins }
    }

    /// Joins log records to the calls that wrote them, and makes events of all others.
    fn join(&mut self) -> Joins {
        let (mut records, mut written) =
            (std::mem::take(&mut self.records), std::mem::take(&mut self.written));
        let files: Vec<Arc<str>> = self.events.files.clone();
        let found = written::join(&mut self.events, &mut records, &mut written, &self.paths);
        let writes = self.events.rows.len();
        self.events.rows.retain(|row| row.channel != UNREAD);
        let unread = (writes - self.events.rows.len()) as u64;
        if unread > 0 {
            *self.left_out.entry("a write to a file that is no log here").or_insert(0) += unread;
        }
        for record in &records {
            let origin = self.origins[record.file as usize].clone();
            // A log without threads is one thread.
            let name = if record.thread.is_empty() { &origin.process } else { &*record.thread };
            let host = if !origin.host.is_empty() { &*origin.host } else { &*record.host };
            let mut row = Row::new(EventKind::Log, record.time, &mut self.events.texts, "");
            row.text = record.text;
            (row.file, row.line, row.sequence) = (record.file, record.line, record.line.saturating_mul(4));
            let name = format!("{name}@{}", or_local(host));
            row.thread = self.thread(&name, &origin.process, or_local(host), &files[record.file as usize]);
            self.events.rows.push(row);
        }
        found
    }

    fn file(&mut self, file: &Arc<str>) -> u32 {
        if self.events.files.last().is_none_or(|last| !Arc::ptr_eq(last, file)) {
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
        });
    }

    /// The thread of this name, in a process and on a host that may be unknown.
    fn thread(&mut self, name: &str, process: &str, host: &str, group: &str) -> u32 {
        let key = (name.to_owned(), group.to_owned());
        if let Some(&found) = self.threads.get(&key) {
            return found;
        }
        let host = if host.is_empty() { name.rsplit_once('@').map_or("", |(_, host)| host) } else { host };
        let host = match self.hosts.get(host) {
            Some(&found) => found,
            None => {
                self.events.hosts.push(host.to_owned());
                let index = self.hosts.len() as u32;
                self.hosts.insert(host.to_owned(), index);
                index
            }
        };
        let processes = &mut self.events.processes;
        let process = *self.processes.entry((host, process.to_owned())).or_insert_with_key(|(_, process)| {
            processes.push(Process { name: process.clone(), host });
            processes.len() as u32 - 1
        });
        self.events.threads.push(Thread { name: name.to_owned(), process });
        let index = self.threads.len() as u32;
        self.threads.insert(key, index);
        index
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

/// The host of files that name none.
fn or_local(host: &str) -> &str {
    if host.is_empty() { "local" } else { host }
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
    fn span(&mut self, _: Span<'_>, _: Record<'_>) {}

    fn wants_events(&self) -> bool {
        true
    }

    fn event_file(&mut self, file: &Arc<str>, format: EventFormat) {
        self.open(file, format == EventFormat::Strace);
    }

    fn wants_logs(&self) -> bool {
        true
    }

    fn log_file(&mut self, file: &Arc<str>, _: LogFormat) {
        self.open(file, true);
    }

    fn log(&mut self, log: LogRecord<'_>, record: Record<'_>) {
        let file = self.file(&record.place.file);
        if self.is_repeated {
            return;
        }
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
        });
    }

    fn event(&mut self, event: Event<'_>, record: Record<'_>) {
        if self.is_repeated {
            return;
        }
        let mut row = Row::new(event.kind, event.time.0, &mut self.events.texts, &event.text);
        row.id = event.id.unwrap_or(0);
        row.file = self.file(&record.place.file);
        (row.line, row.sequence, row.bytes) = (record.place.line, event.sequence, event.bytes);
        let origin = self.origins[row.file as usize].clone();
        if origin.is_ordered {
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
