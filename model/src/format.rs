//! The trace formats: their names, and the door to each one's reader.

use std::fmt;
use std::io::{self, BufRead, Write};
use std::str::FromStr;
use std::sync::Arc;

use crate::sink::Sink;
use crate::source::Limits;
use crate::span::Span;

pub mod detect;
#[cfg(test)]
mod drawn;
pub mod htrace;
pub mod jaeger_json;
mod json;
mod keys;
pub mod loss;
mod micros;
pub mod nezha_csv;
mod otel_tags;
mod otlp;
pub mod otlp_json;
pub mod otlp_proto;
mod plain_json;
mod reuse;
mod window;
pub mod zipkin_json;

/// A format that traces are recorded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// OTLP export requests as JSON: one a file, one a line, or the collector's file exporter's lines.
    OtlpJson,
    /// OTLP export requests as protobuf: one a file, or each behind its length.
    OtlpProto,
    /// Jaeger's query API: `{"data": [...]}`, or a bare list of traces.
    JaegerJson,
    /// Zipkin v2: a list of spans, or a list of traces.
    ZipkinJson,
    /// HTrace 3 and 4: span objects that follow each other.
    HTrace,
    /// Nezha's CSV of spans.
    NezhaCsv,
}

impl Format {
    /// Every format.
    pub const ALL: &'static [Self] =
        &[Self::OtlpJson, Self::OtlpProto, Self::JaegerJson, Self::ZipkinJson, Self::HTrace, Self::NezhaCsv];

    /// The name used on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::OtlpJson => "otlp-json",
            Self::OtlpProto => "otlp-proto",
            Self::JaegerJson => "jaeger-json",
            Self::ZipkinJson => "zipkin-json",
            Self::HTrace => "htrace",
            Self::NezhaCsv => "nezha-csv",
        }
    }

    /// Reads one uncompressed file of this format to its end, handing spans and problems to `sink`.
    ///
    /// `file` is the name that places and problems carry.
    pub fn read(self, input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
        match self {
            Self::OtlpJson => otlp_json::read(input, file, limits, sink),
            Self::OtlpProto => otlp_proto::read(input, file, limits, sink),
            Self::JaegerJson => jaeger_json::read(input, file, limits, sink),
            Self::ZipkinJson => zipkin_json::read(input, file, limits, sink),
            Self::HTrace => htrace::read(input, file, limits, sink),
            Self::NezhaCsv => nezha_csv::read(input, file, limits, sink),
        }
    }
}

impl Format {
    /// A writer of this format; `None` if it is only read.
    pub fn writer<'w>(self, out: Box<dyn Write + 'w>) -> Option<Box<dyn TraceWriter + 'w>> {
        match self {
            Self::OtlpJson => Some(Box::new(otlp_json::Writer::new(out))),
            Self::OtlpProto => Some(Box::new(otlp_proto::Writer::new(out))),
            Self::JaegerJson => Some(Box::new(jaeger_json::Writer::new(out))),
            Self::ZipkinJson => Some(Box::new(zipkin_json::Writer::new(out))),
            Self::HTrace => Some(Box::new(htrace::Writer::new(out))),
            _ => None,
        }
    }

    /// Names what this format can't hold of a span; nothing for a format that is only read.
    fn losses(self, span: &Span<'_>, found: &mut loss::Found) {
        match self {
            Self::JaegerJson => jaeger_json::losses(span, found),
            Self::ZipkinJson => zipkin_json::losses(span, found),
            Self::HTrace => htrace::losses(span, found),
            Self::OtlpJson | Self::OtlpProto => otlp::losses(span, found),
            Self::NezhaCsv => {}
        }
    }
}

/// Writes traces in some format.
pub trait TraceWriter {
    /// Writes one trace, whose spans come in any order. Output is buffered.
    ///
    /// # Errors
    ///
    /// If the output can't be written to.
    fn trace(&mut self, spans: &[Span<'_>]) -> io::Result<()>;

    /// Ends the file and flushes it. To be called once, behind the last trace.
    ///
    /// # Errors
    ///
    /// If the output can't be written to.
    fn finish(&mut self) -> io::Result<()>;
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no format's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
        write!(f, "unknown trace format '{}'; known are {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownFormat {}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let known = Self::ALL.iter().find(|format| format.name().eq_ignore_ascii_case(name));
        known.copied().ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}
