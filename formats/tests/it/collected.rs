//! A sink that keeps everything, for tests.

use std::sync::Arc;

use astracer_formats::{Limits, logs};
use astracer_model::sink::{Record, Wants};
use astracer_model::{Format, LogFormat, LogRecord, Place, Problem, ProblemKind, Sink, Span};

#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) spans: Vec<Span<'static>>,
    pub(crate) logs: Vec<LogRecord<'static>>,
    /// Whether log records are wanted.
    pub(crate) wants_logs: bool,
    pub(crate) records: Vec<(Place, Vec<u8>)>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) skipped: Vec<(String, String)>,
    pub(crate) progress: u64,
    /// Reading is stopped after this many spans.
    pub(crate) stop_after: Option<usize>,
}

impl Sink for Collected {
    fn span(&mut self, span: Span<'_>, record: Record<'_>) {
        self.spans.push(span.into_owned());
        self.records.push((record.place.clone(), record.bytes.to_vec()));
    }

    fn wants(&self) -> Wants {
        Wants { logs: self.wants_logs, events: false }
    }

    fn log(&mut self, log: LogRecord<'_>, record: Record<'_>) {
        self.logs.push(log.into_owned());
        self.records.push((record.place.clone(), record.bytes.to_vec()));
    }

    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        self.skipped.push((file.to_string(), reason.to_owned()));
    }

    fn progress(&mut self, bytes: u64) {
        self.progress += bytes;
    }

    fn stopped(&self) -> bool {
        self.stop_after.is_some_and(|spans| self.spans.len() >= spans)
    }
}

impl Collected {
    /// Reads a text of a format as one file named `f`.
    pub(crate) fn from_text(format: Format, text: impl AsRef<[u8]>) -> Self {
        Self::from_text_within(format, text, &Limits::default())
    }

    pub(crate) fn from_text_within(format: Format, text: impl AsRef<[u8]>, limits: &Limits) -> Self {
        let mut collected = Self::default();
        astracer_formats::read(format, &mut text.as_ref(), &"f".into(), limits, &mut collected);
        collected
    }

    /// Reads a text of a format of logs as one file named `f`.
    pub(crate) fn from_logs(format: LogFormat, text: impl AsRef<[u8]>) -> Self {
        let mut collected = Self { wants_logs: true, ..Self::default() };
        let (limits, file, options) = (Limits::default(), "f".into(), logs::Options::default());
        logs::read(format, &mut text.as_ref(), &file, &limits, &options, &mut collected);
        collected
    }

    /// The names of the spans.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.spans.iter().map(|span| &*span.name).collect()
    }

    /// Kind, line and byte of each problem.
    pub(crate) fn places(&self) -> Vec<(ProblemKind, u64, u64)> {
        self.problems.iter().map(|problem| (problem.kind, problem.place.line, problem.place.byte)).collect()
    }

    pub(crate) fn kinds(&self) -> Vec<ProblemKind> {
        self.problems.iter().map(|problem| problem.kind).collect()
    }

    /// Checks that each record is in the text at the byte and line that its place states.
    #[track_caller]
    pub(crate) fn assert_places(&self, text: &[u8]) {
        let (mut seen, mut line) = (0, 1);
        for (place, record) in &self.records {
            let start = place.byte as usize;
            assert_eq!(&text[start..start + record.len()], record, "at {place}");
            line += text[seen..start].iter().filter(|&&byte| byte == b'\n').count() as u64;
            seen = start;
            assert_eq!(place.line, line, "at {place}");
        }
    }
}
