//! The interface that the writers of trace formats share.

use std::io;

use astracer_model::Span;

/// Writes traces in some format.
pub trait TraceWriter {
    /// Writes one trace, whose spans may be in any order. Output is buffered.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    fn trace(&mut self, spans: &[Span<'_>]) -> io::Result<()>;

    /// Ends the file and flushes it. Call it once, after the last trace.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    fn finish(&mut self) -> io::Result<()>;
}
