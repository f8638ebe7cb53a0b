//! Logs of lines: each record begins a line, and lines that begin none belong to the record before
//! them.

use std::borrow::Cow;
use std::io::BufRead;
use std::sync::Arc;

use super::json_lines::{self, Shared};
use super::layout::Layout;
use super::options::Options;
use super::time::Zone;
use super::tracing;
use crate::Limits;
use crate::lines::without_end;
use crate::window::Window;
use astracer_model::log::{LogFormat, LogRecord};
use astracer_model::problem::{Limit, Place, Problem, ProblemKind};
use astracer_model::sink::{Record, Sink};

/// Read size.
const STEP_BYTES: usize = 64 << 10;

/// The form of the lines.
pub(super) enum Form {
    /// One JSON object per line.
    Json,
    /// The text of `tracing_subscriber`.
    Tracing,
    /// A layout of log4j.
    Layout(Layout),
}

impl Form {
    /// The form of the first lines.
    pub(super) fn of(prefix: &[u8], layout: Option<&Layout>, zone: Zone) -> Option<Self> {
        let text = String::from_utf8_lossy(prefix);
        let text = tracing::without_colours(text.trim_start_matches('\u{feff}'));
        let mut lines = text.lines().filter(|line| !line.trim().is_empty()).take(20);
        if let Some(layout) = layout
            && lines.clone().any(|line| layout.is_head(line, zone))
        {
            return Some(Self::Layout(layout.clone()));
        }
        if lines.clone().next().is_some_and(json_lines::is_record) {
            return Some(Self::Json);
        }
        if lines.any(tracing::is_head) {
            return Some(Self::Tracing);
        }
        Layout::recognise(&text, zone).map(Self::Layout)
    }

    /// The format of lines of this form.
    pub(super) fn format(&self) -> LogFormat {
        match self {
            Self::Json => LogFormat::JsonLines,
            Self::Tracing => LogFormat::TracingText,
            Self::Layout(_) => LogFormat::Layout,
        }
    }

    fn is_head(&self, line: &[u8], zone: Zone) -> bool {
        let line = String::from_utf8_lossy(line);
        match self {
            Self::Json => true,
            Self::Tracing => tracing::is_head(&tracing::without_colours(&line)),
            Self::Layout(layout) => layout.is_head(&tracing::without_colours(&line), zone),
        }
    }

    fn read<'t>(
        &self,
        text: &'t str,
        nesting_max: usize,
        zone: Zone,
        shared: &mut Shared,
    ) -> Result<LogRecord<'t>, &'static str> {
        match self {
            Self::Json => json_lines::read(text, nesting_max, zone, shared),
            Self::Tracing => tracing::read(text).ok_or("text before the first record"),
            Self::Layout(layout) => layout.read(text, zone).ok_or("text before the first record"),
        }
    }
}

/// Reads one file of this format to its end.
pub(super) fn read(
    format: LogFormat,
    input: &mut dyn BufRead,
    file: &Arc<str>,
    limits: &Limits,
    options: &Options,
    sink: &mut dyn Sink,
) {
    let zone = options.zone;
    let mut window = Window::new(input, STEP_BYTES);
    window.skip_byte_order_mark();
    window.reach(STEP_BYTES);
    let prefix = window.bytes();
    let prefix = &prefix[..prefix.len().min(STEP_BYTES)];
    let form = match format {
        LogFormat::JsonLines => Some(Form::Json),
        LogFormat::TracingText => Some(Form::Tracing),
        _ => Form::of(prefix, options.layout.as_ref(), zone),
    };
    let Some(form) = form else { return sink.skipped(file, "text without log records") };
    let mut reader =
        Reader { window, form, limits, zone, shared: Shared::default(), place: Place::start_of(file) };
    while !sink.stopped() && reader.record(sink) {}
}

struct Reader<'r> {
    window: Window<'r>,
    form: Form,
    limits: &'r Limits,
    zone: Zone,
    shared: Shared,
    place: Place,
}

impl Reader<'_> {
    /// Reads the next record; returns false at the end.
    fn record(&mut self, sink: &mut dyn Sink) -> bool {
        (self.place.byte, self.place.line) = self.window.place();
        let mut end = match self.line_end(0) {
            Some(0) => return false,
            Some(end) => end,
            None => {
                let detail = format!("record longer than {} bytes", self.limits.record_bytes_max);
                sink.problem(Problem::over(Limit::RecordBytes, self.place.clone(), detail));
                crate::lines::to_line_end(&mut self.window);
                return true;
            }
        };
        // Further lines of the record. If they are too long for one record, the rest is another.
        while let Some(next) = self.line_end(end) {
            let line = without_end(&self.window.bytes()[end..next]);
            if next == end || self.form.is_head(line, self.zone) {
                break;
            }
            end = next;
        }
        self.deliver(end, sink);
        self.window.advance(end);
        true
    }

    /// Delivers the record that ends at an offset of the window.
    fn deliver(&mut self, end: usize, sink: &mut dyn Sink) {
        let bytes = without_end(&self.window.bytes()[..end]);
        if bytes.trim_ascii().is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(bytes);
        let plain = match self.form {
            Form::Json => Cow::Borrowed(&*text),
            _ => tracing::without_colours(&text),
        };
        if matches!(text, Cow::Owned(_)) {
            let detail = "a log record".to_owned();
            sink.problem(Problem::new(ProblemKind::BadText, self.place.clone(), detail));
        }
        let nesting_max = self.limits.nesting_max;
        match self.form.read(plain.trim_end_matches(['\r', '\n']), nesting_max, self.zone, &mut self.shared) {
            Ok(log) => sink.log(log, Record { bytes, place: &self.place }),
            Err(reason) => {
                sink.problem(Problem::new(ProblemKind::BadRecord, self.place.clone(), reason.to_owned()));
            }
        }
    }

    /// The end of the line that starts at an offset of the window; the offset itself at the end of
    /// the stream. `None` if a record up to there is too long.
    fn line_end(&mut self, from: usize) -> Option<usize> {
        let mut searched = from;
        loop {
            let bytes = self.window.bytes();
            let found = memchr::memchr(b'\n', &bytes[searched..]).map(|at| searched + at + 1);
            searched = bytes.len();
            let end = match found {
                Some(end) => end,
                None if searched > self.limits.record_bytes_max || !self.window.more() => searched,
                None => continue,
            };
            return (end <= self.limits.record_bytes_max).then_some(end);
        }
    }
}
