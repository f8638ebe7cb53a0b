//! A buffered stream whose beginning can be looked at before it is read.

use std::io::{self, BufRead, Read};

const BUFFER_BYTES: usize = 64 << 10;

/// One layer of a source: a file, what a decompressor gives, a member of an archive.
///
/// An error of the layer below comes out once, behind all bytes before it; after that the stream has ended. Layers on
/// top pass it through, so whoever reads the topmost one reports it, and each layer below
/// [knows](Self::has_failed) that it needs no second report.
pub(super) struct Peek<'r> {
    inner: Box<dyn Read + 'r>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    pending: Option<io::Error>,
    at_end: bool,
    failed: bool,
    position: u64,
}

impl<'r> Peek<'r> {
    pub(super) fn new(inner: Box<dyn Read + 'r>) -> Self {
        let buffer = Vec::new();
        Self { inner, buffer, start: 0, end: 0, pending: None, at_end: false, failed: false, position: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// True once an error has come out.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// The next `len` bytes, fewer only where the stream ends or fails.
    pub(super) fn peek(&mut self, len: usize) -> &[u8] {
        while self.end - self.start < len && !self.at_end {
            self.fill(len);
        }
        &self.buffer[self.start..self.end.min(self.start.saturating_add(len))]
    }

    /// True if all bytes up to the end, or the error, are among the next `len` bytes.
    pub(super) fn ends_within(&mut self, len: usize) -> bool {
        self.peek(len.saturating_add(1)).len() <= len
    }

    /// The error that ended the stream, if it has not come out yet.
    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        let error = self.pending.take();
        self.failed |= error.is_some();
        error
    }

    /// Reads once from the layer below, with room for at least `len` bytes in all.
    fn fill(&mut self, len: usize) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let room = len.max(BUFFER_BYTES);
        if self.buffer.len() < room {
            self.buffer.resize(room, 0);
        }
        match read_uninterrupted(&mut *self.inner, &mut self.buffer[self.end..]) {
            Ok(0) => self.at_end = true,
            Ok(count) => self.end += count,
            Err(error) => {
                self.at_end = true;
                self.pending = Some(error);
            }
        }
    }
}

fn read_uninterrupted(inner: &mut dyn Read, out: &mut [u8]) -> io::Result<usize> {
    loop {
        match inner.read(out) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl Read for Peek<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(out.len());
        out[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Peek<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end && !self.at_end {
            self.fill(0);
        }
        if self.start == self.end
            && let Some(error) = self.take_error()
        {
            return Err(error);
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        self.position += count as u64;
    }
}

/// What a format's reader gets: a failing stream looks to it like one that ends, and keeps its error for later.
pub(super) struct Quiet<'p, 'r> {
    inner: &'p mut Peek<'r>,
    error: Option<io::Error>,
}

impl<'p, 'r> Quiet<'p, 'r> {
    pub(super) fn new(inner: &'p mut Peek<'r>) -> Self {
        Self { inner, error: None }
    }

    /// The error that ended the stream.
    pub(super) fn into_error(self) -> Option<io::Error> {
        self.error.or_else(|| self.inner.take_error())
    }
}

impl Read for Quiet<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(out) {
            Err(error) => {
                self.error = Some(error);
                Ok(0)
            }
            result => result,
        }
    }
}

impl BufRead for Quiet<'_, '_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        // Twice, because a borrow that is returned from one arm lasts through the other.
        if let Err(error) = self.inner.fill_buf() {
            self.error = Some(error);
        }
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.inner.consume(count);
    }
}
