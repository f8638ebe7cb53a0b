//! Where readers put what they read.

use std::sync::Arc;

use crate::format::Format;
use crate::problem::{Place, Problem};
use crate::span::Span;

/// Takes spans and problems from a reader, in the order of the input.
pub trait Sink {
    /// One span, with the record that it came from.
    fn span(&mut self, span: Span<'_>, record: Record<'_>);

    /// What follows comes from this file, which is of this format.
    fn file(&mut self, file: &Arc<str>, format: Format) {
        let _ = (file, format);
    }

    /// Something that was wrong; the reader goes on behind it.
    fn problem(&mut self, problem: Problem);

    /// A whole file that holds no traces (a log, a table), with the reason for thinking so.
    fn skipped(&mut self, file: &Arc<str>, reason: &str);

    /// Input bytes read so far have grown by `bytes` (as stored, before decompression): for progress displays.
    fn progress(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// True when reading should end soon: the user interrupted, or a strict caller saw a problem.
    fn stopped(&self) -> bool {
        false
    }
}

/// The piece of input that one span came from.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The span's own text or bytes, without what separates it from its neighbours: the JSON object, the CSV row
    /// without its line end, the protobuf message without tag and length. Two spans with the same ids whose bytes
    /// are equal are one span written twice.
    pub bytes: &'a [u8],
    /// Where it starts.
    pub place: &'a Place,
}
