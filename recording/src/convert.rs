//! Conversion between formats: a [`Sink`] that writes the spans it receives.
//!
//! If the output format allows it, spans are written as they arrive, in constant memory whatever
//! the size of the input. Two cases need more memory. Jaeger's JSON keeps each trace in one piece,
//! so the text of all spans is held until the end. HTrace 3 has spans that know their parent but
//! not their trace: these are held, and the id and trace of every other HTrace span are remembered
//! (16 bytes each).
//!
//! Nothing is joined, renamed or dropped: duplicates, orphans and irregular times come out
//! unchanged.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use crate::recording::Skipped;
use crate::stop::Pulse;
use astracer_formats::losses::Losses;
use astracer_formats::{TraceWriter, jaeger_json};
use astracer_model::Format;
use astracer_model::ids::TraceId;
use astracer_model::problem::{Problem, ProblemKind, Problems};
use astracer_model::sink::{Content, Record, Sink};
use astracer_model::span::Span;

mod requests;
mod traceless;
mod traces;

use requests::{REQUEST_SPANS, Request, Requests};
use traceless::Traceless;
use traces::Traces;

/// The number of skipped files that are remembered by name; the rest are only counted.
const SKIPPED_MAX: usize = 100;

/// Writes the spans it receives in another format.
pub struct Converter<'w> {
    to: Format,
    out: Output<'w>,
    traceless: Traceless,
    stop: Option<Box<dyn Fn() -> bool + 'w>>,
    progress: Option<Box<dyn FnMut(u64) + 'w>>,
    error: Option<io::Error>,
    converted: Converted,
}

/// The result of a conversion.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Converted {
    /// The number of spans written.
    pub spans: u64,
    /// Data that the new format could not represent.
    pub losses: Losses,
    /// Problems of the input.
    pub problems: Problems,
    /// The first files without traces.
    pub skipped: Vec<Skipped>,
    /// The number of files without traces.
    pub skipped_count: u64,
}

enum Output<'w> {
    /// One span per line, or a list of spans.
    Spans(Box<dyn TraceWriter + 'w>),
    /// Requests with spans of any traces, which share resources and scopes.
    Batches { writer: Box<dyn TraceWriter + 'w>, batch: Vec<Span<'static>>, spans_max: usize },
    /// Like `Batches`, but this module writes the requests itself, which saves copying the spans.
    Requests(Requests<'w>),
    /// Complete traces.
    Traces { writer: jaeger_json::Writer<'w>, traces: Traces },
}

impl fmt::Debug for Converter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Converter")
            .field("to", &self.to)
            .field("spans", &self.converted.spans)
            .finish_non_exhaustive()
    }
}

impl<'w> Converter<'w> {
    /// Makes a converter that writes to `out`; `None` if the format can only be read.
    pub fn new(to: Format, out: Box<dyn Write + 'w>) -> Option<Self> {
        let out = match to {
            Format::OtlpJson => Output::Requests(Requests::new(out, Request::Json(Default::default()))),
            Format::OtlpProto => Output::Requests(Requests::new(out, Request::Proto(Default::default()))),
            Format::JaegerJson => {
                Output::Traces { writer: jaeger_json::Writer::new(out), traces: Traces::default() }
            }
            _ => Output::Spans(astracer_formats::writer(to, out)?),
        };
        Some(Self::with(to, out))
    }

    fn with(to: Format, out: Output<'w>) -> Self {
        Self {
            to,
            out,
            traceless: Traceless::default(),
            stop: None,
            progress: None,
            error: None,
            converted: Converted::default(),
        }
    }

    /// Makes a converter that passes batches of spans to `writer`. Losses are counted as for the
    /// format `to`.
    pub fn to_writer(to: Format, writer: Box<dyn TraceWriter + 'w>) -> Self {
        Self::with(to, Output::Batches { writer, batch: Vec::new(), spans_max: REQUEST_SPANS })
    }

    /// Sets the number of spans per batch, at least one. Applies only to a converter made by
    /// [`Self::to_writer`].
    pub fn batch_spans(mut self, spans: usize) -> Self {
        if let Output::Batches { spans_max, .. } = &mut self.out {
            *spans_max = spans;
        }
        self
    }

    /// Polls `stop` from time to time and ends early when it returns true.
    pub fn stop_when(mut self, stop: impl Fn() -> bool + 'w) -> Self {
        self.stop = Some(Box::new(stop));
        self
    }

    /// Calls `progress` with the number of input bytes read since the last call.
    pub fn progress_to(mut self, progress: impl FnMut(u64) + 'w) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Keeps up to `per_kind` examples of each kind of problem, instead of 20.
    pub fn examples(mut self, per_kind: usize) -> Self {
        self.converted.problems = Problems::with_examples(per_kind);
        self
    }

    /// Writes the spans that were held until the end, and finishes the output.
    ///
    /// # Errors
    ///
    /// If the output could not be written, now or earlier.
    pub fn finish(mut self) -> io::Result<Converted> {
        // After a stop, held spans are discarded and only the output is finished.
        let waiting = if self.stopped() { Traceless::default() } else { std::mem::take(&mut self.traceless) };
        let mut pulse = Pulse::of(self.stop.take());
        for (span, place, found) in waiting.resolve(&mut pulse) {
            if !found {
                let detail = format!("span {}", span.span_id);
                self.converted.problems.push(Problem::new(ProblemKind::NoTraceId, place, detail));
            }
            self.write(span);
        }
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        match self.out {
            Output::Spans(mut writer) => writer.finish()?,
            Output::Batches { mut writer, batch, .. } => {
                writer.trace(&batch)?;
                writer.finish()?;
            }
            Output::Requests(mut requests) => requests.finish()?,
            Output::Traces { mut writer, traces } => traces.finish(&mut writer)?,
        }
        Ok(self.converted)
    }

    fn write(&mut self, span: Span<'_>) {
        if self.error.is_some() {
            return;
        }
        self.converted.spans += 1;
        self.converted.losses.count(self.to, &span);
        let written = match &mut self.out {
            Output::Spans(writer) => writer.trace(std::slice::from_ref(&span)),
            Output::Batches { writer, batch, spans_max } => {
                batch.push(span.into_owned());
                if batch.len() < *spans_max {
                    return;
                }
                let written = writer.trace(batch);
                batch.clear();
                written
            }
            Output::Requests(requests) => requests.add(&span),
            Output::Traces { traces, .. } => {
                traces.add(&span);
                Ok(())
            }
        };
        self.error = written.err();
    }
}

impl Sink for Converter<'_> {
    fn span(&mut self, span: Span<'_>, record: Record<'_>) {
        if span.trace_id == TraceId::ZERO {
            return self.traceless.hold(span, record.place);
        }
        self.traceless.remember(&span);
        self.write(span);
    }

    fn file(&mut self, _file: &Arc<str>, content: Content) {
        self.traceless.expect(content == Content::Spans(Format::HTrace));
    }

    fn problem(&mut self, problem: Problem) {
        self.converted.problems.push(problem);
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        self.converted.skipped_count += 1;
        if self.converted.skipped.len() < SKIPPED_MAX {
            self.converted.skipped.push(Skipped { file: Arc::clone(file), reason: reason.to_owned() });
        }
    }

    fn progress(&mut self, bytes: u64) {
        if let Some(progress) = &mut self.progress {
            progress(bytes);
        }
    }

    fn stopped(&self) -> bool {
        self.error.is_some() || self.stop.as_ref().is_some_and(|stop| stop())
    }
}

#[cfg(test)]
mod tests;
