//! Byte counters for streams: stored bytes for progress, expanded bytes for the limit.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};

/// Counts the bytes read, as stored.
pub(super) struct Stored<'a, R> {
    inner: R,
    bytes: &'a Cell<u64>,
}

impl<'a, R: Read> Stored<'a, R> {
    pub(super) fn new(inner: R, bytes: &'a Cell<u64>) -> Self {
        Self { inner, bytes }
    }
}

impl<R: Read> Read for Stored<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(out)?;
        self.bytes.set(self.bytes.get() + count as u64);
        Ok(count)
    }
}

/// Counts the output of all decompressors of a source, and fails with [`OverLimit`] at the limit.
pub(super) struct Expanded<'a, R> {
    inner: R,
    bytes: &'a Cell<u64>,
    bytes_max: u64,
}

impl<'a, R: Read> Expanded<'a, R> {
    pub(super) fn new(inner: R, bytes: &'a Cell<u64>, bytes_max: u64) -> Self {
        Self { inner, bytes, bytes_max }
    }
}

impl<R: Read> Read for Expanded<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let left = self.bytes_max.saturating_sub(self.bytes.get());
        if left == 0 {
            // A source of exactly the limit's size is allowed, so only a further byte is an error.
            return match self.inner.read(&mut [0])? {
                0 => Ok(0),
                _ => Err(io::Error::other(OverLimit { bytes_max: self.bytes_max })),
            };
        }
        let len = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = self.inner.read(&mut out[..len])?;
        self.bytes.set(self.bytes.get() + count as u64);
        Ok(count)
    }
}

/// The error for a source that expands beyond the limit.
#[derive(Debug)]
pub(super) struct OverLimit {
    bytes_max: u64,
}

impl OverLimit {
    pub(super) fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the source expands to more than {} bytes", self.bytes_max)
    }
}

impl std::error::Error for OverLimit {}
