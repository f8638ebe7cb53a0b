//! Jaeger's JSON: what its query API answers, its UI downloads, and its UI takes as an upload.
//!
//! Read are `{"data": [...]}`, a bare list of traces, and a single trace; several of these may follow each other.
//!
//! # How spans map to ours
//!
//! | Jaeger | here |
//! |---|---|
//! | `references` of type `CHILD_OF` in the same trace, in order; without any, `parentSpanID`; without that, the first `FOLLOWS_FROM` in the same trace | parents |
//! | all other references | links; those of type `CHILD_OF` carry the attribute `opentracing.ref_type` = `child_of` |
//! | `startTime`, `duration` in microseconds | start, end |
//! | tag `span.kind` | kind |
//! | tag `error` (true), else `otel.status_code`; `otel.status_description` | status |
//! | tags `otel.scope.name`, `otel.scope.version`, or their older names `otel.library.*` | scope |
//! | tag `w3c.tracestate`; tags `otel.dropped_*_count` | tracestate; what the SDK cut off |
//! | tag `astracer.shared` (true), as our writer keeps it | shared |
//! | other `tags` | attributes: `binary` as bytes; what is not of its type is kept as its text |
//! | `logs` | events, named by the field `event` |
//! | `process`, else the trace's process `processID` | resource: `serviceName` as `service.name`, tags as attributes |
//! | `flags` | bit 0 is the sampled flag; if others are set, all are kept in the attribute `jaeger.flags` |
//! | `warnings` | attribute `@jaeger@warnings`, where Jaeger 2 keeps them |
//!
//! A `FOLLOWS_FROM` is a parent where no other is named because the parent in Jaeger's own model of a span
//! (`ParentSpanID`) is the same. Process tags keep their names (`hostname`, `jaeger.version`). Warnings about a whole trace are not kept.
//!
//! Ids that are no hexadecimal numbers of the right size, which the UI takes and tools write, are replaced by a hash of
//! their text and [reported](astracer_model::ProblemKind::ForeignId), so that they stay distinct and refer to each other.

use std::io::BufRead;
use std::sync::Arc;

use super::json::{Layout, read_units};
use crate::Limits;
use astracer_model::sink::Sink;

mod id;
mod loss;
mod span;
mod tag;
#[cfg(test)]
mod tests;
mod trace;
mod write;

pub(super) use loss::losses;
pub use write::{Processes, Writer, write_span_line};

/// The log field that is an event's name.
const EVENT: &str = "event";
/// The reference type that is not `CHILD_OF`.
const FOLLOWS_FROM: &str = "FOLLOWS_FROM";
/// The attribute of a link that tells what kind of reference it was, unless it was `FOLLOWS_FROM`.
const REF_TYPE: &str = "opentracing.ref_type";
const REF_TYPE_CHILD_OF: &str = "child_of";
/// The service name that Jaeger gives to resources without one.
const NO_SERVICE_NAME: &str = "OTLPResourceNoServiceName";
/// The only flag that W3C's trace flags share with Jaeger's.
const SAMPLED: u32 = 1;
/// The attribute that keeps Jaeger's flags if more than [`SAMPLED`] is set.
const FLAGS: &str = "jaeger.flags";
/// The attribute in which Jaeger 2 keeps a span's warnings.
const WARNINGS: &str = "@jaeger@warnings";
/// Our writer's warning on a span whose start is made up.
const NO_START: &str = "astracer: no start was recorded";
/// Our writer's warning on a span whose end is made up.
const NO_END: &str = "astracer: no end was recorded";

/// Traces are units: elements of `data`, elements of a list, or objects by themselves.
const LAYOUT: Layout = Layout {
    lists: &["data"],
    wrappers: &[],
    unit_keys: &["traceID", "spans", "processes"],
    bare_list: true,
    unit_is_record: false,
    others: &[],
};

/// Reads one file of this format to its end.
pub fn read(input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    let mut shared = trace::Shared::default();
    read_units(input, file, limits, sink, LAYOUT, &mut |cursor, out| trace::read(cursor, out, &mut shared));
}
