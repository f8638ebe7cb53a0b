//! OTLP export requests as JSON: one per file, one per line, or consecutive.
//!
//! The reader accepts the encoding of the OTLP specification (hexadecimal ids, lower camel case,
//! numbers for enums, 64-bit integers in strings) and protobuf's own JSON mapping. It also accepts
//! the variants that recorders wrote: ids in base64, snake case, names for enums, bare numbers,
//! `null`, the `instrumentationLibrarySpans` of versions before 0.15, and the wrappers of the query
//! APIs of Jaeger (`{"result": ...}`) and Tempo (`{"batches": ...}`, `{"trace": ...}`). The spans
//! of one resource may be a document of their own, as OpenTelemetry Java's logging exporter writes
//! them, also behind a logger's prefix. Requests with metrics or profiles are skipped, and
//! those with logs unless the sink wants them.
//!
//! The writer writes one request per line. A span's further parents are links with the attribute
//! `astracer.parent` = true. The server's half of an id that client and server share has the
//! attribute `astracer.shared` = true.

use std::io::BufRead;
use std::sync::Arc;

use super::json::{Cursor, Fault, Layout, Out, read_units};
use super::reuse::Reuse;
use crate::Limits;
use astracer_model::sink::Sink;
use astracer_model::span::{Resource, Scope};

mod head;
mod log;
mod request;
mod span;
#[cfg(test)]
mod tests;
mod text;
mod value;
mod writer;

use head::{Head, SchemaAhead};
pub use request::{LogRequest, Request};
pub(super) use writer::Writer;
pub use writer::write_request;

const LAYOUT: Layout = Layout {
    lists: &["resourceSpans", "resource_spans", "batches"],
    wrappers: &["result", "trace"],
    unit_keys: SCOPE_SPANS,
    bare_list: false,
    unit_is_record: false,
    behind_text: true,
    others: &[
        "resourceLogs",
        "resource_logs",
        "resourceMetrics",
        "resource_metrics",
        "resourceProfiles",
        "resource_profiles",
        "scopeLogs",
        "scopeMetrics",
        "scopeProfiles",
    ],
};

/// The layout if log records are wanted too.
const LAYOUT_WITH_LOGS: Layout = Layout {
    lists: &["resourceSpans", "resource_spans", "batches", "resourceLogs", "resource_logs"],
    unit_keys: SCOPE_SPANS_OR_LOGS,
    others: &[
        "resourceMetrics",
        "resource_metrics",
        "resourceProfiles",
        "resource_profiles",
        "scopeMetrics",
        "scopeProfiles",
    ],
    ..LAYOUT
};

/// Reads one file of this format to its end, with its log records if the sink wants them.
pub fn read(input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    let mut units = Units { wants_logs: sink.wants().logs, ..Units::default() };
    let layout = if units.wants_logs { LAYOUT_WITH_LOGS } else { LAYOUT };
    let counts =
        read_units(input, file, limits, sink, layout, &mut |cursor, out| units.resource_spans(cursor, out));
    if counts.documents == 0 && counts.others > 0 {
        sink.skipped(file, "OTLP without traces: logs, metrics or profiles");
    }
}

const RESOURCE: &[&str] = &["resource"];
const SCOPE: &[&str] = &["scope", "instrumentationLibrary", "instrumentation_library"];
const SCOPE_SPANS: &[&str] =
    &["scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans"];
const SCOPE_LOGS: &[&str] = &["scopeLogs", "scope_logs"];
const SCOPE_SPANS_OR_LOGS: &[&str] = &[
    "scopeSpans",
    "scope_spans",
    "instrumentationLibrarySpans",
    "instrumentation_library_spans",
    "scopeLogs",
    "scope_logs",
];
const SPANS: &[&str] = &["spans", "logRecords", "log_records"];

/// Reads the spans of one resource after another.
///
/// A span is delivered with its resource and scope, but these may follow it in the file, and their
/// schema URLs usually do. Each object is therefore read twice: first everything except its spans,
/// as far as needed, then the spans.
#[derive(Default)]
struct Units {
    resources: Reuse<Resource>,
    scopes: Reuse<Scope>,
    schema_ahead: SchemaAhead,
    wants_logs: bool,
}

impl Units {
    fn resource_spans(&mut self, cursor: &mut Cursor<'_>, out: &mut Out<'_>) -> Result<(), Fault> {
        let head =
            Head::ahead(cursor, RESOURCE, SCOPE_SPANS_OR_LOGS, self.schema_ahead.is_ahead(cursor, out));
        let resource = head.subject(&mut self.resources, out, value::resource);
        cursor.object(|cursor, key| match &*key {
            key if SCOPE_SPANS.contains(&key) || self.wants_logs && SCOPE_LOGS.contains(&key) => {
                out.records(cursor, |cursor, out| self.scope_spans(&resource, cursor, out))
            }
            _ => head.step_over(cursor),
        })
    }

    fn scope_spans(
        &mut self,
        resource: &Arc<Resource>,
        cursor: &mut Cursor<'_>,
        out: &mut Out<'_>,
    ) -> Result<(), Fault> {
        let head = Head::ahead(cursor, SCOPE, SPANS, self.schema_ahead.is_ahead(cursor, out));
        let scope = head.subject(&mut self.scopes, out, value::scope);
        cursor.object(|cursor, key| match &*key {
            "spans" => out.records(cursor, |cursor, out| {
                cursor.peek();
                let start = cursor.at();
                let span = span::span(cursor, resource, &scope)?;
                out.span(cursor, start, span);
                Ok(())
            }),
            "logRecords" | "log_records" if self.wants_logs => out.records(cursor, |cursor, out| {
                cursor.peek();
                let start = cursor.at();
                let log = log::log(cursor, resource, &scope)?;
                out.log(cursor, start, log);
                Ok(())
            }),
            _ => head.step_over(cursor),
        })
    }
}
