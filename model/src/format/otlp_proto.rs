//! One trace format.

use std::io::BufRead;
use std::sync::Arc;

use crate::sink::Sink;
use crate::source::Limits;

/// Reads one file of this format to its end.
pub fn read(_input: &mut dyn BufRead, _file: &Arc<str>, _limits: &Limits, _sink: &mut dyn Sink) {}

/// The bytes of a span as an OTLP protobuf message.
pub fn otlp_size(_span: &crate::span::Span<'_>) -> usize {
    0
}
