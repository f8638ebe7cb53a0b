//! Collects a recording: spans and log records, and the system calls of threads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use astracer_model::EventFormat;
use astracer_model::event::{Channel, Event, EventKind};
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::LogRecord;
use astracer_model::problem::{Place, Problem, Problems};
use astracer_model::sink::{Content, Record, Sink, Wants};
use astracer_model::span::{Span, SpanKind};
use astracer_recording::Recording;
use astracer_recording::intern::{Interner, Symbol};
use astracer_recording::origin::THREADS;
use astracer_recording::recording::{self, Keep, KeepPoints};
use astracer_recording::sets;
use astracer_recording::source::REPEATED;
use astracer_recording::stem::stem;
use astracer_recording::trend::{Steps, Trend, is_step, trend};
use rapidhash::fast::RandomState;

use crate::log_row::{LogRow, Written};
use crate::pipes;
use crate::placing::{self, Known};
use crate::points::{LOCAL, NONE, Placed, Point, Points, SpanRow, line_number};
use crate::spans::{self, Ties};
use crate::stretches::Stretches;
use crate::threads::{Origin, Threads, group_of, provisional};
use crate::translated;
use crate::writers::{self, Writers};
use crate::written::{self, Joins, UNREAD};

type Map<K, V> = HashMap<K, V, RandomState>;

/// A sink that collects spans, log records and events.
#[derive(Debug)]
pub struct Intake<'i> {
    /// Collects spans and log records.
    recording: recording::Intake<'i>,
    events: Points,
    /// The name of the host that the user gives to the files.
    host: String,
    origins: Vec<Origin>,
    /// True for a file that was read before.
    is_repeated: bool,
    /// The files that log records were written to, by [`Written::path`].
    paths: Interner,
    written: Vec<Written>,
    threads: Threads,
    /// Spans of event files, by their ids.
    span_events: Map<(u32, TraceId, SpanId), u32>,
    channels: Map<Channel<'static>, u32>,
    skipped: Vec<(Arc<str>, String)>,
    left_out: BTreeMap<&'static str, u64>,
    wants_logs: bool,
    keeps_writes: bool,
    keeps_unwritten: bool,
    /// Names and given hosts of files.
    opened: HashSet<(Arc<str>, String), RandomState>,
}

/// A recording with the events of its threads.
#[derive(Debug)]
#[non_exhaustive]
pub struct Collected {
    /// The spans and log records.
    pub recording: Recording,
    /// All points.
    pub events: Points,
    /// Files that were not read, with the reason.
    pub skipped: Vec<(Arc<str>, String)>,
    /// Parts of event files that made no event, counted by reason.
    pub left_out: BTreeMap<&'static str, u64>,
    /// Records and spans that were joined to threads and processes.
    pub joins: Joins,
    /// Logs with times that are out of the order of their lines.
    pub steps: Vec<Steps>,
    pub(crate) ties: Ties,
    pub(crate) stretches: Stretches,
}

impl Collected {
    /// The problems of the input.
    pub fn problems(&self) -> &Problems {
        self.recording.problems()
    }
}

/// The parts of a recording from which points are made.
pub fn keep() -> Keep {
    let wants = Arc::new(|_: &str, _: Option<(&str, u32)>| true);
    let points = KeepPoints { fields: Vec::new(), own_fields: Vec::new(), wants, lines: false };
    let own_labels = THREADS.map(str::to_owned).to_vec();
    Keep { records: true, origins: true, own_labels, points: Some(points), ..Keep::default() }
}

impl<'i> Intake<'i> {
    /// An empty intake that keeps up to `examples` problems of each kind.
    pub fn new(examples: usize) -> Self {
        Self::of(recording::Intake::new(keep()).examples(examples))
    }

    /// An intake whose spans and log records go to `recording`, which keeps at least what [`keep`]
    /// names.
    pub fn of(recording: recording::Intake<'i>) -> Self {
        Self {
            recording,
            events: Points::new(),
            host: String::new(),
            origins: Vec::new(),
            is_repeated: false,
            paths: Interner::default(),
            written: Vec::new(),
            threads: Threads::default(),
            span_events: Map::default(),
            channels: Map::default(),
            skipped: Vec::new(),
            left_out: BTreeMap::new(),
            wants_logs: true,
            keeps_writes: false,
            keeps_unwritten: false,
            opened: HashSet::default(),
        }
    }

    /// Skips files of logs.
    #[must_use]
    pub fn without_logs(mut self) -> Self {
        self.wants_logs = false;
        self
    }

    /// Keeps calls that write to files other than the logs that are read. Else they are left out.
    #[must_use]
    pub fn with_writes(mut self) -> Self {
        self.keeps_writes = true;
        self
    }

    /// Keeps the records of a traced log that no traced call wrote, ordered by their clock. Else
    /// they are left out, because their process may not be the traced one.
    #[must_use]
    pub fn with_unwritten(mut self) -> Self {
        self.keeps_unwritten = true;
        self
    }

    /// The recording alone, if no log record and no event was read.
    pub fn spans_only(self) -> Result<Recording, Box<Self>> {
        let is_alone = self.events.rows.is_empty() && !self.recording.has_logs();
        if is_alone { Ok(self.recording.finish()) } else { Err(Box::new(self)) }
    }

    /// Lets `stop` end the reading.
    #[must_use]
    pub fn stop_when(mut self, stop: impl Fn() -> bool + 'i) -> Self {
        self.recording = self.recording.stop_when(stop);
        self
    }

    /// Reports bytes that were read.
    #[must_use]
    pub fn progress_to(mut self, progress: impl FnMut(u64) + 'i) -> Self {
        self.recording = self.recording.progress_to(progress);
        self
    }

    /// Sets the host of the files that follow; empty if it is unknown.
    pub fn set_host(&mut self, host: &str) {
        host.clone_into(&mut self.host);
        self.recording.set_host(host);
    }

    /// The points, in an order that does not depend on the files'.
    pub fn finish(self) -> Collected {
        let Self { recording, mut events, origins, paths, mut written, mut threads, skipped, .. } = self;
        let mut left_out = self.left_out;
        let mut recording = recording.finish();
        let hosts: Map<&str, String> = origins
            .iter()
            .zip(&events.files)
            .map(|(origin, file)| {
                let host = recording.host_of_file(file).unwrap_or(LOCAL);
                (&*origin.group, host.to_owned())
            })
            .collect();
        threads.rename_hosts(&mut events, |host| group_of(host).and_then(|group| hosts.get(group).cloned()));
        let (mut joins, steps, stretches) = log_records(
            (&mut events, &mut threads),
            &mut recording,
            &paths,
            &mut written,
            self.keeps_unwritten,
        );
        let unread = events.rows.len();
        if self.keeps_writes {
            let mut files: Map<Symbol, u32> = Map::default();
            for write in written.iter().filter(|write| !pipes::is_pipe(paths.name(write.path))) {
                if events.rows[write.row as usize].channel == UNREAD {
                    let file = files.entry(write.path);
                    let file = *file.or_insert_with(|| events.file_number(paths.name(write.path)));
                    let row = &mut events.rows[write.row as usize];
                    (row.channel, row.log_file) = (NONE, file);
                }
            }
        }
        events.rows.retain(|row| row.channel != UNREAD);
        let unread = (unread - events.rows.len()) as u64;
        if unread > 0 {
            *left_out.entry("a write to a file or a pipe that is not a log here").or_insert(0) += unread;
        }
        let known = Known::new(&events);
        placing::place(&mut events, &mut threads, &recording, &known);
        sort(&mut events, &origins);
        coarse_times(&mut events, &origins);
        translated::join(&mut events, &mut joins);
        let ties = spans::tie(&mut events, &mut joins);
        Collected { recording, events, skipped, left_out, joins, steps, ties, stretches }
    }

    fn file(&mut self, file: &Arc<str>) -> u32 {
        if self.events.files.last().is_none_or(|last| last != file) {
            self.open(file, false);
        }
        self.events.files.len() as u32 - 1
    }

    fn open(&mut self, file: &Arc<str>, is_ordered: bool) {
        self.is_repeated = !self.opened.insert((Arc::clone(file), self.host.clone()));
        if self.is_repeated {
            self.skipped.push((Arc::clone(file), REPEATED.to_owned()));
        }
        let process = stem(file);
        let group = format!("{}{process}", &file[..file.rfind('/').map_or(0, |at| at + 1)]);
        let host = if self.host.is_empty() { provisional(&group) } else { self.host.clone() };
        self.events.push_file(Arc::clone(file));
        self.origins.push(Origin { host, process: process.to_owned(), group, is_ordered, has_clocks: false });
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
        let channels = &mut self.events.channels;
        *self.channels.entry(channel.clone().into_owned()).or_insert_with_key(|key| {
            channels.push(key.clone());
            channels.len() as u32 - 1
        })
    }
}

/// Makes points of log records: of those that a traced call wrote, at the call, and of all others
/// on their own threads.
fn log_records(
    (events, threads): (&mut Points, &mut Threads),
    recording: &mut Recording,
    paths: &Interner,
    written: &mut [Written],
    keeps_unwritten: bool,
) -> (Joins, Vec<Steps>, Stretches) {
    // The texts of records come first, because there are more of them.
    let calls = std::mem::replace(&mut events.texts, recording.take_log_texts());
    let before = events.texts.len() as u64;
    events.texts.extend_from_slice(&calls);
    drop(calls);
    events.rows.iter_mut().for_each(|row| row.text.0 += before);
    let mut files: Map<Arc<str>, u32> = Map::default();
    let mut records: Vec<LogRow> = Vec::with_capacity(recording.logs().len());
    let mut writers = Writers::default();
    let mut of_traces = 0;
    for (number_of_log, log) in (0..).zip(recording.logs()) {
        let place = log.place();
        let number = files.entry(place.file).or_insert_with_key(|file| events.file_number(file));
        let (trace, span) = log.ids();
        if span == SpanId::ZERO {
            of_traces += u64::from(log.trace().is_some());
        }
        let ids = (events.ids.len() as u32, u16::from(span != SpanId::ZERO));
        events.ids.extend((span != SpanId::ZERO).then_some((trace, span)));
        records.push(LogRow {
            file: *number,
            line: place.line,
            time: log.time().map_or(u64::MAX, |time| time.0),
            text: log.text_place(),
            writer: writers.number(recording, *number, log),
            log: number_of_log,
            resolution: log.resolution(),
            is_loose: false,
            trace,
            ids,
        });
    }
    records.sort_by_key(|record| (record.file, record.line));
    add_times(&mut records);
    let mut found = written::join(events, &mut records, written, paths, keeps_unwritten);
    let steps = settle_times(&mut records, &events.files);
    let set_of_file = sets_of(&events.files);
    found.traces = of_traces;
    let known = Known::new(events);
    events.rows.iter_mut().filter(|row| !row.is_of_span()).for_each(|row| row.chain = row.thread);
    let mut stretches = Stretches::default();
    let mut places: Vec<Option<writers::Place>> = vec![None; writers.all.len()];
    for record in &records {
        let place = places[record.writer as usize].get_or_insert_with(|| {
            let set = &set_of_file[record.file as usize];
            writers.all[record.writer as usize].place(events, threads, &known, set)
        });
        let mut row = Point::new(EventKind::Log, record.time, &mut events.texts, "");
        row.text = record.text;
        (row.file, row.line, row.sequence) =
            (record.file, line_number(record.line), record.line.saturating_mul(4));
        (row.ids, row.log) = (record.ids, record.log);
        (row.thread, row.resolution) = (place.drawn, record.resolution);
        row.chain = if record.is_loose { NONE } else { place.chain };
        found.thread += u64::from(place.drawn != place.chain);
        if record.trace != TraceId::ZERO {
            stretches.add(record.trace, row.thread, (row.time, row.time.saturating_add(row.resolution)));
        }
        events.rows.push(row);
    }
    for (number, reason) in [
        (found.before_first_write, "log records that no traced call wrote"),
        (found.unknown_writes, "writes to a log whose text is not in it"),
        (found.ambiguous_logs, "logs to which several traced paths fit"),
    ] {
        if number > 0 {
            found.unjoined.insert(reason, number);
        }
    }
    (found, steps, stretches)
}

/// Gives each record without a time that of the record before it in its file, or else of the next
/// one.
fn add_times(records: &mut [LogRow]) {
    for file in records.chunk_by_mut(|one, other| one.file == other.file) {
        let first = file.iter().map(|record| record.time).find(|&time| time != u64::MAX);
        let mut before = first.unwrap_or(0);
        for record in file {
            if record.time == u64::MAX {
                record.time = before;
            }
            before = record.time;
        }
    }
}

/// Gives times that are out of order among a thread's the time of their neighbours, and returns
/// them by file. Marks the records of a thread whose times step back often.
fn settle_times(records: &mut [LogRow], files: &[Arc<str>]) -> Vec<Steps> {
    let mut found = Vec::new();
    for file in records.chunk_by_mut(|one, other| one.file == other.file) {
        if file.is_sorted_by_key(|record| record.time) {
            continue;
        }
        let mut threads: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, record) in file.iter().enumerate() {
            threads.entry(record.writer).or_default().push(at);
        }
        let mut steps: Option<Steps> = None;
        for own in threads.into_values() {
            let times: Vec<u64> = own.iter().map(|&at| file[at].time).collect();
            let trend = trend(&times);
            for (index, &at) in own.iter().enumerate() {
                let record = &mut file[at];
                let neighbour = match &trend {
                    Trend::Rising(settled) => settled[index],
                    Trend::Unsteady => index.checked_sub(1).map_or(record.time, |before| times[before]),
                };
                record.is_loose = trend == Trend::Unsteady;
                let is_out =
                    if record.is_loose { record.time < neighbour } else { is_step(record.time, neighbour) };
                if !is_out {
                    continue;
                }
                let name = Arc::clone(&files[record.file as usize]);
                let first = Place { file: name, line: record.line, byte: 0 };
                let steps = steps.get_or_insert(Steps {
                    first,
                    time: record.time,
                    neighbour,
                    count: 0,
                    is_sorted: record.is_loose,
                });
                steps.count += 1;
                if !record.is_loose {
                    record.time = neighbour;
                }
            }
        }
        found.extend(steps);
    }
    found
}

/// The name of each file's set: files of a rotation are one log.
fn sets_of(files: &[Arc<str>]) -> Vec<String> {
    let mut names = vec![String::new(); files.len()];
    for group in sets::grouped(files) {
        for &at in &group {
            names[at] = if group.len() > 1 { sets::of(&files[at]).0 } else { files[at].to_string() };
        }
    }
    names
}

/// Widens the events of files whose times all are whole milliseconds, as those of Falcon's tracers
/// may be: they are cut.
fn coarse_times(events: &mut Points, origins: &[Origin]) {
    const MILLISECOND: u64 = 1_000_000;
    let is_unordered = |row: &Point| origins.get(row.file as usize).is_some_and(|origin| !origin.is_ordered);
    if origins.iter().all(|origin| origin.is_ordered) {
        return;
    }
    let mut is_coarse = vec![true; events.files.len()];
    for row in events.rows.iter().filter(|row| is_unordered(row)) {
        is_coarse[row.file as usize] &= row.time.is_multiple_of(MILLISECOND);
    }
    for row in events.rows.iter_mut().filter(|row| is_unordered(row) && is_coarse[row.file as usize]) {
        row.resolution = row.resolution.max(MILLISECOND);
    }
}

/// Numbers the points in an order that does not depend on the files'.
fn sort(events: &mut Points, origins: &[Origin]) {
    own_starts(&mut events.rows, origins);
    let mut seen = HashSet::with_capacity_and_hasher(events.rows.len(), RandomState::default());
    let is_ordered = |row: &Point| origins.get(row.file as usize).is_none_or(|origin| origin.is_ordered);
    if events.rows.iter().all(|row| !is_ordered(row) && seen.insert(row.id)) {
        events.rows.sort_unstable_by_key(|row| row.id);
    } else {
        let sets = sets_of(&events.files);
        let order = events.files.iter().zip(&sets).map(|(file, set)| (set, sets::of(file).1, file));
        let order: Vec<_> = order.collect();
        let mut by_rank: Vec<_> = order.iter().collect();
        by_rank.sort();
        let ranks: Vec<_> = order.iter().map(|own| by_rank.partition_point(|&other| other < own)).collect();
        // A thread starts before the call on its first line.
        events.rows.sort_by_key(|row| (ranks[row.file as usize], row.sequence, row.kind != EventKind::Start));
        (0..).zip(&mut events.rows).for_each(|(id, row)| row.id = id);
    }
    events.is_ordered = (0..events.files.len())
        .map(|file| origins.get(file).is_some_and(|origin| origin.is_ordered && !origin.has_clocks))
        .collect();
    // In files whose order counts, a clock that steps back does no harm.
    let mut latest = vec![0; events.files.len()];
    let has_rank = |row: &Point| row.clock.1 > 0 || is_ordered(row) && !row.is_of_span();
    let ranked = (0u32..).zip(&events.rows).filter(|(_, row)| has_rank(row));
    let mut by_sequence: Vec<u32> = ranked.map(|(at, _)| at).collect();
    by_sequence.sort_unstable_by_key(|&at| (events.rows[at as usize].sequence, at));
    for at in by_sequence {
        let row = &mut events.rows[at as usize];
        if is_ordered(row) && !row.is_of_span() {
            let latest = &mut latest[row.file as usize];
            *latest = row.time.max(*latest);
            row.rank = *latest;
        }
        if let Some(&(_, count)) = events.clock_parts.get(row.clock.0 as usize).filter(|_| row.clock.1 > 0) {
            // Its own part comes first.
            row.rank = count;
        }
    }
}

/// With one file a thread, a child's file begins with a start, and its parent's file has the start
/// that its fork made; likewise a parent sees the end of a child at its wait. One of each counts.
fn own_starts(rows: &mut Vec<Point>, origins: &[Origin]) {
    let is_from_parent =
        |row: &Point| !row.sequence.is_multiple_of(4) || !origins[row.file as usize].is_ordered;
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
    fn file(&mut self, file: &Arc<str>, content: Content) {
        self.open(file, content != Content::Events(EventFormat::FalconJson));
        let Content::Events(format) = content else {
            return self.recording.file(file, content);
        };
        self.recording.beside(file);
        if let Some(origin) = self.origins.last_mut() {
            origin.has_clocks = format == EventFormat::VectorClocks;
        }
    }

    fn span(&mut self, span: Span<'_>, record: Record<'_>) {
        Intake::file(self, &record.place.file);
        if !self.is_repeated {
            self.recording.span(span, record);
        }
    }

    fn document(&mut self) {
        self.recording.document();
    }

    fn wants(&self) -> Wants {
        Wants { logs: self.wants_logs, events: true }
    }

    fn log(&mut self, log: LogRecord<'_>, record: Record<'_>) {
        Intake::file(self, &record.place.file);
        if !self.is_repeated {
            self.recording.log(log, record);
        }
    }

    fn event(&mut self, event: Event<'_>, record: Record<'_>) {
        if self.is_repeated {
            return;
        }
        let mut row = Point::new(event.kind, event.time.0, &mut self.events.texts, &event.text);
        (row.id, row.resolution) = (event.id.unwrap_or(0), event.resolution);
        row.call = self.events.calls.intern(&event.call);
        row.file = Intake::file(self, &record.place.file);
        (row.line, row.sequence, row.bytes) = (line_number(record.place.line), event.sequence, event.bytes);
        let origin = self.origins[row.file as usize].clone();
        if origin.has_clocks {
            let host = &*origin.host;
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
            let host = &*origin.host;
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
        self.recording.problem(problem);
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        self.recording.skipped(file, reason);
        self.skipped.push((Arc::clone(file), reason.to_owned()));
    }

    fn progress(&mut self, bytes: u64) {
        self.recording.progress(bytes);
    }

    fn stopped(&self) -> bool {
        self.recording.stopped()
    }
}
