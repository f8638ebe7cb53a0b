//! The record of one span: small, without pointers of its own. Texts, attributes, events and links lie in the memory
//! of the whole trace, see [`Buffer`](super::buffer::Buffer).

use opentelemetry::SpanId;
use opentelemetry::trace::SpanKind;
use tracing_core::{Metadata, span};

use super::memory::Memory;
use crate::clock::Ticks;

/// A piece of the trace's text memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) start: u32,
    pub(crate) length: u32,
}

impl Text {
    pub(crate) const EMPTY: Text = Text { start: 0, length: 0 };
}

/// A piece of the trace's list of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) start: u32,
    pub(crate) count: u32,
}

/// A span's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Status {
    #[default]
    Unset,
    /// With a description, which may be empty.
    Error(Text),
    Ok,
}

impl Status {
    /// Sets it, as OpenTelemetry's specification orders them ("Set Status"): Ok is final, and Unset changes nothing. An
    /// error without a description does not take away the one that is there.
    pub(crate) fn raise(&mut self, new: Status) {
        match (*self, new) {
            (Status::Ok, _) | (_, Status::Unset) => {}
            (Status::Error(_), Status::Error(text)) if text.length == 0 => {}
            _ => *self = new,
        }
    }
}

/// One span, open or closed: what every span has, in one cache line, since each line travels to the exporter's thread and
/// back.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// While it is open its id in the subscriber; then for how long it was entered, in ticks.
    id_or_busy: u64,
    pub(crate) span_id: SpanId,
    pub(crate) parent: SpanId,
    pub(crate) metadata: &'static Metadata<'static>,
    pub(crate) start: Ticks,
    /// 0 while it is open.
    pub(crate) end: Ticks,
    pub(crate) attributes: Count,
    /// Into the trace's list of details.
    pub(crate) detail: u32,
    /// Into the trace's list of threads.
    pub(crate) thread: u16,
    /// Its data is in another buffer: here it is not exported.
    pub(crate) left: bool,
}

const _: () = assert!(size_of::<Record>() <= 64);

/// In ticks, longer than anything takes.
const NEVER_ENTERED: Ticks = Ticks::MAX;

/// What is known of a span when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) time: Ticks,
    /// For how long it was entered, `None` if it never was. Threads that were inside at the same time count once.
    pub(crate) busy: Option<Ticks>,
}

/// What few spans have.
#[derive(Clone, Debug)]
pub(crate) struct Detail {
    pub(crate) parent_is_remote: bool,
    /// An end that code on the OpenTelemetry API gave.
    pub(crate) ended_by_hand: Option<std::time::SystemTime>,
    pub(crate) name: Option<Text>,
    pub(crate) kind: Option<SpanKind>,
    pub(crate) status: Status,
    pub(crate) events: Count,
    pub(crate) links: Count,
}

impl Detail {
    pub(crate) const NONE: Detail = Detail {
        parent_is_remote: false,
        ended_by_hand: None,
        name: None,
        kind: None,
        status: Status::Unset,
        events: Count { held: 0, cut: 0 },
        links: Count { held: 0, cut: 0 },
    };

    /// The same, its texts copied from one memory to another.
    pub(crate) fn adopted(&self, from: &Memory, to: &mut Memory) -> Detail {
        let status = match self.status {
            Status::Error(text) => Status::Error(to.adopt(from, text)),
            status => status,
        };
        Detail { name: self.name.map(|text| to.adopt(from, text)), status, ..self.clone() }
    }
}

impl Record {
    pub(crate) fn new(
        id: &span::Id,
        span_id: SpanId,
        parent: SpanId,
        metadata: &'static Metadata<'static>,
        start: Ticks,
    ) -> Self {
        Record {
            id_or_busy: id.into_u64(),
            span_id,
            parent,
            metadata,
            start,
            end: 0,
            attributes: Count::default(),
            detail: u32::MAX,
            thread: u16::MAX,
            left: false,
        }
    }

    /// The record as it stays when the closed ones of a trace leave. If it is closed, it leaves a place behind; if it is
    /// open, it is marked here as not being part of what leaves.
    pub(crate) fn part(&mut self) -> Record {
        let stays = self.is_open();
        let stayed = Record { left: !stays, ..self.clone() };
        self.left = stays;
        stayed
    }

    pub(crate) fn is_open(&self) -> bool {
        self.end == 0
    }

    /// Whether it is the record of the open span of this id.
    pub(crate) fn is_of(&self, id: &span::Id) -> bool {
        self.is_open() && self.id_or_busy == id.into_u64()
    }

    #[inline]
    pub(crate) fn close(&mut self, ending: Ending) {
        self.id_or_busy = ending.busy.unwrap_or(NEVER_ENTERED);
        self.end = ending.time;
    }

    /// It is no longer that of a span, and is not exported.
    pub(crate) fn vacate(&mut self) {
        self.left = true;
        self.close(Ending { time: self.start, busy: None });
    }

    /// For how long the span was entered, and for how long, from its start to when it was last left, it was not.
    pub(crate) fn busy_and_idle(&self) -> (Ticks, Ticks) {
        if self.is_open() || self.id_or_busy == NEVER_ENTERED {
            return (0, 0);
        }
        (self.id_or_busy, self.end.saturating_sub(self.start).saturating_sub(self.id_or_busy))
    }
}

/// How many there are, and how many the limits cut.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) held: u32,
    pub(crate) cut: u32,
}

impl Count {
    /// How many of so many more are within the limit; counts them all.
    #[inline]
    pub(crate) fn admit_some(&mut self, more: usize, max: u32) -> usize {
        let admitted = more.min(max.saturating_sub(self.held) as usize);
        self.held += admitted as u32;
        self.cut = self.cut.saturating_add((more - admitted) as u32);
        admitted
    }

    /// Whether one more is within the limit; counts it either way.
    pub(crate) fn admit(&mut self, max: u32) -> bool {
        self.admit_some(1, max) == 1
    }
}
