//! Logs of lines: each record begins at a line with a time. Every other line belongs to the record
//! before it, and lines before the first record belong to that one.

use std::borrow::Cow;
use std::io::BufRead;
use std::sync::Arc;

use super::clock::{self, Assumed, Clock};
use super::encoding::{Converted, Encoding};
use super::json_lines::{self, Shared};
use super::levels;
use super::options::Options;
use super::prefix::Prefix;
use super::shape::{Content, Head, Shape, plain};
use super::stamp::Stamp;
use super::writer::Writer;
use super::{ids, journal, tracing};
use crate::Limits;
use crate::lines::without_end;
use crate::window::Window;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::log::LogRecord;
use astracer_model::problem::{Limit, Place, Problem, ProblemKind};
use astracer_model::sink::{Record, Sink};
use astracer_model::value::{Attribute, Value};

/// Read size, and the size of the prefix that shows a file's shape.
const STEP_BYTES: usize = 64 << 10;

/// The size up to which a file is looked at as a whole, if its times lack a date.
const LOOK_AHEAD_BYTES: usize = 4 << 20;

/// The attribute with the lines before the first record.
const BEFORE: &str = "log.lines_before";

/// Facts about one file of logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The name of the layout, such as `log4j`; empty for formats that are not lines.
    pub layout: Cow<'static, str>,
    /// Lines that are part of a record.
    pub lines: u64,
    /// Parts of times that the file does not state.
    pub assumed: Assumed,
    /// True if the options state a layout for the file that none of its first lines follows.
    pub is_layout_unfit: bool,
}

/// The shape of the first bytes of a file.
pub(super) fn shape_of(prefix: &[u8], options: &Options) -> Option<Shape> {
    let prefix = prefix.strip_prefix(b"\xef\xbb\xbf").unwrap_or(prefix);
    // Whether the prefix is all of a file is not known here, and matters for its last line only.
    Shape::of(prefix, prefix.len() < STEP_BYTES, &options.layouts, None)
}

/// Reads one file to its end.
pub(super) fn read(
    input: &mut dyn BufRead,
    file: &Arc<str>,
    limits: &Limits,
    options: &Options,
    sink: &mut dyn Sink,
) -> Reading {
    // An error is found again, and reported, when the stream is read.
    match input.fill_buf().ok().and_then(Encoding::of) {
        Some(encoding) => read_lines(&mut Converted::new(input, encoding), file, limits, options, sink),
        None => read_lines(input, file, limits, options, sink),
    }
}

fn read_lines(
    input: &mut dyn BufRead,
    file: &Arc<str>,
    limits: &Limits,
    options: &Options,
    sink: &mut dyn Sink,
) -> Reading {
    let mut window = Window::new(input, STEP_BYTES);
    window.skip_byte_order_mark();
    window.reach(STEP_BYTES);
    let prefix = window.bytes();
    let is_whole = prefix.len() < STEP_BYTES;
    let prefix = &prefix[..prefix.len().min(STEP_BYTES)];
    let Some(shape) = Shape::of(prefix, is_whole, &options.layouts, Some(file)) else {
        sink.skipped(file, &super::refusal(prefix, file, options));
        return Reading::default();
    };
    let mut clock = Clock::new(&options.zone, clock::of_name(file).or(options.changed));
    clock.month_first = shape.month_first;
    if shape.lacks_dates() {
        window.reach(LOOK_AHEAD_BYTES);
        let bytes = window.bytes();
        let stamps: Vec<Stamp> =
            bytes.split(|&byte| byte == b'\n').filter_map(|line| shape.head(&plain(line))?.stamp).collect();
        clock.look_ahead(&stamps, bytes.len() < LOOK_AHEAD_BYTES);
    }
    let reading =
        Reading { layout: shape.name.clone(), is_layout_unfit: shape.is_unfit, ..Reading::default() };
    let maker = Maker { shape, clock, limits, shared: Shared::default() };
    let mut reader = Reader { window, maker, place: Place::start_of(file), next: None, reading };
    while !sink.stopped() && reader.record(sink) {}
    reader.reading.assumed = reader.maker.clock.assumed;
    reader.reading
}

struct Reader<'r> {
    window: Window<'r>,
    maker: Maker<'r>,
    place: Place,
    /// The head at the window's start, if it is known.
    next: Option<Head>,
    reading: Reading,
}

/// Makes records of texts.
struct Maker<'r> {
    shape: Shape,
    clock: Clock,
    limits: &'r Limits,
    shared: Shared,
}

impl Reader<'_> {
    /// Reads the next record; returns false at the end.
    fn record(&mut self, sink: &mut dyn Sink) -> bool {
        (self.place.byte, self.place.line) = self.window.place();
        let mut end = match self.line_end(0) {
            Some(0) => {
                let is_idle = self.window.is_idle();
                if is_idle {
                    sink.idle();
                }
                return is_idle;
            }
            Some(end) => end,
            None => {
                let detail = format!("record longer than {} bytes", self.maker.limits.record_bytes_max);
                sink.problem(Problem::over(Limit::RecordBytes, self.place.clone(), detail));
                crate::lines::to_line_end(&mut self.window);
                self.next = None;
                return true;
            }
        };
        let is_first = self.reading.lines == 0;
        let mut head = self.next.take().or_else(|| self.head(0, end)).map(|head| (0, head));
        // Further lines of the record. If they are too long for one record, the rest is another.
        let mut goes_on = self.goes_on(0, end);
        while let Some(next) = self.line_end(end) {
            if next == end {
                break;
            }
            let found = if goes_on { None } else { self.head(end, next) };
            goes_on = self.goes_on(end, next);
            // A line that another container wrote in between belongs to no record above it.
            if found.is_none() && !is_first && self.is_of_another(end, next) {
                break;
            }
            if let Some(found) = found {
                if head.is_some() || !is_first {
                    self.next = Some(found);
                    break;
                }
                head = Some((end, found));
            }
            end = next;
        }
        self.deliver(end, head, sink);
        let is_cut = !self.window.bytes()[..end].ends_with(b"\n");
        self.window.advance(end);
        let (_, line) = self.window.place();
        self.reading.lines += line - self.place.line + u64::from(is_cut);
        true
    }

    fn goes_on(&self, start: usize, end: usize) -> bool {
        let shape = &self.maker.shape;
        shape.prefix.is_some() && shape.goes_on(&plain(without_end(&self.window.bytes()[start..end])))
    }

    /// True if a line of the window states another writer than the first line.
    fn is_of_another(&self, start: usize, end: usize) -> bool {
        let shape = &self.maker.shape;
        if shape.prefix.is_none() {
            return false;
        }
        let bytes = self.window.bytes();
        let first = memchr::memchr(b'\n', bytes).map_or(bytes, |end| &bytes[..end]);
        let (first, own) = (plain(without_end(first)), plain(without_end(&bytes[start..end])));
        match (shape.prefix(&first), shape.prefix(&own)) {
            (Some(first), Some(own)) => first.writer != own.writer,
            _ => false,
        }
    }

    fn head(&self, start: usize, end: usize) -> Option<Head> {
        self.maker.shape.head(&plain(without_end(&self.window.bytes()[start..end])))
    }

    /// Delivers the record that ends at an offset of the window. Its head begins at another one.
    fn deliver(&mut self, end: usize, head: Option<(usize, Head)>, sink: &mut dyn Sink) {
        let bytes = without_end(&self.window.bytes()[..end]);
        let (before, content) = bytes.split_at(head.map_or(0, |(at, _)| at.min(bytes.len())));
        if bytes.trim_ascii().is_empty() {
            return;
        }
        if std::str::from_utf8(bytes).is_err() {
            let detail = "a log record".to_owned();
            sink.problem(Problem::new(ProblemKind::BadText, self.place.clone(), detail));
        }
        let text = plain(content);
        let (prefix, text) = match self.maker.shape.prefix {
            Some(_) => unprefixed(&self.maker.shape, &text),
            None => (None, Cow::Borrowed(&*text)),
        };
        let text = text.trim_end_matches(['\r', '\n']);
        let mut log = match head {
            Some((_, head)) => self.maker.read(text, content, head, prefix, &self.place, sink),
            None => {
                let mut log = self.maker.shared.record();
                log.body = Value::String(Cow::Borrowed(text));
                if let Some(writer) =
                    prefix.map(|prefix| prefix.writer).filter(|own| *own != Writer::default())
                {
                    log.resource = writer.resource(&mut self.maker.shared.resources);
                }
                log
            }
        };
        if log.trace_id == TraceId::ZERO && log.span_id == SpanId::ZERO {
            ids::find(text, &mut log);
        }
        let before = plain(before);
        if !before.trim().is_empty() {
            let value = Value::String(Cow::Borrowed(before.trim_end()));
            log.attributes.push(Attribute { key: Cow::Borrowed(BEFORE), value });
        }
        sink.log(log, Record { bytes, place: &self.place });
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
                None if searched > self.maker.limits.record_bytes_max => searched,
                // The rest of a line will be written.
                None if self.window.more() || self.window.is_idle() && searched > from => continue,
                None => searched,
            };
            return (end <= self.maker.limits.record_bytes_max).then_some(end);
        }
    }
}

impl Maker<'_> {
    /// Reads the record of a text behind its prefix.
    fn read<'t>(
        &mut self,
        text: &'t str,
        bytes: &'t [u8],
        head: Head,
        prefix: Option<Prefix<'t>>,
        place: &Place,
        sink: &mut dyn Sink,
    ) -> LogRecord<'t> {
        let outer = prefix.as_ref().map_or_else(Writer::default, |prefix| prefix.writer.clone());
        let Head { start, stamp, is_outer } = head;
        let line_end = text.find('\n').unwrap_or(text.len());
        match &self.shape.content {
            Content::Json(_) => {
                let line = text.get(start..line_end).unwrap_or("").trim_end();
                let nesting_max = self.limits.nesting_max;
                let found = match json_lines::read(line, nesting_max, &self.shared) {
                    Ok(found) => found,
                    Err(reason) => {
                        // A plain line between those of JSON that CRI has framed is a record.
                        if start < text.len() || prefix.is_none() {
                            let detail = format!("{reason}; kept as text");
                            sink.problem(Problem::new(ProblemKind::BadRecord, place.clone(), detail));
                        }
                        return self.time_text(text, 0, Some(0), stamp, outer);
                    }
                };
                let mut log = found.finish(outer, stamp.as_ref(), &mut self.clock, &mut self.shared);
                let rest = text[line_end..].trim_matches(['\r', '\n']);
                if !rest.is_empty() {
                    append(&mut log, rest);
                }
                return log;
            }
            Content::Pairs => {
                let found = json_lines::read_pairs(&text[..line_end], &self.shared);
                let mut log = found.finish(outer, stamp.as_ref(), &mut self.clock, &mut self.shared);
                let rest = text[line_end..].trim_matches(['\r', '\n']);
                if !rest.is_empty() {
                    append(&mut log, rest);
                }
                return log;
            }
            Content::JournalExport(_) => {
                let found = journal::read(bytes, &self.shared);
                return found.finish(outer, None, &mut self.clock, &mut self.shared);
            }
            _ => {}
        }
        let Some(stamp) = stamp else { return self.time_text(text, 0, None, None, outer) };
        match &self.shape.content {
            _ if is_outer => {}
            Content::Tracing => {
                if let Some(mut log) = tracing::read(text) {
                    self.finish(&mut log, &stamp, outer, prefix.as_ref());
                    return log;
                }
            }
            Content::Layout(layouts) => {
                let mut layouts = layouts.iter();
                if let Some(found) = layouts.find_map(|layout| layout.read(text, start, &stamp)) {
                    let (mut log, mut writer) = (found.log, found.writer);
                    writer.or(outer);
                    self.finish(&mut log, &stamp, writer, prefix.as_ref());
                    return log;
                }
            }
            _ => {}
        }
        let mut log =
            self.time_text(text, start, Some(if is_outer { 0 } else { stamp.len }), Some(stamp), outer);
        if let Some(prefix) = prefix
            && log.severity_text.is_empty()
        {
            log.severity = prefix.severity;
        }
        log
    }

    /// Sets what a layout does not.
    fn finish(
        &mut self,
        log: &mut LogRecord<'_>,
        stamp: &Stamp,
        writer: Writer<'_>,
        prefix: Option<&Prefix<'_>>,
    ) {
        (log.time, log.resolution) = (self.clock.instant(stamp), stamp.resolution);
        if writer != Writer::default() {
            log.resource = writer.resource(&mut self.shared.resources);
        }
        if let Some(prefix) = prefix
            && log.severity_text.is_empty()
        {
            log.severity = prefix.severity;
        }
    }

    /// A record of a text with a time at `start`, of which nothing else is known: the first word
    /// that is a severity, near the time, is the record's.
    fn time_text<'t>(
        &mut self,
        text: &'t str,
        start: usize,
        len: Option<usize>,
        stamp: Option<Stamp>,
        writer: Writer<'t>,
    ) -> LogRecord<'t> {
        let mut log = self.shared.record();
        let (before, rest) = (&text[..start], text.get(start + len.unwrap_or(0)..).unwrap_or(""));
        let is_edge = |next: char| next.is_whitespace() || "[]<>()|:,-".contains(next);
        let words = before.split_whitespace().chain(rest.split_whitespace().take(8));
        for word in words.take(12) {
            let word = word.trim_matches(is_edge);
            // In lower case, a word of a sentence: `could not log an error`.
            let is_level = word.len() > 2
                && (word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()));
            if let Some(severity) = levels::of_word(word).filter(|_| is_level) {
                (log.severity, log.severity_text) = (severity, Cow::Borrowed(word));
                break;
            }
        }
        let has_words = before.bytes().any(|byte| byte.is_ascii_alphanumeric());
        log.body = Value::String(if len.is_none() {
            Cow::Borrowed(text)
        } else if has_words {
            Cow::Owned(format!("{} {}", before.trim(), rest.trim_start_matches([' ', '\t', ']', ':', ','])))
        } else {
            Cow::Borrowed(rest.trim_start_matches([' ', '\t', ']', ':', ',', '|']))
        });
        if let Some(stamp) = stamp {
            self.finish(&mut log, &stamp, writer, None);
        }
        log
    }
}

/// The prefix of a text's first line, and the text without the prefixes of its lines.
fn unprefixed<'t>(shape: &Shape, text: &'t str) -> (Option<Prefix<'t>>, Cow<'t, str>) {
    let first = shape.prefix(text);
    let len = first.as_ref().map_or(0, |prefix| prefix.len);
    if !text.trim_end().contains('\n') {
        return (first, Cow::Borrowed(&text[len..]));
    }
    let mut joined = String::with_capacity(text.len());
    let mut is_partial = true;
    for line in text.lines() {
        let prefix = shape.prefix(line);
        if !is_partial {
            joined.push('\n');
        }
        joined.push_str(&line[prefix.as_ref().map_or(0, |prefix| prefix.len)..]);
        is_partial = prefix.is_some_and(|prefix| prefix.is_partial);
    }
    (first, Cow::Owned(joined))
}

/// Appends lines to the message of a record.
fn append<'t>(log: &mut LogRecord<'t>, lines: &'t str) {
    match &log.body {
        Value::String(message) => log.body = Value::String(Cow::Owned(format!("{message}\n{lines}"))),
        Value::Empty => log.body = Value::String(Cow::Borrowed(lines)),
        _ => {
            let value = Value::String(Cow::Borrowed(lines));
            log.attributes.push(Attribute { key: Cow::Borrowed("log.lines_after"), value });
        }
    }
}
