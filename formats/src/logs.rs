//! Readers of logs. The format is detected from a file's first bytes.
//!
//! A reader passes log records to [`Sink::log`], in the order of the input. The guarantees are
//! those of the readers of spans: a bad record becomes a problem with its place, and never ends the
//! reading.

use std::io::BufRead;
use std::sync::Arc;

use astracer_model::LogFormat;
use astracer_model::sink::Sink;

use crate::Limits;

mod nezha;
mod statement;

/// Detects the format of logs from the first bytes of a file; `None` if they are no logs.
///
/// Ask only for a file that [`crate::detect`] found to be without spans.
pub fn detect(prefix: &[u8]) -> Option<LogFormat> {
    let text = prefix.strip_prefix(b"\xef\xbb\xbf").unwrap_or(prefix).trim_ascii_start();
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or(text);
    nezha::is_header(line).then_some(LogFormat::NezhaCsv)
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
    sink: &mut dyn Sink,
) {
    match format {
        LogFormat::NezhaCsv => nezha::read(input, file, limits, sink),
    }
}
