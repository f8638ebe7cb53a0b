//! An export request under way: spans are written as they come, each behind others of its resource and scope.

use super::write::{self, Room};
use crate::otlp::gathered::{Gathered, OfResource, OfScope};
use astracer_model::span::Span;

/// Gathers spans of any traces for one request.
///
/// Nothing is kept of a span but its message, so spans that borrow from a reader's buffer need not be copied first.
/// Memory is what the request will take; the caller bounds it by [`bytes`](Self::bytes) or [`spans`](Self::spans).
#[derive(Debug, Default)]
pub struct Request {
    gathered: Gathered,
}

impl Request {
    /// Adds a span. Spans of one resource and scope stand together, in the order of their coming.
    pub fn add(&mut self, span: &Span<'_>) {
        self.gathered.add(span, write::scope_span);
    }

    /// How many spans were added since the last request.
    pub fn spans(&self) -> usize {
        self.gathered.spans()
    }

    /// How long the request is by now, resources and scopes aside.
    pub fn bytes(&self) -> usize {
        self.gathered.bytes()
    }

    /// Appends the request behind its length to `out`, and starts a new one. Without spans nothing is appended.
    pub fn take_delimited(&mut self, out: &mut Vec<u8>) {
        if self.spans() == 0 {
            return;
        }
        out.reserve(self.bytes());
        let request = Room::leave(out, self.bytes());
        for OfResource { resource, scopes } in self.gathered.resources() {
            let bytes = scopes.iter().map(|scope| scope.spans.len()).sum();
            write::resource_spans(out, resource, bytes, |out| {
                for OfScope { scope, spans } in scopes {
                    write::scope_spans(out, scope, spans.len(), |out| out.extend_from_slice(spans));
                }
            });
        }
        request.fill(out);
        self.gathered.clear();
    }
}
