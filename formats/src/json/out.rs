//! The output of the JSON readers: spans and problems with their places.

use std::sync::Arc;

use super::cursor::{Cursor, Fault, Notes, Why};
use astracer_model::event::Event;
use astracer_model::log::LogRecord;
use astracer_model::problem::{Limit, Place, Problem, ProblemKind};
use astracer_model::sink::{Record, Sink};
use astracer_model::span::Span;

pub(super) const INSIDE_A_VALUE: &str = "incomplete JSON value";

pub(super) const TOO_DEEP: &str = "nested too deeply";

/// A sink and the position of the cursor's text in the file.
pub(crate) struct Out<'s> {
    sink: &'s mut dyn Sink,
    place: Place,
    /// Byte and line of the start of the cursor's text.
    text_place: (u64, u64),
    /// A text offset, and the line there. Lines have been counted up to it.
    counted: (usize, u64),
}

impl<'s> Out<'s> {
    pub(super) fn new(file: &Arc<str>, sink: &'s mut dyn Sink) -> Self {
        Self { sink, place: Place::start_of(file), text_place: (0, 1), counted: (0, 1) }
    }

    /// Sets the position of the cursor's text in the file.
    pub(super) fn enter(&mut self, (byte, line): (u64, u64)) {
        self.text_place = (byte, line);
        self.counted = (0, line);
    }

    /// Announces that another document begins.
    pub(super) fn document(&mut self) {
        self.sink.document();
    }

    /// The file offset of an offset in the cursor's text.
    pub(crate) fn byte(&self, at: usize) -> u64 {
        self.text_place.0 + at as u64
    }

    /// Delivers a span whose record starts at `start` and ends at the cursor.
    pub(crate) fn span(&mut self, cursor: &Cursor<'_>, start: usize, span: Span<'_>) {
        self.locate(cursor.text(), start);
        let notes = cursor.take_notes();
        if notes != Notes::default() {
            self.report(notes, &format!("span {}", span.span_id));
        }
        self.sink.span(span, Record { bytes: cursor.raw_from(start), place: &self.place });
    }

    /// Delivers a log record that starts at `start` and ends at the cursor.
    pub(crate) fn log(&mut self, cursor: &Cursor<'_>, start: usize, log: LogRecord<'_>) {
        self.locate(cursor.text(), start);
        let notes = cursor.take_notes();
        if notes != Notes::default() {
            self.report(notes, "a log record");
        }
        self.sink.log(log, Record { bytes: cursor.raw_from(start), place: &self.place });
    }

    /// Delivers an event whose record starts at `start` and ends at the cursor.
    pub(crate) fn event(&mut self, cursor: &Cursor<'_>, start: usize, event: Event<'_>) {
        self.locate(cursor.text(), start);
        let notes = cursor.take_notes();
        if notes != Notes::default() {
            self.report(notes, "an event");
        }
        self.sink.event(event, Record { bytes: cursor.raw_from(start), place: &self.place });
    }

    /// Counts a record that makes no event.
    pub(crate) fn left_out(&mut self, cursor: &Cursor<'_>, start: usize, reason: &'static str) {
        self.locate(cursor.text(), start);
        self.sink.left_out(reason, &self.place);
    }

    /// Reports the notes of a cursor that read something else than a span.
    pub(crate) fn notes(&mut self, cursor: &Cursor<'_>, what: &str) {
        let notes = cursor.take_notes();
        if notes != Notes::default() {
            self.locate(cursor.text(), cursor.at());
            self.report(notes, what);
        }
    }

    #[cold]
    fn report(&mut self, notes: Notes, what: &str) {
        for kind in notes.kinds() {
            self.problem(kind, (self.place.byte, self.place.line), what);
        }
    }

    /// Reports that the record could not be read.
    pub(crate) fn fault(&mut self, cursor: &Cursor<'_>, fault: Fault) {
        let detail = match fault.why {
            Why::Bad(reason) => reason,
            Why::End => INSIDE_A_VALUE,
            Why::TooDeep => {
                self.locate(cursor.text(), fault.at);
                return self.limit(Limit::Nesting, (self.place.byte, self.place.line), TOO_DEEP);
            }
            Why::Stopped => return,
        };
        let detail = if cursor.is_substitute(fault.at) { "invalid UTF-8" } else { detail };
        self.problem_at(ProblemKind::BadRecord, cursor.text(), fault.at, detail);
    }

    /// Reports a problem at an offset of the cursor's text.
    pub(crate) fn problem_at(&mut self, kind: ProblemKind, text: &str, at: usize, detail: &str) {
        self.locate(text, at);
        self.problem(kind, (self.place.byte, self.place.line), detail);
    }

    pub(super) fn problem(&mut self, kind: ProblemKind, (byte, line): (u64, u64), detail: &str) {
        let place = Place { file: Arc::clone(&self.place.file), line, byte };
        self.sink.problem(Problem::new(kind, place, detail.to_owned()));
    }

    pub(super) fn limit(&mut self, limit: Limit, (byte, line): (u64, u64), detail: &str) {
        let place = Place { file: Arc::clone(&self.place.file), line, byte };
        self.sink.problem(Problem::over(limit, place, detail.to_owned()));
    }

    /// Returns true when reading should end.
    pub(crate) fn stopped(&self) -> bool {
        self.sink.stopped()
    }

    /// Reads a list whose elements are separate records: an element that cannot be read is reported
    /// and skipped. `null` is an empty list.
    ///
    /// # Errors
    ///
    /// If the brackets of an element do not match, or the list itself is broken.
    pub(crate) fn records<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        mut record: impl FnMut(&mut Cursor<'a>, &mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        cursor.list(|cursor| {
            if self.stopped() {
                return Err(Fault { at: cursor.at(), why: Why::Stopped });
            }
            self.record(cursor, &mut record)
        })
    }

    /// Reads one record; if that fails, reports and skips it.
    pub(super) fn record<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        record: &mut dyn FnMut(&mut Cursor<'a>, &mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let start = cursor.clone();
        let Err(fault) = record(cursor, self) else { return Ok(()) };
        if let Why::Stopped = fault.why {
            return Err(fault);
        }
        *cursor = start;
        cursor.skip()?;
        self.fault(cursor, fault);
        Ok(())
    }

    /// Moves the place to an offset of the text. Places mostly ascend, so each line is counted
    /// once.
    fn locate(&mut self, text: &str, at: usize) {
        let (mut from, mut line) = self.counted;
        if at < from {
            (from, line) = (0, self.text_place.1);
        }
        line += memchr::memchr_iter(b'\n', &text.as_bytes()[from..at]).count() as u64;
        self.counted = (at, line);
        self.place.byte = self.text_place.0 + at as u64;
        self.place.line = line;
    }
}
