//! The events of all files, with their threads, processes, hosts, channels and files.

use std::collections::HashMap;
use std::sync::Arc;

use astracer_model::event::{Channel, EventKind};
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::span::SpanKind;
use astracer_recording::intern::{Interner, Symbol};
use rapidhash::fast::RandomState;

use crate::shifts;

/// The host of logs and straces that name none.
pub const LOCAL: &str = "local";
/// The sequence numbers of one span's points: its start, its events, and last its end.
pub(crate) const POINTS: u64 = 1 << 20;
/// No thread, channel or file.
pub const NONE: u32 = u32::MAX;

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The id in reports and files.
    pub id: u64,
    /// The kind.
    pub kind: EventKind,
    /// The recorded time, in nanoseconds since 1970.
    pub time: u64,
    /// The time that orders the events of one thread or stream: in files whose order counts, the
    /// latest time up to here, so that a clock that steps back does no harm.
    pub rank: u64,
    /// The event is less than this later than `time`, in nanoseconds: the unit of the time's last
    /// digit in a log, or the most that a system call can have waited; 0 if unknown.
    pub resolution: u64,
    /// The index of the thread in [`Points::threads`].
    pub thread: u32,
    /// The index of the file in [`Points::files`].
    pub file: u32,
    /// The line in the file, or the largest number that there is; 0 if unknown.
    pub line: u32,
    /// The position in the file.
    pub(crate) sequence: u64,
    /// The thread that a fork made or a join waited for; [`NONE`] for other events.
    pub child: u32,
    /// The index in [`Points::channels`]; [`NONE`] for events without a connection.
    pub channel: u32,
    /// The bytes of a message.
    pub bytes: u64,
    /// The system call, in [`Points::calls`]; the first name is empty and stands for none.
    pub call: Symbol,
    /// The number of a log record among [`Recording::logs`](astracer_recording::Recording::logs);
    /// else [`NONE`].
    pub log: u32,
    /// The file that a call wrote to: that of the log record joined to it, or one that was not
    /// read; else [`NONE`].
    pub log_file: u32,
    /// The record's line in that file.
    pub log_line: u32,
    /// The span of a span's start or end, or the one that a message or a log record belongs to by
    /// its ids, in [`Points::spans`]; else [`NONE`].
    pub span: u32,
    /// The chain of events in program order: mostly the thread. [`NONE`] for events of spans but
    /// the starts on traced threads.
    pub(crate) chain: u32,
    /// The ids in a message or a record: the first, and their number.
    pub(crate) ids: (u32, u16),
    /// The vector clock: the first part, and their number.
    pub(crate) clock: (u32, u16),
    /// The first bytes of a message, and their number.
    pub(crate) head: ([u8; 15], u8),
    pub(crate) text: (u64, u32),
}

/// A line's number as points keep it.
pub(crate) fn line_number(line: u64) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

impl Point {
    /// True for a start, an event or an end of a span.
    pub fn is_of_span(&self) -> bool {
        matches!(self.kind, EventKind::SpanStart | EventKind::SpanEvent | EventKind::SpanEnd)
    }
}

/// One thread: a line of the diagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The name, such as `17750@web`.
    pub name: String,
    /// The index of the process in [`Points::processes`].
    pub process: u32,
    /// True for the records of a log that states no threads, which may be of several.
    pub is_log: bool,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The name; empty if no file states one.
    pub name: String,
    /// The index of the host in [`Points::hosts`].
    pub host: u32,
}

/// One span. Rows are indices into [`Points::rows`].
#[derive(Clone, Copy, Debug)]
pub struct SpanRow {
    /// The trace; zero if the recorder wrote none.
    pub trace: TraceId,
    /// The id.
    pub id: SpanId,
    pub(crate) parents: (u32, u32),
    /// The side of a call.
    pub kind: SpanKind,
    /// The event of its start.
    pub start: u32,
    /// The event of its end; [`NONE`] if it has none.
    pub end: u32,
    /// The thread on whose line it is drawn.
    pub thread: u32,
    pub(crate) placed: Placed,
    /// True if a message carries its id, or its parent's to it.
    pub by_bytes: bool,
}

/// The evidence for the place of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// Its thread is one that other files tell of.
    Thread,
    /// Its process is.
    Process,
    /// Nothing else is known of its process.
    Nowhere,
}

impl SpanRow {
    pub(crate) fn is_call(&self) -> bool {
        matches!(self.kind, SpanKind::Client | SpanKind::Server)
    }
}

/// The events, ordered by id, or else by file and position, which does not depend on the order of
/// files.
#[derive(Debug, Default)]
pub struct Points {
    pub(crate) rows: Vec<Point>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) processes: Vec<Process>,
    pub(crate) hosts: Vec<String>,
    /// For each host the first one that shares its clock; mostly itself.
    pub(crate) clocks: Vec<u32>,
    /// The number of each span by its index in the recording; [`NONE`] for a span that was merged
    /// into another.
    pub(crate) span_of_index: Vec<u32>,
    pub(crate) channels: Vec<Channel<'static>>,
    /// For each channel the one that it is at the other end, where addresses are translated; mostly
    /// itself.
    pub(crate) same_channel: Vec<u32>,
    pub(crate) calls: Interner,
    pub(crate) files: Vec<Arc<str>>,
    /// For each file whether the order of its lines is the order of events.
    pub(crate) is_ordered: Vec<bool>,
    file_numbers: HashMap<Arc<str>, u32, RandomState>,
    pub(crate) texts: Vec<u8>,
    pub(crate) spans: Vec<SpanRow>,
    /// Parents of spans.
    pub(crate) parents: Vec<SpanId>,
    pub(crate) ids: Vec<(TraceId, SpanId)>,
    /// Threads, and how many of their events are known.
    pub(crate) clock_parts: Vec<(u32, u64)>,
}

impl Point {
    /// An event with its text in `texts`.
    pub(crate) fn new(kind: EventKind, time: u64, texts: &mut Vec<u8>, text: &str) -> Self {
        let at = texts.len() as u64;
        // A record is shorter than 4 GiB.
        let text = text.get(..u32::MAX as usize).unwrap_or(text);
        texts.extend_from_slice(text.as_bytes());
        Self {
            id: 0,
            kind,
            time,
            rank: time,
            resolution: 0,
            thread: NONE,
            file: NONE,
            line: 0,
            sequence: 0,
            child: NONE,
            channel: NONE,
            bytes: 0,
            call: Symbol(0),
            log: NONE,
            log_file: NONE,
            log_line: 0,
            span: NONE,
            chain: NONE,
            ids: (0, 0),
            clock: (0, 0),
            head: ([0; 15], 0),
            text: (at, text.len() as u32),
        }
    }
}

impl Points {
    pub(crate) fn new() -> Self {
        let mut events = Self::default();
        // The symbol of no call is 0.
        events.calls.intern("");
        events
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are no events.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The events.
    pub fn rows(&self) -> &[Point] {
        &self.rows
    }

    /// The threads that have events, or that other events name.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// The processes.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The host whose clock stands for that of a point's host.
    pub fn clock(&self, row: &Point) -> u32 {
        self.clocks[self.process(row).host as usize]
    }

    /// The number of a file, which is added if it is new.
    pub(crate) fn file_number(&mut self, file: &str) -> u32 {
        let found = self.file_numbers.get(file).copied();
        found.unwrap_or_else(|| self.push_file(file.into()))
    }

    /// Adds a file, which from then on has this name.
    pub(crate) fn push_file(&mut self, file: Arc<str>) -> u32 {
        let number = self.files.len() as u32;
        self.files.push(Arc::clone(&file));
        self.file_numbers.insert(file, number);
        number
    }

    /// The names of the hosts.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The names of system calls.
    pub fn calls(&self) -> &Interner {
        &self.calls
    }

    /// The channel that stands for one and for what the other end calls it.
    pub(crate) fn same_channel(&self, channel: u32) -> u32 {
        self.same_channel.get(channel as usize).copied().unwrap_or(channel)
    }

    /// The directions of connections.
    pub fn channels(&self) -> &[Channel<'static>] {
        &self.channels
    }

    /// The files.
    pub fn files(&self) -> &[Arc<str>] {
        &self.files
    }

    /// The spans.
    pub fn spans(&self) -> &[SpanRow] {
        &self.spans
    }

    /// The ids of a span's parents, whether or not they are here.
    pub fn parents(&self, span: &SpanRow) -> &[SpanId] {
        let (from, to) = span.parents;
        self.parents.get(from as usize..to as usize).unwrap_or_default()
    }

    /// The text of an event: its log record, or the name of its span.
    pub fn text(&self, row: &Point) -> &str {
        let (at, len) = row.text;
        let bytes = self.texts.get(at as usize..at as usize + len as usize).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// The ids of spans that a message or a log record carries, each with its trace.
    pub fn ids_of(&self, row: &Point) -> &[(TraceId, SpanId)] {
        let (from, len) = row.ids;
        self.ids.get(from as usize..from as usize + usize::from(len)).unwrap_or_default()
    }

    /// True if an event's vector clock was recorded.
    pub fn has_vector_clock(&self, row: &Point) -> bool {
        row.clock.1 > 0
    }

    /// The vector clock of an event: threads, and how many of their events it knows.
    pub(crate) fn clock_of(&self, row: &Point) -> &[(u32, u64)] {
        let (from, len) = row.clock;
        self.clock_parts.get(from as usize..from as usize + usize::from(len)).unwrap_or_default()
    }

    /// The thread of an event.
    pub fn thread(&self, row: &Point) -> &Thread {
        &self.threads[row.thread as usize]
    }

    /// The process of an event.
    pub fn process(&self, row: &Point) -> &Process {
        &self.processes[self.thread(row).process as usize]
    }

    /// False if the host of a point is a name for an unknown one.
    pub fn is_host_known(&self, row: &Point) -> bool {
        let host = self.host(row);
        host != LOCAL && !shifts::is_unknown(host)
    }

    /// True if a point has its place among the others of a thread.
    pub fn is_in_program_order(&self, row: &Point) -> bool {
        self.threads.get(row.chain as usize).is_some_and(|chain| !chain.is_log)
    }

    /// True for two records of one log that states no threads.
    pub fn is_one_log(&self, one: &Point, other: &Point) -> bool {
        one.chain == other.chain && self.threads.get(one.chain as usize).is_some_and(|chain| chain.is_log)
    }

    /// The number of an event of a span among its span's.
    pub fn event_number(&self, row: &Point) -> u32 {
        (row.sequence % POINTS - 1) as u32
    }

    /// For each index in the recording, the number of its span in [`Self::spans`]; [`NONE`] for a
    /// span that was merged into another.
    pub fn span_numbers(&self) -> &[u32] {
        &self.span_of_index
    }

    /// The index in the recording of each of [`Self::spans`]; `None` for those of event files.
    pub fn span_indices(&self) -> Vec<Option<u32>> {
        let mut indices = vec![None; self.spans.len()];
        for (index, &span) in (0..).zip(&self.span_of_index).filter(|&(_, &span)| span != NONE) {
            indices[span as usize] = Some(index);
        }
        indices
    }

    /// The host of an event.
    pub fn host(&self, row: &Point) -> &str {
        &self.hosts[self.process(row).host as usize]
    }

    /// The number of events of each kind that occurs.
    pub fn kinds(&self) -> impl Iterator<Item = (EventKind, u64)> {
        let mut counts = [0u64; EventKind::ALL.len()];
        for row in &self.rows {
            counts[row.kind as usize] += 1;
        }
        EventKind::ALL.iter().copied().zip(counts).filter(|&(_, count)| count > 0)
    }

    /// The number of threads that have events.
    pub fn thread_count(&self) -> u64 {
        let mut has_events = vec![false; self.threads.len()];
        self.rows.iter().for_each(|row| has_events[row.thread as usize] = true);
        has_events.into_iter().filter(|&has| has).count() as u64
    }

    /// `file:line` of an event.
    pub fn place(&self, row: &Point) -> String {
        format!("{}:{}", self.files[row.file as usize], row.line)
    }
}
