//! Readers of records with one time, where a span has a start and an end: log records and events.

pub(crate) mod clock_pattern;
pub mod events;
pub mod logs;
