//! The interface between readers and the code that consumes spans.

use std::sync::Arc;

use crate::format::Format;
use crate::problem::{Place, Problem};
use crate::span::Span;

/// Receives spans and problems from a reader, in the order of the input.
pub trait Sink {
    /// Receives one span and the record it was read from.
    fn span(&mut self, span: Span<'_>, record: Record<'_>);

    /// Announces that the spans and problems after this call come from `file`, which has this
    /// format.
    fn file(&mut self, file: &Arc<str>, format: Format) {
        let _ = (file, format);
    }

    /// Announces that the spans after this call come from another document of the file: another
    /// request, answer or list of traces. Single spans that follow each other are one document.
    fn document(&mut self) {}

    /// Receives one problem; the reader continues after it.
    fn problem(&mut self, problem: Problem);

    /// Receives the name of a file without traces (a log, a table) and the reason it was skipped.
    fn skipped(&mut self, file: &Arc<str>, reason: &str);

    /// Reports that `bytes` more of the input were read, counted before decompression. For progress
    /// displays.
    fn progress(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Returns true if reading should end soon, because the user interrupted it or a strict caller
    /// saw a problem.
    fn stopped(&self) -> bool {
        false
    }
}

/// The piece of input that one span was read from.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The span's own text or bytes, without separators: the JSON object, the CSV row without its
    /// line end, or the protobuf message without tag and length.
    pub bytes: &'a [u8],
    /// The position of the first byte.
    pub place: &'a Place,
}
