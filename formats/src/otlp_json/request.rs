//! An export request under way: spans are written as they come, each into the text of its resource and scope.

use super::text;
use crate::otlp::gathered::{Gathered, OfResource, OfScope};
use astracer_model::span::Span;

/// Gathers spans of any traces for one request, which becomes one line.
///
/// Nothing is kept of a span but its text, so spans that borrow from a reader's buffer need not be copied first. Memory
/// is what the line will take; the caller bounds it by [`bytes`](Self::bytes) or [`spans`](Self::spans).
#[derive(Debug, Default)]
pub struct Request {
    gathered: Gathered,
}

impl Request {
    /// Adds a span. Spans of one resource and scope stand together, in the order of their coming.
    ///
    /// Resources, and scopes, are the same if they are one in memory or equal to those of the span before; beyond that
    /// they are not compared.
    pub fn add(&mut self, span: &Span<'_>) {
        self.gathered.add(span, |text, span| {
            if !text.is_empty() {
                text.push(b',');
            }
            text::span(text, span);
        });
    }

    /// How many spans were added since the last line.
    pub fn spans(&self) -> usize {
        self.gathered.spans()
    }

    /// How long the line is by now, resources and scopes aside.
    pub fn bytes(&self) -> usize {
        self.gathered.bytes()
    }

    /// Appends the request as a line with its end to `out`, and starts a new one. Without spans nothing is appended.
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
