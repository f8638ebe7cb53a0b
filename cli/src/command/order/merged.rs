//! `--merged`: the log records of all files as one log, for people or as JSON lines.

use std::io::{self, BufWriter, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use astracer_causality::points::Point;
use astracer_model::event::EventKind;
use astracer_model::ids::TraceId;
use astracer_model::log::{LogRecord, Severity};
use astracer_model::value::Value;
use astracer_order::Order;
use astracer_order::links::Links;
use astracer_order::select::Selection;
use astracer_order::text::{LastStamp, Stamps, time};
use astracer_order::vectors::{Clocks, Lines};
use astracer_recording::recording::{each_id, write_value};
use clap::{Args as ClapArgs, ValueEnum};
use regex::Regex;
use serde_json::json;

use super::BUFFER_BYTES;
use super::members::{Known, json_text, message};
use crate::failure::Failure;
use crate::json_text::json_escaped;
use crate::output::{escaped, lines_escaped};
use crate::stdout;
use crate::values;

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "One log")]
pub(super) struct Merge {
    /// Print the log records of all files in order, each with time, host, process, severity and
    /// message; =jsonl as JSON lines. A ~ marks a record that is concurrent with the one above, a ?
    /// one that is not known to be ordered with it.
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "text",
        conflicts_with = "json"
    )]
    pub(super) merged: Option<Form>,

    /// Print records of this severity and above: trace, debug, info, warn, error or fatal.
    #[arg(long, value_name = "SEVERITY", requires = "merged", conflicts_with = "json", value_parser = severity)]
    level: Option<Severity>,

    /// Print records whose text matches the regular expression.
    #[arg(long, value_name = "REGEX", requires = "merged", conflicts_with = "json")]
    grep: Option<Regex>,

    /// Print records that state or mention the id of this trace, under whatever name; without
    /// --merged, select these, its spans, and messages that carry its id.
    #[arg(long, value_name = "ID", value_parser = trace)]
    trace: Option<TraceIds>,

    /// Print records from this time on: in UTC, or before now, as in 15m.
    #[arg(long, value_name = "TIME", requires = "merged", conflicts_with = "json", value_parser = when)]
    since: Option<u64>,

    /// Print records up to this time.
    #[arg(long, value_name = "TIME", requires = "merged", conflicts_with = "json", value_parser = when)]
    until: Option<u64>,

    /// Wait for what is written to the logs, until Ctrl-C.
    #[arg(long, requires = "merged", conflicts_with = "json")]
    pub(super) follow: bool,
}

/// The values of `--merged`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// Lines for people.
    Text,
    /// JSON lines.
    Jsonl,
}

/// The numbers that an id on the command line may be.
#[derive(Clone, Debug)]
pub(super) struct TraceIds(Vec<u128>);

fn severity(text: &str) -> Result<Severity, String> {
    Severity::from_word(text).ok_or_else(|| {
        format!("invalid severity '{}': use trace, debug, info, warn, error or fatal", escaped(text))
    })
}

fn trace(text: &str) -> Result<TraceIds, String> {
    let mut ids = Vec::new();
    each_id(text.as_bytes(), |id| {
        ids.push(id);
        true
    });
    let wrong = || {
        format!("invalid id '{}': use 16 or 32 hexadecimal digits, a UUID or a decimal number", escaped(text))
    };
    if ids.is_empty() { Err(wrong()) } else { Ok(TraceIds(ids)) }
}

/// Nanoseconds since 1970.
fn when(text: &str) -> Result<u64, String> {
    let nanos = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH).ok();
        since.and_then(|since| u64::try_from(since.as_nanos()).ok())
    };
    let is_date = text.len() == 10 && text.bytes().filter(|&byte| byte == b'-').count() == 2;
    let midnight = if is_date { " 00:00:00" } else { "" };
    if let Ok(time) = humantime::parse_rfc3339_weak(&format!("{text}{midnight}")) {
        return nanos(time).ok_or_else(|| format!("'{text}' is out of range: use 1970 to 2554"));
    }
    let before = values::length(text).ok().and_then(|length| nanos(SystemTime::now().checked_sub(length)?));
    before.ok_or_else(|| {
        format!(
            "invalid time '{}': use UTC, as in 2026-11-27T10:05:00Z, or a time before now, as in 15m",
            escaped(text)
        )
    })
}

impl Merge {
    /// True if a record is wanted.
    pub(super) fn wants(&self, severity: Severity, time: u64, trace: TraceId, text: &str) -> bool {
        self.level.is_none_or(|least| severity >= least)
            && self.since.is_none_or(|since| time >= since)
            && self.until.is_none_or(|until| time <= until)
            && self.trace.as_ref().is_none_or(|ids| ids.fit(trace, text))
            && self.grep.as_ref().is_none_or(|pattern| pattern.is_match(text))
    }

    /// The trace whose events are selected: with `--merged` it filters records instead.
    pub(super) fn selected_trace(&self) -> Option<&TraceIds> {
        self.trace.as_ref().filter(|_| self.merged.is_none())
    }

    /// True if any record may be left out.
    pub(super) fn is_filter(&self) -> bool {
        let Self { merged: _, level, grep, trace, since, until, follow: _ } = self;
        level.is_some() || grep.is_some() || trace.is_some() || since.is_some() || until.is_some()
    }
}

impl TraceIds {
    /// True for an event that states or carries one of these ids, or a record that mentions one.
    pub(super) fn fit_event(&self, order: &Order, row: &Point) -> bool {
        let events = &order.events;
        let is_record = row.kind == EventKind::Log;
        let trace = match events.spans().get(row.span as usize) {
            Some(span) => span.trace,
            None => order.log(row).map_or(TraceId::ZERO, |log| log.trace),
        };
        self.fit(trace, if is_record { events.text(row) } else { "" })
            || events.ids_of(row).iter().any(|(trace, _)| self.has(trace.0))
    }

    fn has(&self, id: u128) -> bool {
        // A decimal id is the low half.
        self.0.iter().any(|&own| own == id || u64::try_from(own).is_ok_and(|own| own == id as u64))
    }

    fn fit(&self, trace: TraceId, text: &str) -> bool {
        let mut found = trace != TraceId::ZERO && self.has(trace.0);
        each_id(text.as_bytes(), |id| {
            found |= self.has(id);
            !found
        });
        found
    }
}

/// The parts of a record that are printed.
pub(super) struct Line<'l> {
    /// Nanoseconds since 1970; `None` if unknown.
    pub(super) time: Option<u64>,
    pub(super) host: &'l str,
    pub(super) process: &'l str,
    pub(super) severity: Severity,
    /// The rest: of the form that [`body`] or [`members`] makes.
    pub(super) body: &'l str,
}

/// The text of a record for people: logger, message and attributes, and then its further lines.
pub(super) fn body(log: &LogRecord<'_>) -> String {
    let mut text = String::new();
    if !log.logger.is_empty() {
        text.push_str(&log.logger);
        text.push_str(": ");
    }
    let message = message(log);
    let (first, further) = message.split_once('\n').unwrap_or((&message, ""));
    text.push_str(first.trim_end());
    let is_lines = |key: &str| key.starts_with("log.lines_");
    for attribute in log.attributes.iter().filter(|attribute| !is_lines(&attribute.key)) {
        let start = text.len();
        text.push(' ');
        text.push_str(&attribute.key);
        text.push('=');
        match &attribute.value {
            Value::String(value) if value.is_empty() || value.contains([' ', '\n', '"']) => {
                text.push_str(&json!(value).to_string());
            }
            value => write_value(&mut text, value),
        }
        if text[start..].contains('\n') {
            let one_line = text.split_off(start).replace('\n', "\\n");
            text.push_str(&one_line);
        }
    }
    let lines = log.attributes.iter().filter(|attribute| is_lines(&attribute.key));
    for lines in lines.filter_map(|attribute| attribute.value.as_str()).chain([further]) {
        if !lines.trim().is_empty() {
            text.push('\n');
            text.push_str(lines.trim_end());
        }
    }
    text
}

/// Prints records.
pub(super) struct Printer<W: Write> {
    out: W,
    form: Form,
    has_colours: bool,
    /// Digits of times so far: a finer time adds some to all that follow.
    stamps: Stamps,
    last: LastStamp,
}

impl Printer<BufWriter<std::fs::File>> {
    pub(super) fn new(form: Form, stamps: Stamps) -> io::Result<Self> {
        let out = BufWriter::with_capacity(BUFFER_BYTES, stdout::open()?);
        // https://no-color.org
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Ok(Self {
            out,
            form,
            has_colours: !refused && console::colors_enabled(),
            stamps,
            last: LastStamp::default(),
        })
    }
}

impl<W: Write> Printer<W> {
    /// Prints one record. The mark says how it is ordered with the one above.
    pub(super) fn line(&mut self, mark: char, line: &Line<'_>) -> io::Result<()> {
        let Line { time, host, process, severity, body } = *line;
        self.stamps = self.stamps.finer(time.unwrap_or(0));
        let stamp = time.map(|time| self.last.show(self.stamps, time));
        if self.form == Form::Jsonl {
            let order = match mark {
                '~' => "concurrent",
                '?' => "unknown",
                _ => "after",
            };
            let known = json_text(&Known { host, order, process, severity: severity.word(), time: stamp });
            let known = known.trim_end_matches('}');
            return writeln!(self.out, "{}", json_escaped(&format!("{known},{body}")));
        }
        let stamp = stamp.unwrap_or("-");
        let (host, process, body) = (escaped(host), escaped(process), lines_escaped(body));
        let word = severity.word().to_ascii_uppercase();
        let gap = if word.is_empty() { "" } else { " " };
        if !self.has_colours {
            return writeln!(self.out, "{mark} {stamp} {host} {process} | {word}{gap}{body}");
        }
        let colour = match severity.word() {
            "fatal" | "error" => "\u{1b}[31m",
            "warn" => "\u{1b}[33m",
            "trace" | "debug" => "\u{1b}[2m",
            _ => "",
        };
        let hue = 31 + process.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte)) % 5 + 1;
        const END: &str = "\u{1b}[0m";
        writeln!(
            self.out,
            "{mark} \u{1b}[2m{stamp}{END} {host} \u{1b}[{hue}m{process}{END} | {colour}{word}{END}{gap}{body}"
        )
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Prints the wanted records of a selection.
pub(super) fn print(
    merge: &Merge,
    links: &Links<'_>,
    lines: &Lines,
    chosen: &Selection,
) -> Result<(), Failure> {
    let rows = links.order().events.rows();
    if !chosen.events.iter().any(|&event| rows[event as usize].kind == EventKind::Log) {
        return Err(nothing());
    }
    let form = merge.merged.unwrap_or(Form::Text);
    let print = || -> io::Result<()> {
        let mut printer = Printer::new(form, Stamps::of(links.order()))?;
        write(merge, links, lines, chosen, &mut printer)?;
        printer.flush()
    };
    print().map_err(|error| Failure::output(&error))
}

/// The failure of a merge without records.
pub(super) fn nothing() -> Failure {
    Failure::Job(
        "no log records were read, so nothing can be merged; add the log files to the command".to_owned(),
    )
}

fn write(
    merge: &Merge,
    links: &Links<'_>,
    lines: &Lines,
    chosen: &Selection,
    printer: &mut Printer<impl Write>,
) -> io::Result<()> {
    let order = links.order();
    let events = &order.events;
    let (mut clocks, stamps) = (Clocks::new(links, lines), Stamps::of(order));
    // The record above, with its line and number.
    let mut above: Option<(u32, u32, u32)> = None;
    for &event in &order.sequence {
        let clock = clocks.step(event, true);
        let row = &events.rows()[event as usize];
        if row.kind != EventKind::Log || !chosen.is_chosen[event as usize] {
            continue;
        }
        let (severity, trace, message) = match order.log(row) {
            Some(log) => (log.severity, log.trace, log.message),
            None => (Severity::UNSPECIFIED, TraceId::ZERO, (0, u32::MAX)),
        };
        let (text, at) = (events.text(row).trim_end(), time(order, event));
        if !merge.wants(severity, at, trace, text) {
            continue;
        }
        let unordered = above.filter(|&(_, line, number)| clock.of(line) < number);
        let mark = match unordered {
            None => ' ',
            Some((above, ..)) if links.missing(above, event).is_empty() => '~',
            Some(_) => '?',
        };
        above = Some((event, clock.line, clock.number));
        let process = &*events.process(row).name;
        // A process without a name is known by its thread.
        let process = if process.is_empty() { &*events.thread(row).name } else { process };
        let message = message_of(text, message);
        let body = match merge.merged {
            Some(Form::Jsonl) => {
                let file = &*events.files()[row.file as usize];
                let mut object = json!({ "message": message, "file": file, "line": row.line });
                if trace != TraceId::ZERO {
                    object["trace_id"] = json!(trace.to_string());
                }
                if order.misplaced(event).is_some() {
                    object["placed"] = json!(stamps.show(at));
                }
                object.to_string().trim_start_matches('{').to_owned()
            }
            _ => message,
        };
        let host = events.host(row);
        // Where a record has its place by other evidence, its own time is shown.
        let at = order.misplaced(event).unwrap_or(at);
        printer.line(mark, &Line { time: Some(at), host, process, severity, body: &body })?;
    }
    Ok(())
}

/// The message of a record's text, and the record's other lines.
fn message_of(text: &str, (start, len): (u32, u32)) -> String {
    let (start, end) = (start as usize, (start as usize).saturating_add(len as usize).min(text.len()));
    let Some(message) = text.get(start..end).filter(|message| !message.is_empty()) else {
        return text.to_owned();
    };
    let line = text[..start].rfind('\n').unwrap_or(0);
    let behind = text[end..].find('\n').map_or("", |at| &text[end + at..]);
    // Attributes behind the message of a line that is not JSON.
    let line_end = text[end..].find('\n').map_or(text.len(), |at| end + at);
    let is_quoted = text[..start].ends_with('"');
    let rest = match text[end..line_end].strip_prefix('"').filter(|_| is_quoted) {
        _ if text[..start].contains('{') => "",
        Some(behind) => behind,
        None => &text[end..line_end],
    };
    let before = if line > 0 { format!("\n{}", &text[..line]) } else { String::new() };
    format!("{message}{rest}{before}{behind}")
}
