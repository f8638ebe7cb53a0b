//! Turns the bytes of a request into lines of a file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use astracer_formats::otlp_json::{LogRequest, Request};
use astracer_formats::{Limits, otlp_proto};
use astracer_model::sink::{Record, Wants};
use astracer_model::{Format, LogRecord, Problem, Sink, Span};

use crate::answer::{Partial, Refused};
use crate::counts::Refusal;
use crate::shared::Shared;
use crate::signal::Signal;
use crate::whole;
use astracer_exporters::ErrorKind;

/// The maximum number of spans or log records per line, so that no reader has to hold an enormous
/// line.
const RECORDS_PER_LINE_MAX: usize = 1 << 12;

/// The outcome of a request: recorded, at least in part, or rejected.
pub(crate) type Recorded = Result<Partial, Refused>;

/// Writes the spans or log records of a request to the files (spans also to the spool, if there is
/// one) and counts them.
/// A body that is not JSON or protobuf to its end is refused as a whole.
pub(crate) fn record(shared: &Shared, signal: Signal, bytes: &[u8], format: Format) -> Recorded {
    let announced = match whole::records(signal, bytes, format) {
        Ok(records) => records,
        Err(reason) => return Err(Refused::new(Refusal::Bad, reason)),
    };
    let mut lines = Lines::of(signal);
    let limits = Limits { record_bytes_max: shared.limits.message_bytes, ..Limits::default() };
    let (body, file) = (&mut &*bytes, &Arc::clone(&shared.file));
    match (signal, format) {
        (Signal::Logs, Format::OtlpProto) => otlp_proto::read_logs(body, file, &limits, &mut lines),
        _ => astracer_formats::read(format, body, file, &limits, &mut lines),
    }
    lines.spans.take_line(&mut lines.text);
    lines.logs.take_line(&mut lines.text);
    // A broken group counts once, whatever the number of its spans.
    lines.rejected = lines.rejected.max(announced.saturating_sub(lines.records));
    if lines.rejected > 0 && lines.message.is_empty() {
        lines.message = format!("the body has {} where none is read", signal.records());
    }
    if lines.records == 0 && lines.rejected > 0 {
        return Err(Refused::new(Refusal::Bad, lines.message));
    }
    if lines.records > 0 {
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
    shared.counts.recorded(signal, lines.records, lines.rejected);
    Ok(Partial { rejected: lines.rejected, message: lines.message })
}

/// Writes the lines to the files of the signal.
fn write(shared: &Shared, lines: &Lines) -> Result<(), Refused> {
    let files = match (lines.signal, &shared.logs) {
        (Signal::Logs, Some(logs)) => logs,
        _ => &shared.files,
    };
    files.write_lines(&lines.text, lines.records).map_err(|error| {
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

/// Appends the request to the spool, if the receiver forwards. Logs are only recorded.
fn pass_on(shared: &Shared, bytes: &[u8], format: Format, lines: &Lines) -> Result<(), Refused> {
    let Some(spool) = shared.forward.as_ref().filter(|_| lines.signal == Signal::Traces) else {
        return Ok(());
    };
    // If a request has bad parts, only the good spans are forwarded.
    let appended = match lines.rejected {
        0 => spool.append(format, lines.records, bytes),
        _ => spool.append(Format::OtlpJson, lines.records, &lines.text),
    };
    appended.map_err(|error| {
        shared.are_files_first.store(false, Ordering::Relaxed);
        shared.events.refused(&error.to_string());
        Refused::new(Refusal::Overloaded, "the spool is full or cannot be written")
    })
}

/// The text of a request's spans or log records.
struct Lines {
    signal: Signal,
    spans: Request,
    logs: LogRequest,
    text: Vec<u8>,
    /// The number of records in them.
    records: u64,
    rejected: u64,
    /// The first reason for a rejection.
    message: String,
}

impl Lines {
    fn of(signal: Signal) -> Self {
        Self {
            signal,
            spans: Request::default(),
            logs: LogRequest::default(),
            text: Vec::new(),
            records: 0,
            rejected: 0,
            message: String::new(),
        }
    }

    fn reject(&mut self, reason: impl FnOnce() -> String) {
        if self.rejected == 0 {
            self.message = reason();
        }
        self.rejected += 1;
    }
}

impl Sink for Lines {
    fn span(&mut self, span: Span<'_>, _record: Record<'_>) {
        if self.signal == Signal::Logs {
            self.reject(|| format!("the body has a span; send it to {}", Signal::Traces.path()));
            return;
        }
        // The specification calls such ids invalid, and no trace could be joined from them.
        if span.trace_id.0 == 0 || span.span_id.0 == 0 {
            self.reject(|| "a trace id or span id is missing or zero".to_owned());
            return;
        }
        self.records += 1;
        self.spans.add(&span);
        if self.spans.spans() == RECORDS_PER_LINE_MAX {
            self.spans.take_line(&mut self.text);
        }
    }

    fn wants(&self) -> Wants {
        Wants { logs: self.signal == Signal::Logs, ..Wants::default() }
    }

    fn log(&mut self, log: LogRecord<'_>, _record: Record<'_>) {
        self.records += 1;
        self.logs.add(&log);
        if self.logs.records() == RECORDS_PER_LINE_MAX {
            self.logs.take_line(&mut self.text);
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
