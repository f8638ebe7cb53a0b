//! An export request in progress: each span is written at once into the text of its resource and
//! scope.

use super::text;
use crate::otlp::gathered::{Gathered, OfResource, OfScope};
use astracer_model::span::Span;

/// Collects spans of any traces for one request, which becomes one line.
///
/// Only the text of a span is kept, so spans may borrow from a reader's buffer. The request takes
/// about as much memory as its line; the caller bounds it by checking [`bytes`](Self::bytes) or
/// [`spans`](Self::spans).
#[derive(Debug, Default)]
pub struct Request {
    gathered: Gathered,
}

impl Request {
    /// Adds a span. Spans of one resource and scope are adjacent, in the order added.
    ///
    /// Two resources (or scopes) count as the same if they have the same address, or if they are
    /// equal and belong to consecutive spans. Otherwise they are not compared.
    pub fn add(&mut self, span: &Span<'_>) {
        self.gathered.add(span, |text, span| {
            if !text.is_empty() {
                text.push(b',');
            }
            text::span(text, span);
        });
    }

    /// The number of spans added since the last line.
    pub fn spans(&self) -> usize {
        self.gathered.spans()
    }

    /// The length in bytes of the line so far, without resources and scopes.
    pub fn bytes(&self) -> usize {
        self.gathered.bytes()
    }

    /// Appends the request to `out` as a line, including its end, and starts a new one. Without
    /// spans it appends nothing.
    pub fn take_line(&mut self, out: &mut Vec<u8>) {
        if self.spans() == 0 {
            return;
        }
        out.reserve(self.bytes());
        for (index, OfResource { resource, scopes }) in self.gathered.resources().iter().enumerate() {
            out.extend_from_slice(if index == 0 {
                b"{\"resourceSpans\":[{\"resource\":"
            } else {
                b",{\"resource\":"
            });
            text::resource(out, resource);
            out.extend_from_slice(b",\"scopeSpans\":[");
            for (index, OfScope { scope, spans }) in scopes.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"{\"scope\":" } else { b",{\"scope\":" });
                text::scope(out, scope);
                out.extend_from_slice(b",\"spans\":[");
                out.extend_from_slice(spans);
                out.push(b']');
                text::text_member(out, "schemaUrl", &scope.schema_url);
                out.push(b'}');
            }
            out.push(b']');
            text::text_member(out, "schemaUrl", &resource.schema_url);
            out.push(b'}');
        }
        out.extend_from_slice(b"]}\n");
        self.gathered.clear();
    }
}
