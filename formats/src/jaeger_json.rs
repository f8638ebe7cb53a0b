//! Jaeger's JSON: the responses of its query API, the downloads of its UI, and the files that its
//! UI accepts.
//!
//! The reader accepts `{"data": [...]}`, a bare list of traces, a single trace, spans without a
//! trace around them (of Jaeger's anonymizer, or of its storage in Elasticsearch), and any sequence
//! of these. Protobuf's JSON of the same model is read too: ids in base64, times in RFC 3339,
//! durations in seconds, and `vStr` and its like for values.
//!
//! # Mapping
//!
//! | Jaeger | here |
//! |---|---|
//! | `references` of type `CHILD_OF` in the same trace, in order; without any, `parentSpanID`; without that, the first `FOLLOWS_FROM` in the same trace | parents; the last case sets `follows` |
//! | all other references | links; those of type `CHILD_OF` have the attribute `opentracing.ref_type` = `child_of` |
//! | `startTime`, `duration` in microseconds | start, end; a `duration` without a `startTime` is kept |
//! | tag `span.kind` | kind |
//! | tag `error` (true), else `otel.status_code`; `otel.status_description` | status |
//! | tags `otel.scope.name`, `otel.scope.version`, or their older names `otel.library.*` | scope |
//! | tag `w3c.tracestate`; tags `otel.dropped_*_count` | tracestate; the counts of discarded items |
//! | tag `astracer.shared` (true), which our writer adds | shared |
//! | other `tags` | attributes: `binary` as bytes; a value that does not match its type stays text |
//! | `logs` | events, named by the field `event` |
//! | `process`, else the trace's process `processID` | resource: `serviceName` as `service.name`, tags as attributes |
//! | `flags` | bit 0 is the sampled flag; if others are set, all are kept in the attribute `jaeger.flags` |
//! | `warnings` | attribute `@jaeger@warnings`, where Jaeger 2 keeps them |
//!
//! A `FOLLOWS_FROM` is a parent if no other reference names one, because Jaeger's own span model
//! (`ParentSpanID`) has the same rule. Process tags keep their names (`hostname`,
//! `jaeger.version`). Warnings about a whole trace are not kept.
//!
//! The UI accepts ids that are not hexadecimal numbers of the right size, and some tools write
//! them. A hash of the text replaces such an id and is
//! [reported](astracer_model::ProblemKind::ForeignId), so that ids stay distinct and still refer to
//! each other.

use std::io::BufRead;
use std::sync::Arc;

use super::json::{Layout, read_units};
use crate::Limits;
use astracer_model::sink::Sink;

mod id;
mod loss;
mod process;
mod span;
mod tag;
#[cfg(test)]
mod tests;
mod trace;
mod write;

pub(super) use loss::losses;
pub use write::{Processes, Writer, write_span_line};

/// The log field that holds an event's name.
const EVENT: &str = "event";
/// The reference type that is not `CHILD_OF`.
const FOLLOWS_FROM: &str = "FOLLOWS_FROM";
/// The link attribute that keeps the reference type, unless the type was `FOLLOWS_FROM`.
const REF_TYPE: &str = "opentracing.ref_type";
const REF_TYPE_CHILD_OF: &str = "child_of";
/// The service name that Jaeger gives to resources without one.
const NO_SERVICE_NAME: &str = "OTLPResourceNoServiceName";
/// The only flag that has the same meaning in W3C's and in Jaeger's flags.
const SAMPLED: u32 = 1;
/// The attribute that keeps Jaeger's flags if more than [`SAMPLED`] is set.
const FLAGS: &str = "jaeger.flags";
/// The attribute in which Jaeger 2 keeps a span's warnings.
const WARNINGS: &str = "@jaeger@warnings";
/// The warning that our writer puts on a span whose start is made up.
const NO_START: &str = "astracer: no start was recorded";
/// The warning that our writer puts on a span whose end is made up.
const NO_END: &str = "astracer: no end was recorded";

/// Traces are units: elements of `data`, elements of a list, or single objects.
const LAYOUT: Layout = Layout {
    lists: &["data"],
    wrappers: &["result"],
    unit_keys: &["traceID", "traceId", "spanID", "spanId", "spans", "processes"],
    bare_list: true,
    unit_is_record: false,
    behind_text: false,
    others: &[],
};

/// Reads one file of this format to its end.
pub fn read(input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    let mut shared = process::Shared::default();
    read_units(input, file, limits, sink, LAYOUT, &mut |cursor, out| trace::read(cursor, out, &mut shared));
}
