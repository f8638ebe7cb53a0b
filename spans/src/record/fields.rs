//! The fields of spans and events, read from `tracing` without an allocation for each.
//!
//! A [`Fields`] is a thread's scratch memory. The caller's `Debug` and `Display` code runs while it
//! is filled, when no lock is held. Its content then moves to the span's [`Body`](super::Body).

use std::cell::Cell;
use std::fmt::{self, Write as _};

use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;
use tracing_core::Metadata;
use tracing_core::field::{Field, Visit};

use super::attribute::{Attribute, Value};
use super::limits::{Conventions, NAME_LENGTH};
use super::memory::{Memory, Text, Texts, cut_text};
use super::span::{STATUS_CODE, STATUS_DESCRIPTION, Status};

/// The fields that one call records: a span's creation, a later `record`, or an event.
#[derive(Debug, Default)]
pub struct Fields {
    pub attributes: Vec<Attribute>,
    pub memory: Memory,
    /// `otel.name`, or an event's `message`.
    pub name: Option<Text>,
    pub kind: Option<SpanKind>,
    pub status: Status,
    /// Attributes that an error on an event adds to the span.
    pub for_span: Vec<Attribute>,
    /// Whether this is an event without a message that has a field `error`.
    pub is_exception: bool,
    pub log: LogOrigin,
}

/// The origin of an event from the `log` crate; `tracing-log` puts it into fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOrigin {
    pub target: Option<Text>,
    pub file: Option<Text>,
    pub module: Option<Text>,
    pub line: Option<i64>,
}

impl LogOrigin {
    /// Whether `tracing-log` makes this event: it has one callsite for each level.
    pub fn is_of(metadata: &Metadata<'_>) -> bool {
        metadata.target() == "log" && metadata.name() == "log event" && metadata.file().is_none()
    }

    pub fn map(self, mut f: impl FnMut(Text) -> Text) -> Self {
        LogOrigin {
            target: self.target.map(&mut f),
            file: self.file.map(&mut f),
            module: self.module.map(&mut f),
            line: self.line,
        }
    }
}

thread_local!(static SPARE: Cell<Option<Box<Fields>>> = const { Cell::new(None) });

impl Fields {
    /// Lends the thread's empty scratch memory to `f`. Code that `f` calls may borrow again, and
    /// then gets other memory.
    pub fn borrow<T>(f: impl FnOnce(&mut Fields) -> T) -> T {
        let mut fields = SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default();
        let result = f(&mut fields);
        fields.clear();
        if fields.memory.text.capacity() <= KEPT_BYTES_MAX {
            let _ = SPARE.try_with(|spare| spare.set(Some(fields)));
        }
        result
    }

    #[inline]
    fn clear(&mut self) {
        self.attributes.clear();
        self.memory.clear();
        self.name = None;
        self.kind = None;
        self.status = Status::Unset;
        self.for_span.clear();
        self.is_exception = false;
        self.log = LogOrigin::default();
    }

    /// Adds an attribute from the OpenTelemetry API.
    pub fn add(&mut self, attribute: KeyValue) {
        let place = self.memory.keep(attribute);
        self.attributes.push(Attribute::new("", Value::Other(place)));
    }

    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
            && self.name.is_none()
            && self.kind.is_none()
            && matches!(self.status, Status::Unset)
            && self.for_span.is_empty()
    }
}

/// More memory, which one huge field has grown, is not kept.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// The maximum length of one text in characters, whatever the limits say. A longer text would not
/// fit into a span and would be cut there.
const TEXT_LENGTH_MAX: usize = 4 << 20;
/// Texts that would begin beyond this number of bytes are empty. Positions of texts have 32 bits,
/// and a text has at most 16 MiB.
const SCRATCH_BYTES_MAX: usize = 1 << 30;

/// Fills [`Fields`] according to tracing-opentelemetry's conventions.
pub struct Visitor<'a> {
    fields: &'a mut Fields,
    conventions: Conventions,
    /// The maximum length of an attribute, in characters.
    length_max: u32,
    event: bool,
}

impl Fields {
    pub fn of_span(&mut self, conventions: Conventions, length_max: u32) -> Visitor<'_> {
        Visitor { fields: self, conventions, length_max, event: false }
    }

    pub fn of_event(&mut self, conventions: Conventions, length_max: u32) -> Visitor<'_> {
        Visitor { fields: self, conventions, length_max, event: true }
    }
}

impl Visitor<'_> {
    #[inline]
    fn write(&mut self, source: Source<'_>) -> Text {
        self.write_within(self.length_max, source)
    }

    /// Writes a text that is not an attribute.
    #[inline]
    fn write_name(&mut self, source: Source<'_>) -> Text {
        self.write_within(self.length_max.max(NAME_LENGTH), source)
    }

    fn write_within(&mut self, length_max: u32, source: Source<'_>) -> Text {
        let start = self.fields.memory.text.len();
        let left = if start < SCRATCH_BYTES_MAX { (length_max as usize).min(TEXT_LENGTH_MAX) } else { 0 };
        let mut out = Limited { text: &mut self.fields.memory.text, start, max: left, free: left };
        // An error means that the limit was reached, or comes from the caller's code. The text
        // written so far stays.
        let _ = match source {
            Source::Str(text) => out.write_str(text),
            Source::Debug(value) => write!(out, "{value:?}"),
            Source::Display(value) => write!(out, "{value}"),
        };
        self.fields.memory.since(start)
    }

    #[inline]
    fn push(&mut self, name: &'static str, value: Value) {
        self.fields.attributes.push(Attribute::new(name, value));
    }

    fn text(&mut self, field: &Field, source: Source<'_>) {
        match field.name() {
            "message" if self.event => {
                let text = self.write_name(source);
                // As in tracing-opentelemetry, an event with an empty message is named after its
                // callsite.
                self.fields.name = (text.length > 0).then_some(text);
            }
            "error" if self.event && self.fields.name.is_none() && !self.fields.is_exception => {
                self.error(source)
            }
            name if self.event && name.starts_with("log.") => self.log(name, source),
            name if !self.event && name.starts_with("otel.") => self.special(name, source),
            name => {
                let text = self.write(source);
                self.push(name, Value::Text(text));
            }
        }
    }

    /// Records the error of an event as `#[instrument(err)]` emits it: without a message, with a
    /// field `error`.
    fn error(&mut self, source: Source<'_>) {
        let source = match source {
            Source::Str(ref text) => Source::Debug(text),
            other => other,
        };
        let whole = match self.conventions.error_events_to_status {
            true => self.write_name(source),
            false => self.write(source),
        };
        let text = self.fields.memory.text(whole);
        let (message, trace) = text.split_once(BACKTRACE).map_or((text, None), |(message, trace)| {
            let length = trace.trim_end().len() as u32;
            let start = whole.start + (message.len() + BACKTRACE.len()) as u32;
            (message.trim_end(), Some(Text { start, length }))
        });
        // The attribute's text is the start of the description, so both share the memory.
        let within = cut_text(message, self.length_max).len() as u32;
        let (description, text) = (message.len() as u32, Text { length: within, ..whole });
        if self.conventions.error_events_to_status {
            self.fields.status = Status::Error(Text { length: description, ..whole });
        }
        self.fields.is_exception |= self.conventions.error_events_to_exceptions;
        let name = if self.fields.is_exception { "exception.message" } else { "error" };
        self.push(name, Value::Text(text));
        if self.fields.is_exception {
            let kind = match type_of(self.fields.memory.text(text)) {
                Some(kind) => Text { length: kind.len() as u32, ..text },
                None => self.write(Source::Str(UNKNOWN_TYPE)),
            };
            self.push("exception.type", Value::Text(kind));
            if let Some(trace) = trace {
                self.push("exception.stacktrace", Value::Text(trace));
            }
        }
    }

    fn log(&mut self, name: &'static str, source: Source<'_>) {
        let text = Some(self.write(source));
        match name {
            "log.target" => self.fields.log.target = text,
            "log.file" => self.fields.log.file = text,
            "log.module_path" => self.fields.log.module = text,
            _ => {}
        }
    }

    fn special(&mut self, name: &'static str, source: Source<'_>) {
        match name {
            "otel.name" => self.fields.name = Some(self.write_name(source)),
            "otel.kind" => {
                let text = self.write_name(source);
                self.fields.kind = kind(self.fields.memory.text(text));
            }
            STATUS_CODE => {
                let text = self.write_name(source);
                let status = Status::named(self.fields.memory.text(text));
                self.fields.status.raise(status);
            }
            STATUS_DESCRIPTION => {
                let text = self.write_name(source);
                self.fields.status.raise(Status::Error(text));
            }
            _ => {
                let text = self.write(source);
                self.push(name, Value::Text(text));
            }
        }
    }

    #[inline(always)]
    fn number(&mut self, field: &Field, value: Value, shown: &dyn fmt::Display) {
        if self.event { self.number_of_event(field, value, shown) } else { self.push(field.name(), value) }
    }

    #[inline(never)]
    fn number_of_event(&mut self, field: &Field, value: Value, shown: &dyn fmt::Display) {
        match (field.name(), value) {
            ("message", _) => self.text(field, Source::Display(shown)),
            ("log.line", Value::I64(line)) => self.fields.log.line = Some(line),
            (name, _) if name.starts_with("log.") => {}
            (name, value) => self.push(name, value),
        }
    }

    /// OpenTelemetry has no other integers than `i64`: one that does not fit is recorded as a text.
    fn integer<T: TryInto<i64> + Copy + fmt::Debug>(&mut self, field: &Field, value: T) {
        match value.try_into() {
            Ok(value) => self.record_i64(field, value),
            Err(_) => self.record_debug(field, &value),
        }
    }
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Str(&'a str),
    Debug(&'a dyn fmt::Debug),
    Display(&'a dyn fmt::Display),
}

fn kind(text: &str) -> Option<SpanKind> {
    [
        ("server", SpanKind::Server),
        ("client", SpanKind::Client),
        ("producer", SpanKind::Producer),
        ("consumer", SpanKind::Consumer),
        ("internal", SpanKind::Internal),
    ]
    .into_iter()
    .find_map(|(name, kind)| text.eq_ignore_ascii_case(name).then_some(kind))
}

impl Visit for Visitor<'_> {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.number(field, Value::Bool(value), &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.number(field, Value::F64(value), &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field, Value::I64(value), &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.integer(field, value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.integer(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.integer(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, Source::Str(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, Source::Debug(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let message = self.write(Source::Display(value));
        let mut chain = Vec::new();
        let mut source = value.source();
        while let (Some(error), true) = (source, chain.len() < CHAIN_MAX) {
            chain.push(self.write(Source::Display(error)));
            source = error.source();
        }
        let kind = if value.is::<std::io::Error>() { Some("std::io::Error") } else { None };
        let mut head = Head::default();
        let kind = kind.or_else(|| {
            let _ = write!(head, "{value:?}");
            type_of(&head.text)
        });
        let kind = self.write(Source::Str(kind.unwrap_or(UNKNOWN_TYPE)));
        let lists = &mut self.fields.memory.lists;
        let texts = Texts { start: lists.len() as u32, count: chain.len() as u32 };
        lists.append(&mut chain);
        let exception = [
            Attribute::new("exception.type", Value::Text(kind)),
            Attribute::new("exception.message", Value::Text(message)),
            Attribute::new("exception.stacktrace", Value::Texts(texts)),
        ];
        if self.conventions.error_fields_to_exceptions {
            self.fields.attributes.extend(exception);
        }
        if self.event && self.conventions.error_records_to_exceptions {
            self.fields.for_span.extend(exception);
        }
        self.push(field.name(), Value::Text(message));
        self.fields.attributes.push(Attribute::chain(field.name(), texts));
    }
}

/// The heading under which anyhow puts a backtrace in its `Debug` text, after all causes.
const BACKTRACE: &str = "Stack backtrace:\n";

/// `tracing` passes on an error's text, or the error as `dyn Error`, and neither knows its type.
const UNKNOWN_TYPE: &str = "Error";

/// The name of a type or variant at the start of a derived `Debug` text.
fn type_of(text: &str) -> Option<&str> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let length = text.bytes().take_while(|byte| is_part(byte)).count();
    let (name, rest) = text.split_at(length);
    let is_derived = rest.is_empty() || rest.starts_with('(') || rest.starts_with(" {");
    (name.starts_with(|first: char| first.is_ascii_uppercase()) && is_derived).then_some(name)
}

/// The start of a text, which is enough for the name of a type.
#[derive(Default)]
struct Head {
    text: String,
}

impl fmt::Write for Head {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        const BYTES_MAX: usize = 128;
        self.text.push_str(piece);
        if self.text.len() < BYTES_MAX { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Bounds the walk over an error's sources: an error that is its own source would never end.
const CHAIN_MAX: usize = 64;

/// Cuts the text after a number of characters, and stops the writer there.
struct Limited<'a> {
    text: &'a mut String,
    /// The start of this text among the others.
    start: usize,
    max: usize,
    /// The number of bytes that may follow before characters have to be counted: a byte starts at
    /// most one character.
    free: usize,
}

impl fmt::Write for Limited<'_> {
    #[inline]
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if piece.len() > self.free {
            return self.write_counted(piece);
        }
        self.text.push_str(piece);
        self.free -= piece.len();
        Ok(())
    }
}

impl Limited<'_> {
    #[cold]
    fn write_counted(&mut self, piece: &str) -> fmt::Result {
        let left = self.max - self.text[self.start..].chars().count();
        if let Some((end, _)) = piece.char_indices().nth(left) {
            self.text.push_str(&piece[..end]);
            self.free = 0;
            return Err(fmt::Error);
        }
        self.text.push_str(piece);
        self.free = left - piece.chars().count();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that the pieces leave, and whether the writer was stopped.
    fn written(max: usize, pieces: &[&str]) -> (String, bool) {
        let mut text = "others".to_owned();
        let start = text.len();
        let mut out = Limited { text: &mut text, start, max, free: max };
        let result = pieces.iter().try_for_each(|piece| out.write_str(piece));
        (text.split_off(start), result.is_err())
    }

    #[test]
    fn a_derived_debug_text_begins_with_the_type() {
        for (text, expected) in [
            ("ParseIntError { kind: InvalidDigit }", Some("ParseIntError")),
            ("NotFound(7)", Some("NotFound")),
            ("Timeout", Some("Timeout")),
            ("Connection refused (os error 111)", None),
            ("no price", None),
            ("", None),
        ] {
            assert_eq!(type_of(text), expected, "{text}");
        }
    }

    #[test]
    fn a_text_is_cut_after_a_number_of_characters() {
        for (max, pieces, expected, is_cut) in [
            (5, &["ab", "cde"][..], "abcde", false),
            (5, &["ab", "cdef"], "abcde", true),
            (5, &["ab", "cde", "f"], "abcde", true),
            (5, &["ab", "cde", ""], "abcde", false),
            (0, &["a"], "", true),
            (0, &[""], "", false),
            // Characters of two and of three bytes.
            (5, &["\u{e4}\u{e4}", "\u{20ac}\u{20ac}", "x"], "\u{e4}\u{e4}\u{20ac}\u{20ac}x", false),
            (5, &["\u{e4}\u{e4}", "\u{20ac}\u{20ac}", "xy"], "\u{e4}\u{e4}\u{20ac}\u{20ac}x", true),
            (3, &["\u{20ac}\u{20ac}\u{20ac}\u{20ac}"], "\u{20ac}\u{20ac}\u{20ac}", true),
            (3, &["\u{20ac}", "\u{20ac}", "\u{20ac}", "\u{20ac}"], "\u{20ac}\u{20ac}\u{20ac}", true),
        ] {
            assert_eq!(written(max, pieces), (expected.to_owned(), is_cut), "{max} of {pieces:?}");
        }
    }
}
