//! Opens decompressors and archives until a plain file is found.

mod tarball;

use std::cell::Cell;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::SystemTime;

use liblzma::bufread::XzDecoder;
use zstd::stream::read::Decoder as ZstdDecoder;

use super::framed::{self, Frames};
use super::gzip::GzipMembers;
use super::meter::{Expanded, OverLimit, Stored};
use super::peek::{Peek, Quiet};
use super::{EventFileSummary, FileSummary, LogFileSummary, Options, Summary};
use astracer_formats::detect::{self, Detection};
use astracer_formats::{events, logs};
use astracer_model::Format;
use astracer_model::event::{Event, EventFormat};
use astracer_model::log::{LogFormat, LogRecord, Severity};
use astracer_model::problem::{Limit, Place, Problem, ProblemKind};
use astracer_model::sink::{Record, Sink, Wants};
use astracer_model::span::Span;
use astracer_model::time::UnixNanos;

/// The reason why a file that other commands read holds no traces, from its first bytes.
fn other_kind(prefix: &[u8], options: &logs::Options) -> Option<&'static str> {
    match events::detect(prefix, options) {
        Some(_) => Some("a recording of events, not traces; order reads it"),
        None => logs::detect(prefix, options)
            .map(|_| "a log, not traces; order, compare and query --logs read it"),
    }
}

/// Prefix sizes for format detection. The larger ones are read only while the smaller ones are
/// inconclusive: a record begins with a value of that size.
const PREFIX_BYTES: [usize; 4] = [64 << 10, 1 << 20, 16 << 20, 256 << 20];

/// The deepest nesting of archives that is opened.
const DEPTH_MAX: usize = 8;

/// Memory that one xz stream may request. Its header states the size of the dictionary, up to 4
/// GiB; `xz -9` uses 64 MiB. (The zstd library itself refuses more than 128 MiB.)
const XZ_MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Progress is reported in steps of this size.
const PROGRESS_STEP_BYTES: u64 = 64 << 10;

/// The state of reading one source.
pub(super) struct Unpack<'a> {
    options: &'a Options,
    tap: Tap<'a>,
    stored: &'a Cell<u64>,
    expanded: &'a Cell<u64>,
    files: Vec<FileSummary>,
    log_files: Vec<LogFileSummary>,
    event_files: Vec<EventFileSummary>,
    first_refusal: Option<Refusal>,
    over_limit: bool,
    /// The time of the current file's last change.
    changed: Option<UnixNanos>,
}

impl<'a> Unpack<'a> {
    /// `stored` counts bytes as stored, `expanded` the output of decompressors; both start at zero.
    pub(super) fn new(
        options: &'a Options,
        sink: &'a mut dyn Sink,
        stored: &'a Cell<u64>,
        expanded: &'a Cell<u64>,
    ) -> Self {
        let tap = Tap { sink, stored, passed_on: 0, spans: 0, records: Records::default(), events: 0 };
        Self {
            options,
            tap,
            stored,
            expanded,
            files: Vec::new(),
            log_files: Vec::new(),
            event_files: Vec::new(),
            first_refusal: None,
            over_limit: false,
            changed: None,
        }
    }

    /// Reads a file as stored, or the standard input.
    pub(super) fn input(&mut self, input: Box<dyn Read + 'a>, name: &Arc<str>, changed: Option<SystemTime>) {
        let since = changed.and_then(|changed| changed.duration_since(SystemTime::UNIX_EPOCH).ok());
        self.changed = since.and_then(|since| u64::try_from(since.as_nanos()).ok()).map(UnixNanos);
        let mut input = Peek::new(Box::new(Stored::new(input, self.stored)));
        self.stream(&mut input, name, 0);
    }

    /// Returns true if reading should end: the sink asked to stop, or the source exceeds its limit.
    pub(super) fn is_over(&self) -> bool {
        self.over_limit || self.is_interrupted()
    }

    /// Returns true if the sink asked to stop.
    pub(super) fn is_interrupted(&self) -> bool {
        self.tap.sink.stopped()
    }

    /// The summary, and the first file that was not read.
    pub(super) fn finish(mut self) -> (Summary, Option<Refusal>) {
        self.tap.pass_progress_on();
        let Self { files, log_files, event_files, .. } = self;
        (Summary { files, log_files, event_files, stored_bytes: self.stored.get() }, self.first_refusal)
    }

    /// Sets the time of the last change of an archive's member, in seconds since 1970. Archives
    /// that are to be the same each time state 0.
    pub(super) fn member_changed(&mut self, seconds: Option<u64>) {
        let nanos =
            seconds.filter(|&seconds| seconds > 0).and_then(|seconds| seconds.checked_mul(1_000_000_000));
        self.changed = nanos.map(UnixNanos).or(self.changed);
    }

    /// Reads one layer: opens a container, or passes a trace file to its format's reader.
    pub(super) fn stream(&mut self, input: &mut Peek<'_>, name: &Arc<str>, depth: usize) {
        let Some(container) = Container::of(input.peek(PREFIX_BYTES[0])) else {
            return self.file(input, name);
        };
        let depth_max = self.options.limits.records.nesting_max.min(DEPTH_MAX);
        if depth >= depth_max {
            let detail = format!("archives nested more than {depth_max} deep");
            return self.limit(Limit::Nesting, name, input.position(), detail);
        }
        let decoder: io::Result<Box<dyn Read + '_>> = match container {
            Container::Tar => return tarball::read(self, input, name, depth),
            Container::Gzip => Ok(Box::new(GzipMembers::new(&mut *input))),
            Container::Xz => xz_decoder(&mut *input),
            Container::FramedZstd => {
                ZstdDecoder::new(Frames::new(&mut *input)).map(|decoder| Box::new(decoder) as Box<dyn Read>)
            }
            Container::Zstd => {
                ZstdDecoder::with_buffer(&mut *input).map(|decoder| Box::new(decoder) as Box<dyn Read>)
            }
        };
        match decoder {
            Ok(decoder) => {
                let metered = Expanded::new(decoder, self.expanded, self.options.limits.expanded_bytes_max);
                self.stream(&mut Peek::new(Box::new(metered)), name, depth + 1);
            }
            Err(error) => self.unreadable(name, 0, &error),
        }
    }

    /// Reads one plain file.
    fn file(&mut self, input: &mut Peek<'_>, name: &Arc<str>) {
        // A traced program may write a span's JSON, so events come first.
        if self.tap.sink.wants().events
            && self.options.format.is_none()
            && let Some(format) = events::detect(input.peek(PREFIX_BYTES[0]), &self.options.logs)
        {
            return self.event_file(input, name, format);
        }
        match self.format_of(input) {
            Ok(format) => {
                let mut quiet = Quiet::new(input);
                self.tap.spans = 0;
                self.tap.sink.file(name, format.into());
                astracer_formats::read(format, &mut quiet, name, &self.options.limits.records, &mut self.tap);
                let error = quiet.into_error();
                let summary = FileSummary {
                    name: Arc::clone(name),
                    format,
                    expanded_bytes: input.position(),
                    spans: self.tap.spans,
                };
                self.files.push(summary);
                if let Some(error) = error {
                    self.unreadable(name, input.position(), &error);
                }
            }
            Err((reason, format_may_help)) => {
                if self.tap.sink.wants().logs {
                    let (prefix, options) = (input.peek(PREFIX_BYTES[0]), &self.options.logs);
                    // Its lines have times too, but system calls are no log.
                    let is_strace = events::detect(prefix, options) == Some(EventFormat::Strace);
                    if !is_strace && let Some(format) = logs::detect(prefix, options) {
                        return self.log_file(input, name, format);
                    }
                }
                let prefix = input.peek(PREFIX_BYTES[0]);
                let bytes = prefix.len() as u64;
                let is_text = format_may_help && !prefix[..prefix.len().min(4096)].contains(&0);
                let (reason, format_may_help) = match self.tap.sink.wants().logs {
                    true if is_text => {
                        (format!("{reason}; {}", logs::refusal(prefix, name, &self.options.logs)), true)
                    }
                    // Only the first refusal is shown, and looking at a log takes a while.
                    false if self.first_refusal.is_none() && reason != detect::OTHER_SIGNALS => {
                        match other_kind(prefix, &self.options.logs) {
                            Some(kind) => (kind.to_owned(), false),
                            None => (reason, format_may_help),
                        }
                    }
                    _ => (reason, format_may_help),
                };
                let error = input.take_error();
                // A stream that fails before its first byte is broken, not empty.
                if bytes > 0 || error.is_none() {
                    let format_may_help = format_may_help && error.is_none();
                    self.refuse(name, || reason.clone(), format_may_help);
                    self.tap.sink.skipped(name, &reason);
                }
                if let Some(error) = error {
                    self.unreadable(name, bytes, &error);
                }
            }
        }
    }

    /// Reads one plain file of logs.
    fn log_file(&mut self, input: &mut Peek<'_>, name: &Arc<str>, format: LogFormat) {
        let mut quiet = Quiet::new(input);
        self.tap.sink.file(name, format.into());
        self.tap.records = Records::default();
        let options = self.options;
        let logs = logs::Options { changed: options.logs.changed.or(self.changed), ..options.logs.clone() };
        let reading = logs::read(format, &mut quiet, name, &options.limits.records, &logs, &mut self.tap);
        let error = quiet.into_error();
        let Records { count, times, errors, warnings } = self.tap.records;
        self.log_files.push(LogFileSummary {
            name: Arc::clone(name),
            format,
            expanded_bytes: input.position(),
            records: count,
            reading,
            times,
            errors,
            warnings,
        });
        if let Some(error) = error {
            self.unreadable(name, input.position(), &error);
        }
    }

    /// Reads one plain file of events.
    fn event_file(&mut self, input: &mut Peek<'_>, name: &Arc<str>, format: EventFormat) {
        let mut quiet = Quiet::new(input);
        self.tap.events = 0;
        self.tap.sink.file(name, format.into());
        let options = self.options;
        events::read(format, &mut quiet, name, &options.limits.records, &options.logs, &mut self.tap);
        let error = quiet.into_error();
        self.event_files.push(EventFileSummary {
            name: Arc::clone(name),
            format,
            expanded_bytes: input.position(),
            events: self.tap.events,
        });
        if let Some(error) = error {
            self.unreadable(name, input.position(), &error);
        }
    }

    /// The format of a plain file. The error is the reason why it is not a trace file, and whether
    /// naming a format may help.
    fn format_of(&self, input: &mut Peek<'_>) -> Result<Format, (String, bool)> {
        if let Some(format) = self.options.format {
            return Ok(format);
        }
        let mut reason = String::new();
        for len in PREFIX_BYTES {
            let complete = input.ends_within(len);
            match detect::detect(input.peek(len), complete) {
                Detection::Format(format) => return Ok(format),
                Detection::Other(other) => return Err((other, true)),
                Detection::Unusable(unusable) => return Err((unusable, false)),
                Detection::Open(open) => reason = open,
            }
            if complete {
                break;
            }
        }
        Err((reason, true))
    }

    /// Reports a file without traces to the sink.
    pub(super) fn skip(&mut self, name: &Arc<str>, reason: &str) {
        self.refuse(name, || reason.to_owned(), false);
        self.tap.sink.skipped(name, reason);
    }

    /// Reports a stream that ended with an error to the sink. The kind of problem is derived from
    /// the error.
    pub(super) fn unreadable(&mut self, name: &Arc<str>, byte: u64, error: &io::Error) {
        let detail = error.to_string();
        if OverLimit::is(error) {
            self.over_limit = true;
            self.limit(Limit::ExpandedBytes, name, byte, detail);
        } else if error.kind() == io::ErrorKind::UnexpectedEof {
            self.problem(ProblemKind::Truncated, name, byte, detail);
        } else if is_memory_limit(error) {
            self.limit(Limit::DecompressionMemory, name, byte, detail);
        } else {
            self.problem(ProblemKind::Unreadable, name, byte, detail);
        }
    }

    /// Reports a problem of a whole file or archive to the sink.
    pub(super) fn problem(&mut self, kind: ProblemKind, name: &Arc<str>, byte: u64, detail: String) {
        self.report(Problem::new(kind, of_whole(name, byte), detail));
    }

    /// Reports a limit that a whole file or archive reached.
    pub(super) fn limit(&mut self, limit: Limit, name: &Arc<str>, byte: u64, detail: String) {
        self.report(Problem::over(limit, of_whole(name, byte), detail));
    }

    fn report(&mut self, problem: Problem) {
        let Problem { kind, place, detail, .. } = &problem;
        self.refuse(&place.file, || format!("{}: {detail}", kind.describe()), false);
        self.tap.sink.problem(problem);
    }

    fn refuse(&mut self, name: &Arc<str>, reason: impl FnOnce() -> String, format_may_help: bool) {
        let refusal = || Refusal { name: Arc::clone(name), reason: reason(), format_may_help };
        self.first_refusal.get_or_insert_with(refusal);
    }
}

fn of_whole(file: &Arc<str>, byte: u64) -> Place {
    Place { file: Arc::clone(file), line: 0, byte }
}

/// A file that was not read, and the reason.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) name: Arc<str>,
    pub(super) reason: String,
    /// True if the file could hold traces of a format that was not detected.
    pub(super) format_may_help: bool,
}

/// A file that contains other files.
enum Container {
    Gzip,
    Xz,
    Zstd,
    /// The Collector's file exporter with compression.
    FramedZstd,
    Tar,
}

impl Container {
    fn of(prefix: &[u8]) -> Option<Self> {
        match prefix {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            // A frame, or a skippable frame before one.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ if tarball::is_header(prefix) => Some(Self::Tar),
            _ if framed::is_framed(prefix) => Some(Self::FramedZstd),
            _ => None,
        }
    }
}

fn xz_decoder<'p>(input: &'p mut Peek<'_>) -> io::Result<Box<dyn Read + 'p>> {
    let concatenated = liblzma::stream::CONCATENATED;
    let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, concatenated)?;
    Ok(Box::new(XzDecoder::new_stream(input, stream)))
}

fn is_memory_limit(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<liblzma::stream::Error>());
    matches!(inner, Some(liblzma::stream::Error::MemLimit))
}

/// Facts about the records of one file of logs.
#[derive(Clone, Copy, Debug, Default)]
struct Records {
    count: u64,
    times: Option<(UnixNanos, UnixNanos)>,
    errors: u64,
    warnings: u64,
}

impl Records {
    fn see(&mut self, log: &LogRecord<'_>) {
        self.count += 1;
        self.errors += u64::from(log.severity >= Severity::ERROR);
        self.warnings += u64::from((Severity::WARN..Severity::ERROR).contains(&log.severity));
        if let Some(time) = log.when() {
            let (first, last) = self.times.unwrap_or((time, time));
            self.times = Some((first.min(time), last.max(time)));
        }
    }
}

/// Forwards a reader's output to the sink and adds progress, which the reader does not know.
struct Tap<'a> {
    sink: &'a mut dyn Sink,
    stored: &'a Cell<u64>,
    passed_on: u64,
    spans: u64,
    records: Records,
    events: u64,
}

impl Tap<'_> {
    fn pass_large_progress_on(&mut self) {
        if self.stored.get() - self.passed_on >= PROGRESS_STEP_BYTES {
            self.pass_progress_on();
        }
    }

    fn pass_progress_on(&mut self) {
        let grown = self.stored.get() - self.passed_on;
        if grown > 0 {
            self.passed_on += grown;
            self.sink.progress(grown);
        }
    }
}

impl Sink for Tap<'_> {
    fn span(&mut self, span: Span<'_>, record: Record<'_>) {
        self.spans += 1;
        self.sink.span(span, record);
        self.pass_large_progress_on();
    }

    fn wants(&self) -> Wants {
        self.sink.wants()
    }

    fn log(&mut self, log: LogRecord<'_>, record: Record<'_>) {
        self.records.see(&log);
        self.sink.log(log, record);
        self.pass_large_progress_on();
    }

    fn event(&mut self, event: Event<'_>, record: Record<'_>) {
        self.events += 1;
        self.sink.event(event, record);
        self.pass_large_progress_on();
    }

    fn left_out(&mut self, reason: &'static str, place: &Place) {
        self.sink.left_out(reason, place);
    }

    fn idle(&mut self) {
        self.sink.idle();
    }

    fn document(&mut self) {
        self.sink.document();
    }

    fn problem(&mut self, problem: Problem) {
        self.sink.problem(problem);
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        self.sink.skipped(file, reason);
    }

    fn stopped(&self) -> bool {
        self.sink.stopped()
    }
}
