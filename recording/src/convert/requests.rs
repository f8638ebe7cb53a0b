//! Writes spans into OTLP requests as they arrive, without holding the spans.

use std::io::{self, Write};

use astracer_formats::{otlp_json, otlp_proto};
use astracer_model::span::Span;

/// A request is written when it reaches this many bytes or spans.
pub(super) const REQUEST_BYTES: usize = 256 << 10;
pub(super) const REQUEST_SPANS: usize = 1 << 12;

/// Requests with spans of any traces, which share resources and scopes.
pub(super) struct Requests<'w> {
    out: Box<dyn Write + 'w>,
    request: Request,
    bytes: Vec<u8>,
}

/// A request in JSON or protobuf.
pub(super) enum Request {
    Json(otlp_json::Request),
    Proto(otlp_proto::Request),
}

impl<'w> Requests<'w> {
    pub(super) fn new(out: Box<dyn Write + 'w>, request: Request) -> Self {
        Self { out, request, bytes: Vec::new() }
    }

    pub(super) fn add(&mut self, span: &Span<'_>) -> io::Result<()> {
        let (spans, bytes) = match &mut self.request {
            Request::Json(request) => {
                request.add(span);
                (request.spans(), request.bytes())
            }
            Request::Proto(request) => {
                request.add(span);
                (request.spans(), request.bytes())
            }
        };
        if spans < REQUEST_SPANS && bytes < REQUEST_BYTES { Ok(()) } else { self.write() }
    }

    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.write()?;
        self.out.flush()
    }

    fn write(&mut self) -> io::Result<()> {
        self.bytes.clear();
        match &mut self.request {
            Request::Json(request) => request.take_line(&mut self.bytes),
            Request::Proto(request) => request.take_delimited(&mut self.bytes),
        }
        self.out.write_all(&self.bytes)
    }
}
