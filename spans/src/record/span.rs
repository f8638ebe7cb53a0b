//! The record of one ended span, and the parts that few spans have.

use std::time::SystemTime;

use opentelemetry::SpanId;
use opentelemetry::trace::SpanKind;
use tracing_core::Metadata;

use super::memory::Text;
use crate::clock::Ticks;
use crate::stats::Counted;

/// The field that sets a span's status.
pub const STATUS_CODE: &str = "otel.status_code";
/// The field that describes an error, and thereby sets the status to error.
pub const STATUS_DESCRIPTION: &str = "otel.status_description";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    #[default]
    Unset,
    /// With a description, which may be empty.
    Error(Text),
    Ok,
}

impl Status {
    /// The status that [`STATUS_CODE`] names, ignoring case.
    #[inline]
    pub fn named(code: &str) -> Self {
        if code.eq_ignore_ascii_case("ok") {
            Status::Ok
        } else if code.eq_ignore_ascii_case("error") {
            Status::Error(Text::EMPTY)
        } else {
            Status::Unset
        }
    }

    /// Sets the status by the precedence in OpenTelemetry's specification ("Set Status"): Ok is
    /// final, and Unset changes nothing. An error without a description keeps the existing
    /// description.
    ///
    /// Returns the description that is no longer used.
    pub fn raise(&mut self, new: Status) -> Option<Text> {
        let old = match (*self, new) {
            (Status::Ok, _) | (_, Status::Unset) => return new.description(),
            (Status::Error(_), Status::Error(text)) if text.length == 0 => return None,
            (old, _) => old.description(),
        };
        *self = new;
        old
    }

    pub fn description(self) -> Option<Text> {
        match self {
            Status::Error(text) => Some(text),
            Status::Unset | Status::Ok => None,
        }
    }

    fn map(self, f: impl FnOnce(Text) -> Text) -> Status {
        match self {
            Status::Error(text) => Status::Error(f(text)),
            status => status,
        }
    }
}

/// An ended span in one cache line, because each line moves to the exporter's thread and back.
///
/// In the lists of a [`Buffer`], a record's attributes and detail follow those of the records
/// before it.
///
/// [`Buffer`]: super::Buffer
#[derive(Clone, Debug)]
pub struct Record {
    pub span_id: SpanId,
    pub parent: SpanId,
    pub metadata: &'static Metadata<'static>,
    pub start: Ticks,
    pub end: Ticks,
    busy: Ticks,
    /// The number of the thread on which the span began.
    pub thread: u32,
    pub attributes: Count,
    pub is_local_root: bool,
    pub parent_is_remote: bool,
    pub has_detail: bool,
}

// Smaller on some 32-bit machines.
const _: () = assert!(size_of::<Record>() <= 64);

/// A number of ticks longer than any span.
const NEVER_ENTERED: Ticks = Ticks::MAX;

impl Record {
    /// `busy` is the time during which at least one thread was inside; `None` if the span was never
    /// entered.
    #[inline]
    pub fn new(
        metadata: &'static Metadata<'static>,
        (span_id, parent): (SpanId, SpanId),
        (start, end): (Ticks, Ticks),
        busy: Option<Ticks>,
        thread: u32,
    ) -> Self {
        Record {
            span_id,
            parent,
            metadata,
            start,
            end,
            busy: busy.unwrap_or(NEVER_ENTERED),
            thread,
            attributes: Count::default(),
            is_local_root: false,
            parent_is_remote: false,
            has_detail: false,
        }
    }

    pub fn counted(&self) -> Counted {
        Counted { spans: 1, roots: u64::from(self.is_local_root), calls: 0.0 }
    }

    pub fn count(records: &[Record]) -> Counted {
        let roots = records.iter().filter(|record| record.is_local_root).count();
        Counted { spans: records.len() as u64, roots: roots as u64, calls: 0.0 }
    }

    /// The time during which a thread was inside, and the rest of the time from the start to the
    /// last exit.
    pub fn busy_and_idle(&self) -> (Ticks, Ticks) {
        if self.busy == NEVER_ENTERED {
            return (0, 0);
        }
        (self.busy, self.end.saturating_sub(self.start).saturating_sub(self.busy))
    }
}

/// The parts that few spans have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detail {
    /// The end time that was set through the OpenTelemetry API.
    pub ended_by_hand: Option<SystemTime>,
    pub name: Option<Text>,
    pub kind: Option<SpanKind>,
    pub status: Status,
    pub events: Count,
    pub links: Count,
}

impl Detail {
    pub const NONE: Detail = Detail {
        ended_by_hand: None,
        name: None,
        kind: None,
        status: Status::Unset,
        events: Count { held: 0, cut: 0 },
        links: Count { held: 0, cut: 0 },
    };

    pub fn is_none(&self) -> bool {
        matches!(self, &Detail::NONE)
    }

    pub fn map(self, mut f: impl FnMut(Text) -> Text) -> Detail {
        Detail { name: self.name.map(&mut f), status: self.status.map(f), ..self }
    }
}

/// The number of items held, and the number that limits cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub held: u32,
    pub cut: u32,
}

impl Count {
    pub fn cut_some(&mut self, more: u32) {
        self.cut = self.cut.saturating_add(more);
    }
}
