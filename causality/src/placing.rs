//! Gives spans their places: events of their start and end, on the thread or beside the process
//! that other files tell of.

use std::collections::HashMap;

use astracer_model::Format;
use astracer_model::event::EventKind;
use astracer_model::ids::TraceId;
use astracer_recording::Recording;
use astracer_recording::intern::Symbol;
use astracer_recording::origin::THREADS;
use astracer_recording::recording::SpanView;
use astracer_recording::stem::stem;
use rapidhash::fast::RandomState;

use crate::points::{LOCAL, NONE, POINTS, Placed, Point, Points, SpanRow, line_number};
use crate::shifts;
use crate::threads::Threads;

/// The threads and processes that other files than those of spans tell of.
pub(crate) struct Known {
    /// By host, and the name without the host.
    threads: HashMap<(u32, String), Vec<u32>, RandomState>,
    /// By host and name.
    processes: HashMap<(u32, String), u32, RandomState>,
    /// By number: true for a thread that a strace shows.
    traced: Vec<bool>,
}

impl Known {
    pub(crate) fn new(events: &Points) -> Self {
        let mut known = Self {
            threads: HashMap::default(),
            processes: HashMap::default(),
            traced: vec![false; events.threads.len()],
        };
        let mut is_seen = vec![false; events.threads.len()];
        for row in &events.rows {
            let at = row.thread as usize;
            known.traced[at] |= !events.calls.name(row.call).is_empty();
            if std::mem::replace(&mut is_seen[at], true) {
                continue;
            }
            let thread = &events.threads[at];
            let process = &events.processes[thread.process as usize];
            let bare = thread.name.strip_suffix(&*events.hosts[process.host as usize]);
            let bare = bare.and_then(|name| name.strip_suffix('@')).unwrap_or(&thread.name);
            known.threads.entry((process.host, bare.to_owned())).or_default().push(row.thread);
            known.processes.entry((process.host, process.name.clone())).or_insert(thread.process);
        }
        known
    }

    /// The thread of this name on a host, of this process if it is known.
    pub(crate) fn thread(&self, events: &Points, host: u32, process: Option<u32>, name: &str) -> Option<u32> {
        if name.is_empty() {
            return None;
        }
        let found = self.threads.get(&(host, name.to_owned()))?;
        let mut own = found.iter().filter(|&&thread| {
            process.is_none_or(|process| events.threads[thread as usize].process == process)
        });
        // If two threads share a name, the name is not evidence.
        own.next().filter(|_| own.next().is_none()).copied()
    }

    pub(crate) fn process(&self, host: u32, name: &str) -> Option<u32> {
        self.processes.get(&(host, name.to_owned())).copied()
    }
}

/// Makes points of all spans of a recording, in the order of the input.
pub(crate) fn place(events: &mut Points, threads: &mut Threads, recording: &Recording, known: &Known) {
    let mut place_of: HashMap<_, (u32, Placed, bool), RandomState> = HashMap::default();
    let mut names: HashMap<Symbol, (u64, u32), RandomState> = HashMap::default();
    let mut event_names: HashMap<Symbol, (u64, u32), RandomState> = HashMap::default();
    let mut files: HashMap<&str, u32, RandomState> = HashMap::default();
    let text = |texts: &mut Vec<u8>, text: &str| Point::new(EventKind::SpanStart, 0, texts, text).text;
    for (span, trace) in by_index(recording).into_iter().flatten() {
        let file = *files.entry(span.file()).or_insert_with(|| events.file_number(span.file()));
        let key = (span.origin(), span.service_symbol(), span.label_symbol(), file);
        let (thread, placed, is_traced) = *place_of.entry(key).or_insert_with(|| {
            let (thread, placed) = placed(events, threads, recording, known, span);
            (thread, placed, known.traced.get(thread as usize).is_some_and(|&is_traced| is_traced))
        });
        let own = events.spans.len() as u32;
        let first = events.parents.len() as u32;
        events.parents.extend(span.parent_ids());
        events.span_of_index.resize(span.index() as usize, NONE);
        events.span_of_index.push(own);
        events.spans.push(SpanRow {
            trace,
            id: span.id(),
            parents: (first, events.parents.len() as u32),
            kind: span.kind(),
            start: NONE,
            end: NONE,
            thread,
            placed,
            by_bytes: false,
        });
        let name = *names.entry(span.name_symbol()).or_insert_with(|| text(&mut events.texts, span.name()));
        let mut push = |texts: &mut Vec<u8>, kind, time, name, number: u64| {
            let mut row = Point::new(kind, time, texts, "");
            (row.text, row.file, row.line) = (name, file, line_number(span.line()));
            row.sequence = u64::from(span.index()) * POINTS + number.min(POINTS - 1);
            (row.thread, row.span) = (thread, own);
            // A thread states its number where the span starts; it may end on another. Times of
            // whole milliseconds may be rounded, and then do not order the start among calls.
            let is_exact = time % 1_000_000 != 0;
            if kind == EventKind::SpanStart && placed == Placed::Thread && is_traced && is_exact {
                row.chain = thread;
            }
            events.rows.push(row);
        };
        push(&mut events.texts, EventKind::SpanStart, span.start().0, name, 0);
        for (number, event) in (1..).zip(span.events()) {
            let name = event_names.entry(event.name_symbol);
            let name = *name.or_insert_with(|| text(&mut events.texts, event.name));
            push(&mut events.texts, EventKind::SpanEvent, event.time.0, name, number);
        }
        // An X-Trace report is one point.
        if let Some(end) = span.end().filter(|_| span.format() != Some(Format::XTraceJson)) {
            push(&mut events.texts, EventKind::SpanEnd, end.0, name, POINTS - 1);
        }
    }
}

/// Each span with its trace, at its index. `None` for a span that was merged into another.
fn by_index(recording: &Recording) -> Vec<Option<(SpanView<'_>, TraceId)>> {
    let mut spans = Vec::new();
    for trace in recording.traces() {
        for span in trace.spans() {
            let at = span.index() as usize;
            if spans.len() <= at {
                spans.resize(at + 1, None);
            }
            spans[at] = Some((span, trace.id()));
        }
    }
    spans
}

/// The thread on whose line a span is drawn, and the evidence for it: the same for all spans of one
/// origin, service, set of labels and file.
fn placed(
    events: &mut Points,
    threads: &mut Threads,
    recording: &Recording,
    known: &Known,
    span: SpanView<'_>,
) -> (u32, Placed) {
    let origin = span.origin();
    let service = span.service();
    let pid = recording.processes().name(origin.process);
    let find = |events: &Points, host: u32| {
        let of_pid = known.thread(events, host, None, pid);
        let process = of_pid.map(|thread| events.threads[thread as usize].process);
        process.or_else(|| known.process(host, service)).or_else(|| known.process(host, stem(span.file())))
    };
    let (name, clock) = (recording.hosts().name(origin.host), recording.hosts().name(origin.clock));
    let unknown;
    let (host, name, process) = if name.is_empty() {
        // A log or a strace of an unknown host, too, may be of the same process.
        match threads.find_host(LOCAL).and_then(|host| Some((host, find(events, host)?))) {
            Some((host, process)) => (host, LOCAL, Some(process)),
            None => {
                unknown = shifts::unknown(service);
                (threads.host(events, &unknown, &unknown), &*unknown, None)
            }
        }
    } else {
        let host = threads.host(events, name, clock);
        (host, name, find(events, host))
    };
    let label = |at: usize| {
        let set = span.label_symbol()?;
        recording.label_values(set).nth(at)?
    };
    let of_name = (0..THREADS.len())
        .find_map(|at| known.thread(events, host, process, label(at)?).filter(|_| process.is_some()));
    let own = if service.is_empty() { stem(span.file()) } else { service };
    match (of_name, process) {
        (Some(thread), _) => (thread, Placed::Thread),
        (None, Some(process)) => {
            let process = &events.processes[process as usize].name.clone();
            (beside(events, threads, process, name), Placed::Process)
        }
        (None, None) => (beside(events, threads, own, name), Placed::Nowhere),
    }
}

/// The line of a process's spans whose threads are unknown.
fn beside(events: &mut Points, threads: &mut Threads, process: &str, host: &str) -> u32 {
    threads.thread(events, &format!("spans of {process}@{host}"), process, host, "")
}
