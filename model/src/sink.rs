//! The interface between readers and the code that consumes spans, log records and events.

use std::sync::Arc;

use crate::event::{Event, EventFormat};
use crate::format::Format;
use crate::log::{LogFormat, LogRecord};
use crate::problem::{Place, Problem};
use crate::span::Span;

/// Receives spans and problems from a reader, in the order of the input.
pub trait Sink {
    /// Receives one span and the record it was read from.
    fn span(&mut self, span: Span<'_>, record: Record<'_>);

    /// Announces that what follows, problems included, comes from `file`, which holds this.
    fn file(&mut self, file: &Arc<str>, content: Content) {
        let _ = (file, content);
    }

    /// Returns what is wanted besides spans.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// Receives one log record and the text it was read from. Called only if
    /// [logs are wanted](Wants::logs).
    fn log(&mut self, log: LogRecord<'_>, record: Record<'_>) {
        let _ = (log, record);
    }

    /// Receives one event and the text it was read from. Called only if
    /// [events are wanted](Wants::events).
    fn event(&mut self, event: Event<'_>, record: Record<'_>) {
        let _ = (event, record);
    }

    /// Announces that the input, which is still being written, has nothing more for now.
    fn idle(&mut self) {}

    /// Counts a part of an event file that makes no event, by its reason.
    fn left_out(&mut self, reason: &'static str, place: &Place) {
        let _ = (reason, place);
    }

    /// Announces that the spans after this call come from another document of the file: another
    /// request, answer or list of traces. Single spans that follow each other are one document.
    fn document(&mut self) {}

    /// Receives one problem; the reader continues after it.
    fn problem(&mut self, problem: Problem);

    /// Receives the name of a file without traces (a log, a table) and the reason it was skipped.
    fn skipped(&mut self, file: &Arc<str>, reason: &str);

    /// Reports that `bytes` more of the input were read, counted before decompression. For progress
    /// displays.
    fn progress(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Returns true if reading should end soon, because the user interrupted it or a strict caller
    /// saw a problem.
    fn stopped(&self) -> bool {
        false
    }
}

/// Holds the format of a file, by what the file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Spans.
    Spans(Format),
    /// Log records.
    Logs(LogFormat),
    /// Events.
    Events(EventFormat),
}

impl From<Format> for Content {
    fn from(format: Format) -> Self {
        Self::Spans(format)
    }
}

impl From<LogFormat> for Content {
    fn from(format: LogFormat) -> Self {
        Self::Logs(format)
    }
}

impl From<EventFormat> for Content {
    fn from(format: EventFormat) -> Self {
        Self::Events(format)
    }
}

/// Says which records a sink takes besides spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Log records. Files of logs are skipped otherwise.
    pub logs: bool,
    /// Events. Files of events are read as logs, or skipped, otherwise.
    pub events: bool,
}

/// The piece of input that one span, log record or event was read from.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its own text or bytes, without separators: the JSON object, the CSV row or the lines without
    /// the last line end, or the protobuf message without tag and length.
    pub bytes: &'a [u8],
    /// The position of the first byte.
    pub place: &'a Place,
}
