//! The unread part of a file in memory.

use std::io::{self, BufRead};

/// A sliding view of a stream, with the position of its start.
pub(super) struct Window<'r> {
    input: &'r mut dyn BufRead,
    step_bytes: usize,
    buffer: Vec<u8>,
    start: usize,
    byte: u64,
    line: u64,
    before: Option<u8>,
    ended: bool,
    is_idle: bool,
    error: Option<io::Error>,
}

impl<'r> Window<'r> {
    /// A window at the start of a stream, which grows by about `step_bytes` at a time.
    pub(super) fn new(input: &'r mut dyn BufRead, step_bytes: usize) -> Self {
        Self {
            input,
            step_bytes,
            buffer: Vec::new(),
            start: 0,
            byte: 0,
            line: 1,
            before: None,
            ended: false,
            is_idle: false,
            error: None,
        }
    }

    /// The bytes in memory that have not been consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// The byte and the line of the first of [`bytes`](Self::bytes).
    pub(super) fn place(&self) -> (u64, u64) {
        (self.byte, self.line)
    }

    /// The byte before the first of [`bytes`](Self::bytes).
    pub(super) fn before(&self) -> Option<u8> {
        self.before
    }

    /// Consumes the first `count` bytes.
    pub(super) fn advance(&mut self, count: usize) {
        let used = &self.buffer[self.start..self.start + count];
        self.line += memchr::memchr_iter(b'\n', used).count() as u64;
        self.before = used.last().copied().or(self.before);
        self.byte += count as u64;
        self.start += count;
    }

    /// True if a file that is being written had nothing more when it was asked last.
    pub(super) fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Reads more bytes after those in memory; returns false at the end of the stream, and while a
    /// file that is being written has nothing more.
    pub(super) fn more(&mut self) -> bool {
        self.is_idle = false;
        if self.ended {
            return false;
        }
        // Consumed bytes are discarded only when they make up more than half of the buffer, so that
        // each byte moves about once.
        if self.start > self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let before = self.buffer.len();
        while self.buffer.len() - before < self.step_bytes {
            match self.input.fill_buf() {
                Ok([]) => self.ended = true,
                Ok(bytes) => {
                    let count = bytes.len();
                    self.buffer.extend_from_slice(bytes);
                    self.input.consume(count);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_idle = true,
                Err(error) => {
                    self.error = Some(error);
                    self.ended = true;
                }
            }
            break;
        }
        self.buffer.len() > before
    }

    /// Reads until `len` bytes are in memory; returns false if no byte could be added.
    pub(super) fn reach(&mut self, len: usize) -> bool {
        let before = self.bytes().len();
        while self.bytes().len() < len && self.more() {}
        self.bytes().len() > before
    }

    /// Skips a byte order mark at the start of a stream.
    pub(super) fn skip_byte_order_mark(&mut self) {
        self.get(2);
        if self.bytes().starts_with(b"\xef\xbb\xbf") {
            self.advance(3);
        }
    }

    /// The byte at an index, reading more if necessary; `None` after the last byte.
    pub(super) fn get(&mut self, index: usize) -> Option<u8> {
        while self.bytes().len() <= index {
            if !self.more() {
                return None;
            }
        }
        Some(self.bytes()[index])
    }

    /// Returns true if an error ended the input.
    pub(super) fn is_cut_by_error(&self) -> bool {
        self.error.is_some()
    }

    /// Takes the error that ended the input.
    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }
}
