//! Lines of a stream, one at a time.

use std::io::BufRead;
use std::sync::Arc;

use super::window::Window;
use crate::Limits;
use astracer_model::problem::{Limit, Place, Problem, ProblemKind};
use astracer_model::sink::{Record, Sink};

/// Read size.
const STEP_BYTES: usize = 64 << 10;

/// Reads a file of one record a line: `row` passes each line to the sink, or says what is wrong
/// with it.
pub(super) fn each_row(
    input: &mut dyn BufRead,
    file: &Arc<str>,
    limits: &Limits,
    sink: &mut dyn Sink,
    mut row: impl FnMut(Record<'_>, &mut dyn Sink) -> Result<(), String>,
) {
    let mut window = Window::new(input, STEP_BYTES);
    window.skip_byte_order_mark();
    let mut place = Place::start_of(file);
    while !sink.stopped() {
        (place.byte, place.line) = window.place();
        let bytes = match line(&mut window, limits.record_bytes_max) {
            Line::Whole(bytes) => bytes,
            Line::End => return,
            Line::TooLong => {
                let detail = format!("row longer than {} bytes", limits.record_bytes_max);
                sink.problem(Problem::over(Limit::RecordBytes, place.clone(), detail));
                to_line_end(&mut window);
                continue;
            }
        };
        let record = Record { bytes: without_end(bytes), place: &place };
        if let Err(detail) = row(record, sink) {
            sink.problem(Problem::new(ProblemKind::BadRecord, place.clone(), detail));
        }
        let len = bytes.len();
        window.advance(len);
    }
}

/// The line at the window's start.
pub(super) enum Line<'w> {
    /// A line including its end, which the last line of a file may lack.
    Whole(&'w [u8]),
    /// A line that is longer than the limit; [`to_line_end`] skips it.
    TooLong,
    /// The stream has ended.
    End,
}

/// The line at the window's start, which stays there.
pub(super) fn line<'w>(window: &'w mut Window<'_>, bytes_max: usize) -> Line<'w> {
    let mut searched = 0;
    let len = loop {
        let bytes = window.bytes();
        let end = memchr::memchr(b'\n', &bytes[searched..]).map(|found| searched + found + 1);
        searched = bytes.len();
        if let Some(len) = end {
            break len;
        }
        if searched > bytes_max || !window.more() {
            break searched;
        }
    };
    match len {
        0 => Line::End,
        _ if len > bytes_max => Line::TooLong,
        _ => Line::Whole(&window.bytes()[..len]),
    }
}

/// Consumes everything up to the end of the line.
pub(super) fn to_line_end(window: &mut Window<'_>) {
    loop {
        let bytes = window.bytes();
        match memchr::memchr(b'\n', bytes) {
            Some(end) => return window.advance(end + 1),
            None => window.advance(bytes.len()),
        }
        if !window.more() {
            return;
        }
    }
}

/// A line without its end.
pub(super) fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
