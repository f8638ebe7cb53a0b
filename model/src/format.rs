//! The names of the trace formats. The crate `astracer-formats` reads and writes them.

use std::fmt;
use std::str::FromStr;

/// A format in which traces are recorded.
///
/// The enum is exhaustive on purpose: `astracer-formats` must handle each variant, and the compiler
/// checks that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// OTLP export requests as JSON: one per file, one per line, or the lines of the Collector's
    /// file exporter.
    OtlpJson,
    /// OTLP export requests as protobuf: one per file, or each preceded by its length.
    OtlpProto,
    /// Jaeger's query API: `{"data": [...]}`, or a bare list of traces.
    JaegerJson,
    /// Zipkin v2: a list of spans, or a list of traces.
    ZipkinJson,
    /// HTrace 3 and 4: consecutive span objects.
    HTrace,
    /// Nezha's span CSV.
    NezhaCsv,
    /// X-Trace reports: executions, each with a list of events.
    XTraceJson,
}

impl Format {
    /// Every format.
    pub const ALL: &'static [Self] = &[
        Self::OtlpJson,
        Self::OtlpProto,
        Self::JaegerJson,
        Self::ZipkinJson,
        Self::HTrace,
        Self::NezhaCsv,
        Self::XTraceJson,
    ];

    /// The name used on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::OtlpJson => "otlp-json",
            Self::OtlpProto => "otlp-proto",
            Self::JaegerJson => "jaeger-json",
            Self::ZipkinJson => "zipkin-json",
            Self::HTrace => "htrace",
            Self::NezhaCsv => "nezha-csv",
            Self::XTraceJson => "xtrace-json",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of a format is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
        write!(f, "unknown trace format '{}': use one of {}", self.0, names.join(", "))
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
