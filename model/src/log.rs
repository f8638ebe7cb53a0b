//! One log record, as its file states it. Readers of logs produce this form.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::ids::{SpanId, TraceId};
use crate::span::{Resource, Scope, lookup};
use crate::time::UnixNanos;
use crate::value::{Attribute, Value};

/// One log record, borrowed from the reader's buffer where possible.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogRecord<'a> {
    /// The time of the event.
    pub time: Option<UnixNanos>,
    /// The unit of the last digit of `time` in nanoseconds: the event is less than this later than
    /// `time`. 0 if the source counts nanoseconds.
    pub resolution: u64,
    /// The time at which a collector received the record (OTLP).
    pub observed: Option<UnixNanos>,
    /// The severity.
    pub severity: Severity,
    /// The severity as the source states it, such as `WARN`; empty if unknown.
    pub severity_text: Cow<'a, str>,
    /// The message. Mostly text; OTLP allows any value.
    pub body: Value<'a>,
    /// The logger: a class, a module, a `tracing` target, or OTLP's scope. Empty if unknown.
    pub logger: Cow<'a, str>,
    /// The thread's name or number; empty if unknown.
    pub thread: Cow<'a, str>,
    /// The statement in the source code that wrote the record.
    pub code: Code<'a>,
    /// The trace; [`TraceId::ZERO`] if the record belongs to none.
    pub trace_id: TraceId,
    /// The span; [`SpanId::ZERO`] if the record belongs to none.
    pub span_id: SpanId,
    /// OTLP's flags: the low 8 bits are W3C trace flags.
    pub flags: u32,
    /// OTLP's name of the kind of event; mostly empty.
    pub event_name: Cow<'a, str>,
    /// Attributes in the order written.
    pub attributes: Vec<Attribute<'a>>,
    /// The number of attributes that the SDK discarded.
    pub dropped_attributes: u32,
    /// The process that wrote the record.
    pub resource: Arc<Resource>,
    /// The library that wrote the record.
    pub scope: Arc<Scope>,
}

/// A place in source code. A field that is unknown is empty or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code<'a> {
    /// The file.
    pub file: Cow<'a, str>,
    /// The function.
    pub function: Cow<'a, str>,
    /// The line, from 1.
    pub line: u32,
}

impl<'a> LogRecord<'a> {
    /// A record with this resource and scope and all other fields empty. Unlike `default()`, this
    /// allocates nothing.
    pub fn of(resource: Arc<Resource>, scope: Arc<Scope>) -> Self {
        Self {
            time: None,
            resolution: 0,
            observed: None,
            severity: Severity::UNSPECIFIED,
            severity_text: Cow::Borrowed(""),
            body: Value::Empty,
            logger: Cow::Borrowed(""),
            thread: Cow::Borrowed(""),
            code: Code::default(),
            trace_id: TraceId::ZERO,
            span_id: SpanId::ZERO,
            flags: 0,
            event_name: Cow::Borrowed(""),
            attributes: Vec::new(),
            dropped_attributes: 0,
            resource,
            scope,
        }
    }

    /// Converts the record into one that owns its text.
    pub fn into_owned(self) -> LogRecord<'static> {
        fn own(text: Cow<'_, str>) -> Cow<'static, str> {
            Cow::Owned(text.into_owned())
        }
        LogRecord {
            time: self.time,
            resolution: self.resolution,
            observed: self.observed,
            severity: self.severity,
            severity_text: own(self.severity_text),
            body: self.body.into_owned(),
            logger: own(self.logger),
            thread: own(self.thread),
            code: Code { file: own(self.code.file), function: own(self.code.function), line: self.code.line },
            trace_id: self.trace_id,
            span_id: self.span_id,
            flags: self.flags,
            event_name: own(self.event_name),
            attributes: self.attributes.into_iter().map(Attribute::into_owned).collect(),
            dropped_attributes: self.dropped_attributes,
            resource: self.resource,
            scope: self.scope,
        }
    }

    /// The time of the event, or else the time at which it was received.
    pub fn when(&self) -> Option<UnixNanos> {
        self.time.or(self.observed)
    }

    /// The body if it is text; empty otherwise.
    pub fn text(&self) -> &str {
        self.body.as_str().unwrap_or("")
    }

    /// The value of the first attribute with this key.
    pub fn attribute(&self, key: &str) -> Option<&Value<'a>> {
        lookup(&self.attributes, key)
    }
}

/// The severity of a record: OpenTelemetry's number from 1 to 24, or 0 if unspecified. Four numbers
/// each are a trace, debug, info, warning, error and fatal message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Severity(u8);

impl Severity {
    /// The source states no severity.
    pub const UNSPECIFIED: Self = Self(0);
    /// The finest detail.
    pub const TRACE: Self = Self(1);
    /// Detail for developers.
    pub const DEBUG: Self = Self(5);
    /// An ordinary event.
    pub const INFO: Self = Self(9);
    /// An event that may need attention.
    pub const WARN: Self = Self(13);
    /// An error.
    pub const ERROR: Self = Self(17);
    /// An error that ends the program.
    pub const FATAL: Self = Self(21);

    /// The severity for OTLP's number; undefined numbers are unspecified.
    pub fn from_otlp(number: i64) -> Self {
        u8::try_from(number).ok().filter(|number| (1..=24).contains(number)).map_or(Self(0), Self)
    }

    /// OTLP's number; 0 if unspecified.
    pub fn number(self) -> u8 {
        self.0
    }

    /// OpenTelemetry's short name of the severity's range in lower case; empty if unspecified.
    pub fn word(self) -> &'static str {
        match self.0 {
            0 => "",
            1..=4 => "trace",
            5..=8 => "debug",
            9..=12 => "info",
            13..=16 => "warn",
            17..=20 => "error",
            _ => "fatal",
        }
    }

    /// The severity for a word that loggers write, in either case; `None` for any other word.
    pub fn from_word(word: &str) -> Option<Self> {
        const WORDS: &[(&str, Severity)] = &[
            ("trace", Severity::TRACE),
            ("finest", Severity::TRACE),
            ("all", Severity::TRACE),
            ("verbose", Severity::TRACE),
            ("finer", Severity(2)),
            ("debug", Severity::DEBUG),
            ("fine", Severity::DEBUG),
            ("config", Severity(8)),
            ("info", Severity::INFO),
            ("information", Severity::INFO),
            ("informational", Severity::INFO),
            ("notice", Severity(10)),
            ("warn", Severity::WARN),
            ("warning", Severity::WARN),
            ("error", Severity::ERROR),
            ("err", Severity::ERROR),
            ("severe", Severity::ERROR),
            ("crit", Severity(18)),
            ("critical", Severity(18)),
            ("dpanic", Severity(18)),
            ("alert", Severity(19)),
            ("fatal", Severity::FATAL),
            ("panic", Severity::FATAL),
            ("emerg", Severity::FATAL),
            ("emergency", Severity::FATAL),
        ];
        WORDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|&(_, severity)| severity)
    }
}

/// A format in which logs are written. `astracer-formats` reads each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogFormat {
    /// OTLP export requests of logs as JSON.
    OtlpJson,
    /// OTLP export requests of logs as protobuf.
    OtlpProto,
    /// Nezha's log CSV.
    NezhaCsv,
    /// One JSON object per line.
    JsonLines,
    /// JSON documents with records in lists, or over several lines.
    JsonDocuments,
    /// The text of `tracing_subscriber`.
    TracingText,
    /// Lines of text with times, in a layout that is recognised or given.
    Layout,
    /// Lines of `key=value` pairs.
    Pairs,
    /// The export format of journald: blocks of `KEY=value` lines.
    JournalExport,
}

impl LogFormat {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::OtlpJson => "otlp-logs-json",
            Self::OtlpProto => "otlp-logs-proto",
            Self::NezhaCsv => "nezha-log-csv",
            Self::JsonLines => "json-lines",
            Self::JsonDocuments => "json-documents",
            Self::TracingText => "tracing-text",
            Self::Layout => "layout",
            Self::Pairs => "key-value",
            Self::JournalExport => "journal-export",
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those of OpenTelemetry's data model for logs.
    #[test]
    fn severities_are_known_by_number_and_by_word() {
        for (word, number) in [
            ("TRACE", 1),
            ("debug", 5),
            ("Info", 9),
            ("NOTICE", 10),
            ("WARNING", 13),
            ("SEVERE", 17),
            ("critical", 18),
            ("fatal", 21),
        ] {
            assert_eq!(Severity::from_word(word).map(Severity::number), Some(number), "{word}");
        }
        assert_eq!(Severity::from_word("loud"), None);
        for (number, expected) in [(0, 0), (1, 1), (24, 24), (25, 0), (-1, 0), (i64::MAX, 0), (265, 0)] {
            assert_eq!(Severity::from_otlp(number).number(), expected, "{number}");
        }
    }
}
