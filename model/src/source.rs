//! Where recordings come from: files, folders, archives and compressed streams.

/// Bounds on what reading may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes after decompression, over the whole source. Archives that expand further are cut off there.
    pub expanded_bytes_max: u64,
    /// Bytes of the largest single record (a span, a batch of one resource, a trace object) that is buffered.
    pub record_bytes_max: usize,
    /// Nesting of JSON objects and lists, of protobuf messages, and of archives in archives.
    pub nesting_max: usize,
}

impl Default for Limits {
    /// 64 GiB expanded, 256 MiB for one record, 100 levels.
    fn default() -> Self {
        Self { expanded_bytes_max: 64 << 30, record_bytes_max: 256 << 20, nesting_max: 100 }
    }
}
