//! An export request in progress: each span or log record is written at once into the text of its
//! resource and scope.

use super::text;
use crate::otlp::gathered::{Gathered, OfResource, OfScope};
use astracer_model::log::LogRecord;
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
        self.gathered.add(&span.resource, &span.scope, |text| {
            if !text.is_empty() {
                text.push(b',');
            }
            text::span(text, span);
        });
    }

    /// The number of spans added since the last line.
    pub fn spans(&self) -> usize {
        self.gathered.records()
    }

    /// The length in bytes of the line so far, without resources and scopes.
    pub fn bytes(&self) -> usize {
        self.gathered.bytes()
    }

    /// Appends the request to `out` as a line, including its end, and starts a new one. Without
    /// spans it appends nothing.
    pub fn take_line(&mut self, out: &mut Vec<u8>) {
        take_line(&mut self.gathered, ["resourceSpans", "scopeSpans", "spans"], out);
    }
}

/// Collects log records for one request, which becomes one line. As [`Request`], for logs.
///
/// A record is written as OTLP states it: its logger is the name of its scope, and its thread and
/// place in the code are attributes. Other formats state these elsewhere, and they are not written.
#[derive(Debug, Default)]
pub struct LogRequest {
    gathered: Gathered,
}

impl LogRequest {
    /// Adds a record. Records of one resource and scope are adjacent, in the order added.
    pub fn add(&mut self, log: &LogRecord<'_>) {
        self.gathered.add(&log.resource, &log.scope, |text| {
            if !text.is_empty() {
                text.push(b',');
            }
            text::log(text, log);
        });
    }

    /// The number of records added since the last line.
    pub fn records(&self) -> usize {
        self.gathered.records()
    }

    /// Appends the request to `out` as a line, including its end, and starts a new one. Without
    /// records it appends nothing.
    pub fn take_line(&mut self, out: &mut Vec<u8>) {
        take_line(&mut self.gathered, ["resourceLogs", "scopeLogs", "logRecords"], out);
    }
}

/// Appends a request whose three levels of lists have these names, and empties it.
fn take_line(gathered: &mut Gathered, names: [&str; 3], out: &mut Vec<u8>) {
    if gathered.records() == 0 {
        return;
    }
    let [of_resources, of_scopes, of_records] = names;
    let open = |out: &mut Vec<u8>, before: &str, name: &str| {
        [before, name, "\":["].iter().for_each(|text| out.extend_from_slice(text.as_bytes()));
    };
    out.reserve(gathered.bytes());
    open(out, "{\"", of_resources);
    for (index, OfResource { resource, scopes }) in gathered.resources().iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{\"resource\":" } else { b",{\"resource\":" });
        text::resource(out, resource);
        open(out, ",\"", of_scopes);
        for (index, OfScope { scope, records }) in scopes.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"{\"scope\":" } else { b",{\"scope\":" });
            text::scope(out, scope);
            open(out, ",\"", of_records);
            out.extend_from_slice(records);
            out.push(b']');
            text::text_member(out, "schemaUrl", &scope.schema_url);
            out.push(b'}');
        }
        out.push(b']');
        text::text_member(out, "schemaUrl", &resource.schema_url);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}\n");
    gathered.clear();
}
