//! Constraints and their reasons, and events without a counterpart.

use std::fmt;

/// The reason why one point happened before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeKind {
    /// Both are points of one thread.
    ProgramOrder,
    /// A fork made the thread that starts.
    ForkStart,
    /// A join waited for the thread that ended.
    EndJoin,
    /// A connection was accepted after it was opened.
    ConnectAccept,
    /// Bytes are received after they were sent.
    SendReceive,
    /// A vector clock knows of a point.
    VectorClock,
    /// An X-Trace report names the other as its cause.
    Report,
    /// The one record stands before the other in a log that states no threads: an order, but no
    /// cause.
    Line,
    /// A span's start precedes its events in order, and these precede its end.
    Span,
    /// A span's start precedes the starts of its children and of spans that link to it.
    Call,
    /// A span's start precedes the messages and log records that carry its id; a record of the
    /// span's own thread or process precedes the span's end.
    Id,
    /// A point of a span precedes the start of a child that began later.
    BeforeCall,
    /// The end of a child precedes what its parent, which waited for it, does afterwards.
    Return,
    /// The start of a child on another host precedes the end of the parent that waited for it.
    Began,
}

/// The evidence for an edge, from the strongest to the weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Certainty {
    /// The recorder states the order: one thread, forks and joins, vector clocks, reports.
    Stated,
    /// Positions in a stream of bytes.
    Bytes,
    /// Ids of spans.
    Ids,
    /// The times of a span lie within those of its parent, by corrected clocks.
    Nesting,
}

impl Certainty {
    /// From the strongest to the weakest.
    pub const ALL: [Self; 4] = [Self::Stated, Self::Bytes, Self::Ids, Self::Nesting];

    /// The words for people: `by ids`.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Stated => "as recorded",
            Self::Bytes => "by bytes",
            Self::Ids => "by ids",
            Self::Nesting => "by nesting",
        }
    }
}

impl EdgeKind {
    /// Every kind, from the most to the least certain.
    pub const ALL: &'static [Self] = &[
        Self::ProgramOrder,
        Self::ForkStart,
        Self::EndJoin,
        Self::ConnectAccept,
        Self::SendReceive,
        Self::VectorClock,
        Self::Report,
        Self::Line,
        Self::Span,
        Self::Call,
        Self::Id,
        Self::BeforeCall,
        Self::Return,
        Self::Began,
    ];

    /// The short name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ProgramOrder => "PO",
            Self::ForkStart => "FS",
            Self::EndJoin => "EJ",
            Self::ConnectAccept => "CA",
            Self::SendReceive => "SR",
            Self::VectorClock => "VC",
            Self::Report => "RP",
            Self::Line => "LN",
            Self::Span => "SP",
            Self::Call => "CL",
            Self::Id => "ID",
            Self::BeforeCall => "BC",
            Self::Return => "RT",
            Self::Began => "BG",
        }
    }

    /// The evidence for an edge of this kind.
    pub fn certainty(self) -> Certainty {
        match self {
            Self::ProgramOrder
            | Self::ForkStart
            | Self::EndJoin
            | Self::VectorClock
            | Self::Report
            | Self::Line => Certainty::Stated,
            Self::ConnectAccept | Self::SendReceive => Certainty::Bytes,
            Self::Span | Self::Call | Self::Id => Certainty::Ids,
            Self::BeforeCall | Self::Return | Self::Began => Certainty::Nesting,
        }
    }

    /// True if the earlier point may have caused the later one. Lines of a log may be of several
    /// threads.
    pub fn is_cause(self) -> bool {
        self != Self::Line
    }

    /// True for causes on other threads, as Falcon's files name them.
    pub fn is_dependency(self) -> bool {
        matches!(
            self,
            Self::ForkStart | Self::EndJoin | Self::ConnectAccept | Self::SendReceive | Self::VectorClock
        )
    }
}

/// One constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The reason.
    pub kind: EdgeKind,
    /// The event that happened first.
    pub before: u32,
    /// The event that happened later.
    pub after: u32,
}

/// An event without its counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// The event.
    pub event: u32,
    /// Why it has none.
    pub why: Why,
}

/// Why an event has no counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// No fork made this thread.
    NoFork,
    /// The child never starts.
    NoStart,
    /// The thread that was waited for never ends.
    NoEnd,
    /// The connection is never accepted.
    NoAccept,
    /// The connection that is accepted was never opened.
    NoConnect,
    /// Nothing was received in this direction of the connection.
    NoReceive,
    /// Nothing was sent in this direction of the connection.
    NoSend,
    /// The bytes come after the last that was received.
    AfterReceived,
    /// The bytes end after the last that was sent, or begin there.
    BeyondSent,
    /// The bytes differ from those that were sent at this place of the stream.
    NotAsSent,
    /// The stream stopped closing before.
    BehindBreak,
}

impl Why {
    /// As a text for people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::NoFork => "no fork of this thread was recorded",
            Self::NoStart => "the child has no start",
            Self::NoEnd => "the child has no end",
            Self::NoAccept => "no accept of this connection was recorded",
            Self::NoConnect => "no connect of this connection was recorded",
            Self::NoReceive => "no receive in this direction was recorded",
            Self::NoSend => "no send in this direction was recorded",
            Self::AfterReceived => "bytes after the last received",
            Self::BeyondSent => "bytes beyond the last sent",
            Self::NotAsSent => "the stream stops closing here: the bytes are not those sent",
            Self::BehindBreak => "behind the place where the stream stopped closing",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

/// All constraints, and the events without a counterpart.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) edges: Vec<Edge>,
    pub(crate) unmatched: Vec<Unmatched>,
}
