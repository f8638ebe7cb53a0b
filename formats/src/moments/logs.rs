//! Readers of logs. The format is detected from a file's first bytes.
//!
//! A reader passes log records to [`Sink::log`], in the order of the input. The guarantees are
//! those of the readers of spans: a bad record becomes a problem with its place, and never ends the
//! reading.

use std::io::BufRead;
use std::sync::Arc;

use astracer_model::LogFormat;
use astracer_model::sink::Sink;

use crate::detect::is_log_request;
use crate::{Limits, otlp_json, otlp_proto};

mod abbreviations;
mod civil;
mod clock;
mod digits;
mod documents;
mod encoding;
mod given;
mod ids;
mod journal;
mod json_lines;
mod known;
mod layout;
mod levels;
mod nezha;
mod options;
mod prefix;
mod refusal;
mod shape;
mod stamp;
mod statement;
mod text;
mod time;
mod tracing;
mod writer;
mod zone;

pub use clock::Assumed;
pub use given::Given;
pub use options::Options;
pub use refusal::refusal;
pub use text::Reading;
pub(crate) use time::leading as leading_time;
pub use zone::Zone;

/// Detects the format of logs from the first bytes of a file; `None` if they are not logs.
///
/// Ask only for a file that [`crate::detect`] found to be without spans.
pub fn detect(prefix: &[u8], options: &Options) -> Option<LogFormat> {
    let text = prefix.strip_prefix(b"\xef\xbb\xbf").unwrap_or(prefix).trim_ascii_start();
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or(text);
    if nezha::is_header(line) {
        return Some(LogFormat::NezhaCsv);
    }
    if is_otlp_json(text) {
        return Some(LogFormat::OtlpJson);
    }
    if is_log_request(prefix) {
        return Some(LogFormat::OtlpProto);
    }
    if documents::detect(text) {
        return Some(LogFormat::JsonDocuments);
    }
    let converted = encoding::Encoding::of(prefix).map(|encoding| encoding.converted(prefix));
    let shape = text::shape_of(converted.as_deref().unwrap_or(prefix), options)?;
    Some(shape.format())
}

/// Reads one uncompressed stream of logs in this format to its end, and passes records and problems
/// to `sink`.
///
/// `file` is the file name in places and problems.
pub fn read(
    format: LogFormat,
    input: &mut dyn BufRead,
    file: &Arc<str>,
    limits: &Limits,
    options: &Options,
    sink: &mut dyn Sink,
) -> Reading {
    match format {
        LogFormat::OtlpJson => otlp_json::read(input, file, limits, sink),
        LogFormat::OtlpProto => otlp_proto::read_logs(input, file, limits, sink),
        LogFormat::NezhaCsv => nezha::read(input, file, limits, sink),
        LogFormat::JsonDocuments => return documents::read(input, file, limits, options, sink),
        LogFormat::JsonLines
        | LogFormat::TracingText
        | LogFormat::Layout
        | LogFormat::Pairs
        | LogFormat::JournalExport => return text::read(input, file, limits, options, sink),
    }
    Reading::default()
}

/// True if an object or list begins the text, and a list of OTLP's logs is in it.
fn is_otlp_json(text: &[u8]) -> bool {
    let is_list = |key: &[u8]| {
        memchr::memmem::find_iter(text, key).take(4).any(|at| {
            let behind = text[at + key.len()..].trim_ascii_start();
            behind.strip_prefix(b":").is_some_and(|value| value.trim_ascii_start().starts_with(b"["))
        })
    };
    matches!(text.first(), Some(b'{' | b'['))
        && (is_list(b"\"resourceLogs\"") || is_list(b"\"resource_logs\"") || is_list(b"\"scopeLogs\""))
}
