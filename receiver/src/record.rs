//! From a request's bytes to lines in a file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use astracer_formats::Limits;
use astracer_formats::otlp_json::Request;
use astracer_model::sink::Record;
use astracer_model::{Format, Problem, Sink, Span};

use crate::answer::{Partial, Refused};
use crate::counts::Refusal;
use crate::shared::Shared;
use astracer_exporters::ErrorKind;

/// A line has no more spans than this, so that no reader has to hold a giant.
const SPANS_PER_LINE_MAX: usize = 1 << 12;

/// The outcome of a request: recorded, at least in part, or refused.
pub(crate) type Recorded = Result<Partial, Refused>;

/// Writes the spans of a request to the files, and counts them.
pub(crate) fn record(shared: &Shared, bytes: &[u8], format: Format) -> Recorded {
    let mut lines = Lines::default();
    let limits = Limits { record_bytes_max: shared.limits.message_bytes, ..Limits::default() };
    astracer_formats::read(format, &mut &*bytes, &Arc::clone(&shared.file), &limits, &mut lines);
    lines.request.take_line(&mut lines.text);
    if lines.spans == 0 && lines.rejected > 0 {
        return Err(Refused::new(Refusal::Bad, lines.message));
    }
    if lines.spans > 0 {
        // The place that refused a request last is asked first: while one is full, or cannot be
        // written, senders try again, and the other place would have each try. Where it has a
        // request that the first one then takes, that is delivered at least once.
        let (files, spool) = (|| write(shared, &lines), || pass_on(shared, bytes, format, &lines));
        if shared.are_files_first.load(Ordering::Relaxed) {
            files().and_then(|()| spool())?;
        } else {
            spool().and_then(|()| files())?;
        }
        shared.events.taken();
    }
    shared.counts.recorded(lines.spans, lines.rejected);
    Ok(Partial { rejected: lines.rejected, message: lines.message })
}

/// Writes the lines to the files.
fn write(shared: &Shared, lines: &Lines) -> Result<(), Refused> {
    shared.files.write_lines(&lines.text, lines.spans).map_err(|error| {
        let what = if error.kind() == ErrorKind::Full {
            "the recording is full"
        } else {
            "the recording can't be written"
        };
        shared.are_files_first.store(true, Ordering::Relaxed);
        shared.events.refused(&error.to_string());
        Refused::new(Refusal::Overloaded, what)
    })
}

/// Appends the request to the spool of a receiver that forwards.
fn pass_on(shared: &Shared, bytes: &[u8], format: Format, lines: &Lines) -> Result<(), Refused> {
    let Some(spool) = &shared.forward else { return Ok(()) };
    // Of a request with bad parts, only the good ones are passed on.
    let appended = match lines.rejected {
        0 => spool.append(format, lines.spans, bytes),
        _ => spool.append(Format::OtlpJson, lines.spans, &lines.text),
    };
    appended.map_err(|error| {
        shared.are_files_first.store(false, Ordering::Relaxed);
        shared.events.refused(&error.to_string());
        Refused::new(Refusal::Overloaded, "the spool is full or can't be written")
    })
}

/// The text of a request's spans.
#[derive(Default)]
struct Lines {
    request: Request,
    text: Vec<u8>,
    spans: u64,
    rejected: u64,
    /// The first reason for a rejection.
    message: String,
}

impl Lines {
    fn reject(&mut self, reason: impl FnOnce() -> String) {
        if self.rejected == 0 {
            self.message = reason();
        }
        self.rejected += 1;
    }
}

impl Sink for Lines {
    fn span(&mut self, span: Span<'_>, _record: Record<'_>) {
        self.spans += 1;
        self.request.add(&span);
        if self.request.spans() == SPANS_PER_LINE_MAX {
            self.request.take_line(&mut self.text);
        }
    }

    fn problem(&mut self, problem: Problem) {
        if problem.kind.loses_data() {
            self.reject(|| problem.to_string());
        }
    }

    fn skipped(&mut self, _file: &Arc<str>, reason: &str) {
        self.reject(|| reason.to_owned());
    }
}
