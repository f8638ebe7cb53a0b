//! How requests are compressed.

/// How bodies of requests are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// With gzip, which every server reads.
    Gzip,
    /// With zstd, which OpenTelemetry's collector reads: smaller and faster than gzip.
    Zstd,
}
