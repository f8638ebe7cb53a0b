//! Bounds on reading.

/// Bounds on the memory and stack that reading one record may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The size in bytes of the largest record (a span, the spans of one resource, a trace) that is
    /// buffered.
    pub record_bytes_max: usize,
    /// The nesting depth of JSON objects and lists, and of protobuf messages.
    pub nesting_max: usize,
}

impl Default for Limits {
    /// 256 MiB for one record, 100 levels.
    fn default() -> Self {
        Self { record_bytes_max: 256 << 20, nesting_max: 100 }
    }
}
