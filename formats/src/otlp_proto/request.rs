//! An export request in progress: each span is written at once after the others of its resource and
//! scope.

use super::write::{self, LengthPrefix};
use crate::otlp::gathered::{Gathered, OfResource, OfScope};
use astracer_model::span::Span;

/// Collects spans of any traces for one request.
///
/// Only the message of a span is kept, so spans may borrow from a reader's buffer. The request
/// takes about as much memory as its message; the caller bounds it by checking
/// [`bytes`](Self::bytes) or [`spans`](Self::spans).
#[derive(Debug, Default)]
pub struct Request {
    gathered: Gathered,
}

impl Request {
    /// Adds a span. Spans of one resource and scope are adjacent, in the order added.
    pub fn add(&mut self, span: &Span<'_>) {
        self.gathered.add(&span.resource, &span.scope, |out| write::scope_span(out, span));
    }

    /// The number of spans added since the last request.
    pub fn spans(&self) -> usize {
        self.gathered.records()
    }

    /// The length in bytes of the request so far, without resources and scopes.
    pub fn bytes(&self) -> usize {
        self.gathered.bytes()
    }

    /// Appends the request to `out`, preceded by its length, and starts a new one. Without spans it
    /// appends nothing.
    pub fn take_delimited(&mut self, out: &mut Vec<u8>) {
        if self.spans() == 0 {
            return;
        }
        out.reserve(self.bytes());
        let request = LengthPrefix::leave(out, self.bytes());
        for OfResource { resource, scopes } in self.gathered.resources() {
            let bytes = scopes.iter().map(|scope| scope.records.len()).sum();
            write::resource_spans(out, resource, bytes, |out| {
                for OfScope { scope, records } in scopes {
                    write::scope_spans(out, scope, records.len(), |out| out.extend_from_slice(records));
                }
            });
        }
        request.fill(out);
        self.gathered.clear();
    }
}
