//! Nezha's CSV of spans.

use std::io::BufRead;
use std::sync::Arc;

use crate::sink::Sink;
use crate::source::Limits;

/// Reads one file of this format to its end.
pub fn read(_input: &mut dyn BufRead, _file: &Arc<str>, _limits: &Limits, _sink: &mut dyn Sink) {}

/// True if a line names the columns that a span can't do without.
pub(super) fn is_header(line: &[u8]) -> bool {
    let has = |name: &str| line.split(|&byte| byte == b',').any(|cell| is_named(cell, name));
    has("TraceID") && has("SpanID") && has("StartTimeUnixNano")
}

fn is_named(cell: &[u8], name: &str) -> bool {
    let cell = cell.trim_ascii();
    let cell = cell.strip_prefix(b"\"").and_then(|cell| cell.strip_suffix(b"\"")).unwrap_or(cell);
    cell.eq_ignore_ascii_case(name.as_bytes())
}
