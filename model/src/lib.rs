//! The data model of traces: ids, times, values, spans, log records, events, problems, the sink
//! that readers write to, and the destination that spans are sent to.
//!
//! This crate contains no parser, no decompressor, no clock and no file access, and it prints
//! nothing. It defines the names of the trace [formats](Format); `astracer-formats` reads and
//! writes them.

pub mod destination;
pub mod event;
pub mod files;
pub mod format;
pub mod ids;
pub mod log;
#[cfg(feature = "opentelemetry")]
pub mod otel;
pub mod otlp;
pub mod problem;
pub mod sink;
pub mod span;
pub mod text;
pub mod time;
pub mod value;

pub use destination::Destination;
pub use event::{Event, EventFormat, EventKind};
pub use format::Format;
pub use ids::{SpanId, TraceId};
pub use log::{LogFormat, LogRecord, Severity};
pub use problem::{Limit, Place, Problem, ProblemKind, Problems};
pub use sink::Sink;
pub use span::{Span, SpanKind, Status};
pub use time::UnixNanos;
pub use value::Value;
