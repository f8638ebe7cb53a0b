//! The output of strace: one system call a line, of one thread or of several (`-f`, `-ff`).
//!
//! Record with `strace -f -ttt -T -yy -s 512 -o FILE`. Without `-yy` sockets cannot be told apart.
//! Sends, connects, forks and log records have the time of the call's entry; receives, accepts and
//! joins that of its end: the time of the line with the result, or the entry and the duration
//! (`-T`). strace reads the clock for the entry, prints the arguments, and reads it again to
//! measure the duration, so a call ends later than both say, at most 1 ms (assumed). A result on a
//! line of its own is written after the end; the end of a call on one line is before the next line
//! of its thread. The event's `resolution` reaches to there. Results of 0 and below make no event,
//! except a connect that is in progress: its local port is read from the next label of its
//! descriptor.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::BufRead;
use std::sync::Arc;

use rapidhash::fast::RandomState;

use super::ids;
use crate::Limits;
use crate::lines::each_row;
use astracer_model::event::{Channel, Event, EventKind};
use astracer_model::problem::Place;
use astracer_model::sink::{Record, Sink};
use astracer_model::text::lossy;
use astracer_model::time::UnixNanos;

mod call;
mod line;

use call::{Call, Label};
use line::{Body, Clock, Head};

/// The calls that make events.
const CALLS: &[&str] = &[
    "read",
    "write",
    "recvfrom",
    "sendto",
    "readv",
    "writev",
    "recvmsg",
    "sendmsg",
    "recv",
    "send",
    "sendfile",
    "sendfile64",
    "splice",
    "connect",
    "accept",
    "accept4",
    "clone",
    "clone3",
    "fork",
    "vfork",
    "wait4",
    "waitpid",
    "waitid",
];

/// Nanoseconds from the clock's reading at a call's entry to that from which strace measures: the
/// time to print the arguments, which a busy machine may interrupt. Nothing states it.
const LAG: u64 = 1_000_000;

/// Bytes of a message that are kept, to tell whether a receive has the bytes of a send.
const HEAD_BYTES: usize = 16;

/// The lines at the start of a file that are tried.
const LINES_TRIED: usize = 16;

type Map<K, V> = HashMap<K, V, RandomState>;

/// True if one of the first lines has a time, a name and an opening bracket, as strace writes them.
pub(super) fn is_strace(text: &[u8]) -> bool {
    let lines = text.split(|&byte| byte == b'\n').take(LINES_TRIED);
    let lines = lines.filter_map(|line| std::str::from_utf8(&line[..line.len().min(400)]).ok());
    lines.map(Head::of).any(|head| {
        head.is_some_and(|head| head.time.is_some() && !matches!(Body::of(head.body), Body::Other))
    })
}

/// Reads one file of this format to its end.
pub fn read(input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    let mut reader = Reader {
        threads: Map::default(),
        connects: Map::default(),
        clock: Clock::default(),
        last: 0,
        lone: lone_thread(file),
        place: Place::start_of(file),
    };
    each_row(input, file, limits, sink, |record, sink| {
        reader.line(record, sink);
        Ok(())
    });
    reader.finish(sink);
}

/// The number at the end of the name of a file of one thread (`-ff`).
fn lone_thread(file: &str) -> u64 {
    file.rsplit('.').next().and_then(|end| end.parse().ok()).unwrap_or(0)
}

/// One line's place in the order, and its time.
#[derive(Clone, Copy, Debug, Default)]
struct Stamp {
    line: u64,
    byte: u64,
    time: u64,
    /// Nanoseconds that the event may be later than `time`.
    resolution: u64,
    /// The event is before the next line of its thread, too.
    is_open: bool,
}

#[derive(Debug, Default)]
struct Thread {
    /// The number of threads that had this id before.
    generation: u32,
    /// The first line.
    first: Stamp,
    lines: u64,
    is_forked: bool,
    has_ended: bool,
    /// The process, whose threads share descriptors.
    group: u64,
    /// The entry of a call without its result.
    entry: Option<(String, Stamp)>,
    /// The events of its last call, whose end the next line bounds.
    open: Vec<(Event<'static>, Place)>,
}

struct Reader {
    threads: Map<u64, Thread>,
    /// Connects by process and descriptor whose local port is not known yet.
    connects: Map<(u64, u64), (u64, Stamp)>,
    clock: Clock,
    /// The latest time.
    last: u64,
    lone: u64,
    place: Place,
}

impl Reader {
    fn line(&mut self, record: Record<'_>, sink: &mut dyn Sink) {
        let text = lossy(record.bytes);
        let Some(head) = Head::of(&text) else {
            if !text.trim().is_empty() {
                sink.left_out("a line that is not strace's", record.place);
            }
            return;
        };
        let Some((time, unit)) = head.time.map(|time| (self.clock.read(time), head.unit)) else {
            return sink.left_out("a line without a time: record with -ttt", record.place);
        };
        let at = record.place;
        let stamp = Stamp { line: at.line, byte: at.byte, time, ..Stamp::default() };
        // A time is cut: it was read up to one unit later than is written.
        let cut = time.saturating_add(unit);
        self.last = self.last.max(cut);
        let pid = head.pid.unwrap_or(self.lone);
        let body = Body::of(head.body);
        if let Body::Other = body {
            return;
        }
        self.begin(pid, stamp, cut, sink);
        match body {
            Body::Exited => {
                self.emit(EventKind::End, pid, stamp, 0, sink, |_| {});
                if let Some(thread) = self.threads.get_mut(&pid) {
                    thread.has_ended = true;
                    if thread.entry.take().is_some() {
                        sink.left_out("a call that the end of its thread cut", record.place);
                    }
                }
            }
            Body::Unfinished(entry) => {
                if let Some(thread) = self.threads.get_mut(&pid)
                    && thread.entry.replace((entry.to_owned(), stamp)).is_some()
                {
                    sink.left_out("a call without its result", record.place);
                }
            }
            Body::Resumed(name, rest) => {
                let entry = self.threads.get_mut(&pid).and_then(|thread| thread.entry.take());
                match entry.filter(|(entry, _)| entry.starts_with(name)) {
                    Some((mut entry, at)) => {
                        entry.push_str(rest);
                        let end = Stamp { resolution: unit, ..stamp };
                        self.call(pid, &entry, at, end, sink);
                    }
                    None => sink.left_out("a result without its call", record.place),
                }
            }
            Body::Call(call) => {
                let end = Stamp { resolution: u64::MAX, is_open: true, ..stamp };
                self.call(pid, call, stamp, end, sink);
            }
            Body::Signal | Body::Other => {}
        }
    }

    /// Notes a line of a thread, which may be its first.
    fn begin(&mut self, pid: u64, stamp: Stamp, cut: u64, sink: &mut dyn Sink) {
        let thread = self.threads.entry(pid).or_insert_with(|| Thread {
            first: stamp,
            group: pid,
            ..Thread::default()
        });
        for (event, place) in thread.open.drain(..) {
            bounded(event, cut, &place, sink);
        }
        if thread.has_ended {
            let (first, generation, forked) = (thread.first, thread.generation, thread.is_forked);
            *thread = Thread { generation: generation + 1, first: stamp, group: pid, ..Thread::default() };
            if !forked {
                emit(&mut self.place, EventKind::Start, (pid, generation), first, 0, sink, |_| {});
            }
        }
        if let Some(thread) = self.threads.get_mut(&pid) {
            thread.lines += 1;
        }
    }

    fn call(&mut self, pid: u64, text: &str, entry: Stamp, end: Stamp, sink: &mut dyn Sink) {
        let name = text.split('(').next().unwrap_or_default();
        // Most calls make no event, but their labels tell the ports of connects in progress.
        if self.connects.is_empty() && !CALLS.contains(&name) {
            return;
        }
        let Some(call) = Call::of(text) else { return };
        let end = match call.duration() {
            Some(taken) => {
                let time = entry.time.saturating_add(taken);
                self.last = self.last.max(time);
                let latest = end.time.saturating_add(end.resolution).saturating_sub(time);
                Stamp { time, resolution: latest.min(LAG), ..end }
            }
            None => end,
        };
        let group = self.threads.get(&pid).map_or(pid, |thread| thread.group);
        if !self.connects.is_empty()
            && let Some((descriptor, Some(Label::Connected(local, remote)))) = call.descriptor(0)
            && let Some((own, at)) = self.connects.remove(&(group, descriptor))
        {
            let channel = Channel { from: local, to: remote, is_datagram: false };
            self.emit(EventKind::Connect, own, at, 0, sink, |event| event.channel = Some(channel));
        }
        let bytes = call.result.filter(|&result| result > 0);
        match call.name {
            "read" | "recv" | "recvfrom" | "recvmsg" | "readv" => {
                self.message(EventKind::Receive, pid, &call, 0, end, sink);
            }
            "write" | "writev" if call.written().is_some() => {
                if let (Some(bytes), Some(path)) = (bytes, call.written()) {
                    let text = call.text(1);
                    self.emit(EventKind::Log, pid, entry, 0, sink, |event| {
                        (event.path, event.text, event.bytes) = (Cow::Borrowed(path), text.into(), bytes);
                        event.call = Cow::Borrowed(call.name);
                    });
                }
            }
            "write" | "send" | "sendto" | "sendmsg" | "writev" | "sendfile" | "sendfile64" => {
                self.message(EventKind::Send, pid, &call, 0, entry, sink);
            }
            "splice" => {
                self.message(EventKind::Receive, pid, &call, 0, end, sink);
                self.message(EventKind::Send, pid, &call, 2, entry, sink);
            }
            "connect" => self.connect(pid, group, &call, entry, sink),
            "accept" | "accept4" if bytes.is_some() => match call::label(call.answer) {
                Some(Label::Connected(local, remote)) => {
                    let channel = Channel { from: remote, to: local, is_datagram: false };
                    self.emit(EventKind::Accept, pid, end, 0, sink, |event| {
                        (event.channel, event.call) = (Some(channel), Cow::Borrowed(call.name));
                    });
                }
                _ => self.left_out(call.without_label(), end, sink),
            },
            "clone" | "clone3" | "fork" | "vfork" => {
                if let Some(child) = bytes {
                    self.fork(pid, group, child, call.has_flag("CLONE_THREAD"), entry, sink);
                }
            }
            "wait4" | "waitpid" => {
                bytes.into_iter().for_each(|child| self.join(pid, child, end, sink));
            }
            "waitid" if call.result == Some(0) => {
                let child = text.split_once("si_pid=").map(|(_, rest)| call::digits(rest));
                child
                    .filter(|&child| child > 0)
                    .into_iter()
                    .for_each(|child| self.join(pid, child, end, sink));
            }
            _ => {}
        }
    }

    /// A send or a receive on the descriptor that is the call's n-th argument.
    fn message(
        &mut self,
        kind: EventKind,
        pid: u64,
        call: &Call<'_>,
        argument: usize,
        stamp: Stamp,
        sink: &mut dyn Sink,
    ) {
        let Some(bytes) = call.result.filter(|&result| result > 0) else { return };
        let Some((_, label)) = call.descriptor(argument) else { return };
        let (local, remote) = match label {
            Some(Label::Connected(local, remote)) => (local, remote),
            Some(Label::Path(_)) => return,
            Some(Label::Other | Label::Pipe(_)) => {
                return self.left_out("a message that is not TCP's", stamp, sink);
            }
            // Nothing tells whether a descriptor without a label is a socket.
            None if call.name.starts_with("rec") || call.name.starts_with("sendto") => {
                return self.left_out(call.without_label(), stamp, sink);
            }
            None => return,
        };
        if call.has_flag("MSG_PEEK") {
            return self.left_out("a look at bytes that another call receives", stamp, sink);
        }
        let (from, to) = if kind == EventKind::Send { (local, remote) } else { (remote, local) };
        self.emit(kind, pid, stamp, 0, sink, |event| {
            event.channel = Some(Channel { from, to, is_datagram: false });
            (event.bytes, event.call) = (bytes, Cow::Borrowed(call.name));
            let text = call.message(argument);
            event.contexts = ids::contexts(text.as_bytes());
            event.head = call::unescaped_bytes(text, HEAD_BYTES).into();
        });
    }

    fn connect(&mut self, pid: u64, group: u64, call: &Call<'_>, entry: Stamp, sink: &mut dyn Sink) {
        let is_inet = call.arguments.get(1).is_some_and(|address| address.contains("AF_INET"));
        match call.descriptor(0) {
            Some((_, Some(Label::Path(_)))) | None => {}
            _ if !is_inet => self.left_out("a connect that is not TCP's", entry, sink),
            Some((_, None)) => self.left_out(call.without_label(), entry, sink),
            Some((descriptor, Some(_))) if call.is_tcp(0) => {
                if call.result != Some(0) && !call.answer.contains("EINPROGRESS") {
                    return self.left_out("a connect that failed", entry, sink);
                }
                if let Some((own, at)) = self.connects.insert((group, descriptor), (pid, entry)) {
                    self.emit(EventKind::Connect, own, at, 0, sink, |_| {});
                }
            }
            Some(_) => self.left_out("a connect that is not TCP's", entry, sink),
        }
    }

    fn fork(&mut self, pid: u64, group: u64, child: u64, is_thread: bool, entry: Stamp, sink: &mut dyn Sink) {
        // Lines of the child may precede the result of the call that made it.
        let is_known = |thread: &Thread| !thread.is_forked && thread.first.line >= entry.line;
        let mut generation = 0;
        if let Some(known) = self.threads.get(&child) {
            generation = known.generation;
            if !is_known(known) {
                if !known.is_forked {
                    let own = (child, generation);
                    emit(&mut self.place, EventKind::Start, own, known.first, 0, sink, |_| {});
                }
                generation += 1;
                let before = self.threads.remove(&child).into_iter().flat_map(|thread| thread.open);
                before.for_each(|(event, place)| bounded(event, entry.time, &place, sink));
            }
        }
        let thread = self.threads.entry(child).or_default();
        thread.generation = generation;
        thread.is_forked = true;
        thread.group = if is_thread { group } else { child };
        let name = name(child, generation);
        self.emit(EventKind::Fork, pid, entry, 0, sink, |event| event.child = name.into());
        self.emit(EventKind::Start, child, entry, 1, sink, |_| {});
    }

    fn join(&mut self, pid: u64, child: u64, end: Stamp, sink: &mut dyn Sink) {
        // A child whose end was not recorded ends at the wait, if nothing else is known of it.
        let mut generation = 0;
        let mut is_silent = false;
        if let Some(thread) = self.threads.get_mut(&child) {
            generation = thread.generation;
            is_silent = thread.lines == 0 && !thread.has_ended;
            thread.has_ended |= is_silent;
        }
        if is_silent {
            self.emit(EventKind::End, child, end, 2, sink, |_| {});
        }
        let name = name(child, generation);
        self.emit(EventKind::Join, pid, end, 3, sink, |event| event.child = name.into());
    }

    fn left_out(&mut self, reason: &'static str, stamp: Stamp, sink: &mut dyn Sink) {
        (self.place.line, self.place.byte) = (stamp.line, stamp.byte);
        sink.left_out(reason, &self.place);
    }

    fn emit<'e>(
        &mut self,
        kind: EventKind,
        pid: u64,
        stamp: Stamp,
        part: u64,
        sink: &mut dyn Sink,
        more: impl FnOnce(&mut Event<'e>),
    ) {
        let Some(thread) = self.threads.get_mut(&pid).filter(|_| stamp.is_open) else {
            let generation = self.threads.get(&pid).map_or(0, |thread| thread.generation);
            return emit(&mut self.place, kind, (pid, generation), stamp, part, sink, more);
        };
        let mut event = event(kind, (pid, thread.generation), stamp, part);
        more(&mut event);
        let place = Place { line: stamp.line, byte: stamp.byte, ..self.place.clone() };
        thread.open.push((event.into_owned(), place));
    }

    /// Delivers what only the end of the file tells.
    fn finish(mut self, sink: &mut dyn Sink) {
        let mut open: Vec<_> = self.threads.values_mut().flat_map(|thread| thread.open.drain(..)).collect();
        open.sort_unstable_by_key(|(event, _)| event.sequence);
        for (event, place) in open {
            bounded(event, self.last, &place, sink);
        }
        let mut connects: Vec<_> = std::mem::take(&mut self.connects).into_values().collect();
        connects.sort_unstable_by_key(|&(_, at)| at.line);
        for (pid, at) in connects {
            self.emit(EventKind::Connect, pid, at, 0, sink, |_| {});
        }
        let roots = self.threads.iter().filter(|(_, thread)| !thread.is_forked);
        let mut roots: Vec<_> =
            roots.map(|(&pid, thread)| (thread.first.line, pid, thread.generation, thread.first)).collect();
        roots.sort_unstable_by_key(|&(line, pid, ..)| (line, pid));
        for (_, pid, generation, first) in roots {
            emit(&mut self.place, EventKind::Start, (pid, generation), first, 0, sink, |_| {});
        }
        let open = self.threads.values().filter(|thread| thread.entry.is_some()).count();
        for _ in 0..open {
            sink.left_out("a call that the end of the file cut", &self.place);
        }
    }
}

/// The name of a thread: its number, and behind it how often the number was used before.
fn name(pid: u64, generation: u32) -> String {
    if generation == 0 { pid.to_string() } else { format!("{pid}#{}", generation + 1) }
}

fn event<'e>(kind: EventKind, (pid, generation): (u64, u32), stamp: Stamp, part: u64) -> Event<'e> {
    let mut event = Event::new(kind, UnixNanos(stamp.time), name(pid, generation));
    event.sequence = stamp.line.saturating_mul(4).saturating_add(part);
    event.resolution = stamp.resolution;
    event
}

/// Delivers an event that was over before a time.
fn bounded(mut event: Event<'_>, end: u64, place: &Place, sink: &mut dyn Sink) {
    event.resolution = event.resolution.min(end.saturating_sub(event.time.0));
    sink.event(event, Record { bytes: b"", place });
}

fn emit<'e>(
    place: &mut Place,
    kind: EventKind,
    of: (u64, u32),
    stamp: Stamp,
    part: u64,
    sink: &mut dyn Sink,
    more: impl FnOnce(&mut Event<'e>),
) {
    let mut event = event(kind, of, stamp, part);
    more(&mut event);
    (place.line, place.byte) = (stamp.line, stamp.byte);
    sink.event(event, Record { bytes: b"", place });
}
