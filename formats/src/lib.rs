//! Readers and writers of trace formats: OTLP (JSON, protobuf), Jaeger, Zipkin v2, HTrace, Nezha's
//! CSV and X-Trace.
//!
//! A reader takes one uncompressed stream in a known [`Format`] and passes spans and problems to a
//! [`Sink`]. This crate opens no files or archives, joins no traces, and prints nothing.
//!
//! ```text
//! bytes -> detect -> read(format) -> Sink
//! spans -> writer(format) -> bytes
//! ```
//!
//! # Guarantees of a reader
//!
//! A bad record never ends the reading and is never hidden. A record that cannot be read becomes a
//! [`Problem`](astracer_model::Problem) with its file, line, byte and reason, and the records
//! around it are still delivered. Readers stream: they hold one buffer and the largest single
//! record in memory, not the file.

// Without the readers, parts of the modules that they share with the encoders have no use.
#![cfg_attr(not(feature = "all-formats"), allow(dead_code, unused_imports, unused_mut, unreachable_pub))]

use std::io::{BufRead, Write};
use std::sync::Arc;

use astracer_model::{Format, Sink};

#[cfg(feature = "all-formats")]
mod cells;
mod decimal;
#[cfg(feature = "all-formats")]
pub mod detect;
#[cfg(all(test, feature = "all-formats"))]
mod drawn;
#[cfg(feature = "all-formats")]
pub mod htrace;
#[cfg(feature = "all-formats")]
pub mod jaeger_json;
mod json;
mod keys;
mod limits;
#[cfg(feature = "all-formats")]
mod lines;
mod loss;
#[cfg(feature = "all-formats")]
pub mod losses;
mod micros;
#[cfg(feature = "all-formats")]
mod moments;
#[cfg(feature = "all-formats")]
pub mod nezha_csv;
mod otel_tags;
mod otlp;
pub mod otlp_json;
pub mod otlp_proto;
mod plain_json;
mod reuse;
#[cfg(feature = "all-formats")]
mod rfc3339;
mod trace_writer;
mod varint;
mod window;
#[cfg(feature = "all-formats")]
pub mod xtrace_json;
pub mod zipkin_json;

pub use limits::Limits;
#[cfg(feature = "all-formats")]
pub use moments::{events, logs};
pub use trace_writer::TraceWriter;

/// Reads one uncompressed stream in this format to its end, and passes spans and problems to
/// `sink`.
///
/// `file` is the file name in places and problems.
#[cfg(feature = "all-formats")]
pub fn read(format: Format, input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    match format {
        Format::OtlpJson => otlp_json::read(input, file, limits, sink),
        Format::OtlpProto => otlp_proto::read(input, file, limits, sink),
        Format::JaegerJson => jaeger_json::read(input, file, limits, sink),
        Format::ZipkinJson => zipkin_json::read(input, file, limits, sink),
        Format::HTrace => htrace::read(input, file, limits, sink),
        Format::NezhaCsv => nezha_csv::read(input, file, limits, sink),
        Format::XTraceJson => xtrace_json::read(input, file, limits, sink),
    }
}

/// Makes a writer of this format; `None` if the format can only be read.
#[cfg(feature = "all-formats")]
pub fn writer<'w>(format: Format, out: Box<dyn Write + 'w>) -> Option<Box<dyn TraceWriter + 'w>> {
    match format {
        Format::OtlpJson => Some(Box::new(otlp_json::Writer::new(out))),
        Format::OtlpProto => Some(Box::new(otlp_proto::Writer::new(out))),
        Format::JaegerJson => Some(Box::new(jaeger_json::Writer::new(out))),
        Format::ZipkinJson => Some(Box::new(zipkin_json::Writer::new(out))),
        Format::HTrace => Some(Box::new(htrace::Writer::new(out))),
        Format::NezhaCsv | Format::XTraceJson => None,
    }
}
