//! A file that tells if it shrinks while it is read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use astracer_model::files;

/// A regular file, whose end before the size that it had when it was opened is an error.
pub(super) struct Whole<F> {
    file: F,
    /// The size when the file was opened; 0 for pipes and devices.
    expected: u64,
    read: u64,
}

impl Whole<File> {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = files::open_input(path)?;
        let metadata = file.metadata()?;
        let expected = if metadata.is_file() { metadata.len() } else { 0 };
        Ok(Self { file, expected, read: 0 })
    }
}

impl<F: Read> Read for Whole<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read += count as u64;
        if count == 0 && !buffer.is_empty() && self.read < self.expected {
            let missing = self.expected - self.read;
            let shrank = format!("the file shrank by {missing} bytes while it was read");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, shrank));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_end_is_an_error() {
        let text = &b"12345"[..];
        for (expected, is_error) in [(5, false), (3, false), (0, false), (7, true)] {
            let mut whole = Whole { file: text, expected, read: 0 };
            let mut found = Vec::new();
            let error = whole.read_to_end(&mut found).err().map(|error| error.to_string());
            let shrank = is_error.then(|| "the file shrank by 2 bytes while it was read".to_owned());
            assert_eq!((error, &*found), (shrank, text));
        }
    }
}
