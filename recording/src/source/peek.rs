//! A buffered stream whose beginning can be inspected before it is read.

use std::io::{self, BufRead, Read};

const BUFFER_BYTES: usize = 64 << 10;

/// One layer of a source: a file, the output of a decompressor, or a member of an archive.
///
/// An error of the layer below is returned once, after all bytes before it; then the stream has
/// ended. The layers above pass the error on, and the reader of the topmost layer reports it.
/// [`has_failed`](Self::has_failed) lets each layer below see that the error has been reported.
pub(super) struct Peek<'r> {
    inner: Box<dyn Read + 'r>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    pending: Option<io::Error>,
    at_end: bool,
    /// True if a file that is being written had nothing more when it was read last.
    is_idle: bool,
    failed: bool,
    position: u64,
}

impl<'r> Peek<'r> {
    pub(super) fn new(inner: Box<dyn Read + 'r>) -> Self {
        let buffer = Vec::new();
        Self {
            inner,
            buffer,
            start: 0,
            end: 0,
            pending: None,
            at_end: false,
            is_idle: false,
            failed: false,
            position: 0,
        }
    }

    /// The number of bytes read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Returns true after an error was returned.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// The next `len` bytes; fewer only if the stream ends or fails, or has no more for now.
    pub(super) fn peek(&mut self, len: usize) -> &[u8] {
        while self.end - self.start < len && !self.at_end {
            self.fill(len);
            if self.is_idle {
                break;
            }
        }
        &self.buffer[self.start..self.end.min(self.start.saturating_add(len))]
    }

    /// Returns true if the end, or the error, follows within the next `len` bytes.
    pub(super) fn ends_within(&mut self, len: usize) -> bool {
        self.peek(len.saturating_add(1)).len() <= len
    }

    /// Takes the error that ended the stream, unless it was already returned.
    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        let error = self.pending.take();
        self.failed |= error.is_some();
        error
    }

    /// Reads once from the layer below, with buffer space for at least `len` bytes in total.
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
        self.is_idle = false;
        match read_uninterrupted(&mut *self.inner, &mut self.buffer[self.end..]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_idle = true,
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
        if self.start == self.end && self.is_idle {
            return Err(io::ErrorKind::WouldBlock.into());
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

/// The stream passed to a format's reader. If it fails, it appears to end normally, and the error
/// is kept for [`into_error`](Self::into_error).
pub(super) struct Quiet<'p, 'r> {
    inner: &'p mut Peek<'r>,
    error: Option<io::Error>,
}

impl<'p, 'r> Quiet<'p, 'r> {
    pub(super) fn new(inner: &'p mut Peek<'r>) -> Self {
        Self { inner, error: None }
    }

    /// Returns the error that ended the stream.
    pub(super) fn into_error(self) -> Option<io::Error> {
        self.error.or_else(|| self.inner.take_error())
    }
}

impl Read for Quiet<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(out) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
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
        // Called twice, because a borrow returned from one arm would last through the other.
        if let Err(error) = self.inner.fill_buf() {
            if error.kind() == io::ErrorKind::WouldBlock {
                return Err(error);
            }
            self.error = Some(error);
        }
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.inner.consume(count);
    }
}
