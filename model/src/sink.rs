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

    /// Announces that the spans and problems after this call come from `file`, which has this
    /// format.
    fn file(&mut self, file: &Arc<str>, format: Format) {
        let _ = (file, format);
    }

    /// Returns true if log records are wanted. Files of logs are skipped otherwise.
    fn wants_logs(&self) -> bool {
        false
    }

    /// Receives one log record and the text it was read from. Called only if
    /// [`wants_logs`](Self::wants_logs) returns true.
    fn log(&mut self, log: LogRecord<'_>, record: Record<'_>) {
        let _ = (log, record);
    }

    /// Announces that the log records and problems after this call come from `file`, which has this
    /// format.
    fn log_file(&mut self, file: &Arc<str>, format: LogFormat) {
        let _ = (file, format);
    }

    /// Returns true if events are wanted. Files of events are read as logs, or skipped, otherwise.
    fn wants_events(&self) -> bool {
        false
    }

    /// Receives one event and the text it was read from. Called only if
    /// [`wants_events`](Self::wants_events) returns true.
    fn event(&mut self, event: Event<'_>, record: Record<'_>) {
        let _ = (event, record);
    }

    /// Announces that the events and problems after this call come from `file`, which has this
    /// format.
    fn event_file(&mut self, file: &Arc<str>, format: EventFormat) {
        let _ = (file, format);
    }

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

/// The piece of input that one span, log record or event was read from.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its own text or bytes, without separators: the JSON object, the CSV row or the lines without
    /// the last line end, or the protobuf message without tag and length.
    pub bytes: &'a [u8],
    /// The position of the first byte.
    pub place: &'a Place,
}
