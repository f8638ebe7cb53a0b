//! Compression of requests.

/// Compression of requests' bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// With gzip, which every server reads.
    #[cfg(feature = "gzip")]
    Gzip,
    /// With zstd, which OpenTelemetry's collector reads: smaller and faster than gzip.
    #[cfg(feature = "zstd")]
    Zstd,
}
