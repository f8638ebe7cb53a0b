//! Gives spans their places: events of their start and end, on the thread or beside the process
//! that other files tell of.

use std::collections::HashMap;

use astracer_model::event::EventKind;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::span::{Span, SpanKind};
use astracer_model::value::Value;
use astracer_recording::intern::{Interner, Symbol};
use rapidhash::fast::RandomState;

use crate::points::{Events, NONE, Placed, Row, SpanRow};
use crate::threads::{Origin, Threads, or_local};

/// A span until all files are read.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    file: u32,
    line: u64,
    trace: TraceId,
    id: SpanId,
    parents: Box<[SpanId]>,
    kind: SpanKind,
    follows: bool,
    shared: bool,
    start: u64,
    end: Option<u64>,
    text: (u64, u32),
    service: Symbol,
    host: Symbol,
    /// The thread's number and name; the process's number. Empty if unknown.
    threads: [Symbol; 2],
    pid: Symbol,
}

impl Pending {
    /// Keeps what an order needs of a span; `None` without a start.
    pub(crate) fn of(
        span: &Span<'_>,
        (file, line): (u32, u64),
        names: &mut Interner,
        texts: &mut Vec<u8>,
    ) -> Option<Self> {
        let start = span.start?.0;
        let own = |key: &str| span.attributes.iter().find(|own| own.key == key).map(|own| shown(&own.value));
        let of_process = |key: &str| {
            let found = span.resource.attributes.iter().find(|own| own.key == key);
            found.map(|found| shown(&found.value)).unwrap_or_default()
        };
        let host = [of_process("host.name"), of_process("k8s.pod.name")];
        let host = host.iter().find(|host| !host.is_empty()).map_or("", |host| host);
        Some(Self {
            file,
            line,
            trace: span.trace_id,
            id: span.span_id,
            parents: span.parents.to_vec().into(),
            kind: span.kind,
            follows: span.follows,
            shared: span.shared,
            start,
            end: span.end.map(|end| end.0),
            text: Row::new(EventKind::SpanStart, 0, texts, &span.name).text,
            service: names.intern(span.resource.service_name()),
            host: names.intern(host),
            threads: ["thread.id", "thread.name"].map(|key| names.intern(&own(key).unwrap_or_default())),
            pid: names.intern(&of_process("process.pid")),
        })
    }
}

fn shown(value: &Value<'_>) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

/// The threads and processes that other files than those of spans tell of.
pub(crate) struct Known {
    /// By host, and the name without the host.
    threads: HashMap<(u32, String), Vec<u32>, RandomState>,
    /// By host and name.
    processes: HashMap<(u32, String), u32, RandomState>,
}

impl Known {
    pub(crate) fn new(events: &Events) -> Self {
        let mut known = Self { threads: HashMap::default(), processes: HashMap::default() };
        let mut is_seen = vec![false; events.threads.len()];
        for row in &events.rows {
            let at = row.thread as usize;
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
    pub(crate) fn thread(&self, events: &Events, host: u32, process: Option<u32>, name: &str) -> Option<u32> {
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

    fn process(&self, host: u32, name: &str) -> Option<u32> {
        self.processes.get(&(host, name.to_owned())).copied()
    }
}

/// Makes events of all spans.
pub(crate) fn place(
    events: &mut Events,
    threads: &mut Threads,
    pending: &[Pending],
    names: &Interner,
    origins: &[Origin],
    known: &Known,
) {
    for (number, span) in (0..).zip(pending) {
        let origin = &origins[span.file as usize];
        let host = if origin.host.is_empty() { names.name(span.host) } else { &origin.host };
        let host = or_local(host);
        let host_number = threads.host(events, host);
        let service = names.name(span.service);
        let of_pid = known.thread(events, host_number, None, names.name(span.pid));
        let process = of_pid.map(|thread| events.threads[thread as usize].process);
        let process = process
            .or_else(|| known.process(host_number, service))
            .or_else(|| known.process(host_number, &origin.process));
        let name = if service.is_empty() { &origin.process } else { service };
        let of_name = span.threads.iter().find_map(|&thread| {
            known.thread(events, host_number, process, names.name(thread)).filter(|_| process.is_some())
        });
        let (thread, placed) = match (of_name, process) {
            (Some(thread), _) => (thread, Placed::Thread),
            (None, Some(process)) => {
                let name = &events.processes[process as usize].name.clone();
                (beside(events, threads, name, host), Placed::Process)
            }
            (None, None) => (beside(events, threads, name, host), Placed::Nowhere),
        };
        let own = events.spans.len() as u32;
        let first = events.parents.len() as u32;
        events.parents.extend_from_slice(&span.parents);
        events.spans.push(SpanRow {
            trace: span.trace,
            id: span.id,
            parents: (first, events.parents.len() as u32),
            kind: span.kind,
            follows: span.follows,
            shared: span.shared,
            start: NONE,
            end: NONE,
            thread,
            placed,
            by_bytes: false,
        });
        let ends = [(EventKind::SpanStart, Some(span.start)), (EventKind::SpanEnd, span.end)];
        for (part, (kind, time)) in (0..).zip(ends) {
            let Some(time) = time else { continue };
            let mut row = Row::new(kind, time, &mut events.texts, "");
            (row.text, row.file, row.line) = (span.text, span.file, span.line);
            (row.sequence, row.thread, row.span) = (number * 2 + part, thread, own);
            events.rows.push(row);
        }
    }
}

/// The line of a process's spans whose threads are unknown.
fn beside(events: &mut Events, threads: &mut Threads, process: &str, host: &str) -> u32 {
    threads.thread(events, &format!("spans of {process}@{host}"), process, host, "")
}
