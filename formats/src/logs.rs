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

mod ids;
mod json_lines;
mod layout;
mod nezha;
mod options;
mod statement;
mod text;
mod time;
mod tracing;

pub use layout::Layout;
pub use options::Options;
use text::Form;
pub use time::Zone;

/// Detects the format of logs from the first bytes of a file; `None` if they are no logs.
///
/// Ask only for a file that [`crate::detect`] found to be without spans.
pub fn detect(prefix: &[u8], options: &Options) -> Option<LogFormat> {
    let text = prefix.strip_prefix(b"\xef\xbb\xbf").unwrap_or(prefix).trim_ascii_start();
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or(text);
    if nezha::is_header(line) {
        return Some(LogFormat::NezhaCsv);
    }
    Form::of(text, options.layout.as_ref(), options.zone).map(|form| form.format())
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
) {
    match format {
        LogFormat::NezhaCsv => nezha::read(input, file, limits, sink),
        LogFormat::JsonLines | LogFormat::TracingText | LogFormat::Layout => {
            text::read(format, input, file, limits, options, sink);
        }
    }
}
