//! Recorded data: plain values without locks, unaware of threads.
//!
//! An open span keeps its fields and events in its own [`Body`], which most spans do not need. When
//! the span ends, a [`Record`] and the body's content are appended to the [`Buffer`] of its trace.
//! When the trace is queued, its buffer is appended to a [`Batch`]. The exporter's thread reads
//! each trace there through a [`TraceView`], without moving it again.

mod attribute;
mod batch;
mod body;
mod buffer;
mod event;
mod fields;
mod header;
mod limits;
mod memory;
mod span;

pub use self::attribute::{Attribute, ERROR, Value, is_error};
pub use self::batch::Batch;
pub use self::body::Body;
pub use self::buffer::{Buffer, SpanView, TraceView};
pub use self::event::{Event, EventName, EventTime};
pub use self::fields::Fields;
pub use self::header::{Header, KeepReason};
pub use self::limits::{Conventions, SpanLimits};
pub(crate) use self::memory::split;
pub use self::memory::{Memory, MemoryView};
pub use self::span::{Detail, Record, STATUS_CODE, STATUS_DESCRIPTION, Status};
