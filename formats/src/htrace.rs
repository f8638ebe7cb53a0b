//! HTrace 2 to 4: consecutive span objects.
//!
//! `LocalFileSpanReceiver` writes one object per line, but HTrace 4.0.1 omits the newline after the
//! first 20 spans of a process. Lines of hundreds of megabytes exist; they are read span by span.
//!
//! # Mapping
//!
//! | HTrace 4 | HTrace 3 | HTrace 2 and 3.0 | here |
//! |---|---|---|---|
//! | `a`, 128 bits | `i`, `s` | `TraceID`, `SpanID`, signed decimals | ids: the high half of `a` is the trace's, the low half the span's |
//! | `p`, a list | `p` | `ParentID`, `0x74ace` for none | parents; in HTrace 4 a parent in another trace is a link |
//! | `b`, `e` in milliseconds | `b`, `e` | `Start`, `Stop` | start and end, unknown if missing or 0 |
//! | `d` | `d` | `Description` | name |
//! | `r`, the tracer | `r`, the process | | `service.name` of the resource |
//! | `n` | `n` | `Annotations` | attributes |
//! | `t`: `t` in milliseconds, `m` | `t` | | events |
//!
//! A note that has the name of an OpenTelemetry field in non-OTLP formats (`span.kind`,
//! `otel.status_code`, ...) becomes that field.
//!
//! HTrace omits empty and zero fields. An `i` of zeros means that the recorder did not know the
//! trace, for example in a data node's part of a write pipeline. Such a span belongs to the trace
//! of its parent.

use std::io::BufRead;
use std::sync::Arc;

use super::json::read_spans;
use crate::Limits;
use astracer_model::sink::Sink;

mod loss;
mod span;
mod write;

pub(super) use loss::losses;
pub(super) use write::Writer;
pub use write::write_span;

/// The parent id of a span without a parent, up to HTrace 3.0.
const ROOT_PARENT: u64 = 0x74ace;

/// Reads one file of this format to its end.
pub fn read(input: &mut dyn BufRead, file: &Arc<str>, limits: &Limits, sink: &mut dyn Sink) {
    let mut shared = span::Shared::default();
    read_spans(input, file, limits, sink, &mut |cursor, out| span::read(cursor, out, &mut shared));
}
