//! A recording in memory.

/// A recording.
#[derive(Debug, Default)]
pub struct Recording;
