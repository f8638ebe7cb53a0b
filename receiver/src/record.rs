//! Turns the bytes of a request into lines of a file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use astracer_formats::Limits;
use astracer_formats::otlp_json::Request;
use astracer_model::sink::Record;
use astracer_model::{Format, Problem, Sink, Span};

use crate::answer::{Partial, Refused};
use crate::counts::Refusal;
use crate::shared::Shared;
use crate::whole;
use astracer_exporters::ErrorKind;

/// The maximum number of spans per line, so that no reader has to hold an enormous line.
const SPANS_PER_LINE_MAX: usize = 1 << 12;

/// The outcome of a request: recorded, at least in part, or rejected.
pub(crate) type Recorded = Result<Partial, Refused>;

/// Writes the spans of a request to the files (and to the spool, if there is one) and counts them.
/// A body that is not JSON or protobuf to its end is refused as a whole.
pub(crate) fn record(shared: &Shared, bytes: &[u8], format: Format) -> Recorded {
    let announced = match whole::spans(bytes, format) {
        Ok(spans) => spans,
        Err(reason) => return Err(Refused::new(Refusal::Bad, reason)),
    };
    let mut lines = Lines::default();
    let limits = Limits { record_bytes_max: shared.limits.message_bytes, ..Limits::default() };
    astracer_formats::read(format, &mut &*bytes, &Arc::clone(&shared.file), &limits, &mut lines);
    lines.request.take_line(&mut lines.text);
    // A broken group counts once, whatever the number of its spans.
    lines.rejected = lines.rejected.max(announced.saturating_sub(lines.spans));
    if lines.rejected > 0 && lines.message.is_empty() {
        lines.message = "the body has spans where none is read".to_owned();
    }
    if lines.spans == 0 && lines.rejected > 0 {
        return Err(Refused::new(Refusal::Bad, lines.message));
    }
    if lines.spans > 0 {
        // The output that rejected the last request is tried first. While one output is full or
        // cannot be written, senders retry, and otherwise the other output would store each retry.
        // If the second output fails after the first has succeeded, the retry is stored twice in
        // the first: delivery is at least once.
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
            "the recording cannot be written"
        };
        shared.are_files_first.store(true, Ordering::Relaxed);
        shared.events.refused(&error.to_string());
        Refused::new(Refusal::Overloaded, what)
    })
}

/// Appends the request to the spool, if the receiver forwards.
fn pass_on(shared: &Shared, bytes: &[u8], format: Format, lines: &Lines) -> Result<(), Refused> {
    let Some(spool) = &shared.forward else { return Ok(()) };
    // If a request has bad parts, only the good spans are forwarded.
    let appended = match lines.rejected {
        0 => spool.append(format, lines.spans, bytes),
        _ => spool.append(Format::OtlpJson, lines.spans, &lines.text),
    };
    appended.map_err(|error| {
        shared.are_files_first.store(false, Ordering::Relaxed);
        shared.events.refused(&error.to_string());
        Refused::new(Refusal::Overloaded, "the spool is full or cannot be written")
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
        // The specification calls such ids invalid, and no trace could be joined from them.
        if span.trace_id.0 == 0 || span.span_id.0 == 0 {
            self.reject(|| "a trace id or span id is missing or zero".to_owned());
            return;
        }
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
