//! Readers of events, and the writer of Falcon's form. The format is detected from a file's first
//! bytes.
//!
//! A reader passes events to [`Sink::event`] and counts what makes no event with
//! [`Sink::left_out`]. The guarantees are those of the readers of spans: a bad record becomes a
//! problem with its place, and never ends the reading.

use std::io::BufRead;
use std::sync::Arc;

use astracer_model::EventFormat;
use astracer_model::sink::Sink;

use super::logs;
use crate::Limits;

pub mod falcon;
mod ids;
pub mod strace;
mod vector;

pub use super::clock_pattern::ClockPattern;

/// Detects the format of events from the first bytes of a file; `None` for other
/// content.
pub fn detect(prefix: &[u8], options: &logs::Options) -> Option<EventFormat> {
    let text = prefix.strip_prefix(b"\xef\xbb\xbf").unwrap_or(prefix).trim_ascii_start();
    if falcon::is_falcon(text) {
        return Some(EventFormat::FalconJson);
    }
    if strace::is_strace(text) {
        return Some(EventFormat::Strace);
    }
    vector::pattern_of(text, options.clock_pattern.as_ref()).map(|_| EventFormat::VectorClocks)
}

/// Reads one uncompressed stream of events in this format to its end, and passes events and
/// problems to `sink`.
///
/// `file` is the file name in places and problems.
pub fn read(
    format: EventFormat,
    input: &mut dyn BufRead,
    file: &Arc<str>,
    limits: &Limits,
    options: &logs::Options,
    sink: &mut dyn Sink,
) {
    match format {
        EventFormat::FalconJson => falcon::read(input, file, limits, sink),
        EventFormat::Strace => strace::read(input, file, limits, sink),
        EventFormat::VectorClocks => {
            vector::read(input, file, limits, options.clock_pattern.as_ref(), &options.zone, sink);
        }
    }
}
