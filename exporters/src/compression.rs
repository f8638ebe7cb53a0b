//! Compression of requests.

/// The compression of request bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// gzip, which every server supports.
    #[cfg(feature = "gzip")]
    Gzip,
    /// zstd, which OpenTelemetry's Collector supports. It is smaller and faster than gzip.
    #[cfg(feature = "zstd")]
    Zstd,
}
