//! The compressed files of the Collector's file exporter: each message is a zstd frame behind its
//! length in four bytes.

use std::io::{self, Read};

/// Returns true for the beginning of such a file.
pub(super) fn is_framed(prefix: &[u8]) -> bool {
    matches!(prefix, [_, _, _, _, 0x28, 0xb5, 0x2f, 0xfd, ..])
}

/// The frames of a file without their lengths. A zstd decoder reads them as one stream.
pub(super) struct Frames<R> {
    inner: R,
    /// The bytes of the current frame that are left.
    left: u64,
}

impl<R: Read> Frames<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, left: 0 }
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            let mut length = [0; 4];
            let Some(rest) = (match self.inner.read(&mut length[..1])? {
                0 => None,
                _ => Some(&mut length[1..]),
            }) else {
                return Ok(0);
            };
            self.inner.read_exact(rest)?;
            self.left = u64::from(u32::from_be_bytes(length));
        }
        let len = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.inner.read(&mut out[..len])?;
        if count == 0 && len > 0 {
            let message = "the file ends inside a message";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        self.left -= count as u64;
        Ok(count)
    }
}
