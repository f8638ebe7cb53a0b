//! Gzip streams with one or more members.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// Decompresses members until the input ends.
///
/// Zeros after a member are padding, as tape drives and block devices leave it; gzip(1) ignores
/// them too. Other bytes after a member are an error, which is returned after the content before
/// them.
pub(super) struct GzipMembers<R> {
    /// `None` between members, and after the last.
    member: Option<GzDecoder<R>>,
    /// The input while `member` is `None`.
    input: Option<R>,
}

impl<R: BufRead> GzipMembers<R> {
    /// Makes a reader of `input`, which begins with a member.
    pub(super) fn new(input: R) -> Self {
        Self { member: Some(GzDecoder::new(input)), input: None }
    }

    /// Skips padding; returns true if a member follows.
    fn follows(input: &mut R) -> io::Result<bool> {
        loop {
            let bytes = match input.fill_buf() {
                Ok([]) => return Ok(false),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            match bytes.iter().position(|&byte| byte != 0) {
                Some(0) => return Ok(true),
                zeros => {
                    let zeros = zeros.unwrap_or(bytes.len());
                    input.consume(zeros);
                }
            }
        }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(member) = &mut self.member {
                match member.read(buffer)? {
                    0 => self.input = self.member.take().map(GzDecoder::into_inner),
                    read => return Ok(read),
                }
            }
            let Some(input) = &mut self.input else { return Ok(0) };
            if !Self::follows(input)? {
                return Ok(0);
            }
            self.member = self.input.take().map(GzDecoder::new);
        }
    }
}
