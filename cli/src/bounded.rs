//! Reads small files, which options name.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use astracer_model::files;

use crate::interrupt;

/// Opens an input for which a pipe may be meant, such as a shell's `<(...)`. The first signal ends
/// a wait for the other end.
pub(crate) fn open_input(path: &Path) -> io::Result<File> {
    interrupt::answer_at_once_while(|| files::open_input(path))
}

/// Reads such an input; `None` if it is larger than `most` bytes. The first signal ends a wait for
/// the other end.
pub(crate) fn read_input(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    interrupt::answer_at_once_while(|| read_within(files::open_input(path)?, most))
}

/// Reads the whole input; `None` if it is larger than `most` bytes.
pub(crate) fn read_within(input: impl Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    input.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_input_is_refused() {
        assert_eq!(read_within(&b"abc"[..], 3).unwrap(), Some(b"abc".to_vec()));
        assert_eq!(read_within(&b"abc"[..], 2).unwrap(), None);
        assert_eq!(read_within(io::repeat(0), 1000).unwrap(), None);
    }
}
