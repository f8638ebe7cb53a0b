//! What a trace is, and how traces are read and written.
//!
//! A recording comes in as files of some format, singly, in folders or in archives. It goes out as a
//! [`Recording`]: traces whose spans know their parents, and a list of everything that was wrong with the input.
//! This crate knows nothing of samplers, scores or servers, has no clock, and prints nothing.
//!
//! ```text
//! files -> source (folders, tar, gz, xz, zst) -> format (one reader each) -> Sink
//!                                                                             |
//!                          traces and problems <- join <- Recording::intake --+
//! ```
//!
//! # What a reader promises
//!
//! A reader never gives up and never hides. A record that can't be read becomes a [`Problem`] with its file, line,
//! byte and reason, and the records around it still come. Readers stream: what they hold at a time is one buffer
//! and the largest single record, not the file.

pub mod convert;
pub mod format;
pub mod ids;
pub mod intern;
pub mod problem;
pub mod recording;
pub mod shape;
pub mod sink;
pub mod source;
pub mod span;
pub mod time;
pub mod value;

pub use format::Format;
pub use ids::{SpanId, TraceId};
pub use problem::{Place, Problem, ProblemKind, Problems};
pub use recording::Recording;
pub use sink::Sink;
pub use span::{Span, SpanKind, Status};
pub use time::UnixNanos;
pub use value::Value;
