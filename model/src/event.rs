//! One event of a thread or a process: of a log, of a message between processes, or of the life of
//! threads. The kinds are those of Falcon (Neves et al., "Falcon: A Practical Log-based Analysis
//! Tool for Distributed Systems", DSN 2018), with the start and the end of spans.

use std::borrow::Cow;
use std::fmt;

use crate::ids::{SpanId, TraceId};
use crate::time::UnixNanos;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// A thread opened a connection.
    Connect,
    /// A thread accepted a connection.
    Accept,
    /// A thread sent bytes.
    Send,
    /// A thread received bytes.
    Receive,
    /// A thread began.
    Start,
    /// A thread ended.
    End,
    /// A thread made another thread or process.
    Fork,
    /// A thread has waited for the end of another.
    Join,
    /// A thread wrote a log record.
    Log,
    /// A span began.
    SpanStart,
    /// An event of a span.
    SpanEvent,
    /// A span ended.
    SpanEnd,
}

impl EventKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::Connect,
        Self::Accept,
        Self::Send,
        Self::Receive,
        Self::Start,
        Self::End,
        Self::Fork,
        Self::Join,
        Self::Log,
        Self::SpanStart,
        Self::SpanEvent,
        Self::SpanEnd,
    ];

    /// The name in Falcon's files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "CONNECT",
            Self::Accept => "ACCEPT",
            Self::Send => "SND",
            Self::Receive => "RCV",
            Self::Start => "START",
            Self::End => "END",
            Self::Fork => "CREATE",
            Self::Join => "JOIN",
            Self::Log => "LOG",
            Self::SpanStart => "SPAN_START",
            Self::SpanEvent => "SPAN_EVENT",
            Self::SpanEnd => "SPAN_END",
        }
    }

    /// The kind of this name in either case. The paper's `FORK` is `CREATE`.
    pub fn from_name(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("FORK") {
            return Some(Self::Fork);
        }
        Self::ALL.iter().copied().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One event, borrowed from the reader's buffer where possible.
#[derive(Clone, Debug, PartialEq)]
pub struct Event<'a> {
    /// The kind.
    pub kind: EventKind,
    /// The number that its file gives it; readers of Falcon's files count where it is missing.
    pub id: Option<u64>,
    /// The time, by the host's clock.
    pub time: UnixNanos,
    /// The event is at most this later than `time`, in nanoseconds: 0 if the time is exact, or if
    /// nothing bounds it.
    pub resolution: u64,
    /// The position in the order of the file. Readers may deliver events in another order: the
    /// result of a system call follows it, and so does the port of a connection.
    pub sequence: u64,
    /// The host, if the file states it; else empty.
    pub host: Cow<'a, str>,
    /// The process, if the file states it; else empty.
    pub process: Cow<'a, str>,
    /// The thread; empty for a file without threads.
    pub thread: Cow<'a, str>,
    /// The thread that a fork made or a join waited for; else empty.
    pub child: Cow<'a, str>,
    /// The connection of a message, a connect or an accept, in the direction of its bytes: from the
    /// client for the latter two.
    pub channel: Option<Channel<'a>>,
    /// The system call, such as `sendto`; empty if the file states none.
    pub call: Cow<'a, str>,
    /// The bytes of a message.
    pub bytes: u64,
    /// The first of these bytes, as far as they were recorded.
    pub head: Cow<'a, [u8]>,
    /// The record of a log as far as it is known, the number of a datagram, or the name of a span.
    pub text: Cow<'a, str>,
    /// The file that a log record was written to; empty if unknown.
    pub path: Cow<'a, str>,
    /// The ids in the text of a message. Of a span its own, and with the same trace its parents'.
    pub contexts: Vec<(TraceId, SpanId)>,
    /// A vector clock: how many events of each process are known here.
    pub clock: Vec<(Cow<'a, str>, u64)>,
}

impl<'a> Event<'a> {
    /// An event of this kind, time and thread, with nothing else.
    pub fn new(kind: EventKind, time: UnixNanos, thread: impl Into<Cow<'a, str>>) -> Self {
        Self {
            kind,
            id: None,
            time,
            resolution: 0,
            sequence: 0,
            host: Cow::Borrowed(""),
            process: Cow::Borrowed(""),
            thread: thread.into(),
            child: Cow::Borrowed(""),
            channel: None,
            call: Cow::Borrowed(""),
            bytes: 0,
            head: Cow::Borrowed(b""),
            text: Cow::Borrowed(""),
            path: Cow::Borrowed(""),
            contexts: Vec::new(),
            clock: Vec::new(),
        }
    }

    /// The event without borrowed parts.
    pub fn into_owned(self) -> Event<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Event {
            host: owned(self.host),
            process: owned(self.process),
            thread: owned(self.thread),
            child: owned(self.child),
            channel: self.channel.map(Channel::into_owned),
            call: owned(self.call),
            head: Cow::Owned(self.head.into_owned()),
            text: owned(self.text),
            path: owned(self.path),
            clock: self.clock.into_iter().map(|(name, count)| (owned(name), count)).collect(),
            ..self
        }
    }
}

/// One direction of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Channel<'a> {
    /// The sender.
    pub from: Endpoint<'a>,
    /// The receiver.
    pub to: Endpoint<'a>,
    /// True for UDP.
    pub is_datagram: bool,
}

impl Channel<'_> {
    /// The channel without borrowed parts.
    pub fn into_owned(self) -> Channel<'static> {
        let owned = |end: Endpoint<'_>| Endpoint { address: Cow::Owned(end.address.into_owned()), ..end };
        Channel { from: owned(self.from), to: owned(self.to), is_datagram: self.is_datagram }
    }

    /// The other direction of the connection.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self { from: self.to.clone(), to: self.from.clone(), is_datagram: self.is_datagram }
    }
}

impl fmt::Display for Channel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}->{}", self.from, self.to)
    }
}

/// An address and a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Endpoint<'a> {
    /// The address as written.
    pub address: Cow<'a, str>,
    /// The port; 0 if unknown.
    pub port: u16,
}

impl fmt::Display for Endpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.address, self.port)
    }
}

/// A format in which events are written. `astracer-formats` reads each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventFormat {
    /// Falcon's JSON: objects, one a line or in a list. The order within a thread is that of times.
    FalconJson,
    /// The output of strace. The order within a thread is that of lines.
    Strace,
    /// A log with vector clocks, as ShiViz reads it. They state the order.
    VectorClocks,
}

impl EventFormat {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::FalconJson => "falcon-json",
            Self::Strace => "strace",
            Self::VectorClocks => "vector-clocks",
        }
    }
}

impl fmt::Display for EventFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_name() {
        for &kind in EventKind::ALL {
            assert_eq!(EventKind::from_name(&kind.name().to_ascii_lowercase()), Some(kind));
        }
        assert_eq!(EventKind::from_name("FORK"), Some(EventKind::Fork));
        assert_eq!(EventKind::from_name("HANDLERBEGIN"), None);
    }
}
