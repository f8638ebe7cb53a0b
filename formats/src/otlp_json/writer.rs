//! OTLP JSON lines: one export request per line, as the Collector's file exporter writes them.

use std::io::{self, Write};

use super::Request;
use crate::TraceWriter;
use astracer_model::span::Span;

/// The number of spans of the largest request. Larger traces take several lines, so that no reader
/// has to hold an enormous one.
const SPANS_PER_LINE_MAX: usize = 1 << 12;

/// The buffer is written to the output when it reaches this size.
const BUFFER_BYTES: usize = 64 << 10;

/// Writes each trace as a request on its own line.
pub(crate) struct Writer<'w> {
    out: Box<dyn Write + 'w>,
    request: Request,
    buffer: Vec<u8>,
}

impl<'w> Writer<'w> {
    pub(crate) fn new(out: Box<dyn Write + 'w>) -> Self {
        Self { out, request: Request::default(), buffer: Vec::new() }
    }

    fn write_out(&mut self) -> io::Result<()> {
        let written = self.out.write_all(&self.buffer);
        self.buffer.clear();
        written
    }
}

/// Writes one export request as a line: the body of an OTLP/HTTP request, or a line of a recording.
///
/// # Errors
///
/// If `out` cannot be written. Writing to a vector never fails.
pub fn write_request(out: &mut dyn Write, spans: &[Span<'_>]) -> io::Result<()> {
    let (mut request, mut line) = (Request::default(), Vec::new());
    spans.iter().for_each(|span| request.add(span));
    request.take_line(&mut line);
    out.write_all(&line)
}

impl TraceWriter for Writer<'_> {
    fn trace(&mut self, spans: &[Span<'_>]) -> io::Result<()> {
        for spans in spans.chunks(SPANS_PER_LINE_MAX) {
            spans.iter().for_each(|span| self.request.add(span));
            self.request.take_line(&mut self.buffer);
            if self.buffer.len() >= BUFFER_BYTES {
                self.write_out()?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write_out()?;
        self.out.flush()
    }
}
